/* optimizers.cl - 8-bit codes, LAMB and Adam: one work-item per block of values, every bit equal to
 * the reference's. */
#define CODES 256
enum { RUN, LUT, CUDA }; /* the order of enum pl_rule */

int code_run(global const float *book, float z)
{
    int i = 0;
    for (int half_ = CODES / 2; half_; half_ /= 2)
        if (book[i + half_] <= z) i += half_;
    return i < CODES - 1 && fabs(z - book[i + 1]) < fabs(z - book[i]) ? i + 1 : i;
}

int code_lut(global const float *book, float v)
{
    float h, at, grid;
    int i = 0;
    if (!isfinite(v)) return 0;
    h = (fmin(fmax(v, -1.0f), 1.0f) + 1) * 0.5f;
    at = floor((float)(h * 65535.0 + 0.5));
    grid = -1 + divided(2 * at, 65535);
    for (int half_ = CODES / 2; half_; half_ /= 2)
        if (0.5f * (book[i + half_ - 1] + book[i + half_]) < grid) i += half_;
    return i;
}

int code_cuda(global const float *book, float v)
{
    int i = 127, lower = 0, upper = 255;
    for (int half_ = 64; half_; half_ /= 2) {
        if (v > book[i]) lower = i, i += half_;
        else upper = i, i -= half_;
    }
    if (v > book[i]) return v > (book[upper] + book[i]) * 0.5f ? upper : i;
    return v < (book[lower] + book[i]) * 0.5f ? lower : i;
}

uchar code_of(global const float *book, float x, float largest, int rule)
{
    if (rule == RUN) return code_run(book, divided(x, largest));
    x *= divided(1, largest);
    return rule == LUT ? code_lut(book, x) : code_cuda(book, x);
}

kernel void quantize(ulong blocks, global uchar *codes, global float *absmax, global const float *x, ulong n,
                     ulong block, global const float *book, int rule)
{
    EACH(b, blocks);
    ulong end = min(n, (b + 1) * block);
    float largest = -FLT_MAX;
    for (ulong i = b * block; i < end; i++)
        if (fabs(x[i]) > largest) largest = fabs(x[i]);
    absmax[b] = largest;
    for (ulong i = b * block; i < end; i++) codes[i] = code_of(book, x[i], largest, rule);
}

kernel void dequantize(ulong n, global float *y, global const uchar *codes, global const float *absmax, ulong block,
                       global const float *book)
{
    EACH(i, n);
    y[i] = book[codes[i]] * absmax[i / block];
}

/* Updates the moments of element i by one gradient; float32, in the reference's order. */
void advance(float *m, float *v, float g, float4 rate, float clip)
{
    float gi = clip * g;
    *m = fma(gi, rate.y, *m * rate.x);
    *v = fma(rate.w * gi, gi, *v * rate.z);
}

float lamb_update(float m, float v, float p, float eps, float decay)
{
    float u = divided(m, root(v) + eps);
    return decay != 0 ? fma(decay, p, u) : u;
}

float adam_update(float p, float m, float v, float eps, float keep, float k, float bias)
{
    return fma(k, divided(m, divided(root(v), bias) + eps), p * keep);
}

/* A work-item's sums of squares of p and u are `blocks` apart. `how` holds eps, decay. */
kernel void lamb_float(ulong blocks, global double *part, global float *u, global const float *g,
                       global const float *p, global float *m, global float *v, ulong n, float4 rate, float clip,
                       float eps, float decay)
{
    EACH(b, blocks);
    double pp = 0, uu = 0;
    for (ulong i = b; i < n; i += blocks) {
        float mi = m[i], vi = v[i];
        advance(&mi, &vi, g[i], rate, clip);
        m[i] = mi, v[i] = vi;
        u[i] = lamb_update(mi, vi, p[i], eps, decay);
        pp += (double)p[i] * p[i];
        uu += (double)u[i] * u[i];
    }
    part[b] = pp;
    part[blocks + b] = uu;
}

/* The largest new moments of a block, found in a separate pass, because LAMB's update may overwrite
 * the gradient. */
float2 largest_moments(ulong begin, ulong end, global const float *g, global const uchar *code0,
                       global const uchar *code1, float2 old, global const float *books, float4 rate, float clip)
{
    float2 most = (float2)(-FLT_MAX);
    for (ulong i = begin; i < end; i++) {
        float m = books[code0[i]] * old.x, v = books[CODES + code1[i]] * old.y;
        advance(&m, &v, g[i], rate, clip);
        if (fabs(m) > most.x) most.x = fabs(m);
        if (fabs(v) > most.y) most.y = fabs(v);
    }
    return most;
}

kernel void lamb_coded(ulong blocks, global double *part, global float *u, global const float *g,
                       global const float *p, global uchar *code0, global uchar *code1, global float *absmax0,
                       global float *absmax1, ulong n, ulong block, global const float *books, int rule, float4 rate,
                       float clip, float eps, float decay)
{
    EACH(b, blocks);
    ulong begin = b * block, end = min(n, begin + block);
    float2 old = (float2)(absmax0[b], absmax1[b]);
    float2 most = largest_moments(begin, end, g, code0, code1, old, books, rate, clip);
    double pp = 0, uu = 0;
    for (ulong i = begin; i < end; i++) {
        float m = books[code0[i]] * old.x, v = books[CODES + code1[i]] * old.y;
        advance(&m, &v, g[i], rate, clip);
        code0[i] = code_of(books, m, most.x, rule);
        code1[i] = code_of(books + CODES, v, most.y, rule);
        u[i] = lamb_update(m, v, p[i], eps, decay);
        pp += (double)p[i] * p[i];
        uu += (double)u[i] * u[i];
    }
    absmax0[b] = most.x;
    absmax1[b] = most.y;
    part[b] = pp;
    part[blocks + b] = uu;
}

kernel void adam_float(ulong n, global float *p, global const float *g, global float *m, global float *v, float4 rate,
                       float clip, float eps, float keep, float k, float bias)
{
    EACH(i, n);
    float mi = m[i], vi = v[i];
    advance(&mi, &vi, g[i], rate, clip);
    m[i] = mi, v[i] = vi;
    p[i] = adam_update(p[i], mi, vi, eps, keep, k, bias);
}

kernel void adam_coded(ulong blocks, global float *p, global const float *g, global uchar *code0, global uchar *code1,
                       global float *absmax0, global float *absmax1, ulong n, ulong block, global const float *books,
                       int rule, float4 rate, float clip, float eps, float keep, float k, float bias)
{
    EACH(b, blocks);
    ulong begin = b * block, end = min(n, begin + block);
    float2 old = (float2)(absmax0[b], absmax1[b]);
    float2 most = largest_moments(begin, end, g, code0, code1, old, books, rate, clip);
    for (ulong i = begin; i < end; i++) {
        float m = books[code0[i]] * old.x, v = books[CODES + code1[i]] * old.y;
        advance(&m, &v, g[i], rate, clip);
        code0[i] = code_of(books, m, most.x, rule);
        code1[i] = code_of(books + CODES, v, most.y, rule);
        p[i] = adam_update(p[i], m, v, eps, keep, k, bias);
    }
    absmax0[b] = most.x;
    absmax1[b] = most.y;
}
