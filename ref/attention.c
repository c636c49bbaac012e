/* attention.c - one query at a time: list the keys it may see, weigh them, sum. See attention.h. */
#include "attention.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* One query's keys, and their weights for one head. */
struct view {
    int *key, count;
    double scale;   /* of the scores: 1/sqrt(d), or 0 */
    double *weight; /* (count) */
    double *dot;    /* (count) scratch of the backward pass */
    double *sum;    /* (d) scratch */
};

static int view_init(struct view *v, int n, int d)
{
    v->key = pl_alloc((size_t)n, sizeof *v->key);
    v->weight = pl_alloc(2 * (size_t)n + (size_t)d, sizeof *v->weight);
    if (!v->key || !v->weight) return PL_ENOMEM;
    v->dot = v->weight + n;
    v->sum = v->dot + n;
    return PL_OK;
}

static void view_clear(struct view *v)
{
    pl_free(v->key);
    pl_free(v->weight);
}

/* hidden: key mask of this sequence, or NULL. */
static int hides(const uint8_t *key_mask, const struct pl_mask *mask, int q, int k)
{
    if (!key_mask) return 0;
    if (mask->kind == PL_MASK_FULL || mask->kind == PL_MASK_NONE) return !key_mask[k];
    return q >= mask->P && k < mask->P && !key_mask[k];
}

static void list_keys(struct view *v, const struct pl_mask *mask, const uint8_t *key_mask, int q,
                      int n, int d)
{
    v->count = 0;
    v->scale = 1 / sqrt(d);
    for (int k = 0; k < n; k++)
        if (pl_mask_allowed(mask, q, k) && !hides(key_mask, mask, q, k)) v->key[v->count++] = k;
    if (v->count) return;
    /* Nothing left to see. The original has set all scores of the row to the same lowest number,
     * so all keys weigh the same, later ones too, and no gradient reaches q and k: scale 0. */
    for (int k = 0; k < n; k++) v->key[v->count++] = k;
    v->scale = 0;
}

static double dot(const float *a, const float *b, int d)
{
    double sum = 0;
    for (int i = 0; i < d; i++) sum += (double)a[i] * b[i];
    return sum;
}

/* Softmax over the listed keys, `pitch` floats apart. Returns the log of its denominator. */
static double weigh(struct view *v, const float *q, const float *k, size_t pitch, int d)
{
    double most = -INFINITY, sum = 0;
    for (int j = 0; j < v->count; j++) {
        v->weight[j] = v->scale * dot(q, k + (size_t)v->key[j] * pitch, d);
        if (v->weight[j] > most) most = v->weight[j];
    }
    for (int j = 0; j < v->count; j++) sum += v->weight[j] = exp(v->weight[j] - most);
    for (int j = 0; j < v->count; j++) v->weight[j] /= sum;
    return most + log(sum);
}

/* o (d) = the weighted sum of the listed values. */
static void gather(float *o, const struct view *v, const float *value, size_t pitch, int d)
{
    for (int i = 0; i < d; i++) v->sum[i] = 0;
    for (int j = 0; j < v->count; j++)
    for (int i = 0; i < d; i++)
        v->sum[i] += v->weight[j] * value[(size_t)v->key[j] * pitch + (size_t)i];
    for (int i = 0; i < d; i++) o[i] = (float)v->sum[i];
}

static const uint8_t *mask_of(const uint8_t *key_mask, const struct pl_mask *mask, int b, int n)
{
    int width = mask->kind == PL_MASK_FULL || mask->kind == PL_MASK_NONE ? n : mask->P;
    return key_mask ? key_mask + (size_t)b * (size_t)width : NULL;
}

int ref_attention(float *o_, float *lse_, const float *qkv_, int B, int n, int H, int d,
                  const struct pl_mask *mask, const uint8_t *key_mask)
{
    float (*o)[n][H][d] = (float (*)[n][H][d])o_;
    float (*lse)[H][n] = (float (*)[H][n])lse_;
    const float (*qkv)[n][3][H][d] = (const float (*)[n][3][H][d])qkv_;
    size_t pitch = 3 * (size_t)H * (size_t)d; /* from one position's key to the next */
    struct view v;
    int rc = view_init(&v, n, d);
    for (int b = 0; rc == PL_OK && b < B; b++)
    for (int q = 0; q < n; q++) {
        list_keys(&v, mask, mask_of(key_mask, mask, b, n), q, n, d);
        for (int h = 0; h < H; h++) {
            double denominator = weigh(&v, qkv[b][q][0][h], qkv[b][0][1][h], pitch, d);
            gather(o[b][q][h], &v, qkv[b][0][2][h], pitch, d);
            if (lse_) lse[b][h][q] = (float)denominator;
        }
    }
    view_clear(&v);
    return rc;
}

