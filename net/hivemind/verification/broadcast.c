/* broadcast.c - how all honest peers of a group end a stage with the same messages, although some
 * senders may equivocate. [BTARD 3.1] [Bracha 1987]
 *
 * A stage, at one peer:
 *
 *   1. send_own()      our signed message goes to all
 *   2. take_message()  others' messages arrive, directly or forwarded
 *   3. send_list()     once all are here: a signed list of their hashes goes to all
 *   4. broadcast_is_common()   all messages and all lists are here, and the lists are equal: the
 *                      stage has ended, with the same messages everywhere
 *
 * Faults, and their handling:
 *
 *   a message is missing     after a quarter of the limit NEED goes to all; its holders forward it
 *   two lists differ         the heads of the messages in question are shown to each other
 *   two heads contradict     they are a proof of equivocation, which goes to all, once
 *   a peer sends to some     in the last quarter of the limit a message counts only if a third peer
 *   at the last moment       forwards it, so that it still reaches the others in time
 *
 * More than 500 lines: the four steps and the four exceptions are one protocol. */
#include "broadcast.h"

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

/* A frame of two pieces, the second may be empty. */
static void send_frame(struct broadcast *b, size_t to, enum frame_kind kind, const uint8_t *data,
                       size_t n, const uint8_t *more, size_t more_n)
{
    /* Every frame names the round, so a packet of another round is recognized before
     * anything in it is believed. */
    struct bytes *out = packet_to(b, to, 4 + FRAME_START + n + more_n);
    if (!out) return;
    bytes_be32(out, (uint32_t)(FRAME_START + n + more_n));
    bytes_u8(out, (uint8_t)kind);
    bytes_add(out, b->o.round, PL_HASH_BYTES);
    bytes_add(out, data, n);
    if (more_n) bytes_add(out, more, more_n);
    if (out->failed) b->failed = PL_ENOMEM;
}

/* --- messages held ---------------------------------------------------------------------------- */

static struct cell *cell_of(const struct broadcast *b, int stage, size_t peer)
{
    return &b->cell[(size_t)stage * b->count + peer];
}

/* Stages 0 to n - 1 are messages; stage n + s is the list of stage s. */
static int list_of(const struct broadcast *b, int stage) { return b->o.rules->stages + stage; }

static int has(const struct broadcast *b, int stage, size_t peer)
{
    return bytes_length(&cell_of(b, stage, peer)->message) > 0;
}

const uint8_t *broadcast_body(const struct broadcast *b, int stage, size_t peer, size_t *n)
{
    const struct cell *c = cell_of(b, stage, peer);
    if (n) *n = bytes_length(&c->message) - (has(b, stage, peer) ? c->head : 0);
    return has(b, stage, peer) ? bytes_at(&c->message) + c->head : NULL;
}

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

static int is_list(const struct broadcast *b, int stage) { return stage >= b->o.rules->stages; }

static void forward(struct broadcast *b, int stage, size_t to, size_t of)
{
    /* A forwarded message keeps its author's signature, so the forwarding peer need not be trusted.
     * It goes to each receiver once, however often that receiver asks. */
    uint8_t *done = &b->forwarded[((size_t)stage * b->count + to) * b->count + of];
    const struct bytes *m = &cell_of(b, stage, of)->message;
    if (*done || to == b->self || to == of || !bytes_length(m)) return;
    *done = 1;
    send_frame(b, to, FRAME_MESSAGE, bytes_at(m), bytes_length(m), NULL, 0);
}

/* Our own messages are sent to all at once and need no forwarding; a lost one is sent again on
 * request. */
static void send_own(struct broadcast *b, int stage, const void *body, size_t n)
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
    send_frame(b, SIZE_MAX, FRAME_MESSAGE, bytes_at(&c->message), bytes_length(&c->message), NULL,
               0);
}

static void enter(struct broadcast *b, double now, int stage)
{
    b->stage = stage;
    b->since = b->asked = now;
}

void broadcast_send(struct broadcast *b, double now, int stage, const void *body, size_t n)
{
    enter(b, now, stage);
    send_own(b, stage, body, n);
}

static void send_pair(struct broadcast *b, size_t to)
{
    /* A message of a pair has one reader; only its author can repeat it. */
    const struct bytes *m = &b->pair[to];
    if (bytes_length(m)) send_frame(b, to, FRAME_MESSAGE, bytes_at(m), bytes_length(m), NULL, 0);
}

