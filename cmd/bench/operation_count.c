/* operation_count.c - each entry adds its own operations and calls the backend's entry. A gradient
 * of attention computes the scores again: five products where the forward pass has two. */
#include "operation_count.h"

#include <string.h>

#define MASKS 8 /* kinds of layers that are remembered */

static const struct pl_backend *real;
static double total;

/* Counting a mask's pairs takes a percent of a step, so each is counted once. */
static struct {
    struct pl_mask mask;
    int n;
    double pairs;
} known[MASKS];
static int known_count;

static double product(int M, int K, int N) { return 2.0 * M * K * N; }

static double allowed(const struct pl_mask *mask, int n)
{
    int i = 0;
    while (i < known_count && (known[i].n != n || memcmp(&known[i].mask, mask, sizeof *mask))) i++;
    if (i == MASKS) return (double)pl_mask_count(mask, n);
    if (i == known_count) {
        known[i].mask = *mask;
        known[i].n = n;
        known[i].pairs = (double)pl_mask_count(mask, n);
        known_count++;
    }
    return known[i].pairs;
}

/* One product of attention. */
static double pairs(const struct pl_mask *mask, int B, int n, int H, int d)
{
    return 2.0 * B * H * d * allowed(mask, n);
}

static int linear(float *y, const float *x, const float *W, const float *b, int M, int K, int N)
{
    total += product(M, K, N);
    return real->linear(y, x, W, b, M, K, N);
}

static int linear_dx(float *dx, const float *dy, const float *W, int M, int K, int N, int add)
{
    total += product(M, K, N);
    return real->linear_dx(dx, dy, W, M, K, N, add);
}

static int linear_dw(float *dW, float *db, const float *dy, const float *x, int M, int K, int N)
{
    total += product(M, K, N);
    return real->linear_dw(dW, db, dy, x, M, K, N);
}

static int ffn(float *y, float *z, const float *x, const struct pl_ffn *w, int M, int D, int C)
{
    total += product(M, D, 2 * C) + product(M, C, D);
    return real->ffn(y, z, x, w, M, D, C);
}

static int ffn_backward(float *y, float *dx, const struct pl_ffn *dw, const float *dy, float *z,
                        const float *x, const struct pl_ffn *w, int M, int D, int C)
{
    double in = product(M, D, 2 * C), out = product(M, C, D);
    total += 2 * (in + out) + (z ? 0 : in) + (y ? out : 0);
    return real->ffn_backward(y, dx, dw, dy, z, x, w, M, D, C);
}

static int attention(float *o, float *lse, const float *qkv, int B, int n, int H, int d,
                     const struct pl_mask *mask, const uint8_t *key_mask)
{
    total += 2 * pairs(mask, B, n, H, d);
    return real->attention(o, lse, qkv, B, n, H, d, mask, key_mask);
}

static int attention_backward(float *dqkv, const float *do_, const float *qkv, const float *o,
                              const float *lse, int B, int n, int H, int d,
                              const struct pl_mask *mask, const uint8_t *key_mask)
{
    total += 5 * pairs(mask, B, n, H, d);
    return real->attention_backward(dqkv, do_, qkv, o, lse, B, n, H, d, mask, key_mask);
}

/* Each row has its own segment's columns of the logits. */
static int loss(double *mean, float *logp, float *dx, float *dW, float *db, const float *x,
                const float *W, const float *b, const int32_t *label,
                const struct pl_loss_segment *segment, int segments, int B, int S, int D, int V)
{
    for (int i = 0; i < segments; i++)
        total += (dx ? 3 : 1) * product(B * (segment[i].row1 - segment[i].row0), D,
                                        segment[i].col1 - segment[i].col0);
    return real->loss(mean, logp, dx, dW, db, x, W, b, label, segment, segments, B, S, D, V);
}

void operation_count_begin(struct pl_backend *counting, const struct pl_backend *be)
{
    real = be;
    total = 0;
    *counting = *be;
    counting->linear = linear;
    counting->linear_dx = linear_dx;
    counting->linear_dw = linear_dw;
    counting->ffn = ffn;
    counting->ffn_backward = ffn_backward;
    counting->attention = attention;
    counting->attention_backward = attention_backward;
    counting->loss = loss;
}

double operation_count(void) { return total; }
