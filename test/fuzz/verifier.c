/* verifier.c - BTARD's verification among three peers. The last one is Byzantine: it signs wrong
 * bodies, different ones for each receiver too, drops messages, and sends arbitrary bytes.
 * Without changes the round has to succeed. The two honest peers never ban each other. Both apply
 * the round or neither does; both ban the third peer or neither does, although their rounds end at
 * different times. Every round ends, whatever is sent.
 *
 * The input: records of five bytes. Each is one change: the stage, the receiver, the offset, the
 * new value. */
#include "net/hivemind/verification/equivocation_log.h"
#include "net/hivemind/verification/verifier.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PEERS 3
#define PARTS 4
#define LENGTH 5
#define CHANGE 5
#define CUT 0x80  /* of the last byte: the body ends there */
#define DROP 0x40 /* it does not come */
#define LIMIT 8.0 /* s */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct pl_part parts[PARTS] = { { .reducer = 0, .length = LENGTH },
                                             { .tensor = 1, .reducer = 1, .length = LENGTH },
                                             { .tensor = 2, .reducer = 2, .length = LENGTH },
                                             { .tensor = 3, .reducer = 2, .length = 1 } };
static const float values[PARTS][LENGTH] = { { 1, -2, 3, 0, 5 }, { 0 }, { 1e20f, 1, 2 }, { 4 } };

/* All peers have sent the same values, so the mean equals them. */
static const float *aggregate(void *context, size_t part, double *tau)
{
    (void)context;
    *tau = 1;
    return values[part];
}
static int travelled(size_t part, struct bytes *out)
{
    assert(!bytes_add(out, values[part], parts[part].length * sizeof **values));
    return 1;
}
static int sent(void *context, size_t part, struct bytes *out)
{
    return (void)context, travelled(part, out);
}
static int received(void *context, size_t part, size_t peer, struct bytes *out)
{
    return (void)context, (void)peer, travelled(part, out);
}
static const float *decode(void *context, size_t part, const uint8_t *data, size_t n, float *buffer)
{
    (void)context;
    if (n != parts[part].length * sizeof *buffer) return NULL;
    memcpy(buffer, data, n);
    return buffer;
}

static const float *travel(void *context, size_t part, const float *x, float *buffer)
{
    return (void)context, memcpy(buffer, x, parts[part].length * sizeof *buffer);
}

/* The third cannot tell. */
static int recompute(void *context, size_t peer, const struct verifier_claim *claim,
                     float *const **tensor)
{
    static float copy[PARTS][LENGTH], *const tensors[PARTS] = { copy[0], copy[1], copy[2],
                                                                copy[3] };
    (void)peer, (void)claim;
    memcpy(copy, values, sizeof copy);
    *tensor = tensors;
    return context ? PL_OK : PL_ENOTFOUND;
}

static struct identity keys[PEERS];
static struct group groups[PEERS];

static void make_groups(void)
{
    static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    for (size_t i = 0; i < PEERS; i++) assert(!identity_make(&keys[i], KEY_ED25519, NULL));
    for (size_t i = 0; i < PEERS; i++) {
        groups[i].self = i;
        memset(groups[i].id, 7, DHT_ID_BYTES);
        for (size_t k = 0; k < PEERS; k++)
            assert(!group_add(&groups[i], &keys[k].id, gather, sizeof gather, NULL));
    }
}

/* A message that the Byzantine peer signs, with the changes for its receiver. 1: there are some. */
static int change(struct bytes *out, const struct verifier *from, size_t to, const uint8_t *frame,
                  size_t frame_n, const uint8_t *changes, size_t n)
{
    struct signed_message m;
    struct bytes signed_ = { 0 };
    int changed = 0, dropped = 0;
    uint8_t *body;
    assert(!signed_message_read(&m, frame + FRAME_START, frame_n - FRAME_START));
    body = malloc(m.n + 1);
    assert(body);
    memcpy(body, m.body, m.n);
    for (; m.from == from->v.self && n >= CHANGE; changes += CHANGE, n -= CHANGE) {
        size_t at = (size_t)changes[1] << 8 | changes[2];
        if (changes[0] % (2 * VERIFIER_PHASES) != m.stage || (changes[4] & 3) == to || !m.n)
            continue;
        if (changes[4] & DROP) dropped = 1;
        else if (changes[4] & CUT) m.n = at % m.n;
        else body[at % m.n] ^= changes[3];
        changed = 1;
    }
    m.body = body;
    assert(!signed_message_write(&signed_, &m, &keys[from->v.self], from->b.o.round));
    if (!dropped) {
        bytes_be32(out, (uint32_t)(FRAME_START + bytes_length(&signed_)));
        bytes_add(out, frame, FRAME_START);
        assert(!bytes_add(out, bytes_at(&signed_), bytes_length(&signed_)));
    }
    bytes_clear(&signed_);
    free(body);
    return changed;
}

