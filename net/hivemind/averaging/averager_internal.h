/* averager_internal.h - the averager's state, and what its files call of one another:
 *
 *   averager.c         options, steps, life
 *   averager_join.c    matchmaking's streams and declarations; averager_admit.c: who is let in
 *   averager_round.c   the all-reduce; averager_parts.c: others' streams to us
 *   averager_share.c   the state given to newcomers; averager_download.c: a donor's state for us
 *   averager_verify.c, averager_witness.c   calls that only our own peers have
 *   averager_turn.c    how it goes on; averager_faults.c: bans and doubts; averager_reachability.c
 *
 * What several of them need lies below them, and what a lower one tells an upper one is a callback:
 * calls among these files form no circle. */
#ifndef PL_AVERAGER_INTERNAL_H
#define PL_AVERAGER_INTERNAL_H

#include "net/libp2p/rpc/rpc.h"
#include "averager.h"
#include "net/hivemind/moderation/bans.h"
#include "net/hivemind/verification/equivocation_log.h"
#include "net/hivemind/verification/verifier.h"
#include "reliability.h"
#include "net/hivemind/messages/state_claim.h"

/* --- a caller's step (averager.c) ------------------------------------------------------------- */

/*   IDLE ---begin---> SEARCHING ---ended---> SEARCHED ---a group---> GROUPED ---trigger, tokens---+
 *    ^                    ^                     | none                                          |
 *    +---------+----------|---------------------+                                               |
 *              | done     +---fell apart--- REDUCED <---ended--- REDUCING <---------------------+
 *              +--------------------------------+ */
enum averager_phase {
    AVERAGER_IDLE,
    AVERAGER_SEARCHING,
    AVERAGER_SEARCHED, /* search.status says how; the loop acts on it (averager_turn) */
    AVERAGER_GROUPED,  /* waits for the trigger, and for groupmates' tokens */
    AVERAGER_REDUCING, /* round.x runs */
    AVERAGER_REDUCED   /* round.status says how; the loop acts on it */
};

/* How much of the step is still wanted. */
enum averager_ending {
    ENDING_IN_TIME,     /* groups are searched until the deadline */
    ENDING_AFTER_GROUP, /* the group that is there may end its round, but no other follows */
    ENDING_NOW          /* cancelled */
};

struct averager_call {
    enum averager_phase phase;
    enum averager_ending ending;
    int triggered; /* weight and tensors are there */
    struct averager_step step;
    averager_done *done;
    void *context;
    struct averager_result result;
    struct pl_err why, caught, differs, left_out; /* its sentences */
    struct timer turn;                            /* goes on from the loop itself */
    loop_fn *on_turn;                             /* what the timer calls */
};

/* What it is called in the DHT and by other peers. */
struct averager_names {
    char prefix[GROUP_KEY_MAX], key[GROUP_KEY_MAX], state_key[GROUP_KEY_MAX];
    char bits[GROUP_BITS_MAX + 1]; /* of the key: other ones after each group */
    char rpc[AVERAGER_ALL_RPCS][GROUP_NAME_MAX];
    struct dht_id key_id, state_id;
    struct bytes subkey; /* our peer ID, as it stands in the DHT */
};

/* What is averaged; each (tensors). */
struct averager_tensors {
    size_t *elements;
    enum pl_compression *method;
    struct schema_tensor *schema;
    uint8_t schema_hash[SCHEMA_HASH_BYTES];
};

struct averager_end {
    int begun;
    loop_fn *closed;
    void *context;
    struct timer timer;
};

/* --- streams that peers open to us (averager_admit.c) ----------------------------------------- */

struct caller {
    struct averager *a;
    struct rpc_stream *stream;
    struct dht_task *proof; /* its token is being asked for */
    struct caller *next;
};
struct caller_list { /* the newest first */
    struct caller *first;
    size_t count;
};

/* --- the way into a group (averager_join.c) --------------------------------------------------- */

/* A peer that asks us to lead. */
struct asker {
    struct caller caller; /* first */
    int has_asked;
};

struct averager_search {
    struct matchmaking mm;
    int status; /* of the search that has ended */
    struct timer timer, reach_timer;
    struct dht_task *lookup;
    struct {
        struct peer_id leader;
        struct bytes request;
        struct dht_task *proof;    /* NULL: admitted */
        struct rpc_stream *stream; /* NULL: not open yet */
        int failed;                /* the engine has still to be told */
        struct pl_err why;         /* of the last leader that could not be asked */
    } ask;                         /* our request to a leader */
    struct caller_list askers;
    struct bytes gather; /* our own gather message, for groupmates */
    uint64_t number; /* in a round that may be verified: drawn for each search, part of `gather` */
    int behind_nat;  /* as `gather` states it */
};

