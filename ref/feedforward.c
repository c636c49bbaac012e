/* feedforward.c - activations with their derivatives, and the feed-forward layer of a block.
 * [GELU: Hendrycks & Gimpel 2016] [GEGLU: Shazeer 2020] [TTT 3.1]
 *
 *   gelu(x)  = x Phi(x),  Phi the normal distribution: (1 + erf(x / sqrt 2)) / 2
 *   z        = W1 x + b1,  z = (u, g) in halves
 *   FFN(x)   = W2 (u * gelu(g)) + b2
 *
 * The gate g decides how much of each u passes. */
#include "feedforward.h"
#include "linear.h"

#include <assert.h>
#include <math.h>

#define SQRT_2 1.41421356237309504880
#define SQRT_2_PI 2.50662827463100050242 /* sqrt(2 pi) */
#define TANH_SCALE (2 / SQRT_2_PI)       /* sqrt(2 / pi) */
#define TANH_CUBIC 0.044715
#define QUICK 1.702

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

static double gelu(double x) { return x * (1 + erf(x / SQRT_2)) / 2; }

/* Phi(x) + x phi(x), phi = Phi' */
static double gelu_slope(double x)
{
    return (1 + erf(x / SQRT_2)) / 2 + x * exp(-x * x / 2) / SQRT_2_PI;
}

/* GELU_TANH is GPT-2's approximation of the same curve, QUICKGELU CLIP's, SWISH the VQGAN's. */
static double value(double x, enum pl_activation kind)
{
    switch (kind) {
    case PL_GELU: return gelu(x);
    case PL_GELU_TANH: return x * (1 + tanh(TANH_SCALE * (x + TANH_CUBIC * x * x * x))) / 2;
    case PL_QUICKGELU: return x * sigmoid(QUICK * x);
    case PL_SWISH: return x * sigmoid(x);
    }
    assert(!"an activation");
    return 0;
}

/* The derivatives: with s the sigmoid s' = s (1 - s), with t the tangent t' = 1 - t^2. */
static double slope(double x, enum pl_activation kind)
{
    double s, t;
    switch (kind) {
    case PL_GELU: return gelu_slope(x);
    case PL_GELU_TANH:
        t = tanh(TANH_SCALE * (x + TANH_CUBIC * x * x * x));
        return (1 + t) / 2 + x * (1 - t * t) / 2 * TANH_SCALE * (1 + 3 * TANH_CUBIC * x * x);
    case PL_QUICKGELU: s = sigmoid(QUICK * x); return s + QUICK * x * s * (1 - s);
    case PL_SWISH: s = sigmoid(x); return s + x * s * (1 - s);
    }
    assert(!"an activation");
    return 0;
}

int ref_activation(float *y, const float *x, size_t n, enum pl_activation kind)
{
    for (size_t i = 0; i < n; i++) y[i] = (float)value(x[i], kind);
    return PL_OK;
}

int ref_activation_backward(float *dx, const float *dy, const float *x, size_t n,
                            enum pl_activation kind)
{
    for (size_t i = 0; i < n; i++) dx[i] = (float)(dy[i] * slope(x[i], kind));
    return PL_OK;
}

/* y = u gelu(g) */
int ref_geglu(float *y_, const float *z_, int M, int C)
{
    float(*y)[C] = (float(*)[C])y_;
    const float(*z)[2][C] = (const float(*)[2][C])z_;
    for (int m = 0; m < M; m++)
        for (int c = 0; c < C; c++) y[m][c] = (float)(z[m][0][c] * gelu(z[m][1][c]));
    return PL_OK;
}

/* y = u gelu(g):  du = dy gelu(g),  dg = dy u gelu'(g) */
int ref_geglu_backward(float *dz_, const float *dy_, const float *z_, int M, int C)
{
    float(*dz)[2][C] = (float(*)[2][C])dz_;
    const float(*dy)[C] = (const float(*)[C])dy_;
    const float(*z)[2][C] = (const float(*)[2][C])z_;
    for (int m = 0; m < M; m++)
        for (int c = 0; c < C; c++) {
            double u = z[m][0][c], g = z[m][1][c];
            dz[m][0][c] = (float)(dy[m][c] * gelu(g));
            dz[m][1][c] = (float)(dy[m][c] * u * gelu_slope(g));
        }
    return PL_OK;
}

/* FFN(x) = W2 (u * gelu(g)) + b2 */
int ref_ffn(float *y, float *z, const float *x, const struct pl_ffn *w, int M, int D, int C)
{
    size_t mc = (size_t)M * (size_t)C;
    float *own = pl_alloc(mc, 3 * sizeof *own), *h = own;
    if (!own) return PL_ENOMEM;
    if (!z) z = own + mc;
    ref_linear(z, x, w->W1, w->b1, M, D, 2 * C); /* z = W1 x + b1 */
    ref_geglu(h, z, M, C);                       /* h = u gelu(g) */
    ref_linear(y, h, w->W2, w->b2, M, C, D);     /* y = W2 h + b2 */
    pl_free(own);
    return PL_OK;
}

/* The three equations in reverse. z may have been left out by the forward pass: it is the largest
 * buffer of a block, and computing it again costs a third of the backward pass. */
int ref_ffn_backward(float *y, float *dx, const struct pl_ffn *dw, const float *dy, float *z,
                     const float *x, const struct pl_ffn *w, int M, int D, int C)
{
    size_t mc = (size_t)M * (size_t)C;
    float *own = pl_alloc(mc, 4 * sizeof *own), *h = own, *dh;
    if (!own) return PL_ENOMEM;
    dh = h + mc;
    if (!z) ref_linear(z = own + 2 * mc, x, w->W1, w->b1, M, D, 2 * C);
    ref_geglu(h, z, M, C);
    if (y) ref_linear(y, h, w->W2, w->b2, M, C, D);
    ref_linear_dw(dw->W2, dw->b2, dy, h, M, C, D);    /* dW2, db2 */
    ref_linear_dx(dh, dy, w->W2, M, C, D, 0);         /* dh = dy W2 */
    ref_geglu_backward(z, dh, z, M, C);               /* z is dz from here on */
    ref_linear_dw(dw->W1, dw->b1, z, x, M, D, 2 * C); /* dW1, db1 */
    ref_linear_dx(dx, z, w->W1, M, D, 2 * C, 0);      /* dx = dz W1 */
    pl_free(own);
    return PL_OK;
}
