/* digest.c - digests of parameters: distances that they keep, records of a wrong form, and whose
 * word counts when a group's digests are compared. */
#include "net/hivemind/progress/digest.h"
#include "ref/rng.h"
#include "test/unit/unit.h"

#include <math.h>
#include <string.h>

#define VALUES 5000
#define SECOND 77 /* of them in a second tensor */
#define PEERS 7

static struct pl_rng rng;

static void draw(float *x, double size)
{
    for (int i = 0; i < VALUES; i++) x[i] += (float)(size * pl_rng_normal(&rng));
}

static struct digest digest_of(float *x)
{
    const size_t elements[] = { VALUES - SECOND, SECOND };
    float *tensor[] = { x, x + elements[0] };
    struct digest d;
    digest_take(&d, tensor, elements, 2);
    return d;
}

/* Random differences, one value, and a constant, which sums without signs would take for another
 * distance: 31 for VALUES ones in the first place, not 71. */
static void keeps_distances(void **state)
{
    double mean[3] = { 0 };
    (void)state;
    pl_rng_init(&rng, 1, 0);
    for (int trial = 0; trial < 40; trial++) {
        float x[VALUES] = { 0 }, y[VALUES];
        struct digest d, e;
        draw(x, 1);
        d = digest_of(x);
        assert_true(digest_distance(&d, &d) == 0);
        memcpy(y, x, sizeof x);
        draw(y, 0.1);
        e = digest_of(y);
        mean[0] += digest_distance(&d, &e) / (0.1 * sqrt(VALUES)) / 40;
        memcpy(y, x, sizeof x);
        y[VALUES - 1 - trial] += 10;
        e = digest_of(y);
        mean[1] += digest_distance(&d, &e) / 10 / 40;
        for (int i = 0; i < VALUES; i++) y[i] = x[i] + (float)(trial + 1);
        e = digest_of(y);
        mean[2] += digest_distance(&d, &e) / ((trial + 1) * sqrt(VALUES)) / 40;
    }
    assert_float_equal(mean[0], 1, 0.1);
    assert_float_equal(mean[1], 1, 1e-3);
    assert_float_equal(mean[2], 1, 0.3);
}

static void numbers_that_are_not_finite(void **state)
{
    float x[VALUES] = { 0 };
    struct digest zero = digest_of(x), d;
    (void)state;
    x[3] = NAN;
    d = digest_of(x);
    assert_true(isnan(digest_distance(&d, &zero)));
    x[3] = INFINITY;
    d = digest_of(x);
    assert_true(isnan(digest_distance(&d, &zero)));
}

static void records_are_read_as_written(void **state)
{
    struct digest_record r = { .epoch = 12, .step = 0.5 }, got;
    struct bytes b = { 0 };
    uint8_t changed[512];
    size_t refused = 0;
    (void)state;
    r.peer.length = 34;
    memcpy(r.peer.bytes, "\x12\x20", 2);
    for (int j = 0; j < DIGEST_SUMS; j++) r.x.sum[j] = (float)j - 3.5f;
    assert_int_equal(digest_write(&b, &r), PL_OK);
    assert_int_equal(digest_read(&got, bytes_at(&b), bytes_length(&b), NULL), PL_OK);
    assert_int_equal(got.epoch, 12);
    assert_true(got.step == 0.5 && peer_id_equal(&got.peer, &r.peer));
    assert_memory_equal(&got.x, &r.x, sizeof r.x);
    /* Cut short it is no record. */
    for (size_t n = 0; n < bytes_length(&b); n++)
        refused += digest_read(&got, bytes_at(&b), n, NULL) != PL_OK;
    assert_int_equal(refused, bytes_length(&b));
    /* A step that is infinite or negative, and one sum less. */
    for (int k = 0; k < 2; k++) {
        bytes_clear(&b);
        r.step = k ? -1 : INFINITY;
        assert_int_equal(digest_write(&b, &r), PL_OK);
        assert_int_equal(digest_read(&got, bytes_at(&b), bytes_length(&b), NULL), PL_EPROTO);
    }
    bytes_clear(&b);
    r.step = 1;
    assert_int_equal(digest_write(&b, &r), PL_OK);
    memcpy(changed, bytes_at(&b), bytes_length(&b));
    changed[bytes_length(&b) - sizeof r.x.sum - 1] -= 4; /* the length of the last field */
    assert_int_equal(digest_read(&got, changed, bytes_length(&b) - 4, NULL), PL_EPROTO);
    bytes_clear(&b);
}

