/* target_watch.h - whether the others step at another number of samples than ours. hivemind's records
 * do not tell the target batch, so it is inferred: from steps that the swarm takes long before our
 * target, or that nobody comes to although it is long past. Pure functions. [spec hivemind-protocol 8]
 *
 * Records lag, samples between two looks are estimates, and a look may miss whole steps; so only what
 * remains when everything is taken for the better counts, and only several steps in a row. */
#ifndef PL_TARGET_WATCH_H
#define PL_TARGET_WATCH_H

#include "progress.h"

#define TARGET_WATCH_STEPS 4    /* looks in a row that find the swarm gone on without us */
#define TARGET_WATCH_ALONE 3    /* of our steps in a row that nobody came to */
#define TARGET_WATCH_EARLY 0.75 /* of our target: more than that may be a step like ours */
#define TARGET_WATCH_LATE 2.0   /* of our target: each peer's last batch may come on top of it */
#define TARGET_WATCH_FASTER 1.5 /* than they say may peers be; pauses make them slower */
#define TARGET_WATCH_LEAP 4.0   /* times as many steps as before in one look */

/* All zero at first. */
struct target_watch {
    int has_last, has_stepped, early, late, told_early, told_late;
    int64_t epoch;            /* the swarm's at the last look */
    double at;                /* DHT time of that */
    double last_steps;        /* that the last look to find any has found; 0: none has */
    double base, came, steps; /* samples at the first look that counts, those since, and steps */
    double seen;              /* the most samples that records had at one epoch since */
    double
        alone_since; /* DHT time of the trigger of our last step, if nobody came; 0: somebody did */
};

/* Our step of the present epoch was triggered then; alone: nobody came, though there are others. */
void target_watch_step(struct target_watch *w, double triggered, int alone);
/* A look at everybody else's records and at ours (as they are now). 1: say holds a sentence, each
 * kind once. */
int target_watch_see(struct target_watch *w, const struct progress_record *others, size_t count,
                     const struct progress_record *own, int64_t target, double now,
                     struct pl_err *say);

#endif
