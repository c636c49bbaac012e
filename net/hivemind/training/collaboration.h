/* collaboration.h - one peer's part in training a model together: who has done how much, when
 * everybody steps, the round that averages the gradients and the one that averages the parameters.
 * [TTT 2.1; 3.3] [spec hivemind-protocol 8, 9, 12]
 *
 *   local batch - add - local batch - add - ...   until the swarm holds the target batch, then
 *   average (gradients) - the caller's optimizer step - advance (epoch + 1; parameters are averaged
 *   beside the next local batches) - correct (what that changed) - ...
 *
 * Called from the training's thread; the network has its own, and training waits for it only where
 * it says so. The gradient round is triggered as soon as we are ready, whatever the parameters'
 * round does, which is cancelled if it has found no group by then: two real trainers that wait the
 * other way round can wait for each other for ever.
 *
 * With delayed updates the gradients' round is beside the next local batches, too:
 *   depart (gradients) - local batch - add - ... - returned - the step, here or beside more batches -
 *   advance */
#ifndef PL_COLLABORATION_H
#define PL_COLLABORATION_H

#include "net/hivemind/averaging/averager.h"
#include "metrics.h"
#include "progress.h"
#include "peer_report.h"

#define COLLABORATION_PATIENCE \
    2 /* matchmaking times without anybody, then our own gradient will do */

/* Target batches that one peer's gradient may weigh: whoever waited for a round that failed has
 * more than its share, and may give it, but groupmates must not have to believe any number. */
#define COLLABORATION_WEIGHT_MAX 4

/* Whose state a newcomer asks for, in the names of calls; its prefix is "RUN_state_averager". */
#define COLLABORATION_STATE_CLASS "TrainingStateAverager"

struct collaboration;

struct collaboration_options {
    const char *run;
    struct host *host;     /* these three are borrowed and outlive it */
    struct dht_node *node; /* with validators that guard the run and sign by `key` */
    const struct rsa_key *key;
    const struct pl_backend *be; /* for averaging, in host memory */
    const char *device;          /* what computes, for the run's page; NULL: not told */
    size_t tensors;              /* the parameters, in the swarm's order: decayed ones first */
    const struct schema_tensor *schema;
    const enum pl_compression *method;
    int64_t target_batch;
    double matchmaking_time, averaging_timeout, allreduce_timeout;
    int64_t average_state_every; /* epochs */
    size_t group_size;           /* a group of so many begins at once; 0: whoever comes in time */
    const char *group_bits; /* see averager.h; borrowed until it is open. NULL: one group of all */
    double bandwidth;
    double clip; /* see exchange.h; 0: the mean */
    int verify;  /* see averager.h: of the gradients; parameters by CenteredClip */
    struct allreduce_validation
        validation; /* but samples_max; called while collaboration_average waits */
    int client_mode;
    int auxiliary; /* has no gradient: of what is below only _enter, _look, _help, _close */
};

/* Opens both averagers. Not on the loop's thread, nor any other function here. */
int collaboration_open(struct collaboration **c, const struct collaboration_options *o,
                       struct pl_err *err);
/* Takes our report back, which others have two seconds to hear of, and waits for what helper threads
 * still do. NULL may be closed. */
void collaboration_close(struct collaboration *c);

struct collaboration_view {
    int64_t epoch, samples;    /* ours */
    int64_t global_epoch;      /* the lead of the others (claims.h) if it is beyond ours */
    int is_unshown;            /* 1: several downloads have not shown the lead */
    int64_t global_samples;    /* of our epoch, everybody's */
    size_t peers;              /* ourselves included */
    double eta_s;              /* until the next common step */
    double samples_per_second; /* ours */
};
void collaboration_look(struct collaboration *c, struct collaboration_view *v);

/* Waits for a first view of the swarm. */
void collaboration_enter(struct collaboration *c, int64_t epoch);
/* A state of the swarm, waited for; PL_ENOTFOUND: nobody shares one. *state: state_load_clear.
 * Refused is one whose epoch is beyond the others' lead, or beyond `most` while fewer than two others
 * report progress. When several downloads in a row have not shown the lead, the view says so, and its
 * claimants are not believed for a while. */
