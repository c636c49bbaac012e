/* outer_world.h - peers that train towards targets of their own, by any algorithm, over a transport
 * that loses, delays and spoils messages. */
#ifndef PL_TEST_OUTER_WORLD_H
#define PL_TEST_OUTER_WORLD_H

#include "ref/outer/algorithms.h"
#include "ref/outer/pairing.h"
#include "ref/rng.h"
#include "test/unit/unit.h"

#include <math.h>

#define PEERS 4
#define QUEUE 8
#define VALUES (20 * 12 + 9 + 7 * 4)

static struct pl_backend be;
/* a matrix, a vector, and a matrix with a prime side */
static const struct pl_outer_tensor tensors[3] = {
    { .offset = 0, .n = 240, .axes = 2, .shape = { 20, 12 }, .fragment = 0 },
    { .offset = 240, .n = 9, .axes = 1, .shape = { 9 }, .fragment = 1 },
    { .offset = 249, .n = 28, .axes = 2, .shape = { 7, 4 }, .fragment = 1 },
};

struct world {
    const struct pl_outer_algorithm *algorithm;
    struct pl_outer_setup setup;
    struct pl_outer *o[PEERS];
    float x[PEERS][VALUES], g[PEERS][VALUES], target[PEERS][VALUES];
    struct pl_outer_message queue[QUEUE][PEERS];
    uint8_t *body[QUEUE][PEERS];
    int head, tail, peers;
    int fail;           /* the exchange of this number (from 1) fails */
    int broken;         /* the fault of peer 1's messages */
    double bytes;       /* of peer 0 */
    int spoiled[PEERS]; /* this peer's next gradient has a NaN */
};
enum { WHOLE, SILENT, SHORTER, NOT_A_NUMBER, RANDOM, TOO_FAR };

static inline struct pl_outer_setup settings(void)
{
    struct pl_outer_setup s;
    pl_outer_defaults(&s);
    s.be = &be;
    s.tensors = tensors;
    s.count = 3;
    s.peers = PEERS;
    s.H = 4;
    s.fragments = 2;
    s.tau = 1;
    s.topk = 6;
    s.chunk = 8;
    s.share = 0.2;
    s.powersgd_rank = 2;
    s.warm_up = 3;
    s.nu = 0.4;
    s.gamma = 0.5;
    s.N = PEERS; /* 1 is plain asynchronous Nesterov, which diverges here, too */
    s.limit = 10;
    s.adam.beta2 = 0.9; /* v is known after a few steps */
    return s;
}

static inline void begin(struct world *w, const struct pl_outer_algorithm *algorithm,
                         const struct pl_outer_setup *setup)
{
    struct pl_rng rng;
    memset(w, 0, sizeof *w);
    w->algorithm = algorithm;
    w->setup = *setup;
    w->peers = setup->peers;
    pl_rng_init(&rng, 5, 0);
    for (int i = 0; i < VALUES; i++) w->x[0][i] = (float)pl_rng_normal(&rng);
    for (int k = 0; k < w->peers; k++) {
        struct pl_outer_setup own = *setup;
        own.rank = k;
        memcpy(w->x[k], w->x[0], sizeof w->x[k]);
        for (int i = 0; i < VALUES; i++) w->target[k][i] = (float)pl_rng_normal(&rng);
        assert_int_equal(pl_outer_open(&w->o[k], algorithm, &own, w->x[k], NULL), PL_OK);
    }
}

static inline void end(struct world *w)
{
    for (int k = 0; k < w->peers; k++) pl_outer_close(w->o[k]);
    for (int q = 0; q < QUEUE; q++)
        for (int k = 0; k < PEERS; k++) free(w->body[q][k]);
}

/* The last index of the first tensor leaves its chunk, or the parameters. */
static inline void point_too_far(const struct world *w, struct pl_outer_message *m)
{
    const uint32_t beyond = VALUES;
    uint8_t *last = m->data + 71; /* of 48 indices in 12 bits */
    if (w->algorithm == &pl_outer_dgc) memcpy(m->data + m->bytes / 2 - 4, &beyond, 4);
    else {
        if (w->algorithm == &pl_outer_sparseloco) last += 16;
        last[0] = 0xff;
        last[-1] |= 0xf0;
    }
}

static inline void spoil(struct world *w, struct pl_outer_message *m)
{
    const float nan = NAN;
    struct pl_rng rng;
    pl_rng_init(&rng, (uint64_t)w->tail, 9);
    if (w->broken == SILENT) m->weight = 0;
    if (w->broken == SHORTER) m->bytes--;
    if (w->broken == NOT_A_NUMBER)
        for (size_t i = 0; i + 4 <= m->bytes; i += 4) memcpy(m->data + i, &nan, 4);
    if (w->broken == TOO_FAR) point_too_far(w, m);
    if (w->broken == RANDOM)
        for (size_t i = 0; i < m->bytes; i++) m->data[i] = (uint8_t)pl_rng_u64(&rng);
}

