/* lab_swarm.c - properties of the swarm on a virtual clock: the time of an all-reduce, the bytes
 * sent, results determined by the seed, a saved swarm that continues, and peers that leave and come
 * back without disagreement among the others. Each is tested with every algorithm.
 * One long file: all tests share a model and its setups. */
#include "runtime/lab/lab_swarm_internal.h"
#include "ref/rng.h"
#include "runtime/backend_open.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define VALUES 240
#define EVENTS 20000

static struct pl_backend be;
static const struct pl_outer_tensor tensors[2] = {
    { .offset = 0, .n = 192, .axes = 2, .shape = { 16, 12 }, .fragment = 0 },
    { .offset = 192, .n = 48, .axes = 1, .shape = { 48 }, .fragment = 1 },
};

/* --- a model whose loss is a distance --------------------------------------------------------- */

static float target_of(int peer, int i)
{
    struct pl_rng rng;
    pl_rng_init(&rng, (uint64_t)i, 100 + (uint64_t)peer);
    return 1 + (float)pl_rng_normal(&rng);
}

static int gradient(void *context, float *g, double *loss, const float *x, int peer, uint64_t step,
                    struct pl_err *err)
{
    (void)context, (void)err, (void)step;
    *loss = 0;
    for (int i = 0; i < VALUES; i++) {
        g[i] = x[i] - target_of(peer, i);
        *loss += 0.5 * g[i] * g[i];
    }
    return PL_OK;
}
/* An inner optimizer with a state: the number of its steps, which slows it down. */
static uint64_t inner[2][LAB_PEERS_MAX];
static int inner_step(void *context, int peer, float *x, float *g, double lr)
{
    uint64_t t = ((uint64_t *)context)[peer]++;
    for (int i = 0; i < VALUES; i++) x[i] -= (float)(lr / (1 + 0.01 * (double)t)) * g[i];
    return PL_OK;
}
static int held_out(void *context, double *loss, const float *x, struct pl_err *err)
{
    (void)context, (void)err;
    *loss = 0;
    for (int i = 0; i < VALUES; i++) *loss += 0.5 * (x[i] - 1) * (x[i] - 1);
    return PL_OK;
}
static size_t state_bytes(void *context, int peer)
{
    (void)context, (void)peer;
    return sizeof(uint64_t);
}
static int save(void *context, int peer, uint8_t *out)
{
    memcpy(out, (uint64_t *)context + peer, sizeof(uint64_t));
    return PL_OK;
}
static int load(void *context, int peer, const uint8_t *in)
{
    memcpy((uint64_t *)context + peer, in, sizeof(uint64_t));
    return PL_OK;
}

static struct lab_model model_of(int which)
{
    memset(inner[which], 0, sizeof inner[which]);
    return (struct lab_model){ inner[which], &be,        tensors,  2,           VALUES, 2,
                               gradient,     inner_step, held_out, state_bytes, save,   load };
}

static const float start[VALUES];

/* --- a run ------------------------------------------------------------------------------------ */

struct seen {
    struct lab_event event[EVENTS];
    int count;
};

static int note(void *context, const struct lab_event *e, struct pl_err *err)
{
    struct seen *seen = context;
    (void)err;
    assert_true(seen->count < EVENTS);
    seen->event[seen->count++] = *e;
    return PL_OK;
}

/* The bytes between `kind` and `from` are padding that is never written; there is no other
 * padding. */
static int are_same(const struct lab_event *a, const struct lab_event *b, int n)
{
    for (int i = 0; i < n; i++)
        if (a[i].kind != b[i].kind ||
            memcmp(&a[i].from, &b[i].from, sizeof a[i] - offsetof(struct lab_event, from)))
            return 0;
    return 1;
}

static struct lab_setup setup_of(const struct pl_outer_algorithm *algorithm, int peers)
{
    struct lab_setup s = { .algorithm = algorithm,
                           .peers = peers,
                           .straggle_factor = 1,
                           .lr = 0.1,
                           .steps = 40,
                           .evaluate = 8,
                           .seed = 3 };
    pl_outer_defaults(&s.outer);
    s.outer.H = 4;
    s.outer.fragments = 2;
    s.outer.tau = 1;
    s.outer.topk = 6;
    s.outer.chunk = 8;
    s.outer.share = 0.2;
    s.outer.powersgd_rank = 2;
    s.outer.warm_up = 10;
    s.outer.nu = 0.4;
    s.outer.gamma = 0.5;
    s.outer.N = peers;
    s.outer.limit = 10;
    s.outer.adam.beta2 = 0.9;
    if (!strcmp(algorithm->name, "onebit_adam")) s.lr = 0.03;
    for (int k = 0; k < peers; k++) {
        s.link[k] = (struct lab_link){ 1000, 4000, 0.01, 0 };
        s.sample_s[k] = 0.5;
    }
    return s;
}

