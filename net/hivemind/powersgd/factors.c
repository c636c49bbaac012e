/* factors.c - the mathematics of factors.h, matrix by matrix.
 *
 * P = W Q and Q' = W^T P are computed as two products, of M and of G. That reads as much memory as
 * M += G would, and leaves both unchanged until the round has succeeded.
 *
 *   W = G + M               gradient and error feedback, never stored          (a,b)
 *   factors_begin           P = W Q                        averaged: phase P   (a,r)
 *   factors_project         P orthonormal, Q' = W^T P      averaged: phase Q   (b,r)
 *   factors_finish          G = P Q'^T, M = W - P Q'^T     Q = Q' for the next round
 *
 * A round sends r (a + b) values for a matrix of a b. [PowerSGD, alg. 1] */
#include "factors.h"
#include "ref/powersgd.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- shapes ----------------------------------------------------------------------------------- */

int factors_shape(size_t *a, size_t *b, const struct schema_tensor *tensor, int rank)
{
    const struct pl_wire_type *type = &tensor->type;
    size_t n;
    /* Tensors come from our own model; a tensor whose sides do not fit an int is not compressed. */
    if (type->dims < 2 || type->dims > PL_POWERSGD_AXES_MAX || pl_wire_elements(&n, type, NULL) ||
        !n)
        return 0;
    pl_powersgd_dims(a, b, type->size, type->dims);
    return *a <= INT32_MAX && *b <= INT32_MAX &&
           pl_powersgd_pays(*a, *b, type->dims, rank, FACTORS_LEAST_GAIN);
}

/* Also used with a rank that a stranger claims: no memory is taken for it. */
size_t factors_count(const struct schema_tensor *schema, size_t tensors, int rank)
{
    size_t count = 0, a, b;
    for (size_t t = 0; t < tensors; t++) count += (size_t)factors_shape(&a, &b, &schema[t], rank);
    return count;
}

/* --- open, close ------------------------------------------------------------------------------ */

/* Uniform in [-1, 1). hivemind draws from [0, 1): such columns are alike, and where the rows of W
 * are alike, too, W Q loses 2.4 digits in Gram-Schmidt (1.2 here). Each peer draws its own, so
 * those of hivemind do not notice. */
static int draw_column(struct factors *f, struct factors_matrix *m, int column)
{
    uint32_t bits[256];
    for (int k = 0; k < m->b; k++) {
        if (k % (int)PL_COUNT(bits) == 0 &&
            random_source_bytes(&f->random, (uint8_t *)bits, sizeof bits))
            return PL_ENOMEM;
        m->Q[(size_t)k * (size_t)f->rank + (size_t)column] =
            (float)(bits[k % (int)PL_COUNT(bits)] >> 8) * 0x1p-23f - 1;
    }
    return PL_OK;
}

static int draw(struct factors *f, struct factors_matrix *m)
{
    int rc = PL_OK;
    for (int column = 0; !rc && column < f->rank; column++) rc = draw_column(f, m, column);
    return rc;
}

/* The buffers of one matrix W (a,b), compressed to rank r. */
static int open_matrix(struct factors *f, size_t index, size_t a, size_t b)
{
    struct factors_matrix *m = &f->matrix[f->count++];
    const size_t r = (size_t)f->rank;
    *m = (struct factors_matrix){ .index = index, .a = (int)a, .b = (int)b };
    /* M is as large as the gradient, the rest is thin. `next` receives Q' and its mean. */
    m->M = pl_alloc(a * b, sizeof *m->M);
    m->Q = pl_alloc(b * r, sizeof *m->Q);
    m->P = pl_alloc(a * r, sizeof *m->P);
    m->next = pl_alloc(b * r, sizeof *m->next);
    if (f->feedback == FACTORS_OWN) m->own = pl_alloc(b * r, sizeof *m->own);
    if (!m->M || !m->Q || !m->P || !m->next || (f->feedback == FACTORS_OWN && !m->own))
        return PL_ENOMEM;
    /* P Q'^T of one matrix at a time: as much as the largest. */
    if (a * b > f->scratch_n) f->scratch_n = a * b;
    /* No error yet. The first Q is random, and P = W Q a random projection [alg. 1]; later
     * rounds begin with the Q of the round before. */
    memset(m->M, 0, a * b * sizeof *m->M);
    return draw(f, m);
}

static int open_phase(struct factors_phase *p, size_t tensors)
{
    p->elements = pl_alloc(tensors, sizeof *p->elements);
    p->method = pl_alloc(tensors, sizeof *p->method);
    p->tensor = pl_alloc(tensors, sizeof *p->tensor);
    return p->elements && p->method && p->tensor ? PL_OK : PL_ENOMEM;
}

/* A factor is compressed like any tensor of its size. */
static void add_factor(struct factors_phase *p, const struct factors_options *o, float *factor,
                       size_t elements)
{
    p->elements[p->tensors] = elements;
    p->method[p->tensors] = elements < PL_WIRE_ADAPTIVE ? o->small : o->large;
    p->tensor[p->tensors++] = factor;
}

