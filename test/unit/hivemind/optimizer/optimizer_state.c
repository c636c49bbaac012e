/* optimizer_state.c - LAMB's state with 8-bit moments, as it is given and taken: every bit of it
 * among peers with the same table of codes; by value from a peer with another one. The real peers'
 * turn is test/interop/dalle.py. */
#include "net/hivemind/optimizer/optimizer_state.h"
#include "ref/backend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define N 5000 /* two blocks, the last one short */
/* Of the snapshot's tensors: the parameter, then its leaves in the alphabet's order. */
enum { VALUE, ABSMAX1, ABSMAX2, QMAP1, QMAP2, STATE1, STATE2, TENSORS = STATE2 + 4 };
enum { A_ABSMAX1, A_ABSMAX2, A_STATE1, A_STATE2 }; /* of the optimizer's arrays */

static struct pl_backend be;
static struct side {
    struct pl_optimizer *optimizer;
    struct optimizer_state state;
    float value[N], grad[N];
} from, to;

static void open_side(struct side *s)
{
    const struct pl_optimizer_tensor tensor = { 0, N, 0.045, NULL, 0 };
    const struct pl_wire_type type = { .dtype = PL_F32, .dims = 2, .size = { 50, 100 } };
    struct pl_optimizer_options lamb = pl_lamb_options();
    struct pl_err err;
    lamb.min_8bit = 4096;
    for (size_t i = 0; i < N; i++) s->value[i] = cosf((float)i);
    assert_int_equal(pl_optimizer_open(&s->optimizer, &be, &lamb, &tensor, 1, &err), PL_OK);
    assert_int_equal(optimizer_state_open(&s->state, s->optimizer, &lamb, &be, &tensor, &type, 1,
                                          &err),
                     PL_OK);
}

static int open_both(void **state)
{
    (void)state;
    pl_backend_ref(&be);
    open_side(&from);
    open_side(&to);
    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < N; i++) from.grad[i] = i % 7 ? sinf((float)(i * i)) : 0;
        assert_int_equal(pl_optimizer_step(from.optimizer, from.value, from.grad, 0.01), PL_OK);
    }
    return 0;
}

static int close_both(void **state)
{
    (void)state;
    optimizer_state_close(&from.state);
    optimizer_state_close(&to.state);
    pl_optimizer_close(from.optimizer);
    pl_optimizer_close(to.optimizer);
    return 0;
}

/* Gives a newcomer all messages of a snapshot. */
static void carry(struct state_load *l, struct state_snapshot *s)
{
    struct state_source source = { .metadata = s->metadata,
                                   .metadata_n = s->metadata_n,
                                   .tensors = s->tensors,
                                   .count = s->count };
    struct bytes message = { 0 };
    struct pl_err err;
    memset(l, 0, sizeof *l);
    while (!state_source_next(&source, &message, &be, NULL)) {
        assert_int_equal(state_load_add(l, bytes_at(&message), bytes_length(&message), &err),
                         PL_OK);
        bytes_clear(&message);
    }
    assert_int_equal(state_load_finish(l, &err), PL_OK);
    state_source_clear(&source);
}

static struct state_snapshot *snapshot(void)
{
    struct state_snapshot *s = optimizer_state_snapshot(&from.state, from.value, 3, 0.01, -1, "");
    assert_non_null(s);
    assert_int_equal(s->count, TENSORS);
    assert_int_equal(s->tensors[STATE2].type.dtype, PL_U8);
    return s;
}

static void array_of(void *out, const struct side *s, size_t k, size_t bytes)
{
    struct pl_optimizer_state a = pl_optimizer_state_at(s->optimizer, k);
    assert_int_equal(a.n * a.element_size, bytes);
    assert_int_equal(pl_optimizer_state_get(s->optimizer, k, out), PL_OK);
}