static struct lab_swarm *open_swarm(const struct lab_setup *setup, const struct lab_model *model,
                                    struct seen *seen)
{
    struct lab_swarm *s;
    struct pl_err err;
    if (seen) seen->count = 0;
    if (lab_swarm_open(&s, setup, model, start, seen ? note : NULL, seen, &err))
        fail_msg("%s: %s", setup->algorithm->name, err.text);
    return s;
}

static void run_to_end(struct lab_swarm *s)
{
    struct pl_err err;
    int rc;
    while ((rc = lab_swarm_advance(s, &err)) == PL_EAGAIN) {}
    if (rc) fail_msg("%s", err.text);
}

static double all_sent(const struct lab_swarm *s, int peers)
{
    double bytes = 0;
    for (int k = 0; k < peers; k++)
        bytes += lab_swarm_traffic(s, k)->sent + lab_swarm_traffic(s, k)->cancelled;
    return bytes;
}

/* --- laws ------------------------------------------------------------------------------------- */

/* Two phases, each of (R - 1) / R of the message over the uplink, and two latencies of two ends. */
static void butterfly_takes_the_computed_time(void **state)
{
    static struct seen seen;
    (void)state;
    for (int R = 2; R <= 8; R++) {
        struct lab_setup setup = setup_of(pl_outer_find("gradients"), R);
        struct lab_model model = model_of(0);
        double bytes = 4 * VALUES, want = 2 * (bytes * (R - 1) / R / 1000 + 2 * 0.01);
        double part = 4 / bytes; /* parts are whole bytes */
        struct lab_swarm *s = open_swarm(&setup, &model, &seen);
        int found = 0;
        run_to_end(s);
        for (int i = 0; i < seen.count; i++) {
            const struct lab_event *e = &seen.event[i];
            if (e->kind != LAB_EXCHANGED) continue;
            found++;
            assert_int_equal(e->members, R);
            if (fabs(e->time - e->from - want) > part * R * want)
                fail_msg("R %d: %g s, not %g", R, e->time - e->from, want);
        }
        assert_int_equal(found, setup.steps - 1);
        /* A second of computing, then the exchange: the last step has none. */
        assert_true(fabs(lab_swarm_time(s) - (40 + 39 * want)) < 0.01 * 39 * want);
        for (int i = seen.count; i-- > 0;)
            if (seen.event[i].kind == LAB_EVALUATED) {
                assert_true(fabs(seen.event[i].utilization - 40 / lab_swarm_time(s)) < 1e-9);
                break;
            }
        lab_swarm_close(s);
    }
}

/* 40 more steps send 40 times the algorithm's formula, times the transport's factor: that of `train`,
 * or of an all-reduce wherever a mean is all that is needed. */
static void bytes_are_those_of_the_formula(void **state)
{
    enum { R = 4 };
    (void)state;
    for (int all_reduce = 0; all_reduce < 2; all_reduce++)
        for (int a = 0; pl_outer_at(a); a++) {
            struct lab_setup setup = setup_of(pl_outer_at(a), R);
            struct pl_outer_setup outer = setup.outer;
            struct pl_outer *o;
            double sent[2], want;
            setup.all_reduce = all_reduce;
            for (int k = 0; k < R; k++) setup.link[k].up = setup.link[k].down = 1e6;
            for (int longer = 0; longer < 2; longer++) {
                struct lab_model model = model_of(0);
                struct lab_swarm *s;
                setup.steps = longer ? 120 : 80;
                s = open_swarm(&setup, &model, NULL);
                run_to_end(s);
                sent[longer] = all_sent(s, R);
                lab_swarm_close(s);
            }
            outer.be = &be;
            outer.tensors = tensors;
            outer.count = 2;
            outer.peers = R;
            assert_int_equal(pl_outer_open(&o, setup.algorithm, &outer, start, NULL), PL_OK);
            want = 40 * R * pl_outer_bytes_per_step(o);
            switch (setup.algorithm->exchange) {
            case PL_OUTER_MEAN:
                want *= setup.algorithm->is_reduced || all_reduce ? 2.0 * (R - 1) / R : R - 1;
                break;
            case PL_OUTER_GATHER:
            case PL_OUTER_ONE: want *= R - 1; break;
            case PL_OUTER_GROUP: break; /* the formula counts the partners */
            }
            if (fabs(sent[1] - sent[0] - want) > 1e-9 * want)
                fail_msg("%s: %g bytes, not %g", setup.algorithm->name, sent[1] - sent[0], want);
            pl_outer_close(o);
        }
}