/* P: P_1, P_2, ...  Q: Q_1, Q_2, ... and the tensors that are not compressed; both in the order of
 * the tensors. */
static int open_phases(struct factors *f, const struct factors_options *o)
{
    struct factors_phase *p = &f->phase[FACTORS_P], *q = &f->phase[FACTORS_Q];
    const size_t r = (size_t)f->rank;
    size_t next = 0;
    if (open_phase(p, f->count + 1) || open_phase(q, f->tensors + 1)) return PL_ENOMEM;
    for (size_t i = 0; i < f->count; i++) {
        struct factors_matrix *m = &f->matrix[i];
        add_factor(p, o, m->P, (size_t)m->a * r);
        add_factor(q, o, m->next, (size_t)m->b * r);
    }
    for (size_t t = 0; t < f->tensors; t++) {
        if (next < f->count && f->matrix[next].index == t) {
            next++;
            continue;
        }
        /* Vectors and small matrices travel whole, once, in phase Q. */
        if (pl_wire_elements(&q->elements[q->tensors], &o->schema[t].type, NULL)) return PL_EUSE;
        q->method[q->tensors] = o->method[t];
        q->tensor[q->tensors++] = NULL; /* of each round */
    }
    return PL_OK;
}

int factors_open(struct factors **out, const struct factors_options *o, struct pl_err *err)
{
    struct factors *f;
    int rc = PL_OK;
    *out = NULL;
    if (o->rank < 1 || o->rank > FACTORS_RANK_MAX)
        return pl_fail(err, PL_EUSE, "PowerSGD of rank %d: expected 1 to %d", o->rank,
                       FACTORS_RANK_MAX);
    f = calloc(1, sizeof *f);
    if (!f) return pl_fail(err, PL_ENOMEM, "PowerSGD: no memory");
    f->be = o->be;
    f->rank = o->rank;
    f->feedback = o->feedback;
    f->random = o->random;
    f->tensors = o->tensors;
    f->matrix = calloc(factors_count(o->schema, o->tensors, o->rank) + 1, sizeof *f->matrix);
    if (!f->matrix) rc = PL_ENOMEM;
    for (size_t t = 0; !rc && t < o->tensors; t++) {
        size_t a, b;
        if (factors_shape(&a, &b, &o->schema[t], o->rank)) rc = open_matrix(f, t, a, b);
    }
    if (!rc) rc = open_phases(f, o);
    if (!rc && f->scratch_n && !(f->scratch = pl_alloc_unset(f->scratch_n, sizeof *f->scratch)))
        rc = PL_ENOMEM;
    if (rc) {
        factors_close(f);
        return pl_fail(err, rc, "PowerSGD: no memory");
    }
    *out = f;
    return PL_OK;
}

void factors_close(struct factors *f)
{
    if (!f) return;
    for (size_t i = 0; f->matrix && i < f->count; i++) {
        pl_free(f->matrix[i].M);
        pl_free(f->matrix[i].Q);
        pl_free(f->matrix[i].P);
        pl_free(f->matrix[i].next);
        pl_free(f->matrix[i].own);
    }
    for (int i = 0; i < FACTORS_PHASES; i++) {
        pl_free(f->phase[i].elements);
        pl_free(f->phase[i].method);
        pl_free(f->phase[i].tensor);
    }
    free(f->matrix);
    pl_free(f->scratch);
    free(f);
}

/* --- one round -------------------------------------------------------------------------------- */

/* No NaN, and nothing that a groupmate would refuse. */
static int all_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(x[i]) <= FACTORS_VALUE_MAX)) return 0;
    return 1;
}

/* P = M Q + G Q */
static int multiply(const struct factors *f, const struct factors_matrix *m, const float *G)
{
    int rc = f->be->linear_dx(m->P, m->M, m->Q, m->a, f->rank, m->b, 0);
    return rc ? rc : f->be->linear_dx(m->P, G, m->Q, m->a, f->rank, m->b, 1);
}

/* A zero column of Q stays zero: its column of P, and so of Q', is zero too. This happens after a
 * round without any gradient, and where the gradients' rank is lower than ours. A new random column
 * of one peer is enough for the group. */
static int refill(struct factors *f, struct factors_matrix *m)
{
    const size_t r = (size_t)f->rank;
    int rc = PL_OK;
    for (size_t column = 0; !rc && column < r; column++) {
        int is_zero = 1;
        for (size_t k = 0; is_zero && k < (size_t)m->b; k++) is_zero = m->Q[k * r + column] == 0;
        if (is_zero) rc = draw_column(f, m, (int)column);
    }
    return rc;
}

/* Error feedback returns what was not sent. If it grows instead of shrinking, it is worth less than
 * the rounds that it spoils. */
static void forget_error(struct factors *f, struct factors_matrix *m)
{
    memset(m->M, 0, (size_t)m->a * (size_t)m->b * sizeof *m->M);
    f->note = "PowerSGD: the error of earlier rounds was not finite or too large, and is dropped";
}