/* --- whose word counts ------------------------------------------------------------------------ */

/* All at x, each a step of its own from it. */
static void open_group(struct digest_record r[PEERS], double step)
{
    float x[VALUES] = { 0 };
    pl_rng_init(&rng, 2, 0);
    draw(x, 1);
    memset(r, 0, PEERS * sizeof *r);
    for (int i = 0; i < PEERS; i++) {
        float y[VALUES];
        memcpy(y, x, sizeof x);
        draw(y, step / sqrt(VALUES));
        r[i].x = digest_of(y);
        r[i].step = step;
    }
}

static void move(struct digest_record *r, double by)
{
    for (int j = 0; j < DIGEST_SUMS; j++) r->x.sum[j] += (float)(by / sqrt(DIGEST_SUMS));
}

static size_t diverged(const struct digest_record *r)
{
    size_t bits = 0;
    for (size_t i = 0; i < PEERS; i++) bits |= (size_t)(r[i].has_diverged != 0) << i;
    return bits;
}

static void names_a_peer_that_is_far(void **state)
{
    struct digest_record r[PEERS];
    (void)state;
    open_group(r, 1);
    assert_int_equal(digest_judge(r, PEERS, PEERS), 1);
    assert_int_equal(diverged(r), 0);
    move(&r[4], 3); /* one that made a step or two alone */
    assert_int_equal(digest_judge(r, PEERS, PEERS), 1);
    assert_int_equal(diverged(r), 0);
    move(&r[4], 40);
    r[6].x.sum[0] = NAN;
    assert_int_equal(digest_judge(r, PEERS, PEERS), 1);
    assert_int_equal(diverged(r), 1 << 4 | 1 << 6);
}

/* Its own steps without a mean explain its distance, but no more than that. */
static void allows_steps_alone(void **state)
{
    struct digest_record r[PEERS];
    (void)state;
    open_group(r, 1);
    move(&r[4], 40);
    r[4].alone = 40;
    assert_int_equal(digest_judge(r, PEERS, PEERS), 1);
    assert_int_equal(diverged(r), 0);
    move(&r[4], 40);
    assert_int_equal(digest_judge(r, PEERS, PEERS), 1);
    assert_int_equal(diverged(r), 1 << 4);
}

/* The smallest steps: rounding is not divergence. Nor is it if most have the same bits, as peers
 * that have taken over the state of one of them. */
static void allows_rounding(void **state)
{
    struct digest_record r[PEERS];
    (void)state;
    open_group(r, 1e-7);
    move(&r[2], 2e-2 * sqrt(VALUES));
    assert_int_equal(digest_judge(r, PEERS, PEERS), 1);
    assert_int_equal(diverged(r), 0);
    move(&r[2], 6e-2 * sqrt(VALUES));
    assert_int_equal(digest_judge(r, PEERS, PEERS), 1);
    assert_int_equal(diverged(r), 1 << 2);
}

/* Three of seven agree on a false digest, and claim that steps are tiny, or huge. */
static void minority_decides_nothing(void **state)
{
    static const double steps[] = { 0, 1e300 };
    struct digest_record r[PEERS];
    (void)state;
    for (int k = 0; k < 2; k++) {
        open_group(r, 1);
        for (int i = 0; i < 3; i++) {
            r[i].x = r[0].x;
            move(&r[i], 1000);
            r[i].step = steps[k];
        }
        assert_int_equal(digest_judge(r, PEERS, PEERS), 1);
        assert_int_equal(diverged(r), 7);
    }
}

/* Peers without a digest count against a majority. */
static void needs_most_of_the_group(void **state)
{
    struct digest_record r[PEERS];
    (void)state;
    open_group(r, 1);
    move(&r[0], 1000);
    assert_int_equal(digest_judge(r, 4, PEERS), 0);
    assert_int_equal(digest_judge(r, 5, PEERS), 1);
    assert_int_equal(diverged(r), 1);
    assert_int_equal(digest_judge(r, 0, PEERS), 0);
    /* Two that differ: neither is the majority. */
    open_group(r, 1);
    move(&r[0], 1000);
    assert_int_equal(digest_judge(r, 2, 2), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_distances),
        cmocka_unit_test(numbers_that_are_not_finite),
        cmocka_unit_test(records_are_read_as_written),
        cmocka_unit_test(names_a_peer_that_is_far),
        cmocka_unit_test(allows_steps_alone),
        cmocka_unit_test(allows_rounding),
        cmocka_unit_test(minority_decides_nothing),
        cmocka_unit_test(needs_most_of_the_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
