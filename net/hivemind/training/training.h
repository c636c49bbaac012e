/* training.h - one peer's part in collaborative training: progress of the swarm, the moment
 * of the common step, the round that averages gradients and the one that averages parameters.
 * [TTT 2.1; 3.3] [spec hivemind-protocol 8, 9, 12]
 *
 *   local batch - add - local batch - add - ...   until the swarm holds the target batch, then
 *   average (gradients) - the caller's optimizer step - advance (epoch + 1; parameters are
 *   averaged during the next local batches) - correct (adds what that changed) - ...
 *
 * Called from the training's thread; the network has a thread of its own, and training waits for it
 * only where a function says so. The gradient round is triggered as soon as we are ready, whatever
 * the parameters' round does; that one is cancelled if it has found no group by then. Two hivemind
 * trainers that wait in opposite orders can wait for each other endlessly.
 *
 * With delayed updates the gradients' round overlaps with the next local batches, too:
 *   depart (gradients) - local batch - add - ... - returned - the step (here, or during more
 *   batches) - advance */
#ifndef PL_TRAINING_H
#define PL_TRAINING_H

#include "net/hivemind/averaging/averager.h"
#include "net/hivemind/progress/progress.h"

#define TRAINING_PATIENCE \
    2 /* matchmaking times without a groupmate, then step with our own gradient */

/* The largest weight of one peer's gradient, in target batches. A peer whose last round failed
 * holds more than its share and may contribute it, but its claim needs a limit. */
#define TRAINING_WEIGHT_MAX 4

/* The class name in calls for a state; the prefix is "RUN_state_averager". */
#define TRAINING_STATE_CLASS "TrainingStateAverager"

struct training;

struct training_options {
    const char *run;
    struct host *host;     /* these three are borrowed and outlive it */
    struct dht_node *node; /* with validators that guard the run and sign by `key` */
    const struct rsa_key *key;
    const struct pl_backend *be; /* for averaging, in host memory */
    const char *device;          /* name of the device, for the dashboard; NULL: not reported */
    const char *own_name;        /* what the dashboard calls this peer; NULL: its key alone */
    size_t tensors;              /* the parameters, in the swarm's order: decayed ones first */
    const struct schema_tensor *schema;
    const enum pl_compression *method;
    int64_t target_batch;
    /* 1: the rules of OpenDiLoCo. Each peer collects the whole target itself, changes of the
     * parameters are averaged, each with weight 1, and the averagers have OpenDiLoCo's names. [spec
     * outer-steps 4] */
    int local_steps;
    /* Gradients are averaged by PowerSGD, with the names of hivemind's PowerSGDGradientAverager, or
     * with others where the feedback is not hivemind's, so that the two never meet. Call
     * training_compress before the first round. */
    int powersgd;
    enum factors_feedback feedback;
    enum pl_compression factor_method[2]; /* see averager.h */
    /* Peers gather each other's messages by this algorithm of ref/outer (training_gather, in place
     * of training_average), and nothing is averaged; NULL: they average. */
    const char *gathers;
    int drawn_group;  /* size of groups that are drawn in each epoch (pairs.h); 0: none are */
    size_t min_peers; /* that train, before the first common step: with fewer it waits, for */
    double min_peers_timeout; /* s at most; 0, 1: it does not wait */
    double matchmaking_time, averaging_timeout, allreduce_timeout;
    int64_t average_state_every; /* epochs */
    size_t part_peers;           /* see parts.h; 0: PARTS_PEERS */
    size_t group_size;           /* a group of this size begins at once; 0: no limit */
    /* See averager.h; borrowed until it is open. "": one group of all. NULL: as many bits as the
     * number of peers needs (grid.h); with local_steps or a group_size one group of all. */
    const char *group_bits;
    double bandwidth; /* see averager.h */
    double clip;      /* see allreduce.h; 0: the mean */
    int verify; /* see averager.h: verifies gradient rounds; parameter rounds use CenteredClip */
    struct allreduce_validation
        validation; /* but samples_max; called while training_average waits */
    int client_mode;
    int auxiliary; /* has no gradient: it calls only training_enter, _help and _close */
};

/* Opens both averagers. Not on the loop's thread, nor any other function here. */
int training_open(struct training **c, const struct training_options *o, struct pl_err *err);
/* Withdraws our report, which takes up to two seconds, and waits for helper threads. NULL may be
 * closed. */
void training_close(struct training *c);

struct training_view {
    int64_t epoch, samples;    /* ours */
    int64_t global_epoch;      /* the highest lead of the others (claims.h), or ours */
    int is_unshown;            /* 1: several downloads have not shown the lead */
    int64_t global_samples;    /* of our epoch, all peers' */
    size_t peers;              /* ourselves included */
    double eta_s;              /* until the next common step */
    double samples_per_second; /* ours */
};
void training_get_view(struct training *c, struct training_view *v);

/* We are at this epoch now, with its state and nothing accumulated. Waits for a view of the swarm
 * that is newer. */
void training_enter(struct training *c, int64_t epoch);
/* With PowerSGD. *rank: the user's; 0: the run's, or FACTORS_RANK_USUAL where no peer tells it;
 * then the one that is used. Waits. PL_EUSE with a sentence: most of the others have another
 * rank. */
int training_compress(struct training *c, int *rank, struct pl_err *err);
/* What PowerSGD keeps from round to round: averager.h. Both wait for the network's thread alone. */
int training_save_factors(struct training *c, struct bytes *out);
int training_load_factors(struct training *c, const uint8_t *data, size_t n, int64_t behind,
                          struct pl_err *err);