/* The norm of all gradients: FACTORS_ERROR_MAX is in units of the largest. */
static int note_norm(struct factors *f, float *const *gradient)
{
    double sum = 0, part;
    int rc = PL_OK;
    for (size_t i = 0; !rc && i < f->count; i++) {
        const struct factors_matrix *m = &f->matrix[i];
        rc = f->be->sumsq(&part, gradient[m->index], (size_t)m->a * (size_t)m->b);
        if (!rc) sum += part;
    }
    if (!rc && isfinite(sum)) f->largest = fmax(f->largest, sqrt(sum));
    return rc;
}

/* Phase P. The gradient and M stay as they are, so a failed round can begin again. */
int factors_begin(struct factors *f, float *const *gradient)
{
    int rc;
    f->note = NULL;
    rc = note_norm(f, gradient);
    for (size_t i = 0; !rc && i < f->count; i++) {
        struct factors_matrix *m = &f->matrix[i];
        const size_t n = (size_t)m->a * (size_t)f->rank;
        /* P = W Q: the columns that the group averages in phase P */
        if ((rc = refill(f, m)) || (rc = multiply(f, m, gradient[m->index]))) return rc;
        if (all_finite(m->P, n)) continue;
        /* A NaN in M would stay there permanently, and an absurd Q until a round succeeds. */
        forget_error(f, m);
        if ((rc = draw(f, m)) || (rc = multiply(f, m, gradient[m->index]))) return rc;
        if (!all_finite(m->P, n)) return PL_EFORMAT;
    }
    return rc;
}

/* Each peer orthonormalizes the P that it has decoded. With P^T P = 1 the best Q' is W^T P. */
int factors_project(struct factors *f, float *const *gradient)
{
    const size_t r = (size_t)f->rank;
    size_t at = f->count, next = 0;
    int rc = PL_OK;
    for (size_t i = 0; !rc && i < f->count; i++) {
        struct factors_matrix *m = &f->matrix[i];
        const float *G = gradient[m->index];
        pl_orthogonalize(m->P, m->a, f->rank);
        /* Q' = M^T P + G^T P */
        memset(m->next, 0, (size_t)m->b * r * sizeof *m->next);
        rc = f->be->linear_dw(m->next, NULL, m->M, m->P, m->a, f->rank, m->b);
        if (!rc) rc = f->be->linear_dw(m->next, NULL, G, m->P, m->a, f->rank, m->b);
        if (!rc && !all_finite(m->next, (size_t)m->b * r)) rc = PL_EFORMAT;
        /* `next` becomes the group's mean; the textbook's error needs this peer's own. */
        if (!rc && m->own) memcpy(m->own, m->next, (size_t)m->b * r * sizeof *m->own);
    }
    /* What is not compressed is averaged in place, in the gradient. */
    for (size_t t = 0; t < f->tensors; t++)
        if (next < f->count && f->matrix[next].index == t) next++;
        else f->phase[FACTORS_Q].tensor[at++] = gradient[t];
    return rc;
}

/* M = M + G - P q^T */
static int subtract(struct factors *f, struct factors_matrix *m, const float *G, const float *q)
{
    const size_t n = (size_t)m->a * (size_t)m->b;
    int rc = f->be->linear(f->scratch, m->P, q, NULL, m->a, f->rank, m->b);
    if (!rc) rc = f->be->axpy(m->M, 1, G, n);
    return rc ? rc : f->be->axpy(m->M, -1, f->scratch, n);
}

/* One matrix: M, then G = P Q'^T. */
static int finish_matrix(struct factors *f, struct factors_matrix *m, float *G)
{
    const size_t n = (size_t)m->a * (size_t)m->b;
    float *Q = m->Q;
    int rc = subtract(f, m, G, m->own ? m->own : m->next);
    /* P Q'^T with the group's Q' is in the scratch buffer already where the error was computed from
     * it. */
    if (!rc && !m->own) rc = f->be->copy(G, f->scratch, n);
    else if (!rc) rc = f->be->linear(G, m->P, m->next, NULL, m->a, f->rank, m->b);
    /* Warm start: the next P = W Q continues the power iteration, which one round alone would leave
     * after a single step. */
    memcpy(Q, m->next, (size_t)m->b * (size_t)f->rank * sizeof *Q);
    return rc;
}

int factors_finish(struct factors *f, float *const *gradient)
{
    double sum = 0, part = 0;
    int rc = PL_OK;
    for (size_t i = 0; !rc && i < f->count; i++) {
        struct factors_matrix *m = &f->matrix[i];
        rc = finish_matrix(f, m, gradient[m->index]);
        if (!rc) rc = f->be->sumsq(&part, m->M, (size_t)m->a * (size_t)m->b);
        sum += part;
    }
    /* |M| over all matrices; the comparison is false for NaN, too. */
    if (!rc && !(sqrt(sum) <= FACTORS_ERROR_MAX * f->largest))
        for (size_t i = 0; i < f->count; i++) forget_error(f, &f->matrix[i]);
    return rc;
}
