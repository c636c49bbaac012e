/* robust.c - CenteredClip's algebra, and a whole round of BTARD in which exactly the planted
 * Byzantine peers are found. */
#include "ref/btard.h"
#include "ref/rng.h"
#include "test/unit/unit.h"

#include <math.h>

#include <openssl/sha.h>

#define PEERS 9
#define D 40

static struct pl_rng rng;

static int seeded(void **state)
{
    pl_rng_init(&rng, 11, 0);
    return 0;
}

static void normal(float *x, size_t n, double mean)
{
    for (size_t i = 0; i < n; i++) x[i] = (float)(mean + pl_rng_normal(&rng));
}

static double far(const double *v, const float *x)
{
    double sum = 0;
    for (int k = 0; k < D; k++) sum += (v[k] - x[k]) * (v[k] - x[k]);
    return sqrt(sum);
}

/* --- CenteredClip ----------------------------------------------------------------------------- */

static void no_radius_is_the_mean(void **state)
{
    const double weight[PEERS] = { 1, 2, 3, 0, 5, 1, 1, 4, 0.5 };
    const struct pl_clip how = { INFINITY, NULL, 1, -1, -1, 0 };
    struct pl_clip_result result;
    float x[PEERS][D];
    double v[D] = { 0 };
    normal(x[0], PEERS * D, 3);
    assert_int_equal(ref_centered_clip(v, &result, x[0], weight, PEERS, D, &how), PL_OK);
    for (int k = 0; k < D; k++) {
        double mean = 0;
        for (int i = 0; i < PEERS; i++) mean += weight[i] * x[i][k] / 17.5;
        assert_true(fabs(v[k] - mean) < 1e-12);
    }
    assert_int_equal(result.clipped, 0);
}

static void equal_inputs_stay(void **state)
{
    const struct pl_clip how = { 0.1, NULL, 5, 0, -1, 0 };
    struct pl_clip_result result;
    float x[PEERS][D];
    double v[D];
    normal(x[0], D, 0);
    for (int i = 1; i < PEERS; i++) memcpy(x[i], x[0], sizeof x[0]);
    for (int k = 0; k < D; k++) v[k] = x[0][k];
    assert_int_equal(ref_centered_clip(v, &result, x[0], NULL, PEERS, D, &how), PL_OK);
    assert_int_equal(result.iterations, 1); /* and no step: it stops */
    assert_true(result.step == 0 && far(v, x[0]) == 0);
}

/* Inputs are counted as clipped beyond tau, not at it; a NaN is. Either limit ends
 * the iteration, at the limit already. */
static void clipped_and_stopped(void **state)
{
    struct pl_clip how = { 4, NULL, 9, -1, -1, 0 };
    struct pl_clip_result result;
    static const float x[4][1] = { { 4 }, { -4 }, { 5 }, { NAN } };
    double v[1] = { 0 };
    how.iterations = 1;
    assert_int_equal(ref_centered_clip(v, &result, x[0], NULL, 4, 1, &how), PL_OK);
    assert_int_equal(result.clipped, 2);
    assert_true(v[0] == 1 && result.step == 1); /* (4 - 4 + 4 + nothing) / 4 */
    for (int limit = 0; limit < 4; limit++) {   /* of the norm, of the largest; met, just missed */
        struct pl_clip stop = { 100, NULL, 9, -1, -1, 0 };
        static const float near[2][2] = { { 2, 2 }, { 4, 6 } };
        double w[2] = { 0 }, norm = sqrt(9 + 16), least = limit % 2 ? 1 - 1e-9 : 1;
        if (limit < 2) stop.stop_norm = least * norm;
        else stop.stop_largest = least * 4;
        assert_int_equal(ref_centered_clip(w, &result, near[0], NULL, 2, 2, &stop), PL_OK);
        assert_true(w[0] == 3 && w[1] == 4);
        assert_int_equal(result.iterations, limit % 2 ? 2 : 1);
    }
}

