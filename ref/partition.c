/* partition.c - tensors are laid end to end, cut into parts of equal encoded size, and dealt out:
 * each peer gets the parts that lie in its share of the whole. [TTT 2.1, communication]
 * [spec hivemind-protocol 5.1, 5.3]
 *
 *   border_j = total * (fraction_1 + ... + fraction_j) / (fraction_1 + ... + fraction_N)
 *
 *   tensors  |----- a -----|-- b --|------ c ------|
 *   parts    |---|---|---|-|---|---|---|---|---|---|      never across two tensors
 *   shares   |      peer 0      |  1  |   peer 2   |      a part goes where most of it lies
 *
 * Every member computes this for itself, so the last bit of a border counts. */
#include "partition.h"

#include <math.h>

/* Values that fill part_bytes once they are encoded. */
size_t pl_part_values(enum pl_compression method, size_t part_bytes)
{
    size_t bytes = method == PL_COMPRESS_NONE                                         ? 4
                   : method == PL_COMPRESS_FLOAT16 || method == PL_COMPRESS_MEANSTD16 ? 2
                                                                                      : 1;
    return part_bytes / bytes ? part_bytes / bytes : 1;
}

/* The peers sum with numpy: up to 128 values in eight interleaved sums, more by halving. The last
 * bit decides where a border falls. */
static double numpy_sum(const double *x, size_t n)
{
    double s[8], sum = 0;
    size_t i = 0;
    if (n > 128) {
        size_t half = n / 2 - n / 2 % 8;
        return numpy_sum(x, half) + numpy_sum(x + half, n - half);
    }
    if (n >= 8) {
        for (int k = 0; k < 8; k++) s[k] = x[k];
        for (i = 8; i + 8 <= n; i += 8)
            for (size_t k = 0; k < 8; k++) s[k] += x[i + k];
        sum = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]));
    }
    for (; i < n; i++) sum += x[i];
    return sum;
}

/* border_j = total (fraction_1 + ... + fraction_j) / sum: where peer j's share ends, in
 * elements. */
static int borders(size_t *border, const double *fraction, int N, size_t total, struct pl_err *err)
{
    double sum = numpy_sum(fraction, (size_t)N), upto = 0;
    for (int j = 0; j < N; j++)
        if (!(fraction[j] >= 0 && isfinite(fraction[j])))
            return pl_fail(err, PL_EUSE, "partition: share %d is %g, expected at least 0", j,
                           fraction[j]);
    if (!(sum > 0 && isfinite(sum)))
        return pl_fail(err, PL_EUSE, "partition: the shares of %d peers sum to %g", N, sum);
    for (int j = 0; j < N; j++) {
        upto += fraction[j];
        border[j] = (size_t)(upto / sum * (double)total);
    }
    border[N - 1] = total;
    return PL_OK;
}

static size_t smaller(size_t a, size_t b) { return a < b ? a : b; }

/* Parts are never divided: one across a border belongs to the peer that has most of it. Returns the
 * reducer of [at, at + length); *peer, whose share is being assigned, advances. */
static int reducer_of(const size_t *border, int *peer, size_t at, size_t length)
{
    int best = *peer;
    size_t most, end = at + length;
    if (end <= border[*peer]) return best;
    most = border[*peer] > at ? border[*peer] - at : 0;
    /* the overlap of [at, end) with each share that it crosses; the largest wins, the first of
     * equals */
    while (end > border[*peer]) {
        size_t part = smaller(end, border[*peer + 1]) - smaller(end, border[*peer]);
        ++*peer;
        if (part > most) most = part, best = *peer;
    }
    return best;
}

/* ceil(elements / values); an empty tensor is one empty part */
static size_t parts_of(size_t elements, size_t values)
{
    return elements ? (elements - 1) / values + 1 : 1;
}

int pl_partition(struct pl_part **parts, size_t *count, const size_t *elements,
                 const enum pl_compression *method, size_t tensors, const double *fraction, int N,
                 size_t part_bytes, struct pl_err *err)
{
    size_t total = 0, at = 0, *border = N > 0 ? pl_alloc((size_t)N, sizeof *border) : NULL;
    int peer = 0, rc;
    *parts = NULL;
    *count = 0;
    if (N < 1) return pl_fail(err, PL_EUSE, "partition: a group of %d", N);
    /* count the parts before allocating them */
    for (size_t t = 0; t < tensors; t++) {
        total += elements[t];
        *count += parts_of(elements[t], pl_part_values(method[t], part_bytes));
        if (total < elements[t] || total > PTRDIFF_MAX || *count > PL_PARTS_MAX) {
            pl_free(border);
            return pl_fail(err, PL_ELIMIT, "partition: tensor %zu makes it more than %zu parts", t,
                           PL_PARTS_MAX);
        }
    }
    *parts = pl_alloc(*count, sizeof **parts);
    rc = !border || !*parts ? pl_fail(err, PL_ENOMEM, "partition: no memory for %zu parts", *count)
                            : borders(border, fraction, N, total, err);
    /* cut each tensor into parts of `values` elements, the last one shorter, and give each a
     * reducer */
    for (size_t t = 0, p = 0; !rc && t < tensors; t++) {
        size_t values = pl_part_values(method[t], part_bytes), n = parts_of(elements[t], values);
        for (size_t i = 0; i < n; i++, p++) {
            struct pl_part *part = &(*parts)[p];
            *part = (struct pl_part){ t, i, i * values, 0, 0 };
            part->length = smaller(values, elements[t] - part->start);
            part->reducer = reducer_of(border, &peer, at, part->length);
            at += part->length;
        }
    }
    pl_free(border);
    if (rc) {
        pl_free(*parts);
        *parts = NULL;
        *count = 0;
    }
    return rc;
}
