/* referee.h - BTARD's verification of one all-reduce, between its last answer and its being applied: reducers
 * whose aggregate is not what CenteredClip gives are found by random checks, and banned.
 * [TTT 2.1, security] [BTARD 3, appendix] ref/btard.h has the checks themselves.
 *
 * Everybody knows by now every part's aggregate a, what it has itself sent of it, x, and the radius tau
 * that the reducer names. Four messages from each to each, and a last one that all have said the same:
 *
 *   COMMIT   hashes of each reducer's aggregates; of a number to draw the direction z by
 *   REVEAL   that number. Nobody could know z while its aggregates could still be changed
 *   REPORT   of each part: s = <z, x - a> min(1, tau / |x - a|), and |x - a|
 *   ACCUSE   reducers know x: whose reports are false?
 *   AGREE
 *
 * At CenteredClip's fixed point a part's s sum to 0; an aggregate that was moved gives another sum, whatever
 * z may be. Who is found is banned: a reducer with such a sum, or with hashes or a radius that don't fit,
 * alone; of an accusation, which others cannot check, both sides, so that each costs the liars at least
 * as many as the honest. A round with anything found is void.
 *
 * What is not there: validators who recompute a gradient need data and draws that others can repeat. So a
 * sender may send what it likes (CenteredClip bounds its pull), and a reducer together with a sender
 * who reports for it is not found. */
#ifndef PL_REFEREE_H
#define PL_REFEREE_H

#include "../../ref/btard.h"
#include "../../ref/partition.h"
#include "../bytes.h"
#include "dht_id.h"

enum referee_phase {
    REFEREE_COMMIT,
    REFEREE_REVEAL,
    REFEREE_REPORT,
    REFEREE_ACCUSE,
    REFEREE_AGREE,
    REFEREE_PHASES
};

#define REFEREE_PEERS_MAX 256      /* each of whom hears each: 65,536 messages a phase are enough */
#define REFEREE_PARTS_MAX 200000u  /* reports of 16 bytes have to fit into a message of 4 MiB */

/* What was exchanged, owned by the exchange; read on a helper thread while nothing changes. */
struct referee_view {
    const uint8_t *group_id;       /* (DHT_ID_BYTES) */
    size_t count, self;
    const struct pl_part *parts;
    size_t part_count;
    void *context;
    /* A part's aggregate and radius. */
    const float *(*aggregate)(void *context, size_t part, double *tau);
    /* The values of ours that went into it, in `room` if they are not at hand; NULL: none did. */
    const float *(*sent)(void *context, size_t part, float *room);
    /* For a part of our own: those that came from another peer; NULL: none did. */
    const float *(*received)(void *context, size_t part, size_t peer, float *room);
};

struct referee {
    struct referee_view v;
    int phase;                     /* the next of ours to be made */
    struct bytes *said[REFEREE_PHASES]; /* (count): everybody's messages; ours too */
    uint8_t lot[PL_HASH_BYTES], salt[PL_HASH_BYTES], seed[PL_HASH_BYTES];
    uint8_t *own_hash;             /* (count, PL_HASH_BYTES) */
    uint8_t *banned;               /* (count): found out */
    int over, status;              /* PL_OK: the round holds. PL_EIO: void */
    struct pl_err err;
};

int referee_open(struct referee **r, const struct referee_view *v, struct pl_err *err);
void referee_close(struct referee *r); /* NULL may be closed */

/* 1: everything is there for the next step. */
int referee_is_ready(const struct referee *r);
/* On any thread: checks what was said, and makes our next message, referee_own, or ends it: `over`. */
void referee_step(struct referee *r);
const struct bytes *referee_own(const struct referee *r);
/* A message from a peer; one that is early is kept. PL_EPROTO: none of this round, or a second one of its phase. */
int referee_hear(struct referee *r, size_t peer, const uint8_t *data, size_t n);

#endif
