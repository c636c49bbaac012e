/* calculator.c - the memory calculator: counts compared with published ones, terms with the buffers
 * that they describe, and relations between options. */
#include "runtime/memory.h"
#include "runtime/batch_shards.h"
#include "runtime/workspace.h"
#include "runtime/trainer.h"
#include "test/unit/unit.h"

#include <math.h>

static struct pl_memory_plan plan_of(const char *name)
{
    struct pl_memory_model m;
    struct pl_memory_plan plan;
    assert_int_equal(pl_memory_model_named(&m, name, NULL), PL_OK);
    pl_memory_plan_for(&plan, &m);
    assert_int_equal(pl_memory_check(&plan, NULL), PL_OK);
    return plan;
}

static struct pl_memory_use use_of(const struct pl_memory_plan *plan)
{
    struct pl_memory_use use;
    pl_memory_estimate(&use, plan);
    return use;
}

static void own_models_are_counted_exactly(void **state)
{
    static const char *const names[] = { "run", "middle", "small", "demo" };
    for (size_t i = 0; i < PL_COUNT(names); i++)
        for (int untied = 0; untied <= 1; untied++) {
            struct pl_memory_plan plan = plan_of(names[i]);
            struct pl_dalle_config c;
            struct pl_dalle *model;
            pl_dalle_config_named(&c, names[i], NULL);
            if (untied) pl_dalle_config_untie(&c);
            pl_memory_model_of(&plan.model, &c);
            assert_int_equal(pl_dalle_open(&model, &c, NULL, 0, NULL), PL_OK);
            assert_true(use_of(&plan).parameters == (double)model->params.trainable);
            pl_dalle_close(model);
        }
    {
        struct pl_memory_plan run = plan_of("run");
        assert_true(use_of(&run).parameters == 125894244); /* [TTT 3.1] */
        assert_true(use_of(&run).unshared == 1116354148);
    }
}

/* The formula against the allocator, and the states against the optimizer's own list. */
static void own_buffers_are_as_large_as_calculated(void **state)
{
    static const enum pl_activations modes[] = { [PL_MEMORY_STORED] = PL_STORED,
                                                 [PL_MEMORY_CHECKPOINT] = PL_RECOMPUTED,
                                                 [PL_MEMORY_REVERSIBLE] = PL_REVERSIBLE };
    struct pl_memory_plan plan = plan_of("demo");
    struct pl_train_options options = { .optimizer = pl_lamb_options(), .peak = 1, .total = 10 };
    struct pl_dalle_config c;
    struct pl_dalle *m;
    struct pl_trainer *t;
    struct pl_backend be;
    double states = 0;
    pl_backend_ref(&be);
    pl_dalle_config_named(&c, "demo", NULL);
    assert_int_equal(pl_dalle_open(&m, &c, &be, 1, NULL), PL_OK);
    for (int i = 0; i < 3; i++) {
        struct pl_memory_use use;
        double calculated, is;
        plan.batch = 4;
        plan.layers = (enum pl_memory_layers)i;
        use = use_of(&plan);
        assert_int_equal(pl_stack_reserve(&m->stack, 4 * 80, modes[i], 1), PL_OK);
        calculated = use.term[PL_TERM_activations].device + use.term[PL_TERM_working].device;
        calculated -= 4 * 16 * 128 * 128; /* fast's own block of 128 rows */
        is = 4 * (double)m->stack.arena_floats;
        assert_true(calculated == is);
    }
    assert_int_equal(pl_trainer_open(&t, m, &options, NULL), PL_OK);
    for (size_t i = 0; i < pl_optimizer_state_count(t->optimizer); i++) {
        struct pl_optimizer_state s = pl_optimizer_state_at(t->optimizer, i);
        states += (double)(s.n * s.element_size);
    }
    assert_true(use_of(&plan).term[PL_TERM_optimizer].device == states);
    pl_trainer_close(t);
    pl_dalle_close(m);
}

/* The standard count for 16-bit training: 34 b s d + 5 b h s s bytes a layer. */
static void standard_layer(void **state)
{
    struct pl_memory_plan plan = plan_of("gpt2-l");
    double s = 1024, d = 1280, h = 20;
    plan.layers = PL_MEMORY_STORED;
    assert_true(use_of(&plan).term[PL_TERM_activations].device ==
                36 * (34 * s * d + 5 * h * s * s));
    plan.batch = 1021;
    plan.model.sequence = 1001; /* more digits than a float has: counts are exact below 2^53 */
    assert_true(use_of(&plan).term[PL_TERM_activations].device ==
                36 * 1021 * (34 * 1001 * d + 5 * h * 1001 * 1001));
    plan.batch = 1;
    plan.model.sequence = s;
    plan.layers = PL_MEMORY_CHECKPOINT;
    assert_true(use_of(&plan).term[PL_TERM_activations].device == 36 * 2 * s * d);
    assert_true(use_of(&plan).term[PL_TERM_working].device == 34 * s * d + 5 * h * s * s);
}

