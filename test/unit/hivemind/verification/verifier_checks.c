/* verifier_checks.c - BTARD's thresholds: which sums, radii, reports and distances count as honest,
 * and which ban their author. Four verifiers without an all-reduce: values and aggregates are made
 * here. [BTARD 3, verifications 1 to 3] */
#include "net/hivemind/verification/verifier.h"
#include "ref/backend.h"
#include "test/unit/unit.h"

#include <math.h>

#define PEERS 4 /* each reduces one part; one of them may be Byzantine */
#define LENGTH 8

static const struct pl_part parts[PEERS] = { { .reducer = 0, .length = LENGTH },
                                             { .tensor = 1, .reducer = 1, .length = LENGTH },
                                             { .tensor = 2, .reducer = 2, .length = LENGTH },
                                             { .tensor = 3, .reducer = 3, .length = LENGTH } };
static struct {
    struct pl_backend be;
    float value[PEERS][PEERS][LENGTH]; /* peer, part */
    float aggregate[PEERS][LENGTH];
    double tau[PEERS];
    int misreports[PEERS]; /* the part of which a peer reports false values; -1: none */
    struct identity me[PEERS];
    struct group group[PEERS];
    struct verifier *r[PEERS];
    size_t self[PEERS];
    uint8_t drawn;
} t;

static const float *aggregate(void *context, size_t part, double *tau)
{
    *tau = t.tau[part];
    return t.aggregate[part];
}

static int add(struct bytes *out, size_t peer, size_t part)
{
    uint8_t number = (uint8_t)part;
    bytes_add(out, &number, 1);
    bytes_add(out, t.value[peer][part], sizeof t.value[peer][part]);
    return out->failed ? PL_ENOMEM : 1;
}
static int sent(void *context, size_t part, struct bytes *out)
{
    return add(out, *(const size_t *)context, part);
}
static int received(void *context, size_t part, size_t peer, struct bytes *out)
{
    return add(out, peer, part);
}

/* A peer that misreports a part has other values in mind when it measures its own. */
static const float *decode(void *context, size_t part, const uint8_t *data, size_t n,
                           float *decoded)
{
    const size_t self = *(const size_t *)context;
    if (n != 1 + LENGTH * sizeof *decoded || data[0] != part) return NULL;
    memcpy(decoded, data + 1, n - 1);
    if (t.misreports[self] == (int)part && !memcmp(decoded, t.value[self][part], n - 1))
        for (int k = 0; k < LENGTH; k++) decoded[k] *= 1 + 1e-5f;
    return decoded;
}
static const float *travel(void *context, size_t part, const float *values, float *decoded)
{
    return memcpy(decoded, values, LENGTH * sizeof *decoded);
}

static int draw(void *context, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = (uint8_t)(t.drawn++ * 37 + 11);
    return PL_OK;
}

