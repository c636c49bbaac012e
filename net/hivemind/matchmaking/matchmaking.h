/* matchmaking.h - one averager's way into a group: an engine without sockets or clock. Messages and
 * the time are arguments, actions are callbacks. [spec hivemind-protocol 4.4] [Moshpit SGD 3.2]
 *
 *              ask               ACCEPTED             BEGIN_ALLREDUCE
 *   LOOKING ---------> ASKING --------------> FOLLOWING ----------------> over: a group
 *    |  ^                | refused, silent      | disbanded, silent
 *    |  +----------------+----------------------+
 *    | it has followers, and its time has come, or the group is full or complete: it leads
 *    +--------------------------------------------------------------------> over: a group
 *
 * Every peer declares in the DHT by when it wants to begin. The peer with the earliest time leads,
 * and the others ask it. A peer behind NAT only asks, as a client: peers that cannot reach it would
 * be left without a leader. If there was nobody to follow for a window, it declares for the next
 * one: all the others may be behind the same router. matchmaking.c explains the states. Times are
 * DHT times.
 *
 * Not every peer is trusted alike. The first column names a callback, or the field `doubtful` of a
 * candidate; the second one has its meaning. `expected` and `proven` matter when they return 0:
 *
 *                         do we ask it?     it asks us   do we wait for it?  a leader's group
 *                                                                            with it
 *   refuses    banned     never             refused      no                  is not joined
 *   paused     back-off   never             refused      no                  is joined
 *   absent     declares,  if there is       accepted     no                  is joined
 *              never      nobody else
 *              comes
 *   doubtful   only third last, for an      accepted     no                  is joined
 *              parties    eighth of a
 *              report it  window
 *   expected   0: has no  like any other    accepted     until its own time, is joined
 *              progress                                  but it is not one
 *              record                                    of the expected
 *   proven     0: has     like any other    accepted     yes                 is joined; where we
 *              delivered                                                     lead, it reduces
 *              nothing                                                       nothing if enough
 *              yet                                                           others can
 */
#ifndef PL_MATCHMAKING_H
#define PL_MATCHMAKING_H

#include "net/random_source.h"
#include "net/hivemind/messages/averaging_code.h"
#include "group.h"

#define MATCHMAKING_POLL_EVERY \
    0.3 /* s between polls of the declarations; hivemind does not pause */
#define MATCHMAKING_CANDIDATES_MAX GROUP_PEERS_MAX
/* Doubtful peers are known from third parties only, so anybody can invent them. In one window at
 * most 3 of them may leave a request unanswered. If all 3 do, later windows ask only 1, until one
 * answers. Each has an eighth of the window to answer, so more than half of it is left. */
#define MATCHMAKING_DOUBTFUL_ASKS 3
#define MATCHMAKING_DOUBTFUL_SHARE 8.0
/* s until a leader that did not answer is asked again, doubled each time: otherwise a leader that
 * pauses for some seconds would be lost for the whole window */
#define MATCHMAKING_AGAIN 2.0
/* Unproven followers get no share to reduce if at least 1 reducer in 4 is proven: a proven peer
 * then reduces at most 4 times its share, for one round. The leader counts as proven. At least 2
 * have to be: one alone would see everybody's values. */
#define MATCHMAKING_PROVEN_LOAD 4
#define MATCHMAKING_PROVEN_MIN 2
#define MATCHMAKING_HOPS_MAX 8      /* leaders that send us on to the next, one after the other */
#define JOIN_MESSAGE_MAX (8u << 10) /* a request; gather may have 4 KiB of it */
/* A leader's message: all peer ids and gather messages. */
#define LEADER_MESSAGE_MAX (GROUP_PEERS_MAX * (GATHER_MAX + 64u))