void broadcast_send_pair(struct broadcast *b, double now, int stage, size_t to, const void *body,
                         size_t n)
{
    struct signed_message m = {
        .stage = (uint8_t)stage, .from = (uint16_t)b->self, .to = (uint16_t)to, .body = body, .n = n
    };
    enter(b, now, stage);
    if (signed_message_write(&b->pair[to], &m, b->o.me, b->o.round)) b->failed = PL_ENOMEM;
    else send_pair(b, to);
}

void broadcast_push(struct broadcast *b, int stage)
{
    /* At the end of the last stage this peer stops listening. Before that it forwards the others'
     * messages of this stage (its own has gone to all): a peer that lacks one could otherwise not
     * end, and would count others as silent. */
    for (size_t of = 0; of < b->count; of++)
        for (size_t to = 0; of != b->self && to < b->count; to++) forward(b, stage, to, of);
}

/* --- hearing ---------------------------------------------------------------------------------- */

static const struct peer_id *peer_of(const struct broadcast *b, size_t i)
{
    return &b->o.group->members[i].peer;
}

/* A peer has equivocated: the proof goes to all, once. */
static void pass_proof(struct broadcast *b, size_t peer, const uint8_t *proof, size_t n)
{
    if (b->guilty[peer]) return;
    /* Each honest peer passes a proof on once, from any sender: so all have it, and it
     * costs each peer n packets. */
    b->guilty[peer] = 1;
    send_frame(b, SIZE_MAX, FRAME_PROOF, proof, n, NULL, 0);
}

/* Two signed messages that can't both come from an honest peer. The proof holds without us. */
static void prove(struct broadcast *b, size_t peer, const uint8_t *x, size_t x_n, const uint8_t *y,
                  size_t y_n)
{
    struct bytes proof = { 0 };
    if (b->guilty[peer]) return;
    if (equivocation_write(&proof, x, x_n, y, y_n)) b->failed = PL_ENOMEM;
    else pass_proof(b, peer, bytes_at(&proof), bytes_length(&proof));
    bytes_clear(&proof);
}

void broadcast_prove(struct broadcast *b, size_t peer, int pair, int common)
{
    const struct bytes *x = &cell_of(b, pair, peer)->message,
                       *y = &cell_of(b, common, peer)->message;
    prove(b, peer, bytes_at(x), bytes_length(x), bytes_at(y), bytes_length(y));
}

/* All messages of the last stage are equal. One that differs from ours is ignored: otherwise its
 * sender could keep some peers from ending while others have ended. */
static int is_last(const struct broadcast *b, int stage) { return stage == b->o.rules->stages - 1; }

static int is_other_end(const struct broadcast *b, const struct signed_message *m)
{
    /* AGREE holds a hash over all OPEN messages, the same for all honest peers; only
     * Byzantine peers sign another. */
    const struct cell *own = cell_of(b, m->stage, b->self);
    return is_last(b, m->stage) &&
           (has(b, m->stage, m->from) ||
            (bytes_length(&own->message) && memcmp(own->hash, m->hash, PL_HASH_BYTES)));
}

static void drop_other_ends(struct broadcast *b)
{
    const struct cell *own = cell_of(b, b->stage, b->self);
    for (size_t i = 0; i < b->count; i++) {
        struct cell *c = cell_of(b, b->stage, i);
        /* Some may have come before our own was there to compare them with. */
        if (memcmp(c->hash, own->hash, PL_HASH_BYTES)) bytes_clear(&c->message);
    }
}

static void hear_proof(struct broadcast *b, const uint8_t *data, size_t n)
{
    size_t peer;
    /* Any peer may bring a proof: it is checked by itself, so its bearer does not matter. */
    if (!equivocation_check(&peer, &b->scope, data, n)) pass_proof(b, peer, data, n);
}

/* It differs from the message that we hold of that sender. */
static void hear_other(struct broadcast *b, const struct signed_message *m, const uint8_t *data)
{
    const struct cell *c = cell_of(b, m->stage, m->from);
    /* The signature decides: without it anybody could invent a second message to convict an
     * honest peer. */
    if (b->guilty[m->from] || !memcmp(c->hash, m->hash, PL_HASH_BYTES) ||
        signed_message_check(m, b->o.round, peer_of(b, m->from)))
        return;
    prove(b, m->from, bytes_at(&c->message), c->head, data, m->head_n);
}

