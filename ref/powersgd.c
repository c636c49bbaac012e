/* powersgd.c - PowerSGD: a gradient matrix M (a,b) is sent as two thin ones, P (a,r) and Q (b,r),
 * of which each round computes one step of the power iteration. [Vogels et al. 2019, alg. 1]
 *
 *   1. M += G                         G the gradient, M the error of earlier rounds
 *   2. P  = M Q,  averaged by the group
 *   3. P  = orthogonalize(P)
 *   4. Q  = M^T P,  averaged by the group
 *   5. G  = P Q^T,  M -= G            the error stays for the next round: error feedback
 *
 * P and Q hold r (a + b) values, M a b: for 1024 x 4096 and r = 32, 26 times fewer. Q of the round
 * before starts the iteration, which so converges over rounds instead of in one. The products are
 * linear's forward and its two gradients, so every backend has them. [spec numerics 10] */
#include "powersgd.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define LEAST_NORM 1e-8 /* a column of zeros stays one */

/* A tensor as a matrix. */
void pl_powersgd_dims(size_t *rows, size_t *columns, const int64_t *shape, int axes)
{
    size_t axis[PL_POWERSGD_AXES_MAX] = { 1, 1 };
    assert(0 <= axes && axes <= PL_POWERSGD_AXES_MAX);
    for (int i = 0; i < axes; i++) axis[i] = (size_t)shape[i];
    /* more axes than two: the neighbours with the smallest product become one */
    for (; axes > 2; axes--) {
        int best = 0;
        for (int i = 1; i + 1 < axes; i++)
            if (axis[i] * axis[i + 1] < axis[best] * axis[best + 1]) best = i;
        axis[best] *= axis[best + 1];
        memmove(axis + best + 1, axis + best + 2, (size_t)(axes - best - 2) * sizeof *axis);
    }
    *rows = axis[0];
    *columns = axis[1];
}

/* Vectors, and matrices that P and Q would hardly make smaller, are sent as they are. */
int pl_powersgd_pays(size_t rows, size_t columns, int axes, int rank, double least)
{
    double a = (double)rows, b = (double)columns;
    return axes > 1 && 1 - rank * (a + b) / (a * b) >= least;
}

int pl_powersgd_init(struct pl_powersgd *s, const struct pl_backend *be, int a, int b, int r,
                     const float *Q)
{
    size_t A = (size_t)a, B = (size_t)b, R = (size_t)r;
    int rc;
    *s = (struct pl_powersgd){ .be = be, .a = a, .b = b, .r = r };
    s->M = be->alloc(A * B * sizeof(float));
    s->Q = be->alloc(B * R * sizeof(float));
    s->P = be->alloc(A * R * sizeof(float));
    rc = s->M && s->Q && s->P ? be->put(s->Q, Q, B * R * sizeof(float)) : PL_ENOMEM;
    if (rc) pl_powersgd_clear(s);
    return rc;
}

void pl_powersgd_clear(struct pl_powersgd *s)
{
    if (s->be) {
        s->be->free(s->M);
        s->be->free(s->Q);
        s->be->free(s->P);
    }
    memset(s, 0, sizeof *s);
}

/* 1., 2. */
int pl_powersgd_p(struct pl_powersgd *s, const float *G)
{
    int rc = s->be->axpy(s->M, 1, G, (size_t)s->a * (size_t)s->b);
    return rc ? rc : s->be->linear_dx(s->P, s->M, s->Q, s->a, s->r, s->b, 0);
}

/* 3., 4. */
int pl_powersgd_q(struct pl_powersgd *s)
{
    size_t bytes = (size_t)s->a * (size_t)s->r * sizeof(float);
    float *P = pl_alloc(bytes, 1);
    int rc = P ? s->be->get(P, s->P, bytes) : PL_ENOMEM;
    if (!rc) {
        pl_orthogonalize(P, s->a, s->r);
        rc = s->be->put(s->P, P, bytes);
    }
    pl_free(P);
    if (!rc) rc = s->be->fill(s->Q, 0, (size_t)s->b * (size_t)s->r);
    return rc ? rc : s->be->linear_dw(s->Q, NULL, s->M, s->P, s->a, s->r, s->b);
}

/* 5. */
int pl_powersgd_restore(float *G, struct pl_powersgd *s)
{
    int rc = s->be->linear(G, s->P, s->Q, NULL, s->a, s->r, s->b);
    return rc ? rc : s->be->axpy(s->M, -1, G, (size_t)s->a * (size_t)s->b);
}

/* Gram-Schmidt: each column becomes of length 1, and the later ones lose their part along it. */
void pl_orthogonalize(float *P_, int a, int r)
{
    float(*P)[r] = (float(*)[r])P_;
    for (int i = 0; i < r; i++) {
        double norm = 0;
        for (int k = 0; k < a; k++) norm += (double)P[k][i] * P[k][i];
        norm = fmax(sqrt(norm), LEAST_NORM);
        for (int k = 0; k < a; k++) P[k][i] = (float)(P[k][i] / norm);
        for (int j = i + 1; j < r; j++) {
            double along = 0;
            for (int k = 0; k < a; k++) along += (double)P[k][i] * P[k][j];
            for (int k = 0; k < a; k++) P[k][j] = (float)(P[k][j] - along * P[k][i]);
        }
    }
}
