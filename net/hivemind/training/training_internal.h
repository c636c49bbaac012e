/* training_internal.h - shared by the parts of collaborative training: progress and the
 * decision to step (training.c), the rounds (training_rounds.c, training_gradients.c,
 * training_parameters.c, training_auxiliary.c), digests of the parameters (training_digest.c),
 * download of a state (training_download.c), records and reports (training_records.c). */
#ifndef PL_TRAINING_INTERNAL_H
#define PL_TRAINING_INTERNAL_H

#include "net/hivemind/progress/liveness.h"
#include "net/hivemind/progress/claims.h"
#include "net/hivemind/progress/digest.h"
#include "net/hivemind/progress/metrics.h"
#include "net/hivemind/progress/pairs.h"
#include "net/hivemind/progress/parts.h"
#include "net/hivemind/progress/peer_report.h"
#include "training.h"
#include "net/hivemind/progress/target_watch.h"

enum { GRADIENT, STATE, AVERAGERS };

#define LOAD_FAILURES_MAX 5 /* downloads in a row: donors may be at their own update */
#define WARNINGS_MAX 5      /* warnings that wait; each kind comes once */

/* Where this peer is in its epoch. [spec hivemind-protocol 9]
 *
 *                     target batch          round ended        optimizer stepped
 *   undelayed  ACCUMULATING ----> AVERAGING ----------> STEPPING --------------> ACCUMULATING
 *   delayed    ACCUMULATING ----> OVERLAPPED ---------> BEGUN -----------------> ACCUMULATING
 *
 * The next epoch begins after the optimizer's step, or with BEGUN: batches that overlap with a
 * round belong to it. */
enum epoch_phase {
    EPOCH_ACCUMULATING,
    EPOCH_AVERAGING, /* the training's thread waits; nothing is polled until the step is over */
    EPOCH_STEPPING,
    EPOCH_OVERLAPPED,
    EPOCH_BEGUN
};

/* This peer's progress: training.c. */
struct own_progress {
    int64_t epoch, samples, last_epoch_with_samples;
    int64_t next_samples; /* OVERLAPPED: accumulated for the epoch after this one */
    struct performance speed;
    enum epoch_phase phase;
    int has_begun;     /* enough peers were there, or the time to wait for them is over */
    double wait_until; /* DHT time: for min_peers; 0: it has not had to wait */
};

/* Its record in the DHT: training_progress.c. */
struct own_report {
    struct dht_id key[RECORD_PART_LEVELS]; /* RUN_progress, and those of our parts (parts.h) */
    size_t level;                          /* of our record */
    uint8_t owner[DHT_ID_BYTES];           /* hash of our key, as others see it */
    /* Of the parts that we lead, each stored one level higher; peers 0: we do not lead it. */
    struct progress_record sum[RECORD_PART_LEVELS];
    struct dht_id identity_key; /* RUN_identity: the proof that our reports are this peer's */
    double proof_due;           /* DHT time of its next renewal */
    int has_stored;             /* there is a record of ours, to be corrected or withdrawn */
    struct timer timer;
    struct dht_task *withdrawal;
};

/* The others' reports, by the last poll: training_progress.c. */
struct others_progress {
    struct dht_task *task; /* NULL: no poll is under way */
    struct dht_task *proofs_task;
    struct dht_result proofs; /* the records under RUN_identity, until the next poll uses them */
    double proofs_due;        /* DHT time: they have been asked for, and decided nothing */
    struct timer timer;
    struct request *waiter;       /* to be completed by the next view */
    size_t level;                 /* of the part that is read now */
    struct progress_record *part; /* of ours, read in this poll, ours included; NULL: level 0 */
    size_t part_count;
    struct progress_view view;
    size_t others;     /* peers that count, without us */
    size_t paused;     /* of those: no group of ours waits for them now */
    int has_samples;   /* one of them reports samples of our epoch */
    int64_t lead;      /* see claims.h */
    int64_t displayed; /* the same for people */
    struct claims claims;
    struct liveness liveness;
    struct target_watch watch;
};