struct peer {
    struct verifier *r;
    struct equivocation_log log; /* hears what comes when the round is over, too */
    int is_convicted[PEERS];
};

static void convicted(void *context, const struct logged_round *round, size_t peer,
                      const uint8_t *packet, size_t n)
{
    struct peer *p = context;
    (void)round, (void)packet, (void)n;
    p->is_convicted[peer] = 1;
}

static int bans(const struct peer *p, size_t peer)
{
    return p->r->banned[peer] || p->is_convicted[peer];
}

/* 1 if anything was changed. */
static int deliver(struct peer *to_peer, const struct verifier *from, const struct packet *p,
                   const uint8_t *changes, size_t n)
{
    struct verifier *to = to_peer->r;
    struct cursor c = { bytes_at(&p->data), bytes_length(&p->data) };
    struct bytes out = { 0 };
    uint8_t *copy;
    const uint8_t *frame;
    uint32_t frame_n;
    int changed = 0;
    while (!get_be32(&c, &frame_n) && !get_bytes(&c, &frame, frame_n)) {
        if (from->v.self == PEERS - 1 && frame[0] == FRAME_MESSAGE) {
            changed |= change(&out, from, to->v.self, frame, frame_n, changes, n);
        } else {
            bytes_be32(&out, frame_n);
            bytes_add(&out, frame, frame_n);
        }
    }
    copy = malloc(bytes_length(&out) + 1); /* its end is where a reader beyond it is seen */
    assert(copy && !out.failed);
    memcpy(copy, bytes_at(&out), bytes_length(&out));
    copy = realloc(copy, bytes_length(&out) + !bytes_length(&out));
    if (!to->over) verifier_receive(to, from->v.self, copy, bytes_length(&out));
    equivocation_log_receive(&to_peer->log, 0, &keys[from->v.self].id, copy, bytes_length(&out),
                             convicted, to_peer);
    free(copy);
    bytes_clear(&out);
    return changed;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct peer peers[PEERS];
    struct verifier *r[PEERS];
    int changed = 0;
    double now = 0;
    if (!groups[0].count) make_groups();
    memset(peers, 0, sizeof peers);
    for (size_t i = 0; i < PEERS; i++) {
        struct verifier_view v = { .group = &groups[i],
                                   .me = &keys[i],
                                   .count = PEERS,
                                   .self = i,
                                   .parts = parts,
                                   .limit = LIMIT,
                                   .part_count = PARTS,
                                   .aggregate = aggregate,
                                   .sent = sent,
                                   .received = received,
                                   .decode = decode,
                                   .travel = travel,
                                   .recompute = recompute,
                                   .claim = { .samples = 1 },
                                   .validators = 1,
                                   .context = i < 2 ? &r[i] : NULL };
        assert(!verifier_open(&r[i], &v, NULL));
        peers[i].r = r[i];
        assert(
            !equivocation_log_add(&peers[i].log, 0, &verifier_rules, &groups[i], r[i]->b.o.round));
    }
    verifier_receive(r[0], 1, data, n); /* bytes that are not a packet have no effect */
    for (; now < 40 * LIMIT && !(r[0]->over && r[1]->over); now += LIMIT / 4)
        for (int busy = 1; busy;) {
            busy = 0;
            for (size_t i = 0; i < PEERS; i++) {
                if (now < verifier_wake(r[i])) continue;
                busy = 1;
                verifier_take(r[i], now);
                verifier_step(r[i]);
                verifier_stepped(r[i], now);
                for (struct packet *p = r[i]->b.out; p; p = p->next)
                    for (size_t to = 0; to < PEERS; to++)
                        if (to != i && (p->to == to || p->to == SIZE_MAX))
                            changed |= deliver(&peers[to], r[i], p, data, n);
                broadcast_sent(&r[i]->b);
            }
        }
    /* Where a gradient may be computed, only the exchange's own time limit ends it. */
    for (size_t i = 0; i < 2; i++) assert(r[i]->over || verifier_is_slow(r[i]));
    for (size_t i = 0; i < 2; i++) assert(!bans(&peers[i], 0) && !bans(&peers[i], 1));
    assert(bans(&peers[0], 2) == bans(&peers[1], 2));
    assert(!(r[0]->over && r[1]->over) || !r[0]->status == !r[1]->status);
    assert(changed || (r[0]->over && !r[0]->status));
    for (size_t i = 0; i < PEERS; i++) {
        equivocation_log_clear(&peers[i].log);
        verifier_close(r[i]);
    }
    return 0;
}
