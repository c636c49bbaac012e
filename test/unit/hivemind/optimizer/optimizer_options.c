/* optimizer_options.c - the options of the collaborative optimizer: each default, each bound, each
 * name. */
#include "net/hivemind/optimizer/optimizer_internal.h"
#include "net/hivemind/swarm/averaging.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static float value[4];
static const struct pl_collaborative_tensor tensor = { "x", 1, { 4 }, value, 0 };

static struct pl_collaborative *open_run(const struct pl_collaborative_options *o)
{
    static const char *const listen[] = { "/ip4/127.0.0.1/tcp/0" };
    const struct pl_collaborative_run run = { .name = "options",
                                              .listen = listen,
                                              .listen_count = 1 };
    struct pl_collaborative *c;
    struct pl_err err;
    if (pl_collaborative_open(&c, &run, &tensor, 1, o, &err)) fail_msg("%s", err.text);
    return c;
}

static struct pl_collaborative *open_with(struct pl_collaborative_options o)
{
    return open_run(&o);
}

/* The reference run's settings, for a peer that sets nothing; and they reach the averagers. */
static void defaults_are_the_reference_runs(void **state)
{
    struct pl_collaborative *c = open_run(NULL);
    struct pl_collaborative_status status;
    (void)state;
    assert_int_equal(c->o.target_batch, 4096);
    assert_float_equal(c->o.lr, 0.0025, 0);
    assert_string_equal(c->o.compression, "run");
    assert_float_equal(c->o.matchmaking_time, 15, 0);
    assert_float_equal(c->o.averaging_timeout, 180, 0);
    assert_float_equal(c->o.allreduce_timeout, 60, 0);
    assert_int_equal(c->o.average_state_every, 1);
    assert_true(c->o.bandwidth == PL_BANDWIDTH_UNKNOWN);
    assert_true(c->o.epochs > STATE_STEPS_MAX);
    assert_true(c->o.clip == 0 && !c->o.verify && !c->o.group_size);
    assert_int_equal(c->o.delay, PL_DELAY_NONE);
    pl_collaborative_status(c, &status);
    assert_int_equal(status.epoch, 0);
    assert_int_equal(status.peers, 1);
    assert_non_null(pl_collaborative_address(c));
    pl_collaborative_close(c);
}

static void given_values_are_kept(void **state)
{
    struct pl_collaborative *c = open_with(
        (struct pl_collaborative_options){ .target_batch = 1,
                                           .lr = 0.5,
                                           .compression = "none",
                                           .matchmaking_time = 1,
                                           .averaging_timeout = 2,
                                           .allreduce_timeout = 3,
                                           .average_state_every = 4,
                                           .bandwidth = 7,
                                           .epoch = 5,
                                           .epochs = 6 });
    (void)state;
    assert_int_equal(c->o.target_batch, 1);
    assert_float_equal(c->o.lr, 0.5, 0);
    assert_string_equal(c->o.compression, "none");
    assert_true(c->o.matchmaking_time == 1 && c->o.averaging_timeout == 2);
    assert_true(c->o.allreduce_timeout == 3 && c->o.average_state_every == 4);
    assert_true(c->o.bandwidth == 7 && c->o.epochs == 6);
    assert_int_equal(pl_collaborative_epoch(c), 5);
    pl_collaborative_close(c);
    c = open_with((struct pl_collaborative_options){ .bandwidth = -1, .lr = 1 });
    assert_true(c->o.bandwidth == 0); /* negative: this peer reduces nothing */
    pl_collaborative_close(c);
}

static void numbers_below_their_least_are_refused(void **state)
{
    const struct pl_collaborative_options bad[] = { { .target_batch = -1 },
                                                    { .epoch = -1 },
                                                    { .epochs = -1 },
                                                    { .average_state_every = -1 },
                                                    { .matchmaking_time = -0.1 },
                                                    { .averaging_timeout = -0.1 },
                                                    { .allreduce_timeout = -0.1 } };
    const struct pl_collaborative_run run = { .name = "options" };
    struct pl_collaborative *c;
    struct pl_err err;
    (void)state;
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        assert_int_equal(pl_collaborative_open(&c, &run, &tensor, 1, &bad[i], &err), PL_EUSE);
        assert_non_null(strstr(err.text, "negative"));
    }
}

/* An infinite rate, or one that climbs the loss, would spoil everybody's parameters. */
static void learning_rates_are_above_zero(void **state)
{
    const double bad[] = { -0.1, INFINITY, NAN };
    const struct pl_collaborative_run run = { .name = "options" };
    struct pl_collaborative *c;
    struct pl_err err;
    (void)state;
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        const struct pl_collaborative_options o = { .lr = bad[i] };
        assert_int_equal(pl_collaborative_open(&c, &run, &tensor, 1, &o, &err), PL_EUSE);
        assert_non_null(strstr(err.text, "learning rate"));
    }
}

