/* outer.c - properties of every algorithm of training together: equal peers stay equal, a saved
 * training continues, a broken message costs only its sender, and messages have the size that the
 * formula gives. */
#include "outer_world.h"
#include "ref/outer/settings.h"

static void each_comes_nearer_and_stays_together(void **state)
{
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
        v.head = w.head; /* messages in flight belong to the transport */
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

/* A NaN in a gradient reaches neither parameters nor state of any peer; peers stay equal. */
static void nan_gradient_reaches_no_peer(void **state)
{
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

/* Random bytes that differ from a message: indices do not ascend. */
static int has_indices(const struct pl_outer_algorithm *a)
{
    return a == &pl_outer_demo || a == &pl_outer_dgc || a == &pl_outer_sparseloco;
}

/* A broken message does not count: the result is as if its sender had been silent. Random bytes may
 * be valid values; then the program must only not fail. */
static void broken_message_counts_as_silence(void **state)
{
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

/* Values that are not small differences travel whole, with any coding. */
static void parameters_are_not_rounded(void **state)
{
    static const struct pl_outer_algorithm *const whole[] = { &pl_outer_noloco, &pl_outer_partial,
                                                              &pl_outer_onebit_adam,
                                                              &pl_outer_sparseloco };
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

static void a_failed_exchange_leaves_all_equal(void **state)
{
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

/* One exchange in five fails, again and again: still every algorithm comes nearer. */
static void many_failed_exchanges_do_not_diverge(void **state)
{
    for (int a = 0; pl_outer_at(a); a++) {
        struct pl_outer_setup s = settings();
        static struct world w;
        double before;
        s.warm_up = 10;
        begin(&w, pl_outer_at(a), &s);
        before = distance(&w, 0);
        for (int t = 0; t < 300; t++) {
            w.fail = w.head / 5 * 5 + 3;
            step(&w);
        }
        if (!(distance(&w, 0) < 0.8 * before))
            fail_msg("%s: %g of %g", w.algorithm->name, distance(&w, 0), before);
        end(&w);
    }
}

/* A newcomer has the state that all share, and no error feedback, which its owner will still
 * send. */
static void a_newcomer_has_no_feedback(void **state)
{
    static const char *const own[] = { "error", "accumulated", "worker error", "server error",
                                       "memory" };
    int found = 0;
    for (int a = 0; pl_outer_at(a); a++) {
        struct pl_outer_setup s = settings();
        static struct world w;
        uint8_t *saved;
        size_t bytes;
        begin(&w, pl_outer_at(a), &s);
        for (int t = 0; t < 11; t++) step(&w);
        bytes = pl_outer_state_bytes(w.o[0]);
        saved = malloc(bytes);
        assert_int_equal(pl_outer_save(w.o[0], saved), PL_OK);
        assert_int_equal(pl_outer_load(w.o[3], saved, bytes, NULL), PL_OK);
        assert_int_equal(pl_outer_join(w.o[3]), PL_OK);
        for (int b = 0; b < w.o[3]->buffers; b++) {
            const struct pl_outer_buffer *mine = &w.o[3]->buffer[b], *its = &w.o[0]->buffer[b];
            int is_own = w.algorithm == &pl_outer_demo;
            for (size_t i = 0; i < PL_COUNT(own); i++) is_own |= !strcmp(own[i], mine->name);
            is_own |= w.algorithm == &pl_outer_dgc;
            if (!is_own) assert_memory_equal(mine->at, its->at, mine->bytes);
            for (size_t i = 0; is_own && i < mine->bytes; i++)
                if (((const uint8_t *)mine->at)[i])
                    fail_msg("%s %s", w.algorithm->name, mine->name);
            found += is_own;
        }
        free(saved);
        end(&w);
    }
    assert_int_equal(found, 7); /* DeMo 1, DGC 2, 1-bit Adam 2, PowerSGD 1, SparseLoCo 1 */
}

/* Saved between SEND and RECEIVE of an exchange that then fails: the values sent are still given
 * back, at the rate of that step. */
static void a_state_saved_in_an_exchange_goes_on(void **state)
{
    int tested = 0;
    for (int a = 0; pl_outer_at(a); a++)
        for (int failed = 0; failed < 2; failed++) {
            struct pl_outer_setup s = settings();
            static struct world w;
            struct pl_outer *copy;
            struct pl_outer_message m, in[PEERS];
            static float x[VALUES], g[VALUES];
            size_t bytes;
            uint8_t *saved;
            int next = PL_OUTER_GRADIENT, steps = 0;
            s.warm_up = 5;
            begin(&w, pl_outer_at(a), &s);
            for (int t = 0; t < 12; t++) step(&w);
            while (next == PL_OUTER_GRADIENT && steps++ < 4) {
                memcpy(g, w.x[1], sizeof g);
                next = pl_outer_before_step(w.o[1], w.x[1], g, 0.05);
                if (next == PL_OUTER_STEP) next = pl_outer_after_step(w.o[1], w.x[1]);
            }
            if (next == PL_OUTER_SEND) next = pl_outer_message(w.o[1], &m, w.x[1], g);
            else next = PL_OUTER_GRADIENT;
            if (next != PL_OUTER_RECEIVE) { /* overlapped: nothing is asked of it now */
                end(&w);
                continue;
            }
            for (int k = 0; k < PEERS; k++) {
                in[k] = m;
                in[k].rank = k;
            }
            bytes = pl_outer_state_bytes(w.o[1]);
            saved = malloc(bytes);
            assert_int_equal(pl_outer_save(w.o[1], saved), PL_OK);
            s.rank = 1;
            memcpy(x, w.x[1], sizeof x);
            assert_int_equal(pl_outer_open(&copy, w.algorithm, &s, x, NULL), PL_OK);
            assert_int_equal(pl_outer_load(copy, saved, bytes, NULL), PL_OK);
            for (int k = 0; k < PEERS; k++) { /* the message is the transport's */
                in[k].data = malloc(m.bytes + 1);
                memcpy(in[k].data, m.data, m.bytes);
            }
            memcpy(w.g[1], g, sizeof g);
            next = pl_outer_apply(w.o[1], w.x[1], w.g[1], in, failed ? 0 : s.group);
            assert_int_equal(pl_outer_apply(copy, x, g, in, failed ? 0 : s.group), next);
            assert_memory_equal(x, w.x[1], sizeof x);
            for (int b = 0; b < copy->buffers; b++)
                assert_memory_equal(copy->buffer[b].at, w.o[1]->buffer[b].at,
                                    copy->buffer[b].bytes);
            if (w.algorithm->takes_back) { /* a message that no peer can have sent is not read */
                memset(saved + bytes - m.bytes, 0xff, m.bytes);
                assert_int_equal(pl_outer_load(copy, saved, bytes, NULL), PL_OK);
                assert_true(pl_outer_apply(copy, x, g, in, 0) >= 0);
                assert_int_equal(pl_outer_load(copy, saved, bytes - 1, NULL), PL_EFORMAT);
            }
            for (int k = 0; k < PEERS; k++) free(in[k].data);
            tested++;
            free(saved);
            pl_outer_close(copy);
            end(&w);
        }
    assert_true(tested >= 2 * 9);
}

static void settings_without_sense_are_refused(void **state)
{
    struct pl_outer_setup s = settings();
    static float x[VALUES];
    struct pl_outer *o;
    struct pl_err err;
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
    s.warm_up = 0; /* v of 1-bit Adam */
    assert_int_equal(pl_outer_open(&o, &pl_outer_onebit_adam, &s, x, &err), PL_EUSE);
    s.share = 0;
    assert_int_equal(pl_outer_open(&o, &pl_outer_partial, &s, x, &err), PL_EUSE);
    assert_int_equal(pl_outer_open(&o, &pl_outer_dgc, &s, x, &err), PL_EUSE);
    assert_null(pl_outer_find("none"));
}

/* What is not finite, and counters beyond any run, leave the state as it was. */
static void bad_shared_states_are_refused(void **state)
{
    const struct pl_outer_tensor tensor = { 0, VALUES, 1, { VALUES }, 0 };
    static const char *const names[] = { "sparseloco", "onebit_adam", "delayed_nesterov" };
    struct pl_outer_setup s;
    float x[VALUES];
    pl_outer_defaults(&s);
    s.be = &be;
    s.tensors = &tensor;
    s.count = 1;
    for (int i = 0; i < VALUES; i++) x[i] = (float)i;
    for (size_t a = 0; a < PL_COUNT(names); a++) {
        struct pl_outer *o;
        size_t n;
        uint8_t *good, *bad;
        assert_int_equal(pl_outer_open(&o, pl_outer_find(names[a]), &s, x, NULL), PL_OK);
        n = pl_outer_shared_bytes(o);
        good = malloc(n);
        bad = malloc(n);
        assert_int_equal(pl_outer_save_shared(o, good), PL_OK);
        assert_int_equal(pl_outer_load_shared(o, good, NULL), PL_OK);
        for (size_t at = 0; at + 8 <= n; at += at ? n - 16 : 8) {
            memcpy(bad, good, n);
            memset(bad + at, 0xff, 8); /* NaN, or a counter of 2^64 - 1 */
            assert_int_equal(pl_outer_load_shared(o, bad, NULL), PL_EFORMAT);
            assert_int_equal(pl_outer_save_shared(o, bad), PL_OK);
            assert_memory_equal(bad, good, n);
        }
        free(good), free(bad);
        pl_outer_close(o);
    }
}

/* A peer's entries of a round are sent in their order in the tensor. */
static void parts_are_in_order(void **state)
{
    struct pl_outer_setup s = settings();
    struct pl_outer_message m;
    struct pl_outer *o;
    float x[VALUES], g[VALUES] = { 0 }, sent[VALUES];
    for (int i = 0; i < VALUES; i++) x[i] = (float)i;
    assert_int_equal(pl_outer_open(&o, &pl_outer_partial, &s, x, NULL), PL_OK);
    assert_int_equal(pl_outer_message(o, &m, x, g), PL_OUTER_RECEIVE);
    assert_int_equal(m.bytes, (48 + 2 + 6) * sizeof(float)); /* a fifth of each tensor */
    memcpy(sent, m.data, m.bytes);
    for (size_t i = 1; i < m.bytes / sizeof(float); i++) assert_true(sent[i - 1] < sent[i]);
    pl_outer_close(o);
}

static void settings_by_name(void **state)
{
    static const char *const wrong[] = {
        "H=0",         "H=1.5",
        "H=",          "H",
        "H=2x",        "h=2",
        "=2",          "share=-1",
        "share=2",     "share=nan",
        "coding=E3M0", "coding=",
        "coding",      "a_key_of_more_characters_than_any_has=1",
        "H=1,,mu=0.5",
    };
    static const char *const codings[] = { "coding=float32", "coding=uniform8", "coding=e3m0" };
    struct pl_outer_setup s = settings();
    struct pl_err err;
    for (int k = PL_OUTER_FLOAT32; k <= PL_OUTER_E3M0; k++) {
        assert_int_equal(pl_outer_set_all(&s, codings[k], &err), PL_OK);
        assert_int_equal(s.coding, k);
    }
    assert_int_equal(pl_outer_set_all(&s, "H=7,mu=0.25,coding=uniform8,rank=3,eps=1e-3", &err),
                     PL_OK);
    assert_true(s.H == 7 && s.mu == 0.25 && s.powersgd_rank == 3 && s.adam.eps == 1e-3);
    assert_int_equal(s.coding, PL_OUTER_UNIFORM8);
    for (size_t k = 0; k < PL_COUNT(wrong); k++)
        assert_int_equal(pl_outer_set_all(&s, wrong[k], &err), PL_EUSE);
    assert_string_equal(err.text,
                        "setting '': expected KEY=VALUE with a key of paper/algorithms.md");
    assert_true(s.H == 1 && s.mu == 0.25); /* before the empty setting */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_comes_nearer_and_stays_together),
        cmocka_unit_test(the_formula_is_what_travels),
        cmocka_unit_test(a_saved_state_goes_on),
        cmocka_unit_test(nan_gradient_reaches_no_peer),
        cmocka_unit_test(broken_message_counts_as_silence),
        cmocka_unit_test(few_bits_keep_peers_equal),
        cmocka_unit_test(parameters_are_not_rounded),
        cmocka_unit_test(a_failed_exchange_leaves_all_equal),
        cmocka_unit_test(many_failed_exchanges_do_not_diverge),
        cmocka_unit_test(a_newcomer_has_no_feedback),
        cmocka_unit_test(a_state_saved_in_an_exchange_goes_on),
        cmocka_unit_test(bad_shared_states_are_refused),
        cmocka_unit_test(settings_without_sense_are_refused),
        cmocka_unit_test(parts_are_in_order),
        cmocka_unit_test(settings_by_name),
    };
    pl_backend_ref(&be);
    return cmocka_run_group_tests_name("outer", tests, NULL, NULL);
}
