/* average.c - the reducer of an all-reduce: weighted sums of compressed messages, and the deltas
 * sent back. Values are decoded in registers where they are added: float16 always, 8-bit codes
 * where the CPU can look them up (AVX-512 VBMI), otherwise a chunk at a time in L1. A message is
 * never decompressed to memory. Multiplications and additions are not fused, so all bits equal the
 * reference's. */
#include "quant.h"
#include "table_lookup_avx512.h"

#include <string.h>

#define PIECE 4096          /* values per chunk, decoded on the stack */
#define SERIAL (16 * PIECE) /* fewer values are not worth waking threads */

/* A message's values may lie at any address. */
typedef float unaligned_float __attribute__((aligned(1), may_alias));
typedef uint16_t unaligned_half __attribute__((aligned(1), may_alias));

/* float16 to float32, exact; NaN keeps its bits. Subnormal halves are converted from their integer,
 * because multiplying by a subnormal float takes a hundred times as long. No branches, so that the
 * compiler can vectorize it. */
FAST_INLINE float widen(uint16_t h)
{
    int32_t size = h & 0x7FFF, subnormal = -(size < 0x0400), infinite = -(size >= 0x7C00);
    union {
        int32_t i;
        float f;
    } small = { .f = (float)size * 0x1p-24f }, out;
    int32_t normal = (size << 13) + (112 << 23) + (infinite & 112 << 23);
    out.i = (small.i & subnormal) | (normal & ~subnormal) | (int32_t)((uint32_t)(h & 0x8000) << 16);
    return out.f;
}

FAST_CLONES static void add_floats(float *sum, const unaligned_float *x, float weight, int n)
{
#pragma omp simd
    for (int i = 0; i < n; i++) sum[i] = sum[i] + weight * x[i];
}

FAST_CLONES static void add_halves(float *sum, const unaligned_half *x, float weight, int n)
{
#pragma omp simd
    for (int i = 0; i < n; i++) sum[i] = sum[i] + weight * widen(x[i]);
}

FAST_CLONES static void delta_floats(float *delta, const float *sum, float weight,
                                     const unaligned_float *x, int n)
{
#pragma omp simd
    for (int i = 0; i < n; i++) delta[i] = sum[i] / weight - x[i];
}

FAST_CLONES static void delta_halves(float *delta, const float *sum, float weight,
                                     const unaligned_half *x, int n)
{
#pragma omp simd
    for (int i = 0; i < n; i++) delta[i] = sum[i] / weight - widen(x[i]);
}

#if FAST_LUT512

/* The use of a weighted sum. */
enum destination {
    STORE, /* store it */
    APPLY  /* x += mean - x */
};

/* Prefetches the 64 values one page ahead. */
VBMI FAST_INLINE void prefetch_ahead(const unaligned_float *x)
{
    for (int k = 0; k < 4; k++)
        _mm_prefetch((const char *)(x + FAST_PREFETCH_FLOATS + 16 * k), _MM_HINT_T0);
}

/* out = sum + weight * table[codes], n a multiple of 64. With `own`, sum is own_weight * own
 * instead. weight * table[code] is computed once for each of the 256 codes. */
VBMI FAST_INLINE void codes_into(float *out, const float *sum, const unaligned_float *own,
                                 float own_weight, const uint8_t *codes, const float *table,
                                 float weight, float all, enum destination destination, int n)
{
    const __m512 factor = _mm512_set1_ps(own_weight), total = _mm512_set1_ps(all);
    struct lut512 t;
    float scaled[PL_CODES];
    for (int k = 0; k < PL_CODES; k++) scaled[k] = weight * table[k];
    lut512_load(&t, scaled);
    for (int i = 0; i < n; i += 64) {
        __m512 y[4];
        prefetch_ahead((own ? own : sum) + i);
        lut512_lookup(y, &t, codes + i);
        for (int k = 0; k < 4; k++) {
            int at = i + 16 * k;
            __m512 s = own ? _mm512_add_ps(_mm512_setzero_ps(), /* -0 becomes 0 */
                                           _mm512_mul_ps(factor, _mm512_loadu_ps(own + at)))
                           : _mm512_loadu_ps(sum + at);
            s = _mm512_add_ps(s, y[k]);
            if (destination == APPLY) {
                __m512 x = _mm512_loadu_ps(out + at);
                s = _mm512_add_ps(x, _mm512_sub_ps(_mm512_div_ps(s, total), x));
            }
            _mm512_storeu_ps(out + at, s);
        }
    }
}

