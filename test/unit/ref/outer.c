/* outer.c - laws that hold for every algorithm of training together: what is equal stays equal,
 * what is saved goes on, what is broken costs its sender alone, and what is sent has the size that
 * the formula says.
 * One long file: every law is put to every algorithm of one table. */
#include "ref/outer/algorithms.h"
#include "ref/outer/e3m0.h"
#include "ref/outer/pairing.h"
#include "ref/outer/sparse.h"
#include "ref/rng.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
    int broken;         /* what a message of peer 1 becomes */
    double bytes;       /* of peer 0 */
    int spoiled[PEERS]; /* this peer's next gradient has a NaN */
};
enum { WHOLE, SILENT, SHORTER, NOT_A_NUMBER, RANDOM, TOO_FAR };

static struct pl_outer_setup settings(void)
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

static void begin(struct world *w, const struct pl_outer_algorithm *algorithm,
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

static void end(struct world *w)
{
    for (int k = 0; k < w->peers; k++) pl_outer_close(w->o[k]);
    for (int q = 0; q < QUEUE; q++)
        for (int k = 0; k < PEERS; k++) free(w->body[q][k]);
}

/* The last index of the first tensor leaves its chunk, or the parameters. */
static void point_too_far(const struct world *w, struct pl_outer_message *m)
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

static void spoil(struct world *w, struct pl_outer_message *m)
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

/* What a transport does: copies, and brings all of them, or NoLoCo's groups. */
static int send_all(struct world *w)
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

static int receive_all(struct world *w)
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

/* Inner SGD towards each peer's own target. */
static int advance(struct world *w, int next, const int *at)
{
    if (next == PL_OUTER_STEP)
        for (int k = 0; k < w->peers; k++) {
            if (at && at[k] != PL_OUTER_STEP) continue;
            for (int i = 0; i < VALUES; i++) w->x[k][i] -= 0.1f * w->g[k][i];
        }
    return next;
}

/* One gradient of all peers, and everything that follows it. */
static void step(struct world *w)
{
    int next[PEERS], common = PL_OUTER_GRADIENT;
    double rate = w->algorithm == &pl_outer_onebit_adam ? 0.03 : 0.1;
    for (int k = 0; k < w->peers; k++) {
        for (int i = 0; i < VALUES; i++) w->g[k][i] = w->x[k][i] - w->target[k][i];
        if (w->spoiled[k]) w->g[k][3] = NAN;
        w->spoiled[k] = 0;
        next[k] = pl_outer_before_step(w->o[k], w->x[k], w->g[k], rate);
        assert_true(next[k] >= 0);
        if (next[k] == PL_OUTER_STEP) {
            for (int i = 0; i < VALUES; i++) w->x[k][i] -= 0.1f * w->g[k][i];
            next[k] = pl_outer_after_step(w->o[k], w->x[k]);
        }
        common = next[k];
    }
    while (common != PL_OUTER_GRADIENT) {
        if (common == PL_OUTER_SEND) common = send_all(w);
        else if (common == PL_OUTER_RECEIVE) common = receive_all(w);
        if (advance(w, common, NULL) == PL_OUTER_STEP)
            for (int k = 0; k < w->peers; k++) common = pl_outer_after_step(w->o[k], w->x[k]);
    }
}

static double distance(const struct world *w, int k)
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
static int keeps_peers_equal(const struct pl_outer_algorithm *a)
{
    return a != &pl_outer_eager && a != &pl_outer_noloco && a != &pl_outer_partial;
}

static const float *common_part(const struct world *w, int k)
{
    const float *phi = pl_outer_get(w->o[k], "phi");
    return phi ? phi : w->x[k];
}

static int all_equal(const struct world *w)
{
    for (int k = 1; k < w->peers; k++)
        if (memcmp(common_part(w, 0), common_part(w, k), sizeof w->x[0])) return 0;
    return 1;
}

static int all_finite(const struct world *w)
{
    double sum = 0;
    for (int k = 0; k < w->peers; k++)
        for (int i = 0; i < VALUES; i++)
            sum += fabs((double)w->x[k][i]) + fabs((double)common_part(w, k)[i]);
    return isfinite(sum);
}

/* --- laws of all ------------------------------------------------------------------------------ */

static void each_comes_nearer_and_stays_together(void **state)
{
    (void)state;
    for (int a = 0; pl_outer_at(a); a++) {
        struct pl_outer_setup s = settings();
        static struct world w;
        double before;
        s.warm_up = 10; /* while gradients are large: v stays as it is then */
        begin(&w, pl_outer_at(a), &s);
        before = distance(&w, 0);
        for (int t = 0; t < 240; t++) step(&w);
        if (distance(&w, 0) > 0.6 * before)
            fail_msg("%s: %g of %g", w.algorithm->name, distance(&w, 0), before);
        if (keeps_peers_equal(w.algorithm) && !all_equal(&w)) fail_msg("%s", w.algorithm->name);
        end(&w);
    }
}

static void the_formula_is_what_travels(void **state)
{
    (void)state;
    for (int coding = PL_OUTER_FLOAT32; coding <= PL_OUTER_E3M0; coding++)
        for (int a = 0; pl_outer_at(a); a++) {
            struct pl_outer_setup s = settings();
            static struct world w;
            double per_step, sent;
            s.coding = coding;
            begin(&w, pl_outer_at(a), &s);
            for (int t = 0; t < 20; t++) step(&w); /* past the warm-up */
            sent = w.bytes;
            for (int t = 0; t < 20; t++) step(&w); /* five parts of partial averaging, H = 4 */
            per_step = pl_outer_bytes_per_step(w.o[0]);
            sent = (w.bytes - sent) * (w.algorithm == &pl_outer_noloco ? s.group - 1 : 1);
            if (fabs(sent - 20 * per_step) > 1e-9 * sent)
                fail_msg("%s: %g bytes, not %g", w.algorithm->name, sent, 20 * per_step);
            assert_true(w.algorithm->bytes[0] && w.algorithm->summary[0]);
            end(&w);
        }
}

/* Saved after 11 steps, in the midst of a round, and continued by new objects: bit for bit. */
static void a_saved_state_goes_on(void **state)
{
    (void)state;
    for (int a = 0; pl_outer_at(a); a++) {
        struct pl_outer_setup s = settings();
        static struct world w, v;
        begin(&w, pl_outer_at(a), &s);
        begin(&v, pl_outer_at(a), &s);
        for (int t = 0; t < 11; t++) step(&w);
        for (int k = 0; k < PEERS; k++) {
            size_t bytes = pl_outer_state_bytes(w.o[k]);
            uint8_t *saved = malloc(bytes);
            struct pl_err err;
            assert_int_equal(pl_outer_save(w.o[k], saved), PL_OK);
            assert_int_equal(pl_outer_load(v.o[k], saved, bytes - 1, &err), PL_EFORMAT);
            assert_int_equal(pl_outer_load(v.o[k], saved, bytes, &err), PL_OK);
            saved[0] ^= 1;
            assert_int_equal(pl_outer_load(v.o[k], saved, bytes, &err), PL_EFORMAT);
            free(saved);
        }
        memcpy(v.x, w.x, sizeof v.x);
        v.head = w.head; /* what is in flight is the transport's */
        v.tail = w.tail;
        for (int q = 0; q < QUEUE; q++)
            for (int k = 0; k < PEERS; k++) {
                v.queue[q][k] = w.queue[q][k];
                if (!w.body[q][k]) continue;
                v.queue[q][k].data = v.body[q][k] = malloc(w.queue[q][k].bytes);
                memcpy(v.body[q][k], w.body[q][k], w.queue[q][k].bytes);
            }
        for (int t = 0; t < 30; t++) {
            step(&w);
            step(&v);
        }
        if (memcmp(w.x, v.x, sizeof w.x)) fail_msg("%s goes on otherwise", w.algorithm->name);
        end(&w);
        end(&v);
    }
}

/* A NaN in a gradient reaches neither parameters nor state, of nobody; peers stay equal. */
static void a_nan_goes_nowhere(void **state)
{
    (void)state;
    for (int a = 0; pl_outer_at(a); a++) {
        struct pl_outer_setup s = settings();
        static struct world w;
        begin(&w, pl_outer_at(a), &s);
        for (int t = 0; t < 40; t++) {
            w.spoiled[2] = t % 3 == 1;
            w.spoiled[0] = t % 8 == 4;
            step(&w);
        }
        for (int k = 0; k < PEERS; k++)
            for (int b = 0; b < w.o[k]->buffers; b++) {
                const struct pl_outer_buffer *buffer = &w.o[k]->buffer[b];
                const float *v = buffer->at;
                if (buffer->on_host) continue; /* doubles, indices */
                for (size_t i = 0; i < buffer->bytes / sizeof *v; i++)
                    if (!isfinite(v[i])) fail_msg("%s %s", w.algorithm->name, buffer->name);
            }
        if (!all_finite(&w)) fail_msg("%s", w.algorithm->name);
        if (keeps_peers_equal(w.algorithm) && !all_equal(&w)) fail_msg("%s", w.algorithm->name);
        end(&w);
    }
}

/* A NaN in a peer's parameters, from its inner optimizer, costs that peer one round. */
static void nan_parameters_last_one_round(void **state)
{
    static const struct pl_outer_algorithm *const local[] = {
        &pl_outer_local_sgd, &pl_outer_diloco,           &pl_outer_streaming,  &pl_outer_delayed,
        &pl_outer_eager,     &pl_outer_delayed_nesterov, &pl_outer_sparseloco, &pl_outer_noloco,
    };
    (void)state;
    for (size_t a = 0; a < PL_COUNT(local); a++) {
        struct pl_outer_setup s = settings();
        static struct world w;
        for (int failed = 0; failed <= 3; failed += 3) { /* of the exchanges after it, too */
            begin(&w, local[a], &s);
            w.fail = failed;
            for (int t = 0; t < 24; t++) {
                if (t == 9) w.x[1][0] = w.x[1][VALUES - 1] = NAN;
                step(&w);
                /* local_sgd, diloco: starts again from phi, even if the exchange has failed */
                if (t == 11 && a < 2) assert_true(isfinite(w.x[1][0]));
            }
            if (!all_finite(&w)) fail_msg("%s", w.algorithm->name);
            if (keeps_peers_equal(w.algorithm) && !all_equal(&w)) fail_msg("%s", w.algorithm->name);
            end(&w);
        }
    }
}

/* Random bytes that can be told from a message: indices do not ascend. */
static int has_indices(const struct pl_outer_algorithm *a)
{
    return a == &pl_outer_demo || a == &pl_outer_dgc || a == &pl_outer_sparseloco;
}

/* A broken message counts as none: all is as if its sender had been silent. Random bytes may be
 * values like others, where they stand for values: then the program must only not fail. */
static void a_broken_message_costs_its_sender(void **state)
{
    (void)state;
    for (int a = 0; pl_outer_at(a); a++) {
        struct pl_outer_setup s = settings();
        static struct world silent, w;
        s.coding = a % 2 ? PL_OUTER_FLOAT32 : PL_OUTER_E3M0;
        begin(&silent, pl_outer_at(a), &s);
        silent.broken = SILENT;
        for (int t = 0; t < 24; t++) step(&silent);
        for (int broken = SHORTER; broken <= (has_indices(pl_outer_at(a)) ? TOO_FAR : RANDOM);
             broken++) {
            begin(&w, pl_outer_at(a), &s);
            w.broken = broken;
            for (int t = 0; t < 24; t++) step(&w);
            if ((broken != RANDOM || has_indices(w.algorithm)) &&
                (!all_finite(&w) || memcmp(w.x, silent.x, sizeof w.x)))
                fail_msg("%s with %d", w.algorithm->name, broken);
            end(&w);
        }
        end(&silent);
    }
}

/* In 8 bits and in E3M0 as well: all use the mean as its bytes say it. */
static void few_bits_keep_peers_equal(void **state)
{
    static const struct pl_outer_algorithm *const vectors[] = {
        &pl_outer_gradients, &pl_outer_diloco, &pl_outer_streaming, &pl_outer_delayed_nesterov
    };
    (void)state;
    for (int coding = PL_OUTER_UNIFORM8; coding <= PL_OUTER_E3M0; coding++)
        for (size_t a = 0; a < PL_COUNT(vectors); a++) {
            struct pl_outer_setup s = settings();
            static struct world w;
            double before;
            s.coding = coding;
            begin(&w, vectors[a], &s);
            before = distance(&w, 0);
            for (int t = 0; t < 200; t++) step(&w);
            if (!all_equal(&w) || distance(&w, 0) > 0.7 * before)
                fail_msg("%s: %g of %g", vectors[a]->name, distance(&w, 0), before);
            end(&w);
        }
}

/* Where numbers are not small differences, they travel whole, whatever the coding. */
static void parameters_are_not_rounded(void **state)
{
    static const struct pl_outer_algorithm *const whole[] = { &pl_outer_noloco, &pl_outer_partial,
                                                              &pl_outer_onebit_adam,
                                                              &pl_outer_sparseloco };
    (void)state;
    for (size_t a = 0; a < PL_COUNT(whole); a++) {
        struct pl_outer_setup s = settings();
        static struct world plain, coded;
        begin(&plain, whole[a], &s);
        s.coding = PL_OUTER_E3M0;
        begin(&coded, whole[a], &s);
        for (int t = 0; t < 20; t++) {
            step(&plain);
            step(&coded);
        }
        if (memcmp(plain.x, coded.x, sizeof plain.x)) fail_msg("%s", whole[a]->name);
        end(&plain);
        end(&coded);
    }
}

/* The others' mean is of three gradients; the spoilt one is not a zero among four. */
static void a_skipped_gradient_has_no_weight(void **state)
{
    struct pl_outer_setup s = settings();
    static struct world w;
    float before[VALUES];
    (void)state;
    begin(&w, &pl_outer_gradients, &s);
    memcpy(before, w.x[0], sizeof before);
    w.spoiled[2] = 1;
    step(&w);
    for (int i = 0; i < VALUES; i++) {
        double mean = 0;
        for (int k = 0; k < PEERS; k++)
            if (k != 2) mean += (before[i] - w.target[k][i]) / (double)(PEERS - 1);
        assert_true(fabs(w.x[2][i] - (before[i] - 0.1 * mean)) < 1e-6);
    }
    end(&w);
    /* and with local steps the inner optimizer is not asked at all */
    begin(&w, &pl_outer_diloco, &s);
    w.g[0][0] = INFINITY;
    assert_int_equal(pl_outer_before_step(w.o[0], w.x[0], w.g[0], 0.1), PL_OUTER_GRADIENT);
    end(&w);
    /* PowerSGD: a peer that gave nothing owes nothing */
    begin(&w, &pl_outer_powersgd, &s);
    w.spoiled[2] = 1;
    step(&w);
    for (int i = 0; i < VALUES; i++) assert_true(pl_outer_get(w.o[2], "memory")[i] == 0);
    end(&w);
}

/* The first exchange fails: what was taken to be sent is back where it was. */
static void a_failed_exchange_loses_nothing(void **state)
{
    struct pl_outer_setup s = settings();
    static struct world w;
    const double *kept;
    (void)state;
    s.warm_up = 0;
    begin(&w, &pl_outer_dgc, &s);
    w.fail = 1;
    step(&w);
    kept = (const double *)(const void *)pl_outer_get(w.o[1], "accumulated");
    for (int i = 1; i < VALUES; i++) /* the clipped gradient: all by the same factor */
        assert_true(fabs(kept[i] * w.g[1][0] - kept[0] * w.g[1][i]) < 1e-5);
    end(&w);
    begin(&w, &pl_outer_onebit_adam, &s);
    w.fail = 1;
    step(&w);
    kept = (const double *)(const void *)pl_outer_get(w.o[1], "worker error");
    for (int i = 0; i < VALUES; i++)
        assert_true(fabs(kept[i] - (1 - s.adam.beta1) * w.g[1][i]) < 1e-6);
    end(&w);
    for (int failed = 1; failed <= 2; failed++) { /* phase P, phase Q */
        begin(&w, &pl_outer_powersgd, &s);
        w.fail = failed;
        step(&w);
        for (int i = 0; i < VALUES; i++)
            assert_true(fabsf(pl_outer_get(w.o[1], "memory")[i]) < 1e-6f);
        end(&w);
    }
}

/* Peer 1 trains before a failed exchange, then only skips: its next message still has weight 1,
 * because its work was not received; the one after has not. Peer 2 trains after both only. */
static void steps_before_a_failed_exchange_have_weight(void **state)
{
    static const struct pl_outer_algorithm *const local[] = { &pl_outer_local_sgd, &pl_outer_diloco,
                                                              &pl_outer_delayed_nesterov,
                                                              &pl_outer_sparseloco };
    (void)state;
    for (size_t a = 0; a < PL_COUNT(local); a++) {
        struct pl_outer_setup s = settings();
        static struct world w;
        begin(&w, local[a], &s);
        w.fail = 1;
        for (int t = 0; t < 3 * s.H; t++) {
            w.spoiled[1] = t >= s.H;
            w.spoiled[2] = t < 2 * s.H;
            step(&w);
        }
        if (w.queue[0][1].weight != 1 || w.queue[0][2].weight != 0 || w.queue[1][1].weight != 1 ||
            w.queue[1][2].weight != 0 || w.queue[2][1].weight != 0 || w.queue[2][2].weight != 1)
            fail_msg("%s", w.algorithm->name);
        assert_true(all_equal(&w) && all_finite(&w));
        end(&w);
    }
}

/* After a failed exchange a peer has what it trained: its next message is as if the two periods had
 * been one. */
static void a_failed_exchange_keeps_local_work(void **state)
{
    static const struct pl_outer_algorithm *const local[] = { &pl_outer_local_sgd, &pl_outer_diloco,
                                                              &pl_outer_delayed_nesterov,
                                                              &pl_outer_sparseloco };
    (void)state;
    for (size_t a = 0; a < PL_COUNT(local); a++) {
        struct pl_outer_setup s = settings(), longer = settings();
        static struct world failed, whole;
        double difference = 0;
        longer.H = 2 * s.H;
        begin(&failed, local[a], &s);
        begin(&whole, local[a], &longer);
        failed.fail = 1;
        for (int t = 0; t < longer.H; t++) {
            step(&failed);
            step(&whole);
            for (int i = 0; t + 1 == s.H && i < VALUES; i++) /* the exchange has failed */
                if (failed.x[1][i] != whole.x[1][i]) fail_msg("%s: x", local[a]->name);
        }
        for (int i = 0; i < VALUES; i++) difference += fabs((double)failed.x[1][i] - whole.x[1][i]);
        if (!(difference < 1e-3)) fail_msg("%s: %g", local[a]->name, difference);
        end(&failed);
        end(&whole);
    }
}

/* Delayed Nesterov: a change that did not count is kept, and counts with the next message. */
static void a_lost_change_is_sent_again(void **state)
{
    struct pl_outer_setup s = settings();
    static struct world w;
    static float trained[VALUES];
    (void)state;
    begin(&w, &pl_outer_delayed_nesterov, &s);
    for (int t = 0; t < 2 * s.H; t++) {
        w.broken = t < s.H ? SILENT : WHOLE; /* peer 1's */
        w.spoiled[1] = t >= s.H;
        for (int i = 0; t + 1 == s.H && i < VALUES; i++)
            trained[i] = w.x[1][i] - 0.1f * (w.x[1][i] - w.target[1][i]);
        step(&w);
        if (t + 1 == s.H) assert_memory_equal(w.x[1], trained, sizeof trained);
    }
    assert_true(w.queue[1][1].weight == 1);
    assert_memory_equal(w.x[1], pl_outer_get(w.o[1], "start"), sizeof trained);
    assert_true(all_equal(&w));
    end(&w);
}

/* SparseLoCo: a message that only its sender has is not lost, while the others' round goes on. */
static void a_lost_message_stays_in_the_error(void **state)
{
    struct pl_outer_setup s = settings();
    static struct world w;
    static float delta[VALUES];
    const float *e;
    (void)state;
    begin(&w, &pl_outer_sparseloco, &s);
    w.broken = SILENT; /* peer 1's, on its way */
    for (int t = 0; t < s.H; t++) {
        if (t + 1 == s.H) /* the last inner step, as step() will take it */
            for (int i = 0; i < VALUES; i++)
                delta[i] = pl_outer_get(w.o[1], "phi")[i] -
                           (w.x[1][i] - 0.1f * (w.x[1][i] - w.target[1][i]));
        step(&w);
    }
    e = pl_outer_get(w.o[1], "error");
    for (int i = 0; i < VALUES; i++) assert_true(fabsf(e[i] - delta[i]) < 1e-5f);
    assert_memory_equal(w.x[1], pl_outer_get(w.o[1], "phi"), sizeof w.x[1]);
    end(&w);
}

/* After a round of zeros PowerSGD's Q is zero, and is drawn anew. */
static void powersgd_comes_back_from_zeros(void **state)
{
    struct pl_outer_setup s = settings();
    static struct world w;
    double before;
    (void)state;
    begin(&w, &pl_outer_powersgd, &s);
    for (int k = 0; k < PEERS; k++) memcpy(w.target[k], w.x[0], sizeof w.target[k]);
    step(&w);
    for (int k = 0; k < PEERS; k++)
        for (int i = 0; i < VALUES; i++) w.target[k][i] += 1;
    before = distance(&w, 0);
    for (int t = 0; t < 60; t++) step(&w);
    assert_true(distance(&w, 0) < 0.2 * before);
    assert_true(all_equal(&w));
    end(&w);
}

static void a_failed_exchange_leaves_all_equal(void **state)
{
    (void)state;
    for (int failed = 1; failed <= 4; failed++)
        for (int a = 0; pl_outer_at(a); a++) {
            struct pl_outer_setup s = settings();
            static struct world w;
            begin(&w, pl_outer_at(a), &s);
            w.fail = failed;
            for (int t = 0; t < 40; t++) step(&w);
            if (!all_finite(&w) || (keeps_peers_equal(w.algorithm) && !all_equal(&w)))
                fail_msg("%s after exchange %d", w.algorithm->name, failed);
            end(&w);
        }
}

static void settings_without_sense_are_refused(void **state)
{
    struct pl_outer_setup s = settings();
    static float x[VALUES];
    struct pl_outer *o;
    struct pl_err err;
    (void)state;
    for (int a = 0; pl_outer_at(a); a++) {
        assert_ptr_equal(pl_outer_find(pl_outer_at(a)->name), pl_outer_at(a));
        s.H = 0;
        assert_int_equal(pl_outer_open(&o, pl_outer_at(a), &s, x, &err), PL_EUSE);
        assert_null(o);
        s = settings();
        s.rank = PEERS;
        assert_int_equal(pl_outer_open(&o, pl_outer_at(a), &s, x, &err), PL_EUSE);
        s = settings();
    }
    s.fragments = 3; /* of 4 steps */
    assert_int_equal(pl_outer_open(&o, &pl_outer_streaming, &s, x, &err), PL_EUSE);
    s.fragments = 2;
    s.tau = 2; /* as long as from one fragment to the next */
    assert_int_equal(pl_outer_open(&o, &pl_outer_streaming, &s, x, &err), PL_EUSE);
    s.chunk = 65; /* 12 bits do not number its entries */
    assert_int_equal(pl_outer_open(&o, &pl_outer_demo, &s, x, &err), PL_EUSE);
    assert_int_equal(pl_outer_open(&o, &pl_outer_sparseloco, &s, x, &err), PL_EUSE);
    s.group = PEERS + 1;
    assert_int_equal(pl_outer_open(&o, &pl_outer_noloco, &s, x, &err), PL_EUSE);
    s.share = 0;
    assert_int_equal(pl_outer_open(&o, &pl_outer_partial, &s, x, &err), PL_EUSE);
    assert_int_equal(pl_outer_open(&o, &pl_outer_dgc, &s, x, &err), PL_EUSE);
    assert_null(pl_outer_find("none"));
}

/* --- laws of some ----------------------------------------------------------------------------- */

/* H = 1, mu = 0, nu = 1 is the mean of the parameters. */
static void diloco_can_be_the_mean(void **state)
{
    struct pl_outer_setup s = settings();
    static struct world w;
    (void)state;
    s.H = 1;
    s.mu = 0;
    s.nu = 1;
    begin(&w, &pl_outer_diloco, &s);
    for (int t = 0; t < 10; t++) {
        float mean[VALUES];
        for (int i = 0; i < VALUES; i++) {
            double sum = 0;
            for (int k = 0; k < PEERS; k++) /* of what SGD will make of them */
                sum += w.x[k][i] - 0.1 * (w.x[k][i] - w.target[k][i]);
            mean[i] = (float)(sum / PEERS);
        }
        step(&w);
        for (int i = 0; i < VALUES; i++) assert_true(fabsf(w.x[3][i] - mean[i]) < 1e-6f);
    }
    end(&w);
}

/* H = 1 with SGD of rate eta inside is Nesterov SGD of rate nu eta. */
static void one_step_is_nesterov(void **state)
{
    struct pl_outer_setup s = settings();
    static struct world w;
    double x[VALUES], b[VALUES] = { 0 };
    (void)state;
    s.H = 1;
    begin(&w, &pl_outer_diloco, &s);
    for (int i = 0; i < VALUES; i++) x[i] = w.x[0][i];
    for (int t = 0; t < 20; t++) {
        for (int i = 0; i < VALUES; i++) {
            double g = 0;
            for (int k = 0; k < PEERS; k++) g += (x[i] - w.target[k][i]) / PEERS;
            b[i] = s.mu * b[i] + g;
            x[i] -= s.nu * 0.1 * (g + s.mu * b[i]);
        }
        step(&w);
        for (int i = 0; i < VALUES; i++) assert_true(fabs(w.x[1][i] - x[i]) < 1e-5);
    }
    end(&w);
}

/* The specification's vector, in float32. */
static void nesterov_as_torch_has_it(void **state)
{
    const float g[5] = { 0.1f, 0.2f, -0.05f, 0, 0.3f };
    const double phi[5] = { 0.867, 0.5443, 0.44637, 0.326733, -0.1799403 };
    const double b[5] = { 0.1, 0.29, 0.211, 0.1899, 0.47091 };
    float x = 1, m = 0;
    (void)state;
    for (int t = 0; t < 5; t++) {
        ref_outer_nesterov(&x, &m, &g[t], 1, 0.9f, 0.7f);
        assert_true(fabs(x - phi[t]) < 1e-6 && fabs(m - b[t]) < 1e-6);
    }
}

/* torchft's fixtures: two fragments of one value, start 1, each inner step -2, rate 2 outside. */
static void streaming_is_torchfts(void **state)
{
    static const struct {
        int tau;
        double alpha;
        float x[2][16];
    } rows[] = {
        { 0,
          0,
          { { 1, -1, -3, -11, -13, -15, -17, -19, -21, -35, -37, -39, -41, -43, -45, -59 },
            { 1, -1, -3, -5, -7, -9, -23, -25, -27, -29, -31, -33, -47, -49, -51, -53 } } },
        { 0,
          0.5,
          { { 1, -1, -3, -8, -10, -12, -14, -16, -18, -24.5f, -26.5f, -28.5f, -30.5f, -32.5f,
              -34.5f, -40.25f },
            { 1, -1, -3, -5, -7, -9, -17, -19, -21, -23, -25, -27, -32, -34, -36, -38 } } },
        { 1,
          0,
          { { 1, -1, -3, -7, -9, -11, -13, -15, -17, -27, -29, -31, -33, -35, -37, -47 },
            { 1, -1, -3, -5, -7, -9, -19, -21, -23, -25, -27, -29, -39, -41, -43, -45 } } },
        { 1,
          0.5,
          { { 1, -1, -3, -6, -8, -10, -12, -14, -16, -21.5f, -23.5f, -25.5f, -27.5f, -29.5f, -31.5f,
              -35.75f },
            { 1, -1, -3, -5, -7, -9, -15, -17, -19, -21, -23, -25, -29, -31, -33, -35 } } },
        { 1,
          1,
          { { 1, -1, -3, -5, -7, -9, -11, -13, -15, -17, -19, -21, -23, -25, -27, -29 },
            { 1, -1, -3, -5, -7, -9, -11, -13, -15, -17, -19, -21, -23, -25, -27, -29 } } },
    };
    const struct pl_outer_tensor two[2] = {
        { .offset = 0, .n = 1, .axes = 1, .shape = { 1 } },
        { .offset = 1, .n = 1, .axes = 1, .shape = { 1 }, .fragment = 1 }
    };
    (void)state;
    for (size_t r = 0; r < PL_COUNT(rows); r++) {
        struct pl_outer_setup s = settings();
        struct pl_outer *o;
        struct pl_outer_message m = { NULL, 0, 0, 0 };
        uint8_t kept[8];
        float x[2] = { 1, 1 }, g[2] = { 2, 2 };
        s.tensors = two;
        s.count = 2;
        s.peers = 1;
        s.H = 6;
        s.mu = 0;
        s.nu = 2;
        s.tau = rows[r].tau;
        s.alpha = rows[r].alpha;
        assert_int_equal(pl_outer_open(&o, &pl_outer_streaming, &s, x, NULL), PL_OK);
        for (int t = 1; t < 16; t++) {
            int next;
            assert_int_equal(pl_outer_before_step(o, x, g, 1), PL_OUTER_STEP);
            x[0] -= 2;
            x[1] -= 2;
            next = pl_outer_after_step(o, x);
            while (next != PL_OUTER_GRADIENT) {
                if (next == PL_OUTER_SEND) {
                    next = pl_outer_message(o, &m, x, g);
                    memcpy(kept, m.data, m.bytes);
                    m.data = kept;
                } else next = pl_outer_apply(o, x, g, &m, 1);
            }
            assert_true(x[0] == rows[r].x[0][t] && x[1] == rows[r].x[1][t]);
        }
        pl_outer_close(o);
    }
}

/* What is not sent is kept, and does not grow: |e| <= largest change / (1 - beta). */
static void residuals_stay_bounded(void **state)
{
    struct pl_outer_setup s = settings();
    static struct world w;
    double largest = 0;
    (void)state;
    s.beta = 0.9;
    begin(&w, &pl_outer_sparseloco, &s);
    for (int t = 0; t < 400; t++) {
        double e = 0;
        const float *phi = pl_outer_get(w.o[0], "phi"), *error = pl_outer_get(w.o[0], "error");
        float before[VALUES];
        memcpy(before, phi, sizeof before);
        step(&w);
        if (t % 4 == 2) { /* one step before the exchange: three of four steps of the change */
            double delta = 0;
            for (int i = 0; i < VALUES; i++) delta += (phi[i] - w.x[0][i]) * (phi[i] - w.x[0][i]);
            largest = fmax(largest, 2 * sqrt(delta));
        }
        for (int i = 0; i < VALUES; i++) e += (double)error[i] * error[i];
        assert_true(sqrt(e) <= largest / (1 - s.beta) + 1e-6);
    }
    end(&w);
}

/* A peer's published 20-bit form, out of order, with a bad index, and with one twice. */
static void published_form_is_read(void **state)
{
    const int32_t index[4] = { 9, 2, 4, 1 };
    const float table[4] = { -1, 0, 0.5f, 2 };
    const uint8_t codes[4] = { 3, 0, 2, 0 };
    uint8_t packed[6];
    int32_t at[4];
    float value[4];
    (void)state;
    assert_int_equal(pl_pack12(packed, index, 4), PL_OK);
    assert_int_equal(pl_sparse_read_published(at, value, packed, codes, table, 4, 0.25f, 4, 16, 4),
                     PL_OK);
    assert_true(at[0] == 1 && at[1] == 2 && at[2] == 4 && at[3] == 9);
    assert_true(value[0] == -0.75f && value[1] == -0.75f && value[2] == 0.75f && value[3] == 2.25f);
    assert_int_equal(pl_sparse_read_published(at, value, packed, codes, table, 4, 0, 4, 9, 4),
                     PL_EPROTO);
    assert_int_equal(pl_sparse_read_published(at, value, packed, codes, table, 3, 0, 4, 16, 4),
                     PL_EPROTO);
    pl_pack12(packed, (const int32_t[4]){ 1, 2, 2, 3 }, 4);
    assert_int_equal(pl_sparse_read_published(at, value, packed, codes, table, 4, 0, 4, 16, 4),
                     PL_EPROTO);
}

/* 64 of 4096 entries in 14 bits: 146 times fewer than float32, but for a tensor's 16 bytes. */
static void sparseloco_sends_a_146th(void **state)
{
    const struct pl_outer_tensor big = { .n = 1024 * 1024, .axes = 2, .shape = { 1024, 1024 } };
    struct pl_outer_setup s = settings();
    float *x = pl_alloc(big.n, sizeof *x);
    struct pl_outer *o;
    (void)state;
    s.tensors = &big;
    s.count = 1;
    s.topk = 64;
    s.chunk = 64;
    s.H = 1;
    assert_int_equal(pl_outer_open(&o, &pl_outer_sparseloco, &s, x, NULL), PL_OK);
    assert_true(pl_outer_bytes_per_step(o) == 16 + 16384 * 14 / 8);
    assert_int_equal((int)(4.0 * (double)big.n / (pl_outer_bytes_per_step(o) - 16)), 146);
    pl_outer_close(o);
    pl_free(x);
}

/* Each value is within a third of itself, down to a 64th of the largest; codes say themselves. */
static void e3m0_keeps_sizes(void **state)
{
    enum { M = 1000 };
    static float x[M], y[M], z[M];
    static uint8_t bytes[M];
    struct pl_rng rng;
    float largest = 0;
    (void)state;
    pl_rng_init(&rng, 3, 0);
    for (int i = 0; i < M; i++) {
        x[i] = (float)pl_rng_normal(&rng);
        largest = fmaxf(largest, fabsf(x[i]));
    }
    ref_e3m0_encode(bytes, x, M, 2048);
    ref_e3m0_decode(y, bytes, M, 2048);
    for (int i = 0; i < M; i++)
        if (fabsf(x[i]) > largest / 64)
            assert_true(fabsf(y[i] - x[i]) <= fabsf(x[i]) / 3 * 1.0001f);
    ref_e3m0_encode(bytes, y, M, 2048);
    ref_e3m0_decode(z, bytes, M, 2048);
    assert_memory_equal(y, z, sizeof y);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_comes_nearer_and_stays_together),
        cmocka_unit_test(the_formula_is_what_travels),
        cmocka_unit_test(a_saved_state_goes_on),
        cmocka_unit_test(a_nan_goes_nowhere),
        cmocka_unit_test(nan_parameters_last_one_round),
        cmocka_unit_test(a_broken_message_costs_its_sender),
        cmocka_unit_test(few_bits_keep_peers_equal),
        cmocka_unit_test(parameters_are_not_rounded),
        cmocka_unit_test(a_skipped_gradient_has_no_weight),
        cmocka_unit_test(a_failed_exchange_loses_nothing),
        cmocka_unit_test(steps_before_a_failed_exchange_have_weight),
        cmocka_unit_test(a_failed_exchange_keeps_local_work),
        cmocka_unit_test(a_lost_change_is_sent_again),
        cmocka_unit_test(a_lost_message_stays_in_the_error),
        cmocka_unit_test(powersgd_comes_back_from_zeros),
        cmocka_unit_test(a_failed_exchange_leaves_all_equal),
        cmocka_unit_test(settings_without_sense_are_refused),
        cmocka_unit_test(diloco_can_be_the_mean),
        cmocka_unit_test(one_step_is_nesterov),
        cmocka_unit_test(nesterov_as_torch_has_it),
        cmocka_unit_test(streaming_is_torchfts),
        cmocka_unit_test(residuals_stay_bounded),
        cmocka_unit_test(published_form_is_read),
        cmocka_unit_test(sparseloco_sends_a_146th),
        cmocka_unit_test(e3m0_keeps_sizes),
    };
    pl_backend_ref(&be);
    return cmocka_run_group_tests_name("outer", tests, NULL, NULL);
}