/* --- groupmates' tokens, before the round begins (averager_admit.c) --------------------------- */

struct admission {
    struct averager *a;
    struct dht_task *task; /* NULL: answered */
};

struct averager_admission {
    struct admission *list;
    size_t count, left;
};

/* --- the all-reduce (averager_round.c) -------------------------------------------------------- */

/* Ours to a reducer. */
enum out_stream_state {
    OUT_STREAM_CLOSED,
    OUT_STREAM_OPEN,
    OUT_STREAM_FINISHED, /* we have sent everything, the other side has not ended yet */
    OUT_STREAM_DEAD      /* it could not be opened, and the engine has still to be told */
};
struct out_stream {
    struct averager *a;
    enum out_stream_state state;
    struct rpc_stream *stream;
    size_t place;
    size_t sent_n; /* bytes of the last message */
};

struct averager_round {
    struct group group;
    struct allreduce *x;            /* NULL: none */
    int status;                     /* of the one that has ended */
    struct allreduce_memory memory; /* its, from one round to the next */
    struct timer timer;
    double began;                        /* s */
    double *share;                       /* (group) values that each reduces */
    struct out_stream *out;              /* (group) */
    struct part_stream **in;             /* (group) */
    struct allreduce_patience *patience; /* (group) */
    struct allreduce_job *done_here;     /* jobs that no helper thread could take */
    struct peer_id *protected_peers;     /* of the newest group; see host_protect */
    size_t protected_count;
};

/* --- others' streams to us (averager_parts.c) ------------------------------------------------- */

enum part_stream_state {
    PART_STREAM_NEW,     /* nothing has come */
    PART_STREAM_PARKED,  /* its first part waits for our round */
    PART_STREAM_ATTACHED /* to a place in the round */
};
struct part_stream {
    struct caller caller; /* first */
    enum part_stream_state state;
    uint8_t *first; /* PARKED */
    size_t first_n;
    size_t place; /* ATTACHED */
};

struct averager_parts {
    struct caller_list all;
    size_t parked_bytes;
};

/* --- verification (averager_verify.c) --------------------------------------------------------- */

struct averager_verify {
    struct verify_call *calls;   /* that are under way */
    struct equivocation_log log; /* rounds whose proofs still count */
};

/* --- our state for newcomers (averager_share.c) ----------------------------------------------- */

/* How fast a state travels, see STATE_RATE_WINDOW. Times are the loop's. */
struct state_pace {
    double began, window_began;
    size_t bytes, window_bytes;
};

/* A newcomer that is being given our state, or waits. */
struct giving {
    struct caller caller;            /* first */
    struct state_snapshot *snapshot; /* NULL: waits */
    struct state_source source;
    struct state_pace pace;
    struct timer watch;
};

struct averager_shared {
    struct state_snapshot *snapshot;
    double priority;
    int is_on; /* it is announced, and given */
    struct timer announce_timer;
    struct caller_list givings;
};

/* --- others' state for us (averager_download.c) ----------------------------------------------- */

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

struct averager_loading {
    int busy;
    struct dht_task *task, *proof;
    struct rpc_stream *stream;
    struct state_load load;
    struct donor *donors;
    size_t count, at;
    struct state_load kept; /* the first that nobody has confirmed, while others are asked */
    struct peer_id kept_donor;
    struct state_claim given[STATE_TWICE_TRIES]; /* those given so far, sampled by own_seed */
    size_t given_count;
    uint8_t own_seed[STATE_SEED];
    size_t arrived, misfits; /* states that came; of another model */
    struct state_pace pace;
    averager_check *check;
    averager_loaded *loaded;
    void *context;
    struct pl_err why;
    struct timer next;
    struct donor_failure failures[DONOR_FAILURES_MAX];
    size_t failure_count;
};

/* --- samples of states (averager_witness.c) --------------------------------------------------- */

/* A donor that is asked whether its state is the one that we were given. */
struct witness {
    struct averager *a;
    struct peer_id peer;
    struct dht_task *proof;
    struct rpc_request *request;
    struct state_claim claim; /* samples NULL: no answer yet */
};

