/* attention.c - masked attention, one query at a time. [Vaswani et al. 2017, eq. 1] [TTT 3.1]
 *
 *   s_qk = q . k / sqrt(d)            for the keys k that the mask lets query q see
 *   w_qk = exp(s_qk) / sum_k exp(s_qk)
 *   o_q  = sum_k w_qk v_k
 *
 * Sums are in double and rounded once. Only the allowed keys are listed and computed, so a row or
 * column layer costs its window, not n^2 [Child et al. 2019]. */
#include "attention.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* The keys that one query sees, and their weights for one head. */
struct query {
    int *key, count;
    double scale;   /* of the scores: 1/sqrt(d), or 0 */
    double *weight; /* (count) */
    double *dot;    /* (count) scratch of the backward pass */
    double *sum;    /* (d) scratch */
};

static int query_init(struct query *w, int n, int d)
{
    w->key = pl_alloc((size_t)n, sizeof *w->key);
    w->weight = pl_alloc(2 * (size_t)n + (size_t)d, sizeof *w->weight);
    if (!w->key || !w->weight) return PL_ENOMEM;
    w->dot = w->weight + n;
    w->sum = w->dot + n;
    return PL_OK;
}

static void query_clear(struct query *w)
{
    pl_free(w->key);
    pl_free(w->weight);
}

/* 1 if the key mask of this sequence (or NULL) hides key k from query q: padding of plain text from
 * all, padding of a caption from image queries, as DALLE-pytorch has it. */
static int hides(const uint8_t *key_mask, const struct pl_mask *mask, int q, int k)
{
    if (!key_mask) return 0;
    if (mask->kind == PL_MASK_FULL || mask->kind == PL_MASK_NONE) return !key_mask[k];
    return q >= mask->P && k < mask->P && !key_mask[k];
}

static void list_keys(struct query *w, const struct pl_mask *mask, const uint8_t *key_mask, int q,
                      int n, int d)
{
    w->count = 0;
    w->scale = 1 / sqrt(d);
    for (int k = 0; k < n; k++)
        if (pl_mask_allowed(mask, q, k) && !hides(key_mask, mask, q, k)) w->key[w->count++] = k;
    if (w->count) return;
    /* No key is left. DALLE-pytorch then has the same lowest number for all scores of the row, so
     * all keys weigh the same, later ones too, and no gradient reaches q and k: scale 0. */
    for (int k = 0; k < n; k++) w->key[w->count++] = k;
    w->scale = 0;
}

static double dot(const float *a, const float *b, int d)
{
    double sum = 0;
    for (int i = 0; i < d; i++) sum += (double)a[i] * b[i];
    return sum;
}

/* w_k = softmax of s_k = scale q . k, keys with a stride of `stride` floats. The largest score
 * is subtracted first, so that no exponential overflows. Returns log sum_k exp(s_k). */
static double softmax(struct query *w, const float *q, const float *k, size_t stride, int d)
{
    double most = -INFINITY, sum = 0;
    for (int j = 0; j < w->count; j++) {
        w->weight[j] = w->scale * dot(q, k + (size_t)w->key[j] * stride, d);
        if (w->weight[j] > most) most = w->weight[j];
    }
    for (int j = 0; j < w->count; j++) sum += w->weight[j] = exp(w->weight[j] - most);
    for (int j = 0; j < w->count; j++) w->weight[j] /= sum;
    return most + log(sum);
}

/* o = sum_k w_k v_k */
static void weighted_sum(float *o, const struct query *w, const float *value, size_t stride, int d)
{
    for (int i = 0; i < d; i++) w->sum[i] = 0;
    for (int j = 0; j < w->count; j++)
        for (int i = 0; i < d; i++)
            w->sum[i] += w->weight[j] * value[(size_t)w->key[j] * stride + (size_t)i];
    for (int i = 0; i < d; i++) o[i] = (float)w->sum[i];
}

static const uint8_t *mask_of(const uint8_t *key_mask, const struct pl_mask *mask, int b, int n)
{
    int width = mask->kind == PL_MASK_FULL || mask->kind == PL_MASK_NONE ? n : mask->P;
    return key_mask ? key_mask + (size_t)b * (size_t)width : NULL;
}

