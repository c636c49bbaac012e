/* loss.c - output layer and cross-entropy without storing all logits. For a block of rows: compute
 * the logits of the segment's columns (a GEMM), take their log-sum-exp, turn them into gradients
 * softmax - onehot in place, use these in both gradient GEMMs, and discard them. Image positions
 * never compute text columns, a third of the work. A block gathers rows of one segment from all
 * sequences, so that the GEMMs stay large. The embedding's gradient is summed segment by segment in
 * the order of blocks. */
#include "vector_math.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_FLOATS (1 << 22) /* of logits in a block: 16 MiB, half of an L3 cache */
#define FEW 16384

/* z becomes w (softmax(z) - onehot); returns log-sum-exp. If w is 0, z stays as it is. */
FAST_CLONES static double row_gradient(float *z, int V, int label, float w)
{
    float most = -INFINITY, scale;
    double sum = 0;
#pragma omp simd reduction(max : most)
    for (int v = 0; v < V; v++) most = most > z[v] ? most : z[v];
    if (!(most > -INFINITY && most < INFINITY))
        return (double)NAN;                /* NaN logits give a NaN loss: the caller reports it */
    for (int v0 = 0; v0 < V; v0 += 1024) { /* sum in float32 for a while, then in double */
        int end = V - v0 < 1024 ? V : v0 + 1024;
        float part = 0;
#pragma omp simd reduction(+ : part)
        for (int v = v0; v < end; v++) part += fast_exp(z[v] - most);
        sum += (double)part;
    }
    if (w == 0) return (double)most + log(sum);
    scale = (float)((double)w / sum);
#pragma omp simd
    for (int v = 0; v < V; v++) z[v] = scale * fast_exp(z[v] - most);
    z[label] -= w;
    return (double)most + log(sum);
}

struct block {
    const int32_t *row; /* of x, for each row of the block */
    int rows, col0, cols;
    float weight; /* of one row's gradient */
};

static int one_block(double *sum, float *logp, float *dx, float *dW, float *db, const float *x,
                     const float *W, const float *b, const int32_t *label, const struct block *k,
                     int D, float *xs, float *dxs, float *z)
{
    const float *Wk = W + (size_t)k->col0 * (size_t)D;
    double *lost = pl_alloc((size_t)k->rows, sizeof *lost);
    int V = k->cols;
    if (!lost) return PL_ENOMEM;
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if ((double)k->rows * D > FEW)
    for (int r = 0; r < k->rows; r++)
        memcpy(xs + (size_t)r * (size_t)D, x + (size_t)k->row[r] * (size_t)D,
               (size_t)D * sizeof *xs);
    fast_linear(z, xs, Wk, b + k->col0, k->rows, D, V);
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if ((double)k->rows * V > FEW)
    for (int r = 0; r < k->rows; r++) {
        float *zr = z + (size_t)r * (size_t)V;
        int own = label[k->row[r]] - k->col0;
        double at, lse;
        if (own < 0) { /* label -1: the position has no loss */
            if (dx) memset(zr, 0, (size_t)V * sizeof *zr);
            if (logp) logp[k->row[r]] = 0;
            continue;
        }
        at = (double)zr[own];
        lse = row_gradient(zr, V, own, dx ? k->weight : 0);
        if (dx && k->weight == 0) memset(zr, 0, (size_t)V * sizeof *zr);
        lost[r] = lse - at;
        if (logp) logp[k->row[r]] = (float)(at - lse);
    }
    for (int r = 0; r < k->rows; r++) *sum += lost[r];
    pl_free(lost);
    if (!dx) return PL_OK;
    fast_linear_dw(dW + (size_t)k->col0 * (size_t)D, db + k->col0, z, xs, k->rows, D, V);
    fast_linear_dx(dxs, z, Wk, k->rows, D, V, 0);
#pragma omp parallel for schedule(static) num_threads(fast_threads()) if ((double)k->rows * D > FEW)
    for (int r = 0; r < k->rows; r++)
        memcpy(dx + (size_t)k->row[r] * (size_t)D, dxs + (size_t)r * (size_t)D,
               (size_t)D * sizeof *dx);
    return PL_OK;
}

static int block_rows(int cols, int total)
{
    int rows = BLOCK_FLOATS / cols / 48 * 48;
    if (rows < 48) rows = 48;
    return rows < total ? rows : total;
}

static int one_segment(double *loss, float *logp, float *dx, float *dW, float *db, const float *x,
                       const float *W, const float *b, const int32_t *label,
                       const struct pl_loss_segment *s, int B, int S, int D)
{
    int per = s->row1 - s->row0, total = B * per, most = block_rows(s->col1 - s->col0, total), rc;
    int32_t *row = pl_alloc((size_t)total, sizeof *row);
    float *xs = fast_scratch_alloc((size_t)most * (size_t)D);
    float *dxs = dx ? fast_scratch_alloc((size_t)most * (size_t)D) : NULL;
    float *z = fast_scratch_alloc((size_t)most * (size_t)(s->col1 - s->col0));
    int counted = 0;
    double sum = 0;
    rc = row && xs && z && (dxs || !dx) ? PL_OK : PL_ENOMEM;
    for (int i = 0; !rc && i < total; i++) {
        row[i] = i / per * S + s->row0 + i % per;
        counted += label[row[i]] >= 0;
    }
    for (int i = 0; !rc && i < total; i += most) {
        struct block k = { row + i, total - i < most ? total - i : most, s->col0, s->col1 - s->col0,
                           counted ? s->weight / (float)counted : 0 };
        rc = one_block(&sum, logp, dx, dW, db, x, W, b, label, &k, D, xs, dxs, z);
    }
    *loss = counted ? sum / counted : 0;
    pl_free(row);
    fast_scratch_free(xs);
    fast_scratch_free(dxs);
    fast_scratch_free(z);
    return rc;
}

int fast_loss(double *loss, float *logp, float *dx, float *dW, float *db, const float *x,
              const float *W, const float *b, const int32_t *label,
              const struct pl_loss_segment *segment, int segments, int B, int S, int D, int V)
{
    for (int i = 0; i < segments; i++) {
        int rc = PL_OK;
        loss[i] = 0;
        if (segment[i].row1 > segment[i].row0)
            rc = one_segment(&loss[i], logp, dx, dW, db, x, W, b, label, &segment[i], B, S, D);
        if (rc) return rc;
    }
    return PL_OK;
}