/* A transport: copies all messages and delivers them to all, or to NoLoCo's groups. */
static inline int send_all(struct world *w)
{
    int q = w->tail++ % QUEUE, next = 0;
    for (int k = 0; k < w->peers; k++) {
        struct pl_outer_message m;
        next = pl_outer_message(w->o[k], &m, w->x[k], w->g[k]);
        assert_true(next >= 0);
        if (!k) w->bytes += (double)m.bytes;
        free(w->body[q][k]);
        w->body[q][k] = malloc(m.bytes + 1);
        memcpy(w->body[q][k], m.data, m.bytes);
        m.data = w->body[q][k];
        if (k == 1) spoil(w, &m);
        w->queue[q][k] = m;
    }
    return next;
}

static inline int receive_all(struct world *w)
{
    struct pl_outer_message *set = w->queue[w->head % QUEUE], group[PEERS];
    int failed = ++w->head == w->fail, next = 0, member[PEERS + 1];
    for (int k = 0; k < w->peers; k++) {
        int count = w->peers;
        memcpy(group, set, sizeof group);
        if (w->algorithm->exchange == PL_OUTER_GROUP) {
            count = pl_noloco_group(member, k, w->peers, w->setup.group,
                                    w->o[k]->counter[PL_OUTER_STEPS]);
            for (int i = 0; i < count; i++) group[i] = set[member[i]];
        }
        next = pl_outer_apply(w->o[k], w->x[k], w->g[k], group, failed ? 0 : count);
        assert_true(next >= 0);
    }
    return next;
}

/* Inner SGD towards the peer's own target. */
static inline int inner_step(struct world *w, int k)
{
    for (int i = 0; i < VALUES; i++) w->x[k][i] -= 0.1f * w->g[k][i];
    return pl_outer_after_step(w->o[k], w->x[k]);
}

/* One gradient of all peers, and everything that follows it. */
static inline void step(struct world *w)
{
    int next[PEERS], common = PL_OUTER_GRADIENT;
    double rate = w->algorithm == &pl_outer_onebit_adam ? 0.03 : 0.1;
    for (int k = 0; k < w->peers; k++) {
        for (int i = 0; i < VALUES; i++) w->g[k][i] = w->x[k][i] - w->target[k][i];
        if (w->spoiled[k]) w->g[k][3] = NAN;
        w->spoiled[k] = 0;
        next[k] = pl_outer_before_step(w->o[k], w->x[k], w->g[k], rate);
        assert_true(next[k] >= 0);
        if (next[k] == PL_OUTER_STEP) next[k] = inner_step(w, k);
        common = next[k];
    }
    while (common != PL_OUTER_GRADIENT) {
        if (common == PL_OUTER_SEND) common = send_all(w);
        else if (common == PL_OUTER_RECEIVE) common = receive_all(w);
        if (common == PL_OUTER_STEP)
            for (int k = 0; k < w->peers; k++) common = inner_step(w, k);
    }
}

static inline double distance(const struct world *w, int k)
{
    double sum = 0;
    for (int i = 0; i < VALUES; i++) {
        double mean = 0;
        for (int j = 0; j < w->peers; j++) mean += w->target[j][i] / (double)w->peers;
        sum += (w->x[k][i] - mean) * (w->x[k][i] - mean);
    }
    return sqrt(sum);
}

/* Peers whose phi is their own: eager, gossip, partial averaging. Streaming's mixes are. */
static inline int keeps_peers_equal(const struct pl_outer_algorithm *a)
{
    return a != &pl_outer_eager && a != &pl_outer_noloco && a != &pl_outer_partial;
}

static inline const float *common_part(const struct world *w, int k)
{
    const float *phi = pl_outer_get(w->o[k], "phi");
    return phi ? phi : w->x[k];
}

static inline int all_equal(const struct world *w)
{
    for (int k = 1; k < w->peers; k++)
        if (memcmp(common_part(w, 0), common_part(w, k), sizeof w->x[0])) return 0;
    return 1;
}

static inline int all_finite(const struct world *w)
{
    double sum = 0;
    for (int k = 0; k < w->peers; k++)
        for (int i = 0; i < VALUES; i++)
            sum += fabs((double)w->x[k][i]) + fabs((double)common_part(w, k)[i]);
    return isfinite(sum);
}

#endif
