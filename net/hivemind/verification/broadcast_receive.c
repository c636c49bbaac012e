/* broadcast_receive.c - a stage at one peer: what others send is taken once it is proven, lists are
 * compared, and what is missing is asked for. [BTARD 3.1] [Bracha 1987]
 *
 * Faults, and their handling:
 *
 *   a message is missing     after a quarter of the limit NEED goes to all; its holders forward it
 *   two lists differ         the heads of the messages in question are shown to each other
 *   two heads contradict     they are a proof of equivocation, which goes to all, once
 *   a peer sends to some     in the last quarter of the limit a message counts only if a third peer
 *   at the last moment       forwards it, so that it still reaches the others in time */
#include "broadcast_internal.h"

#include <string.h>

static const struct peer_id *peer_of(const struct broadcast *b, size_t i)
{
    return &b->o.group->members[i].peer;
}

/* A peer has equivocated: the proof goes to all, once. */
static void pass_proof(struct broadcast *b, size_t peer, const uint8_t *proof, size_t n)
{
    if (b->guilty[peer]) return;
    /* Each honest peer passes a proof on once, from any sender: so all have it, and it costs each
     * peer n packets. */
    b->guilty[peer] = 1;
    broadcast_frame(b, SIZE_MAX, FRAME_PROOF, proof, n);
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

static void receive_proof(struct broadcast *b, const uint8_t *data, size_t n)
{
    size_t peer;
    /* Any peer may bring a proof: it is checked by itself, so its bearer does not matter. */
    if (!equivocation_check(&peer, &b->scope, data, n)) pass_proof(b, peer, data, n);
}

/* It differs from the message that we hold of that sender. */
static void receive_other(struct broadcast *b, const struct signed_message *m, const uint8_t *data)
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
        broadcast_frame(b, peer, FRAME_HEAD, bytes_at(&c->message), c->head);
    }
}

static void send_list(struct broadcast *b, int stage)
{
    struct bytes list = { 0 };
    for (size_t i = 0; i < b->count; i++)
        /* In the order of the group, so that equal lists are equal bytes. */
        bytes_add(&list, cell_of(b, stage, i)->hash, PL_HASH_BYTES);
    if (list.failed) b->failed = PL_ENOMEM;
    else broadcast_send_own(b, list_of(b, stage), bytes_at(&list), bytes_length(&list));
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
            broadcast_forward(b, m->stage, p, m->from);
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

static void receive_message(struct broadcast *b, double now, double limit, size_t peer,
                            const uint8_t *data, size_t n, int is_head)
{
    struct signed_message m;
    uint8_t hash[PL_HASH_BYTES];
    /* Cheap checks first: a signature costs 0.1 ms, and only a message that could be stored
     * is worth that. A head alone is never stored, only compared. */
    if (signed_message_read(&m, data, n) || !may_come(b, now, limit, peer, &m)) return;
    if (is_other_end(b, &m)) return;
    if (has(b, m.stage, m.from)) {
        receive_other(b, &m, data);
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

static void receive_need(struct broadcast *b, size_t peer, const uint8_t *data, size_t n)
{
    int stage;
    /* One byte for each message and each list of the stage: 1, it is missing. */
    if (n != 1 + 2 * b->count || data[0] >= b->o.rules->stages) return;
    stage = data[0];
    if (stage < b->o.rules->pairs) {
        if (data[1 + b->self]) broadcast_repeat_pair(b, peer);
        return;
    }
    /* Remembered, so that messages arriving here later are forwarded to that peer as well
     * (take_message). */
    b->need_stage[peer] = stage;
    memcpy(&b->needs[2 * peer * b->count], data + 1, 2 * b->count);
    for (size_t i = 0; i < b->count; i++) {
        if (data[1 + i]) broadcast_forward(b, stage, peer, i);
        if (data[1 + b->count + i]) broadcast_forward(b, list_of(b, stage), peer, i);
    }
}

void broadcast_receive(struct broadcast *b, double now, double limit, size_t peer,
                       const uint8_t *data, size_t n)
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
        case FRAME_MESSAGE: receive_message(b, now, limit, peer, at, length, 0); break;
        /* A head never fills a cell; it only shows that another message exists. */
        case FRAME_HEAD: receive_message(b, now, limit, peer, at, length, 1); break;
        case FRAME_PROOF: receive_proof(b, at, length); break;
        case FRAME_NEED: receive_need(b, peer, at, length); break;
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
    else broadcast_frame(b, SIZE_MAX, FRAME_NEED, bytes_at(&need), bytes_length(&need));
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
