/* averager.h - a peer that averages its tensors with others, round by round: matchmaking and the
 * all-reduce over a host and a DHT node; and the state that it hands to newcomers, or takes over
 * from others. [TTT 2.1, communication] [spec hivemind-protocol 4, 5, 7]
 *
 * Everything is called on the loop's thread and calls back on it, never from inside the function
 * that asked. */
#ifndef PL_AVERAGER_H
#define PL_AVERAGER_H

#include "net/hivemind/dht/dht_node.h"
#include "net/hivemind/allreduce/allreduce.h"
#include "net/hivemind/matchmaking/grid.h"
#include "net/hivemind/matchmaking/matchmaking.h"
#include "bandwidth.h"
#include "net/hivemind/powersgd/factors.h"
#include "reliability.h"
#include "net/hivemind/sharing/state_download.h"
#include "net/hivemind/sharing/state_share.h"

/* Join requests: all followers of the largest group, and 256 that wait while we ask a leader. */
#define AVERAGER_REQUESTS_MAX (GROUP_PEERS_MAX + 256)
/* Streams of parts: of this round, and early ones of the next. */
#define AVERAGER_PARTS_MAX (2 * GROUP_PEERS_MAX)
/* Of one peer: one of each kind, and those that it has given up and that have not ended here. */
#define AVERAGER_PEER_REQUESTS_MAX 2
#define AVERAGER_PEER_PARTS_MAX 4
#define AVERAGER_PARKED_MAX (64u << 20) /* bytes of first parts that came before our own trigger */
/* s for a caller's first message; a groupmate's first part has at least sender_timeout */
#define AVERAGER_FIRST_MESSAGE 10.0
#define AVERAGER_GATHER_PEERS_MAX 32 /* each sends to each other one; published runs have 20 */
#define AVERAGER_LINGER 10.0 /* s for the other side's end of a stream that we are done with */

struct averager;

struct averager_options {
    const char *prefix, *class_name; /* "run_grad_averager", "GradientAverager" */
    const char *bits;                /* group bits to begin with, or "": one key for everybody. They
                                      * change after each group, so that a peer meets other peers in
                                      * the next one */
    const struct pl_backend *be;     /* borrowed; computes in host memory */
    size_t tensors;
    const struct schema_tensor *schema;           /* (tensors) float32 */
    const enum pl_compression *method;            /* (tensors) how we send them */
    size_t part_bytes;                            /* PL_PART_BYTES; the same in the whole group */
    size_t target_size, min_size;                 /* of groups; 0: no target; at least 2 */
    double min_matchmaking_time, request_timeout; /* s */
    double sender_timeout, reducer_timeout, allreduce_timeout; /* s; 0: none */
    /* s that an uplink may take for our values: a slower one reduces nothing where others can, and
     * sends values in some of its parts only (uplinks.h); 0: as long as it needs. Without verify,
     * gathers and powersgd. */
    double upload_limit;
    /* 1: honest groupmates may begin at different times, so that one that is silent while others
     * send is not given up before these timeouts */
    int timeouts_only;
    double bandwidth;           /* Mbit/s, 0 reduces nothing; PL_BANDWIDTH_UNKNOWN: as measured */
    struct bandwidth *measured; /* as `reliability` below */
    double weight_max;          /* of a groupmate; 0: any */
    double clip;                /* see allreduce.h; 0: the mean */
    int verify;                 /* BTARD in groups where everybody can; elsewhere CenteredClip */
    struct allreduce_validation validation;
    /* PowerSGD: nothing is averaged before averager_compress. Without clip and verify, which know
     * no factors. method is of the tensors that are not compressed; of factors below
     * PL_WIRE_ADAPTIVE values, and of others: */
    int powersgd;
    enum factors_feedback feedback;
    enum pl_compression factor_method[2];
    /* 1: nothing is averaged, but each peer gets the message of every other one: averager_give, in
     * place of averager_trigger. Without clip, verify, client_mode and auxiliary. */
    int gathers;
    int client_mode, auxiliary;
    struct reliability
        *reliability; /* shared with other averagers of the run; borrowed. NULL: its own */
    struct random_source random; /* of groups that we lead, and our lots in verified rounds */
    /* Called for each donor that could not give a state, or whose state was refused; NULL: no
     * callback. */
    void (*donor_failed)(void *context, const struct peer_id *donor, int status,
                         const struct pl_err *why);
    void *donor_context;
    /* 1: the peer declares but does not come, see matchmaking.h; NULL: always 0. */
    int (*absent)(void *context, const struct peer_id *peer);
    /* 1: the peer is expected, see matchmaking.h; NULL: always 1. */
    int (*reports)(void *context, const struct peer_id *peer);
    void *absent_context;
};

/* Options' texts and arrays are copied. h and n are borrowed and outlive the averager. PL_EUSE with
 * a sentence for options that make no sense. */
int averager_open(struct averager **a, struct host *h, struct dht_node *n,
                  const struct averager_options *o, struct pl_err *err);
/* Ends all operations without their callbacks. `closed` is called when they have ended and the
 * tensors of a step may be freed. */
void averager_close(struct averager *a, loop_fn *closed, void *context);

/* --- PowerSGD --------------------------------------------------------------------------------- */

/* rank: the rank that most of the answering peers compress by, 0: they compress no tensor; votes:
 * how many peers these are; 0: no peer has answered. */