static void same_table(void **state)
{
    struct state_snapshot *s = snapshot();
    struct state_load l;
    struct pl_err err = { "" };
    int64_t epoch;
    (void)state;
    carry(&l, s);
    assert_int_equal(optimizer_state_check(&to.state, &l, 3, &err), PL_OK);
    assert_int_equal(optimizer_state_take(&to.state, to.value, &epoch, &l, &err), PL_OK);
    assert_memory_equal(from.value, to.value, sizeof from.value);
    for (size_t k = A_ABSMAX1; k <= A_STATE2; k++) {
        uint8_t a[N], b[N];
        size_t bytes = k >= A_STATE1 ? N : 2 * sizeof(float);
        array_of(a, &from, k, bytes);
        array_of(b, &to, k, bytes);
        assert_memory_equal(a, b, bytes);
    }
    state_load_clear(&l);
    state_snapshot_free(s);
}

/* A donor whose library leaves the first entry of its tables alone: 0 of the second moments', where
 * ours has -1. Read with our table, its zeros would be the most negative of their block. */
static void another_table(void **state)
{
    struct state_snapshot *s = snapshot();
    float *book = (float *)(uintptr_t)s->tensors[QMAP2].data;
    uint8_t *theirs = (uint8_t *)(uintptr_t)s->tensors[STATE2].data, codes[N];
    float want[N], got[N], ours[PL_CODES], absmax[2];
    struct state_load l;
    struct pl_err err = { "" };
    int64_t epoch;
    (void)state;
    pl_codebook(ours, PL_MAP_UNSIGNED, PL_RULE_RUN);
    assert_true(book[0] == -1);
    book[0] = 0;
    for (size_t i = 0; i < N; i += 3) theirs[i] = 0;
    ref_dequantize(want, theirs, s->tensors[ABSMAX2].data, N, 4096, book);
    carry(&l, s);
    assert_int_equal(optimizer_state_check(&to.state, &l, 3, &err), PL_OK);
    assert_int_equal(optimizer_state_take(&to.state, to.value, &epoch, &l, &err), PL_OK);
    array_of(codes, &to, A_STATE2, N);
    array_of(absmax, &to, A_ABSMAX2, sizeof absmax);
    ref_dequantize(got, codes, absmax, N, 4096, ours);
    for (size_t i = 0; i < N; i++) {
        /* zero becomes the least that ours has; everything else has an entry in both */
        float least = ours[1] * absmax[i / 4096];
        assert_true(want[i] == 0 ? got[i] == least : fabsf(got[i] - want[i]) <= 1e-6f * want[i]);
    }
    for (size_t i = 0; i < N; i++) to.grad[i] = 0.1f;
    assert_int_equal(pl_optimizer_step(to.optimizer, to.value, to.grad, 0.01), PL_OK);
    for (size_t i = 0; i < N; i++) assert_true(isfinite(to.value[i]));
    state_load_clear(&l);
    state_snapshot_free(s);
}

/* A table that decodes to more than its block's absmax is nobody's. */
static void no_table(void **state)
{
    struct state_snapshot *s = snapshot();
    struct state_load l;
    struct pl_err err = { "" };
    (void)state;
    ((float *)(uintptr_t)s->tensors[QMAP1].data)[255] = 1e30f;
    carry(&l, s);
    assert_int_equal(optimizer_state_check(&to.state, &l, 3, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "qmap1"));
    state_load_clear(&l);
    state_snapshot_free(s);
}

/* A mean of squares is never below 0: LAMB would take its root. */
static void negative_moments(void **state)
{
    struct pl_err err = { "" };
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct state_snapshot *s = snapshot();
        struct state_load l;
        if (i < 2) ((float *)(uintptr_t)s->tensors[i ? ABSMAX2 : ABSMAX1].data)[1] = -1e-9f;
        else ((uint8_t *)(uintptr_t)s->tensors[STATE2].data)[N - 1] = 0; /* -1 in the table */
        carry(&l, s);
        assert_int_equal(optimizer_state_check(&to.state, &l, 3, &err), PL_EFORMAT);
        assert_non_null(strstr(err.text, "negative"));
        state_load_clear(&l);
        state_snapshot_free(s);
    }
}

