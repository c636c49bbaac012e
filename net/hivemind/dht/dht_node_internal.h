/* dht_node_internal.h - what the files of the node share: dht_node.c (life, serving),
 * dht_outgoing.c (calls), dht_walk.c (searches), dht_get.c, dht_put.c, dht_join.c (entry and
 * upkeep), dht_reach.c (who can call us), dht_members.c (who has shown a token). */
#ifndef PL_DHT_NODE_INSIDE_H
#define PL_DHT_NODE_INSIDE_H

#include "dht_node.h"
#include "net/hivemind/kademlia/dht_search.h"
#include "net/hivemind/kademlia/dht_serve.h"

#define BLACKLIST_FIRST 5.0 /* s, doubled with every further failure */
/* s; the original goes on doubling, and loses repaired peers for hours */
#define BLACKLIST_LONGEST 300.0
#define BLACKLIST_MAX 1024

#define DHT_MEMBERS_MAX 4096  /* four times the largest run; whoever had to go is asked again */
#define DHT_REFUSALS_MAX 256  /* strangers that are not asked again for a while; the oldest goes */
#define DHT_REFUSAL_TIME 10.0 /* s; an honest peer's token may be a moment late */
#define DHT_PROOFS_A_SECOND \
    100 /* an RSA signature of ours takes a millisecond: a tenth of a core */

/* `until`: of a member the DHT time at which its token expires; of a refusal the loop's time. */
struct dht_member {
    struct peer_id peer;
    double until;
};

struct blacklisted {
    struct peer_id peer;
    int failures;
    double until; /* loop time */
};

/* One of the addresses that we were given to join by. */
struct initial {
    struct dht_node *node;
    struct multiaddr address;
    struct peer_id peer; /* once known */
    struct host_wait *dialling;
    enum { INITIAL_IDLE, INITIAL_TRYING, INITIAL_GOOD, INITIAL_BAD } state;
    double clock_error; /* NAN: not known */
    int available, is_protected;
    char why[320]; /* INITIAL_BAD; may begin with the address */
};

struct dht_node {
    struct host *host;
    struct loop *loop;
    struct dht_state state;
    struct dht_caller self;     /* of what we store here */
    struct validators fallback; /* when none were given */
    struct auth *auth;
    double call_limit, clock_offset, clock_error;
    double answer_s;       /* what answers take, smoothed; 0: none has come yet */
    int serves;            /* 1: our handlers are registered */
    int wants_client_mode; /* as opened; state.client_mode also says that nobody reaches us */
    int closing;
    /* an initial peer has called us, be it on the connection that we made */
    int called_back;
    struct reach *reach; /* dht_reach.c */

    struct timer turn; /* collects what one turn of the loop asks for */
    struct outgoing *outgoing;
    struct dht_walk *walks;
    struct getting *gets;
    struct putting *puts;
    struct dht_task *pings;
    struct validation *validations; /* pings to be answered once we have called back */
    size_t validation_count;

    struct dht_member *members; /* dht_members.c */
    struct dht_member refusals[DHT_REFUSALS_MAX];
    size_t member_count, refusal_count, refusal_next;
    double proofs_since; /* loop time */
    int proofs;          /* asked for within this second */
    struct dht_task *admissions;

    struct blacklisted *blacklist;
    size_t blacklist_count;
    /* cached and used: see dht_get.c */
    struct refetch {
        struct dht_id key;
        double at;
    } refetches[64];
    size_t refetch_count;
    struct timer refetch_timer;

    struct initial *initials;
    size_t initial_count;
    struct timer join_timer, upkeep_timer, retry_timer;
    double join_began;   /* loop time */
    int joined, joining; /* joining: initial peers are being asked */
    int held;            /* not before dht_node_enter */
    dht_joined *on_joined;
    void *on_joined_context;
    /* nodes whose clocks are asked for because initial peers say that ours is off */
    double voices[DHT_INITIAL_MAX + DHT_CLOCK_PEERS];
    size_t voice_count;
    int voices_awaited, corrected; /* corrected: for this entry they have been asked */
    double refreshed;              /* loop time of the last look at ourselves */
    double retry_after;            /* s until initial peers that are not there are tried again */

