/* broadcast.c - how all honest peers of a group end a stage with the same messages, although some
 * senders may equivocate. [BTARD 3.1] [Bracha 1987]
 *
 * A stage, at one peer:
 *
 *   1. broadcast_send()       our signed message goes to all
 *   2. take_message()         others' messages arrive, directly or forwarded
 *   3. send_list()            once all are here: a signed list of their hashes goes to all
 *   4. broadcast_is_common()  all messages and all lists are here, and the lists are equal: the
 *                             stage has ended, with the same messages everywhere
 *
 * Here is what a peer holds and sends: 1 and 4. broadcast_receive.c has what arrives: 2, 3 and the
 * faults. */
#include "broadcast_internal.h"

#include <stdlib.h>
#include <string.h>

#define PACKET_USUAL (1u << 20) /* bytes: frames are put together up to this */

/* --- memory and packets ----------------------------------------------------------------------- */

int broadcast_open(struct broadcast *b, const struct broadcast_options *o)
{
    /* Two cells a stage and peer: its message, and its list. n * n marks for what was
     * forwarded, so that each message goes to each peer once at most. */
    size_t n = o->group->count, cells = 2 * (size_t)o->rules->stages;
    memset(b, 0, sizeof *b);
    b->o = *o;
    b->count = n;
    b->self = o->group->self;
    b->stage = -1;
    b->out_end = &b->out;
    b->cell = calloc(cells * n + 1, sizeof *b->cell);
    b->pair = calloc(n + 1, sizeof *b->pair);
    b->forwarded = calloc(cells * n * n + 1, 1);
    b->needs = calloc(2 * n * n + 1, 1);
    b->need_stage = calloc(n + 1, sizeof *b->need_stage);
    b->guilty = calloc(n + 1, 1);
    b->elsewhere = calloc(n + 1, 1);
    b->frames = calloc(n + 1, sizeof *b->frames);
    if (!b->cell || !b->forwarded || !b->needs || !b->need_stage || !b->guilty || !b->elsewhere ||
        !b->frames || !b->pair ||
        equivocation_scope_init(&b->scope, o->rules, o->group, o->round)) {
        broadcast_close(b);
        return PL_ENOMEM;
    }
    /* -1 stands for no stage: that peer has not asked for anything yet. */
    for (size_t i = 0; i < n; i++) b->need_stage[i] = -1;
    return PL_OK;
}

void packets_free(struct packet *l)
{
    while (l) {
        struct packet *next = l->next;
        bytes_clear(&l->data);
        free(l);
        l = next;
    }
}

void broadcast_sent(struct broadcast *b)
{
    packets_free(b->out);
    b->out = NULL;
    b->out_end = &b->out;
}

void broadcast_close(struct broadcast *b)
{
    for (size_t i = 0; b->cell && i < 2 * (size_t)b->o.rules->stages * b->count; i++)
        bytes_clear(&b->cell[i].message);
    for (size_t i = 0; b->pair && i < b->count; i++) bytes_clear(&b->pair[i]);
    broadcast_sent(b);
    equivocation_scope_clear(&b->scope);
    free(b->pair);
    free(b->cell);
    free(b->forwarded);
    free(b->needs);
    free(b->need_stage);
    free(b->guilty);
    free(b->elsewhere);
    free(b->frames);
    memset(b, 0, sizeof *b);
}

/* The packet that a frame of n bytes goes into. NULL: no memory. */
static struct bytes *packet_to(struct broadcast *b, size_t to, size_t n)
{
    struct packet *l = NULL;
    /* A step makes many small frames; together they take one call to each receiver instead
     * of many. */
    for (struct packet *k = b->out; k; k = k->next)
        if (k->to == to && bytes_length(&k->data) + n <= PACKET_USUAL) l = k;
    if (!l) {
        if (!(l = calloc(1, sizeof *l))) {
            b->failed = PL_ENOMEM;
            return NULL;
        }
        l->to = to;
        *b->out_end = l;
        b->out_end = &l->next;
    }
    return &l->data;
}

void broadcast_frame(struct broadcast *b, size_t to, enum frame_kind kind, const uint8_t *data,
                     size_t n)
{
    /* Every frame names the round, so a packet of another round is recognized before
     * anything in it is believed. */
    struct bytes *out = packet_to(b, to, 4 + FRAME_START + n);
    if (!out) return;
    bytes_be32(out, (uint32_t)(FRAME_START + n));
    bytes_u8(out, (uint8_t)kind);
    bytes_add(out, b->o.round, PL_HASH_BYTES);
    bytes_add(out, data, n);
    if (out->failed) b->failed = PL_ENOMEM;
}