/* DiLoCo's state: phi, without the steps that a peer has trained since, and the outer momentum of
 * each parameter. */
static void outer_state(void **state)
{
    const struct pl_optimizer_tensor tensors[] = { { 0, 6, 0, NULL, 0 },
                                                   { 16, 3, 0.045, NULL, 0 } };
    const struct pl_wire_type types[] = { { .dtype = PL_F32, .dims = 2, .size = { 2, 3 } },
                                          { .dtype = PL_F32, .dims = 1, .size = { 3 } } };
    const struct pl_optimizer_options lamb = pl_lamb_options();
    struct optimizer_state s[2];
    struct pl_outer *outer[2];
    struct state_snapshot *given;
    float x[2][32] = { { 0 } }, *phi, *b, *there;
    struct pl_err err;
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct pl_outer_setup setup;
        pl_outer_defaults(&setup);
        assert_int_equal(optimizer_state_open(&s[k], NULL, &lamb, &be, tensors, types, 2, &err),
                         PL_OK);
        assert_int_equal(s[k].order[0], 1); /* with decay first, as hivemind's groups are */
        assert_int_equal(optimizer_state_open_outer(&outer[k], &s[k], pl_outer_find("diloco"),
                                                    &setup, x[k], &err),
                         PL_OK);
        assert_int_equal(optimizer_state_use_outer(&s[k], outer[k]), PL_OK);
        assert_int_equal(s[k].order[0], 0); /* in their own order, as OpenDiLoCo's are */
        assert_int_equal(s[k].schema[0].type.dims, 2);
    }
    phi = pl_outer_get(outer[0], "phi");
    b = pl_outer_get(outer[0], "momentum");
    for (int i = 0; i < 19; i++) x[0][i] = -1, phi[i] = (float)i, b[i] = 100 + (float)i;
    for (int bad = 0; bad < 4; bad++) {
        struct state_load l;
        int64_t epoch = 0;
        int rc;
        b[17] = bad == 1 ? NAN : bad == 2 ? INFINITY : 117;
        given = optimizer_state_snapshot(&s[0], x[0], 3, 0.01, -1, "");
        assert_non_null(given);
        assert_int_equal(given->count, 4);
        if (bad == 3) given->count = 3; /* without the last momentum */
        carry(&l, given);
        rc = optimizer_state_check(&s[1], &l, 3, &err);
        assert_int_equal(rc, bad == 0 ? PL_OK : bad == 3 ? PL_EUSE : PL_EFORMAT);
        if (!rc) assert_int_equal(optimizer_state_take(&s[1], x[1], &epoch, &l, &err), PL_OK);
        if (!rc) assert_int_equal(epoch, 3);
        state_load_clear(&l);
        given->count = 4;
        state_snapshot_free(given);
    }
    there = pl_outer_get(outer[1], "momentum");
    for (int i = 0; i < 19; i++) {
        const int is_gap = 6 <= i && i < 16;
        assert_float_equal(there[i], is_gap ? 0 : 100 + i, 0);
        assert_float_equal(x[1][i], is_gap ? 0 : i, 0);
        assert_float_equal(pl_outer_get(outer[1], "phi")[i], x[1][i], 0);
    }
    for (int k = 0; k < 2; k++) {
        optimizer_state_close(&s[k]);
        pl_outer_close(outer[k]);
    }
}

