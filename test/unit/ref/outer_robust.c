/* outer_robust.c - CenteredClip in place of a mean of messages: which algorithms take it, how far a
 * peer that sends huge messages moves the others, and the same bits as by ref/centered_clip.c. */
#include "outer_world.h"
#include "ref/partition.h"

/* Peer 3 computes gradients towards a target that is far away. Returns how far honest peers are
 * from the mean of their targets, at most. */
static double attacked(const struct pl_outer_algorithm *a, enum pl_outer_coding coding, double clip)
{
    struct pl_outer_setup s = settings();
    static struct world w;
    double far = 0;
    s.coding = coding;
    s.clip = clip;
    begin(&w, a, &s);
    for (int i = 0; i < VALUES; i++) w.target[3][i] = 1e6f;
    for (int t = 0; t < 120; t++) step(&w);
    if (clip != 0 && keeps_peers_equal(a)) assert_true(all_equal(&w));
    for (int k = 0; k < PEERS - 1; k++) {
        double sum = 0;
        for (int i = 0; i < VALUES; i++) {
            const double d = common_part(&w, k)[i] -
                             (w.target[0][i] + w.target[1][i] + w.target[2][i]) / 3;
            sum += d * d;
        }
        far = fmax(far, sqrt(sum / VALUES));
    }
    end(&w);
    return far;
}

/* The targets' entries are about 1 apart, and so are the peers' changes: a bound of 2 for each entry
 * allows the attacker a pull of their size. Without clipping it is the mean's, a quarter of 1e6. */
static void a_huge_message_moves_little(void **state)
{
    for (int a = 0; pl_outer_at(a); a++)
        for (int coding = PL_OUTER_FLOAT32; coding <= PL_OUTER_E3M0; coding++) {
            const struct pl_outer_algorithm *algorithm = pl_outer_at(a);
            double usual, plain;
            if (!algorithm->takes_clip) continue;
            usual = attacked(algorithm, coding, PL_CLIP_USUAL);
            plain = attacked(algorithm, coding, 0);
            if (!(usual < 2)) fail_msg("%s: moved by %g", algorithm->name, usual);
            if (!(plain > 1e4)) fail_msg("%s: %g unclipped", algorithm->name, plain);
        }
}

/* A radius that nobody exceeds gives the mean, but for the rounding of its last bit. */
static void a_wide_radius_is_the_mean(void **state)
{
    for (int a = 0; pl_outer_at(a); a++) {
        struct pl_outer_setup s = settings();
        static struct world w, v;
        double far = 0;
        if (!pl_outer_at(a)->takes_clip) continue;
        begin(&w, pl_outer_at(a), &s);
        s.clip = 1e6;
        begin(&v, pl_outer_at(a), &s);
        for (int t = 0; t < 40; t++) step(&w), step(&v);
        for (int i = 0; i < VALUES; i++) far = fmax(far, fabs(w.x[0][i] - (double)v.x[0][i]));
        if (!(far < 1e-5)) fail_msg("%s: %g", w.algorithm->name, far);
        end(&w);
        end(&v);
    }
}

static void others_refuse_it(void **state)
{
    int taken = 0;
    for (int a = 0; pl_outer_at(a); a++) {
        struct pl_outer_setup s = settings();
        struct pl_outer *o;
        struct pl_err err = { "" };
        float x[VALUES] = { 0 };
        s.clip = PL_CLIP_USUAL;
        taken += pl_outer_at(a)->takes_clip;
        if (pl_outer_at(a)->takes_clip) continue;
        assert_int_equal(pl_outer_open(&o, pl_outer_at(a), &s, x, &err), PL_EUSE);
        if (!strstr(err.text, pl_outer_at(a)->name)) fail_msg("%s", err.text);
    }
    assert_int_equal(taken, 7);
}

/* --- parts ------------------------------------------------------------------------------------ */

#define PART (PL_PART_BYTES / sizeof(float))
#define LARGE (PART + 5000) /* a part, and the begin of another: a block of E3M0, and a rest */
#define ROWS 4

static uint8_t *message_of(struct pl_outer *o, const float *x)
{
    const size_t bytes = pl_outer_coded_bytes(o->setup.coding, LARGE);
    assert_int_equal(pl_outer_encode(o, x, LARGE), PL_OK);
    return memcpy(malloc(bytes), o->out, bytes);
}

