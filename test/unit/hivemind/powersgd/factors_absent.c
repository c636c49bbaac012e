/* factors_absent.c - a peer that was away comes back: what its error is worth. */
#include "factors_world.h"
#include "ref/rng.h"

#include <math.h>

enum { SIDE_A = 48, SIDE_B = 32, CELLS = SIDE_A * SIDE_B, SWARM = 4 };

/* x of a swarm whose peers have unlike data, by SGD: gradients x - target + noise. */
struct swarm {
    struct factors *f[SWARM];
    float x[CELLS], target[SWARM][CELLS], gradient[SWARM][CELLS];
    struct pl_rng rng;
};

static void make_round(struct swarm *s, int first)
{
    static const double weight[SWARM] = { 1, 1, 1, 1 };
    float *tensor[SWARM];
    float *const *gradient[SWARM];
    for (int k = first; k < SWARM; k++) {
        for (int i = 0; i < CELLS; i++)
            s->gradient[k][i] = s->x[i] - s->target[k][i] + 0.3f * (float)pl_rng_normal(&s->rng);
        tensor[k] = s->gradient[k];
        gradient[k] = &tensor[k];
    }
    play(s->f + first, gradient + first, SWARM - (size_t)first, weight);
    for (int i = 0; i < CELLS; i++) s->x[i] -= 0.05f * s->gradient[first][i];
}

/* |x - the mean target|, the mean of 100 rounds after peer 0 has been away for some. */
static double after_absence(enum factors_feedback feedback, int rounds, int64_t behind)
{
    static struct swarm s;
    static const struct schema_tensor matrix = {
        .type = { .dtype = PL_F32, .dims = 2, .size = { SIDE_A, SIDE_B } }
    };
    const struct factors_options o = { .be = &be,
                                       .tensors = 1,
                                       .schema = &matrix,
                                       .method = method,
                                       .rank = RANK,
                                       .feedback = feedback };
    uint8_t *saved;
    double sum = 0;
    memset(&s, 0, sizeof s);
    pl_rng_init(&s.rng, 1, 0);
    for (int k = 0; k < SWARM; k++) {
        assert_int_equal(factors_open(&s.f[k], &o, NULL), PL_OK);
        for (int i = 0; i < CELLS; i++) s.target[k][i] = (float)pl_rng_normal(&s.rng);
    }
    for (int t = 0; t < 200; t++) make_round(&s, 0);
    assert_non_null(saved = malloc(factors_state_bytes(s.f[0])));
    factors_save(s.f[0], saved);
    for (int t = 0; t < rounds; t++) make_round(&s, 1);
    memset(s.f[0]->matrix[0].M, 0, CELLS * sizeof(float));
    factors_begin_with(s.f[0], s.f[1]->matrix[0].Q, (size_t)SIDE_B * RANK);
    assert_int_equal(factors_load(s.f[0], saved, factors_state_bytes(s.f[0]), behind, NULL), PL_OK);
    for (int t = 0; t < 100; t++) {
        double squares = 0;
        make_round(&s, 0);
        for (int i = 0; i < CELLS; i++) {
            double mean = 0;
            for (int k = 0; k < SWARM; k++) mean += (double)s.target[k][i] / SWARM;
            squares += pow((double)s.x[i] - mean, 2);
        }
        sum += sqrt(squares) / 100;
    }
    for (int k = 0; k < SWARM; k++) factors_close(s.f[k]);
    free(saved);
    return sum;
}

/* Why FACTORS_BEHIND_MAX: its error helps a peer that was away for a short time, and harms later. */
static void error_of_an_absent_peer(void **state)
{
    const int64_t dropped = FACTORS_BEHIND_MAX + 1;
    const double soon = after_absence(FACTORS_GROUP, 2, 2),
                 without = after_absence(FACTORS_GROUP, 2, dropped),
                 late = after_absence(FACTORS_GROUP, 60, 1),
                 late_without = after_absence(FACTORS_GROUP, 60, 60),
                 own = after_absence(FACTORS_OWN, 60, 60);
    printf("after 2 rounds %g, without the error %g; after 60 %g, %g; textbook's %g\n", soon,
           without, late, late_without, own);
    assert_true(soon < 0.6 * without);
    assert_true(late_without < 0.6 * late);
    assert_true(own < late_without);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(error_of_an_absent_peer) };
    pl_backend_ref(&be);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