VBMI static void add_codes(float *sum, const uint8_t *codes, const float *table, float weight,
                           int n)
{
    codes_into(sum, sum, NULL, 0, codes, table, weight, 1, STORE, n);
}

VBMI static void add_two(float *sum, const unaligned_float *own, float own_weight,
                         const uint8_t *codes, const float *table, float weight, int n)
{
    codes_into(sum, NULL, own, own_weight, codes, table, weight, 1, STORE, n);
}

VBMI static void apply_two(float *x, const unaligned_float *own, float own_weight,
                           const uint8_t *codes, const float *table, float weight, float all, int n)
{
    codes_into(x, NULL, own, own_weight, codes, table, weight, all, APPLY, n);
}

VBMI static void apply_codes(float *x, const float *sum, const uint8_t *codes, const float *table,
                             float weight, float all, int n)
{
    codes_into(x, sum, NULL, 0, codes, table, weight, all, APPLY, n);
}

VBMI static void delta_codes(float *delta, const float *sum, float weight, const uint8_t *codes,
                             const float *table, int n)
{
    struct lut512 t;
    __m512 all = _mm512_set1_ps(weight);
    lut512_load(&t, table);
    for (int i = 0; i < n; i += 64) {
        __m512 y[4];
        lut512_lookup(y, &t, codes + i);
        for (int k = 0; k < 4; k++) {
            __m512 mean = _mm512_div_ps(_mm512_loadu_ps(sum + i + 16 * k), all);
            _mm512_storeu_ps(delta + i + 16 * k, _mm512_sub_ps(mean, y[k]));
        }
    }
}

/* delta = (own_weight * own + weight * table[codes]) / all - table[codes] */
VBMI static void delta_two(float *delta, const unaligned_float *own, float own_weight,
                           const uint8_t *codes, const float *table, float weight, float all, int n)
{
    const __m512 factor = _mm512_set1_ps(own_weight), its = _mm512_set1_ps(weight);
    const __m512 total = _mm512_set1_ps(all);
    struct lut512 t;
    lut512_load(&t, table);
    for (int i = 0; i < n; i += 64) {
        __m512 y[4];
        prefetch_ahead(own + i);
        lut512_lookup(y, &t, codes + i);
        for (int k = 0; k < 4; k++) {
            __m512 s = _mm512_mul_ps(factor, _mm512_loadu_ps(own + i + 16 * k));
            s = _mm512_add_ps(_mm512_setzero_ps(), s); /* -0 becomes 0 */
            s = _mm512_add_ps(s, _mm512_mul_ps(its, y[k]));
            _mm512_storeu_ps(delta + i + 16 * k, _mm512_sub_ps(_mm512_div_ps(s, total), y[k]));
        }
    }
}
#endif

/* The length of the chunk of n values that begins at `at`. */
static int piece_size(size_t n, size_t at) { return (int)(n - at < PIECE ? n - at : PIECE); }

/* sum[0..n-1] += weight times the message's values from `at` on. */
static void add_piece(float *sum, const struct pl_coded *x, float weight, size_t at, int n)
{
    const uint8_t *codes = (const uint8_t *)x->data + at;
    float values[PIECE];
    int done = 0;
    switch (x->method) {
    case PL_COMPRESS_UNIFORM8:
#if FAST_LUT512
        if (fast_has_lut512()) add_codes(sum, codes, x->table, weight, done = n / 64 * 64);
#endif
        fast_table_lookup(values, codes + done, x->table, (size_t)(n - done));
        add_floats(sum + done, values, weight, n - done);
        break;
    case PL_COMPRESS_FLOAT16:
        add_halves(sum, (const unaligned_half *)x->data + at, weight, n);
        break;
    default: add_floats(sum, (const unaligned_float *)x->data + at, weight, n);
    }
}

