/* peak.c - this machine's peak rates: the roofline with which other benchmarks are compared.
 *
 *   float32   independent chains of fused multiply-adds in registers: no memory, no dependencies
 *   bf16      the same with dot products of bfloat16 pairs, or with AMX's products of tiles
 *   memory    the triad y = x + 0.7 z over buffers larger than the caches: 12 bytes per element
 *
 * Each thread takes its own best of 40 tries, so that another program on a core does not lower
 * the peak; the sum over threads is the machine's. */
#include "peak.h"
#include "ref/base.h"

#include <pthread.h>
#include <stdlib.h>

#define REPEATS 40
#define STEPS 200000     /* about 0.4 ms */
#define TRIAD (4u << 20) /* floats: 16 MiB a buffer */

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Ten independent chains: four cycles of latency times two units, and two to spare. */
#define CHAINS 10

__attribute__((target("avx512f"))) static double chains_avx512(void)
{
    __m512 x[CHAINS], a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-3f);
    for (int c = 0; c < CHAINS; c++) x[c] = _mm512_set1_ps((float)c);
    for (int i = 0; i < STEPS; i++)
        _Pragma("GCC unroll 10") for (int c = 0; c < CHAINS; c++)
            x[c] = _mm512_fmadd_ps(x[c], a, b);
    for (int c = 1; c < CHAINS; c++) x[0] = _mm512_add_ps(x[0], x[c]);
    return _mm512_reduce_add_ps(x[0]);
}

__attribute__((target("avx512f,avx512bf16"))) static double chains_bf16(void)
{
    __m512 x[CHAINS];
    __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(1));
    for (int c = 0; c < CHAINS; c++) x[c] = _mm512_set1_ps((float)c);
    for (int i = 0; i < STEPS; i++)
        _Pragma("GCC unroll 10") for (int c = 0; c < CHAINS; c++)
            x[c] = _mm512_dpbf16_ps(x[c], a, a);
    for (int c = 1; c < CHAINS; c++) x[0] = _mm512_add_ps(x[0], x[c]);
    return _mm512_reduce_add_ps(x[0]);
}

/* Tile registers need the CPU's support, and for each process the system's permission. */
static int has_amx(void)
{
    enum { TILE = 1 << 24, BF16 = 1 << 22, REQUEST_PERMISSION = 0x1023, TILE_DATA = 18 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & TILE) && (d & BF16) &&
           !syscall(SYS_arch_prctl, REQUEST_PERMISSION, TILE_DATA);
}

#define AMX_TILES 4    /* independent sums */
#define AMX_STEPS 5000 /* about 0.1 ms */

/* Zeros, which take as long as any other operand. */
__attribute__((target("amx-tile,amx-bf16"))) static double chains_amx(void)
{
    struct {
        unsigned char palette, start_row, reserved[14];
        unsigned short row_bytes[16];
        unsigned char rows[16];
    } shapes = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        shapes.row_bytes[i] = 64;
        shapes.rows[i] = 16;
    }
    __asm__ volatile("" : "+m"(shapes)); /* gcc 12 stores only what it knows to be read */
    _tile_loadconfig(&shapes);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (int i = 0; i < AMX_STEPS; i++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_release();
    return 0;
}

__attribute__((target("avx2,fma"))) static double chains_avx2(void)
{
    __m256 x[CHAINS], a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-3f);
    float out[8];
    for (int c = 0; c < CHAINS; c++) x[c] = _mm256_set1_ps((float)c);
    for (int i = 0; i < STEPS; i++)
        _Pragma("GCC unroll 10") for (int c = 0; c < CHAINS; c++)
            x[c] = _mm256_fmadd_ps(x[c], a, b);
    for (int c = 1; c < CHAINS; c++) x[0] = _mm256_add_ps(x[0], x[c]);
    _mm256_storeu_ps(out, x[0]);
    return out[0];
}
#else
#define CHAINS 4
#endif

static double chains_plain(void)
{
    float x[16];
    for (int c = 0; c < 16; c++) x[c] = (float)c;
    for (int i = 0; i < STEPS; i++)
        for (int c = 0; c < 16; c++) x[c] = x[c] * 0.999f + 1e-3f;
    return x[0] + x[5];
}

struct kind {
    double (*chains)(void);
    double operations; /* of one call */
};

static struct kind float32_kind(const char **name)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("avx512f")) {
        *name = "AVX-512";
        return (struct kind){ chains_avx512, 2.0 * 16 * CHAINS * STEPS };
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        *name = "AVX2";
        return (struct kind){ chains_avx2, 2.0 * 8 * CHAINS * STEPS };
    }
#endif
    *name = "plain C";
    return (struct kind){ chains_plain, 2.0 * 16 * STEPS };
}

static struct kind bf16_kind(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (has_amx()) return (struct kind){ chains_amx, 2.0 * 16 * 16 * 32 * AMX_TILES * AMX_STEPS };
    if (__builtin_cpu_supports("avx512bf16"))
        return (struct kind){ chains_bf16, 4.0 * 16 * CHAINS * STEPS };
#endif
    return (struct kind){ NULL, 0 };
}

struct worker {
    pthread_t thread;
    struct kind kind; /* chains NULL: the triad */
    double rate, sink;
};

static double triad(float *restrict y, const float *restrict x, const float *restrict z)
{
    double start = pl_seconds();
    for (size_t i = 0; i < TRIAD; i++) y[i] = x[i] + 0.7f * z[i];
    return pl_seconds() - start;
}

static void *work(void *context)
{
    struct worker *w = context;
    float *y = NULL;
    if (!w->kind.chains && !(y = pl_alloc(3 * (size_t)TRIAD, sizeof *y))) return NULL;
    for (int i = 0; i < REPEATS; i++) {
        double start = pl_seconds(), rate;
        if (y) rate = 12.0 * TRIAD / triad(y, y + TRIAD, y + 2 * (size_t)TRIAD);
        else {
            w->sink += w->kind.chains();
            rate = w->kind.operations / (pl_seconds() - start);
        }
        if (rate > w->rate) w->rate = rate;
    }
    if (y) w->sink += y[7];
    pl_free(y);
    return NULL;
}

static double all_threads(struct kind kind, int threads)
{
    struct worker *w = calloc((size_t)threads, sizeof *w);
    double sum = 0;
    int started = 0;
    if (!w) return 0;
    for (; started < threads; started++) {
        w[started].kind = kind;
        if (pthread_create(&w[started].thread, NULL, work, &w[started])) break;
    }
    for (int i = 0; i < started; i++) {
        pthread_join(w[i].thread, NULL);
        sum += w[i].rate;
    }
    free(w);
    return sum;
}

struct peak peak_measure(int threads)
{
    struct peak p = { 0 };
    struct kind bf16 = bf16_kind();
    p.float32 = all_threads(float32_kind(&p.vectors), threads);
    if (bf16.chains) p.bf16 = all_threads(bf16, threads);
    p.memory = all_threads((struct kind){ NULL, 0 }, threads);
    return p;
}
