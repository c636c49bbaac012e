/* factors_state.c - what goes from round to round, as bytes: the error M and the factor Q of each
 * matrix, and the norm by which an error is too large. A training that was stopped goes on with it
 * bit for bit.
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

size_t factors_state_bytes(const struct factors *f)
{
    size_t values = 0;
    for (size_t i = 0; i < f->count; i++) {
        const struct factors_matrix *m = &f->matrix[i];
        values += (size_t)m->a * (size_t)m->b + q_count(f, m);
    }
    return HEAD + values * sizeof(float);
}

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

int factors_saved_rank(const uint8_t *data, size_t n)
{
    int32_t rank;
    if (n < HEAD || memcmp(data, magic, AT_RANK)) return 0;
    pl_copy_little(&rank, data + AT_RANK, sizeof rank, 1);
    return rank >= 1 && rank <= FACTORS_RANK_MAX ? rank : 0;
}

/* Nothing of a damaged file is taken. */
static int is_sound(const uint8_t *data, size_t n, double norm)
{
    float x;
    if (!(norm >= 0) || !isfinite(norm)) return 0;
    for (size_t at = HEAD; at < n; at += sizeof x) {
        pl_copy_little(&x, data + at, sizeof x, 1);
        if (!isfinite(x)) return 0;
    }
    return 1;
}

int factors_load(struct factors *f, const uint8_t *data, size_t n, struct pl_err *err)
{
    const int rank = factors_saved_rank(data, n);
    double norm;
    if (rank != f->rank || n != factors_state_bytes(f))
        return pl_fail(err, PL_EUSE,
                       "PowerSGD: %zu bytes of rank %d, expected %zu of rank %d for this model", n,
                       rank, factors_state_bytes(f), f->rank);
    pl_copy_little(&norm, data + AT_NORM, sizeof norm, 1);
    if (!is_sound(data, n, norm))
        return pl_fail(err, PL_EFORMAT, "PowerSGD: the saved error is not finite");
    f->largest = norm;
    data += HEAD;
    for (size_t i = 0; i < f->count; i++) {
        struct factors_matrix *m = &f->matrix[i];
        const size_t cells = (size_t)m->a * (size_t)m->b;
        pl_copy_little(m->M, data, sizeof *m->M, cells);
        data += cells * sizeof *m->M;
        pl_copy_little(m->Q, data, sizeof *m->Q, q_count(f, m));
        data += q_count(f, m) * sizeof *m->Q;
    }
    return PL_OK;
}