/* Mean squared distance of the peers' parameters from their mean, all values together. */
static double spread(const struct lab_swarm *s, int peers)
{
    double squares = 0;
    for (int i = 0; i < VALUES; i++) {
        double mean = 0;
        for (int k = 0; k < peers; k++) mean += (double)s->peer[k].x[i] / peers;
        for (int k = 0; k < peers; k++) squares += pow((double)s->peer[k].x[i] - mean, 2) / peers;
    }
    return squares;
}

/* r random groups of N peers leave (r - 1) / (N - 1) of the squared differences: the variance of a mean
 * of N / r drawn without putting back. That holds for the gradients of the first step; and for all
 * that follow, as the parameters are averaged as well, not more than one step's differences stay. */
static void groups_leave_a_part_of_the_differences(void **state)
{
    enum { N = 16, GROUPS = 4 };
    struct lab_setup setup = setup_of(pl_outer_find("gradients"), N);
    struct lab_model model = model_of(0);
    const double want = (GROUPS - 1.0) / (N - 1), lr = setup.lr;
    struct lab_swarm *s;
    struct pl_err err;
    double alone = 0, left, most = 0;
    (void)state;
    setup.groups = GROUPS;
    s = open_swarm(&setup, &model, NULL);
    for (int i = 0; i < VALUES; i++) {
        double mean = 0;
        for (int k = 0; k < N; k++) mean += (double)target_of(k, i) / N;
        for (int k = 0; k < N; k++) alone += pow(lr * ((double)target_of(k, i) - mean), 2) / N;
    }
    while (s->peer[0].clock.applied < 1) assert_int_equal(lab_swarm_advance(s, &err), PL_EAGAIN);
    left = spread(s, N) / alone;
    if (fabs(left / want - 1) > 0.2) fail_msg("%g of the differences, not %g", left, want);
    while (lab_swarm_advance(s, &err) == PL_EAGAIN) most = fmax(most, spread(s, N) / alone);
    if (most > 2 * want) fail_msg("%g of a step's differences come together", most);
    lab_swarm_close(s);
}

static void groups_that_mean_nothing_are_refused(void **state)
{
    static const char *const algorithm[] = { "diloco", "powersgd", "gradients", "gradients" };
    static const int groups[] = { 2, 2, 3, 4 };
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct lab_setup setup = setup_of(pl_outer_find(algorithm[i]), 4);
        struct lab_model model = model_of(0);
        struct lab_swarm *s;
        setup.groups = groups[i];
        assert_int_equal(lab_swarm_open(&s, &setup, &model, start, NULL, NULL, NULL), PL_EUSE);
    }
}

/* Uneven links and speeds, stragglers, failures, and a peer that leaves twice. */
static struct lab_setup eventful(const struct pl_outer_algorithm *algorithm)
{
    struct lab_setup s = setup_of(algorithm, 4);
    s.straggle_share = 0.1;
    s.straggle_factor = 3;
    s.fail_share = 0.1;
    for (int k = 0; k < 4; k++) {
        s.link[k].up *= 1 + k;
        s.sample_s[k] *= 1 + 0.1 * k;
    }
    s.leaves = 3;
    s.leave[0] = (struct lab_leave){ 2, 9.7, 15 };
    s.leave[1] = (struct lab_leave){ 0, 18.2, 23 };
    s.leave[2] = (struct lab_leave){ 2, 30.1, INFINITY };
    return s;
}

static int keeps_peers_equal(const struct pl_outer_algorithm *a)
{
    return strcmp(a->name, "eager") && strcmp(a->name, "noloco") && strcmp(a->name, "partial");
}