/* Downloads of a state: training_download.c. */
struct training_download {
    int failures;           /* in a row that have not shown the lead */
    double next_try, began; /* DHT time */
    struct timer pulse;     /* runs during a download */
    double spent, counted;  /* s that this process ran in it; DHT time until which they count */
    struct claimant_ping {
        struct training *c;
        struct peer_id peer;
        double began; /* DHT time */
        struct dht_task *task;
    } pings[CLAIMS_PINGS]; /* under way */
};

/* Records for the dashboard and the user: training_records.c. */
struct dashboard_records {
    struct dht_id metrics_key, report_key;
    struct report_record totals;          /* of both kinds of rounds */
    struct pl_err warnings[WARNINGS_MAX]; /* oldest first */
    size_t warning_count;
    int has_warned_differs, has_warned_left_out;
};

/* The round of the gradients, or of messages: training_gradients.c. */
struct gradient_round {
    struct averager_message *messages; /* of the last good round, until they are taken */
    size_t message_count;
    struct request *waiter; /* AVERAGING, or the end of OVERLAPPED */
    struct training_round result;
    int is_alone; /* no other peer, or nothing to give: it was cancelled */
    size_t drawn; /* peers of the group that was drawn for it; 0: none was */
    int is_bad;   /* the last delayed gradient was not finite; the training's thread owns this */
    double triggered_at;
    int64_t samples; /* all peers', when it was triggered */
};

/* Have our parameters diverged from those of our group? training_digest.c. */
#define DIGEST_CHECKS 2 /* a step's check may still be waiting when the next step begins its own */
struct digest_checks {
    struct digest_check {
        struct training *c;
        struct digest_record own; /* after the step */
        struct dht_id key;
        struct peer_id *mates; /* the group that made the step, with us; NULL: none is expected */
        size_t mate_count;
        struct timer timer; /* until the others have stored theirs, too */
        struct dht_task *task;
    } check[DIGEST_CHECKS]; /* of epoch e: number e modulo 2 */
    /* The group of the last good round of gradients; NULL: it has failed. */
    struct peer_id *mates;
    size_t mate_count;
    struct digest last; /* of last_epoch, by which a step is measured; -1: none */
    int64_t last_epoch;
    /* How far we may be from the group by steps without a mean, see count_alone. */
    double alone, alone_given; /* alone_given: of the copy in the round of the parameters */
    int alone_unmeasured;      /* such steps whose length is not known yet */
    int has_diverged;          /* the training's thread has not yet asked for a state */
    int64_t doubted_until;     /* epoch: until then the others' digests do not make us ask again */
    int loads;                 /* in a row that have not ended it */
    struct peer_id named;      /* the last one that a warning was about */
};

/* An auxiliary peer's round: training_auxiliary.c. */
struct auxiliary_round {
    enum { AUXILIARY_IDLE, AUXILIARY_AVERAGING, AUXILIARY_ENDED } phase;
    int64_t epoch;      /* of the round */
    int64_t last_epoch; /* of the last good one; -1: none */
};

/* The round of the parameters, in the background: training_parameters.c. */
struct state_round {
    enum state_phase {
        STATE_IDLE,
        STATE_AVERAGING,
        STATE_OUTDATED, /* under way, but a download has replaced the parameters it began with */
        STATE_ENDED     /* its result has not been taken yet */
    } phase;
    float **before, **after; /* values that were given, and their average, tensor by tensor */
    int is_repeated;         /* within this epoch, see should_repeat */
    struct request *waiter;
    struct training_round result;
};

struct training {
    /* set by open */
    struct training_options o;
    struct loop *loop;
    char run[GROUP_KEY_MAX];
    size_t *elements;
    struct averager *a[AVERAGERS];
    struct bytes subkey; /* our owner tag */
    /* of requests */
    /* on the loop's thread */
    struct own_progress own;
    struct own_report report;
    struct others_progress poll;
    struct training_download load;
    struct dashboard_records records;
    struct gradient_round gradient;
    struct digest_checks digests;
    struct auxiliary_round help;
    struct state_round state;
    struct reliability reliability; /* of both kinds of rounds */
    struct bandwidth bandwidth;     /* measured in both */
    struct grid grid;               /* how many peers the groups of gradients show */
    int is_closing;
};

/* A round of gradients has ours, and has not ended. */
static inline int training_is_averaging(const struct training *c)
{
    return c->own.phase == EPOCH_AVERAGING || c->own.phase == EPOCH_OVERLAPPED;
}

