/* gather_reference.h - what ref/outer makes of two peers' gradients in one process, with the messages
 * in a given order: after each common step, or after each inner step where exchanges overlap with
 * them. Included by gather_world.h. */
#ifndef PL_TEST_GATHER_REFERENCE_H
#define PL_TEST_GATHER_REFERENCE_H

#include "test/unit/unit.h"
#include "ref/outer/settings.h"

#define W 64
#define B 64 /* as buffers are aligned: no gap is between tensors */
#define N (W + B)
#define INNER 4
#define EPOCHS 4
#define EPOCHS_MAX 24 /* where a peer comes back in between */
#define SAMPLES 8     /* of a batch, and of an inner step */
#define RATE 0.125f
#define STEPS_MAX (EPOCHS_MAX * INNER + INNER)
#define LIMIT 120.0 /* s */

struct algorithm {
    const char *name, *settings;
    int is_different; /* peers are not equal by its rules */
};

static void first_values(float x[N])
{
    for (int i = 0; i < N; i++) x[i] = (i < B ? -1.0f : 1.0f) + 0.01f * (float)(i * 37 % 23);
}

/* Noisy enough that no two entries of a chunk are equal. */
static void gradient_at(int peer, const float *x, float *g, int n, int from)
{
    for (int i = 0; i < n; i++)
        g[i] = 0.3f * x[i] - 0.011f * (float)((from + i) * (29 + 2 * peer) % 31) +
               0.02f * (float)peer;
}

/* One process in place of the peers. */
struct world {
    struct pl_outer *o[2];
    float x[2][N], g[2][N];
    int R, is_reversed;
};

/* Each peer is number 0 to its own algorithm, as over the network. */
static int apply(struct world *w, int r, const struct pl_outer_message *m, int count)
{
    struct pl_outer_message in[2];
    struct pl_outer *o = w->o[r];
    for (int i = 0; i < count; i++) {
        const int from = w->is_reversed ? count - 1 - i : i;
        in[i] = m[from];
        in[i].rank = from == r || count == 1 ? 0 : i + 1;
    }
    if (strcmp(o->algorithm->name, "onebit_adam") && o->algorithm->exchange != PL_OUTER_GROUP)
        o->setup.peers = count;
    return pl_outer_apply(o, w->x[r], w->g[r], in, count);
}

static void one_round(struct world *w)
{
    struct pl_outer_message m[2];
    uint8_t *kept[2];
    for (int r = 0; r < w->R; r++) {
        int next = PL_OUTER_GRADIENT;
        while (next != PL_OUTER_SEND) {
            gradient_at(r, w->x[r], w->g[r], B, 0);
            gradient_at(r, w->x[r] + B, w->g[r] + B, W, B);
            next = pl_outer_before_step(w->o[r], w->x[r], w->g[r], RATE);
            if (next != PL_OUTER_STEP) continue;
            for (int i = 0; i < N; i++) w->x[r][i] -= RATE * w->g[r][i];
            next = pl_outer_after_step(w->o[r], w->x[r]);
        }
        assert_int_equal(pl_outer_message(w->o[r], &m[r], w->x[r], w->g[r]), PL_OUTER_RECEIVE);
        kept[r] = malloc(m[r].bytes);
        m[r].data = memcpy(kept[r], m[r].data, m[r].bytes);
    }
    for (int r = 0; r < w->R; r++) {
        int next = apply(w, r, m, w->R);
        if (next == PL_OUTER_SEND) { /* 1-bit Adam's server */
            struct pl_outer_message own;
            assert_int_equal(pl_outer_message(w->o[r], &own, w->x[r], w->g[r]), PL_OUTER_RECEIVE);
            next = pl_outer_apply(w->o[r], w->x[r], w->g[r], &own, 1);
        }
        assert_int_equal(next, PL_OUTER_GRADIENT);
    }
    for (int r = 0; r < w->R; r++) free(kept[r]);
}