int collaboration_load(struct collaboration *c, int64_t most, averager_check *check, void *context,
                       struct state_load *state, struct pl_err *err);
/* We are at this epoch now, with its state and nothing accumulated. */
void collaboration_set_epoch(struct collaboration *c, int64_t epoch);
/* One epoch more, with what has been accumulated: most peers of a common round of the parameters
 * were ahead, and all of those are clients, which give nobody a state. The round has brought us to
 * the same parameters. */
void collaboration_raise_epoch(struct collaboration *c);

enum collaboration_advice {
    COLLABORATION_GO_ON,   /* with the next local batch */
    COLLABORATION_UPDATE,  /* the target batch is there */
    COLLABORATION_CATCH_UP /* the others may be ahead: if their state shows it, take it over and
                             * drop what was accumulated; else go on. Comes with pauses */
};
/* So many samples more are in the gradient; they took so long. */
enum collaboration_advice collaboration_add(struct collaboration *c, int64_t samples,
                                            double seconds);

/* How the last rounds went. */
struct collaboration_round {
    int status;   /* PL_OK: averaged; else the caller's own gradient stands */
    size_t peers; /* in the group; 1: alone */
    int verified; /* 1: by BTARD */
    int banned;   /* who was caught lying; the last of them: */
    struct pl_err caught;
    double seconds;
    int ahead; /* of parameters: 1: raise the epoch by one, see collaboration_raise_epoch */
    uint8_t group
        [DHT_ID_BYTES]; /* what the round is called by all of its peers; zeros: there was none */
    struct pl_err why;
};
/* Our mean gradient, weighted by our samples, becomes the swarm's. Waits. */
void collaboration_average(struct collaboration *c, float *const *gradient,
                           struct collaboration_round *r);
/* The same without waiting, for delayed updates: until the round has ended `gradient` is borrowed,
 * and what is added counts for the next epoch, which begins at its end. Meanwhile the swarm sees a
 * peer that is in its round: whoever is slower still comes to it, and does not believe to be
 * late. */
void collaboration_depart(struct collaboration *c, float *const *gradient);
/* 1: it has ended, *r says how, and no round of the parameters is under way that began before it.
 * wait: until it has. */
int collaboration_returned(struct collaboration *c, struct collaboration_round *r, int wait);
/* After the optimizer's step: the next epoch begins, unless it has. `parameter` is copied; a fresh
 * view is waited for. */
void collaboration_advance(struct collaboration *c, float *const *parameter);
/* 1: a round of the parameters has ended, *r says how; 0: none has. */
int collaboration_corrected(struct collaboration *c, struct collaboration_round *r);
/* After a good one: adds what it has changed. */
void collaboration_correct(const struct collaboration *c, float *const *parameter);

/* An auxiliary peer's part, to be called every second or so; never waits. When the others are about
 * to average their gradients it takes its share of the sums, and what comes of them, into `tensor`,
 * borrowed until _close. 1: a round has ended, *r says how. Nothing happens while fewer than two
 * train. */
int collaboration_help(struct collaboration *c, float *const *tensor,
                       struct collaboration_round *r);

/* Of the key that the parameters are averaged under; a state names them. */
void collaboration_group_bits(struct collaboration *c, char bits[GROUP_BITS_MAX + 1]);
/* What newcomers are given; taken over. */
void collaboration_share(struct collaboration *c, struct state_snapshot *s);
/* The records for the run's page, the metrics and our report: loss is the sum over mini_steps;
 * samples of the epoch before. */
void collaboration_tell(struct collaboration *c, double loss, int64_t mini_steps, int64_t samples);
/* The loss on pairs that nobody trains on, for the report that goes along from now on. */
void collaboration_held_out(struct collaboration *c, double loss);
/* What our rounds have come to so far, as it is reported. */
void collaboration_totals(struct collaboration *c, struct report_record *r);
/* 1: *say holds a sentence about how we are set up, beside the others: another target batch, another
 * compression. Each kind comes once. */
int collaboration_remarked(struct collaboration *c, struct pl_err *say);
/* Everybody's records of that kind, waited for. */
void collaboration_metrics(struct collaboration *c, struct metrics_sums *sums);

#endif
