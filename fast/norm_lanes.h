/* norm_lanes.h - rows of layer norm and LayerScale, ROWS at a time: their sums, each a chain of
 * additions, run beside each other. Sums are in float32 over BLOCK elements and in double over the
 * blocks, so that their error does not grow with the width. */

#define ROWS 4
#define WIDE 512 /* wider rows go two by two: four of them, and their gradients, would not fit */
#define BLOCK 512
#define take ISA(take)
#define put ISA(put)
#define statistics ISA(statistics)
#define norm_some ISA(norm_some)
#define norm_rows ISA(norm_rows)
#define norm_some_backward ISA(norm_some_backward)
#define norm_rows_backward ISA(norm_rows_backward)
#define scale_add_rows ISA(scale_add_rows)
#define layer_scale_rows ISA(layer_scale_rows)
#define UNROLL _Pragma("GCC unroll 4")

/* A whole register where n is 0, else its first n floats. */
LANE vec take(const float *p, int n) { return n ? load_part(p, n) : load(p); }
LANE void put(float *p, vec x, int n)
{
    if (n) store_part(p, x, n);
    else store(p, x);
}

/* Runs `body` for every register of [from,to): `i` its first element, `n` as above. */
#define REGISTERS(i, n, from, to, ...)                                    \
    do {                                                                  \
        int i = from;                                                     \
        for (; i + LANES <= (to); i += LANES) {                           \
            enum { n = 0 };                                               \
            __VA_ARGS__                                                   \
        }                                                                 \
        if (i < (to)) {                                                   \
            const int n = (to) - i;                                       \
            __VA_ARGS__                                                   \
        }                                                                 \
    } while (0)

/* Mean and 1 / sqrt(var + eps) of `rows` rows. */
LANE void statistics(int rows, float *mean, float *inverse, const float *x, int D, float eps)
{
    double sum[ROWS] = { 0 }, squares[ROWS] = { 0 };
    for (int from = 0; from < D; from += BLOCK) {
        int to = D - from < BLOCK ? D : from + BLOCK;
        vec part[ROWS];
        UNROLL for (int r = 0; r < rows; r++) part[r] = all(0);
        REGISTERS(i, n, from, to,
                  UNROLL for (int r = 0; r < rows; r++)
                      part[r] += take(x + (ptrdiff_t)r * D + i, n););
        UNROLL for (int r = 0; r < rows; r++) sum[r] += total(part[r]);
    }
    UNROLL for (int r = 0; r < rows; r++) mean[r] = (float)(sum[r] / D);
    for (int from = 0; from < D; from += BLOCK) {
        int to = D - from < BLOCK ? D : from + BLOCK;
        vec part[ROWS];
        UNROLL for (int r = 0; r < rows; r++) part[r] = all(0);
        REGISTERS(i, n, from, to, UNROLL for (int r = 0; r < rows; r++) {
            vec h = take(x + (ptrdiff_t)r * D + i, n) - all(mean[r]);
            if (n) h = only(h, n);
            part[r] = fma(h, h, part[r]);
        });
        UNROLL for (int r = 0; r < rows; r++) squares[r] += total(part[r]);
    }
    UNROLL for (int r = 0; r < rows; r++) inverse[r] = (float)(1 / sqrt(squares[r] / D + eps));
}

LANE void norm_some(int rows, float *y, const float *x, const float *gain, const float *offset,
                    int D, float eps)
{
    float mean[ROWS], inverse[ROWS];
    statistics(rows, mean, inverse, x, D, eps);
    REGISTERS(i, n, 0, D, {
        vec g = take(gain + i, n), o = take(offset + i, n);
        UNROLL for (int r = 0; r < rows; r++) {
            vec h = (take(x + (ptrdiff_t)r * D + i, n) - all(mean[r])) * all(inverse[r]);
            put(y + (ptrdiff_t)r * D + i, fma(h, g, o), n);
        }
    });
}

static void norm_rows(float *y, const float *x, const float *gain, const float *offset, int rows,
                      int D, float eps)
{
    if (D <= WIDE)
        for (; rows >= ROWS; rows -= ROWS, x += ROWS * D, y += ROWS * D)
            norm_some(ROWS, y, x, gain, offset, D, eps);
    for (; rows >= 2; rows -= 2, x += 2 * D, y += 2 * D) norm_some(2, y, x, gain, offset, D, eps);
    for (; rows > 0; rows--, x += D, y += D) norm_some(1, y, x, gain, offset, D, eps);
}

