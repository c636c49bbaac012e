/* layers.cl - norms, LayerScale, embedding, token shift, activations, rotation. */

/* Mean and 1/sqrt(variance + eps) of n values. */
double2 statistics(global const float *x, ulong n, float eps)
{
    double sum = 0, squares = 0, mean;
    for (ulong i = 0; i < n; i++) sum += x[i];
    mean = sum / n;
    for (ulong i = 0; i < n; i++) squares += (x[i] - mean) * (x[i] - mean);
    return (double2)(mean, 1 / sqrt(squares / n + eps));
}

/* Of each row, for the backward pass: mean, scale. */
kernel void row_statistics(ulong n, global double2 *s, global const float *x, int D, float eps)
{
    EACH(m, n);
    s[m] = statistics(x + m * D, D, eps);
}

kernel void layer_norm(ulong n, global float *y, global const float *x, global const float *weight,
                       global const float *bias, int D, float eps)
{
    EACH(m, n);
    double2 s = statistics(x + m * D, D, eps);
    for (ulong i = m * D, c = 0; c < D; i++, c++) y[i] = (float)((x[i] - s.x) * s.y * weight[c] + bias[c]);
}

kernel void layer_norm_param_grads(ulong n, global float *dweight, global float *dbias, global const float *dy,
                             global const float *x, global const double2 *s, int M)
{
    EACH(c, n);
    double g = dweight[c], o = dbias[c];
    for (ulong m = 0, i = c; m < M; m++, i += n) {
        g += dy[i] * (x[i] - s[m].x) * s[m].y;
        o += dy[i];
    }
    dweight[c] = (float)g;
    dbias[c] = (float)o;
}

kernel void layer_norm_dx(ulong n, global float *dx, global const float *dy, global const float *x,
                          global const float *weight, global const double2 *s, int D, int add)
{
    EACH(m, n);
    double sum = 0, sum_h = 0, mean = s[m].x, scale = s[m].y;
    for (ulong i = m * D, c = 0; c < D; i++, c++) {
        double g = (double)dy[i] * weight[c];
        sum += g;
        sum_h += g * (x[i] - mean) * scale;
    }
    for (ulong i = m * D, c = 0; c < D; i++, c++) {
        double g = (double)dy[i] * weight[c], h = (x[i] - mean) * scale;
        double d = scale * (g - sum / D - h * sum_h / D);
        dx[i] = (float)(add ? dx[i] + d : d);
    }
}

kernel void scale_add(ulong n, global float *y, global const float *x, global const float *s, int D, float sign)
{
    EACH(i, n);
    y[i] = fma(sign * s[i % D], x[i], y[i]);
}

kernel void layer_scale_grads(ulong n, global float *ds, global const float *dy, global const float *x, int M)
{
    EACH(c, n);
    double sum = ds[c];
    for (ulong m = 0, i = c; m < M; m++, i += n) sum += (double)dy[i] * x[i];
    ds[c] = (float)sum;
}

kernel void scale_rows(ulong n, global float *dx, global const float *dy, global const float *s, int D)
{
    EACH(i, n);
    dx[i] = s[i % D] * dy[i];
}

kernel void embed(ulong n, global float *y, global const float *table, global const int *ids, int D)
{
    EACH(i, n);
    y[i] = table[(ulong)ids[i / D] * D + i % D];
}

/* One work-item per channel, so that rows are added in a fixed order. */
kernel void embed_backward(ulong n, global float *dtable, global const float *dy, global const int *ids, int M)
{
    EACH(c, n);
    for (ulong m = 0; m < M; m++) dtable[ids[m] * n + c] += dy[m * n + c];
}

/* The position that channel c of position p is copied from; -1: a zero. */
int origin(int p, int c, int D, int P, int F)
{
    int half_ = (D + 1) / 2, quarter = (D + 3) / 4, cell = p - P;
    if (cell < 0) return c < half_ ? p - 1 : p;
    if (c < quarter) return cell / F > 0 ? p - F : -1;
    if (c < 2 * quarter) return cell % F > 0 ? p - 1 : -1;
    return p;
}

