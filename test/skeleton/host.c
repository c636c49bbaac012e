/* host.c - a starting point for a backend that computes in host memory: another BLAS, other vector
 * instructions, threads. It compiles and passes as it is; replace one operation after the other.
 *
 *     cc -std=c11 -O2 -fPIC -shared -I. -o mine.so test/skeleton/host.c
 *     build/potluck conform --backend ./mine.so */
#include "ref/backend.h"

#include <stdio.h>

/* ref/vector.h has the contract. */
static int my_axpy(float *y, float a, const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) y[i] += a * x[i];
    return PL_OK;
}

int pl_backend_v1(struct pl_backend *be)
{
    be->name = "mine";
    snprintf(be->note, sizeof be->note, "mine: the skeleton in host memory");
    be->axpy = my_axpy; /* operations that are not set remain the reference's */
    return PL_OK;
}
