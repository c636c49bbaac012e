/* exchange_verify.c - BTARD's verification in whole groups of exchanges: honest rounds hold, and
 * whoever lies, about whatever, is found. */
#include "exchange_world.h"
#include "../../net/hivemind/exchange_inside.h"
#include "../../net/hivemind/referee_inside.h"

static struct world *the_world;


static void make_verified(struct world *w)
{
    make(w);
    w->verify = 1;
    w->peer[3].weight = 0; /* sends, weighs nothing */
    for (size_t i = 1; i < PEERS; i++)
        for (size_t v = 0; v < VALUES; v++)
            w->peer[i].values[v] = w->peer[0].values[v] + 0.1f * w->peer[i].values[v];
}

/* Who found whom: nobody has changed anything, and everybody but the liars bans these, and nobody
 * else. */
static void is_void(struct world *w, float before[PEERS][VALUES], const char *liars)
{
    for (size_t i = 0; i < PEERS; i++) {
        if (liars[i] == 'L') continue;
        assert_true(w->peer[i].over);
        if (w->peer[i].status != PL_EIO)
            fail_msg("peer %zu: %d %s", i, w->peer[i].status, w->peer[i].err.text);
        assert_memory_equal(w->peer[i].values, before[i], sizeof before[i]);
        for (size_t k = 0; k < PEERS; k++)
            if (lied(&w->peer[i], k) != (liars[k] == 'L'))
                fail_msg("peer %zu of peer %zu: %s", i, k, w->peer[i].err.text);
    }
}

static float before[PEERS][VALUES];