static void a_seed_decides_everything(void **state)
{
    static struct seen first, second;
    (void)state;
    for (int a = 0; pl_outer_at(a); a++) {
        struct lab_setup setup = eventful(pl_outer_at(a));
        struct lab_model model = model_of(0);
        struct lab_swarm *s = open_swarm(&setup, &model, &first), *t;
        int differs;
        run_to_end(s);
        model = model_of(0);
        t = open_swarm(&setup, &model, &second);
        run_to_end(t);
        assert_int_equal(first.count, second.count);
        assert_true(are_same(first.event, second.event, first.count));
        assert_memory_equal(lab_swarm_common(s), lab_swarm_common(t), VALUES * sizeof(float));
        lab_swarm_close(t);
        setup.seed++;
        model = model_of(0);
        t = open_swarm(&setup, &model, &second);
        run_to_end(t);
        differs = lab_swarm_time(s) < lab_swarm_time(t) || lab_swarm_time(s) > lab_swarm_time(t);
        assert_true(differs);
        lab_swarm_close(t);
        lab_swarm_close(s);
    }
}

/* The loss falls, and each peer's activities fill the whole time of the run. */
static void each_trains_and_time_adds_up(void **state)
{
    static struct seen seen;
    (void)state;
    for (int a = 0; pl_outer_at(a); a++) {
        struct lab_setup setup = eventful(pl_outer_at(a));
        struct lab_model model = model_of(0);
        struct lab_swarm *s;
        double spent[4] = { 0 }, first = NAN, last = NAN;
        setup.steps = 120;
        s = open_swarm(&setup, &model, &seen);
        run_to_end(s);
        for (int i = 0; i < seen.count; i++) {
            const struct lab_event *e = &seen.event[i];
            if (e->kind == LAB_SPENT) spent[e->peer] += e->time - e->from;
            if (e->kind != LAB_EVALUATED) continue;
            if (isnan(first)) first = e->loss;
            last = e->loss;
        }
        for (int k = 0; k < 4; k++)
            if (fabs(spent[k] - lab_swarm_time(s)) > 1e-6)
                fail_msg("%s: peer %d, %g of %g s", setup.algorithm->name, k, spent[k],
                         lab_swarm_time(s));
        if (!(last < 0.8 * first)) fail_msg("%s: %g of %g", setup.algorithm->name, last, first);
        lab_swarm_close(s);
    }
}

/* Exchanges that a peer has applied; -1: it is away, or has no state yet. */
static int64_t applied_by(const struct lab_swarm *s, int peer)
{
    return lab_is_active(s, peer) ? (int64_t)s->peer[peer].clock.applied : -1;
}

/* Memory does not grow with the run: what every peer has applied is freed. */
static void messages_end_when_all_have_applied_them(void **state)
{
    (void)state;
    for (int a = 0; pl_outer_at(a); a++) {
        struct lab_setup setup = setup_of(pl_outer_at(a), 3);
        struct lab_model model = model_of(0);
        struct lab_swarm *s = open_swarm(&setup, &model, NULL);
        run_to_end(s);
        uint64_t least = UINT64_MAX;
        for (int k = 0; k < 3; k++)
            if (s->peer[k].clock.applied < least) least = s->peer[k].clock.applied;
        assert_true(least > 0);
        for (size_t i = 0; i < s->exchanges; i++)
            if (s->exchange[i]->plain.number < least && !s->exchange[i]->plain.under_way)
                fail_msg("%s: %llu is kept, all have applied %llu", setup.algorithm->name,
                         (unsigned long long)s->exchange[i]->plain.number,
                         (unsigned long long)least);
        lab_swarm_close(s);
    }
}

/* Peers that have applied as many exchanges have the same parameters, bit for bit, at any moment,
 * whenever a peer leaves and comes back. */
