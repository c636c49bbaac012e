/* averager_internal.h - an averager, made of its parts. Each part has a header of its own:
 *
 *   averager.c           options, steps, life
 *   averager_search_internal.h    a group is searched: averager_join.c, averager_reachability.c
 *   averager_round_internal.h     it reduces: averager_admit.c, averager_round.c, averager_parts.c
 *   averager_powersgd_internal.h  a round of two all-reduces: averager_powersgd.c
 *   averager_gather_internal.h    a round of messages: averager_gather.c
 *   averager_verify_internal.h    calls that only our own peers have
 *   averager_turn.c      the order of work after an event
 *   ../sharing/          states for newcomers, and from donors: it knows nothing of averagers
 *
 * Functions that several of them need are below them, and a lower file reports to an upper one by a
 * callback: calls among these files form no circle. */
#ifndef PL_AVERAGER_INTERNAL_H
#define PL_AVERAGER_INTERNAL_H

#include "net/hivemind/moderation/bans.h"
#include "averager.h"
#include "averager_gather_internal.h"
#include "averager_powersgd_internal.h"
#include "averager_round_internal.h"
#include "averager_search_internal.h"
#include "averager_verify_internal.h"
#include "reliability.h"

#include <string.h>

/*   IDLE ---begin---> SEARCHING ---ended---> SEARCHED ---a group---> GROUPED ---trigger, tokens---+
 *    ^                    ^                     | none                                          |
 *    +---------+----------|---------------------+                                               |
 *              | done     +---fell apart--- REDUCED <---ended--- REDUCING <---------------------+
 *              +--------------------------------+ */
enum averager_phase {
    AVERAGER_IDLE,
    AVERAGER_SEARCHING,
    AVERAGER_SEARCHED,  /* search.status says how; the loop acts on it (averager_turn) */
    AVERAGER_GROUPED,   /* waits for the trigger, and for groupmates' tokens */
    AVERAGER_COMPUTING, /* PowerSGD: a helper thread has the tensors, before, between and after: */
    AVERAGER_COMPUTED,  /* powersgd.status says how */
    AVERAGER_GATHERING, /* messages are fetched, in place of an all-reduce */
    AVERAGER_GATHERED,  /* gather.status says how */
    AVERAGER_REDUCING,  /* round.x runs */
    AVERAGER_REDUCED    /* round.status says how; the loop acts on it */
};

/* How much of the step is still wanted. */
enum averager_ending {
    ENDING_IN_TIME,     /* groups are searched until the deadline */
    ENDING_AFTER_GROUP, /* the group that is there may end its round, but no other follows */
    ENDING_NOW          /* cancelled */
};

/* A caller's step. */
struct averager_call {
    enum averager_phase phase;
    enum averager_ending ending;
    int triggered; /* weight and tensors are there */
    struct averager_step step;
    size_t expected; /* peers, by the caller; step's are those that this search may still bring */
    averager_done *done;
    void *context;
    struct averager_result result;
    struct pl_err why, caught, differs, left_out; /* its sentences */
    struct timer turn;                            /* goes on from the loop itself */
    loop_fn *on_turn;                             /* called by the timer */
};

/* Its name in the DHT and in RPCs. */
struct averager_names {
    char prefix[GROUP_KEY_MAX], key[GROUP_KEY_MAX];
    char bits[GROUP_BITS_MAX + 1]; /* of the key: other ones after each group, */
    int keeps_bits;                /* 1: after each good one only */
    char rpc[AVERAGER_ALL_RPCS][GROUP_NAME_MAX];
    struct dht_id key_id;
};

/* The averaged values; each (tensors). */
struct averager_tensors {
    size_t *elements;
    enum pl_compression *method;
    struct schema_tensor *schema;
    uint8_t schema_hash[SCHEMA_HASH_BYTES];
};

struct averager_end {
    loop_fn *closed; /* NULL: the averager is open */
    void *context;
    struct timer timer;
};

struct averager {
    struct averager_options o;
    struct host *host;
    struct dht_node *node;
    struct loop *loop;
    struct bans bans;
    struct reliability *reliability, *own_reliability; /* the latter if it is not shared */
    struct bandwidth *bandwidth, own_bandwidth;        /* the same */
    double slow; /* Mbit/s: below it our values take longer than upload_limit; 0: no limit */
    struct averager_names names;
    struct averager_tensors tensors;
    struct averager_call call;
    struct averager_search search;
    struct averager_admission admission;
    struct averager_round round;
    struct averager_parts parts;
    struct averager_verify verify;
    struct averager_powersgd powersgd;
    struct averager_gather gather;
    struct state_peer state;
    struct state_share share;
    struct state_download download;
    struct averager_end end;
};

double averager_now(const struct averager *a); /* DHT time */
void averager_turn(struct averager *a);        /* goes on soon */

/* The next key's bits (averager_key.c): before a group's round, and after a good one. */
void averager_group_formed(struct averager *a);
void averager_round_succeeded(struct averager *a);
/* After a round that failed, with its group: the search that follows expects that group. */
void averager_expect_group_again(struct averager *a);

/* 1: no group has begun with us, nor can one begin that we do not lead; its members would count on
 * us in vain. A leader that we ask, or follow, may have begun one already. */
static inline int averager_is_in_no_group(const struct averager *a)
{
    return a->call.phase == AVERAGER_IDLE ||
           (a->call.phase == AVERAGER_SEARCHING && a->search.mm.state == MATCHMAKING_LOOKING);
}
/* 1: the group of this ID counts on us in vain: we are in none, or wait for our trigger in another
 * one. */
static inline int averager_has_left(const struct averager *a, const uint8_t id[DHT_ID_BYTES])
{
    return averager_is_in_no_group(a) ||
           (a->call.phase == AVERAGER_GROUPED && memcmp(a->round.group.id, id, DHT_ID_BYTES));
}
/* Notes in `reliability` that the peer is there, and whether it reports progress. */
void averager_see(struct averager *a, const struct peer_id *peer);

#endif