struct matchmaking_options {
    struct peer_id self;
    const char *key; /* the group key; borrowed */
    uint8_t schema_hash[SCHEMA_HASH_BYTES];
    double min_time;        /* s that we give others to find us, M */
    double request_timeout; /* s for a leader's first answer */
    double slow;            /* Mbit/s: of groups that we lead, see uplinks.h; 0: no member is */
    int verify;             /* 1: verified rounds: no follower is demoted */
    size_t target_size;     /* a group of this size begins at once; 0: no such size */
    size_t min_size;        /* auxiliary peers do not count: with them alone nothing is averaged */
    int client_mode;        /* 1: accepts no connections: it leads no group */
    const uint8_t *gather;  /* borrowed while it searches */
    size_t gather_n;
    struct random_source
        random; /* for groups that we lead: their IDs, and the order of their members */
};

/* The engine's requests to its owner. None of these may call the engine. */
struct matchmaking_callbacks {
    /* Store a declaration under the key: active 1: we want to begin at `expiration`; 0: no more. */
    void (*declare)(void *context, double expiration, int active);
    /* Get the newest declarations of the key; then call matchmaking_found, even with none. */
    void (*poll)(void *context);
    /* Open rpc_join_group, send this, end our side. There is one such stream at a time. */
    void (*ask)(void *context, const struct peer_id *leader, const uint8_t *request, size_t n);
    /* Close that stream. Nothing more is expected from it. */
    void (*leave)(void *context);
    /* A message to the peer that asked by `stream`; last: close it then. */
    void (*answer)(void *context, void *stream, const uint8_t *message, size_t n, int last);
    /* 1: a banned peer. May be NULL: no peer is. */
    int (*refuses)(void *context, const struct peer_id *peer);
    /* 1: a peer that declares and does not come to rounds. May be NULL: no peer is. */
    int (*absent)(void *context, const struct peer_id *peer);
    /* 1: one of the peers that matchmaking_expect counts: a follower that is not one of them does
     * not make the group complete. May be NULL: every peer is. */
    int (*expected)(void *context, const struct peer_id *peer);
    /* 1: a peer on back-off after failed rounds, see reliability.h. We still join another leader's
     * group that contains it: that leader may not know of the failure, and would count us as silent
     * if we stayed away. May be NULL: no peer is. */
    int (*paused)(void *context, const struct peer_id *peer);
    /* 1: a peer that has delivered its parts in a group with us. May be NULL: every peer has. */
    int (*proven)(void *context, const struct peer_id *peer);
    /* This leader accepted us and never began; has_disbanded: it reported that, or began no group
     * that we can join, and named no other leader. May be NULL. */
    void (*abandoned)(void *context, const struct peer_id *leader, int has_disbanded);
    /* PL_OK: `group` is there. PL_EAGAIN: the deadline has come. PL_ENOMEM. */
    void (*over)(void *context, int status);
};

enum matchmaking_state {
    MATCHMAKING_IDLE,
    MATCHMAKING_LOOKING,
    MATCHMAKING_ASKING,
    MATCHMAKING_FOLLOWING
};

/* What a search has seen of other peers. If it ends without a group, the greatest value seen is
 * reported as the reason. */
enum matchmaking_seen {
    MATCHMAKING_SEEN_NONE,
    MATCHMAKING_SEEN_PEERS,       /* some have declared */
    MATCHMAKING_SEEN_REFUSAL,     /* one refuses us, for a ban or for our protocol version */
    MATCHMAKING_SEEN_INCOMPATIBLE /* one averages other tensors */
};

struct matchmaking_candidate {
    struct peer_id peer;
    double expiration;
    int doubtful; /* 1: only third parties report it, so it may not exist */
};

/* Declarations, as the last poll has shown them (matchmaking.c). */
struct matchmaking_polls {
    struct matchmaking_candidate *candidates;
    size_t count;
    double next; /* when to poll again */
    int under_way;
    int seen; /* a poll has ended in this search */
};

