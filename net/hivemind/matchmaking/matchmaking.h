/* matchmaking.h - one averager's way into a group: an engine without sockets or clock. Messages and
 * the time are arguments, actions are callbacks. [spec hivemind-protocol 4.4] [Moshpit SGD 3.2]
 *
 *              ask               ACCEPTED             BEGIN_ALLREDUCE
 *   LOOKING ---------> ASKING --------------> FOLLOWING ----------------> over: a group
 *    |  ^                | refused, late        | disbanded, late
 *    |  +----------------+----------------------+
 *    | our time has come, and there are followers: we lead
 *    +--------------------------------------------------------------------> over: a group
 *
 * Everybody declares in the DHT by when it wants to begin; the peer with the earliest time
 * leads, and the others ask it. A peer behind NAT only asks, as a client: peers that cannot
 * reach it would be left without a leader. If there was nobody to follow for a window, it
 * declares for the next one: all the others may be behind the same router. matchmaking.c
 * explains the states. Times are DHT times. */
#ifndef PL_MATCHMAKING_H
#define PL_MATCHMAKING_H

#include "net/random_source.h"
#include "net/hivemind/messages/averaging_code.h"
#include "group.h"

#define MATCHMAKING_POLL_EVERY \
    0.3 /* s between polls of the declarations; hivemind does not pause */
#define MATCHMAKING_CANDIDATES_MAX GROUP_PEERS_MAX
/* Peers that only third parties report; anybody can invent them. So many may leave us without an
 * answer in a window, one in the windows after that until one of them does answer; the rest is
 * not asked. Each is given an eighth of the window, so that more than half of it is left. */
#define MATCHMAKING_DOUBTFUL_ASKS 3
#define MATCHMAKING_DOUBTFUL_SHARE 8.0
#define MATCHMAKING_WAITING_MAX 256 /* join requests that wait while we ask somebody ourselves */
/* s until a leader that has not answered is asked once more, twice as long after each time: a
 * machine that pauses for some seconds would else be without a group for its whole window */
#define MATCHMAKING_AGAIN 2.0
/* Unproven followers of a leader get no share to reduce while the proven peers, the leader with
 * them, are at least one in so many: what these reduce then grows by that factor at most, for
 * one round. Two of them at least: one alone would see everybody's values. */
#define MATCHMAKING_PROVEN_LOAD 4
#define MATCHMAKING_PROVEN_MIN 2
#define MATCHMAKING_HOPS_MAX 8       /* leaders that send us on to the next, one after the other */
#define JOIN_MESSAGE_MAX (16u << 10) /* a request; gather may have 4 KiB of it */
/* A leader's message: all peer ids and gather messages. */
#define LEADER_MESSAGE_MAX (GROUP_PEERS_MAX * (GATHER_MAX + 64u))

struct matchmaking_options {
    struct peer_id self;
    const char *key; /* the group key; borrowed */
    uint8_t schema_hash[SCHEMA_HASH_BYTES];
    double min_time;        /* s that we give others to find us, M */
    double request_timeout; /* s for a leader's first answer */
    int verify;             /* 1: a group has to reduce as a whole: shares stay as they are */
    size_t target_size;     /* a group of this size begins at once; 0: no such size */
    size_t min_size;        /* auxiliary peers do not count: with them alone nothing is averaged */
    int client_mode;        /* 1: nobody can ask us, we lead nobody */
    const uint8_t *gather;  /* borrowed while it searches */
    size_t gather_n;
    struct random_source random; /* of the groups that we lead: their names, and who comes where */
};

/* What the engine wants done. None of these may call the engine. */
struct matchmaking_callbacks {
    /* Store under the key: we want to begin at `expiration` (1), or: not any more (0). */
    void (*declare)(void *context, double expiration, int active);
    /* Get the key's newest; then matchmaking_found, also if there is nothing. */
    void (*poll)(void *context);
    /* Open rpc_join_group, send this, end our side. There is one such stream at a time. */
    void (*ask)(void *context, const struct peer_id *leader, const uint8_t *request, size_t n);
    /* Close that stream. Nothing more is expected from it. */
    void (*leave)(void *context);
    /* A message to the peer that asked by `stream`; last: close it then. */
    void (*answer)(void *context, void *stream, const uint8_t *message, size_t n, int last);
    /* 1: nothing is to be had with this peer. May be NULL. */
    int (*refuses)(void *context, const struct peer_id *peer);
    /* 1: it declares, and does not come. It is neither asked nor waited for while there are others;
     * should it ask, it is welcome. May be NULL. */
    int (*absent)(void *context, const struct peer_id *peer);
    /* 1: it is one of the peers counted by matchmaking_expect. Others are no reason to begin
     * without those. May be NULL: everybody is. */
    int (*expected)(void *context, const struct peer_id *peer);
    /* 1: it is on back-off, see reliability.h. It is not asked, waited for or accepted. A group
     * that holds it all the same is gone on with: its leader has yet to see for itself, and
     * would take us for the ones who are silent. May be NULL. */
    int (*paused)(void *context, const struct peer_id *peer);
    /* 1: it has delivered in a group with us. May be NULL: all have. */
    int (*proven)(void *context, const struct peer_id *peer);
    /* It has accepted us, and has not begun. May be NULL. */
    void (*abandoned)(void *context, const struct peer_id *leader);
    /* PL_OK: `group` is there. PL_EAGAIN: the deadline has come. PL_ENOMEM. */
    void (*over)(void *context, int status);
};

