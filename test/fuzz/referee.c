/* referee.c - BTARD's verification among three, of whom some say something else than they should:
 * honest messages with bytes changed on their way, and any bytes at all. Where nothing is changed
 * the round has to hold; nobody bans itself; and it ends, whatever is said.
 *
 * The input: records of five bytes, a change each: whose message and of which phase, where, what,
 * to whom. */
#include "../../net/hivemind/referee.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#define PEERS 3
#define PARTS 4
#define LENGTH 5
#define CHANGE 5
#define CUT 0x80 /* of the last byte: the message ends there */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const uint8_t group_id[DHT_ID_BYTES] = { 7 };
static const struct pl_part parts[PARTS] = {
    { .owner = 0, .length = LENGTH }, { .tensor = 1, .owner = 1, .length = LENGTH },
    { .tensor = 2, .owner = 2, .length = LENGTH }, { .tensor = 3, .owner = 2, .length = 1 }
};
static const float values[PARTS][LENGTH] = { { 1, -2, 3, 0, 5 }, { 0 }, { 1e20f, 1, 2 }, { 4 } };

/* Everybody has sent what the mean has come to. */
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
static const float *decode(void *context, size_t part, const uint8_t *data, size_t n, float *room)
{
    (void)context;
    if (n != parts[part].length * sizeof *room) return NULL;
    memcpy(room, data, n);
    return room;
}

static const float *travel(void *context, size_t part, const float *x, float *room)
{
    return (void)context, memcpy(room, x, parts[part].length * sizeof *room);
}

/* The third cannot tell. */
static int recompute(void *context, size_t peer, const struct referee_claim *claim,
                     float *const **tensor)
{
    static float copy[PARTS][LENGTH], *const tensors[PARTS] = { copy[0], copy[1], copy[2], copy[3] };
    (void)peer, (void)claim;
    memcpy(copy, values, sizeof copy);
    *tensor = tensors;
    return context ? PL_OK : PL_ENOTFOUND;
}

/* A message on its way; 1 if it was changed. */
static int deliver(struct referee *to, size_t from, int phase, const struct bytes *m,
                   const uint8_t *changes, size_t n)
{
    size_t length = bytes_length(m);
    uint8_t *copy = malloc(length + 1); /* its end is where a reader beyond it is seen */
    int changed = 0;
    assert(copy);
    memcpy(copy, bytes_at(m), length);
    for (; n >= CHANGE; changes += CHANGE, n -= CHANGE) {
        size_t at = (size_t)changes[1] << 8 | changes[2];
        if (changes[0] % PEERS != from || changes[0] / PEERS % REFEREE_PHASES != phase ||
            (changes[4] & 3) == to->v.self || !length)
            continue;
        if (changes[4] & CUT) length = at % length;
        else copy[at % length] ^= changes[3];
        changed = 1;
    }
    copy = realloc(copy, length + !length);
    referee_hear(to, from, copy, length);
    free(copy);
    return changed;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct referee *r[PEERS];
    int changed, busy = 1;
    for (size_t i = 0; i < PEERS; i++) {
        struct referee_view v = { .group_id = group_id, .count = PEERS, .self = i, .parts = parts,
                                  .part_count = PARTS, .aggregate = aggregate, .sent = sent,
                                  .received = received, .decode = decode, .travel = travel,
                                  .recompute = recompute,
                                  .claim = { .samples = 1 }, .validators = 1,
                                  .context = i < 2 ? &r[i] : NULL };
        assert(!referee_open(&r[i], &v, NULL));
    }
    changed = !referee_hear(r[0], 1, data, n);
    while (busy) {
        busy = 0;
        for (size_t i = 0; i < PEERS; i++) {
            if (!referee_is_ready(r[i])) continue;
            referee_step(r[i]);
            busy = 1;
            if (r[i]->over) continue;
            for (size_t to = 0; to < PEERS; to++)
                if (to != i)
                    changed |= deliver(r[to], i, r[i]->phase - 1, referee_own(r[i]), data, n);
        }
    }
    for (size_t i = 0; i < PEERS; i++) {
        assert(!r[i]->banned[i]);
        assert(changed || (r[i]->over && !r[i]->status));
        referee_close(r[i]);
    }
    return 0;
}