static void open_world(struct world *w, const struct algorithm *a)
{
    struct pl_outer_tensor tensors[] = { { 0, B, 1, { B }, 0 }, { B, W, 2, { 8, 8 }, 0 } };
    const struct pl_outer_algorithm *algorithm = pl_outer_find(a->name);
    static struct pl_backend be;
    struct pl_outer_setup s;
    pl_backend_ref(&be);
    pl_outer_defaults(&s);
    assert_int_equal(pl_outer_set_all(&s, a->settings, NULL), PL_OK);
    s.be = &be;
    s.tensors = tensors;
    s.count = 2;
    s.H = algorithm->sends_gradients ? 1 : INNER;
    if (algorithm->exchange == PL_OUTER_GROUP) s.peers = s.group;
    pl_outer_cut(tensors, 2, s.fragments);
    for (int r = 0; r < w->R; r++) {
        first_values(w->x[r]);
        assert_int_equal(pl_outer_open(&w->o[r], algorithm, &s, w->x[r], NULL), PL_OK);
    }
}

static void reference(const struct algorithm *a, int R, int is_reversed, float x[EPOCHS + 1][2][N])
{
    struct world w = { .R = R, .is_reversed = is_reversed };
    open_world(&w, a);
    memcpy(x[0], w.x, sizeof w.x);
    for (int t = 1; t <= EPOCHS; t++) {
        one_round(&w);
        memcpy(x[t], w.x, sizeof w.x);
    }
    for (int r = 0; r < R; r++) pl_outer_close(w.o[r]);
}

/* The same step by step, where exchanges overlap: each peer receives the exchange that it has not
 * applied yet. at[s]: x after s inner steps. */
struct exchanges {
    struct pl_outer_message m[STEPS_MAX][2];
    int sent[2], applied[2];
    int lost[2]; /* of each peer, from its first on: they have failed, for that peer alone */
};

static int receive(struct world *w, struct exchanges *e, int r)
{
    const int k = e->applied[r]++ - e->lost[r];
    struct pl_outer_message m[2];
    if (k < 0) return pl_outer_apply(w->o[r], w->x[r], w->g[r], NULL, 0);
    for (int i = 0; i < w->R; i++) {
        assert_true(k + e->lost[i] < e->sent[i]);
        m[i] = e->m[k + e->lost[i]][i];
    }
    return apply(w, r, m, w->R);
}

static void one_step(struct world *w, struct exchanges *e, int r)
{
    struct pl_outer_message *m;
    int next;
    gradient_at(r, w->x[r], w->g[r], B, 0);
    gradient_at(r, w->x[r] + B, w->g[r] + B, W, B);
    next = pl_outer_before_step(w->o[r], w->x[r], w->g[r], RATE);
    while (next != PL_OUTER_GRADIENT) switch (next) {
        case PL_OUTER_STEP:
            for (int i = 0; i < N; i++) w->x[r][i] -= RATE * w->g[r][i];
            next = pl_outer_after_step(w->o[r], w->x[r]);
            break;
        case PL_OUTER_SEND:
            m = &e->m[e->sent[r]++][r];
            next = pl_outer_message(w->o[r], m, w->x[r], w->g[r]);
            m->data = memcpy(malloc(m->bytes), m->data, m->bytes);
            break;
        case PL_OUTER_RECEIVE: next = receive(w, e, r); break;
        default: fail();
        }
}

static void overlapped_reference(const struct algorithm *a, int R, int is_reversed,
                                 float at[STEPS_MAX + 1][2][N])
{
    struct exchanges e = { .sent = { 0 } };
    struct world w = { .R = R, .is_reversed = is_reversed };
    open_world(&w, a);
    for (int s = 1; s <= STEPS_MAX; s++) {
        for (int r = 0; r < R; r++) one_step(&w, &e, r);
        memcpy(at[s], w.x, sizeof w.x);
    }
    for (int k = 0; k < STEPS_MAX; k++)
        for (int r = 0; r < R; r++) free(e.m[k][r].data);
    for (int r = 0; r < R; r++) pl_outer_close(w.o[r]);
}

#endif
