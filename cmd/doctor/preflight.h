/* preflight.h - preflight checks: why joining a swarm fails or will be slow. `potluck doctor`
 * prints all of them; every command that joins runs them first. Each finding comes with advice.
 * Functions wait, so they are not for the loop's thread. */
#ifndef PL_CMD_PREFLIGHT_H
#define PL_CMD_PREFLIGHT_H

#include "cmd/common/compute.h"
#include "net/hivemind/swarm/swarm.h"

#include "runtime/memory.h"

enum finding_level { FINDING_GOOD, FINDING_WARNING, FINDING_BAD };
struct finding {
    enum finding_level level;
    const char *what; /* "clock" */
    char text[640];   /* the finding */
    char advice[400]; /* the advice, and on which side to act; empty: none */
    char brief[80];   /* for the one line when all is good; may be empty */
};
typedef void preflight_report(void *context, const struct finding *f);

struct preflight_plan {
    size_t load;          /* bytes of the record that measures bandwidth; 0: not measured */
    const char *run;      /* run whose peers are searched; may be NULL */
    int64_t target_batch; /* ours, to compare with the others'; 0: not known */
    int ways;             /* 1: connects to the peers that train it, and says which way */
    int trains;           /* 1: we will train it, so a run without trainers is worth a warning */
};
#define PREFLIGHT_LOAD \
    (1u << 20) /* the doctor's; a step of the reference run moves 100 MB each
                                   * way */

/* Contacts each address of o->join: does it answer, is it a DHT node, how far is its clock from
 * ours, which address does it observe for us, can it connect to us, is it a relay; then the checks
 * of the plan. Meanwhile no peer adds us to its routing table. PL_OK: at least one accepts us. */
int preflight_swarm(const struct swarm_options *o, const struct preflight_plan *plan,
                    preflight_report *report, void *context);

/* Memory and speed for a model of the calculator (`potluck calc --models`). PL_EUSE: no such
 * model. */
int preflight_machine(const char *model, const struct pl_backend *be, preflight_report *report,
                      void *context, struct pl_err *err);
/* The same for a plan whose buffers are allocated already; takes 0.3 s at most. */
void preflight_plan_fits(const struct pl_memory_plan *plan, const struct pl_backend *be,
                         preflight_report *report, void *context);

/* --- before joining --------------------------------------------------------------------------- */

#define PREFLIGHT_PATIENCE 1.0 /* s after the first bootstrap peer's answer; then we join */
#define PREFLIGHT_LOAD_SHORT (128u << 10)

struct preflight_join_options {
    const struct swarm_options *swarm;   /* borrowed, as the rest is */
    const char *run;                     /* may be NULL */
    int64_t target_batch;                /* see above */
    const struct pl_memory_plan *memory; /* of the model to be trained by be; NULL: none */
    const struct pl_backend *be;
    int json, quiet; /* quiet: prints problems only */
    int off;         /* --no-check: only says why joining has failed */
};
/* clang-format off */
#define PREFLIGHT_ROW(field) \
    { "no-check", NULL, NULL, OPT_FLAG(field), \
      "join without preflight checks. They contact each bootstrap peer, compare clocks, look for " \
      "the run's other peers, and test reachability, router, relay and bandwidth; before " \
      "training also memory and speed. Checks that take longer than one second continue in the " \
      "background while the peer joins" }
/* clang-format on */

struct preflight_join;
/* For a swarm opened with `hold`: checks its bootstrap peers, and joins. Findings go to stderr: one
 * line if all is well, otherwise a line and an advice for each problem; with json as one event on
 * stdout, on whatever thread. PL_OK: it is joined. PL_EIO: err says why not and which side has to
 * act; the node keeps trying. */
int preflight_join(struct preflight_join **c, struct swarm *s,
                   const struct preflight_join_options *o, struct pl_err *err);
/* For a command that made no checks before it failed to join: contacts each of how->join once more,
 * prints its problem on stderr, and appends to err which side has to act; if there is no problem
 * any longer, err is unchanged. Returns PL_EIO. */
int preflight_explain(struct swarm *s, const struct swarm_options *how, struct pl_err *err);
/* Before swarm_close; ends checks that are still running. NULL may be closed. */
void preflight_join_end(struct preflight_join *c);

#endif
