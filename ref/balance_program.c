/* balance_program.c - the linear program of load balancing, and the interior point method that
 * decides between equal optima. [Andersen & Andersen 2000]
 *
 *   minimise xi   so that   sum w >= 1,   (N-2)/b_i w_i - xi <= -1/b_i,   0 <= w_i <= 1
 *
 * over the k peers with bandwidth, fastest first. For two peers the middle rows only bound xi,
 * which is then shifted to 0 and stands alone. With slacks s the program is  min c'x,  A x = b,  x
 * >= 0,  where
 *
 *         w: k         xi   s: 1 + k + k
 *   A = [ -1 ... -1     0   1           ]
 *       [ diag(r)      -1       I       ]     r_i = (N-2)/b_i
 *       [ I             0           I   ]
 * */
#include "balance_program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 1e-8
#define STEPS_MAX 50      /* honest groups need ten; no peer's bandwidths may cost seconds */
#define TO_BORDER 0.99995 /* of the way to where a variable would become 0 */
#define GAMMA_MAX 0.1

struct program {
    int k, slow;         /* slow: k, or 0 for two peers: rows of the middle kind */
    int n, m, variables; /* w and xi; rows; and with slacks */
    double *r;           /* (k) */
    double *b, *c;       /* (m), (variables) */
};

/* The iterate (x, y, z, tau, kappa) of the homogeneous self-dual model, a direction, and what a
 * step needs; all of it in one block of memory. x, z >= 0 with x z -> 0; tau scales the
 * solution, x / tau, and kappa > 0 would show that there is none. */
struct point {
    double *x, *y, *z, tau, kappa;
};
struct method {
    struct program p;
    struct point at, d;
    double *factor;              /* (m,m) of A D A', its lower half */
    double *D, *rp, *rd, rg, mu; /* D = x / z */
    double *u, *v, *pu, *pv, *rx, *t, *t2;
};

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

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* --- the linear system ------------------------------------------------------------------------ */

/* A D A' = L L', with the entries that are not 0 written out. 0: it is no more positive
 * definite. */
static int factor(struct method *f)
{
    const struct program *p = &f->p;
    const int m = p->m;
    const double *D = f->D;
    double *L = f->factor;
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
    for (int i = 0; i < m; i++) L[i * m + i] += D[p->n + i];
    for (int i = 0; i < m; i++) {
        for (int j = 0; j <= i; j++) {
            double sum = L[i * m + j] - dot(&L[i * m], &L[j * m], j);
            if (i == j && !(sum > 0)) return 0;
            L[i * m + j] = i == j ? sqrt(sum) : sum / L[j * m + j];
        }
    }
    return 1;
}

/* x = (A D A')^-1 x: forward through L, back through L'. */
static void solve(const struct method *f, double *x)
{
    const int m = f->p.m;
    const double *L = f->factor;
    for (int i = 0; i < m; i++) x[i] = (x[i] - dot(&L[i * m], x, i)) / L[i * m + i];
    for (int i = m - 1; i >= 0; i--) {
        for (int j = i + 1; j < m; j++) x[i] -= L[j * m + i] * x[j];
        x[i] /= L[i * m + i];
    }
}

/* One solution of the reduced system: v from (A D A') v = r2 + A D r1, and u = D (A' v - r1). */
static void solve_pair(struct method *f, double *u, double *v, const double *r1, const double *r2)
{
    const struct program *p = &f->p;
    for (int i = 0; i < p->variables; i++) f->t[i] = f->D[i] * r1[i];
    times_a(v, p, f->t);
    for (int i = 0; i < p->m; i++) v[i] += r2[i];
    solve(f, v);
    times_a_transposed(u, p, v);
    for (int i = 0; i < p->variables; i++) u[i] = f->D[i] * (u[i] - r1[i]);
}

/* --- a step ----------------------------------------------------------------------------------- */

/* How far x + a d stays positive, times `of_the_way`. */
static double to_border(const double *x, const double *d, int n, double of_the_way)
{
    double least = INFINITY;
    for (int i = 0; i < n; i++)
        if (d[i] < 0) least = fmin(least, x[i] / -d[i]);
    return of_the_way * least;
}

/* The same over x, z, tau and kappa together, at most a whole step. */
static double step_length(const struct method *f, double of_the_way)
{
    const struct point *x = &f->at, *d = &f->d;
    double a = fmin(to_border(x->x, d->x, f->p.variables, of_the_way),
                    to_border(x->z, d->z, f->p.variables, of_the_way));
    a = fmin(a, to_border(&x->tau, &d->tau, 1, of_the_way));
    return fmin(1, fmin(a, to_border(&x->kappa, &d->kappa, 1, of_the_way)));
}