static void options_move_what_they_should(void **state)
{
    struct pl_memory_plan plan = plan_of("gpt2-l");
    struct pl_memory_use here = use_of(&plan), there;
    double P = 774030080;
    plan.offload =
        1; /* the master copy and the optimizer state leave; the largest gradient stays */
    there = use_of(&plan);
    assert_true(here.term[PL_TERM_master].device == 4 * P && here.host == 0);
    assert_true(there.term[PL_TERM_master].host == 4 * P && there.term[PL_TERM_master].device == 0);
    assert_true(there.term[PL_TERM_optimizer].host == 8 * P);
    assert_true(there.term[PL_TERM_gradients].device == 4.0 * 50257 * 1280);
    assert_true(there.transfer_s == 6 * P / 12e9);
    plan.offload = 0;
    plan.zero = 3;
    plan.devices = 4;
    assert_true(use_of(&plan).term[PL_TERM_weights].device == 2 * P / 4);
    plan = plan_of("run");
    plan.allreduce_bits = 8;
    plan.peers = 2;
    there = use_of(&plan);
    assert_true(there.allreduce_bytes > 125894244 && there.allreduce_bytes < 1.02 * 125894244);
    plan.allreduce_bits = 32;
    assert_true(use_of(&plan).allreduce_bytes == 4.0 * 125894244);
    plan.groups = 64;
    assert_true(use_of(&plan).parameters == 1116354148);
    plan.groups = 1000; /* more sets than layers are as many as layers */
    assert_true(use_of(&plan).parameters == 1116354148);
}

/* Terms that are sums over the tensors, added up here tensor by tensor: the wire's 8-bit codes come in
 * parts of 2^17 values, each with its table of 256 float32; small tensors travel as 16 bits. */
static void tensor_by_tensor(void **state)
{
    static const char *const names[] = { "run", "small", "gpt2-l" };
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        struct pl_memory_plan plan = plan_of(names[i]);
        struct pl_memory_tensor list[PL_MEMORY_TENSORS_MAX];
        size_t count = pl_memory_tensors(list, &plan.model, 0);
        double coded = 0, halves = 0, rows_and_columns = 0, elements = 0;
        for (size_t k = 0; k < count; k++) {
            double n = list[k].rows * list[k].columns, bytes = 0;
            for (double left = n; n > 65536 && left > 0; left -= 131072)
                bytes += fmin(left, 131072) + 256 * 4;
            coded += list[k].count * (n > 65536 ? bytes : 2 * n);
            halves += list[k].count * 2 * n;
            rows_and_columns += list[k].count *
                                (list[k].columns > 1 ? list[k].rows + list[k].columns : n);
            elements += list[k].count * n;
        }
        plan.peers = 2; /* each sends half to the other, and half of the answer */
        plan.allreduce_bits = 8;
        assert_true(use_of(&plan).allreduce_bytes == coded);
        plan.allreduce_bits = 16;
        assert_true(use_of(&plan).allreduce_bytes == halves);
        plan.optimizer = PL_MEMORY_16BIT;
        assert_true(use_of(&plan).term[PL_TERM_optimizer].device == 4 * elements);
        plan.optimizer = PL_MEMORY_FACTORED;
        assert_true(use_of(&plan).term[PL_TERM_optimizer].device ==
                    4 * elements + 4 * rows_and_columns);
        plan.optimizer = PL_MEMORY_FACTORED_ALONE;
        assert_true(use_of(&plan).term[PL_TERM_optimizer].device == 4 * rows_and_columns);
    }
}

/* The run's model takes two sequences of 1280 positions at a time: more of them need no more
 * activations. Its feed-forward layer has 8 D values a position before the gate, and as many again
 * where they are not saved but recomputed. */
static void a_few_sequences_at_a_time(void **state)
{
    struct pl_memory_plan plan = plan_of("run");
    double D = 1024, M = 2 * 1280, P = 125894244, block[2];
    struct pl_memory_use use;
    for (plan.batch = 2; plan.batch <= 32; plan.batch *= 4)
        assert_true(use_of(&plan).term[PL_TERM_activations].device == 4 * M * 2 * D);
    plan.batch = 1;
    assert_true(use_of(&plan).term[PL_TERM_activations].device == 4 * M / 2 * 2 * D);
    plan.batch = 8;
    for (int stored = 0; stored <= 1; stored++) {
        double attention = stored ? 0 : 2 * D + 4 * D + 16;
        plan.layers = stored ? PL_MEMORY_STORED : PL_MEMORY_REVERSIBLE;
        use = use_of(&plan);
        block[stored] = use.term[PL_TERM_working].device - 4 * M * (4 * D + 4 * D + attention);
    }
    assert_true(block[1] > 0 && block[0] == 2 * block[1]);
    plan.offload = 1;
    assert_true(use_of(&plan).transfer_s == 8 * P / 12e9); /* gradients there, parameters back */
}

