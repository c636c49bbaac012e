/* averager_gather_internal.h - rounds in which each peer takes the message of every other one
 * (averager_gather.c). */
#ifndef PL_AVERAGER_GATHER_INTERNAL_H
#define PL_AVERAGER_GATHER_INTERNAL_H

#include "net/hivemind/matchmaking/group.h"
#include "net/hivemind/messages/gather_message.h"
#include "net/libp2p/rpc/rpc.h"
#include "net/loop/loop.h"

struct averager;
struct averager_message;

#define GATHER_CALLS_MAX 8 /* under way to one groupmate */

/* One call at a time: a piece that did not come is asked for again by the same one. */
struct gather_call {
    struct gather_fetch *f;
    struct rpc_request *request; /* NULL: not under way */
    uint64_t offset;             /* of the piece, if it has one */
    int has_piece;               /* to ask for, until it is here */
    double asked_at;
};

/* The download of one groupmate's message. */
struct gather_fetch {
    struct averager *a;
    size_t place;
    struct gather_call calls[GATHER_CALLS_MAX];
    size_t window;      /* how many of the calls are used */
    size_t piece;       /* bytes: the length of its first one; 0: not known yet */
    uint64_t next;      /* offset of the first piece that no call has */
    struct timer pause; /* until the next one */
    int failures;       /* of the connection, in a row */
    int is_complete;    /* nothing more is asked of this peer */
    int is_ahead;       /* its message is of a later epoch than ours */
    double heard_at;    /* a piece, or that there is none yet */
};

struct averager_gather {
    /* Ours, until the next round begins: a groupmate may be slower than we are. */
    uint8_t *mine;
    size_t mine_n;
    int64_t epoch;
    double weight;
    int is_delivered;  /* some groupmate has all of it, */
    int was_delivered; /* already before this group */
    int serves;        /* it is there to be fetched by this group: */
    uint8_t group[GATHER_GROUP_BYTES];
    struct peer_id *peers; /* (count) */
    uint64_t *given;       /* (count) bytes of it */
    size_t count;
    double sent;                       /* bytes, of pieces with their heads */
    struct gather_fetch *fetch;        /* (count); our own place is unused */
    struct averager_message *messages; /* (count) theirs, and ours */
    double began, asked_at;            /* s; when a groupmate last asked for a piece */
    struct timer timer;
    int status; /* of the round that has ended */
};

int averager_gather_open(struct averager *a, struct pl_err *err);
void averager_gather_close(struct averager *a);
/* Our message of the next round: n >= 1 bytes, copied. */
int averager_gather_set(struct averager *a, double weight, int64_t epoch, const uint8_t *data,
                        size_t n);
/* A group is there, and the step has its trigger; ends with averager_turn in AVERAGER_GATHERED. */
void averager_gather_begin(struct averager *a);
/* Ends what is under way; our message can still be fetched. */
void averager_gather_stop(struct averager *a);

#endif
