/* factors_state.c - what PowerSGD remembers from round to round, as bytes of a checkpoint.
 * [PowerSGD, alg. 1, 2]
 *
 *   M = W - P Q^T   error feedback: the part of the gradients that no round has sent yet
 *   Q               warm start: each round is one step of a power iteration that begins at the last
 *                   Q, so after some rounds its columns span the main directions of the gradients
 *   norm            the largest gradient so far; it tells when M is too large (FACTORS_ERROR_MAX)
 *
 * P follows from M, Q and the next gradient, so a training that was stopped goes on with these
 * three bit for bit.
 *
 *   4 "PSG1"   4 rank   8 norm   then for each matrix M (a,b), Q (b,r): little-endian float32 */
#include "factors.h"
#include "ref/byte_order.h"

#include <math.h>
#include <string.h>

static const char magic[] = "PSG1";
enum { AT_RANK = 4, AT_NORM = 8, HEAD = 16 };

static size_t q_count(const struct factors *f, const struct factors_matrix *m)
{
    return (size_t)m->b * (size_t)f->rank;
}

/* Shapes are not stored: they follow from the model and the rank, so the length is a check of
 * both. */
size_t factors_state_bytes(const struct factors *f)
{
    size_t values = 0;
    for (size_t i = 0; i < f->count; i++) {
        const struct factors_matrix *m = &f->matrix[i];
        values += (size_t)m->a * (size_t)m->b + q_count(f, m);
    }
    return HEAD + values * sizeof(float);
}

/* M is as large as its gradient, Q thin: the file is about as large as the compressed tensors. */
void factors_save(const struct factors *f, uint8_t *data)
{
    const int32_t rank = f->rank;
    memcpy(data, magic, AT_RANK);
    pl_copy_little(data + AT_RANK, &rank, sizeof rank, 1);
    pl_copy_little(data + AT_NORM, &f->largest, sizeof f->largest, 1);
    data += HEAD;
    for (size_t i = 0; i < f->count; i++) {
        const struct factors_matrix *m = &f->matrix[i];
        const size_t n = (size_t)m->a * (size_t)m->b;
        pl_copy_little(data, m->M, sizeof *m->M, n);
        data += n * sizeof *m->M;
        pl_copy_little(data, m->Q, sizeof *m->Q, q_count(f, m));
        data += q_count(f, m) * sizeof *m->Q;
    }
}

/* Needs no struct factors: a training that resumes asks for the rank before it can open one. 0: no
 * state of PowerSGD. */
int factors_saved_rank(const uint8_t *data, size_t n)
{
    int32_t rank;
    if (n < HEAD || memcmp(data, magic, AT_RANK)) return 0;
    pl_copy_little(&rank, data + AT_RANK, sizeof rank, 1);
    return rank >= 1 && rank <= FACTORS_RANK_MAX ? rank : 0;
}

/* A NaN in M would be in W = G + M, and so in every further round of this peer. Nothing of a
 * damaged file is taken. */
static int is_valid(const uint8_t *data, size_t n, double norm)
{
    float x;
    if (!(norm >= 0) || !isfinite(norm)) return 0; /* the first is false for NaN, too */
    for (size_t at = HEAD; at < n; at += sizeof x) {
        pl_copy_little(&x, data + at, sizeof x, 1);
        if (!isfinite(x)) return 0;
    }
    return 1;
}

int factors_load(struct factors *f, const uint8_t *data, size_t n, int64_t behind,
                 struct pl_err *err)
{
    const int takes_error = f->feedback == FACTORS_OWN || behind <= FACTORS_BEHIND_MAX;
    const int rank = factors_saved_rank(data, n);
    double norm;
    if (rank != f->rank || n != factors_state_bytes(f))
        return pl_fail(err, PL_EUSE,
                       "PowerSGD: %zu bytes of rank %d, expected %zu of rank %d for this model", n,
                       rank, factors_state_bytes(f), f->rank);
    pl_copy_little(&norm, data + AT_NORM, sizeof norm, 1);
    if (!is_valid(data, n, norm))
        return pl_fail(err, PL_EFORMAT, "PowerSGD: the saved error is not finite");
    /* All checks have passed. Before this line nothing of f has changed. */
    if (takes_error) f->largest = norm;
    data += HEAD;
    for (size_t i = 0; i < f->count; i++) {
        struct factors_matrix *m = &f->matrix[i];
        const size_t cells = (size_t)m->a * (size_t)m->b;
        if (takes_error) pl_copy_little(m->M, data, sizeof *m->M, cells);
        data += cells * sizeof *m->M;
        if (!behind) pl_copy_little(m->Q, data, sizeof *m->Q, q_count(f, m));
        data += q_count(f, m) * sizeof *m->Q;
    }
    return PL_OK;
}

void factors_begin_with(struct factors *f, const float *Q, size_t n)
{
    size_t all = 0;
    for (size_t i = 0; i < f->count; i++) all += q_count(f, &f->matrix[i]);
    for (size_t i = 0; n == all && i < f->count; i++) {
        memcpy(f->matrix[i].Q, Q, q_count(f, &f->matrix[i]) * sizeof *Q);
        Q += q_count(f, &f->matrix[i]);
    }
}
