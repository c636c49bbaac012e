/* pair_lamb.c - one step of LAMB and of Adam against the reference's: what is stored is equal bit
 * for bit, in floats and in codes. */
#include "pair.h"
#include "pairs.h"

#include <math.h>

static const struct {
    size_t n, block;
    enum pl_rule rule;
} cases[] = {
    /* block 0: float moments */
    { 1, 0, PL_RULE_RUN },
    { 37, 0, PL_RULE_RUN },
    { 70003, 0, PL_RULE_RUN },
    { 1, 4096, PL_RULE_RUN },
    { 5000, 256, PL_RULE_LUT },
    { 999, 100, PL_RULE_CUDA },
    { 70001, 4096, PL_RULE_RUN },
    { 30100, 100, PL_RULE_CUDA }, /* hundreds of blocks */
    { 200000, 150000, PL_RULE_RUN },
    { 140003, 3000, PL_RULE_RUN },      /* blocks that do not divide a power of two */
    { 1024 * 4096, 4096, PL_RULE_RUN }, /* the reference run's largest matrices [TTT 3.1] */
};

struct state {
    struct pair_f32 value[2], absmax[2];
    struct pair_u8 code[2];
    struct pl_moments at[2]; /* the reference's, the backend's */
};

/* Moments as they are after some steps. Codes of the second moment must not decode to a negative
 * value, which code 0 of the reference run's code book does. */
static struct state make(struct pair *p, size_t k)
{
    size_t n = cases[k].n, block = cases[k].block;
    struct state st = { .at = { { .block = block, .rule = cases[k].rule },
                                { .block = block, .rule = cases[k].rule } } };
    for (int m = 0; m < 2; m++) {
        if (!block) {
            st.value[m] = m ? pair_uniform(p, n, 0, 1e-4) : pair_normal(p, n, 1e-3);
            for (int s = 0; s < 2; s++) st.at[s].value[m] = st.value[m].at[s];
        } else {
            uint8_t *draws = (uint8_t *)pair_scratch(p, (n + 3) / 4);
            for (size_t i = 0; i < n; i++)
                draws[i] = (uint8_t)(m + (int)pl_rng_below(&p->rng, (uint64_t)(256 - m)));
            st.code[m] = pair_u8_values(p, draws, n);
            st.absmax[m] = pair_uniform(p, pl_blocks(n, block), 1e-5, 1e-3);
            for (int s = 0; s < 2; s++) {
                st.at[s].code[m] = st.code[m].at[s];
                st.at[s].absmax[m] = st.absmax[m].at[s];
            }
        }
    }
    return st;
}

static void compare(struct pair *p, const struct state *st)
{
    for (int m = 0; m < 2; m++) {
        if (st->at[0].value[0]) pair_exact(p, m ? "v" : "m", st->value[m].any);
        else {
            pair_exact(p, m ? "codes of v" : "codes of m", st->code[m].any);
            pair_exact(p, m ? "absmax of v" : "absmax of m", st->absmax[m].any);
        }
    }
}

static void lamb(struct pair *p, size_t k, double decay, int in_place)
{
    size_t n = cases[k].n;
    const struct pl_lamb step = { .lr = 2.5e-3,
                                  .beta1 = 0.9,
                                  .beta2 = 0.96,
                                  .eps = 1e-6,
                                  .decay = decay,
                                  .clamp = 1e4,
                                  .clip = 0.8f,
                                  .chunk = 16 * cases[k].block };
    if (!pair_case(p, "lamb", "n%zu block%zu decay%g%s", n, cases[k].block, decay,
                   in_place ? " in place" : ""))
        return;
    struct state st = make(p, k);
    struct pair_f32 x = pair_normal(p, n, 0.05), g = pair_normal(p, n, 0.01);
    struct pair_f32 u = in_place ? g : pair_poison(p, n), norms = pair_host_f32(p, 3);
    float *scale = pair_scratch(p, n), *three = pair_scratch(p, 3);
    pair_work(p, 0, (cases[k].block ? 28.0 : 40.0) * (double)n);
    PAIR(p, lamb, (struct pl_lamb_norms *)(void *)norms.at[side], x.at[side], u.at[side],
         g.at[side], &st.at[side], n, &step);
    compare(p, &st);
    pair_exact(p, "u", u.any);
    {
        const float *want = pair_result(p, norms.any, 0), *uw = pair_result(p, u.any, 0);
        const float *before = pair_before(p, x.any);
        for (int i = 0; i < 3; i++) three[i] = want[i];
        for (size_t i = 0; i < n; i++)
            scale[i] = fabsf(before[i]) + (float)step.lr * want[2] * fabsf(uw[i]);
    }
    pair_within(p, "norms", norms.any, 1e-6, three);
    pair_within(p, "p", x.any, 0x1p-21, scale);
}

static void adam(struct pair *p, size_t k, double decay)
{
    size_t n = cases[k].n;
    const struct pl_adam step = { .lr = 1e-3,
                                  .beta1 = 0.9,
                                  .beta2 = 0.999,
                                  .eps = 1e-8,
                                  .decay = decay,
                                  .bias1 = 0.271,
                                  .bias2 = 0.003,
                                  .clip = 0.9f };
    if (!pair_case(p, "adam", "n%zu block%zu decay%g", n, cases[k].block, decay)) return;
    struct state st = make(p, k);
    struct pair_f32 x = pair_normal(p, n, 0.05), g = pair_normal(p, n, 0.01);
    pair_work(p, 0, (cases[k].block ? 16.0 : 28.0) * (double)n);
    PAIR(p, adam, x.at[side], g.at[side], &st.at[side], n, &step);
    compare(p, &st);
    pair_of_largest(p, "p", x.any, 0x1p-21); /* updates are smaller than the largest parameter */
}

void pair_lamb(struct pair *p)
{
    for (size_t k = 0; k < PL_COUNT(cases); k++) {
        lamb(p, k, 0.045, 1);
        lamb(p, k, 0, 0);
        adam(p, k, 0.01);
        adam(p, k, 0);
    }
}
