/* interior_point.h - a method that solves linear programs; balance_program.c has one. */
#ifndef PL_INTERIOR_POINT_H
#define PL_INTERIOR_POINT_H

#include "base.h"

struct method;

/* minimise c'x  so that  A x = b, x >= 0. A is never stored: the program multiplies by it. */
struct program {
    void (*times_a)(double *out, const struct program *p, const double *x);            /* A x */
    void (*times_a_transposed)(double *out, const struct program *p, const double *y); /* A' y */
    /* f->factor = the Cholesky factor L of A D A'. 0: it is no longer positive definite. */
    int (*factor)(struct method *f);
    int k, slow;         /* slow: k, or 0 for two peers: rows of the middle kind */
    int n, m, variables; /* w and xi; rows; and with slacks */
    double *r;           /* (k) */
    double *b, *c;       /* (m), (variables) */
};

/* The iterate (x, y, z, tau, kappa) of the homogeneous self-dual model, a direction, and what a
 * step needs; all of it in one block of memory. x, z >= 0 with x z -> 0; tau scales the solution, x
 * / tau, and kappa > 0 would show that no solution exists. */
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

/* From x = z = tau = kappa = 1 to the optimum x / tau. PL_EAGAIN: not reached. */
int interior_point(struct method *f);

static inline double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

#endif
