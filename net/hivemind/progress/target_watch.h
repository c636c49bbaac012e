/* target_watch.h - a warning if the others step at another number of samples than we do. hivemind's
 * records do not hold the target batch, so it is inferred: from steps that the swarm takes long
 * before our target, or from steps of ours without groupmates. Pure functions. [spec
 * hivemind-protocol 8]
 *
 * Records lag, samples between two polls are estimates, and a poll may miss whole steps. So each
 * unknown is assumed in the others' favour, and only several consecutive signs count. */
#ifndef PL_TARGET_WATCH_H
#define PL_TARGET_WATCH_H

#include "progress.h"

#define TARGET_WATCH_STEPS 4    /* polls in a row that find the swarm gone on without us */
#define TARGET_WATCH_ALONE 3    /* of our consecutive steps without groupmates */
#define TARGET_WATCH_EARLY 0.75 /* of our target: more than that may be a step like ours */
#define TARGET_WATCH_LATE 2.0   /* of our target: each peer's last batch may come on top of it */
#define TARGET_WATCH_FASTER 1.5 /* peers may be faster than they report by this factor */
#define TARGET_WATCH_LEAP 4.0   /* times as many steps as before in one poll */

/* All zero at first. */
struct target_watch {
    int has_last, has_stepped, early, late, has_warned_early, has_warned_late;
    int64_t epoch;            /* the swarm's at the last poll */
    double at;                /* DHT time of that */
    double last_steps;        /* found by the last poll that found any; 0: none has */
    double base, came, steps; /* samples at the first poll that counts, those since, and steps */
    double seen;              /* the most samples that records had at one epoch since */
    double alone_since; /* DHT time of our last step's trigger if it had no groupmates, else 0 */
};

/* Our step of the present epoch was triggered at this time; alone: no peer came, though there
 * are others. */
void target_watch_step(struct target_watch *w, double triggered, int alone);
/* A poll: all other peers' records, and ours as it is now. 1: *warning is a warning; each kind
 * comes once. */
int target_watch_update(struct target_watch *w, const struct progress_record *others, size_t count,
                        const struct progress_record *own, int64_t target, double now,
                        struct pl_err *warning);

#endif
