/* averager_internal.h - the averager's state, and what its files call of one another:
 *
 *   averager.c         options, steps, life
 *   averager_join.c    matchmaking's streams and declarations; averager_admit.c: who is let in
 *   averager_round.c   the all-reduce; averager_parts.c: others' streams to us
 *   averager_share.c   the state given to newcomers; averager_load.c: the one taken from a donor
 *   averager_verify.c, averager_witness.c   calls that only our own peers have */
#ifndef PL_AVERAGER_INSIDE_H
#define PL_AVERAGER_INSIDE_H

#include "net/libp2p/rpc/rpc.h"
#include "averager.h"
#include "net/hivemind/moderation/bans.h"
#include "net/hivemind/verification/equivocation_log.h"
#include "net/hivemind/verification/verifier.h"
#include "reliability.h"
#include "net/hivemind/messages/state_claim.h"

/* Somebody who asks us to lead. */
struct asker {
    struct averager *a;
    struct rpc_stream *stream;
    int has_asked;
    struct dht_task *proof; /* its token is being asked for; of the other streams, too */
    struct asker *next;
};

/* Somebody who sends parts: parked until our round has begun, then at its place in the group. */
struct part_stream {
    struct averager *a;
    struct rpc_stream *stream;
    struct dht_task *proof;
    struct peer_id peer;
    uint8_t *first; /* while parked */
    size_t first_n;
    size_t place;
    int attached;
    struct part_stream *next;
};

/* Ours to a reducer. */
struct out_stream {
    struct averager *a;
    struct rpc_stream *stream;
    size_t place;
    size_t sent_n;   /* bytes of the last message */
    int is_finished; /* we have sent everything, the other side has not ended yet */
    int is_dead;     /* it could not even be opened */
};

/* A donor that is asked whether its state is the one that we were given. */
struct witness {
    struct averager *a;
    struct peer_id peer;
    struct dht_task *proof;
    struct rpc_request *request;
    struct state_claim claim; /* samples NULL: no answer yet */
};

/* A groupmate whose token is being asked for. */
struct meeting {
    struct averager *a;
    struct dht_task *task; /* NULL: answered */
};

/* How fast a state travels, see STATE_RATE_WINDOW. Times are the loop's. */
struct state_pace {
    double began, window_began;
    size_t bytes, window_bytes;
};

/* A newcomer that is being given our state, or waits. */
struct giving {
    struct averager *a;
    struct rpc_stream *stream;
    struct dht_task *proof;
    struct state_snapshot *snapshot; /* NULL: waits */
    struct state_source source;
    struct state_pace pace;
    struct timer watch;
    struct giving *next;
};

struct donor {
    struct peer_id peer;
    double priority;
    int rank;     /* lower ones are asked first, */
    uint32_t lot; /* equal ones in this order */
};

struct donor_failure {
    struct peer_id peer;
    int failures;
    double until; /* loop time */
};

/* --- the parts of an averager ------------------------------------------------------------------- */

/* The way into a group (averager_join.c). */
struct averager_search {
    struct matchmaking mm;
    struct timer timer, reach_timer;
    struct dht_task *lookup;
    struct rpc_stream *asking; /* to the leader that we have asked */
    struct {
        struct peer_id leader;
        struct bytes request;
        struct dht_task *proof;
    } ask; /* not sent yet */
    int ask_failed;
    struct pl_err ask_why; /* of the last leader that could not be asked */
    struct asker *askers;
    size_t asker_count;
    struct bytes gather; /* our own gather message, for groupmates */
    uint64_t number; /* in a round that may be verified: drawn for each search, part of `gather` */
    int hidden;      /* 1: `gather` states that we are behind NAT */
    int found, status; /* 1: the search is over, with that status */
};

