/* allreduce_verify.c - BTARD's verification in whole groups of exchanges: honest rounds hold, and
 * every false message is traced to its sender. */
#include "test/unit/hivemind/allreduce/allreduce_world.h"

static struct world *the_world;
static lie_fn *reported;

static void make_verified(struct world *w)
{
    make(w);
    w->verify = 1;
    w->peer[3].weight = 0; /* sends, weighs nothing */
    for (size_t i = 1; i < PEERS; i++)
        for (size_t v = 0; v < VALUES; v++)
            w->peer[i].values[v] = w->peer[0].values[v] + 0.1f * w->peer[i].values[v];
}

/* No values change; all honest peers ban the Byzantine ones, and no other. */
static void is_void(struct world *w, float before[PEERS][VALUES], const char *byzantine)
{
    for (size_t i = 0; i < PEERS; i++) {
        if (byzantine[i] == 'L') continue;
        assert_true(w->peer[i].over);
        if (w->peer[i].status != PL_EIO)
            fail_msg("peer %zu: %d %s", i, w->peer[i].status, w->peer[i].err.text);
        assert_memory_equal(w->peer[i].values, before[i], sizeof before[i]);
        for (size_t k = 0; k < PEERS; k++)
            if (lied(&w->peer[i], k) != (byzantine[k] == 'L'))
                fail_msg("peer %zu of peer %zu: %s", i, k, w->peer[i].err.text);
    }
}

static float before[PEERS][VALUES];

static void honest_rounds_hold(void **state)
{
    for (int plain = 0; plain < 2; plain++) {
        static struct world w;
        make_verified(&w);
        for (size_t t = 0; plain && t < TENSORS; t++) w.method[t] = PL_COMPRESS_NONE;
        begin(&w);
        run(&w);
        for (size_t i = 0; i < PEERS; i++) {
            if (!w.peer[i].over || w.peer[i].status)
                fail_msg("peer %zu: %s", i, w.peer[i].err.text);
            /* to the bit */
            assert_memory_equal(w.peer[i].values, w.peer[0].values, sizeof w.peer[i].values);
            /* a peer without samples is not drawn */
            assert_int_equal(w.peer[i].x->verify.verifier->drawable, PEERS - 1);
            for (size_t k = 0; k < PEERS - 1; k++)
                assert_int_not_equal(w.peer[i].x->verify.verifier->order[k], 3);
        }
        end(&w);
    }
}

/* A reducer that moves what CenteredClip gives, by a hundredth of the values' spread. */
static int shifting_clip(double *v, struct pl_clip_result *result, const float *x,
                         const double *weight, int n, size_t d, const struct pl_clip *clip)
{
    int rc = ref_centered_clip(v, result, x, weight, n, d, clip);
    for (size_t k = 0; k < d; k++) v[k] += 0.001;
    return rc;
}

static void a_reducer_that_shifts_is_banned(void **state)
{
    static struct world w;
    struct pl_backend lying;
    make_verified(&w);
    lying = w.be;
    lying.centered_clip = shifting_clip;
    w.peer[2].be = &lying;
    for (size_t i = 0; i < PEERS; i++) memcpy(before[i], w.peer[i].values, sizeof before[i]);
    begin(&w);
    run(&w);
    is_void(&w, before, "..L.");
    end(&w);
}

static void tell_lies(struct letter *l) { rewrite_letter(l, the_world, reported); }

static void one_round(struct world *w, lie_fn *lie)
{
    for (size_t i = 0; i < PEERS; i++) memcpy(before[i], w->peer[i].values, sizeof before[i]);
    the_world = w;
    reported = lie;
    w->meddle = lie ? tell_lies : NULL;
    begin(w);
    run(w);
}

/* A reducer moves its aggregates, and a sender reports so that the sums are 0 nevertheless; the
 * reducer doesn't mind. */
static enum fate report_for_it(const struct verifier *r, size_t to, int stage, uint8_t *body,
                               size_t *n)
{
    size_t from = r->v.self;
    if (from == 3 && stage == VERIFIER_REPORT) {
        for (size_t p = 0; p < r->v.part_count; p++) {
            struct part_report t;
            static double z[VALUES];
            static float copy[VALUES];
            double tau;
            const float *a = verifier_part(r, p, z, &tau);
            if (r->v.parts[p].reducer != 2) continue;
            memcpy(&t, body + p * sizeof t, sizeof t);
            t.s = 0;
            for (size_t i = 0; i < 3; i++) {
                const struct verifier_view *v = &the_world->peer[i].x->verify.verifier->v;
                struct bytes own = { 0 };
                assert_int_equal(v->sent(v->context, p, &own), 1);
                t.s -= verifier_measure(v->decode(v->context, p, bytes_at(&own), bytes_length(&own),
                                                  copy),
                                        a, tau, z, v->parts[p].length)
                           .s;
                bytes_clear(&own);
            }
            memcpy(body + p * sizeof t, &t, sizeof t);
        }
        return CHANGED;
    }
    if (from != 2 || stage != VERIFIER_ACCUSE) return SAME;
    memset(body + 3 * ACCUSATION_BYTES, 0, ACCUSATION_BYTES);
    return CHANGED;
}

#define PLENTY 80 /* rounds: enough for a draw that comes in every second or third */

