/* conv_lanes.h - the two inner loops of conv.c. Both keep a block of sums in registers: 4 rows of
 * SIDE vectors, as many as the instruction set has room for beside their operands. */

#undef SIDE
#if LANES == 16
#define SIDE 6
#else
#define SIDE 3
#endif

/* out (4, .) += or = sum over `inputs` planes and their taps of w[plane][tap][4] times the plane at
 * the tap's offset; SIDE * LANES places from each pointer on. */
LANE void ISA(block)(float *out, long out_step, const float *in, long in_step, int inputs,
                     const int *offset, int taps, const float *w, int add)
{
    vec sum[4][SIDE];
    _Pragma("GCC unroll 4") for (int o = 0; o < 4; o++)
        _Pragma("GCC unroll 6") for (int v = 0; v < SIDE; v++)
            sum[o][v] = add ? load(out + o * out_step + v * LANES) : all(0);
    for (int i = 0; i < inputs; i++, in += in_step)
        for (int t = 0; t < taps; t++, w += 4) {
            const float *x = in + offset[t];
            vec seen[SIDE];
            _Pragma("GCC unroll 6") for (int v = 0; v < SIDE; v++) seen[v] = load(x + v * LANES);
            _Pragma("GCC unroll 4") for (int o = 0; o < 4; o++) {
                vec by = all(w[o]);
                _Pragma("GCC unroll 6") for (int v = 0; v < SIDE; v++)
                    sum[o][v] = fma(by, seen[v], sum[o][v]);
            }
        }
    _Pragma("GCC unroll 4") for (int o = 0; o < 4; o++)
        _Pragma("GCC unroll 6") for (int v = 0; v < SIDE; v++)
            store(out + o * out_step + v * LANES, sum[o][v]);
}

/* `length` places, rounded up to whole blocks: out and in have room for that. */
static void ISA(planes)(float *out, long out_step, const float *in, long in_step, int inputs,
                        const int *offset, int taps, const float *w, int add, long length)
{
    for (long f = 0; f < length; f += SIDE * LANES)
        ISA(block)(out + f, out_step, in + f, in_step, inputs, offset, taps, w, add);
}

/* sum[o][k] += <dy row o, column k> over n places, a multiple of LANES; 4 rows, SIDE columns. */
static void ISA(products)(double *sum, const float *dy, long dy_step, const float *const *column,
                          long n)
{
    vec s[4][SIDE];
    _Pragma("GCC unroll 4") for (int o = 0; o < 4; o++)
        _Pragma("GCC unroll 6") for (int k = 0; k < SIDE; k++) s[o][k] = all(0);
    for (long f = 0; f < n; f += LANES) {
        vec g[4];
        _Pragma("GCC unroll 4") for (int o = 0; o < 4; o++) g[o] = load(dy + o * dy_step + f);
        _Pragma("GCC unroll 6") for (int k = 0; k < SIDE; k++) {
            vec x = load(column[k] + f);
            _Pragma("GCC unroll 4") for (int o = 0; o < 4; o++) s[o][k] = fma(g[o], x, s[o][k]);
        }
    }
    _Pragma("GCC unroll 4") for (int o = 0; o < 4; o++)
        _Pragma("GCC unroll 6") for (int k = 0; k < SIDE; k++)
            sum[o * SIDE + k] += (double)total(s[o][k]);
}

/* to = from + add, n places. */
static void ISA(shift)(float *to, const float *from, float add, long n)
{
    long i = 0;
    for (; i + LANES <= n; i += LANES) store(to + i, load(from + i) + all(add));
    for (; i < n; i++) to[i] = from[i] + add;
}

static double ISA(sum)(const float *x, long n)
{
    double whole = 0;
    for (long from = 0; from < n; from += PLACES) {
        long to = n - from < PLACES ? n : from + PLACES, i = from;
        vec a = all(0), b = all(0);
        for (; i + 2 * LANES <= to; i += 2 * LANES) {
            a += load(x + i);
            b += load(x + i + LANES);
        }
        for (; i < to; i++) whole += x[i];
        whole += (double)total(a + b);
    }
    return whole;
}

static const struct kernels ISA(kernels) = { ISA(planes), ISA(products), ISA(shift),
                                             ISA(sum),    LANES,         SIDE };