int ref_attention(float *o_, float *lse_, const float *qkv_, int B, int n, int H, int d,
                  const struct pl_mask *mask, const uint8_t *key_mask)
{
    float(*o)[n][H][d] = (float(*)[n][H][d])o_;
    float(*lse)[H][n] = (float(*)[H][n])lse_;
    const float(*qkv)[n][3][H][d] = (const float(*)[n][3][H][d])qkv_;
    size_t stride = 3 * (size_t)H * (size_t)d; /* from one position's key to the next */
    struct query w;
    int rc = query_init(&w, n, d);
    for (int b = 0; rc == PL_OK && b < B; b++)
        for (int q = 0; q < n; q++) {
            list_keys(&w, mask, mask_of(key_mask, mask, b, n), q, n, d);
            for (int h = 0; h < H; h++) {
                double denominator = softmax(&w, qkv[b][q][0][h], qkv[b][0][1][h], stride, d);
                weighted_sum(o[b][q][h], &w, qkv[b][0][2][h], stride, d);
                if (lse_) lse[b][h][q] = (float)denominator;
            }
        }
    query_clear(&w);
    return rc;
}

/* Backward, for each query, with do_ the gradient of o:
 *
 *   dv_k += w_k do                     from o = sum_k w_k v_k
 *   e_k   = do . v_k                   the weights' gradient
 *   ds_k  = w_k (e_k - sum_j w_j e_j)  the softmax's Jacobian
 *   dq    = scale sum_k ds_k k,   dk += scale ds_k q
 *
 * The softmax is computed again from its scores, not from lse: lse was rounded to float32, which
 * would move every weight by up to |lse| * 2^-24. */
int ref_attention_backward(float *dqkv, const float *do_, const float *qkv_, const float *o,
                           const float *lse, int B, int n, int H, int d, const struct pl_mask *mask,
                           const uint8_t *key_mask)
{
    const float(*dout)[n][H][d] = (const float(*)[n][H][d])do_;
    const float(*qkv)[n][3][H][d] = (const float(*)[n][3][H][d])qkv_;
    size_t stride = 3 * (size_t)H * (size_t)d, floats = (size_t)n * stride;
    double *sum_ = pl_alloc(floats, sizeof *sum_); /* one sequence's gradients */
    double(*sum)[3][H][d] = (double(*)[3][H][d])sum_;
    struct query w;
    int rc = query_init(&w, n, d);
    assert(dqkv != qkv_);
    if (!sum_) rc = PL_ENOMEM;
    for (int b = 0; rc == PL_OK && b < B; b++) {
        memset(sum_, 0, floats * sizeof *sum_);
        for (int q = 0; q < n; q++) {
            list_keys(&w, mask, mask_of(key_mask, mask, b, n), q, n, d);
            for (int h = 0; h < H; h++) {
                double mean = 0; /* sum_j w_j e_j */
                softmax(&w, qkv[b][q][0][h], qkv[b][0][1][h], stride, d);
                for (int j = 0; j < w.count; j++) {
                    w.dot[j] = dot(dout[b][q][h], qkv[b][w.key[j]][2][h], d);
                    mean += w.weight[j] * w.dot[j];
                }
                for (int j = 0; j < w.count; j++) {
                    int k = w.key[j];
                    double ds = w.scale * w.weight[j] * (w.dot[j] - mean);
                    for (int i = 0; i < d; i++) {
                        sum[q][0][h][i] += ds * qkv[b][k][1][h][i];
                        sum[k][1][h][i] += ds * qkv[b][q][0][h][i];
                        sum[k][2][h][i] += w.weight[j] * dout[b][q][h][i];
                    }
                }
            }
        }
        for (size_t i = 0; i < floats; i++) dqkv[(size_t)b * floats + i] = (float)sum_[i];
    }
    pl_free(sum_);
    query_clear(&w);
    return rc;
}

/* Generation: keys and values of earlier positions come from the caches, and only the new token's
 * are computed, so a token costs n, not n^2. */
int ref_attention_step(float *o_, float *k_cache_, float *v_cache_, const float *qkv_, int B, int S,
                       int H, int d, int p, const struct pl_mask *mask)
{
    float(*o)[H][d] = (float(*)[H][d])o_;
    float(*k_cache)[H][S][d] = (float(*)[H][S][d])k_cache_;
    float(*v_cache)[H][S][d] = (float(*)[H][S][d])v_cache_;
    const float(*qkv)[3][H][d] = (const float(*)[3][H][d])qkv_;
    struct query w;
    int rc = query_init(&w, p + 1, d);
    assert(0 <= p && p < S);
    if (rc == PL_OK) list_keys(&w, mask, NULL, p, p + 1, d);
    for (int b = 0; rc == PL_OK && b < B; b++)
        for (int h = 0; h < H; h++) {
            memcpy(k_cache[b][h][p], qkv[b][1][h], (size_t)d * sizeof *qkv_);
            memcpy(v_cache[b][h][p], qkv[b][2][h], (size_t)d * sizeof *qkv_);
            softmax(&w, qkv[b][0][h], k_cache[b][h][0], (size_t)d, d);
            weighted_sum(o[b][h], &w, v_cache[b][h][0], (size_t)d, d);
        }
    query_clear(&w);
    return rc;
}
