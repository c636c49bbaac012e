/* reducer.c - a part at its reducer: whatever the senders' methods, each is answered the weighted mean
 * of what arrived minus its own share of it, and a message without values the mean itself. */
#include "runtime/reducer.h"
#include "test/unit/unit.h"

#include <math.h>

enum { N = 300, SENDERS = 4, METHODS = 6 };

/* How far a value of size 1 may be from what was encoded. */
static const struct {
    enum pl_compression method;
    double tolerance;
} methods[METHODS] = {
    { PL_COMPRESS_NONE, 1e-6 },    { PL_COMPRESS_FLOAT16, 2e-3 },  { PL_COMPRESS_MEANSTD16, 4e-3 },
    { PL_COMPRESS_UNIFORM8, 0.1 }, { PL_COMPRESS_QUANTILE8, 0.3 }, { PL_COMPRESS_BLOCKWISE8, 0.1 },
};

static struct pl_backend be;
static const struct pl_wire_type type = { .dtype = PL_F32, .dims = 1, .size = { N } };

static void *host_alloc(size_t bytes) { return pl_alloc(bytes, 1); }
static void host_free(void *p) { pl_free(p); }

struct sender {
    float x[N], decoded[N]; /* what it has, and what its message says */
    uint8_t message[4 * N + 2000];
    size_t bytes;
    double weight;
};
static struct sender from[SENDERS];
static double mean[N];

static void begin(enum pl_compression method)
{
    double weight = 0;
    memset(mean, 0, sizeof mean);
    for (int k = 0; k < SENDERS; k++) {
        struct sender *s = &from[k];
        s->weight = (double[]){ 3, 0, 0.5, 8 }[k];
        for (int i = 0; i < N; i++) s->x[i] = (float)sin(i * (k + 1) + 0.1 * k);
        assert_int_equal(pl_wire_bytes(&s->bytes, method, &type, NULL), PL_OK);
        assert_true(s->bytes <= sizeof s->message);
        assert_int_equal(pl_wire_encode(s->message, &be, method, &type, s->x, NULL), PL_OK);
        assert_int_equal(pl_wire_decode(s->decoded, &be, method, &type, s->message, s->bytes, NULL),
                         PL_OK);
        for (int i = 0; i < N; i++) mean[i] += s->weight * s->decoded[i];
        weight += s->weight;
    }
    for (int i = 0; i < N; i++) mean[i] /= weight;
}

static void is_near(const float *got, const double *want, const float *minus, double tolerance)
{
    for (int i = 0; i < N; i++) {
        double x = want[i] - (minus ? minus[i] : 0);
        if (fabs(got[i] - x) > tolerance) fail_msg("%d: %g, expected %g", i, got[i], x);
    }
}

static void collect(struct pl_reducer *r, enum pl_compression method)
{
    assert_int_equal(pl_reducer_begin(r, &be, N), PL_OK);
    for (int k = 0; k < SENDERS; k++)
        assert_int_equal(pl_reducer_add_message(r, method, from[k].message, from[k].bytes,
                                                from[k].weight, NULL),
                         PL_OK);
}

static void each_is_answered(void **state)
{
    struct pl_reducer r = { 0 };
    for (int device = 0; device <= 1; device++)
        for (int m = 0; m < METHODS; m++) {
            enum pl_compression method = methods[m].method;
            static uint8_t reply[4 * N + 2000];
            float scratch[N], got[N];
            pl_backend_ref(&be);
            if (device) be.host_alloc = host_alloc, be.host_free = host_free;
            begin(method);
            if (m % 2) /* reserved or not, the result is the same */
                assert_int_equal(pl_reducer_reserve(&r, &be, N, SENDERS, pl_needs_scratch(method)),
                                 PL_OK);
            collect(&r, method);
            for (int k = 0; k < SENDERS; k++) {
                struct sender *s = &from[k];
                assert_int_equal(pl_reducer_reply(reply, &r, method, s->message, s->bytes, NULL),
                                 PL_OK);
                assert_int_equal(pl_wire_decode(got, &be, method, &type, reply, s->bytes, NULL),
                                 PL_OK);
                is_near(got, mean, s->decoded, methods[m].tolerance);
                /* The sender adds the reply to its own values and keeps its message's error. */
                float x[N];
                memcpy(x, s->x, sizeof x);
                assert_int_equal(pl_apply_delta(x, N, &be, method, reply, s->bytes, scratch, NULL),
                                 PL_OK);
                for (int i = 0; i < N; i++) assert_true(x[i] == s->x[i] + got[i]);
            }
            assert_int_equal(pl_reducer_mean(reply, &r, method, NULL), PL_OK);
            assert_int_equal(pl_wire_decode(got, &be, method, &type, reply, from[0].bytes, NULL),
                             PL_OK);
            is_near(got, mean, NULL, methods[m].tolerance);
            /* The same from the beginning: nothing had been summed when the mean was asked for. */
            collect(&r, method);
            assert_int_equal(pl_reducer_mean(reply, &r, method, NULL), PL_OK);
            assert_int_equal(pl_wire_decode(got, &be, method, &type, reply, from[0].bytes, NULL),
                             PL_OK);
            is_near(got, mean, NULL, methods[m].tolerance);
            pl_reducer_clear(&r);
        }
}

