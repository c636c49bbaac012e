/* isa.c - asks the CPU once which vector instructions it has, and lets PL_FAST_ISA lower the
 * choice. */
#include "isa.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#if FAST_HAS_RVV
#include <sys/auxv.h>
#endif

static const char *const requests[ISA_COUNT] = { "plain", "avx2", "avx512", "neon", "rvv" };
static const char *const names[ISA_COUNT] = { "plain C", "AVX2", "AVX-512", "NEON", "RVV" };
static enum isa chosen;
static int is_valid;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The best set that this CPU has, up to `limit`. */
static enum isa best_up_to(enum isa limit)
{
    enum isa best = ISA_PLAIN;
#if defined(__aarch64__)
    if (limit >= ISA_NEON) best = ISA_NEON; /* part of every aarch64 */
#elif FAST_HAS_RVV
    /* Linux reports one bit for each letter. Linux before 6.5 and qemu before 8.1 do not report V:
     * there PL_FAST_ISA=rvv insists. */
    int insists = limit == ISA_RVV;
    if (limit >= ISA_RVV && (insists || getauxval(AT_HWCAP) & 1ul << ('v' - 'a'))) best = ISA_RVV;
#elif defined(__x86_64__)
    if (limit >= ISA_AVX2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        best = ISA_AVX2;
    if (limit >= ISA_AVX512 && best == ISA_AVX2 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw"))
        best = ISA_AVX512;
#endif
    return best;
}

static void choose(void)
{
    const char *requested = getenv("PL_FAST_ISA");
    enum isa limit = ISA_COUNT;
    is_valid = !requested || !*requested;
    for (int i = 0; requested && i < ISA_COUNT; i++)
        if (!strcmp(requested, requests[i])) {
            limit = (enum isa)i;
            is_valid = 1;
        }
    chosen = best_up_to(limit);
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

#if defined(__x86_64__) && defined(__linux__)
/* Tile registers are 8 KiB of state a thread, which Linux saves only for processes that ask. */
#define ARCH_REQ_XCOMP_PERM 0x1023
#define XFEATURE_XTILEDATA 18

static int amx_is_allowed;

static void ask_for_amx(void)
{
    unsigned a, b, c, d, tile = 1u << 24, bf16 = 1u << 22;
    amx_is_allowed = isa_chosen() == ISA_AVX512 && __builtin_cpu_supports("avx512bf16") &&
                     __get_cpuid_count(7, 0, &a, &b, &c, &d) && (d & tile) && (d & bf16) &&
                     !syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA);
}

int isa_has_amx(void)
{
    static pthread_once_t asked = PTHREAD_ONCE_INIT;
    pthread_once(&asked, ask_for_amx);
    return amx_is_allowed;
}
#else
int isa_has_amx(void) { return 0; }
#endif
