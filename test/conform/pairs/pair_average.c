/* pair_average.c - a reducer's operations, for the three codings that travel. */
#include "pair.h"
#include "pairs.h"
#include "ref/dtype.h"

#include <string.h>

/* The smallest, an odd one, one more than a multiple of any block, a part of the reference run. */
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
        uint16_t half = i % 7 ? pl_half_from_float(value)
                              : (uint16_t)(0x8000 | i % 1024); /* subnormal */
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

/* Several senders: `first`, then codes more often than others. */
static void senders_of(struct pair *p, struct pl_sender *from, size_t first, int senders, size_t n)
{
    for (int k = 0; k < senders; k++) {
        size_t c = k ? (size_t)pair_int(p, 0, 5) : first;
        from[k].x = message(p, codings[c < 2 ? c : 2], n);
        from[k].weight = (float)pair_int(p, 0, 50) / 7;
    }
}

static void sum_all(struct pair *p, size_t first, int senders, size_t n)
{
    struct pl_sender from[5];
    if (!pair_case(p, "average_sum", "%s first, %d senders n%zu", names[first], senders, n)) return;
    senders_of(p, from, first, senders, n);
    struct pair_f32 sum = pair_host_f32(p, n);
    pair_work(p, 0, (4 + bytes[first] + senders - 1) * (double)n);
    PAIR(p, average_sum, sum.at[side], from, senders, n);
    pair_exact(p, "sum", sum.any);
}

static void reduce_all(struct pair *p, size_t first, int senders, size_t n, float weight)
{
    struct pl_sender from[5];
    if (!pair_case(p, "average_apply", "%s first, %d senders n%zu weight %g", names[first], senders,
                   n, weight))
        return;
    senders_of(p, from, first, senders, n);
    struct pair_f32 x = pair_host_f32(p, n);
    for (size_t i = 0; i < n; i++) x.at[0][i] = (float)pair_int(p, -1000, 1000) / 7;
    pair_share(p, x.any);
    pair_work(p, 0, (8 + bytes[first] + senders - 1) * (double)n);
    PAIR(p, average_apply, x.at[side], from, senders, weight, n);
    pair_exact(p, "x", x.any);
}

/* The codes are those of the delta. Encoding makes them as close to the reference's as its
 * tolerance says, so they are compared with the backend's own encoder. */
static void encode_delta(struct pair *p, size_t c, size_t n, float weight)
{
    if (!pair_case(p, "average_delta8", "%s n%zu weight %g", names[c], n, weight)) return;
    struct pl_coded x = message(p, codings[c], n);
    struct pair_f32 sum = pair_host_f32(p, n), table = pair_host_f32(p, PL_CODES);
    struct pair_u8 codes = pair_host_u8(p, n);
    float *delta = (float *)(void *)pair_scratch(p, n + 16), want[PL_CODES];
    uint8_t *want_codes = (uint8_t *)pair_scratch(p, n / 4 + 16);
    for (size_t i = 0; i < n; i++) sum.at[0][i] = (float)pair_int(p, -1000, 1000) / 7;
    pair_share(p, sum.any);
    pair_work(p, 0, 6 * (double)n);
    PAIR(p, average_delta8, codes.at[side], table.at[side], sum.at[side], weight, &x, n);
    pair_check(p,
               !p->side[1]->average_delta(delta, sum.at[1], weight, &x, n) &&
                   !p->side[1]->uniform8_encode(want_codes, want, delta, n),
               "no memory");
    pair_check(p,
               !memcmp(want_codes, pair_result(p, codes.any, 1), n) &&
                   !memcmp(want, pair_result(p, table.any, 1), sizeof want),
               "not what encoding the delta gives");
}

/* The answer computed without a stored sum equals the answer computed with one, up to the last of
 * the senders. */
static void reply(struct pair *p, size_t first, int senders, size_t n, float weight)
{
    struct pl_sender from[5];
    if (!pair_case(p, "average_reduce8", "%s first, %d senders n%zu weight %g", names[first],
                   senders, n, weight))
        return;
    senders_of(p, from, first, senders, n);
    const struct pl_coded *x = &from[senders - 1].x;
    struct pair_f32 table = pair_host_f32(p, PL_CODES);
    struct pair_u8 codes = pair_host_u8(p, n);
    float *sum = (float *)(void *)pair_scratch(p, n + 16), want[PL_CODES];
    uint8_t *want_codes = (uint8_t *)pair_scratch(p, n / 4 + 16);
    pair_work(p, 0, (1 + bytes[first] + senders) * (double)n);
    PAIR(p, average_reduce8, codes.at[side], table.at[side], from, senders, weight, x, n);
    pair_check(p,
               !p->side[1]->average_sum(sum, from, senders, n) &&
                   !p->side[1]->average_delta8(want_codes, want, sum, weight, x, n),
               "no memory");
    pair_check(p,
               !memcmp(want_codes, pair_result(p, codes.any, 1), n) &&
                   !memcmp(want, pair_result(p, table.any, 1), sizeof want),
               "not what is answered once the sum is there");
}

void pair_average(struct pair *p)
{
    for (size_t c = 0; c < PL_COUNT(codings); c++)
        for (size_t i = 0; i < PL_COUNT(sizes); i++) {
            add(p, c, sizes[i]);
            delta(p, c, sizes[i], 17.3f);
        }
    for (int i = 0; i < 12; i++) {
        add(p, (size_t)i % PL_COUNT(codings), (size_t)pair_int(p, 1, 100000));
        delta(p, (size_t)i % PL_COUNT(codings), (size_t)pair_int(p, 1, 100000),
              (float)pair_int(p, 1, 1000) / 3);
    }
    for (size_t c = 0; c < PL_COUNT(codings); c++)
        for (size_t i = 0; i < PL_COUNT(sizes); i++) {
            encode_delta(p, c, sizes[i], 17.3f);
            for (int senders = 1; senders <= 3; senders++) {
                sum_all(p, c, senders, sizes[i]);
                reduce_all(p, c, senders, sizes[i], 9.1f);
                reply(p, c, senders, sizes[i], 9.1f);
            }
        }
    for (int i = 0; i < 12; i++) {
        sum_all(p, (size_t)i % PL_COUNT(codings), pair_int(p, 1, 5),
                (size_t)pair_int(p, 1, 100000));
        reduce_all(p, (size_t)i % PL_COUNT(codings), pair_int(p, 1, 5),
                   (size_t)pair_int(p, 1, 100000), (float)pair_int(p, 1, 1000) / 3);
        reply(p, (size_t)i % PL_COUNT(codings), pair_int(p, 1, 5), (size_t)pair_int(p, 1, 100000),
              (float)pair_int(p, 1, 1000) / 3);
        encode_delta(p, (size_t)i % PL_COUNT(codings), (size_t)pair_int(p, 1, 100000),
                     (float)pair_int(p, 1, 1000) / 3);
    }
    reduce_all(p, 0, 2, 4096, 0);
    encode_delta(p, 2, 4096, 0);
    reply(p, 0, 2, 4096, 0);
    delta(p, 0, 31, 0); /* no weights: nothing changes */
}