/* A list that differs from ours: both sides show each other the messages that they received. */
static void compare_list(struct broadcast *b, int stage, size_t peer)
{
    const uint8_t *list = broadcast_body(b, list_of(b, stage), peer, NULL);
    for (size_t i = 0; i < b->count; i++) {
        const struct cell *c = cell_of(b, stage, i);
        /* Two lists differ where a sender has sent two peers different messages. Each side shows
         * the head that it holds, and the side that then has both heads has the proof. */
        if (!memcmp(list + i * PL_HASH_BYTES, c->hash, PL_HASH_BYTES)) continue;
        send_frame(b, peer, FRAME_HEAD, bytes_at(&c->message), c->head, NULL, 0);
    }
}

static void send_list(struct broadcast *b, int stage)
{
    struct bytes list = { 0 };
    for (size_t i = 0; i < b->count; i++)
        /* In the order of the group, so that equal lists are equal bytes. */
        bytes_add(&list, cell_of(b, stage, i)->hash, PL_HASH_BYTES);
    if (list.failed) b->failed = PL_ENOMEM;
    else send_own(b, list_of(b, stage), bytes_at(&list), bytes_length(&list));
    bytes_clear(&list);
    for (size_t i = 0; i < b->count; i++)
        if (i != b->self && has(b, list_of(b, stage), i)) compare_list(b, stage, i);
}

static void take_message(struct broadcast *b, double now, const struct signed_message *m,
                         const uint8_t *data, size_t n)
{
    /* The first valid message of a sender counts; a second, different one is a proof against it. */
    struct cell *c = cell_of(b, m->stage, m->from);
    int stage = is_list(b, m->stage) ? m->stage - b->o.rules->stages : m->stage;
    if (bytes_add(&c->message, data, n)) {
        b->failed = PL_ENOMEM;
        return;
    }
    memcpy(c->hash, m->hash, sizeof c->hash);
    c->head = m->head_n;
    /* Only messages of this stage count as progress; packets of other stages do not prolong it. */
    if (stage == b->stage) b->since = now;
    /* Peers that have asked for it in the meantime get it now. */
    if (m->to != SIGNED_TO_ALL) return;
    for (size_t p = 0; p < b->count; p++)
        if (b->need_stage[p] == stage &&
            b->needs[(2 * p + (size_t)is_list(b, m->stage)) * b->count + m->from])
            forward(b, m->stage, p, m->from);
    if (is_list(b, m->stage) && has(b, m->stage, b->self)) compare_list(b, stage, m->from);
}

/* Nothing longer than an honest message of the stage is ever stored. */
static int fits(const struct broadcast *b, int stage, size_t n)
{
    return is_list(b, stage) ? n == b->count * PL_HASH_BYTES : b->o.fits(b->o.context, stage, n);
}

/* 1: the message is for us, and may come from this peer at this time. */
static int may_come(const struct broadcast *b, double now, double limit, size_t peer,
                    const struct signed_message *m)
{
    /* The author is a place in the group, so a signature can be checked against that
     * member's key. */
    if (m->stage >= 2 * b->o.rules->stages || m->from >= b->count || m->from == b->self) return 0;
    /* Between two peers: only its author may bring it, and only to its receiver. */
    if (m->stage % b->o.rules->stages < b->o.rules->pairs)
        return !is_list(b, m->stage) && m->to == b->self && peer == m->from;
    /* Late in a stage the author's own word is not enough: forwarded by a third peer, the
     * message is known to reach the others too. So a peer gains nothing by sending to some
     * at the last moment. */
    return m->to == SIGNED_TO_ALL &&
           !(peer == m->from && limit > 0 && !b->is_patient &&
             m->stage % b->o.rules->stages == b->stage && now >= b->since + BROADCAST_LATE * limit);
}

