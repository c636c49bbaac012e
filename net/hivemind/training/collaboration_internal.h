/* collaboration_internal.h - shared by the parts of collaborative training: progress and the
 * decision to step (collaboration.c), the rounds (collaboration_rounds.c), download of a state
 * (collaboration_load.c), records and reports (collaboration_report.c). */
#ifndef PL_COLLABORATION_INSIDE_H
#define PL_COLLABORATION_INSIDE_H

#include "liveness.h"
#include "claims.h"
#include "collaboration.h"
#include "target_watch.h"

#include <pthread.h>

enum { GRADIENT, STATE, AVERAGERS };

#define TRIES_MAX 5    /* downloads that may fail in a row: donors may be at their own update */
#define WARNINGS_MAX 5 /* warnings that wait; each kind comes once */

struct collaboration {
    struct collaboration_options o;
    struct loop *loop;
    char run[GROUP_KEY_MAX];
    size_t *elements;
    struct averager *a[AVERAGERS];
    struct dht_id progress_id, metrics_id, report_id;
    struct bytes subkey; /* our owner tag */
    pthread_mutex_t lock;
    pthread_cond_t changed;

    /* on the loop */
    int64_t epoch, samples, last_epoch_with_samples;
    struct performance speed;
    struct progress_view view;
    size_t others; /* peers in it without us, who count */
    size_t paused; /* of those: on back-off, in no group of ours for now */
    double viewed; /* DHT time of the last view */
    int updating, closing, has_reported;
    struct dht_task *fetch, *leaving;
    struct timer fetch_timer, report_timer;
    struct report_record totals; /* of both kinds of rounds */
    struct liveness liveness;
    struct reliability reliability; /* of both kinds of rounds */
    struct claims claims;
    int64_t lead;                /* see claims.h, by the last poll */
    int tries;                   /* downloads in a row that have not shown it */
    double next_try, load_began; /* DHT time */
    struct claimant_ping {
        struct collaboration *c;
        struct peer_id peer;
        double began; /* DHT time */
        struct dht_task *task;
    } pings[CLAIMS_PINGS]; /* under way */
    struct target_watch watch;
    struct pl_err warnings[WARNINGS_MAX]; /* warnings, oldest first */
    size_t warning_count;
    int told_differs, told_left_out;
    struct request *fetch_waits; /* to be completed by the next view */

    /* the gradient round */
    struct request *gradient_waits;
    struct collaboration_round gradient;
    int averaging;        /* it has our gradient, and has not ended */
    int delayed;          /* local batches overlap with it */
    int has_begun;        /* its end has begun the next epoch: advance does not */
    int64_t next_samples; /* accumulated for that */
    int nothing;          /* what we had was no gradient (the training thread's) */
    int alone;
    double triggered_at;

    /* an auxiliary peer's */
    int64_t helping, helped; /* epoch of the round under way; of the last good one, -1: none */
    int help_ended;

    /* the state round: values before and after, tensor by tensor */
    float **before, **after;
    int state_running, state_ended;
    int state_void; /* the parameters that it began with are not ours any more */
    struct request *state_waits;
    struct collaboration_round state;
};

struct request {
    struct collaboration *c;
    int done, status;
    int64_t number;
    double seconds;
    float *const *tensor;
    enum collaboration_advice advice;
    struct collaboration_view *view;
    struct collaboration_round *round;
    struct state_snapshot *snapshot;
    char *bits; /* room for GROUP_BITS_MAX + 1 */
    struct metrics_record metrics;
    struct metrics_sums *sums;
    struct report_record *totals;
    averager_check *check;
    void *check_context;
    struct state_load *state;
    struct pl_err *err;
    int is_beyond;     /* a state was of an epoch beyond the lead */
    int is_waiting;    /* and its epoch may be confirmed yet: */
    double wait_until; /* DHT time; 0: no state of this download had to wait */
    int left;          /* averagers still to be closed */
};

/* Wakes the thread that waits for the request. */
void request_complete(struct request *w, int status);
/* Calls `begin` on the loop's thread, and sleeps until the request is completed. */
int request_wait(struct request *w, loop_fn *begin);
double collaboration_now(const struct collaboration *c); /* DHT time */
/* Stores a record of ours, for `life` seconds; does nothing with a value that could not be
 * written. */
void collaboration_store(struct collaboration *c, const struct dht_id *key,
                         const struct bytes *value, double life);
/* Begins a poll now; its view completes the request. */
void collaboration_poll_for(struct request *w);
void collaboration_poll_now(void *request);             /* the same, to be posted to the loop */
void collaboration_poll_again(struct collaboration *c); /* the same, nobody waits for it */
void collaboration_begin_poll(void *c);                 /* unless one is under way */
/* The lead by the last poll; an auxiliary peer follows it. */
void collaboration_update_lead(struct collaboration *c);
void collaboration_cancel_pings(struct collaboration *c);
void collaboration_report(struct collaboration *c);
void collaboration_report_later(struct collaboration *c); /* again, in time */
/* Queues a warning for collaboration_take_warning. */
void collaboration_warn(struct collaboration *c, const char *text);
/* How many peers a round expects, ourselves included. */
size_t collaboration_expected(const struct collaboration *c);
/* Adds a round to the totals. missed: other peers should have come. */
void collaboration_count(struct collaboration *c, const struct averager_result *r, int missed);
/* Begins matchmaking before the target batch is complete; the others do so at the same time. */
void collaboration_schedule(struct collaboration *c);

#endif