static void weights_of_nothing(void **state)
{
    const double none[PEERS] = { 0 };
    const struct pl_clip how = { 1, NULL, 5, -1, -1, 0 };
    struct pl_clip_result result;
    float x[PEERS][D];
    double v[D] = { 0 };
    normal(x[0], PEERS * D, 3);
    assert_int_equal(ref_centered_clip(v, &result, x[0], none, PEERS, D, &how), PL_OK);
    for (int k = 0; k < D; k++) assert_true(v[k] == 0);
}

/* Two Byzantine peers of nine, once far away and once not even numbers: the honest mean stays
 * near. */
static void outliers_do_not_drag(void **state)
{
    const struct pl_clip how = { 3, NULL, 50, -1, -1, 0 };
    const float outliers[] = { 1e6f, -1e30f, NAN, INFINITY };
    for (size_t l = 0; l < PL_COUNT(outliers); l++) {
        struct pl_clip_result result;
        float x[PEERS][D], m[D];
        double v[D];
        normal(x[0], PEERS * D, 1);
        for (int i = 7; i < PEERS; i++)
            for (int k = 0; k < D; k++) x[i][k] = outliers[l];
        assert_int_equal(ref_median(m, x[0], PEERS, D, 0), PL_OK);
        for (int k = 0; k < D; k++) v[k] = m[k];
        assert_int_equal(ref_centered_clip(v, &result, x[0], NULL, PEERS, D, &how), PL_OK);
        for (int k = 0; k < D; k++) assert_true(fabs(v[k] - 1) < 2);
    }
}

/* The last of nine claims the weight of all others and sends a huge message. It counts as one, and
 * moves the mean by less than the honest peers' usual distance. */
static void huge_message_and_claim(void **state)
{
    const float huge[] = { 1e6f, -1e30f };
    float x[PEERS][D];
    double v[D], honest[D], usual, all[PEERS];
    double weight[PEERS] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    normal(x[0], PEERS * D, 1);
    assert_int_equal(pl_clipped_mean(honest, weight, x[0], PEERS, D, PL_CLIP_USUAL,
                                     ref_centered_clip, ref_median),
                     PL_OK);
    usual = pl_usual_distance(all, x[0], honest, PEERS, D);
    assert_true(all[PEERS / 2] == usual && all[0] < usual && usual < all[PEERS - 1]);
    for (size_t l = 0; l < PL_COUNT(huge); l++) {
        double moved = 0;
        for (int k = 0; k < D; k++) x[8][k] = huge[l];
        weight[0] = 0.5; /* a claim below the median stays */
        weight[8] = 1e9;
        assert_int_equal(pl_clipped_mean(v, weight, x[0], PEERS, D, PL_CLIP_USUAL,
                                         ref_centered_clip, ref_median),
                         PL_OK);
        assert_true(weight[0] == 0.5 && weight[1] == 1 && weight[8] == 1);
        for (int k = 0; k < D; k++) moved += (v[k] - honest[k]) * (v[k] - honest[k]);
        assert_true(sqrt(moved) < usual);
        /* a hundredth of the radius: the huge one pulls no harder than that */
        assert_int_equal(pl_clipped_mean(v, weight, x[0], PEERS, D, usual / 100, ref_centered_clip,
                                         ref_median),
                         PL_OK);
        assert_int_equal(ref_median(x[8], x[0], PEERS, D, 0), PL_OK);
        for (int k = 0; k < D; k++) assert_true(fabs(v[k] - x[8][k]) < 5 * usual / 100);
    }
}