/* With w the weights and e = do . v of each key:
 *   dv += w do,  ds = w (e - sum of w e),  dq = scale * sum of ds k,  dk += scale * ds q.
 * The softmax is taken again from its scores, not from lse: that was rounded to float32, which
 * would move every weight by up to |lse| * 2^-24. */
int ref_attention_backward(float *dqkv, const float *do_, const float *qkv_, const float *o,
                           const float *lse, int B, int n, int H, int d, const struct pl_mask *mask,
                           const uint8_t *key_mask)
{
    const float (*dout)[n][H][d] = (const float (*)[n][H][d])do_;
    const float (*qkv)[n][3][H][d] = (const float (*)[n][3][H][d])qkv_;
    size_t pitch = 3 * (size_t)H * (size_t)d, floats = (size_t)n * pitch;
    double *sum_ = pl_alloc(floats, sizeof *sum_); /* one sequence's gradients */
    double (*sum)[3][H][d] = (double (*)[3][H][d])sum_;
    struct view v;
    int rc = view_init(&v, n, d);
    (void)o, (void)lse;
    assert(dqkv != qkv_);
    if (!sum_) rc = PL_ENOMEM;
    for (int b = 0; rc == PL_OK && b < B; b++) {
        memset(sum_, 0, floats * sizeof *sum_);
        for (int q = 0; q < n; q++) {
            list_keys(&v, mask, mask_of(key_mask, mask, b, n), q, n, d);
            for (int h = 0; h < H; h++) {
                double mean = 0;
                weigh(&v, qkv[b][q][0][h], qkv[b][0][1][h], pitch, d);
                for (int j = 0; j < v.count; j++) {
                    v.dot[j] = dot(dout[b][q][h], qkv[b][v.key[j]][2][h], d);
                    mean += v.weight[j] * v.dot[j];
                }
                for (int j = 0; j < v.count; j++) {
                    int k = v.key[j];
                    double ds = v.scale * v.weight[j] * (v.dot[j] - mean);
                    for (int i = 0; i < d; i++) {
                        sum[q][0][h][i] += ds * qkv[b][k][1][h][i];
                        sum[k][1][h][i] += ds * qkv[b][q][0][h][i];
                        sum[k][2][h][i] += v.weight[j] * dout[b][q][h][i];
                    }
                }
            }
        }
        for (size_t i = 0; i < floats; i++) dqkv[(size_t)b * floats + i] = (float)sum_[i];
    }
    pl_free(sum_);
    view_clear(&v);
    return rc;
}

int ref_attention_step(float *o_, float *k_cache_, float *v_cache_, const float *qkv_, int B, int S,
                       int H, int d, int p, const struct pl_mask *mask)
{
    float (*o)[H][d] = (float (*)[H][d])o_;
    float (*k_cache)[H][S][d] = (float (*)[H][S][d])k_cache_;
    float (*v_cache)[H][S][d] = (float (*)[H][S][d])v_cache_;
    const float (*qkv)[3][H][d] = (const float (*)[3][H][d])qkv_;
    struct view v;
    int rc = view_init(&v, p + 1, d);
    assert(0 <= p && p < S);
    if (rc == PL_OK) list_keys(&v, mask, NULL, p, p + 1, d);
    for (int b = 0; rc == PL_OK && b < B; b++)
    for (int h = 0; h < H; h++) {
        memcpy(k_cache[b][h][p], qkv[b][1][h], (size_t)d * sizeof *qkv_);
        memcpy(v_cache[b][h][p], qkv[b][2][h], (size_t)d * sizeof *qkv_);
        weigh(&v, qkv[b][0][h], k_cache[b][h][0], (size_t)d, d);
        gather(o[b][h], &v, v_cache[b][h][0], (size_t)d, d);
    }
    view_clear(&v);
    return rc;
}