/* x = the values of one message. */
static void decoded(struct pl_outer *o, float *x, uint8_t *data)
{
    const size_t bytes = pl_outer_coded_bytes(o->setup.coding, LARGE);
    const double clip = o->setup.clip;
    struct pl_outer_message in = { data, bytes, 1, 0 };
    double total;
    o->setup.clip = 0;
    assert_int_equal(pl_outer_mean(o, x, &total, &in, 1, bytes, 0, LARGE), PL_OK);
    o->setup.clip = clip;
}

/* Part after part, from what the messages stand for; then coded again. */
static void expect(struct pl_outer *o, float *want, float *const *row, const double *weight)
{
    float *x = malloc(ROWS * PART * sizeof *x);
    double *v = malloc(PART * sizeof *v);
    uint8_t *again;
    for (size_t first = 0; first < LARGE; first += PART) {
        const size_t d = LARGE - first < PART ? LARGE - first : PART;
        double claim[ROWS];
        memcpy(claim, weight, sizeof claim);
        for (int k = 0; k < ROWS; k++) memcpy(x + (size_t)k * d, row[k] + first, d * sizeof *x);
        assert_int_equal(pl_clipped_mean(v, claim, x, ROWS, d, o->setup.clip, ref_centered_clip,
                                         ref_median),
                         PL_OK);
        for (size_t i = 0; i < d; i++) want[first + i] = (float)v[i];
    }
    again = message_of(o, want);
    decoded(o, want, again);
    free(again);
    free(x);
    free(v);
}

/* The last of five messages has a NaN: it is left out. The peers of the others count as 1, 2, 3 and
 * 3, since a claim of 9 is above the median. */
static void parts_have_radii_of_their_own(void **state)
{
    static const double weight[ROWS] = { 1, 2, 3, 9 };
    const struct pl_outer_tensor tensor = { .n = LARGE, .axes = 1, .shape = { LARGE } };
    float *row[ROWS], *want = malloc(LARGE * sizeof *want), *mean = malloc(LARGE * sizeof *mean);
    float *zeros = calloc(LARGE, sizeof *zeros);
    struct pl_rng rng;
    pl_rng_init(&rng, 7, 0);
    for (int k = 0; k < ROWS; k++) row[k] = malloc(LARGE * sizeof *row[k]);
    for (int coding = PL_OUTER_FLOAT32; coding <= PL_OUTER_E3M0; coding++) {
        struct pl_outer_message in[ROWS + 1];
        struct pl_outer_setup s = settings();
        struct pl_outer *o;
        const float nan[2] = { NAN, NAN };
        const size_t bytes = pl_outer_coded_bytes(coding, LARGE);
        double total;
        s.tensors = &tensor;
        s.count = s.fragments = 1;
        s.coding = coding;
        s.clip = PL_CLIP_USUAL;
        assert_int_equal(pl_outer_open(&o, &pl_outer_diloco, &s, zeros, NULL), PL_OK);
        for (int k = 0; k < ROWS; k++) {
            /* the second part's values are a thousand times larger */
            for (size_t i = 0; i < LARGE; i++)
                row[k][i] = (float)pl_rng_normal(&rng) * (i < PART ? 1 : 1000);
            in[k] = (struct pl_outer_message){ message_of(o, row[k]), bytes, weight[k], k };
            decoded(o, row[k], in[k].data);
        }
        in[ROWS] = in[0];
        in[ROWS].data = memcpy(malloc(bytes), in[0].data, bytes);
        memcpy(in[ROWS].data + (coding == PL_OUTER_FLOAT32 ? bytes - sizeof nan : 0), nan,
               sizeof nan);
        assert_int_equal(pl_outer_mean(o, mean, &total, in, ROWS + 1, bytes, 0, LARGE), PL_OK);
        expect(o, want, row, weight);
        assert_memory_equal(mean, want, LARGE * sizeof *mean);
        assert_true(total == 9);
        for (int k = 0; k <= ROWS; k++) free(in[k].data);
        pl_outer_close(o);
    }
    for (int k = 0; k < ROWS; k++) free(row[k]);
    free(want), free(mean), free(zeros);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_huge_message_moves_little),
        cmocka_unit_test(a_wide_radius_is_the_mean),
        cmocka_unit_test(others_refuse_it),
        cmocka_unit_test(parts_have_radii_of_their_own),
    };
    pl_backend_ref(&be);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
