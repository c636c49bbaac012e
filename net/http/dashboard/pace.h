/* pace.h - how fast a run is by wall clock. Peers report how fast they compute, and the sum of that
 * leaves out the time in which they look for groups, average and wait. Here the samples that they
 * have processed, as they count them since they began, are divided by the time that has passed. */
#ifndef PL_PACE_H
#define PL_PACE_H

#include "dashboard_seen.h"

#define PACE_POINTS 64     /* of the window: one for each PACE_EVERY */
#define PACE_EVERY 5.0     /* s between them */
#define PACE_WINDOW 300.0  /* s; several steps of most runs */
#define PACE_AT_LEAST 20.0 /* s that must have passed before there is a figure */

struct pace {
    struct pace_point {
        double time;
        int64_t step;
        double samples;   /* counted by the peers since the page began */
    } point[PACE_POINTS]; /* the oldest first */
    size_t count;
    double samples, target;
    /* The counts at the last poll, by key. */
    struct pace_count {
        char key[33];
        int64_t samples;
    } * last;
    size_t last_count;
    double last_time;
    int64_t last_step;
    /* The run as far as it was followed: from the first poll to the last new step. */
    struct pace_point began, stepped;
};

/* A poll: `step` is the run's, target the samples that a step takes at least (0: not known). Only
 * peers that were there at the last poll, too, tell how much has been processed since.
 * PL_ENOMEM. */
int pace_add(struct pace *p, const struct seen *s, double time, int64_t step, double target);
void pace_clear(struct pace *p);

/* NAN: not known yet. */
double pace_rate(const struct pace *p);   /* samples a second */
double pace_step_s(const struct pace *p); /* seconds a step; NAN also if there was none */
double pace_mean(const struct pace *p); /* samples a second, from the first poll to the last step */

#endif
