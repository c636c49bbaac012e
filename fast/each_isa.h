/* each_isa.h - compiles LANES_FILE once per instruction set; see isa.h. Names go through ISA(), so
 * that the copies do not meet: ISA(sum) is sum_plain, sum_avx2, sum_avx512. */
#include "isa.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define LANES 4
#define ISA(name) name##_plain
#include "lanes.h"
#include LANES_FILE
#undef LANES
#undef ISA

#if defined(__x86_64__)

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define LANES 8
#define ISA(name) name##_avx2
#include "lanes.h"
#include LANES_FILE
#undef LANES
#undef ISA
#if defined(__clang__)
#pragma clang attribute pop
#pragma clang attribute push(__attribute__((target("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw"))), \
                             apply_to = function)
#else
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma,avx512f,avx512vl,avx512dq,avx512bw")
#endif
#define LANES 16
#define ISA(name) name##_avx512
#include "lanes.h"
#include LANES_FILE
#undef LANES
#undef ISA
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

/* The three copies of a constant, in the order of enum isa. */
#define ISA_TABLE(name) { &name##_plain, &name##_avx2, &name##_avx512 }
#else
#define ISA_TABLE(name) { &name##_plain, &name##_plain, &name##_plain }
#endif
#undef LANES_FILE