/* The direction for one gamma; the corrector knows what the predictor left out. */
static void direction(struct method *f, double gamma, int corrects)
{
    const struct program *p = &f->p;
    struct point *x = &f->at, *d = &f->d;
    /* gamma: 0 aims at the optimum, 1 at the middle; eta: how much of the residuals to remove */
    double eta = 1 - gamma, rt = gamma * f->mu - x->tau * x->kappa;
    if (corrects) rt -= d->tau * d->kappa;
    for (int i = 0; i < p->variables; i++) {
        f->rx[i] = gamma * f->mu - x->x[i] * x->z[i];
        if (corrects) f->rx[i] -= d->x[i] * d->z[i];
        f->t2[i] = eta * f->rd[i] - 1 / x->x[i] * f->rx[i];
    }
    for (int i = 0; i < p->m; i++) d->y[i] = eta * f->rp[i];
    solve_pair(f, f->u, f->v, f->t2, d->y);
    d->tau = (eta * f->rg + 1 / x->tau * rt -
              (-dot(p->c, f->u, p->variables) + dot(p->b, f->v, p->m))) /
             (1 / x->tau * x->kappa + (-dot(p->c, f->pu, p->variables) + dot(p->b, f->pv, p->m)));
    for (int i = 0; i < p->variables; i++) {
        d->x[i] = f->u[i] + f->pu[i] * d->tau;
        d->z[i] = 1 / x->x[i] * (f->rx[i] - x->z[i] * d->x[i]);
    }
    for (int i = 0; i < p->m; i++) d->y[i] = f->v[i] + f->pv[i] * d->tau;
    d->kappa = 1 / x->tau * (rt - x->kappa * d->tau);
}

/* rp = b tau - A x,  rd = c tau - A' y - z,  rg = c'x - b'y + kappa: all 0 at the optimum;
 * mu = (x'z + tau kappa) / (variables + 1), the distance from it. */
static void residuals(struct method *f)
{
    const struct program *p = &f->p;
    const struct point *x = &f->at;
    times_a(f->rp, p, x->x);
    for (int i = 0; i < p->m; i++) f->rp[i] = p->b[i] * x->tau - f->rp[i];
    times_a_transposed(f->rd, p, x->y);
    for (int i = 0; i < p->variables; i++) f->rd[i] = p->c[i] * x->tau - f->rd[i] - x->z[i];
    f->rg = dot(p->c, x->x, p->variables) - dot(p->b, x->y, p->m) + x->kappa;
    f->mu = (dot(x->x, x->z, p->variables) + x->tau * x->kappa) / (p->variables + 1);
}

/* Mehrotra's predictor and corrector: try a whole step, see how far it goes, then aim between it
 * and the middle, correcting for the products that linearization leaves out. */
static int advance(struct method *f)
{
    const struct program *p = &f->p;
    struct point *x = &f->at, *d = &f->d;
    double alpha;
    for (int i = 0; i < p->variables; i++) f->D[i] = x->x[i] / x->z[i];
    if (!factor(f)) return PL_EAGAIN;
    solve_pair(f, f->pu, f->pv, p->c, p->b);
    /* predictor */
    direction(f, 0, 0);
    alpha = step_length(f, 1);
    /* corrector: the further the predictor came, the less it is drawn to the middle */
    direction(f, (1 - alpha) * (1 - alpha) * fmin(GAMMA_MAX, 1 - alpha), 1);
    alpha = step_length(f, TO_BORDER);
    for (int i = 0; i < p->variables; i++) x->x[i] += alpha * d->x[i], x->z[i] += alpha * d->z[i];
    for (int i = 0; i < p->m; i++) x->y[i] += alpha * d->y[i];
    x->tau += alpha * d->tau;
    x->kappa += alpha * d->kappa;
    return isfinite(x->tau) && x->tau > 0 ? PL_OK : PL_EAGAIN;
}

/* Until both residuals, against the first ones, and the gap between primal and dual are small. */
static int iterate(struct method *f)
{
    const struct program *p = &f->p;
    double primal0 = 0, dual0 = 0, by, gap;
    int rc = PL_OK;
    for (int step = 0; step < STEPS_MAX && !rc; step++) {
        residuals(f);
        if (!step) {
            primal0 = fmax(1, sqrt(dot(f->rp, f->rp, p->m)));
            dual0 = fmax(1, sqrt(dot(f->rd, f->rd, p->variables)));
        }
        by = dot(p->b, f->at.y, p->m);
        gap = fabs(dot(p->c, f->at.x, p->variables) - by) / (f->at.tau + fabs(by));
        if (!(sqrt(dot(f->rp, f->rp, p->m)) / primal0 > TOLERANCE) && !(gap > TOLERANCE) &&
            !(sqrt(dot(f->rd, f->rd, p->variables)) / dual0 > TOLERANCE))
            return PL_OK;
        rc = advance(f);
    }
    return PL_EAGAIN;
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
    *p = (struct program){ .k = k, .slow = N > 2 ? k : 0 };
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
    rc = iterate(&f);
    if (!rc) {
        for (int i = 0; i < N; i++) fraction[i] = 0;
        for (int i = 0; i < k; i++) fraction[order[i]] = fmax(0, f.at.x[i] / f.at.tau);
    }
    free(memory);
    return rc;
}