int fast_average_add(float *sum, const struct pl_coded *x, float weight, size_t n)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > SERIAL)
    for (size_t at = 0; at < n; at += PIECE) add_piece(sum + at, x, weight, at, piece_size(n, at));
    return PL_OK;
}

static void delta_piece(float *delta, const float *sum, float weight, const struct pl_coded *x,
                        size_t at, int n)
{
    const uint8_t *codes = (const uint8_t *)x->data + at;
    float values[PIECE];
    int done = 0;
    switch (x->method) {
    case PL_COMPRESS_UNIFORM8:
#if FAST_LUT512
        if (fast_has_lut512()) delta_codes(delta, sum, weight, codes, x->table, done = n / 64 * 64);
#endif
        fast_table_lookup(values, codes + done, x->table, (size_t)(n - done));
        delta_floats(delta + done, sum + done, weight, values, n - done);
        break;
    case PL_COMPRESS_FLOAT16:
        delta_halves(delta, sum, weight, (const unaligned_half *)x->data + at, n);
        break;
    default: delta_floats(delta, sum, weight, (const unaligned_float *)x->data + at, n);
    }
}

int fast_average_delta(float *delta, const float *sum, float weight, const struct pl_coded *x,
                       size_t n)
{
    if (weight == 0) {
        memset(delta, 0, n * sizeof *delta);
        return PL_OK;
    }
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > SERIAL)
    for (size_t at = 0; at < n; at += PIECE)
        delta_piece(delta + at, sum + at, weight, x, at, piece_size(n, at));
    return PL_OK;
}

/* --- all senders at once ---------------------------------------------------------------------- */

#if FAST_LUT512
static const void *data_at(const struct pl_coded *x, size_t at)
{
    size_t bytes = x->method == PL_COMPRESS_UNIFORM8 ? 1 : x->method == PL_COMPRESS_FLOAT16 ? 2 : 4;
    return (const uint8_t *)x->data + at * bytes;
}
#endif

/* Adds the first senders with a fused kernel if there is one; returns how many it added. */
static int sum_first(float *sum, const struct pl_sender *from, int senders, size_t at, int n)
{
#if FAST_LUT512
    if (senders >= 2 && from[0].x.method == PL_COMPRESS_NONE &&
        from[1].x.method == PL_COMPRESS_UNIFORM8 && n % 64 == 0 && fast_has_lut512()) {
        add_two(sum, data_at(&from[0].x, at), from[0].weight, data_at(&from[1].x, at),
                from[1].x.table, from[1].weight, n);
        return 2;
    }
#endif
    memset(sum, 0, (size_t)n * sizeof *sum);
    return 0;
}

static void sum_piece(float *sum, const struct pl_sender *from, int senders, size_t at, int n)
{
    for (int k = sum_first(sum, from, senders, at, n); k < senders; k++)
        add_piece(sum, &from[k].x, from[k].weight, at, n);
}

int fast_average_sum(float *sum, const struct pl_sender *from, int senders, size_t n)
{
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > SERIAL)
    for (size_t at = 0; at < n; at += PIECE)
        sum_piece(sum + at, from, senders, at, piece_size(n, at));
    return PL_OK;
}

FAST_CLONES static void apply_floats(float *x, const float *sum, float weight, int n)
{
#pragma omp simd
    for (int i = 0; i < n; i++) x[i] = x[i] + (sum[i] / weight - x[i]);
}

