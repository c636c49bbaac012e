/* optimizer_bytes.c - what a step of averaged gradients costs on the wire: of two peers, each sends
 * half of its gradient and the means of the other half, n values in all, as many bytes each as the
 * compression says. [spec hivemind-protocol 7] */
#include "loopback_run.h"
#include "net/hivemind/optimizer/optimizer_internal.h"
#include "test/unit/hivemind/training/training_totals.h"

#define N 20000
#define SAMPLES 8
#define ROUNDS 2

struct peer {
    struct loopback_peer base;
    float w[N], g[N];
};

static int known, done;

static void open_peer(struct peer *p, int number, const char *compression)
{
    const struct pl_collaborative_tensor tensors[] = { { "w", 1, { N }, p->w, 0 } };
    struct pl_collaborative_options o = loopback_options("gradients");
    o.compression = compression;
    o.target_batch = 2 * SAMPLES;
    o.average_state_every = 1000; /* rounds of gradients only */
    o.fresh = 1;
    p->base.number = number;
    for (int i = 0; i < N; i++) {
        p->w[i] = 1;
        p->g[i] = 0.01f * (float)(i % 7 + number);
    }
    loopback_open(&p->base, "bytes", tensors, 1, &o);
}

static int step(struct peer *p, int64_t samples)
{
    const float *gradient[] = { p->g };
    return pl_collaborative_step(p->base.c, gradient, samples, 1, &p->base.err);
}

/* At their own pace, once both are known to each other; both stay until both are done. */
static void *train(void *context)
{
    struct peer *p = context;
    struct pl_collaborative_status s = { .peers = 0 };
    p->base.rc = step(p, SAMPLES);
    while (!p->base.rc && s.peers < 2) {
        usleep(20000);
        p->base.rc = step(p, 0);
        pl_collaborative_status(p->base.c, &s);
    }
    note(&known);
    await_noted(&known, 2, LIMIT);
    for (int is_done = 0; !p->base.rc && noted(&done) < 2; usleep(20000)) {
        p->base.rc = step(p, SAMPLES);
        if (!is_done && totals_of(p->base.c->training).rounds >= ROUNDS) {
            is_done = 1;
            note(&done);
        }
    }
    return NULL;
}

/* All that is sent besides the values is below a twentieth of them. */
static void assert_bytes(const struct peer *p, double bytes_a_value)
{
    const struct report_record r = totals_of(p->base.c->training);
    const double values = bytes_a_value * N;
    assert_true(r.rounds >= 1);
    if ((double)r.sent < values * (double)r.rounds ||
        (double)r.sent > 1.05 * values * (double)(r.rounds + r.failed))
        fail_msg("%lld bytes in %lld rounds and %lld failed ones, expected %g a round",
                 (long long)r.sent, (long long)r.rounds, (long long)r.failed, values);
}

static void two_peers(const char *compression, double bytes_a_value)
{
    struct peer *p[2];
    known = done = 0;
    for (int r = 0; r < 2; r++) {
        p[r] = calloc(1, sizeof *p[r]);
        assert_non_null(p[r]);
        open_peer(p[r], r, compression);
    }
    for (int r = 0; r < 2; r++) loopback_start(&p[r]->base, train);
    for (int r = 0; r < 2; r++) loopback_wait(&p[r]->base);
    for (int r = 0; r < 2; r++) assert_bytes(p[r], bytes_a_value);
    for (int r = 2; r-- > 0; free(p[r])) pl_collaborative_close(p[r]->base.c);
}

static void four_bytes_a_value(void **state)
{
    (void)state;
    two_peers("none", 4);
}

static void two_bytes_a_value_in_float16(void **state)
{
    (void)state;
    two_peers("float16", 2);
}

/* And the table of 256 float32, once: the gradient is a single part, so each peer sends either its
 * values or their mean. */
static void one_byte_a_value_in_uniform8(void **state)
{
    (void)state;
    two_peers("uniform8", 1 + 1024.0 / N);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(four_bytes_a_value),
                                        cmocka_unit_test(two_bytes_a_value_in_float16),
                                        cmocka_unit_test(one_byte_a_value_in_uniform8) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