static double distance(const float *x, const float *y)
{
    double squares = 0;
    for (int k = 0; k < LENGTH; k++) squares += ((double)x[k] - y[k]) * ((double)x[k] - y[k]);
    return sqrt(squares);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The upper median of the distances from a part's aggregate. */
static double middle(size_t part)
{
    double norm[PEERS];
    for (size_t i = 0; i < PEERS; i++) norm[i] = distance(t.value[i][part], t.aggregate[part]);
    qsort(norm, PEERS, sizeof *norm, ascending);
    return norm[PEERS / 2];
}

/* The part's aggregate becomes CenteredClip's fixed point by its radius. */
static void reduce(size_t part)
{
    struct pl_clip clip = {
        .tau = t.tau[part], .iterations = 5000, .stop_norm = 1e-13, .stop_largest = -1
    };
    struct pl_clip_result result;
    float x[PEERS][LENGTH];
    double v[LENGTH];
    for (size_t i = 0; i < PEERS; i++) memcpy(x[i], t.value[i][part], sizeof x[i]);
    assert_int_equal(t.be.median(t.aggregate[part], x[0], PEERS, LENGTH, 0), PL_OK);
    for (int k = 0; k < LENGTH; k++) v[k] = t.aggregate[part][k];
    assert_int_equal(t.be.centered_clip(v, &result, x[0], NULL, PEERS, LENGTH, &clip), PL_OK);
    for (int k = 0; k < LENGTH; k++) t.aggregate[part][k] = (float)v[k];
}

/* The part's radius is this multiple of the middle distance. */
static void set_radius(size_t part, double factor)
{
    for (int i = 0; i < 200; i++) {
        reduce(part);
        t.tau[part] = factor * middle(part);
    }
    reduce(part);
}

static void make(void)
{
    static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    uint32_t seed = 1;
    memset(&t, 0, sizeof t);
    pl_backend_ref(&t.be);
    for (size_t i = 0; i < PEERS; i++) {
        assert_int_equal(identity_make(&t.me[i], KEY_ED25519, NULL), PL_OK);
        t.self[i] = i;
        t.misreports[i] = -1;
        for (size_t p = 0; p < PEERS; p++)
            for (int k = 0; k < LENGTH; k++) {
                seed = seed * 1664525u + 1013904223u;
                t.value[i][p][k] = (float)((double)(seed >> 8) / 0x1p24 - 0.5);
            }
    }
    for (size_t p = 0; p < PEERS; p++) {
        t.tau[p] = 0.5;
        set_radius(p, 1);
    }
    for (size_t i = 0; i < PEERS; i++) {
        t.group[i].self = i;
        memset(t.group[i].id, 7, DHT_ID_BYTES);
        for (size_t k = 0; k < PEERS; k++)
            assert_int_equal(group_add(&t.group[i], &t.me[k].id, gather, sizeof gather, NULL),
                             PL_OK);
    }
}

/* A whole verification. Returns the peers that honest ones ban, a bit each. */
static unsigned verify(int *status, size_t *opened)
{
    unsigned banned = 0;
    for (size_t i = 0; i < PEERS; i++) {
        struct verifier_view v = { .group = &t.group[i],
                                   .me = &t.me[i],
                                   .count = PEERS,
                                   .self = i,
                                   .parts = parts,
                                   .part_count = PEERS,
                                   .claim = { .samples = 1 },
                                   .random = { .draw = draw },
                                   .context = &t.self[i],
                                   .aggregate = aggregate,
                                   .sent = sent,
                                   .received = received,
                                   .decode = decode,
                                   .travel = travel };
        assert_int_equal(verifier_open(&t.r[i], &v, NULL), PL_OK);
    }
    for (int turn = 0; turn < 100; turn++)
        for (size_t i = 0; i < PEERS; i++) {
            struct verifier *r = t.r[i];
            if (r->over) continue;
            verifier_take(r, 0);
            verifier_step(r);
            verifier_stepped(r, 0);
            for (struct packet *l = r->b.out; l; l = l->next)
                for (size_t to = 0; to < PEERS; to++)
                    if (to != i && (l->to == to || l->to == SIZE_MAX) && !t.r[to]->over)
                        verifier_receive(t.r[to], i, bytes_at(&l->data), bytes_length(&l->data));
            broadcast_sent(&r->b);
        }
    for (size_t i = 0; i < PEERS; i++) {
        assert_true(t.r[i]->over);
        assert_int_equal(t.r[i]->status, t.r[0]->status);
        for (size_t k = 0; k < PEERS; k++)
            if (t.misreports[i] < 0 && t.r[i]->banned[k]) banned |= 1u << k;
    }
    *status = t.r[0]->status;
    *opened = t.r[0]->opened;
    for (size_t i = 0; i < PEERS; i++) {
        verifier_close(t.r[i]);
        group_clear(&t.group[i]);
        identity_clear(&t.me[i]);
    }
    return banned;
}

static void holds(void)
{
    int status;
    size_t opened;
    assert_int_equal(verify(&status, &opened), 0);
    assert_int_equal(status, PL_OK);
}

static void bans(unsigned peers)
{
    int status;
    size_t opened;
    assert_int_equal(verify(&status, &opened), peers);
    assert_int_equal(status, PL_EIO);
}

/* --- the checks ------------------------------------------------------------------------------- */

/* 2: an aggregate that is off by a ten-thousandth of the radius is found; one that is off by an
 * iteration's remainder is not. Any part may be opened. */
static void sums(void **state)
{
    make();
    holds();
    for (size_t p = 0; p < PEERS; p++) {
        make();
        for (int k = 0; k < LENGTH; k++) t.aggregate[p][k] += (float)(1e-4 * t.tau[p]);
        bans(1u << p);
        make();
        t.aggregate[p][0] += (float)(1e-7 * t.tau[p]);
        holds();
    }
}

/* 2: a radius lies between a quarter and twice the middle of the distances. */
static void radii(void **state)
{
    static const struct {
        double factor;
        int good;
    } cases[] = {
        { 1.95, 1 },
        { 2.05, 0 },
        { 0.26, 1 },
        { 0.24, 0 },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        make();
        set_radius(2, cases[i].factor);
        assert_true(fabs(t.tau[2] / middle(2) - cases[i].factor) < 0.01);
        if (cases[i].good) holds();
        else bans(1u << 2);
    }
}

/* 3: the part that is opened is one whose aggregate is more than three lengths of the values away,
 * for more than half; else the one that is drawn. */
static void distances(void **state)
{
    size_t drawn, opened;
    int status;
    make();
    verify(&status, &drawn);
    for (size_t p = 0; p < PEERS; p++)
        for (int far_ones = 2; far_ones <= 3; far_ones++)
            for (int far = 0; far <= 1; far++) {
                make();
                for (int i = 0; i < PEERS; i++)
                    for (int k = 0; k < LENGTH; k++)
                        t.value[i][p][k] = k ? 0 : i < far_ones ? 1 : -2;
                memset(t.aggregate[p], 0, sizeof t.aggregate[p]);
                t.aggregate[p][0] = far ? -2.1f : -1.9f;
                verify(&status, &opened);
                assert_int_equal(opened, far && far_ones == 3 ? p : drawn);
            }
}

/* 1: a report of values that differ by a hundred-thousandth is false, and bans its author: not the
 * reducer, whose sum it makes false, too. */
static void reports(void **state)
{
    for (size_t p = 0; p < PEERS - 1; p++) {
        make();
        t.misreports[PEERS - 1] = (int)p;
        bans(1u << (PEERS - 1));
    }
    /* Two of them, about parts of two reducers: one part is opened. The other reducer's sum is false
     * as well, through no fault of its own. */
    make();
    t.misreports[2] = 0;
    t.misreports[3] = 1;
    bans(1u << 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums),
        cmocka_unit_test(radii),
        cmocka_unit_test(distances),
        cmocka_unit_test(reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
