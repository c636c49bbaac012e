/* settings.c - how many threads and which precision the kernels of this folder use. */
#include "fast.h"
#include "isa.h"

#include <omp.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP2_BF16
#define HWCAP2_BF16 (1 << 14)
#endif
#endif

/* libgomp aborts the program if it cannot start as many threads as requested */
#define THREADS_MAX 1024

static int threads = 1;
static enum pl_precision precision = PL_FLOAT32;

int fast_threads(void) { return threads; }
int fast_bf16(void) { return precision == PL_BF16; }

int fast_has_bf16(void)
{
#if defined(__x86_64__) && defined(__GNUC__)
    /* AVX512-BF16's instruction takes two cycles on Intel's CPUs, and in two cycles float32 does
     * twice as many operations. */
    return isa_has_amx() || (!__builtin_cpu_is("intel") && isa_chosen() == ISA_AVX512 &&
                             __builtin_cpu_supports("avx512bf16"));
#elif defined(__aarch64__) && !defined(__AARCH64EB__) && !defined(__clang__)
    return isa_chosen() == ISA_NEON && getauxval(AT_HWCAP2) & HWCAP2_BF16;
#else
    return 0;
#endif
}

int fast_set_threads(int n)
{
    if (n <= 0) n = omp_get_max_threads(); /* one per core, or the number in OMP_NUM_THREADS */
    threads = n < THREADS_MAX ? n : THREADS_MAX;
    return PL_OK;
}

int fast_set_precision(enum pl_precision p)
{
    precision = p;
    return PL_OK;
}

/* Nested parallel regions run on one thread, so tasks do not compete for cores. With many more
 * threads than tasks, the tasks run one after another and each uses all threads. */
int fast_parallel_for(int n, int (*task)(void *context, int i), void *context)
{
    int first = n, rc = PL_OK, together = threads < n ? threads : n;
#pragma omp parallel for schedule(dynamic, 1) \
    num_threads(together) if (together > 1 && threads <= 2 * n)
    for (int i = 0; i < n; i++) {
        int got = task(context, i);
#pragma omp critical
        if (got && i < first) {
            first = i;
            rc = got;
        }
    }
    return rc;
}