static void colluding_reducer_and_sender_are_found(void **state)
{
    int found = 0;
    for (int round = 0; !found && round < PLENTY; round++) {
        static struct world w;
        struct pl_backend lying;
        make_verified(&w);
        w.peer[3].weight = 1;
        lying = w.be;
        lying.centered_clip = shifting_clip;
        w.peer[2].be = &lying;
        one_round(&w, report_for_it);
        if ((found = w.peer[0].status != PL_OK)) is_void(&w, before, "..LL");
        end(&w);
    }
    assert_true(found);
}

/* --- validators ------------------------------------------------------------------------------- */

static float given[PEERS][VALUES]; /* from each peer's data */

/* As on another machine: not to the bit. The first has no data. */
static int recompute(void *context, const struct peer_id *peer, const struct verifier_claim *claim,
                     float *const *tensor)
{
    const struct peer *judge = context;
    size_t of = 0;
    while (!peer_id_equal(peer, &judge->w->peer[of].me.id)) of++;
    if (judge->self == 0) return PL_ENOTFOUND;
    for (size_t t = 0, at = 0; t < TENSORS; at += elements[t++])
        for (size_t k = 0; k < elements[t]; k++) tensor[t][k] = 1.01f * given[of][at + k];
    return PL_OK;
}

static int recompute_or_lie(void *context, const struct peer_id *peer,
                            const struct verifier_claim *claim, float *const *tensor)
{
    int rc = recompute(context, peer, claim, tensor);
    if (((struct peer *)context)->self == 2) tensor[0][0] += 100;
    return rc;
}

static void with_validators(struct world *w, allreduce_recompute *how)
{
    make_verified(w);
    for (size_t i = 0; i < PEERS; i++) memcpy(given[i], w->peer[i].values, sizeof given[i]);
    w->validation.validators = 2;
    w->validation.recompute = how;
}

static void gradients_unlike_their_data_are_banned(void **state)
{
    static const enum { HONEST, FLIP, TWICE } lies[] = { HONEST, FLIP, TWICE };
    for (size_t k = 0; k < PL_COUNT(lies); k++) {
        int found = 0;
        for (int round = 0; !found && round < (lies[k] ? PLENTY : 4); round++) {
            static struct world w;
            with_validators(&w, recompute);
            for (size_t v = 0; lies[k] && v < VALUES; v++)
                w.peer[2].values[v] = (lies[k] == FLIP ? -1 : 2) * given[2][v];
            one_round(&w, NULL);
            if ((found = w.peer[0].status != PL_OK)) is_void(&w, before, "..L.");
            end(&w);
        }
        assert_int_equal(found, lies[k] != HONEST);
    }
}

static void a_validator_that_accuses_falsely_is_banned(void **state)
{
    int found = 0;
    for (int round = 0; !found && round < PLENTY; round++) {
        static struct world w;
        with_validators(&w, recompute_or_lie);
        one_round(&w, NULL);
        if ((found = w.peer[0].status != PL_OK)) is_void(&w, before, "..L.");
        end(&w);
    }
    assert_true(found);
}

/* More samples than any peer would compute again, or none. */
static void uncheckable_sample_counts_are_banned(void **state)
{
    static const uint64_t claims[] = { 0, 101, UINT64_MAX };
    for (size_t k = 0; k < PL_COUNT(claims); k++) {
        static struct world w;
        make_verified(&w);
        w.validation.samples_max = 100;
        w.peer[2].samples = claims[k];
        one_round(&w, NULL);
        is_void(&w, before, "..L.");
        end(&w);
    }
}

static void parts_fit_into_messages(void **state)
{
    const struct pl_part part = { .length = 1 << 20 };
    struct verifier_view v = { .count = 3, .parts = &part, .part_count = 1 };
    struct verifier *r;
    assert_int_equal(verifier_open(&r, &v, NULL), PL_ELIMIT);
    assert_null(r);
    v.part_count = VERIFIER_PARTS_MAX + 1;
    assert_int_equal(verifier_open(&r, &v, NULL), PL_ELIMIT);
}

/* --- absence ---------------------------------------------------------------------------------- */

static void silence_and_absence_are_void(void **state)
{
    static struct world w;
    make_verified(&w);
    for (size_t i = 0; i < PEERS; i++) memcpy(before[i], w.peer[i].values, sizeof before[i]);
    for (size_t v = 0; v < VALUES; v++) w.peer[1].values[v] = NAN; /* to be sent as NONE */
    for (size_t t = 0; t < TENSORS; t++) w.method[t] = PL_COMPRESS_NONE;
    begin(&w);
    run(&w);
    for (size_t i = 0; i < PEERS; i++) {
        if (i == 1) continue;
        assert_int_equal(w.peer[i].over && w.peer[i].status == PL_EIO, 1);
        assert_memory_equal(w.peer[i].values, before[i], sizeof before[i]);
    }
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_rounds_hold),
        cmocka_unit_test(a_reducer_that_shifts_is_banned),
        cmocka_unit_test(colluding_reducer_and_sender_are_found),
        cmocka_unit_test(gradients_unlike_their_data_are_banned),
        cmocka_unit_test(a_validator_that_accuses_falsely_is_banned),
        cmocka_unit_test(uncheckable_sample_counts_are_banned),
        cmocka_unit_test(parts_fit_into_messages),
        cmocka_unit_test(silence_and_absence_are_void),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