kernel void shift(ulong total, global float *y, global const float *x, int n, int D, int P, int F)
{
    EACH(i, total);
    int p = i / D % n, from = origin(p, i % D, D, P, F);
    y[i] = from < 0 ? 0 : x[i - (ulong)(p - from) * D];
}

/* Where an element may have been copied to: its own position, the next one, the one a row below. */
kernel void unshift(ulong total, global float *dx, global const float *dy, int n, int D, int P, int F)
{
    EACH(i, total);
    int p = i / D % n, c = i % D;
    float sum = 0;
    if (origin(p, c, D, P, F) == p) sum += dy[i];
    if (p + 1 < n && origin(p + 1, c, D, P, F) == p) sum += dy[i + D];
    if (F > 1 && p + F < n && origin(p + F, c, D, P, F) == p) sum += dy[i + (ulong)F * D];
    dx[i] = sum;
}

/* In the order of enum pl_activation. In double, because erfc and exp of floats may be off by 16
 * ulp. */
enum { GELU, GELU_TANH, QUICKGELU, SWISH };
#define TANH_SCALE 0.79788456080286535588 /* sqrt(2 / pi) */
#define TANH_CUBIC 0.044715
#define INV_SQRT_2_PI 0.39894228040143267794

double gelu(double x) { return 0.5 * x * erfc(-x * M_SQRT1_2); }
double gelu_slope(double x) { return 0.5 * erfc(-x * M_SQRT1_2) + x * INV_SQRT_2_PI * exp(-0.5 * x * x); }
double sigmoid(double x) { return 1 / (1 + exp(-x)); }

double active(double x, int kind)
{
    switch (kind) {
    case GELU: return gelu(x);
    case GELU_TANH: return 0.5 * x * (1 + tanh(TANH_SCALE * (x + TANH_CUBIC * x * x * x)));
    case QUICKGELU: return x * sigmoid(1.702 * x);
    }
    return x * sigmoid(x);
}

double slope(double x, int kind)
{
    double a = kind == QUICKGELU ? 1.702 : 1, s, t;
    switch (kind) {
    case GELU: return gelu_slope(x);
    case GELU_TANH:
        t = tanh(TANH_SCALE * (x + TANH_CUBIC * x * x * x));
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * TANH_SCALE * (1 + 3 * TANH_CUBIC * x * x);
    }
    s = sigmoid(a * x);
    return s + a * x * s * sigmoid(-a * x);
}

kernel void activation(ulong n, global float *y, global const float *x, int kind)
{
    EACH(i, n);
    y[i] = (float)active(x[i], kind);
}

kernel void activation_backward(ulong n, global float *dx, global const float *dy, global const float *x, int kind)
{
    EACH(i, n);
    dx[i] = (float)(dy[i] * slope(x[i], kind));
}

kernel void geglu(ulong n, global float *y, global const float *z, int C)
{
    EACH(i, n);
    ulong at = i / C * 2 * C + i % C;
    y[i] = (float)(z[at] * gelu(z[at + C]));
}

kernel void geglu_backward(ulong n, global float *dz, global const float *dy, global const float *z, int C)
{
    EACH(i, n);
    ulong at = i / C * 2 * C + i % C;
    double u = z[at], g = z[at + C], d = dy[i];
    dz[at] = (float)(d * gelu(g));
    dz[at + C] = (float)(d * u * gelu_slope(g));
}

kernel void rotary(ulong pairs, global float *x, global const float *cosine, global const float *sine, int n, int G,
                   int d, int pairs_each, float sign)
{
    EACH(i, pairs);
    ulong vector = i / pairs_each, pair = i % pairs_each, at = vector / G % n * pairs_each + pair;
    global float *p = x + vector * d + 2 * pair;
    float c = cosine[at], s = sign * sine[at], u = p[0], v = p[1];
    p[0] = u * c - v * s;
    p[1] = v * c + u * s;
}