static void honest_rounds_hold(void **state)
{
    (void)state;
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
            /* who has no samples is not drawn */
            assert_int_equal(w.peer[i].x->referee->drawable, PEERS - 1);
            for (size_t k = 0; k < PEERS - 1; k++)
                assert_int_not_equal(w.peer[i].x->referee->order[k], 3);
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
    (void)state;
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

/* The third says to one what it says to nobody else; or something about its values that is not
 * so. */
static int meddled_phase, meddled_to;
static void meddle(struct letter *l)
{
    double s;
    if (l->kind != TOLD || l->from != 2 || l->data[DHT_ID_BYTES] != meddled_phase ||
        (meddled_to >= 0 && l->to != (size_t)meddled_to))
        return;
    if (meddled_phase == REFEREE_REPORT) {
        memcpy(&s, l->data + DHT_ID_BYTES + 1, sizeof s);
        s += 0.01;
        memcpy(l->data + DHT_ID_BYTES + 1, &s, sizeof s);
    } else {
        l->data[DHT_ID_BYTES + 3] ^= 1;
    }
}

static void lies_among_peers(void **state)
{
    static const struct { int phase, to; } cases[] = {
        { REFEREE_COMMIT, 0 }, { REFEREE_REVEAL, -1 }, { REFEREE_REPORT, 0 },
        { REFEREE_ACCUSE, 0 }, { REFEREE_OPEN, 0 },    { REFEREE_AGREE, -1 },
    };
    (void)state;
    for (size_t k = 0; k < PL_COUNT(cases); k++) {
        static struct world w;
        make_verified(&w);
        for (size_t i = 0; i < PEERS; i++) memcpy(before[i], w.peer[i].values, sizeof before[i]);
        w.meddle = meddle;
        meddled_phase = cases[k].phase;
        meddled_to = cases[k].to;
        begin(&w);
        run(&w);
        tick(&w, 9); /* who has found something says no more, and the others' patience ends */
        for (size_t i = 0; i < PEERS; i++) {
            if (i == 2) continue;
            assert_int_equal(w.peer[i].over && w.peer[i].status == PL_EIO, 1);
            assert_memory_equal(w.peer[i].values, before[i], sizeof before[i]);
            if (cases[k].phase == REFEREE_REVEAL) assert_int_equal(lied(&w.peer[i], 2), 1);
        }
        end(&w);
    }
}

/* --- one story for all ------------------------------------------------------------------------ */

/* What somebody says to everybody, and keeps to. */
static void say(struct letter *l, size_t at, const void *data, size_t n)
{
    struct world *w = the_world;
    struct bytes *own = &w->peer[l->from].x->referee->said[l->data[DHT_ID_BYTES]][l->from];
    memcpy(l->data + REFEREE_HEAD + at, data, n);
    memcpy(own->data + own->begin + REFEREE_HEAD + at, data, n);
}

static void one_round(struct world *w, void (*meddle_)(struct letter *l))
{
    for (size_t i = 0; i < PEERS; i++) memcpy(before[i], w->peer[i].values, sizeof before[i]);
    w->meddle = meddle_;
    the_world = w;
    begin(w);
    run(w);
}

/* Reports of other values than it has sent: it can't show what it was committed to. */
static void forget(struct letter *l)
{
    if (l->kind == TOLD && l->from == 2 && l->data[DHT_ID_BYTES] == REFEREE_REVEAL)
        the_world->peer[2].values[10] = the_world->peer[0].values[10] + 1;
}

/* Another number in its report, of a part that the first reduces. */
static void misreport(struct letter *l)
{
    struct told t;
    if (l->kind != TOLD || l->from != 2 || l->data[DHT_ID_BYTES] != REFEREE_REPORT) return;
    t = referee_told(the_world->peer[2].x->referee, 2, 0);
    t.s = l->to ? t.s : t.s + 0.01; /* the first letter changes it for all */
    say(l, 0, &t, sizeof t);
}

/* The third says that the first has misreported of one of its parts; or of one that is not its. */
static size_t accused_part;
static void accuse_falsely(struct letter *l)
{
    uint8_t accusation[5] = { ACCUSES_REPORT, 0, 0, (uint8_t)(accused_part >> 8),
                              (uint8_t)accused_part };
    if (l->kind == TOLD && l->from == 2 && l->data[DHT_ID_BYTES] == REFEREE_ACCUSE)
        say(l, 0, accusation, sizeof accusation);
}

static void who_reports_or_accuses_falsely_is_banned_alone(void **state)
{
    void (*const lies[])(struct letter *) = { forget, misreport, accuse_falsely, accuse_falsely };
    (void)state;
    for (size_t k = 0; k < PL_COUNT(lies); k++) {
        static struct world w;
        make_verified(&w);
        accused_part = 0;
        one_round(&w, NULL); /* only to see who reduces what */
        for (size_t p = 0; k == 2 && p < w.peer[0].x->part_count; p++)
            if (w.peer[0].x->parts[p].owner == 2) accused_part = p;
        end(&w);
        make_verified(&w);
        one_round(&w, lies[k]);
        w.peer[2].values[10] = before[2][10];
        is_void(&w, before, "..L.");
        end(&w);
    }
}

/* A hash of other values than it has sent to the first: that one knows; others have two words. */
static void promise_other(struct letter *l)
{
    const uint8_t other[PL_HASH_BYTES] = { 1 };
    if (l->kind == TOLD && l->from == 2 && l->data[DHT_ID_BYTES] == REFEREE_COMMIT)
        say(l, (PEERS + 1) * PL_HASH_BYTES + 16, other, sizeof other);
}

static void of_two_words_none_counts(void **state)
{
    static struct world w;
    (void)state;
    make_verified(&w);
    one_round(&w, promise_other);
    for (size_t i = 0; i < PEERS; i++) {
        if (i == 2) continue;
        assert_int_equal(w.peer[i].over && w.peer[i].status == PL_EIO, 1);
        assert_memory_equal(w.peer[i].values, before[i], sizeof before[i]);
        assert_int_equal(lied(&w.peer[i], 2), 1);
        assert_int_equal(lied(&w.peer[i], 0), i != 0);
        assert_int_equal(lied(&w.peer[i], i == 1 ? 3 : 1), 0);
    }
    end(&w);
}

/* A reducer moves its aggregates, and a sender reports so that the sums are 0 all the same. */
static void report_for_it(struct letter *l)
{
    const struct referee *r = the_world->peer[3].x->referee;
    if (l->kind != TOLD || l->from < 2) return;
    if (l->from == 3 && l->data[DHT_ID_BYTES] == REFEREE_REPORT) {
        for (size_t p = 0; p < r->v.part_count; p++) {
            struct told t = referee_told(r, 3, p);
            static double z[VALUES];
            static float room[VALUES];
            double tau;
            const float *a = referee_part(r, p, z, &tau);
            if (r->v.parts[p].owner != 2) continue;
            t.s = 0;
            for (size_t i = 0; i < 3; i++) {
                const struct referee_view *v = &the_world->peer[i].x->referee->v;
                struct bytes own = { 0 };
                assert_int_equal(v->sent(v->context, p, &own), 1);
                t.s -= referee_measure(v->decode(v->context, p, bytes_at(&own),
                                                 bytes_length(&own), room),
                                       a, tau, z, v->parts[p].length).s;
                bytes_clear(&own);
            }
            say(l, p * sizeof t, &t, sizeof t);
        }
    } else if (l->from == 2 && l->data[DHT_ID_BYTES] == REFEREE_ACCUSE) {
        say(l, 3 * 5, (const uint8_t[5]){ 0 }, 5);
    }
}

#define PLENTY 80 /* rounds: what is drawn in every third or second comes in one of them */

static void those_who_lie_for_each_other_are_drawn_some_day(void **state)
{
    int found = 0;
    (void)state;
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

static float given[PEERS][VALUES]; /* by everybody's data */

/* As on another machine: not to the bit. The first has no data. */
static int recompute(void *context, const struct peer_id *peer, const struct referee_claim *claim,
                     float *const *tensor)
{
    const struct peer *judge = context;
    (void)claim;
    if (judge->self == 0) return PL_ENOTFOUND;
    for (size_t t = 0, at = 0; t < TENSORS; at += elements[t++])
        for (size_t k = 0; k < elements[t]; k++)
            tensor[t][k] = 1.01f * given[peer->bytes[0]][at + k];
    return PL_OK;
}

static int recompute_or_lie(void *context, const struct peer_id *peer,
                            const struct referee_claim *claim, float *const *tensor)
{
    int rc = recompute(context, peer, claim, tensor);
    if (((struct peer *)context)->self == 2) tensor[0][0] += 100;
    return rc;
}

static void with_validators(struct world *w, exchange_recompute *how)
{
    make_verified(w);
    for (size_t i = 0; i < PEERS; i++) memcpy(given[i], w->peer[i].values, sizeof given[i]);
    w->validation.validators = 2;
    w->validation.recompute = how;
}

static void whose_data_give_otherwise_is_banned(void **state)
{
    static const enum { HONEST, FLIP, TWICE } lies[] = { HONEST, FLIP, TWICE };
    (void)state;
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
    (void)state;
    for (int round = 0; !found && round < PLENTY; round++) {
        static struct world w;
        with_validators(&w, recompute_or_lie);
        one_round(&w, NULL);
        if ((found = w.peer[0].status != PL_OK)) is_void(&w, before, "..L.");
        end(&w);
    }
    assert_true(found);
}

/* So many that nobody would compute them again; or none. */
static void who_claims_what_cannot_be_checked_is_banned(void **state)
{
    static const uint64_t claims[] = { 0, 101, UINT64_MAX };
    (void)state;
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
    struct referee_view v = { .count = 3, .parts = &part, .part_count = 1 };
    struct referee *r;
    (void)state;
    assert_int_equal(referee_open(&r, &v, NULL), PL_ELIMIT);
    assert_null(r);
    v.part_count = REFEREE_PARTS_MAX + 1;
    assert_int_equal(referee_open(&r, &v, NULL), PL_ELIMIT);
}

/* --- absence ---------------------------------------------------------------------------------- */

static void silence_and_absence_are_void(void **state)
{
    static struct world w;
    (void)state;
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
        cmocka_unit_test(lies_among_peers),
        cmocka_unit_test(who_reports_or_accuses_falsely_is_banned_alone),
        cmocka_unit_test(of_two_words_none_counts),
        cmocka_unit_test(those_who_lie_for_each_other_are_drawn_some_day),
        cmocka_unit_test(whose_data_give_otherwise_is_banned),
        cmocka_unit_test(a_validator_that_accuses_falsely_is_banned),
        cmocka_unit_test(who_claims_what_cannot_be_checked_is_banned),
        cmocka_unit_test(parts_fit_into_messages),
        cmocka_unit_test(silence_and_absence_are_void),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