typedef void averager_rank(void *context, int rank, size_t votes);
/* Asks some peers that average under this key; takes RANK_LIMIT s at most. PL_EUSE: it is being
 * asked. `answered` does not come if the averager is closed meanwhile. */
int averager_ask_rank(struct averager *a, averager_rank *answered, void *context);
/* From now on rounds use this rank. They begin with an error of zero and with factors of the peers
 * that were asked; with random ones if none has answered. PL_EUSE during a step. */
int averager_compress(struct averager *a, int rank, struct pl_err *err);
/* What PowerSGD keeps from round to round, for a checkpoint (factors.h). Appended to *out.
 * PL_EAGAIN: a round computes with it just now. */
int averager_save_factors(const struct averager *a, struct bytes *out);
/* behind: epochs by which the others are ahead of these bytes (factors_load). PL_EUSE with a
 * sentence: of another model or rank, or during a step. */
int averager_load_factors(struct averager *a, const uint8_t *data, size_t n, int64_t behind,
                          struct pl_err *err);

/* --- rounds ----------------------------------------------------------------------------------- */

struct averager_step {
    double scheduled;      /* DHT time at which we would like to begin; 0: as soon as possible */
    double deadline;       /* DHT time: give up */
    const uint8_t *gather; /* msgpack for the groupmates; copied. NULL: nil */
    size_t gather_n;
    size_t expected; /* peers that will come, ourselves included, auxiliary ones not counted;
                               * 0: not known */
    int patience;    /* after the trigger: begin times that may pass without anybody; 0: any */
    int untriggered; /* 1: weight and tensors come with averager_trigger */
    double weight;   /* of ours; an auxiliary peer's is 0 */
    struct verifier_claim claim; /* to verify: the claim from which our values can be recomputed */
    float *const
        *tensor; /* (tensors) host memory, changed at a good end only; borrowed until then */
};

struct averager_result {
    int status;      /* PL_OK; PL_EAGAIN: no group found in time; PL_EIO: groups fell apart */
    const char *why; /* a sentence if it is not PL_OK */
    const struct group *group;      /* the last one; NULL: none was found */
    struct allreduce_report report; /* of its all-reduce */
    int attempts;                   /* groups that were found */
    int verified;                   /* 1: the last round was a verified one */
    int banned;                     /* groupmates that were banned by a proof */
    const char *caught;             /* which of them last, and why; "" */
    const char *differs;  /* a groupmate of the last round compresses otherwise, harmlessly; "" */
    const char *left_out; /* a peer whose values were left out of it, and why; "" */
    double seconds;       /* that the round took */
};
/* The result and the group are the callback's to read, not to keep. */
typedef void averager_done(void *context, const struct averager_result *r);

/* One at a time: PL_EUSE if there is one. A group that falls apart is followed by another search
 * until the deadline: either all tensors hold a mean, or none has changed. */
int averager_begin(struct averager *a, const struct averager_step *s, averager_done *done,
                   void *context);
int averager_is_busy(const struct averager *a);
int averager_has_group(const struct averager *a);
/* claim: NULL for the step's own. */
void averager_trigger(struct averager *a, double weight, float *const *tensor,
                      const struct verifier_claim *claim);
/* A groupmate's message of a gathered round. */
struct averager_message {
    uint8_t *data; /* of n bytes; freed with free() */
    size_t n;
    double weight; /* 0 if it is above weight_max */
    int is_own;
    struct peer_id peer;
    int is_other_epoch; /* its n is 0: it belongs to no round of ours */
};
/* As averager_trigger, where messages are gathered: n >= 1 bytes, copied. PL_ENOMEM: cancel it. */
int averager_give(struct averager *a, double weight, int64_t epoch, const uint8_t *data, size_t n);
/* Within `done`, after a good end: all messages of the group, in the order of its peers' IDs, ours
 * among them. Returns how many; the caller frees the array and what it holds. 0: no memory. */
size_t averager_take_messages(struct averager *a, struct averager_message **messages);
/* 1: a groupmate of the last step has all of our message, however the step has ended. */
int averager_was_fetched(const struct averager *a);
/* While it searches: see averager_step.expected. */
void averager_expect(struct averager *a, size_t peers);
/* `done` comes with PL_EAGAIN, soon. */
void averager_cancel(struct averager *a);
/* The same while it searches; a group that is there may end its round, but no other
 * group is searched if it falls apart. */
void averager_finish(struct averager *a);

const char *averager_group_key(const struct averager *a);
/* The next search uses a key with this many bits, see grid.h. From now on the bits change after
 * rounds that succeed, not with every group. Does nothing during a search. */
void averager_fit_bits(struct averager *a, size_t count);
/* The same with these bits. */
void averager_set_bits(struct averager *a, const char *bits);
/* The bits of that key as they are now; on the loop's thread. */
const char *averager_group_bits(const struct averager *a);
const uint8_t *averager_schema_hash(const struct averager *a);

/* --- state ------------------------------------------------------------------------------------ */

/* As state_share_set; `s` is taken over. */
void averager_share(struct averager *a, struct state_snapshot *s, double priority);
/* As state_share_seconds; on the loop's thread. */
double averager_shared(const struct averager *a);
/* As state_download_begin; PL_EUSE also for an averager that is being closed. */
int averager_load(struct averager *a, state_check *check, state_downloaded *downloaded,
                  void *context);

#endif