/* A group and its all-reduce (averager_round.c, averager_parts.c). */
struct averager_round {
    struct group group;
    struct meeting *meetings; /* groupmates' tokens, before the round begins */
    size_t meeting_count, meetings_left;
    struct allreduce *x;            /* NULL: none */
    struct allreduce_memory memory; /* its, from one round to the next */
    struct timer timer;
    double began;              /* s */
    double *share;             /* (group) values that each reduces */
    struct out_stream *out;    /* (group) */
    struct part_stream **in;   /* (group) */
    struct part_stream *parts; /* all of them, parked ones too */
    size_t parked_bytes;
    struct allreduce_patience *patience; /* (group) */
    struct allreduce_job *done_here;     /* jobs that no helper thread could take */
    struct peer_id *protected_peers;     /* of the newest group; see host_protect */
    size_t protected_count;
    struct verify_call *verify_calls;      /* calls of verification that are under way */
    struct equivocation_log equivocations; /* rounds whose proofs are still heard */
    int is_over, status;
};

/* Our state for newcomers (averager_share.c). */
struct averager_shared {
    struct state_snapshot *snapshot;
    double priority;
    int is_on; /* it is announced, and given */
    struct timer announce_timer;
    struct giving *givings;
    size_t giving_count;
    struct {
        struct peer_id peer;
        double at;
    } sampled[STATE_ANSWERS_A_SECOND]; /* to whom samples were given */
    size_t sampled_next;
};

/* Others' state for us (averager_load.c). */
struct averager_loading {
    struct dht_task *task, *proof;
    struct rpc_stream *stream;
    struct state_load load;
    struct donor *donors;
    size_t count, at;
    struct state_load kept; /* the first that nobody has confirmed, while others are asked */
    struct peer_id kept_donor;
    struct state_claim given[STATE_TWICE_TRIES]; /* those given so far, sampled by our own seed */
    size_t given_count;
    struct witness *witness;
    size_t witness_count, witnesses_left;
    uint8_t own_seed[STATE_SEED], seed[STATE_SEED];
    size_t arrived, misfits; /* states that came; of another model */
    struct state_pace pace;
    averager_check *check;
    averager_loaded *loaded;
    void *context;
    struct pl_err why;
    struct timer next;
    int busy;
};

/* --- the averager ------------------------------------------------------------------------------- */

/* How much of the step is still wanted. */
enum averager_ending {
    ENDING_IN_TIME,     /* groups are searched until the deadline */
    ENDING_AFTER_GROUP, /* the group that is there may end its round, but no other follows */
    ENDING_NOW          /* cancelled */
};

struct averager {
    struct averager_options o;
    struct host *host;
    struct dht_node *node;
    struct loop *loop;
    char prefix[GROUP_KEY_MAX], key[GROUP_KEY_MAX], state_key[GROUP_KEY_MAX];
    char rpc[AVERAGER_RPCS][GROUP_NAME_MAX], rpc_verify[GROUP_NAME_MAX];
    char rpc_samples[GROUP_NAME_MAX];
    char bits[GROUP_BITS_MAX + 1]; /* of the key: other ones after each group */
    struct dht_id key_id, state_id;
    struct bytes subkey; /* our peer ID, as it stands in the DHT */
    size_t *elements;
    enum pl_compression *method;
    struct schema_tensor *schema;
    uint8_t schema_hash[SCHEMA_HASH_BYTES];
    int closing;
    loop_fn *closed;
    void *closed_context;
    struct timer closing_timer;
    struct bans bans;
    struct reliability *reliability, *own_reliability; /* the latter if it is not shared */
    struct donor_failure failed[DONOR_FAILURES_MAX];
    size_t failed_count;

    /* the caller's step */
    int busy, triggered;
    enum averager_ending ending;
    struct averager_step step;
    averager_done *done;
    void *done_context;
    struct averager_result result;
    struct pl_err why, caught, differs, left_out;
    struct timer turn; /* goes on with the step from the loop itself */

    struct averager_search search;
    struct averager_round round;
    struct averager_shared shared;
    struct averager_loading load;
};

double averager_now(const struct averager *a); /* DHT time */
void averager_turn(struct averager *a);        /* goes on soon */

/* A stream that a peer has opened. 1: it may go on; if *proof is set, when `admitted` has said so, and until
 * then it is paused. 0: it has been refused; the caller closes it. */