static void medians(void **state)
{
    const float x[5][2] = { { 3, NAN }, { 1, 2 }, { -0.0f, 1 }, { 0, NAN }, { 7, 0 } };
    float m[2];
    assert_int_equal(ref_median(m, x[0], 4, 2, 0), PL_OK);
    assert_true(m[0] == 0 && !signbit(m[0]) && m[1] == 2); /* of -0 0 1 3 and 1 2 NaN NaN */
    for (int k = 0; k < 2; k++) { /* the negative zero first, whichever comes first */
        const float zeros[4] = { 3, k ? 0 : -0.0f, k ? -0.0f : 0, 1 };
        assert_int_equal(ref_median(m, zeros, 4, 1, 0), PL_OK);
        assert_true(m[0] == 0 && !signbit(m[0]));
        assert_int_equal(ref_median(m, zeros + 1, 2, 1, 0), PL_OK);
        assert_true(m[0] == 0 && signbit(m[0]));
    }
    assert_int_equal(ref_median(m, x[0], 4, 2, 1), PL_OK);
    assert_true(m[0] == 1 && isnan(m[1]));
    assert_int_equal(ref_median(m, x[0], 5, 2, 0), PL_OK);
    assert_true(m[0] == 1 && m[1] == 2);
}

/* --- BTARD ------------------------------------------------------------------------------------ */

static void sha256(uint8_t hash[PL_HASH_BYTES], const void *data, size_t bytes)
{
    SHA256(data, bytes, hash);
}

static const struct pl_btard btard = { sha256, 1, 12, 1e-3, 400 };

struct round {
    float sent[PEERS][PEERS][D], aggregate[PEERS][D];
    double s[PEERS][PEERS], norm[PEERS][PEERS], sums[PEERS];
    uint8_t seed[PL_HASH_BYTES], byzantine[PEERS][PEERS], shifted[PEERS], recompute[PEERS];
};

/* A round as honest peers play it. */
static struct round *honest(void)
{
    static struct round r;
    float truth[PEERS][D];
    memset(&r, 0, sizeof r);
    normal(truth[0], PEERS * D, 0);
    for (int i = 0; i < PEERS; i++)
        for (int j = 0; j < PEERS; j++)
            for (int k = 0; k < D; k++)
                r.sent[i][j][k] = truth[j][k] + 0.1f * (float)pl_rng_normal(&rng);
    for (int k = 0; k < PL_HASH_BYTES; k++) r.seed[k] = (uint8_t)pl_rng_below(&rng, 256);
    return &r;
}

static void aggregate(struct round *r)
{
    for (int j = 0; j < PEERS; j++) {
        float x[PEERS][D];
        for (int i = 0; i < PEERS; i++) memcpy(x[i], r->sent[i][j], sizeof x[i]);
        assert_int_equal(pl_btard_aggregate(r->aggregate[j], &btard, ref_centered_clip, ref_median,
                                            x[0], PEERS, D),
                         PL_OK);
    }
}

static void report(struct round *r)
{
    for (int j = 0; j < PEERS; j++) {
        double z[D];
        pl_btard_direction(z, D, &btard, r->seed, (uint32_t)j);
        for (int i = 0; i < PEERS; i++)
            pl_btard_report(&r->s[i][j], &r->norm[i][j], &btard, z, r->sent[i][j], r->aggregate[j],
                            D);
    }
}

static void judge(struct round *r)
{
    const struct pl_btard_round round = { PEERS,   D,          r->sent[0][0], r->aggregate[0],
                                          r->s[0], r->norm[0], r->seed };
    struct pl_btard_verdict verdict = { r->byzantine[0], r->sums, r->shifted, r->recompute };
    assert_int_equal(pl_btard_judge(&verdict, &btard, &round), PL_OK);
}

/* Exactly these: attacker (or -1) about part `about`, shifter (or -1). */
static void expect(const struct round *r, int attacker, int about, int shifter)
{
    for (int j = 0; j < PEERS; j++) {
        for (int i = 0; i < PEERS; i++)
            assert_int_equal(r->byzantine[i][j], i == attacker && j == about);
        assert_int_equal(r->shifted[j], j == shifter);
    }
}

static void honest_peers_pass(void **state)
{
    struct round *r = honest();
    aggregate(r);
    report(r);
    judge(r);
    expect(r, -1, -1, -1);
    for (int j = 0; j < PEERS; j++) assert_false(r->recompute[j]);
}