static void hear_message(struct broadcast *b, double now, double limit, size_t peer,
                         const uint8_t *data, size_t n, int is_head)
{
    struct signed_message m;
    uint8_t hash[PL_HASH_BYTES];
    /* Cheap checks first: a signature costs 0.1 ms, and only a message that could be stored
     * is worth that. A head alone is never stored, only compared. */
    if (signed_message_read(&m, data, n) || !may_come(b, now, limit, peer, &m)) return;
    if (is_other_end(b, &m)) return;
    if (has(b, m.stage, m.from)) {
        hear_other(b, &m, data);
        return;
    }
    if (is_head || !fits(b, m.stage, m.n)) return;
    /* The signature covers the hash of the body, so both have to hold. */
    signed_hash(hash, m.body, m.n);
    if (memcmp(hash, m.hash, sizeof hash) ||
        signed_message_check(&m, b->o.round, peer_of(b, m.from)))
        return;
    take_message(b, now, &m, data, n);
}

static void hear_need(struct broadcast *b, size_t peer, const uint8_t *data, size_t n)
{
    int stage;
    /* One byte for each message and each list of the stage: 1, it is missing. */
    if (n != 1 + 2 * b->count || data[0] >= b->o.rules->stages) return;
    stage = data[0];
    if (stage < b->o.rules->pairs) {
        if (data[1 + b->self]) send_pair(b, peer);
        return;
    }
    /* Remembered, so that messages arriving here later are forwarded to that peer as well
     * (take_message). */
    b->need_stage[peer] = stage;
    memcpy(&b->needs[2 * peer * b->count], data + 1, 2 * b->count);
    for (size_t i = 0; i < b->count; i++) {
        if (data[1 + i]) forward(b, stage, peer, i);
        if (data[1 + b->count + i]) forward(b, list_of(b, stage), peer, i);
    }
}

void broadcast_hear(struct broadcast *b, double now, double limit, size_t peer, const uint8_t *data,
                    size_t n)
{
    struct cursor c = { data, n };
    const uint8_t *frame;
    uint32_t length;
    /* A frame that is cut short, or too short, ends the packet. */
    while (!b->failed && !get_be32(&c, &length) && length >= FRAME_START &&
           !get_bytes(&c, &frame, length)) {
        const uint8_t *at = frame + FRAME_START;
        /* The work that one peer can cause in a round is bounded, honest or not. */
        if (b->frames[peer]++ >= BROADCAST_FRAMES_MAX(b->o.rules->stages, b->count)) return;
        if (memcmp(frame + 1, b->o.round, PL_HASH_BYTES)) {
            /* This message belongs to another round under the same group ID: the leader may have
             * sent its followers different groups. It may not be the sender's fault, see
             * verifier_charge_silent. */
            b->elsewhere[peer] = 1;
            continue;
        }
        length -= FRAME_START;
        switch (frame[0]) {
        case FRAME_MESSAGE: hear_message(b, now, limit, peer, at, length, 0); break;
        /* A head never fills a cell; it only shows that another message exists. */
        case FRAME_HEAD: hear_message(b, now, limit, peer, at, length, 1); break;
        case FRAME_PROOF: hear_proof(b, at, length); break;
        case FRAME_NEED: hear_need(b, peer, at, length); break;
        default: break;
        }
    }
}

/* --- time ------------------------------------------------------------------------------------- */

static void send_need(struct broadcast *b)
{
    struct bytes need = { 0 };
    bytes_u8(&need, (uint8_t)b->stage);
    /* Of this stage alone: all earlier ones are complete. */
    for (size_t i = 0; i < b->count; i++) bytes_u8(&need, (uint8_t)!has(b, b->stage, i));
    for (size_t i = 0; i < b->count; i++)
        bytes_u8(&need, (uint8_t)!has(b, list_of(b, b->stage), i));
    if (need.failed) b->failed = PL_ENOMEM;
    else send_frame(b, SIZE_MAX, FRAME_NEED, bytes_at(&need), bytes_length(&need), NULL, 0);
    bytes_clear(&need);
}

void broadcast_tick(struct broadcast *b, double now, double every)
{
    if (b->stage < 0 || b->failed) return;
    /* The list is signed only when all messages are here: one list for each stage, never
     * two. */
    if (is_last(b, b->stage)) drop_other_ends(b);
    else if (b->stage >= b->o.rules->pairs && broadcast_is_full(b, b->stage) &&
             !has(b, list_of(b, b->stage), b->self))
        send_list(b, b->stage);
    if (every > 0 && now >= b->asked + every) {
        /* Every quarter of the limit, whatever else has come meanwhile. */
        b->asked = now;
        send_need(b);
    }
}