/* The reducer's own values never travel; with them alone, or with senders. */
static void its_own_values(void **state)
{
    struct pl_reducer r = { 0 };
    float x[N], delta[N], *sum;
    double want[N], weight = 2;
    for (int device = 0; device <= 1; device++)
        for (int senders = 0; senders <= SENDERS; senders++) {
            pl_backend_ref(&be);
            if (device) be.host_alloc = host_alloc, be.host_free = host_free;
            begin(PL_COMPRESS_NONE);
            assert_int_equal(pl_reducer_begin(&r, &be, N), PL_OK);
            for (int i = 0; i < N; i++) x[i] = (float)cos(i), want[i] = 2 * (double)x[i];
            weight = 2;
            assert_int_equal(pl_reducer_add(&r, x, 2, NULL), PL_OK);
            for (int k = 0; k < senders; k++) {
                assert_int_equal(pl_reducer_add_message(&r, PL_COMPRESS_NONE, from[k].message,
                                                        from[k].bytes, from[k].weight, NULL),
                                 PL_OK);
                for (int i = 0; i < N; i++) want[i] += from[k].weight * from[k].x[i];
                weight += from[k].weight;
            }
            assert_true(r.weight == weight && r.senders == senders + 1);
            if (senders % 2) {
                assert_non_null(sum = pl_reducer_sum(&r));
                is_near(sum, want, NULL, 1e-5);
            }
            for (int i = 0; i < N; i++) want[i] /= weight;
            if (senders > 1) {
                assert_int_equal(pl_reducer_delta(delta, &r, x), PL_OK);
                is_near(delta, want, x, 1e-6);
            }
            assert_int_equal(pl_reducer_apply(x, &r), PL_OK);
            is_near(x, want, NULL, 1e-6);
            pl_reducer_clear(&r);
        }
}

/* All memory is there before the first sender: a part whose decoding began does not fail for want of
 * memory. Where messages are added as they are, on the host, none is taken. */
static void what_is_reserved(void **state)
{
    for (int device = 0; device <= 1; device++)
        for (int decodes = 0; decodes <= 1; decodes++) {
            struct pl_reducer r = { 0 };
            pl_backend_ref(&be);
            if (device) be.host_alloc = host_alloc, be.host_free = host_free;
            assert_int_equal(pl_reducer_reserve(&r, &be, N, SENDERS, decodes), PL_OK);
            assert_true(r.pending_capacity >= SENDERS);
            assert_true(!r.sum == !(device || decodes));
            assert_true(!r.values == !r.sum && !r.delta == !r.sum);
            pl_reducer_clear(&r);
        }
}

static void what_is_refused(void **state)
{
    static const double weights[] = { -1e-9, -1, INFINITY, NAN };
    struct pl_reducer r = { 0 };
    struct pl_err err;
    float x[N] = { 0 }, delta[N];
    pl_backend_ref(&be);
    begin(PL_COMPRESS_FLOAT16);
    assert_int_equal(pl_reducer_begin(&r, &be, N), PL_OK);
    for (size_t i = 0; i < PL_COUNT(weights); i++) {
        assert_int_equal(pl_reducer_add(&r, x, weights[i], &err), PL_EUSE);
        assert_int_equal(pl_reducer_add_message(&r, PL_COMPRESS_FLOAT16, from[0].message,
                                                from[0].bytes, weights[i], &err),
                         PL_EUSE);
    }
    for (size_t n = 0; n <= from[0].bytes + 1; n++)
        if (n != from[0].bytes)
            assert_int_not_equal(pl_reducer_add_message(&r, PL_COMPRESS_FLOAT16, from[0].message, n,
                                                        1, &err),
                                 PL_OK);
    assert_true(r.senders == 0 && r.weight == 0);
    /* Senders without any weight change nothing. */
    x[3] = 5;
    assert_int_equal(pl_reducer_add(&r, x, 0, &err), PL_OK);
    assert_int_equal(pl_reducer_delta(delta, &r, x), PL_OK);
    for (int i = 0; i < N; i++) assert_true(delta[i] == 0);
    pl_reducer_clear(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_answered),
        cmocka_unit_test(its_own_values),
        cmocka_unit_test(what_is_reserved),
        cmocka_unit_test(what_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