struct averager_witnesses {
    struct witness *asked;
    size_t count, left;
    void (*answered)(struct averager *a); /* once nobody is left */
    uint8_t seed[STATE_SEED];
    struct {
        struct peer_id peer;
        double at;
    } given[STATE_ANSWERS_A_SECOND]; /* to which peers samples were given */
    size_t given_next;
};

/* --- the averager ----------------------------------------------------------------------------- */

struct averager {
    struct averager_options o;
    struct host *host;
    struct dht_node *node;
    struct loop *loop;
    struct bans bans;
    struct reliability *reliability, *own_reliability; /* the latter if it is not shared */
    struct averager_names names;
    struct averager_tensors tensors;
    struct averager_call call;
    struct averager_search search;
    struct averager_admission admission;
    struct averager_round round;
    struct averager_parts parts;
    struct averager_verify verify;
    struct averager_shared shared;
    struct averager_loading load;
    struct averager_witnesses witnesses;
    struct averager_end end;
};

double averager_now(const struct averager *a); /* DHT time */
void averager_turn(struct averager *a);        /* goes on soon */

/* Puts a stream that a peer has opened into a list; the caller is the events' context. */
void averager_caller_add(struct caller_list *l, struct caller *c, struct averager *a,
                         struct rpc_stream *s, const struct rpc_stream_events *events);
/* 1: it may go on; if c->proof is set, when `admitted` has been called with PL_OK, and until then
 * it is paused. 0: it has been refused; close it. */
int averager_caller_admit(struct caller *c, dht_admitted *admitted);
void averager_caller_refuse(struct caller *c);
/* Closes the stream; the memory is its owner's to free. */
void averager_caller_remove(struct caller_list *l, struct caller *c);
/* 1: before we call this peer dht_node_admit comes first. */
int averager_must_ask(const struct averager *a, const struct peer_id *peer);
/* Asks all of the group that are not known yet for their tokens; averager_turn follows when all
 * have answered. */
void averager_admit_group(struct averager *a);
void averager_admit_cancel(struct averager *a);

int averager_join_open(struct averager *a, struct pl_err *err);
void averager_join_close(struct averager *a);
/* The gather message has changed: for leaders that are asked from now on, and for our followers. */
void averager_search_gather(struct averager *a);
/* In our gather message; 0 behind NAT. */
double averager_stated_bandwidth(const struct averager *a);
/* Behind NAT although it is not in client mode. */
int averager_is_behind_nat(const struct averager *a);
/* Whether others can call us becomes known, and changes, while we search. 1: the gather message has
 * changed. */
int averager_check_reachability(struct averager *a);
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
void averager_attach_parked(struct averager *a); /* to the round that has begun */
void averager_part_free(struct part_stream *p);
void averager_refuse_parked(struct averager *a); /* nobody will take them */

/* Notes in `reliability` that the peer is there, and whether it reports progress. */
void averager_see(struct averager *a, const struct peer_id *peer);
/* Notes in `reliability` how each groupmate has behaved in the round that has ended. */
void averager_note_conduct(struct averager *a);

void averager_drive(struct averager *a); /* after every event of the round: sets its timer */

/* With a proof: for BANS_TIME. The step's result names it, and why. */
void averager_ban(struct averager *a, const struct peer_id *peer, const char *why);

#define AVERAGER_VERIFY_MIN 3 /* peers: if two accuse each other, a third must decide */
/* The terms of a verified round, as msgpack: a version, and the settings on which the whole group
 * must agree. hivemind's peers ignore them. */
int averager_write_terms(struct bytes *out, const struct averager *a, int64_t epoch);
int averager_can_verify(const struct averager *a); /* the group that has been found */
void averager_verify_send(void *context, size_t peer, const uint8_t *data, size_t n);
int averager_verify_open(struct averager *a, struct pl_err *err);
void averager_verify_close(struct averager *a);

/* A state that has arrived: asks other donors, then `answered`. */
void averager_ask_witnesses(struct averager *a, void (*answered)(struct averager *a));
void averager_witnesses_clear(struct averager *a);
/* Of a whole state that fits. NULL samples: no memory. */
struct state_claim averager_claim(const struct averager *a, const struct state_load *l,
                                  const uint8_t seed[STATE_SEED]);
int averager_is_doubted(struct averager *a, const struct peer_id *donor); /* it has failed lately */
void averager_doubt(struct averager *a, const struct peer_id *donor);     /* it has failed */
void averager_trust(struct averager *a, const struct peer_id *donor);     /* its state was good */
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
