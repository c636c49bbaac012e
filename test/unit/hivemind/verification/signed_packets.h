/* signed_packets.h - makes a Byzantine peer's packets for a round's verification: its own messages
 * with another body, signed again. */
#ifndef PL_TEST_SIGNED_PACKETS_H
#define PL_TEST_SIGNED_PACKETS_H

#include "net/hivemind/verification/verifier_internal.h"
#include "test/unit/unit.h"

/* A message's fate on its way to one receiver. */
enum fate {
    SAME,
    CHANGED, /* the same for all receivers: its sender keeps to it */
    SPLIT,   /* for this receiver; its sender goes on with the first version */
    DROPPED
};
/* Changes a body in place, or shortens it. r is its sender's; the list of stage s is of stage
 * VERIFIER_PHASES + s. Called for each receiver with the original body. */
typedef enum fate lie_fn(const struct verifier *r, size_t to, int stage, uint8_t *body, size_t *n);

static inline void put_frame(struct bytes *out, const uint8_t *frame, const uint8_t *data, size_t n)
{
    bytes_be32(out, (uint32_t)(FRAME_START + n));
    bytes_add(out, frame, FRAME_START);
    assert_int_equal(bytes_add(out, data, n), PL_OK);
}

/* The sender's own message of a stage becomes this one. */
static inline void keep_to(struct broadcast *b, const struct signed_message *m,
                           const struct bytes *message)
{
    struct cell *c = &b->cell[m->stage * b->count + b->self];
    bytes_clear(&c->message);
    assert_int_equal(bytes_add(&c->message, bytes_at(message), bytes_length(message)), PL_OK);
    memcpy(c->hash, m->hash, sizeof c->hash);
    c->head = bytes_length(message) - m->n;
}

static inline void rewrite_message(struct verifier *r, size_t to, lie_fn *lie, struct bytes *out,
                                   const uint8_t *frame, const struct signed_message *was)
{
    struct signed_message m = *was;
    struct bytes message = { 0 };
    size_t n = was->n, self = r->v.self;
    uint8_t *body = malloc(n + 1);
    enum fate fate;
    assert_non_null(body);
    memcpy(body, was->body, n);
    fate = lie(r, to, was->stage, body, &n);
    if (fate == SAME &&
        was->stage >= VERIFIER_PHASES) { /* a list has to hold what it has kept to */
        const uint8_t *own = r->b.cell[(was->stage - VERIFIER_PHASES) * r->v.count + self].hash;
        if (memcmp(body + self * PL_HASH_BYTES, own, PL_HASH_BYTES)) fate = CHANGED;
        memcpy(body + self * PL_HASH_BYTES, own, PL_HASH_BYTES);
    }
    m.body = body;
    m.n = n;
    assert_int_equal(signed_message_write(&message, &m, r->v.me, r->b.o.round), PL_OK);
    if (fate == CHANGED && was->to == SIGNED_TO_ALL) keep_to(&r->b, &m, &message);
    if (fate != DROPPED) put_frame(out, frame, bytes_at(&message), bytes_length(&message));
    bytes_clear(&message);
    free(body);
}

/* Appends the packet to a peer, with what the sender has written itself changed. */
static inline void rewrite_packet(struct bytes *out, struct verifier *r, size_t to, lie_fn *lie,
                                  const uint8_t *data, size_t data_n)
{
    struct cursor c = { data, data_n };
    const uint8_t *frame;
    uint32_t n;
    while (!get_be32(&c, &n) && !get_bytes(&c, &frame, n)) {
        struct signed_message m;
        const uint8_t *at = frame + FRAME_START;
        n -= FRAME_START;
        if (frame[0] == FRAME_MESSAGE && !signed_message_read(&m, at, n) && m.from == r->v.self)
            rewrite_message(r, to, lie, out, frame, &m);
        else put_frame(out, frame, at, n);
    }
}

#endif
