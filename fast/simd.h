/* simd.h - a vector register of LANES floats and its operations. Included by foreach_isa.inc, once
 * per instruction set; the files that follow use the short names below. Most operations are GNU C's
 * on vectors, which every compiler turns into its processor's. Intrinsics stand where an
 * instruction set has something better. */
#undef SIMD_FUSED
#if defined(SIMD_AVX2) || defined(SIMD_AVX512) || defined(SIMD_NEON) || defined(SIMD_RVV)
#define SIMD_FUSED 1 /* fma() rounds once, and products are worth kernels of their own */
#else
#define SIMD_FUSED 0
#endif

typedef float ISA(vec) __attribute__((vector_size(LANES * 4)));
typedef int32_t ISA(ivec) __attribute__((vector_size(LANES * 4)));
/* the same in memory, at any address */
typedef float ISA(unaligned) __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

#define vec ISA(vec)
#define ivec ISA(ivec)
#define load ISA(load)
#define store ISA(store)
#define load_part ISA(load_part)
#define store_part ISA(store_part)
#define set1 ISA(set1)
#define fma ISA(fma)
#define maximum ISA(maximum)
#define zero_tail ISA(zero_tail)
#define mask_and ISA(mask_and)
#define reduce_add ISA(reduce_add)
#define reduce_max ISA(reduce_max)
#define vector_exp ISA(vector_exp)
#define gather_quads ISA(gather_quads)
#define transpose4 ISA(transpose4)
#define load_transposed ISA(load_transposed)
#define round_up ISA(round_up)
#define SIMD_INLINE static inline __attribute__((always_inline, unused))

SIMD_INLINE vec load(const float *p) { return *(const ISA(unaligned) *)(const void *)p; }
SIMD_INLINE void store(float *p, vec x) { *(ISA(unaligned) *)(void *)p = x; }

