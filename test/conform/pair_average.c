/* pair_average.c - a reducer's two operations, for the three codings that travel. */
#include "pairs.h"
#include "../../ref/dtype.h"

#include <string.h>

/* Smallest, odd, a piece of any blocking and one more, a part of the run. */
static const size_t sizes[] = { 1, 31, 16384 * 5 + 1, 524288 };
static const enum pl_compression codings[] = { PL_COMPRESS_NONE, PL_COMPRESS_FLOAT16,
                                               PL_COMPRESS_UNIFORM8 };
static const double bytes[] = { 4, 2, 1 };
static const char *const names[] = { "float32", "halves", "codes" };

/* A message of n values in host memory, odd addresses included, as they are in a packet. */
static struct pl_coded message(struct pair *p, enum pl_compression method, size_t n)
{
    char *at = (char *)pair_scratch(p, n + 2) + 1;
    struct pl_coded x = { .method = method, .data = at };
    for (int k = 0; k < PL_CODES; k++) x.table[k] = (float)pair_int(p, -1000, 1000) / 300;
    for (size_t i = 0; i < n; i++) {
        float value = (float)pair_int(p, -100000, 100000) / 70000;
        uint16_t half =
            i % 7 ? pl_half_from_float(value) : (uint16_t)(0x8000 | i % 1024); /* subnormal */
        if (method == PL_COMPRESS_NONE) memcpy(at + 4 * i, &value, 4);
        else if (method == PL_COMPRESS_FLOAT16) memcpy(at + 2 * i, &half, 2);
        else at[i] = (char)pair_int(p, 0, 255);
    }
    return x;
}

static void add(struct pair *p, size_t c, size_t n)
{
    if (!pair_case(p, "average_add", "%s n%zu", names[c], n)) return;
    struct pl_coded x = message(p, codings[c], n);
    struct pair_f32 sum = pair_host_f32(p, n);
    for (size_t i = 0; i < n; i++) sum.at[0][i] = (float)pair_int(p, -1000, 1000) / 7;
    pair_share(p, sum.any);
    pair_work(p, 0, (8 + bytes[c]) * (double)n);
    PAIR(p, average_add, sum.at[side], &x, 3.7f, n);
    pair_exact(p, "sum", sum.any);
}

static void delta(struct pair *p, size_t c, size_t n, float weight)
{
    if (!pair_case(p, "average_delta", "%s n%zu weight %g", names[c], n, weight)) return;
    struct pl_coded x = message(p, codings[c], n);
    struct pair_f32 sum = pair_host_f32(p, n), out = pair_host_f32(p, n);
    for (size_t i = 0; i < n; i++) sum.at[0][i] = (float)pair_int(p, -1000, 1000) / 7;
    pair_share(p, sum.any);
    pair_work(p, 0, (8 + bytes[c]) * (double)n);
    PAIR(p, average_delta, out.at[side], sum.at[side], weight, &x, n);
    pair_exact(p, "delta", out.any);
}

void pair_average(struct pair *p)
{
    for (size_t c = 0; c < PL_COUNT(codings); c++)
        for (size_t i = 0; i < PL_COUNT(sizes); i++) {
            add(p, c, sizes[i]);
            delta(p, c, sizes[i], 17.3f);
        }
    delta(p, 0, 31, 0); /* nobody had weight: nothing changes */
}
