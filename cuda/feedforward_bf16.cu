/* feedforward_bf16.cu - the feed-forward layer in bfloat16. z, the gated values and the gradients
 * of both are read by this layer's GEMMs only, so they are stored in bfloat16: half the memory
 * traffic, and no extra rounding pass. z is stored without its bias; the gate adds it. */
#include "../ref/linear.h"

#include "bf16.cuh"
#include "feedforward.cuh"
#include "vectorized.cuh"

/* gelu(g) = g cdf(g), and its derivative. The cdf is off by at most 7.5e-8 [Abramowitz & Stegun
 * 7.1.26], the fast reciprocal and exp2 by a few times that: negligible next to bfloat16's 2^-9.
 * One exponential serves both. A pass that moves 6 bytes per element has time for some 40
 * instructions. */
struct gelu {
    float value, slope;
};
static __device__ struct gelu gelu_of(float g)
{
    float t = __fdividef(1, fmaf(0.3275911f * 0.70710678118654752440f, fabsf(g), 1));
    float e = exp2f(g * g * (-0.5f * 1.4426950408889634f)), share;
    share = fmaf(1.061405429f, t, -1.453152027f);
    share = fmaf(share, t, 1.421413741f);
    share = fmaf(share, t, -0.284496736f);
    share = fmaf(share, t, 0.254829592f);
    share *= 0.5f * t * e; /* of -|g| */
    if (g > 0) share = 1 - share;
    return { g * share, fmaf(g * 0.39894228040143267794f, e, share) };
}

/* u and g of row m from column c on. */
template <int WIDTH> struct halves {
    cuda_vector<float, WIDTH> u, g;
};
/* From z as the first GEMM left it; or from saved_z, float32 with its bias. */
template <int WIDTH>
static __device__ struct halves<WIDTH> halves_of(const uint16_t *z, const float *saved_z,
                                                 const float *b1, size_t at, int c, int C) {
    struct halves<WIDTH> v;
    if (saved_z) return { cuda_load<WIDTH>(saved_z + at), cuda_load<WIDTH>(saved_z + at + C) };
    auto u = cuda_load<WIDTH>(z + at), g = cuda_load<WIDTH>(z + at + C);
    auto bu = cuda_load<WIDTH>(b1 + c), bg = cuda_load<WIDTH>(b1 + C + c);
    PL_UNROLL
    for (int k = 0; k < WIDTH; k++) {
        v.u.at[k] = float_of_bf16(u.at[k]) + bu.at[k];
        v.g.at[k] = float_of_bf16(g.at[k]) + bg.at[k];
    }
    return v;
}

template <int WIDTH>
__global__ void gate16(uint16_t *h, const uint16_t *z, const float *saved_z, const float *b1,
                       int rows, int vectors)
{
    int C = vectors * WIDTH;
    cuda_each_row(rows, vectors, [=](int m, int p) {
        size_t at = (size_t)m * (size_t)C + (size_t)p * WIDTH;
        auto v = halves_of<WIDTH>(z, saved_z, b1, at + (size_t)m * (size_t)C, p * WIDTH, C);
        cuda_vector<uint16_t, WIDTH> y;
        PL_UNROLL
        for (int k = 0; k < WIDTH; k++)
            y.at[k] = bf16_of_float(v.u.at[k] * gelu_of(v.g.at[k]).value);
        cuda_store(h + at, y);
    });
}