/* Leaders asked in this search, each by one of its declarations (matchmaking_leader.c). */
struct matchmaking_attempts {
    struct matchmaking_attempt {
        struct matchmaking_candidate of;
        double again; /* when to ask again; INFINITY: never, the request is open or was refused */
        int count;
    } * list;
    size_t count, capacity;
    int unanswered; /* doubtful peers that did not answer in this window */
    int distrust;   /* 1: all those of an earlier window were silent, and none has answered since */
};

/* The leader that we ask or follow: ASKING, FOLLOWING (matchmaking.c). */
struct matchmaking_leader {
    struct peer_id peer;
    double asked; /* the expiration in our request */
    double until; /* when we give it up; without meaning in other states */
    int is_doubtful;
    int hops; /* leaders that have sent us on to this one */
};

/* Join requests that wait for our own leader's answer (matchmaking_followers.c). */
struct matchmaking_queue {
    struct matchmaking_waiting {
        void *stream;
        struct peer_id peer;
        uint8_t *request;
        size_t n;
    } * list;
    size_t count;
};

struct matchmaking {
    struct matchmaking_options o;
    const struct matchmaking_callbacks *callbacks;
    void *context;

    struct group group; /* after a good end; the caller may take it (and leave zeros) */
    enum matchmaking_seen seen;
    /* private */
    enum matchmaking_state state;
    double scheduled, deadline;
    double begin;       /* E: when we would lead; INFINITY while we have not declared */
    double window_ends; /* the end of the window: `begin` once declared, else when we declare */
    int behind_nat;
    size_t expected;
    int patience;      /* consecutive windows that may end without another peer; 0: any number */
    int windows_alone; /* consecutive windows that have ended so */
    struct matchmaking_polls polls;
    struct matchmaking_attempts attempts;
    struct matchmaking_leader leader;
    struct group followers; /* in the order in which they came */
    void **streams;         /* of the followers */
    struct matchmaking_queue waiting;
};

/* o's borrowed parts and the callbacks outlive the engine. */
void matchmaking_init(struct matchmaking *m, const struct matchmaking_options *o,
                      const struct matchmaking_callbacks *callbacks, void *context);
/* Sends no messages: cancel first. */
void matchmaking_clear(struct matchmaking *m);

/* Begins a search that ends by `deadline`. We declare to begin at `scheduled`, or min_time from now
 * if that is later. */
void matchmaking_begin(struct matchmaking *m, double now, double scheduled, double deadline);
/* Ends the search; `over` is not called. */
void matchmaking_cancel(struct matchmaking *m);
/* This many peers will come with values to average, this one included if it has any. A leader that
 * has them all, while no other peer has declared, begins at once. 0: not known. hivemind's leaders
 * always wait for the end of the window. */
void matchmaking_expect(struct matchmaking *m, double now, size_t peers);

/* From now on, in later searches too: we are behind NAT (1), or publicly reachable (0). Followers
 * that we have already stay. */
void matchmaking_set_behind_nat(struct matchmaking *m, double now, int behind_nat);

/* From now on: end the search (PL_EAGAIN) after this many windows in a row without a declaration of
 * another peer. 0: go on to the deadline. */
void matchmaking_patience(struct matchmaking *m, int windows);

/* When matchmaking_tick has to be called at the latest, with a time that is not before it. */
double matchmaking_wake(const struct matchmaking *m);
void matchmaking_tick(struct matchmaking *m, double now);
/* n declarations with value true, in any order; our own and expired ones are skipped. */
void matchmaking_found(struct matchmaking *m, double now, const struct matchmaking_candidate *found,
                       size_t n);
/* A message of the leader that we asked. */
void matchmaking_message(struct matchmaking *m, double now, const uint8_t *data, size_t n);
void matchmaking_leader_gone(struct matchmaking *m, double now);
/* A peer's JoinRequest, in any state; `stream` is passed on to `answer`. */
void matchmaking_request(struct matchmaking *m, double now, void *stream,
                         const struct peer_id *peer, const uint8_t *data, size_t n);
/* The stream of a JoinRequest has ended before its last answer. */
void matchmaking_request_gone(struct matchmaking *m, void *stream);

#endif
