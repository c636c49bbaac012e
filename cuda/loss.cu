/* loss.cu - output layer and cross-entropy. Some rows of logits at a time are computed and turned
 * into their own gradients in place; sums stay on the device until all segments are done. */
#include "../ref/linear.h"
#include "../ref/loss.h"

#include "bf16.cuh"
#include "launch.cuh"

/* about 500 rows of logits with the reference run's text columns */
#define LOGITS_BYTES ((size_t)64 << 20)

/* Positions of a segment that have a label, over the whole batch; one block. */
__global__ void count_labels(double *count, const int32_t *label, int row0, int row1, int B, int S)
{
    size_t rows = (size_t)(row1 - row0), n = (size_t)B * rows;
    long long mine = 0;
    for (size_t i = threadIdx.x; i < n; i += CUDA_THREADS)
        mine += label[i / rows * (size_t)S + (size_t)row0 + i % rows] >= 0;
    mine = cuda_block_sum(mine);
    if (threadIdx.x == 0) *count = (double)mine;
}

/* One block per row: logits z become the gradients of weight/count * -log softmax at the label,
 * which counts from the segment's first column. */
__global__ void softmax_rows(float *z, float *logp, double *row_loss, const int32_t *label,
                             const double *count, float weight, int columns, int col0)
{
    size_t r = blockIdx.x;
    int id = label[r] < 0 ? -1 : label[r] - col0;
    float *zr = z + r * (size_t)columns, most = -INFINITY, total, lp, scale;
    double sum = 0;
    for (int j = (int)threadIdx.x; j < columns; j += CUDA_THREADS) most = fmaxf(most, zr[j]);
    most = cuda_block_max(most);
    for (int j = (int)threadIdx.x; j < columns; j += CUDA_THREADS)
        sum += (double)expf(zr[j] - most);
    sum = cuda_block_sum(sum);
    total = (float)sum;
    lp = id < 0 ? 0 : zr[id] - most - (float)log(sum);
    scale = id < 0 ? 0 : (float)(weight / *count);
    __syncthreads(); /* all threads have read the label's logit */
    for (int j = (int)threadIdx.x; j < columns; j += CUDA_THREADS)
        zr[j] = scale * (expf(zr[j] - most) / total - (j == id ? 1.0f : 0.0f));
    if (threadIdx.x == 0) {
        if (logp) logp[r] = lp;
        row_loss[r] = -(double)lp;
    }
}

/* *mean += the sum of n values / count; one block. */
__global__ void add_mean(double *mean, const double *value, size_t n, const double *count)
{
    double s = 0;
    for (size_t i = threadIdx.x; i < n; i += CUDA_THREADS) s += value[i];
    s = cuda_block_sum(s);
    if (threadIdx.x == 0 && *count > 0) *mean += s / *count;
}

/* Rows at..at+rows-1 of x (over the whole batch) against the segment's columns. */
static int some_rows(float *z, double *row_loss, double *mean, const double *count, float *logp,
                     float *dx, float *dW, float *db, const float *x, const float *W,
                     const float *b, const int32_t *label, const struct pl_loss_segment *s,
                     size_t at, int rows, int D)
{
    int columns = s->col1 - s->col0, rc;
    size_t first = (size_t)s->col0, row = at * (size_t)D, head = first * (size_t)D;
    rc = cuda_linear(z, x + row, W + head, b + first, rows, D, columns);
    if (rc == PL_OK)
        rc = PL_LAUNCH(softmax_rows, (unsigned)rows, CUDA_THREADS, z, logp ? logp + at : logp,
                       row_loss, label + at, count, s->weight, columns, s->col0);
    if (rc == PL_OK) rc = PL_LAUNCH(add_mean, 1, CUDA_THREADS, mean, row_loss, (size_t)rows, count);
    cuda_rounded_forget(); /* z has been overwritten */
    if (rc == PL_OK && dx) rc = cuda_linear_dw(dW + head, db + first, z, x + row, rows, D, columns);
    if (rc == PL_OK && dx) rc = cuda_linear_dx(dx + row, z, W + head, rows, D, columns, 0);
    return rc;
}

int cuda_loss(double *loss, float *logp, float *dx, float *dW, float *db, const float *x,
              const float *W, const float *b, const int32_t *label,
              const struct pl_loss_segment *segment, int segments, int B, int S, int D, int V)
{
    size_t widest = 1, longest = 1, some, bytes;
    double *mean, *count, *row_loss;
    float *z = NULL;
    int rc;
    (void)V;
    for (int i = 0; i < segments; i++) {
        size_t columns = (size_t)(segment[i].col1 - segment[i].col0);
        size_t rows = (size_t)(segment[i].row1 - segment[i].row0);
        if (columns > widest) widest = columns;
        if (rows > longest) longest = rows;
    }
    some = cuda_scratch_share(LOGITS_BYTES) / (widest * sizeof *z);
    some = some < 1 ? 1 : some < longest ? some : longest;
    bytes = (2 * PL_LOSS_SEGMENTS + some) * sizeof *mean;
    mean = (double *)cuda_scratch(&rc, CUDA_SLOT_SUMS, bytes);
    if (rc == PL_OK) z = (float *)cuda_scratch(&rc, CUDA_SLOT_LAYER, some * widest * sizeof *z);
    if (rc == PL_OK) rc = cuda_status(cudaMemsetAsync(mean, 0, bytes, cuda_stream()));
    count = mean + PL_LOSS_SEGMENTS;
    row_loss = count + PL_LOSS_SEGMENTS;
    for (int i = 0; rc == PL_OK && i < segments; i++) {
        const struct pl_loss_segment *s = &segment[i];
        if (s->row1 == s->row0) continue;
        rc = PL_LAUNCH(count_labels, 1, CUDA_THREADS, count + i, label, s->row0, s->row1, B, S);
        for (int seq = 0; seq < B; seq++)
            for (int p = s->row0; rc == PL_OK && p < s->row1; p += (int)some) {
                int rows = s->row1 - p < (int)some ? s->row1 - p : (int)some;
                rc = some_rows(z, row_loss, mean + i, count + i, logp, dx, dW, db, x, W, b, label,
                               s, (size_t)seq * (size_t)S + (size_t)p, rows, D);
            }
    }
    return rc == PL_OK ? cuda_download(loss, mean, (size_t)segments * sizeof *loss) : rc;
}
