/* norm.c - layer norm and LayerScale, each with its gradient. [Ba et al. 2016] [CaiT: Touvron et
 * al. 2021] [TTT 3.1]
 *
 *   h = (x - mean) / sqrt(var + eps)          over the D channels of a row
 *   y = weight * h + bias
 *
 * LayerScale multiplies a branch's output by a learned s (D), small at first, so that deep stacks
 * begin near the identity. */
#include "norm.h"

#include <assert.h>
#include <math.h>

struct moments {
    double mean, inverse; /* inverse = 1 / sqrt(var + eps) */
};

/* Both in double, over the D channels of one row. */
static struct moments moments(const float *x, int D, float eps)
{
    double mean = 0, var = 0;
    for (int i = 0; i < D; i++) mean += x[i];
    mean /= D;
    for (int i = 0; i < D; i++) var += (x[i] - mean) * (x[i] - mean);
    return (struct moments){ mean, 1 / sqrt(var / D + eps) };
}

int ref_layer_norm(float *y_, const float *x_, const float *weight, const float *bias, int M, int D,
                   float eps)
{
    float(*y)[D] = (float(*)[D])y_;
    const float(*x)[D] = (const float(*)[D])x_;
    for (int m = 0; m < M; m++) {
        struct moments s = moments(x[m], D, eps);
        for (int i = 0; i < D; i++)
            y[m][i] = (float)((x[m][i] - s.mean) * s.inverse * weight[i] + bias[i]);
    }
    return PL_OK;
}

/* With 1 / sqrt(var + eps) = inverse and g = dy * weight, the gradient of h:
 *
 *   dx      = inverse (g - mean(g) - h mean(g h))
 *   dweight = sum over rows of dy h,   dbias = sum over rows of dy
 *
 * The two means appear because mean and var depend on every x of the row. */
int ref_layer_norm_backward(float *dx_, float *dweight, float *dbias, const float *dy_,
                            const float *x_, const float *weight, int M, int D, float eps, int add)
{
    float(*dx)[D] = (float(*)[D])dx_;
    const float(*dy)[D] = (const float(*)[D])dy_, (*x)[D] = (const float(*)[D])x_;
    double *sum = pl_alloc((size_t)D, 2 * sizeof *sum), *sum_h;
    if (!sum) return PL_ENOMEM;
    sum_h = sum + D;
    assert(dx_ != x_);
    for (int m = 0; m < M; m++) {
        struct moments s = moments(x[m], D, eps);
        double mean_g = 0, mean_gh = 0;
        for (int i = 0; i < D; i++) {
            double h = (x[m][i] - s.mean) * s.inverse, g = (double)dy[m][i] * weight[i];
            /* the two means, and the parameters' sums over rows */
            mean_g += g / D;
            mean_gh += g * h / D;
            sum[i] += dy[m][i];
            sum_h[i] += dy[m][i] * h;
        }
        for (int i = 0; i < D; i++) {
            double h = (x[m][i] - s.mean) * s.inverse, g = (double)dy[m][i] * weight[i];
            double d = s.inverse * (g - mean_g - h * mean_gh);
            dx[m][i] = (float)(add ? dx[m][i] + d : d);
        }
    }
    for (int i = 0; i < D; i++) {
        dweight[i] = (float)(dweight[i] + sum_h[i]);
        dbias[i] = (float)(dbias[i] + sum[i]);
    }
    pl_free(sum);
    return PL_OK;
}

/* y += sign * s * x: the residual sum of a block, and its undoing. */
int ref_scale_add(float *y_, const float *x_, const float *s, int M, int D, float sign)
{
    float(*y)[D] = (float(*)[D])y_;
    const float(*x)[D] = (const float(*)[D])x_;
    for (int m = 0; m < M; m++)
        for (int i = 0; i < D; i++) y[m][i] = (float)(y[m][i] + sign * ((double)s[i] * x[m][i]));
    return PL_OK;
}

/* dx = s dy,  ds = sum over rows of dy x */
int ref_layer_scale_backward(float *dx_, float *ds, const float *dy_, const float *x_,
                             const float *s, int M, int D)
{
    float(*dx)[D] = (float(*)[D])dx_;
    const float(*dy)[D] = (const float(*)[D])dy_, (*x)[D] = (const float(*)[D])x_;
    for (int i = 0; i < D; i++) {
        double sum = ds[i];
        for (int m = 0; m < M; m++) {
            sum += (double)dy[m][i] * x[m][i];
            dx[m][i] = s[i] * dy[m][i];
        }
        ds[i] = (float)sum;
    }
    return PL_OK;
}