static void sums_are_sums(void **state)
{
    for (size_t i = 0; i < pl_memory_models(); i++) {
        struct pl_memory_model m;
        struct pl_memory_plan plan;
        struct pl_memory_use use;
        double device = 0, host = 0;
        assert_int_equal(pl_memory_model_at(&m, i), PL_OK);
        pl_memory_plan_for(&plan, &m);
        plan.allreduce_bits = 8;
        use = use_of(&plan);
        for (int t = 0; t < PL_TERM_COUNT; t++) {
            device += use.term[t].device;
            host += use.term[t].host;
        }
        assert_true(use.device == device && use.host == host && device > 0);
        assert_true(use.parameters <= use.unshared);
    }
}

static void refusals(void **state)
{
    struct pl_memory_model m;
    struct pl_memory_plan plan = plan_of("gpt2-s");
    struct pl_err err;
    assert_int_equal(pl_memory_model_named(&m, "gpt5", &err), PL_ENOTFOUND);
    assert_non_null(strstr(err.text, "'gpt5'"));
    assert_non_null(strstr(err.text, "dalle-12b"));
    assert_int_equal(pl_memory_model_at(&m, pl_memory_models()), PL_ENOTFOUND);
    plan.batch = 0;
    assert_int_equal(pl_memory_check(&plan, &err), PL_EUSE);
    assert_non_null(strstr(err.text, "--bsz is 0"));
    plan.batch = 1.5;
    assert_int_equal(pl_memory_check(&plan, NULL), PL_EUSE);
    plan.batch = 1;
    plan.allreduce_bits = 4;
    assert_int_equal(pl_memory_check(&plan, &err), PL_EUSE);
}

/* Both ends of each option are accepted, and values beyond are refused by the option's name. */
static void options_have_limits(void **state)
{
    static struct pl_memory_plan plan;
    const struct {
        const char *name;
        double *x, min, max;
    } limits[] = {
        { "--nlayers", &plan.model.layers, 1, 1e5 },
        { "--seqlen", &plan.model.sequence, 1, 1e8 },
        { "--dmodel", &plan.model.width, 1, 1e7 },
        { "--dhid", &plan.model.hidden, 1, 1e8 },
        { "--vocab-size", &plan.model.vocabulary, 1, 1e9 },
        { "--heads", &plan.model.heads, 1, 1e6 },
        { "--bsz", &plan.batch, 1, 1e7 },
        { "--shared-groups", &plan.groups, 0, 1e6 },
        { "--ngpus", &plan.devices, 1, 1e6 },
        { "--min-8bit", &plan.min_8bit, 0, 1e12 },
        { "--block", &plan.block, 1, 1e9 },
        { "--peers", &plan.peers, 1, 1e6 },
    };
    static const int bits[] = { 0, 8, 16, 32, 1, 7, 9, 64 };
    struct pl_err err;
    plan = plan_of("gpt2-s");
    for (size_t i = 0; i < PL_COUNT(limits); i++) {
        const double before = *limits[i].x, out[] = { limits[i].min - 1, limits[i].max + 1,
                                                      limits[i].min + 0.5, (double)NAN };
        *limits[i].x = limits[i].min;
        assert_int_equal(pl_memory_check(&plan, NULL), PL_OK);
        *limits[i].x = limits[i].max;
        assert_int_equal(pl_memory_check(&plan, NULL), PL_OK);
        for (size_t k = 0; k < PL_COUNT(out); k++) {
            *limits[i].x = out[k];
            assert_int_equal(pl_memory_check(&plan, &err), PL_EUSE);
            assert_memory_equal(err.text, limits[i].name, strlen(limits[i].name));
        }
        *limits[i].x = before;
    }
    for (plan.zero = -1; plan.zero <= 4; plan.zero++)
        assert_int_equal(pl_memory_check(&plan, NULL),
                         plan.zero < 0 || plan.zero > 3 ? PL_EUSE : PL_OK);
    plan.zero = 0;
    for (size_t i = 0; i < PL_COUNT(bits); i++) {
        plan.allreduce_bits = bits[i];
        assert_int_equal(pl_memory_check(&plan, NULL), i < 4 ? PL_OK : PL_EUSE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_models_are_counted_exactly),
        cmocka_unit_test(own_buffers_are_as_large_as_calculated),
        cmocka_unit_test(standard_layer),
        cmocka_unit_test(options_move_what_they_should),
        cmocka_unit_test(tensor_by_tensor),
        cmocka_unit_test(a_few_sequences_at_a_time),
        cmocka_unit_test(sums_are_sums),
        cmocka_unit_test(refusals),
        cmocka_unit_test(options_have_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
