/* peer_save.h - `potluck peer --save`: a peer without data saves the run's state: whenever the
 * swarm has made a step, the state is downloaded from a peer that shares it, as by a newcomer, and
 * written as a checkpoint of `potluck train`. Called from one thread, which never waits for a donor
 * here. */
#ifndef PL_CMD_PEER_SAVE_H
#define PL_CMD_PEER_SAVE_H

#include "peer_model.h"
#include "cmd/options/options.h"
#include "net/hivemind/swarm/swarm.h"

struct peer_save_options {
    const char *folder; /* NULL: nothing is saved */
    double every;       /* s */
    int64_t keep;
};
/* --save, --save-every, --keep. */
extern const struct option_row peer_save_rows[];

struct peer_save;

/* Makes the folder. model is borrowed; json: print events as lines of JSON. */
int peer_save_open(struct peer_save **p, const struct peer_save_options *o,
                   struct peer_model *model, const char *run, int json, struct pl_err *err);
/* The swarm that it is taken from, borrowed. */
int peer_save_start(struct peer_save *p, struct swarm *s, struct pl_err *err);
/* To be called every second or so, once the swarm has been joined. */
void peer_save_turn(struct peer_save *p);
/* Before swarm_close; cancels a download. NULL may be closed. */
void peer_save_close(struct peer_save *p);

#endif
