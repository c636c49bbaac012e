/* quant.cuh - code books and their search on the device, for quant.cu and the optimizers.
 * ref/quant.h has the rules; every operation here is the reference's, so codes are equal bit for
 * bit. */
#ifndef PL_CUDA_QUANT_CUH
#define PL_CUDA_QUANT_CUH

#include "../ref/quant.h"

#include "vectorized.cuh"

#include <float.h>

/* Passed as a kernel argument, which is constant memory, then copied to shared memory, where
 * threads that read different entries are not serialized as much. */
struct cuda_book {
    float at[PL_CODES];
};

static inline struct cuda_book cuda_book_of(enum pl_map map, enum pl_rule rule)
{
    struct cuda_book b;
    pl_codebook(b.at, map, rule);
    return b;
}

static __device__ void load_book(cuda_shared<float> to, const struct cuda_book *book)
{
    for (int i = (int)threadIdx.x; i < PL_CODES; i += (int)blockDim.x) to[i] = book->at[i];
}

/* ---- the reference run's rule: a table of steps ---- */

/* As a function of the quotient x / absmax, the code is a step function with 255 steps. A float's
 * bits, read as an integer, ascend with the float. Cut into buckets of 2^shift integers (64 or 128
 * buckets per power of two), no bucket has more than one step. So one lookup in shared memory and
 * one comparison give the code: the upper bits of an entry are the bucket's last float before the
 * step, its lowest 8 bits the code up to there. In a bucket without a step that is the bucket's
 * last float. */
struct cuda_step_table {
    /* (rows), one per bucket; negative quotients first, if they have buckets */
    const uint32_t *entry;
    int32_t zero; /* entry of the first positive bucket */
    int32_t rows, shift;
    int32_t least; /* the bits of a quotient before any step, on either side of zero */
    /* Bit masks. Signed map: magnitude clears the sign, flip inverts the index of a negative
     * quotient. Unsigned map, whose negative quotients have no buckets: all bits, and none. */
    int32_t magnitude, flip;
    float below; /* quotients below this have code 0, and so has NaN */
};
#define STEP_TABLE_ROWS 2818 /* the signed map's buckets */

/* Gets the device's table, built by the first call; PL_ENOMEM, PL_EDEVICE. See step_table.cu. */
int cuda_step_table_get(struct cuda_step_table *s, enum pl_map map);

static __device__ void load_step_table(cuda_shared<uint32_t> to, const struct cuda_step_table *s)
{
    for (int i = (int)threadIdx.x; i < s->rows; i += (int)blockDim.x) to[i] = s->entry[i];
}

static __device__ uint8_t code_run(cuda_shared<uint32_t> entries, const struct cuda_step_table *s,
                                   float z)
{
    union {
        float f;
        int32_t i;
    } bits;
    int32_t at;
    uint32_t entry;
    bits.f = z;
    at = bits.i & s->magnitude;
    at = at > s->least ? at : s->least;
    at = at < 0x3f800000 ? at : 0x3f800000; /* 1, the largest quotient; NaN */
    at = (at - s->least) ^ (bits.i >> 31 & s->flip);
    entry = entries[s->zero + (at >> s->shift)];
    entry += (uint32_t)at << (32 - s->shift) > entry;
    return z >= s->below ? (uint8_t)entry : 0;
}

/* x / largest, correctly rounded, for all x of a block: one reciprocal per block and three
 * operations per value, where a division takes a dozen and a branch. [Markstein 1990; checked for
 * every divisor with the dividends whose quotients are next to the middle of two floats.] Scaling
 * keeps the reciprocal and the remainder away from the ends of the exponent range; what is still
 * lost there are quotients with the code of zero. */
struct cuda_quotient {
    float scale, largest, inverse;
};
static __device__ struct cuda_quotient quotient_by(float largest)
{
    struct cuda_quotient q = { 1, largest, 0 };
    if (largest < 0x1p-60f) q.scale = 0x1p100f;
    if (largest > 0x1p60f) q.scale = 0x1p-100f;
    q.largest *= q.scale;
    q.inverse = 1 / q.largest;
    if (largest > FLT_MAX) q.largest = 0; /* finite values give 0, infinite ones NaN */
    return q;
}
static __device__ float quotient_of(float x, struct cuda_quotient by)
{
    float q;
    x *= by.scale;
    q = x * by.inverse;
    return fmaf(fmaf(-q, by.largest, x), by.inverse, q);
}