/* With h = (x - mean) * inverse and g = dy * gain: dx = inverse * (g - mean(g) - h * mean(g h));
 * the rows' dy and dy h are added to sum_dy and sum_dyh. */
LANE void norm_some_backward(int rows, float *dx, float *sum_dyh, float *sum_dy, const float *dy,
                             const float *x, const float *gain, int D, float eps, int add)
{
    float mean[ROWS], inverse[ROWS], k[ROWS], b[ROWS];
    double sum_g[ROWS] = { 0 }, sum_gh[ROWS] = { 0 };
    statistics(rows, mean, inverse, x, D, eps);
    for (int from = 0; from < D; from += BLOCK) {
        int to = D - from < BLOCK ? D : from + BLOCK;
        vec part_g[ROWS], part_gh[ROWS];
        UNROLL for (int r = 0; r < rows; r++) part_g[r] = part_gh[r] = all(0);
        REGISTERS(i, n, from, to, {
            vec s = load(sum_dy + i), sh = load(sum_dyh + i), w = take(gain + i, n);
            UNROLL for (int r = 0; r < rows; r++) {
                vec d = take(dy + (ptrdiff_t)r * D + i, n), g = d * w;
                vec h = (take(x + (ptrdiff_t)r * D + i, n) - all(mean[r])) * all(inverse[r]);
                s += d;
                sh = fma(d, h, sh);
                part_g[r] += g;
                part_gh[r] = fma(g, h, part_gh[r]);
            }
            store(sum_dy + i, s);
            store(sum_dyh + i, sh);
        });
        UNROLL for (int r = 0; r < rows; r++) {
            sum_g[r] += total(part_g[r]);
            sum_gh[r] += total(part_gh[r]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++) {
        k[r] = (float)(sum_gh[r] / D) * inverse[r];
        b[r] = (float)(sum_g[r] / D);
    }
    REGISTERS(i, n, 0, D, {
        vec w = take(gain + i, n);
        UNROLL for (int r = 0; r < rows; r++) {
            ptrdiff_t p = (ptrdiff_t)r * D + i;
            vec g = take(dy + p, n) * w - all(b[r]), u = take(x + p, n) - all(mean[r]);
            vec d = fma(u, all(-k[r]), g) * all(inverse[r]);
            put(dx + p, add ? take(dx + p, n) + d : d, n);
        }
    });
}

/* sum_dyh and sum_dy (D, rounded up) are overwritten with these rows' shares of dgain and
 * doffset. */
static void norm_rows_backward(float *dx, float *sum_dyh, float *sum_dy, const float *dy,
                               const float *x, const float *gain, int rows, int D, float eps,
                               int add)
{
    memset(sum_dyh, 0, (size_t)round_up(D) * sizeof *sum_dyh);
    memset(sum_dy, 0, (size_t)round_up(D) * sizeof *sum_dy);
    if (D <= WIDE)
        for (; rows >= ROWS; rows -= ROWS, x += ROWS * D, dy += ROWS * D, dx += ROWS * D)
            norm_some_backward(ROWS, dx, sum_dyh, sum_dy, dy, x, gain, D, eps, add);
    for (; rows >= 2; rows -= 2, x += 2 * D, dy += 2 * D, dx += 2 * D)
        norm_some_backward(2, dx, sum_dyh, sum_dy, dy, x, gain, D, eps, add);
    for (; rows > 0; rows--, x += D, dy += D, dx += D)
        norm_some_backward(1, dx, sum_dyh, sum_dy, dy, x, gain, D, eps, add);
}

static void scale_add_rows(float *y, const float *x, const float *s, int rows, int D, float sign)
{
    for (; rows > 0; rows--, x += D, y += D)
        REGISTERS(i, n, 0, D,
                  put(y + i, fma(take(s + i, n) * all(sign), take(x + i, n), take(y + i, n)), n););
}

/* sum (D, rounded up) is overwritten with these rows' share of ds. */
static void layer_scale_rows(float *dx, float *sum, const float *dy, const float *x, const float *s,
                             int rows, int D)
{
    memset(sum, 0, (size_t)round_up(D) * sizeof *sum);
    for (; rows > 0; rows--, x += D, dy += D, dx += D)
        REGISTERS(i, n, 0, D, {
            vec g = take(dy + i, n);
            store(sum + i, fma(g, take(x + i, n), load(sum + i)));
            put(dx + i, take(s + i, n) * g, n);
        });
}

static const struct norm_ops ISA(ops) = {
    .norm = norm_rows,
    .norm_backward = norm_rows_backward,
    .scale_add = scale_add_rows,
    .layer_scale = layer_scale_rows,
};
