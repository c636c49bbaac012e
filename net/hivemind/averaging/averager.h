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
#include "net/hivemind/matchmaking/matchmaking.h"
#include "reliability.h"
#include "net/hivemind/messages/state_message.h"

#define AVERAGER_DOWNLOADS_MAX 2 /* states given at once: each at half our uplink is enough */
#define AVERAGER_QUEUE_MAX 64    /* newcomers that wait for one */
#define AVERAGER_QUEUE_PEER \
    2 /* of one peer: a download that it gave up may not have ended before its next */

/* How slowly a state may travel, of the donor as of who takes it. A stream that moves less than
 * the lesser rate in a window has stalled; a whole state at the greater rate, 0.5 Mbit/s, takes
 * as long as anybody waits for it. */
#define STATE_RATE_WINDOW 30.0  /* s: some pauses of a busy uplink */
#define STATE_RATE_MIN 16384.0  /* bytes a second within a window: 0.13 Mbit/s */
#define STATE_RATE_MEAN 65536.0 /* bytes a second over the whole, */
#define STATE_TIME_BASE 60.0    /* s: and so long for what is small */

#define STATE_CHECK_PAUSE 0.25  /* s: a poll of the DHT takes some round trips */
#define STATE_WITNESSES 5       /* other donors that are asked whether theirs is the same */
#define STATE_WITNESS_LIMIT 5.0 /* s for their answer, 64 KiB */
/* Where no other donor can confirm it (hivemind's can't), a second one's state is taken and
 * compared, of models of so many bytes at most, and of so many donors in all. */
#define STATE_TWICE_MAX (64u << 20)
#define STATE_TWICE_TRIES 3
#define STATE_ANSWERS_A_SECOND 20 /* samples that we give: 64 KiB and 0.2 ms each, */
#define STATE_ANSWERS_A_PEER 4    /* and of them to one peer: a few tries of a newcomer */
#define DONORS_ASKED_MAX \
    32 /* of one load: announcements cost nothing, and each may take its time */

#define DONOR_PRIORITY_MAX 1e9 /* epochs, whole numbers: a run of 30 years has one a second */
#define DONOR_FAILURES_MAX \
    64 /* donors that are remembered for having failed; the first to return goes */
#define DONOR_BACKOFF_FIRST 15.0    /* s, doubled with each further failure */
#define DONOR_BACKOFF_LONGEST 600.0 /* s: a donor that was restarted is asked again */
#define AVERAGER_ASKERS_MAX (GROUP_PEERS_MAX + MATCHMAKING_WAITING_MAX)
#define AVERAGER_PARKED_MAX (64u << 20) /* bytes of first parts that came before our own trigger */
/* s for a caller's first message; a groupmate's first part has at least sender_timeout */
#define AVERAGER_FIRST_MESSAGE 10.0
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
    double bandwidth;                                          /* PL_BANDWIDTH_UNKNOWN */
    double weight_max;                                         /* of a groupmate; 0: any */
    double clip;                                               /* see allreduce.h; 0: the mean */
    int verify; /* BTARD in groups where everybody can; elsewhere CenteredClip */
    struct allreduce_validation validation;
    int client_mode, auxiliary;
    struct reliability
        *reliability; /* shared with other averagers of the run; borrowed. NULL: its own */
    struct random_source random; /* of groups that we lead, and our lots in verified rounds */
    /* Of each donor that could not give a state, or whose state was refused; NULL: no callback. */
    void (*donor_failed)(void *context, const struct peer_id *donor, int status,
                         const struct pl_err *why);
    void *donor_context;
    /* 1: a peer that declares and does not come, see matchmaking.h; NULL: there are none. */
    int (*absent)(void *context, const struct peer_id *peer);
    /* 1: it is one of those who are expected, see matchmaking.h; NULL: anybody is. */
    int (*reports)(void *context, const struct peer_id *peer);
    void *absent_context;
};

/* Options' texts and arrays are copied. h and n are borrowed and outlive the averager. PL_EUSE with
 * a sentence for options that make no sense. */
int averager_open(struct averager **a, struct host *h, struct dht_node *n,
                  const struct averager_options *o, struct pl_err *err);
/* Ends what is under way without its callbacks; `closed` is called when nothing of it is left, and
 * a step's tensors are free again. */
void averager_close(struct averager *a, loop_fn *closed, void *context);

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
    struct verifier_claim claim; /* to verify: what our values are of */
    float *const
        *tensor; /* (tensors) host memory, changed at a good end only; borrowed until then */
};

struct averager_result {
    int status;      /* PL_OK; PL_EAGAIN: nobody found, or not in time; PL_EIO: groups fell apart */
    const char *why; /* a sentence if it is not PL_OK */
    const struct group *group;      /* the last one; NULL: none was found */
    struct allreduce_report report; /* of its all-reduce */
    int attempts;                   /* groups that were found */
    int verified;                   /* 1: the last round was a verified one */
    int banned;                     /* groupmates that were banned by a proof */
    const char *caught;             /* which of them last, and why; "" */
    const char *differs;  /* a groupmate of the last round compresses otherwise, harmlessly; "" */
    const char *left_out; /* one whose values were left out of it, and why; "" */
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
/* While it searches: see averager_step.expected. */
void averager_expect(struct averager *a, size_t peers);
/* `done` comes with PL_EAGAIN, soon. */
void averager_cancel(struct averager *a);
/* The same while it searches; a group that is there may end its round, but no other
 * group is searched if it falls apart. */
void averager_finish(struct averager *a);

const char *averager_group_key(const struct averager *a);
/* The bits of that key as they are now; on the loop's thread. */
const char *averager_group_bits(const struct averager *a);
const uint8_t *averager_schema_hash(const struct averager *a);

/* --- state ------------------------------------------------------------------------------------ */

/* What is given to newcomers: a frozen copy, shared by those who are being given it. */
struct state_snapshot {
    uint8_t *metadata; /* free() */
    size_t metadata_n;
    struct state_tensor *tensors;
    size_t count;
    void (*release)(struct state_snapshot *s); /* frees all of it */
    size_t users;                              /* the averager's */
};
/* Shares from now on, announced with this priority; takes s over. NULL: shares no more. Clients and
 * auxiliary peers are not asked. */
void averager_share(struct averager *a, struct state_snapshot *s, double priority);

/* PL_OK and the state of one of the best donors; the callback may take it (and leave zeros).
 * PL_ENOTFOUND: nobody has announced any. PL_EUSE: all that arrived were of another model.
 * PL_EIO: no donor could be reached, or none gave a state that can be used. */
typedef void averager_loaded(void *context, int status, const struct peer_id *donor,
                             struct state_load *state, const struct pl_err *err);
/* check, if given: PL_OK if a state that has arrived can be used; PL_EAGAIN if that is not known
 * yet: it is called again after STATE_CHECK_PAUSE. After anything else the next donor is asked.
 * One at a time. The state begins with the averager's tensors, see state_load_expect. */
typedef int averager_check(void *context, const struct state_load *state, struct pl_err *err);
int averager_load(struct averager *a, averager_check *check, averager_loaded *loaded,
                  void *context);

#endif
