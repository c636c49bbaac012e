/* optimizer_moments.cuh - one block of 8-bit moments: decode, update by a gradient, encode. For
 * lamb.cu and adam.cu. */
#ifndef PL_CUDA_OPTIMIZER_MOMENTS_CUH
#define PL_CUDA_OPTIMIZER_MOMENTS_CUH

#include "../ref/moments.h"

#include "quant.cuh"

struct decay_rates {
    float b1, c1, b2, c2, clip;
};

static inline struct decay_rates rates_of(double beta1, double beta2, float clip)
{
    struct decay_rates r = { (float)beta1, (float)(1 - beta1), (float)beta2, (float)(1 - beta2),
                             clip };
    return r;
}

/* Updates m and v by one gradient, with the reference's order of operations. */
static __device__ void advance(float *m, float *v, float g, struct decay_rates r)
{
    float gi = r.clip * g;
    *m = fmaf(gi, r.c1, *m * r.b1);
    *v = fmaf(r.c2 * gi, gi, *v * r.b2);
}

struct coded_moments {
    struct cuda_book book[2];
    struct cuda_step_table steps[2]; /* for the reference run's rule */
    uint8_t *code[2];
    float *absmax[2];
    size_t block;
    enum pl_rule rule;
};

static inline int coded_moments_of(struct coded_moments *c, const struct pl_moments *s)
{
    int rc = PL_OK;
    *c = {};
    for (int i = 0; i < 2; i++) {
        enum pl_map map = i ? PL_MAP_UNSIGNED : PL_MAP_SIGNED;
        c->book[i] = cuda_book_of(map, s->rule);
        if (rc == PL_OK && s->rule == PL_RULE_RUN) rc = cuda_step_table_get(&c->steps[i], map);
        c->code[i] = s->code[i];
        c->absmax[i] = s->absmax[i];
    }
    c->block = s->block;
    c->rule = s->rule;
    return rc;
}

static inline int is_vectorizable(const struct pl_moments *s)
{
    return s->block % CUDA_VECTOR_WIDTH == 0 && cuda_is_vectorizable(s->code[0], s->code[1]);
}

/* Processes the blocks of values of this thread block, and calls use(i, left, m, v) once for every
 * vector of elements, of which `left` exist. New moments wait in registers for their maximum, which
 * determines the codes, and are never stored as floats; the part of a block that exceeds the
 * registers is computed twice. RUN: codes by the reference run's rule; 0: by the others. */
template <int WIDTH, int RUN, class F>
static __device__ void advance_blocks(const struct coded_moments *s, const float *g, size_t n,
                                      struct decay_rates r, F use)
{
    typedef cuda_vector<float, WIDTH> vector;
    PL_SHARED(float, book0, PL_CODES);
    PL_SHARED(float, book1, PL_CODES);
    PL_SHARED(uint32_t, steps0, RUN ? STEP_TABLE_ROWS : 1);
    PL_SHARED(uint32_t, steps1, RUN ? STEP_TABLE_ROWS : 1);
    load_book(book0, &s->book[0]);
    load_book(book1, &s->book[1]);
    if (RUN) {
        load_step_table(steps0, &s->steps[0]);
        load_step_table(steps1, &s->steps[1]);
    }
    __syncthreads();
    for (size_t b = blockIdx.x; b * s->block < n; b += gridDim.x) {
        size_t begin = b * s->block, end = n - begin > s->block ? begin + s->block : n;
        float old0 = s->absmax[0][b], old1 = s->absmax[1][b], most0 = -FLT_MAX, most1 = -FLT_MAX;
        vector held0[CUDA_HELD / WIDTH], held1[CUDA_HELD / WIDTH];
        auto next = [&](size_t i, size_t left, vector *m, vector *v) {
            auto gi = cuda_load_some<WIDTH>(g + i, left);
            auto c0 = cuda_load_some<WIDTH>(s->code[0] + i, left);
            auto c1 = cuda_load_some<WIDTH>(s->code[1] + i, left);
            PL_UNROLL
            for (int k = 0; k < WIDTH; k++) {
                m->at[k] = book0[c0.at[k]] * old0;
                v->at[k] = book1[c1.at[k]] * old1;
                advance(&m->at[k], &v->at[k], gi.at[k], r);
            }
        };
        cuda_each_value<WIDTH>(begin, end, [&](int j, size_t i, size_t left) {
            vector m, v;
            next(i, left, &m, &v);
            if (j >= 0) {
                held0[j] = m;
                held1[j] = v;
            }
            PL_UNROLL
            for (int k = 0; k < WIDTH; k++) {
                if (fabsf(m.at[k]) > most0) most0 = fabsf(m.at[k]);
                if (fabsf(v.at[k]) > most1) most1 = fabsf(v.at[k]);
            }
        });
        most0 = cuda_block_max(most0);
        most1 = cuda_block_max(most1);
        struct cuda_quotient by0 = quotient_by(most0), by1 = quotient_by(most1);
        cuda_each_value<WIDTH>(begin, end, [&](int j, size_t i, size_t left) {
            vector m, v;
            cuda_vector<uint8_t, WIDTH> c0, c1;
            if (j >= 0) {
                m = held0[j];
                v = held1[j];
            } else next(i, left, &m, &v);
            PL_UNROLL
            for (int k = 0; k < WIDTH; k++)
                if (RUN) {
                    c0.at[k] = code_run(steps0, &s->steps[0], quotient_of(m.at[k], by0));
                    c1.at[k] = code_run(steps1, &s->steps[1], quotient_of(v.at[k], by1));
                } else {
                    c0.at[k] = code_searched(book0, m.at[k], 1 / most0, s->rule);
                    c1.at[k] = code_searched(book1, v.at[k], 1 / most1, s->rule);
                }
            cuda_store_some(s->code[0] + i, c0, left);
            cuda_store_some(s->code[1] + i, c1, left);
            use(i, left, m, v);
        });
        if (threadIdx.x == 0) { /* there was a barrier since: all threads have read the old ones */
            s->absmax[0][b] = most0;
            s->absmax[1][b] = most1;
        }
    }
}

#endif