static void group_bits_have_a_longest(void **state)
{
    char bits[GROUP_BITS_MAX + 2];
    const struct pl_collaborative_run run = { .name = "options", .client_mode = 0 };
    struct pl_collaborative_options o = { .group_bits = bits };
    struct pl_collaborative *c;
    struct pl_err err;
    (void)state;
    memset(bits, '1', sizeof bits);
    bits[GROUP_BITS_MAX + 1] = 0;
    assert_int_equal(pl_collaborative_open(&c, &run, &tensor, 1, &o, &err), PL_EUSE);
    assert_non_null(strstr(err.text, "group bits"));
    bits[GROUP_BITS_MAX] = 0;
    c = open_with(o);
    pl_collaborative_close(c);
    o.group_bits = "";
    c = open_with(o);
    pl_collaborative_close(c);
}

/* --- names ------------------------------------------------------------------------------------- */

static void compressions_have_names(void **state)
{
    static const struct {
        const char *name;
        enum pl_compression method;
    } names[] = {
        { "none", PL_COMPRESS_NONE },           { "float16", PL_COMPRESS_FLOAT16 },
        { "meanstd16", PL_COMPRESS_MEANSTD16 }, { "uniform8", PL_COMPRESS_UNIFORM8 },
        { "quantile8", PL_COMPRESS_QUANTILE8 }, { "blockwise8", PL_COMPRESS_BLOCKWISE8 }
    };
    enum pl_compression m;
    (void)state;
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        assert_int_equal(compression_named(&m, names[i].name, 1, 100), PL_OK);
        assert_int_equal(m, names[i].method);
    }
    /* 8 bits from the threshold on, by the size of the whole tensor. */
    assert_int_equal(PL_WIRE_ADAPTIVE, 65537);
    assert_int_equal(compression_named(&m, "run", 65536, PL_WIRE_ADAPTIVE), PL_OK);
    assert_int_equal(m, PL_COMPRESS_FLOAT16);
    assert_int_equal(compression_named(&m, "run", 65537, PL_WIRE_ADAPTIVE), PL_OK);
    assert_int_equal(m, PL_COMPRESS_UNIFORM8);
    assert_int_equal(compression_named(&m, "", 1, 1), PL_EUSE);
    assert_int_equal(compression_named(&m, "float1", 1, 1), PL_EUSE);
    assert_int_equal(compression_named(&m, "float160", 1, 1), PL_EUSE);
}

static void protections_have_names_and_numbers(void **state)
{
    static const struct {
        const char *name;
        int status, verify;
        double clip, validators;
    } names[] = { { "none", PL_OK, 0, 0, 0.25 },
                  { "btard", PL_OK, 1, 0, 0.25 },
                  { "btard:0", PL_OK, 1, 0, 0 },
                  { "btard:2.5", PL_OK, 1, 0, 2.5 },
                  { "centered-clip", PL_OK, 0, PL_CLIP_USUAL, 0.25 },
                  { "centered-clip:0.5", PL_OK, 0, 0.5, 0.25 },
                  { "centered-clip:0", PL_EUSE, 0, 0, 0.25 },
                  { "centered-clip:-1", PL_EUSE, 0, 0, 0 },
                  { "centered-clip:", PL_EUSE, 0, 0, 0 },
                  { "centered-clip:1x", PL_EUSE, 0, 0, 0 },
                  { "btard:nan", PL_EUSE, 0, 0, 0 },
                  { "btard:inf", PL_EUSE, 0, 0, 0 },
                  { "btardy", PL_EUSE, 0, 0, 0 },
                  { "bta", PL_EUSE, 0, 0, 0 },
                  { "", PL_EUSE, 0, 0, 0 } };
    (void)state;
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        double clip = 9, validators = 9;
        int verify = 9, rc = robust_named(&clip, &verify, &validators, names[i].name);
        if (rc != names[i].status) fail_msg("%s: status %d", names[i].name, rc);
        if (rc) continue;
        assert_int_equal(verify, names[i].verify);
        assert_true(clip == names[i].clip && validators == names[i].validators);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(defaults_are_the_reference_runs),
                                        cmocka_unit_test(given_values_are_kept),
                                        cmocka_unit_test(numbers_below_their_least_are_refused),
                                        cmocka_unit_test(learning_rates_are_above_zero),
                                        cmocka_unit_test(group_bits_have_a_longest),
                                        cmocka_unit_test(compressions_have_names),
                                        cmocka_unit_test(protections_have_names_and_numbers) };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
