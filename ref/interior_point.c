/* interior_point.c - the homogeneous self-dual interior point method, step by step as the peers'
 * own solver takes it. [Andersen & Andersen 2000] [spec hivemind-protocol 5.1]
 *
 * The iterate (x, y, z, tau, kappa) moves through the inside of x, z >= 0 towards x z = 0:
 *
 *   1. residuals    how far A x = b tau, A' y + z = c tau and the gap are from 0
 *   2. predictor    the Newton direction to the optimum; see how far x and z stay positive
 *   3. corrector    a direction between the optimum and the middle, by how far the predictor came
 *   4. step         99.995 % of the way to the border
 *
 * A program with several optima has one at which this path ends, so each step is part of the
 * protocol. */
#include "interior_point.h"

#include <math.h>

#define TOLERANCE 1e-8
#define STEPS_MAX 50      /* honest groups need ten; no peer's bandwidths may cost seconds */
#define TO_BORDER 0.99995 /* of the way to where a variable would become 0 */
#define GAMMA_MAX 0.1

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
    p->times_a(v, p, f->t);
    for (int i = 0; i < p->m; i++) v[i] += r2[i];
    solve(f, v);
    p->times_a_transposed(u, p, v);
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

/* The direction for one gamma; the corrector includes the terms that the predictor left out. */
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
    p->times_a(f->rp, p, x->x);
    for (int i = 0; i < p->m; i++) f->rp[i] = p->b[i] * x->tau - f->rp[i];
    p->times_a_transposed(f->rd, p, x->y);
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
    if (!f->p.factor(f)) return PL_EAGAIN;
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
int interior_point(struct method *f)
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
