/* group_norm_lanes.h - the inner loops of group_norm.c. Sums run in lanes over STRETCH places and
 * are then carried on in double, so that a large map costs no accuracy. */

static double ISA(sum)(const float *x, size_t n)
{
    double sum = 0;
    for (size_t from = 0; from < n; from += STRETCH) {
        size_t to = n - from < STRETCH ? n : from + STRETCH, i = from;
        vec a = all(0), b = all(0);
        for (; i + 2 * LANES <= to; i += 2 * LANES) {
            a += load(x + i);
            b += load(x + i + LANES);
        }
        sum += (double)total(a + b);
        for (; i < to; i++) sum += x[i];
    }
    return sum;
}

/* Sum of (x - mean)^2. */
static double ISA(spread)(const float *x, size_t n, float mean)
{
    double sum = 0;
    for (size_t from = 0; from < n; from += STRETCH) {
        size_t to = n - from < STRETCH ? n : from + STRETCH, i = from;
        vec a = all(0), b = all(0), m = all(mean);
        for (; i + 2 * LANES <= to; i += 2 * LANES) {
            vec u = load(x + i) - m, v = load(x + i + LANES) - m;
            a = fma(u, u, a);
            b = fma(v, v, b);
        }
        sum += (double)total(a + b);
        for (; i < to; i++) sum += ((double)x[i] - mean) * ((double)x[i] - mean);
    }
    return sum;
}

/* y = (x - mean) * a + b */
static void ISA(apply)(float *y, const float *x, size_t n, float mean, float a, float b)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) store(y + i, fma(load(x + i) - all(mean), all(a), all(b)));
    for (; i < n; i++) y[i] = (x[i] - mean) * a + b;
}

/* Sums of dy and of dy * (x - mean). */
static void ISA(sums)(double out[2], const float *dy, const float *x, size_t n, float mean)
{
    out[0] = out[1] = 0;
    for (size_t from = 0; from < n; from += STRETCH) {
        size_t to = n - from < STRETCH ? n : from + STRETCH, i = from;
        vec a = all(0), b = all(0), c = all(0), d = all(0), m = all(mean);
        for (; i + 2 * LANES <= to; i += 2 * LANES) {
            vec u = load(dy + i), v = load(dy + i + LANES);
            a += u;
            b += v;
            c = fma(u, load(x + i) - m, c);
            d = fma(v, load(x + i + LANES) - m, d);
        }
        out[0] += (double)total(a + b);
        out[1] += (double)total(c + d);
        for (; i < to; i++) {
            out[0] += dy[i];
            out[1] += dy[i] * ((double)x[i] - mean);
        }
    }
}

/* dx = dy * a - (x - mean) * b - c */
static void ISA(apply_back)(float *dx, const float *dy, const float *x, size_t n, float mean,
                            float a, float b, float c)
{
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vec h = load(x + i) - all(mean);
        store(dx + i, fma(load(dy + i), all(a), fma(h, all(-b), all(-c))));
    }
    for (; i < n; i++) dx[i] = dy[i] * a - (x[i] - mean) * b - c;
}

static const struct kernels ISA(kernels) = { ISA(sum), ISA(spread), ISA(apply), ISA(sums),
                                             ISA(apply_back) };
