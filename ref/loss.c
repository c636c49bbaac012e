/* loss.c - output layer and cross-entropy in one, a segment of one sequence at a time.
 * [spec dalle 8]
 *
 *   z      = x W^T + b                                     logits, (positions, V)
 *   loss   = mean over positions of -log softmax(z)[label]
 *   dz_j   = (softmax(z)_j - [j = label]) * weight / positions
 *   dx     = dz W,   dW += dz^T x,   db += sum dz          linear.c's gradients
 *
 * A segment is a range of positions that predict a range of ids: text positions text, image
 * positions image tokens. The gradient has the logits' shape, so it replaces them in their buffer,
 * and logits of one segment of one sequence are all that is ever stored: (B,S,V) would be
 * gigabytes. */
#include "loss.h"
#include "linear.h"

#include <assert.h>
#include <math.h>

/* One position: logits z (columns) become gradients of `scale` * -log softmax at `label`.
 * Returns the label's log-probability. */
static double position(float *z, int columns, int label, double scale)
{
    double most = -INFINITY, sum = 0, log_sum, logp;
    for (int j = 0; j < columns; j++)
        if (z[j] > most) most = z[j];
    for (int j = 0; j < columns; j++) sum += exp(z[j] - most);
    log_sum = most + log(sum);
    logp = z[label] - log_sum;
    for (int j = 0; j < columns; j++) z[j] = (float)(scale * (exp(z[j] - log_sum) - (j == label)));
    return logp;
}

/* Positions of a segment that count, over the whole batch. */
static long counted(const int32_t *label, const struct pl_loss_segment *s, int B, int S)
{
    long n = 0;
    for (int b = 0; b < B; b++)
        for (int p = s->row0; p < s->row1; p++) n += label[(size_t)b * (size_t)S + (size_t)p] >= 0;
    return n;
}

int ref_loss(double *loss, float *logp, float *dx, float *dW, float *db, const float *x,
             const float *W, const float *b, const int32_t *label,
             const struct pl_loss_segment *segment, int segments, int B, int S, int D, int V)
{
    assert(segments <= PL_LOSS_SEGMENTS);
    for (int i = 0; i < segments; i++) {
        const struct pl_loss_segment *s = &segment[i];
        int rows = s->row1 - s->row0, columns = s->col1 - s->col0;
        long n = counted(label, s, B, S);
        double scale = n ? s->weight / (double)n : 0;
        size_t first = (size_t)s->col0;
        float *z;
        loss[i] = 0;
        if (rows == 0) continue;
        assert(0 <= s->row0 && rows > 0 && s->row1 <= S && 0 <= s->col0 && columns > 0 &&
               s->col1 <= V);
        z = pl_alloc((size_t)rows, (size_t)columns * sizeof *z);
        if (!z) return PL_ENOMEM;
        for (int seq = 0; seq < B; seq++) {
            size_t at = (size_t)seq * (size_t)S + (size_t)s->row0;
            /* z */
            ref_linear(z, x + at * (size_t)D, W + first * (size_t)D, b + first, rows, D, columns);
            for (int p = 0; p < rows; p++) {
                float *zp = z + (size_t)p * (size_t)columns;
                int id = label[at + (size_t)p];
                double lp = 0;
                assert(id == -1 || (s->col0 <= id && id < s->col1));
                /* z becomes dz; a position without a label has none */
                if (id >= 0) lp = position(zp, columns, id - s->col0, scale);
                else
                    for (int j = 0; j < columns; j++) zp[j] = 0;
                if (id >= 0) loss[i] -= lp / (double)n;
                if (logp) logp[at + (size_t)p] = (float)lp;
            }
            /* dx, dW, db */
            if (!dx) continue;
            ref_linear_dx(dx + at * (size_t)D, z, W + first * (size_t)D, rows, D, columns, 0);
            ref_linear_dw(dW + first * (size_t)D, db + first, z, x + at * (size_t)D, rows, D,
                          columns);
        }
        pl_free(z);
    }
    return PL_OK;
}