int averager_admit_caller(struct averager *a, struct rpc_stream *s, struct dht_task **proof,
                          dht_admitted *admitted, void *context);
void averager_refuse_caller(struct rpc_stream *s);
/* 1: before we call this peer dht_node_admit comes first. */
int averager_must_ask(const struct averager *a, const struct peer_id *peer);
/* Asks all of a->group who are not known yet; averager_turn follows when a->meetings_left is 0. */
void averager_meet(struct averager *a);
void averager_meet_cancel(struct averager *a);

int averager_join_open(struct averager *a, struct pl_err *err);
void averager_join_close(struct averager *a);
/* The gather message has changed: for leaders that are asked from now on, and for our followers. */
void averager_search_gather(struct averager *a);
/* Whether others can call us becomes known, and changes, while we search. */
void averager_check_reach(struct averager *a);
int averager_cannot_be_called(
    const struct averager *a);            /* not even through a relay; 0 for a client */
void averager_search(struct averager *a); /* begins one */
void averager_search_cancel(struct averager *a);

int averager_round_open(struct averager *a, struct pl_err *err);
void averager_round_close(struct averager *a);
void averager_round_begin(struct averager *a); /* with a->group; ends with averager_turn */
void averager_round_clear(struct averager *a);
void averager_protect(struct averager *a, const struct group *g); /* NULL: nobody any more */
/* Others' streams to us (averager_parts.c). */
void averager_on_part_stream(void *context, struct rpc_stream *s);
/* Hands a first part of n bytes to the round that runs, or refuses it. */
void averager_part_attach(struct part_stream *p, const uint8_t *data, size_t n);
void averager_part_limit(struct part_stream *p); /* the time limit of its first part */
void averager_part_free(struct part_stream *p);
void averager_refuse_parked(struct averager *a); /* nobody will take them */

/* Notes in `reliability` that the peer is there, and whether it reports progress. */
void averager_see(struct averager *a, const struct peer_id *peer);
/* Notes in `reliability` how each groupmate has behaved in the round that has ended. */
void averager_note_conduct(struct averager *a);

void averager_drive(struct averager *a); /* after every event of the round: sets its timer */

/* With a proof: for BANS_TIME. The step's result names it, and why. */
void averager_ban(struct averager *a, const struct peer_id *peer, const char *why);

#define AVERAGER_VERIFY_MIN 3 /* peers: of two that doubt each other nobody can tell who is right */
/* The terms of a verified round, as msgpack: a version, and what all of a group have to agree on.
 * hivemind's peers ignore them. */
int averager_write_terms(struct bytes *out, const struct averager *a, int64_t epoch);
int averager_can_verify(const struct averager *a); /* the group that has been found */
void averager_verify_send(void *context, size_t peer, const uint8_t *data, size_t n);
int averager_verify_open(struct averager *a, struct pl_err *err);
void averager_verify_close(struct averager *a);

/* A state that has arrived: asks other donors, then `judged`. */
void averager_ask_witnesses(struct averager *a);
void averager_witnesses_clear(struct averager *a);
/* Of a whole state that fits. NULL samples: no memory. */
struct state_claim averager_claim(const struct averager *a, const struct state_load *l,
                                  const uint8_t seed[STATE_SEED]);
void averager_state_judged(struct averager *a);
int averager_is_doubted(struct averager *a, const struct peer_id *donor); /* it has failed lately */
int averager_witness_open(struct averager *a, struct pl_err *err);
void averager_witness_close(struct averager *a);

/* How fast a state travels; most: bytes of the whole. PL_EAGAIN with a sentence: too slow. */
void averager_pace_begin(struct state_pace *p, double now);
int averager_pace_check(struct state_pace *p, double now, size_t most, struct pl_err *err);
void averager_load_close(struct averager *a);
int averager_state_open(struct averager *a, struct pl_err *err);
void averager_state_close(struct averager *a);

/* Ends a stream that we are done with but that the other side has still to end. */
void averager_linger(struct rpc_stream *s);

#endif
