/* balance_program.c - the linear program of load balancing, which interior_point.c solves.
 * [Andersen & Andersen 2000]
 *
 *   minimise xi   so that   sum w >= 1,   (N-2)/b_i w_i - xi <= -1/b_i,   0 <= w_i <= 1
 *
 * over the k peers with bandwidth, fastest first: xi is the time at which the last of them is done.
 * For two peers the middle rows only bound xi, which is then shifted to 0 and stands alone. With
 * slacks s the program is  min c'x,  A x = b,  x >= 0,  where
 *
 *         w: k         xi   s: 1 + k + k
 *   A = [ -1 ... -1     0   1           ]
 *       [ diag(r)      -1       I       ]     r_i = (N-2)/b_i
 *       [ I             0           I   ]
 */
#include "balance_program.h"
#include "interior_point.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- A ---------------------------------------------------------------------------------------- */

/* out = A x */
static void times_a(double *out, const struct program *p, const double *x)
{
    const double *s = x + p->n;
    double sum = 0;
    for (int i = 0; i < p->k; i++) sum += x[i];
    out[0] = -sum + s[0];
    for (int i = 0; i < p->slow; i++) out[1 + i] = p->r[i] * x[i] - x[p->k] + s[1 + i];
    for (int i = 0; i < p->k; i++) out[1 + p->slow + i] = x[i] + s[1 + p->slow + i];
}

/* out = A' y */
static void times_a_transposed(double *out, const struct program *p, const double *y)
{
    double sum = 0;
    for (int i = 0; i < p->k; i++) out[i] = -y[0] + y[1 + p->slow + i];
    for (int i = 0; i < p->slow; i++) {
        out[i] += p->r[i] * y[1 + i];
        sum += y[1 + i];
    }
    out[p->k] = -sum;
    memcpy(out + p->n, y, (size_t)p->m * sizeof *y);
}

/* A D A' = L L', with the entries that are not 0 written out. 0: it is no longer positive
 * definite. */
static int factor(struct method *f)
{
    const struct program *p = &f->p;
    const int m = p->m;
    const double *D = f->D;
    double *L = f->factor;
    /* Each w_i is in three rows of A: the sum, its time, its cap. So D_i adds to the products of
     * these rows alone. xi is in all rows of times. */
    memset(L, 0, (size_t)m * (size_t)m * sizeof *L);
    for (int i = 0; i < p->k; i++) {
        int slow = 1 + i, cap = 1 + p->slow + i;
        L[0] += D[i];
        L[cap * m] = -D[i];
        L[cap * m + cap] = D[i];
        if (!p->slow) continue;
        L[slow * m] = -p->r[i] * D[i];
        L[cap * m + slow] = p->r[i] * D[i];
        for (int j = 0; j <= i; j++) L[slow * m + 1 + j] = D[p->k];
        L[slow * m + slow] += p->r[i] * p->r[i] * D[i];
    }
    /* each slack is in one row */
    for (int i = 0; i < m; i++) L[i * m + i] += D[p->n + i];
    /* Cholesky: L_ij = (M_ij - sum over k < j of L_ik L_jk) / L_jj, in place */
    for (int i = 0; i < m; i++) {
        for (int j = 0; j <= i; j++) {
            double sum = L[i * m + j] - dot(&L[i * m], &L[j * m], j);
            if (i == j && !(sum > 0)) return 0;
            L[i * m + j] = i == j ? sqrt(sum) : sum / L[j * m + j];
        }
    }
    return 1;
}

/* --- set-up ----------------------------------------------------------------------------------- */

/* Vectors of a block, one after the other. */
static double *take(double **block, int n)
{
    double *at = *block;
    *block += n;
    return at;
}

/* c, b and r of the program; x = z = tau = kappa = 1, where every method of this kind begins. */
static double *set_up(struct method *f, const double *b, const int *order, int k, int N)
{
    struct program *p = &f->p;
    size_t m, variables;
    double *block, *all;
    *p = (struct program){ .times_a = times_a,
                           .times_a_transposed = times_a_transposed,
                           .factor = factor,
                           .k = k,
                           .slow = N > 2 ? k : 0 };
    p->n = k + 1;
    p->m = 1 + p->slow + k;
    p->variables = p->n + p->m;
    m = (size_t)p->m, variables = (size_t)p->variables;
    if (!(all = block = calloc(m * m + 8 * m + 12 * variables + (size_t)k, sizeof *all)))
        return NULL;
    f->factor = take(&block, p->m * p->m);
    p->r = take(&block, k), p->b = take(&block, p->m), p->c = take(&block, p->variables);
    f->at.x = take(&block, p->variables), f->at.y = take(&block, p->m),
    f->at.z = take(&block, p->variables);
    f->d.x = take(&block, p->variables), f->d.y = take(&block, p->m),
    f->d.z = take(&block, p->variables);
    f->D = take(&block, p->variables), f->rp = take(&block, p->m),
    f->rd = take(&block, p->variables);
    f->u = take(&block, p->variables), f->v = take(&block, p->m),
    f->pu = take(&block, p->variables);
    f->pv = take(&block, p->m), f->rx = take(&block, p->variables),
    f->t = take(&block, p->variables);
    f->t2 = take(&block, p->variables);
    /* minimise xi, which is variable k; the right-hand sides of the three kinds of rows */
    p->c[k] = 1;
    p->b[0] = -1;
    for (int i = 0; i < k; i++) {
        p->r[i] = (N - 2) / b[order[i]];
        if (p->slow) p->b[1 + i] = -1 / b[order[i]];
        p->b[1 + p->slow + i] = 1;
    }
    for (int i = 0; i < p->variables; i++) f->at.x[i] = f->at.z[i] = 1;
    f->at.tau = f->at.kappa = 1;
    return all;
}

/* w = x / tau, dealt out in the order of the peers. */
int pl_balance_program(double *fraction, const double *b, int N)
{
    struct method f = { .mu = 0 };
    int order[PL_BALANCE_PROGRAM_MAX], k = 0, rc;
    double *memory;
    if (N > PL_BALANCE_PROGRAM_MAX) return PL_EAGAIN;
    for (int i = 0; i < N; i++) { /* by falling bandwidth */
        int at = k;
        if (!(b[i] > 0)) continue;
        for (; at && b[order[at - 1]] < b[i]; at--) order[at] = order[at - 1];
        order[at] = i;
        k++;
    }
    if (k == 1) {
        for (int i = 0; i < N; i++) fraction[i] = i == order[0];
        return PL_OK;
    }
    if (!(memory = set_up(&f, b, order, k, N))) return PL_ENOMEM;
    rc = interior_point(&f);
    if (!rc) {
        for (int i = 0; i < N; i++) fraction[i] = 0;
        for (int i = 0; i < k; i++) fraction[order[i]] = fmax(0, f.at.x[i] / f.at.tau);
    }
    free(memory);
    return rc;
}
