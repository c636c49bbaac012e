/* checkup.h - why joining a swarm fails, or will be slow: what `potluck doctor` asks, one finding a
 * line, each with what to do about it. Functions wait; not for the loop's thread. */
#ifndef PL_CMD_CHECKUP_H
#define PL_CMD_CHECKUP_H

#include "compute.h"
#include "swarm.h"

enum finding_level { FINDING_GOOD, FINDING_WARNING, FINDING_BAD };
struct finding {
    enum finding_level level;
    const char *what;  /* "clock" */
    char text[640];    /* what was found */
    char advice[400];  /* what to do, and on which side; empty when there is nothing to do */
};
typedef void checkup_tell(void *context, const struct finding *f);

/* Asks each address of o->join by itself: does it answer, is it a node, how far is its clock, how
 * does it see us, can it reach us, does it relay; with `thorough` also how fast it takes and gives
 * data. We are in nobody's table meanwhile. PL_OK: at least one lets us in. */
int checkup_swarm(const struct swarm_options *o, int thorough, checkup_tell *tell, void *context);

/* Memory and speed for a model of the calculator (`potluck calc --models`). PL_EUSE: no such
 * model. */
int checkup_machine(const char *model, const struct pl_backend *be, checkup_tell *tell,
                    void *context, struct pl_err *err);

/* The same from inside a swarm that was opened with o: says on stderr what is bad. For whoever has
 * tried to join, whether it went well or not: also who cannot be called should know. */
void checkup_explain(struct swarm *s, const struct swarm_options *o);

#endif