/* dh becomes h, z becomes dz (saved_z too); part: the column sums of dz. */
template <int WIDTH>
__global__ void gate16_backward(double *part, uint16_t *z, uint16_t *dh, const float *saved_z,
                                const float *b1, int rows, int vectors)
{
    int C = vectors * WIDTH;
    part += (size_t)blockIdx.y * 2 * (size_t)C;
    cuda_vector_column_parts<2 * WIDTH>(
        rows, vectors,
        [=](int m, int p, double *sum) {
            size_t at = (size_t)m * (size_t)C + (size_t)p * WIDTH;
            size_t wide = at + (size_t)m * (size_t)C;
            auto v = halves_of<WIDTH>(z, saved_z, b1, wide, p * WIDTH, C);
            auto d = cuda_load<WIDTH>(dh + at);
            cuda_vector<uint16_t, WIDTH> h, du, dg;
            PL_UNROLL
            for (int k = 0; k < WIDTH; k++) {
                struct gelu gate = gelu_of(v.g.at[k]);
                float dk = float_of_bf16(d.at[k]), duk = dk * gate.value;
                float dgk = dk * v.u.at[k] * gate.slope;
                h.at[k] = bf16_of_float(v.u.at[k] * gate.value);
                du.at[k] = bf16_of_float(duk);
                dg.at[k] = bf16_of_float(dgk);
                sum[k] += duk;
                sum[WIDTH + k] += dgk;
            }
            cuda_store(dh + at, h);
            cuda_store(z + wide, du);
            cuda_store(z + wide + C, dg);
        },
        [=](int p, int k, double s) { part[(k < WIDTH ? 0 : C) + p * WIDTH + k % WIDTH] = s; });
}

/* Buffers for some rows: z (rows,2C) unless it is the caller's, h (rows,C), dy (rows,D). */
struct workspace {
    uint16_t *h, *z, *dy;
    int rows, vectorized, vectors;
};
static int reserve_workspace(struct workspace *r, int M, int C, int z, int D, const float *saved_z,
                             const float *b1)
{
    size_t row = (size_t)(z ? 3 : 1) * (size_t)C + (size_t)D;
    int rc;
    r->rows = ffn_rows_at_once(M, row * sizeof *r->h);
    r->h = (uint16_t *)cuda_scratch(&rc, CUDA_SLOT_LAYER, (size_t)r->rows * row * sizeof *r->h);
    r->z = r->h + (size_t)r->rows * (size_t)C;
    r->dy = r->z + (z ? 2 : 0) * (size_t)r->rows * (size_t)C;
    r->vectorized = C % CUDA_VECTOR_WIDTH == 0 && cuda_is_vectorizable(saved_z, b1);
    r->vectors = r->vectorized ? C / CUDA_VECTOR_WIDTH : C;
    return rc;
}

/* Computes z: into saved_z in float32 with its bias, or into r->z without it. */
static int make_z(struct workspace *r, float *saved_z, const uint16_t *x, const struct pl_ffn *w,
                  int rows, int D, int C)
{
    int rc;
    const uint16_t *W1 = cuda_rounded(&rc, CUDA_SLOT_OPERAND2, w->W1, 2 * (size_t)C * (size_t)D);
    if (rc != PL_OK) return rc;
    return saved_z ? cuda_linear16(saved_z, x, W1, w->b1, rows, D, 2 * C)
                   : cuda_gemm_bf16(r->z, x, 0, W1, 1, rows, 2 * C, D);
}

static int make_y(float *y, const uint16_t *h, const struct pl_ffn *w, int rows, int D, int C)
{
    int rc;
    const uint16_t *W2 = cuda_rounded(&rc, CUDA_SLOT_OPERAND2, w->W2, (size_t)D * (size_t)C);
    return rc == PL_OK ? cuda_linear16(y, h, W2, w->b2, rows, C, D) : rc;
}

static float *rows_of(float *saved_z, int m, int C)
{
    return saved_z ? saved_z + 2 * (size_t)m * (size_t)C : NULL;
}

