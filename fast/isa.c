/* isa.c - asks the CPU once which vector instructions it has, and lets PL_FAST_ISA lower the
 * choice. */
#include "isa.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const char *const words[ISA_COUNT] = { "plain", "avx2", "avx512" };
static const char *const names[ISA_COUNT] = { "plain C", "AVX2", "AVX-512" };
static enum isa chosen;
static int is_valid;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void choose(void)
{
    const char *requested = getenv("PL_FAST_ISA");
    int limit = ISA_COUNT - 1;
    is_valid = !requested || !*requested;
    for (int i = 0; requested && i < ISA_COUNT; i++)
        if (!strcmp(requested, words[i])) {
            limit = i;
            is_valid = 1;
        }
    chosen = ISA_PLAIN;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) chosen = ISA_AVX2;
    if (chosen == ISA_AVX2 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw"))
        chosen = ISA_AVX512;
#endif
    if ((int)chosen > limit) chosen = (enum isa)limit;
}

enum isa isa_chosen(void)
{
    pthread_once(&once, choose);
    return chosen;
}

int isa_env_is_valid(void)
{
    pthread_once(&once, choose);
    return is_valid;
}

const char *isa_name(enum isa isa) { return names[isa]; }