/* A round of the parameters has not ended. */
static inline int training_is_in_parameters(const struct training *c)
{
    return c->state.phase == STATE_AVERAGING || c->state.phase == STATE_OUTDATED;
}

/* A request of the training's thread to the loop's, for which it sleeps. The kind of request
 * decides which fields are used. */
struct request {
    struct training *c;
    struct loop_request wait;
    int status;
    int64_t number;
    double seconds;
    float *const *tensor;
    const uint8_t *message; /* of message_n bytes, with seconds as its weight */
    size_t message_n;
    struct averager_message **messages;
    enum training_advice advice;
    struct training_view *view;
    struct training_round *round;
    struct state_snapshot *snapshot;
    char *bits; /* GROUP_BITS_MAX + 1 bytes */
    struct metrics_record metrics;
    const struct digest *digest;
    struct bytes *bytes;
    state_check *check;
    void *check_context;
    struct state_load *state;
    struct pl_err *err;
    int is_beyond;     /* a state was of an epoch beyond the lead */
    int is_waiting;    /* and its epoch may be confirmed yet: */
    double wait_until; /* DHT time; 0: no state of this download had to wait */
    int left;          /* averagers still to be closed */
};

/* Calls `begin` on the loop's thread, and sleeps until the request has ended. */
static inline int request_wait(struct request *w, loop_fn *begin)
{
    return loop_wait(w->c->loop, &w->wait, begin, w);
}
double training_now(const struct training *c); /* DHT time */
/* Stores a record of ours, for `life` seconds; does nothing with a value that could not be
 * written. */
void training_store(struct training *c, const struct dht_id *key, const struct bytes *value,
                    double life);
/* Begins a poll now; its view completes the request. */
void training_poll_for(struct request *w);
void training_poll_now(void *request);        /* the same, to be posted to the loop */
void training_poll_again(struct training *c); /* the same, without a request */
void training_begin_poll(void *c);            /* unless one is under way */
/* The lead by the last poll; an auxiliary peer follows it. */
void training_update_lead(struct training *c);
void training_cancel_pings(struct training *c);
void training_report(struct training *c);
void training_report_later(struct training *c); /* again, in time */
/* Takes back the sums of the parts that we lead. */
void training_withdraw_sums(struct training *c);
/* Queues a warning for training_take_warning. */
void training_warn(struct training *c, const char *text);
/* Adds a batch to the totals: samples, and the seconds that computing them took. */
void training_count_batch(struct training *c, int64_t samples, double seconds);
/* Adds a round to the totals. missed: other peers should have come. */
void training_count(struct training *c, const struct averager_result *r, int missed);
/* Adds time in which the training's thread waited for a group. */
void training_count_wait(struct training *c, double seconds);
/* The most that one peer's gradient, or its change of the parameters, may weigh. */
double training_weight_max(const struct training *c);
/* Remembers the group of a good round of gradients, whose parameters are compared after the step;
 * NULL: the round has failed. */
void training_note_mates(struct training *c, const struct group *g);
/* No comparison goes on; our parameters have been replaced. */
void training_drop_digests(struct training *c);
/* A round of this many peers' parameters corrects ours. */
void training_note_corrected(struct training *c, size_t peers);
/* Own epoch + 1. samples: accumulated for it already, during a delayed round. */
void training_begin_epoch(struct training *c, int64_t samples);
/* Begins a round of the averager `which`; scheduled, deadline and patience of *s are set here. As
 * averager_begin. */
int training_begin_round(struct training *c, int which, struct averager_step *s,
                         averager_done *done);
/* A leader need not wait for the end of matchmaking once this many peers have joined. */
size_t training_expected(const struct training *c);
void training_copy_result(struct training_round *to, const struct averager_result *r);
/* Which of the reporting peers have not come to a round of the gradients? */
void training_note_absent(struct training *c, const struct averager_result *r);
/* A request. Gives up a round of the parameters that has found no group yet: the others are busy
 * with their gradients. A round in its all-reduce is waited for, and not tried again if it
 * fails. */
void training_finish_parameters(void *request);
/* Begins matchmaking before the target batch is complete; the others do so at the same time. */
void training_schedule(struct training *c);

#endif