enum matchmaking_state {
    MATCHMAKING_IDLE,
    MATCHMAKING_LOOKING,
    MATCHMAKING_ASKING,
    MATCHMAKING_FOLLOWING
};

struct matchmaking_candidate {
    struct peer_id peer;
    double expiration;
    int doubtful; /* 1: it may not exist. It is asked after the others, and nobody waits for it */
};

/* Declarations, as the last poll has shown them (matchmaking.c). */
struct matchmaking_polls {
    struct matchmaking_candidate *candidates;
    size_t count;
    double next; /* when to poll again */
    int under_way;
    int seen; /* there was one in this search */
};

/* Leaders that were asked in this search, each at one of its declarations (matchmaking.c). */
struct matchmaking_attempts {
    struct matchmaking_attempt {
        struct matchmaking_candidate of;
        double again; /* INFINITY: not again, the question is open or was refused */
        int count;
    } * list;
    size_t count, capacity;
    int unanswered; /* doubtful ones that have not answered in this window */
    int distrust;   /* 1: none has answered in an earlier one */
};

/* Of ASKING and FOLLOWING (matchmaking.c). */
struct matchmaking_leader {
    struct peer_id peer;
    double asked; /* the expiration in our request */
    double until; /* not longer than that */
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
    /* met: other peers declared in this search; met_misfits: some of them average other tensors;
     * met_refusals: some refuse us, for a ban or for our protocol version. */
    int met, met_misfits, met_refusals;
    /* private */
    enum matchmaking_state state;
    double scheduled, deadline;
    double begin;       /* E: when we would lead; INFINITY while we have not declared */
    double window_ends; /* the same; without a declaration, when we had hoped to have a leader */
    int declared, behind_nat;
    size_t expected;
    int patience; /* times that our own time may pass without anybody else */
    int lonely;   /* times that it has */
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
/* Sends nothing to anybody: cancel first. */
void matchmaking_clear(struct matchmaking *m);

/* Begins a search that ends by `deadline`; we request to begin at `scheduled`, but give others
 * min_time. */
void matchmaking_begin(struct matchmaking *m, double now, double scheduled, double deadline);
/* No more of it; `over` is not called. */
void matchmaking_cancel(struct matchmaking *m);
/* Expect `peers` peers with data, this one included if it has data: when all are in the group and
 * no other peer has declared, the leader stops waiting. 0: not known. hivemind always waits. */
void matchmaking_expect(struct matchmaking *m, double now, size_t peers);

/* From now on, in later searches too: we are behind NAT (1), or publicly reachable. Those who
 * follow us already still do. */
void matchmaking_set_behind_nat(struct matchmaking *m, double now, int behind_nat);

/* From now on, give up with PL_EAGAIN after `times` windows of our own in which no other peer
 * declared. 0: search until the deadline. */
void matchmaking_patience(struct matchmaking *m, int times);

/* When matchmaking_tick has to be called at the latest, with a time that is not before it. */
double matchmaking_wake(const struct matchmaking *m);
void matchmaking_tick(struct matchmaking *m, double now);
/* The declarations, in any order; `n` others with value true. Ours, and what has expired, may be
 * there. */
void matchmaking_found(struct matchmaking *m, double now, const struct matchmaking_candidate *found,
                       size_t n);
/* A message of the leader that we asked. */
void matchmaking_message(struct matchmaking *m, double now, const uint8_t *data, size_t n);
void matchmaking_leader_gone(struct matchmaking *m, double now);
/* Somebody asks us, at any time; `stream` is what `answer` will get. */
void matchmaking_request(struct matchmaking *m, double now, void *stream,
                         const struct peer_id *peer, const uint8_t *data, size_t n);
/* A stream that asked us has ended before its last answer. */
void matchmaking_asker_gone(struct matchmaking *m, void *stream);

#endif