#if defined(SIMD_AVX512)
SIMD_INLINE vec set1(float x) { return (vec)_mm512_set1_ps(x); }
SIMD_INLINE vec fma(vec a, vec b, vec c)
{
    return (vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
SIMD_INLINE vec maximum(vec a, vec b) { return (vec)_mm512_max_ps((__m512)a, (__m512)b); }
#elif defined(SIMD_AVX2)
SIMD_INLINE vec set1(float x) { return (vec)_mm256_set1_ps(x); }
SIMD_INLINE vec fma(vec a, vec b, vec c)
{
    return (vec)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}
SIMD_INLINE vec maximum(vec a, vec b) { return (vec)_mm256_max_ps((__m256)a, (__m256)b); }
#else
SIMD_INLINE vec set1(float x)
{
    vec v;
    for (int i = 0; i < LANES; i++) v[i] = x;
    return v;
}
#if defined(SIMD_NEON)
SIMD_INLINE vec fma(vec a, vec b, vec c)
{
    return (vec)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
}
#elif defined(SIMD_RVV)
SIMD_INLINE vec fma(vec a, vec b, vec c) { return __builtin_elementwise_fma(a, b, c); }
#else
SIMD_INLINE vec fma(vec a, vec b, vec c) { return a * b + c; }
#endif
SIMD_INLINE vec maximum(vec a, vec b)
{
    ivec more = a > b;
    return (vec)(((ivec)a & more) | ((ivec)b & ~more));
}
#endif

/* The first n < LANES floats; the other lanes are zero, and memory behind is not read. */
#if defined(SIMD_AVX512)
SIMD_INLINE vec load_part(const float *p, int n)
{
    return (vec)_mm512_maskz_loadu_ps((__mmask16)((1 << n) - 1), p);
}

SIMD_INLINE void store_part(float *p, vec x, int n)
{
    _mm512_mask_storeu_ps(p, (__mmask16)((1 << n) - 1), (__m512)x);
}
#elif defined(SIMD_AVX2)
SIMD_INLINE __m256i ISA(tail_mask)(int n)
{
    static const int32_t ones[16] = { -1, -1, -1, -1, -1, -1, -1, -1 };
    return _mm256_loadu_si256((const __m256i *)(const void *)(ones + 8 - n));
}

SIMD_INLINE vec load_part(const float *p, int n)
{
    return (vec)_mm256_maskload_ps(p, ISA(tail_mask)(n));
}
SIMD_INLINE void store_part(float *p, vec x, int n)
{
    _mm256_maskstore_ps(p, ISA(tail_mask)(n), (__m256)x);
}
#elif defined(SIMD_NEON)
SIMD_INLINE vec load_part(const float *p, int n)
{
    vec x = set1(0);
    if (n & 2) x = (vec)vcombine_f32(vld1_f32(p), vdup_n_f32(0));
    if (n == 1) x[0] = p[0];
    if (n == 3) x[2] = p[2];
    return x;
}

SIMD_INLINE void store_part(float *p, vec x, int n)
{
    if (n & 2) vst1_f32(p, vget_low_f32((float32x4_t)x));
    if (n == 1) p[0] = x[0];
    if (n == 3) p[2] = x[2];
}
#else
SIMD_INLINE vec load_part(const float *p, int n)
{
    float part[LANES] = { 0 };
    memcpy(part, p, (size_t)n * sizeof *p);
    return load(part);
}

SIMD_INLINE void store_part(float *p, vec x, int n)
{
    float part[LANES];
    store(part, x);
    memcpy(p, part, (size_t)n * sizeof *p);
}
#endif

/* x with zeros in lanes n.. */
SIMD_INLINE vec zero_tail(vec x, int n)
{
    ivec lane;
    for (int i = 0; i < LANES; i++) lane[i] = i;
    return (vec)((ivec)x & (lane < n));
}

/* x where the mask's lane is -1, zero where it is 0. */
SIMD_INLINE vec mask_and(ivec mask, vec x) { return (vec)((ivec)x & mask); }

/* Sum and maximum of all lanes, by folding halves in a fixed order. */
SIMD_INLINE float reduce_add(vec x)
{
#if defined(SIMD_AVX512)
    __m256 y = _mm256_add_ps(_mm512_castps512_ps256((__m512)x),
                             _mm512_extractf32x8_ps((__m512)x, 1));
#elif defined(SIMD_AVX2)
    __m256 y = (__m256)x;
#endif
#if defined(SIMD_AVX2) || defined(SIMD_AVX512)
    __m128 z = _mm_add_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    z = _mm_add_ps(z, _mm_movehl_ps(z, z));
    return _mm_cvtss_f32(_mm_add_ss(z, _mm_shuffle_ps(z, z, 1)));
#elif LANES == 4
    return (x[0] + x[2]) + (x[1] + x[3]);
#else
    float part[LANES];
    store(part, x);
    for (int half = LANES / 2; half; half /= 2)
        for (int i = 0; i < half; i++) part[i] += part[i + half];
    return part[0];
#endif
}

SIMD_INLINE float reduce_max(vec x)
{
#if defined(SIMD_AVX512)
    __m256 y = _mm256_max_ps(_mm512_castps512_ps256((__m512)x),
                             _mm512_extractf32x8_ps((__m512)x, 1));
#elif defined(SIMD_AVX2)
    __m256 y = (__m256)x;
#endif
#if defined(SIMD_AVX2) || defined(SIMD_AVX512)
    __m128 z = _mm_max_ps(_mm256_castps256_ps128(y), _mm256_extractf128_ps(y, 1));
    z = _mm_max_ps(z, _mm_movehl_ps(z, z));
    return _mm_cvtss_f32(_mm_max_ss(z, _mm_shuffle_ps(z, z, 1)));
#elif LANES == 4
    float a = x[0] > x[2] ? x[0] : x[2], b = x[1] > x[3] ? x[1] : x[3];
    return a > b ? a : b;
#else
    float most = x[0];
    for (int i = 1; i < LANES; i++) most = most > x[i] ? most : x[i];
    return most;
#endif
}

/* Four floats of every fourth row, from column c on, in one register. */
SIMD_INLINE vec gather_quads(const float *const *row, int c)
{
#if defined(SIMD_AVX512)
    __m512 x = _mm512_castps128_ps512(_mm_loadu_ps(row[0] + c));
    x = _mm512_insertf32x4(x, _mm_loadu_ps(row[4] + c), 1);
    x = _mm512_insertf32x4(x, _mm_loadu_ps(row[8] + c), 2);
    return (vec)_mm512_insertf32x4(x, _mm_loadu_ps(row[12] + c), 3);
#elif defined(SIMD_AVX2)
    __m256 x = _mm256_castps128_ps256(_mm_loadu_ps(row[0] + c));
    return (vec)_mm256_insertf128_ps(x, _mm_loadu_ps(row[4] + c), 1);
#elif LANES == 4
    return load(row[0] + c);
#else
    vec x;
    for (int i = 0; i < LANES; i++) x[i] = row[i / 4 * 4][c + i % 4];
    return x;
#endif
}

/* Transposes each 4 x 4 quarter of four registers. */
#if defined(SIMD_AVX512)
#define MM(name) _mm512_##name
#elif defined(SIMD_AVX2)
#define MM(name) _mm256_##name
#endif
SIMD_INLINE void transpose4(vec x[4])
{
#if defined(SIMD_AVX2) || defined(SIMD_AVX512)
    vec lo01 = MM(unpacklo_ps)(x[0], x[1]), hi01 = MM(unpackhi_ps)(x[0], x[1]);
    vec lo23 = MM(unpacklo_ps)(x[2], x[3]), hi23 = MM(unpackhi_ps)(x[2], x[3]);
    x[0] = MM(shuffle_ps)(lo01, lo23, 0x44);
    x[1] = MM(shuffle_ps)(lo01, lo23, 0xEE);
    x[2] = MM(shuffle_ps)(hi01, hi23, 0x44);
    x[3] = MM(shuffle_ps)(hi01, hi23, 0xEE);
#elif defined(SIMD_NEON)
    float32x4_t lo02 = vzip1q_f32((float32x4_t)x[0], (float32x4_t)x[2]);
    float32x4_t hi02 = vzip2q_f32((float32x4_t)x[0], (float32x4_t)x[2]);
    float32x4_t lo13 = vzip1q_f32((float32x4_t)x[1], (float32x4_t)x[3]);
    float32x4_t hi13 = vzip2q_f32((float32x4_t)x[1], (float32x4_t)x[3]);
    x[0] = (vec)vzip1q_f32(lo02, lo13);
    x[1] = (vec)vzip2q_f32(lo02, lo13);
    x[2] = (vec)vzip1q_f32(hi02, hi13);
    x[3] = (vec)vzip2q_f32(hi02, hi13);
#else
    for (int q = 0; q < LANES; q += 4)
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < i; j++) {
                float other = x[i][q + j];
                x[i][q + j] = x[j][q + i];
                x[j][q + i] = other;
            }
#endif
}
#undef MM

/* Columns c to c+3 of LANES rows. */
SIMD_INLINE void load_transposed(vec x[4], const float *const *row, int c)
{
    _Pragma("GCC unroll 4") for (int i = 0; i < 4; i++) x[i] = gather_quads(row + i, c);
    transpose4(x);
}

/* e^x to a relative error of 2e-7 for x <= 88; zero below -87.3 (where floats lose bits) and at
 * -infinity. x = k ln 2 + r, with ln 2 in two parts, the first short enough that k times it is
 * exact. e^r is the minimax polynomial 1 + ... in relative error on |r| <= ln 2 / 2 (9.3e-8,
 * comparable to each of the two roundings at its end). 2^k goes into the exponent. */
SIMD_INLINE vec vector_exp(vec x)
{
    const vec magic = set1(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer */
    vec shifted = fma(x, set1(1.44269504f), magic), k = shifted - magic;
    vec r = fma(k, set1(-0.693359375f), x), e;
    ivec two_k = ((ivec)shifted + 127) << 23; /* magic's own bits are shifted out */
    r = fma(k, set1(2.12194440e-4f), r);
    e = fma(set1(0.008290281519f), r, set1(0.04189818352f));
    e = fma(e, r, set1(0.1666763872f));
    e = fma(e, r, set1(0.4999914765f));
    e = fma(e, r, set1(0.999999702f));
    e = fma(e, r, set1(1.0f));
    return mask_and(x > set1(-87.3f), e * (vec)two_k);
}

SIMD_INLINE int round_up(int n) { return (n + LANES - 1) / LANES * LANES; }