static void apply_piece(float *x, const struct pl_sender *from, int senders, float weight,
                        size_t at, int n)
{
    float sum[PIECE];
#if FAST_LUT512
    const struct pl_sender *last = &from[senders - 1];
    if (senders >= 2 && last->x.method == PL_COMPRESS_UNIFORM8 && n % 64 == 0 &&
        fast_has_lut512()) {
        const uint8_t *codes = data_at(&last->x, at);
        if (senders == 2 && from->x.method == PL_COMPRESS_NONE) {
            apply_two(x, data_at(&from->x, at), from->weight, codes, last->x.table, last->weight,
                      weight, n);
            return;
        }
        sum_piece(sum, from, senders - 1, at, n);
        apply_codes(x, sum, codes, last->x.table, last->weight, weight, n);
        return;
    }
#endif
    sum_piece(sum, from, senders, at, n);
    apply_floats(x, sum, weight, n);
}

int fast_average_apply(float *x, const struct pl_sender *from, int senders, float weight, size_t n)
{
    if (weight == 0) { /* the delta is 0, but adding it still turns -0 into 0 */
        for (size_t i = 0; i < n; i++) x[i] = x[i] + 0;
        return PL_OK;
    }
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if (n > SERIAL)
    for (size_t at = 0; at < n; at += PIECE)
        apply_piece(x + at, from, senders, weight, at, piece_size(n, at));
    return PL_OK;
}

/* The inputs of a delta: the message it answers, and the sum or, if sum is NULL, the senders. */
struct delta_source {
    const float *sum;
    const struct pl_sender *from;
    int senders;
    /* 1: the reducer's own float32 values and the 8-bit message that is answered */
    int two_senders;
    float weight;
    const struct pl_coded *x;
};

static int is_two_senders(const struct pl_sender *from, int senders, const struct pl_coded *x)
{
    return senders == 2 && from[0].x.method == PL_COMPRESS_NONE &&
           from[1].x.method == PL_COMPRESS_UNIFORM8 && x->method == PL_COMPRESS_UNIFORM8 &&
           x->data == from[1].x.data && !memcmp(x->table, from[1].x.table, sizeof x->table);
}

/* Returns 1 if the fused kernel for two senders has computed the delta. */
static int delta_two_senders(const struct delta_source *a, float *delta, size_t at, size_t n)
{
#if FAST_LUT512
    if (a->two_senders && n % 64 == 0 && fast_has_lut512()) {
        const struct pl_sender *own = a->from, *its = own + 1;
        delta_two(delta, data_at(&own->x, at), own->weight, data_at(&its->x, at), its->x.table,
                  its->weight, a->weight, (int)n);
        return 1;
    }
#endif
    return 0;
}

static void make_delta(const void *context, float *delta, size_t at, size_t n)
{
    const struct delta_source *a = context;
    float sum[PIECE];
    if (a->weight == 0) {
        memset(delta, 0, n * sizeof *delta);
    } else if (a->sum) {
        delta_piece(delta, a->sum + at, a->weight, a->x, at, (int)n);
    } else if (!delta_two_senders(a, delta, at, n)) {
        sum_piece(sum, a->from, a->senders, at, (int)n);
        delta_piece(delta, sum, a->weight, a->x, at, (int)n);
    }
}

static int encode_delta(uint8_t *codes, float table[PL_CODES], const struct delta_source *a,
                        size_t n)
{
    float *delta = fast_scratch_alloc(n);
    int rc = delta ? fast_uniform8_encode_made(codes, table, delta, n, make_delta, a) : PL_ENOMEM;
    fast_scratch_free(delta);
    return rc;
}

int fast_average_delta8(uint8_t *codes, float table[PL_CODES], const float *sum, float weight,
                        const struct pl_coded *x, size_t n)
{
    const struct delta_source a = { .sum = sum, .weight = weight, .x = x };
    return encode_delta(codes, table, &a, n);
}

int fast_average_reduce8(uint8_t *codes, float table[PL_CODES], const struct pl_sender *from,
                         int senders, float weight, const struct pl_coded *x, size_t n)
{
    const struct delta_source a = { .from = from,
                                    .senders = senders,
                                    .weight = weight,
                                    .x = x,
                                    .two_senders = is_two_senders(from, senders, x) };
    return encode_delta(codes, table, &a, n);
}