static void cheaters_are_found(void **state)
{
    struct round *r = honest();
    for (int j = 0; j < PEERS; j++) /* consistent with its commitment: only validators see it */
        for (int k = 0; k < D; k++) r->sent[4][j][k] *= -8;
    aggregate(r);
    for (int k = 0; k < D; k++) r->aggregate[6][k] += 0.1f; /* its own part, shifted */
    report(r);
    r->s[2][5] += 0.01; /* a false product */
    judge(r);
    expect(r, 2, 5, 6);
    r->norm[2][5] = NAN;
    r->s[2][5] = NAN; /* no number is false too, and spoils no sum */
    judge(r);
    expect(r, 2, 5, 6);
}

static void votes_for_recomputing(void **state)
{
    double norms[3][3] = { { 1, 13, 13 }, { 1, 13, NAN }, { 13, 1, 1 } };
    int recompute;
    assert_int_equal(pl_btard_votes(&recompute, &btard, norms[0], 3, 0), 1);
    assert_false(recompute);
    assert_int_equal(pl_btard_votes(&recompute, &btard, norms[0], 3, 1), 2);
    assert_true(recompute);
    /* NaN is no small norm */
    assert_int_equal(pl_btard_votes(&recompute, &btard, norms[0], 3, 2), 2);
    assert_true(recompute);
}

/* Half of the votes is no majority; of an even number of inputs the lower median is where it
 * begins. */
static void votes_that_tie(void **state)
{
    static const double norms[2][4] = { { 13, 12, 12, 12 }, { 12, 12, 12, 13 } };
    static const float x[4][1] = { { 1 }, { 2 }, { 1e6f }, { 3e6f } };
    struct pl_btard from_median = btard;
    float aggregate[1];
    int recompute;
    for (int part = 0; part < 2; part++) {
        assert_int_equal(pl_btard_votes(&recompute, &btard, norms[0], 2, part), part == 0);
        assert_false(recompute);
    }
    from_median.iterations = 0;
    assert_int_equal(pl_btard_aggregate(aggregate, &from_median, ref_centered_clip, ref_median,
                                        x[0], 4, 1),
                     PL_OK);
    assert_true(aggregate[0] == 2);
}

static void directions(void **state)
{
    double z[D], y[D], product = 0, length = 0;
    const uint8_t seed[PL_HASH_BYTES] = { 1 };
    pl_btard_direction(z, D, &btard, seed, 0);
    pl_btard_direction(y, D, &btard, seed, 1);
    for (int k = 0; k < D; k++) {
        length += z[k] * z[k];
        product += z[k] * y[k];
    }
    assert_true(fabs(length - 1) < 1e-12 && fabs(product) < 0.9);
}

/* Every peer that is alive is drawn once, and no two rounds are alike. */
static void validators(void **state)
{
    const int alive[5] = { 8, 1, 3, 4, 0 };
    const uint8_t seed[PL_HASH_BYTES] = { 7 };
    int order[2][5];
    uint8_t own[PL_HASH_BYTES];
    for (uint32_t round = 0; round < 2; round++) {
        unsigned seen = 0;
        assert_int_equal(pl_btard_validators(order[round], own, &btard, seed, round, alive, 5),
                         PL_OK);
        for (int k = 0; k < 5; k++) seen |= 1u << order[round][k];
        assert_int_equal(seen, 1u << 8 | 1u << 1 | 1u << 3 | 1u << 4 | 1u << 0);
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_radius_is_the_mean),
        cmocka_unit_test(equal_inputs_stay),
        cmocka_unit_test(clipped_and_stopped),
        cmocka_unit_test(weights_of_nothing),
        cmocka_unit_test(outliers_do_not_drag),
        cmocka_unit_test(huge_message_and_claim),
        cmocka_unit_test(medians),
        cmocka_unit_test(honest_peers_pass),
        cmocka_unit_test(cheaters_are_found),
        cmocka_unit_test(votes_for_recomputing),
        cmocka_unit_test(votes_that_tie),
        cmocka_unit_test(directions),
        cmocka_unit_test(validators),
    };
    return cmocka_run_group_tests(tests, seeded, NULL);
}