/* Downloads a state of the swarm; waits. PL_ENOTFOUND: no peer shares one. Free *state with
 * state_load_clear. A state is refused if its epoch is beyond the others' lead, or beyond `most`
 * while fewer than two others report progress. When several downloads in a row have not shown the
 * lead, the view says so, and peers that claim it are not believed for a while. */
int training_load(struct training *c, int64_t most, state_check *check, void *context,
                  struct state_load *state, struct pl_err *err);
/* Epoch + 1, keeping the accumulation: in a common round of the parameters most peers were ahead,
 * and all of those are clients, which cannot serve a state. The round has brought us to the same
 * parameters. */
void training_raise_epoch(struct training *c);

enum training_advice {
    TRAINING_GO_ON, /* with the next local batch */
    TRAINING_WAIT,  /* the target batch is there, but fewer than min_peers peers are */
    /* local_steps: ours is there, the others' are not yet: ask again soon, with 0 samples, or step
     * without them */
    TRAINING_WAIT_SLOWER,
    TRAINING_UPDATE,   /* the target batch is there */
    TRAINING_DIVERGED, /* our parameters are not those of most of the last group: download a state
                        * of our epoch or a later one. Given once */
    TRAINING_CATCH_UP  /* the others may be ahead: download a state; if it confirms that, load
                            * it and drop the accumulated gradients. Given with pauses between */
};
/* Reports a local batch: its samples are in the gradient, and it took this many seconds; 0: samples
 * from before a restart, which say nothing about our speed. */
enum training_advice training_add(struct training *c, int64_t samples, double seconds);

/* How the last rounds went. */
struct training_round {
    int status;      /* PL_OK: averaged; otherwise the caller's own gradient is unchanged */
    size_t peers;    /* in the group; 1: alone */
    int64_t samples; /* of gradients: all peers', as far as known when the round was triggered */
    int is_alone;    /* no other peer was there to average with */
    int verified;    /* 1: by BTARD */
    int banned;      /* peers caught by BTARD; why the last of them: */
    struct pl_err caught;
    double seconds;
    int ahead;        /* parameter rounds: 1 if the caller should call training_raise_epoch */
    int is_delivered; /* of messages: a groupmate has ours, though the round may have failed */
    uint8_t group[DHT_ID_BYTES]; /* the same at all of its peers; zeros: no group */
    struct pl_err why;
};
/* Averages our mean gradient, weighted by our samples, with the group's. Waits. */
void training_average(struct training *c, float *const *gradient, struct training_round *r);
/* The same with a message of n bytes, which is copied. weight: of local steps, or of each sample.
 * training_take_messages has the others', in the same order at all of the group. */
void training_gather(struct training *c, double weight, const uint8_t *data, size_t n,
                     struct training_round *r);
/* The messages of the last good round, once; averager.h says how to free them. */
size_t training_take_messages(struct training *c, struct averager_message **messages);
/* Begins the same without waiting, for delayed updates. Until the round has ended `gradient` is
 * borrowed, and samples that are added count for the next epoch, which begins at its end.
 * Meanwhile the swarm sees a peer in its round: slower peers still come to it, and do not
 * believe that they are late. */
void training_begin_average(struct training *c, float *const *gradient);
/* The same with a message, which is copied; its epoch ends with the round if that was good. 1: no
 * other peer is there, and the round ends at once. */
int training_begin_gather(struct training *c, double weight, const uint8_t *data, size_t n);
/* 1: the round has ended, *r is its result, and no older round of the parameters is under way.
 * wait: until then. */
int training_end_average(struct training *c, struct training_round *r, int wait);
/* After the optimizer's step: begins the next epoch, unless a delayed round has. `parameter` is
 * copied for its round. Waits for a fresh view. */
void training_advance(struct training *c, float *const *parameter);
/* After training_advance: stores a digest of the parameters, and compares it with the group's. */
void training_compare(struct training *c, float *const *parameter);
/* After a state of others has replaced ours in the middle of an epoch: begins the round of the
 * parameters that the others have begun with it, as training_advance does. `parameter` is
 * copied. */
void training_average_parameters(struct training *c, float *const *parameter);
/* 1: a round of the parameters has ended, *r is its result; 0: none has. */
int training_corrected(struct training *c, struct training_round *r);
/* After a round with status PL_OK: adds its change to the parameters. */
void training_correct(const struct training *c, float *const *parameter);

/* An auxiliary peer's part, to be called every second or so; never waits. When the others are
 * about to average their gradients it reduces its share of the parts; the means go into
 * `tensor`, which is borrowed until _close. 1: a round has ended, *r is its result. Does nothing
 * while fewer than two peers train. */
int training_help(struct training *c, float *const *tensor, struct training_round *r);

/* The group bits under which parameters are averaged; a state's metadata hold them. */
void training_group_bits(struct training *c, char bits[GROUP_BITS_MAX + 1]);
/* Shares a state with newcomers. Takes the snapshot. */
void training_share(struct training *c, struct state_snapshot *s);
/* Stores the records for the dashboard, metrics and report: loss is the sum over mini_steps;
 * samples are those of the epoch before. */
void training_publish(struct training *c, double loss, int64_t mini_steps, int64_t samples);
/* The loss on held-out pairs, for all reports from now on. */
void training_held_out(struct training *c, double loss);
/* 1: *warning is a warning about our settings compared with the others': another target batch,
 * another compression. Each kind comes once. */
int training_take_warning(struct training *c, struct pl_err *warning);

#endif