    uint64_t calls_made, calls_failed, calls_served;
};

/* A pending request of the user's, in the list of what it waits for. */
struct dht_task {
    struct dht_node *node;
    union {
        dht_got *got;
        dht_stored *stored;
        dht_pinged *pinged;
        dht_admitted *admitted;
    };
    void *context;
    int cancelled;
    struct dht_task *next;
};

/* --- dht_node.c: what every answer and request teaches us */
void dht_node_seen(struct dht_node *n, const struct dht_id *id, const struct peer_id *peer);
void dht_node_lost(struct dht_node *n, const struct dht_id *id, const struct peer_id *peer);
void dht_node_answered(struct dht_node *n, const struct peer_id *peer, double seconds);
int dht_node_avoids(const struct dht_node *n, const struct peer_id *peer);
/* s of silence after which the others' answers will do: more on a slow link or a busy machine. */
double dht_node_patience(const struct dht_node *n);
/* Something is to be done in this turn of the loop, but not inside the caller. */
void dht_node_wake(struct dht_node *n);

/* --- dht_outgoing.c: calls; those to one peer in one turn travel together */
struct dht_reply {
    /* as rpc_result's; PL_EPROTO also for an answer that makes no sense */
    int status;
    const char *error;
    const struct dht_found *found; /* find */
    int stored;                    /* store */
    const struct dht_answer *pong; /* ping */
    double seconds;                /* there and back */
};
typedef void dht_replied(void *context, const struct dht_contact *who, const struct dht_reply *r);
/* id: NULL if not known. replied may be NULL. PL_ENOMEM or PL_OK; only then replied will be
 * called. */
int dht_ask_find(struct dht_node *n, const struct dht_contact *who, const struct dht_id *key,
                 dht_replied *replied, void *context);
int dht_ask_store(struct dht_node *n, const struct dht_contact *who, const struct dht_record *r,
                  dht_replied *replied, void *context);
int dht_ask_ping(struct dht_node *n, const struct peer_id *peer, int validate, dht_replied *replied,
                 void *context);
void dht_outgoing_turn(struct dht_node *n);
void dht_outgoing_close(struct dht_node *n); /* nothing is called back */

/* --- dht_walk.c: a search, run */
struct dht_walk {
    struct dht_node *node;
    struct dht_search search;
    /* Called once; the search can be read in it, and is gone afterwards. */
    void (*over)(void *context, struct dht_walk *w);
    void *context;
    int fresh, told;
    struct timer timer; /* until somebody is late */
    struct dht_walk *next;
};
struct dht_walk *dht_walk_start(struct dht_node *n, const struct dht_id *key, double sufficient,
                                void (*over)(void *, struct dht_walk *), void *context);
void dht_walk_turn(struct dht_node *n);
void dht_walk_close(struct dht_node *n);

/* --- dht_members.c: of a message that has been checked, whose sender's token ends then */
void dht_members_add(struct dht_node *n, const struct peer_id *peer, double until);
void dht_members_close(struct dht_node *n);

/* --- dht_get.c, dht_put.c, dht_join.c */
void dht_get_turn(struct dht_node *n);
void dht_get_close(struct dht_node *n);
void dht_put_turn(struct dht_node *n);
void dht_put_close(struct dht_node *n);
int dht_join_open(struct dht_node *n, const char *const *join, size_t count, struct pl_err *err);
void dht_join_turn(struct dht_node *n);
void dht_join_close(struct dht_node *n);

/* --- dht_reach.c: can others open connections to us? */
int dht_reach_open(struct dht_node *n);
void dht_reach_look(struct dht_node *n);           /* after entering, and in each upkeep */
int dht_reach_is_closed(const struct dht_node *n); /* nobody could call us directly */
int dht_reach_is_open(const struct dht_node *n);   /* 1 also while it is not known */
int dht_reach_is_known(const struct dht_node *n);
int dht_reach_is_relayed(const struct dht_node *n);
void dht_reach_close(struct dht_node *n);

#endif