int cuda_ffn_bf16(float *y, float *saved_z, const float *x, const struct pl_ffn *w, int M, int D,
                  int C)
{
    struct workspace r;
    int rc = reserve_workspace(&r, M, C, !saved_z, 0, saved_z, w->b1);
    for (int m = 0; rc == PL_OK && m < M; m += r.rows) {
        int rows = M - m < r.rows ? M - m : r.rows;
        size_t at = (size_t)m * (size_t)D;
        float *z = rows_of(saved_z, m, C);
        const uint16_t *x16 = cuda_rounded(&rc, CUDA_SLOT_OPERAND, x + at,
                                           (size_t)rows * (size_t)D);
        if (rc == PL_OK) rc = make_z(&r, z, x16, w, rows, D, C);
        if (rc == PL_OK)
            rc = CUDA_LAUNCH_VECTORIZED(r.vectorized, gate16, cuda_row_grid(rows, r.vectors),
                                        CUDA_THREADS, r.h, r.z, z, w->b1, rows, r.vectors);
        if (rc == PL_OK) rc = make_y(y + at, r.h, w, rows, D, C);
    }
    cuda_rounded_forget();
    return rc;
}

/* Turns `rows` rows of z and dh into dz and h; adds to db1. */
static int ungate(const struct workspace *r, float *db1, const float *saved_z, const float *b1,
                  int rows, int C)
{
    dim3 grid = cuda_column_grid(rows, r->vectors);
    int rc;
    double *part = cuda_column_scratch(&rc, 1, grid, 2 * C);
    if (rc == PL_OK)
        rc = CUDA_LAUNCH_VECTORIZED(r->vectorized, gate16_backward, grid, CUDA_THREADS, part, r->z,
                                    r->h, saved_z, b1, rows, r->vectors);
    return rc == PL_OK ? cuda_column_add(db1, part, grid, 2 * C) : rc;
}

/* The gradients of some rows. dh and h share memory: h is written as dh is read. */
static int some_rows(struct workspace *r, float *y, float *dx, const struct pl_ffn *dw,
                     const float *dy, float *saved_z, const float *x, const struct pl_ffn *w,
                     int rows, int D, int C)
{
    const uint16_t *x16, *W;
    int rc;
    x16 = cuda_rounded(&rc, CUDA_SLOT_OPERAND, x, (size_t)rows * (size_t)D);
    if (rc == PL_OK && !saved_z) rc = make_z(r, NULL, x16, w, rows, D, C);
    if (rc == PL_OK) rc = cuda_round_columns(r->dy, dw->b2, dy, rows, D);
    W = rc == PL_OK ? cuda_rounded(&rc, CUDA_SLOT_OPERAND2, w->W2, (size_t)D * (size_t)C) : NULL;
    if (rc == PL_OK) rc = cuda_gemm_bf16(r->h, r->dy, 0, W, 0, rows, C, D);
    if (rc == PL_OK) rc = ungate(r, dw->b1, saved_z, w->b1, rows, C);
    if (rc == PL_OK && y) rc = make_y(y, r->h, w, rows, D, C);
    if (rc == PL_OK) rc = cuda_gemm_bf16(dw->W2, r->dy, 1, r->h, 0, D, C, rows, 1);
    if (rc == PL_OK) rc = cuda_gemm_bf16(dw->W1, r->z, 1, x16, 0, 2 * C, D, rows, 1);
    W = rc == PL_OK ? cuda_rounded(&rc, CUDA_SLOT_OPERAND2, w->W1, 2 * (size_t)C * (size_t)D)
                    : NULL;
    return rc == PL_OK ? cuda_gemm_bf16(dx, r->z, 0, W, 0, rows, D, 2 * C, 0) : rc;
}

int cuda_ffn_bf16_backward(float *y, float *dx, const struct pl_ffn *dw, const float *dy,
                           float *saved_z, const float *x, const struct pl_ffn *w, int M, int D,
                           int C)
{
    struct workspace r;
    int rc = reserve_workspace(&r, M, C, 1, D, saved_z, w->b1);
    for (int m = 0; rc == PL_OK && m < M; m += r.rows) {
        size_t at = (size_t)m * (size_t)D;
        rc = some_rows(&r, y ? y + at : NULL, dx + at, dw, dy + at, rows_of(saved_z, m, C), x + at,
                       w, M - m < r.rows ? M - m : r.rows, D, C);
    }
    cuda_rounded_forget();
    return rc;
}