static void peers_agree_while_others_leave_and_return(void **state)
{
    (void)state;
    for (int a = 0; pl_outer_at(a); a++)
        for (int moment = 0; moment < 40; moment++) {
            struct lab_setup setup = setup_of(pl_outer_at(a), 4);
            struct lab_model model = model_of(0);
            struct lab_swarm *s;
            struct pl_err err;
            int equal = 0;
            if (!keeps_peers_equal(pl_outer_at(a))) continue;
            for (int k = 0; k < 4; k++) setup.link[k].up *= 1 + k;
            setup.leaves = 1;
            setup.leave[0] = (struct lab_leave){ 2, 3.9 + 0.13 * moment, 14 + 0.1 * moment };
            s = open_swarm(&setup, &model, NULL);
            while (lab_swarm_advance(s, &err) == PL_EAGAIN)
                for (int j = 0; j < 4; j++)
                    for (int k = 0; k < j; k++) {
                        int64_t applied = applied_by(s, k);
                        if (applied < 1 || applied != applied_by(s, j)) continue;
                        equal++;
                        if (memcmp(lab_swarm_agreed(s, j), lab_swarm_agreed(s, k), sizeof start))
                            fail_msg("%s, moment %d: peers %d and %d differ at %g s",
                                     setup.algorithm->name, moment, j, k, lab_swarm_time(s));
                    }
            if (setup.algorithm->exchange != PL_OUTER_ONE) assert_true(equal > 50);
            lab_swarm_close(s);
        }
}

static void goes_on(const struct lab_setup *original)
{
    static struct seen first, second;
    for (int at = 1; at < 400; at += 57) {
        struct lab_setup setup = *original;
        struct lab_model one = model_of(0), other = model_of(1);
        struct lab_swarm *s = open_swarm(&setup, &one, &first);
        struct lab_swarm *t = open_swarm(&setup, &other, &second);
        struct pl_err err;
        FILE *file = tmpfile();
        int rc = PL_EAGAIN, seen;
        for (int i = 0; i < at && rc == PL_EAGAIN; i++) rc = lab_swarm_advance(s, &err);
        if (rc == PL_EAGAIN) {
            seen = first.count;
            assert_int_equal(lab_swarm_save(s, file), PL_OK);
            rewind(file);
            if (lab_swarm_load(t, file, &err)) fail_msg("%s", err.text);
            run_to_end(s);
            run_to_end(t);
            if (first.count - seen != second.count ||
                !are_same(first.event + seen, second.event, second.count))
                fail_msg("%s goes on otherwise after %d", setup.algorithm->name, at);
            assert_memory_equal(lab_swarm_common(s), lab_swarm_common(t), VALUES * sizeof(float));
        }
        rewind(file);
        lab_swarm_save(s, file);
        assert_int_equal(fflush(file), 0);
        rewind(file);
        fseek(file, 5000, SEEK_SET); /* the middle of something */
        assert_int_equal(lab_swarm_load(t, file, &err), PL_EFORMAT);
        fclose(file);
        lab_swarm_close(s);
        lab_swarm_close(t);
    }
}

static void a_saved_swarm_goes_on(void **state)
{
    (void)state;
    for (int a = 0; pl_outer_at(a); a++) {
        struct lab_setup setup = eventful(pl_outer_at(a));
        goes_on(&setup);
        setup.groups = 2;
        if (setup.algorithm->sends_gradients && setup.algorithm->takes_clip) goes_on(&setup);
    }
}

static void a_swarm_without_peers_says_so(void **state)
{
    struct lab_setup setup = setup_of(pl_outer_find("diloco"), 2);
    struct lab_model model = model_of(0);
    struct lab_swarm *s;
    struct pl_err err;
    int rc;
    (void)state;
    setup.leaves = 2;
    setup.leave[0] = (struct lab_leave){ 0, 3.3, INFINITY };
    setup.leave[1] = (struct lab_leave){ 1, 3.4, INFINITY };
    s = open_swarm(&setup, &model, NULL);
    while ((rc = lab_swarm_advance(s, &err)) == PL_EAGAIN) {}
    assert_int_equal(rc, PL_EUSE);
    lab_swarm_close(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(butterfly_takes_the_computed_time),
        cmocka_unit_test(bytes_are_those_of_the_formula),
        cmocka_unit_test(groups_leave_a_part_of_the_differences),
        cmocka_unit_test(groups_that_mean_nothing_are_refused),
        cmocka_unit_test(a_seed_decides_everything),
        cmocka_unit_test(each_trains_and_time_adds_up),
        cmocka_unit_test(peers_agree_while_others_leave_and_return),
        cmocka_unit_test(messages_end_when_all_have_applied_them),
        cmocka_unit_test(a_saved_swarm_goes_on),
        cmocka_unit_test(a_swarm_without_peers_says_so),
    };
    if (pl_backend_open(&be, "ref", NULL)) return 1;
    return cmocka_run_group_tests_name("lab_swarm", tests, NULL, NULL);
}