/* --- messages held ---------------------------------------------------------------------------- */

const uint8_t *broadcast_body(const struct broadcast *b, int stage, size_t peer, size_t *n)
{
    const struct cell *c = cell_of(b, stage, peer);
    if (n) *n = bytes_length(&c->message) - (has(b, stage, peer) ? c->head : 0);
    return has(b, stage, peer) ? bytes_at(&c->message) + c->head : NULL;
}

/* Ours is among them: it is held like the others'. */
int broadcast_is_full(const struct broadcast *b, int stage)
{
    for (size_t i = 0; i < b->count; i++)
        if (!has(b, stage, i)) return 0;
    return 1;
}

/* Equal lists mean that this peer holds the very messages that we hold. */
int broadcast_agrees(const struct broadcast *b, int stage, size_t peer)
{
    const uint8_t *list = broadcast_body(b, list_of(b, stage), peer, NULL);
    for (size_t i = 0; list && i < b->count; i++)
        if (memcmp(list + i * PL_HASH_BYTES, cell_of(b, stage, i)->hash, PL_HASH_BYTES)) return 0;
    return list != NULL;
}

/* The end of a stage. A peer that gets here knows that all others hold the same messages:
 * each honest one has signed so. [BTARD 3.1] */
int broadcast_is_common(const struct broadcast *b, int stage)
{
    if (!broadcast_is_full(b, stage)) return 0;
    for (size_t i = 0; i < b->count; i++)
        if (!broadcast_agrees(b, stage, i)) return 0;
    return 1;
}

/* --- sending ---------------------------------------------------------------------------------- */

void broadcast_forward(struct broadcast *b, int stage, size_t to, size_t of)
{
    /* A forwarded message keeps its author's signature, so the forwarding peer need not be trusted.
     * It goes to each receiver once, however often that receiver asks. */
    uint8_t *done = &b->forwarded[((size_t)stage * b->count + to) * b->count + of];
    const struct bytes *m = &cell_of(b, stage, of)->message;
    if (*done || to == b->self || to == of || !bytes_length(m)) return;
    *done = 1;
    broadcast_frame(b, to, FRAME_MESSAGE, bytes_at(m), bytes_length(m));
}

/* Our own messages are sent to all at once and need no forwarding; a lost one is sent again on
 * request. */
void broadcast_send_own(struct broadcast *b, int stage, const void *body, size_t n)
{
    struct signed_message m = { .stage = (uint8_t)stage,
                                .from = (uint16_t)b->self,
                                .to = SIGNED_TO_ALL,
                                .body = body,
                                .n = n };
    struct cell *c = cell_of(b, stage, b->self);
    if (signed_message_write(&c->message, &m, b->o.me, b->o.round)) {
        b->failed = PL_ENOMEM;
        return;
    }
    memcpy(c->hash, m.hash, sizeof c->hash);
    c->head = bytes_length(&c->message) - n;
    broadcast_frame(b, SIZE_MAX, FRAME_MESSAGE, bytes_at(&c->message), bytes_length(&c->message));
}

/* From now on peers that are silent are counted, and asked again at intervals. */
static void enter(struct broadcast *b, double now, int stage)
{
    b->stage = stage;
    b->since = b->asked = now;
}

void broadcast_send(struct broadcast *b, double now, int stage, const void *body, size_t n)
{
    enter(b, now, stage);
    broadcast_send_own(b, stage, body, n);
}

void broadcast_repeat_pair(struct broadcast *b, size_t to)
{
    /* A message of a pair has one reader; only its author can repeat it. */
    const struct bytes *m = &b->pair[to];
    if (bytes_length(m)) broadcast_frame(b, to, FRAME_MESSAGE, bytes_at(m), bytes_length(m));
}

void broadcast_send_pair(struct broadcast *b, double now, int stage, size_t to, const void *body,
                         size_t n)
{
    struct signed_message m = {
        .stage = (uint8_t)stage, .from = (uint16_t)b->self, .to = (uint16_t)to, .body = body, .n = n
    };
    enter(b, now, stage);
    if (signed_message_write(&b->pair[to], &m, b->o.me, b->o.round)) b->failed = PL_ENOMEM;
    else broadcast_repeat_pair(b, to);
}

void broadcast_push(struct broadcast *b, int stage)
{
    /* At the end of the last stage this peer stops listening. Before that it forwards the others'
     * messages of this stage (its own has gone to all): a peer that lacks one could otherwise not
     * end, and would count others as silent. */
    for (size_t of = 0; of < b->count; of++)
        for (size_t to = 0; of != b->self && to < b->count; to++)
            broadcast_forward(b, stage, to, of);
}