/* ---- the other rules: search ---- */

static __device__ uint8_t code_lut(cuda_shared<float> book, float v)
{
    float h, at, grid;
    int i = 0;
    if (!(fabsf(v) <= FLT_MAX)) return 0;
    h = (fminf(fmaxf(v, -1), 1) + 1) * 0.5f;
    at = floorf((float)((double)h * 65535.0 + 0.5));
    grid = -1 + 2 * at / 65535;
    for (int half = PL_CODES / 2; half; half /= 2)
        if (0.5f * (book[i + half - 1] + book[i + half]) < grid) i += half;
    return (uint8_t)i;
}

static __device__ uint8_t code_cuda(cuda_shared<float> book, float v)
{
    int i = 127, lower = 0, upper = 255;
    for (int half = 64; half; half /= 2) {
        if (v > book[i]) lower = i, i += half;
        else upper = i, i -= half;
    }
    if (v > book[i]) return (uint8_t)(v > (book[upper] + book[i]) * 0.5f ? upper : i);
    return (uint8_t)(v < (book[lower] + book[i]) * 0.5f ? lower : i);
}

/* The code of x in a block; scale is 1 / its largest. */
static __device__ uint8_t code_searched(cuda_shared<float> book, float x, float scale,
                                        enum pl_rule rule)
{
    return rule == PL_RULE_LUT ? code_lut(book, x * scale) : code_cuda(book, x * scale);
}

/* ---- blocks of values: a thread block takes one after the other ---- */

static inline unsigned cuda_value_threads(size_t block)
{
    return block >= 1024 ? CUDA_THREADS : block >= 128 ? 64 : 32;
}
/* Few thread blocks, so that the code book is loaded once for many blocks of values. */
static inline unsigned cuda_value_grid(size_t blocks)
{
    const size_t most = (CUDA_BLOCKS_MOST + 3) / 4;
    return (unsigned)(blocks < most ? blocks : most);
}

#define CUDA_HELD 16 /* values of a block that a thread keeps in registers */

/* f(j, i, left) for this thread's vectors of values begin..end-1: the j-th starts at i, and `left`
 * values exist. j is a constant for the first CUDA_HELD values and -1 for the rest. If all threads
 * have those first values, there is no branch between a thread's loads, so that all are in flight
 * together. */
template <int WIDTH, class F> static __device__ void cuda_each_value(size_t begin, size_t end, F f)
{
    size_t i = begin + threadIdx.x * (size_t)WIDTH, step = blockDim.x * (size_t)WIDTH;
    if (end - begin >= CUDA_HELD * (size_t)blockDim.x) {
        PL_UNROLL
        for (int j = 0; j < CUDA_HELD / WIDTH; j++, i += step) f(j, i, (size_t)WIDTH);
    } else {
        PL_UNROLL
        for (int j = 0; j < CUDA_HELD / WIDTH; j++, i += step)
            if (i < end) f(j, i, end - i);
    }
    for (; i < end; i += step) f(-1, i, end - i);
}

/* Missing values are replaced by the first one. */
template <int WIDTH, class T>
static __device__ cuda_vector<T, WIDTH> cuda_load_some(const T *from, size_t left)
{
    cuda_vector<T, WIDTH> p;
    if (left >= WIDTH) return cuda_load<WIDTH>(from);
    for (int k = 0; k < WIDTH; k++) p.at[k] = from[(size_t)k < left ? k : 0];
    return p;
}
template <int WIDTH, class T>
static __device__ void cuda_store_some(T *to, cuda_vector<T, WIDTH> p, size_t left)
{
    if (left >= WIDTH) cuda_store(to, p);
    else
        for (int k = 0; k < WIDTH; k++)
            if ((size_t)k < left) to[k] = p.at[k];
}

#endif