/* Tensors have no names on the wire: those that decay come first, each group in the model's order. */
static void the_order_of_the_swarm(void **state)
{
    static const struct pl_optimizer_tensor tensors[] = {
        { 0, 2, 0, NULL, 0 }, { 2, 3, 0.045, NULL, 0 }, { 5, 4, 0, NULL, 0 }, { 9, 5, 0.1, NULL, 0 }
    };
    static const size_t order[] = { 1, 3, 0, 2 };
    struct pl_wire_type types[4];
    struct pl_optimizer_options lamb = pl_lamb_options();
    struct optimizer_state s;
    (void)state;
    for (size_t i = 0; i < 4; i++)
        types[i] = (struct pl_wire_type){ .dtype = PL_F32, .dims = 1, .size = { tensors[i].n } };
    assert_int_equal(optimizer_state_open(&s, NULL, &lamb, &be, tensors, types, 4, NULL), PL_OK);
    assert_int_equal(s.count, 4);
    assert_int_equal(s.decayed, 2);
    for (size_t i = 0; i < 4; i++) {
        assert_int_equal(s.order[i], order[i]);
        assert_int_equal(s.schema[i].type.dims, 1);
        assert_int_equal(s.schema[i].type.size[0], tensors[order[i]].n);
    }
    optimizer_state_close(&s);
}

/* A matrix with one moment, a vector with two; to a newcomer whose optimizer is another this state
 * means nothing. */
static void muons_state(void **state)
{
    enum { VECTOR = 8, MATRIX = N - VECTOR, PEERS = 3 };
    static const struct pl_optimizer_tensor tensors[] = {
        { .n = MATRIX, .decay = 0.045, .rows = 48 }, { .offset = MATRIX, .n = VECTOR }
    };
    static const struct pl_wire_type types[] = {
        { .dtype = PL_F32, .dims = 2, .size = { 48, 104 } },
        { .dtype = PL_F32, .dims = 1, .size = { VECTOR } }
    };
    const struct pl_optimizer_options kinds[PEERS] = { pl_muon_options(0.045),
                                                       pl_muon_options(0.045),
                                                       pl_adam_options(0.045, 32) };
    static struct side sides[PEERS];
    struct side *donor = &sides[0], *newcomer = &sides[1], *other = &sides[2];
    struct state_snapshot *s;
    struct state_load l;
    struct pl_err err = { "" };
    int64_t epoch;
    (void)state;
    for (int k = 0; k < PEERS; k++) {
        struct side *p = &sides[k];
        assert_int_equal(pl_optimizer_open(&p->optimizer, &be, &kinds[k], tensors, 2, &err), PL_OK);
        assert_int_equal(optimizer_state_open(&p->state, p->optimizer, &kinds[k], &be, tensors,
                                              types, 2, &err),
                         PL_OK);
    }
    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < N; i++) donor->grad[i] = sinf((float)(i * i + (size_t)k));
        assert_int_equal(pl_optimizer_step(donor->optimizer, donor->value, donor->grad, 0.01),
                         PL_OK);
    }
    s = optimizer_state_snapshot(&donor->state, donor->value, 3, 0.01, -1, "");
    assert_non_null(s);
    carry(&l, s);
    assert_int_equal(optimizer_state_check(&other->state, &l, 3, &err), PL_EUSE);
    assert_int_equal(optimizer_state_check(&newcomer->state, &l, 3, &err), PL_OK);
    assert_int_equal(optimizer_state_take(&newcomer->state, newcomer->value, &epoch, &l, &err),
                     PL_OK);
    /* All of it is there: the next step is the same. */
    for (int k = 0; k < 2; k++)
        assert_int_equal(pl_optimizer_step(sides[k].optimizer, sides[k].value, donor->grad, 0.01),
                         PL_OK);
    assert_memory_equal(donor->value, newcomer->value, sizeof donor->value);
    state_load_clear(&l);
    state_snapshot_free(s);
    for (int k = 0; k < PEERS; k++) {
        optimizer_state_close(&sides[k].state);
        pl_optimizer_close(sides[k].optimizer);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(outer_state, open_both, close_both),
        cmocka_unit_test_setup_teardown(same_table, open_both, close_both),
        cmocka_unit_test_setup_teardown(another_table, open_both, close_both),
        cmocka_unit_test_setup_teardown(no_table, open_both, close_both),
        cmocka_unit_test_setup_teardown(negative_moments, open_both, close_both),
        cmocka_unit_test(muons_state),
        cmocka_unit_test(the_order_of_the_swarm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
