/* averaging_time.c - the share of averaging, and the plan that brings it down.
 *
 * A round's duration does not depend on the computing before it. If averaging takes the share s of
 * the time, then with k times as much computing between two rounds it takes the share
 *
 *   s' = s / (s + k (1 - s)),   so   k = s (1 - s') / (s' (1 - s)). */
#include "averaging_time.h"
#include "cmd/common/json_event.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define FIRST_REPORT 30.0  /* s: several rounds, so that the slower first ones no longer dominate */
#define REPORT_EVERY 300.0 /* s: after some minutes the share may have changed */
#define MUCH 0.5           /* averaging costs more than computing */
#define LITTLE 0.1         /* the share that the advice aims at */
#define ADVICE_TEXT 320    /* bytes, its end included */
#define TIMES_MAX 1000     /* a peer that only waits does not lack computing */
#define STEPS_MAX 1000000  /* as many inner steps, and as large a batch, the options take */

/* 0 before training begins. */
static double share_of(const struct averaging_time *t)
{
    double sum = t->computing + t->averaging;
    return sum > 0 ? t->averaging / sum : 0;
}

/* Is it time for a report? Then *share is that since the last one. */
static int is_due(struct averaging_time *t, double *share)
{
    const struct averaging_time since = { .computing = t->computing - t->reported_computing,
                                          .averaging = t->averaging - t->reported_averaging };
    const int is_first = t->reported_computing + t->reported_averaging == 0;
    if (since.computing + since.averaging < (is_first ? FIRST_REPORT : REPORT_EVERY)) return 0;
    *share = share_of(&since);
    t->reported_computing = t->computing;
    t->reported_averaging = t->averaging;
    return 1;
}

/* Returns 0 if computing takes more time than averaging: then the text is empty. */
static int advise(char text[ADVICE_TEXT], double share, const struct averaging_plan *plan)
{
    const double most = fmin(share, 0.999); /* the formula's pole */
    const double k = most * (1 - LITTLE) / (LITTLE * (1 - most));
    const long long times = (long long)fmin(ceil(k), TIMES_MAX);
    const long long inner = plan->inner_steps * times, target = plan->target_batch * times;
    text[0] = 0;
    if (share <= MUCH) return 0;
    if (plan->has_local_steps)
        snprintf(text, ADVICE_TEXT,
                 "--inner-steps %lld at all peers makes that %.0f %%; a peer that is much slower "
                 "than the others makes them wait",
                 inner < STEPS_MAX ? inner : STEPS_MAX, 100 * LITTLE);
    else
        snprintf(text, ADVICE_TEXT,
                 "--target-batch %lld or --algorithm diloco --inner-steps %lld at all peers makes "
                 "that %.0f %% or less%s",
                 target < STEPS_MAX ? target : STEPS_MAX, times, 100 * LITTLE,
                 plan->is_delayed ? "" : "; --delay round, here alone, overlaps it with computing");
    return 1;
}

void averaging_time_report(struct averaging_time *t, const struct averaging_plan *plan,
                           const char *cmd, int at_end, int json)
{
    double share = share_of(t);
    char advice[ADVICE_TEXT];
    int is_much;
    if (!at_end && !is_due(t, &share)) return;
    is_much = advise(advice, share, plan);
    if (json)
        json_event_print(json_pack("{s:s, s:f, s:f, s:f, s:s?}", "event", "time", "computing",
                                   t->computing, "averaging", t->averaging, "share", share,
                                   "advice", is_much ? advice : NULL));
    else if (at_end || is_much)
        fprintf(stderr, "\npotluck %s: averaging took %.0f %% of the %s%s%s\n", cmd, 100 * share,
                at_end ? "time" : "last minutes", is_much ? ": " : "", advice);
}
