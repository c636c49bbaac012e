/* moments.cuh - a block of 8-bit moments: decoded, advanced by a gradient, and encoded again, with
 * an update from the moments as they are in between. For lamb.cu and adam.cu. */
#ifndef PL_CUDA_MOMENTS_CUH
#define PL_CUDA_MOMENTS_CUH

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

/* m and v by one gradient, in the reference's order of operations. */
static __device__ void advance(float *m, float *v, float g, struct decay_rates r)
{
    float gi = r.clip * g;
    *m = fmaf(gi, r.c1, *m * r.b1);
    *v = fmaf(r.c2 * gi, gi, *v * r.b2);
}

struct coded_moments {
    struct cuda_book book[2];
    uint8_t *code[2];
    float *absmax[2];
    size_t block;
    enum pl_rule rule;
};

static inline struct coded_moments coded_moments_of(const struct pl_moments *s)
{
    struct coded_moments c;
    for (int i = 0; i < 2; i++) {
        c.book[i] = cuda_book_of(i ? PL_MAP_UNSIGNED : PL_MAP_SIGNED, s->rule);
        c.code[i] = s->code[i];
        c.absmax[i] = s->absmax[i];
    }
    c.block = s->block;
    c.rule = s->rule;
    return c;
}

/* This block of threads' block of values; use(i, m, v) once for every element. The new moments are
 * computed twice, once for their largest and once for their codes, and never stored as floats. */
template <class F>
static __device__ void advance_block(const struct coded_moments *s, const float *g, size_t n,
                                     struct decay_rates r, F use)
{
    PL_SHARED(float, book0, PL_CODES);
    PL_SHARED(float, book1, PL_CODES);
    size_t b = blockIdx.x, begin = b * s->block, end = n - begin > s->block ? begin + s->block : n;
    float old0 = s->absmax[0][b], old1 = s->absmax[1][b], most0 = -FLT_MAX, most1 = -FLT_MAX;
    load_book(book0, &s->book[0]);
    load_book(book1, &s->book[1]);
    __syncthreads();
    for (size_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
        float m = book0[s->code[0][i]] * old0, v = book1[s->code[1][i]] * old1;
        advance(&m, &v, g[i], r);
        if (fabsf(m) > most0) most0 = fabsf(m);
        if (fabsf(v) > most1) most1 = fabsf(v);
    }
    most0 = cuda_block_max(most0);
    most1 = cuda_block_max(most1);
    for (size_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
        float m = book0[s->code[0][i]] * old0, v = book1[s->code[1][i]] * old1;
        advance(&m, &v, g[i], r);
        s->code[0][i] = code_of(book0, m, most0, 1 / most0, s->rule);
        s->code[1][i] = code_of(book1, v, most1, 1 / most1, s->rule);
        use(i, m, v);
    }
    if (threadIdx.x == 0) { /* all have read the old ones: they have been at a barrier since */
        s->absmax[0][b] = most0;
        s->absmax[1][b] = most1;
    }
}

#endif
