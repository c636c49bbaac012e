/* sample.c - from logits to one token. [top-k: Fan et al. 2018] [top-p: Holtzman et al. 2020]
 * [TTT 3.4]
 *
 *   1. filter   keep the k largest logits, or the fewest whose probabilities sum to p
 *   2. softmax  over the kept tokens, of z / temperature
 *   3. draw     u uniform in [0,1): the first token at which the probabilities' sum exceeds u
 *
 * Both filters want the largest logits in falling order and rarely all of them, so a heap of
 * columns serves them, and nothing is sorted in full. */
#include "sample.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* column[0..left-1] is a heap, the largest first; column[left..V-1] are the tokens taken from it,
 * the first taken last. */
struct falling {
    const float *z;
    int *column, left, V;
};

/* Larger first; of equals the lower token, so that the order is one. */
static int before(const struct falling *f, int a, int b)
{
    float x = f->z[a], y = f->z[b];
    return x > y || (x == y && a < b);
}

/* Restores the heap under `at`, whose children are heaps. */
static void sift(struct falling *f, int at)
{
    int *c = f->column, child;
    while ((child = 2 * at + 1) < f->left) {
        int up;
        if (child + 1 < f->left && before(f, c[child + 1], c[child])) child++;
        if (!before(f, c[child], c[at])) return;
        up = c[child];
        c[child] = c[at];
        c[at] = up;
        at = child;
    }
}

static int falling_init(struct falling *f, const float *z, int V)
{
    assert(V >= 1);
    *f = (struct falling){
        .z = z, .column = pl_alloc((size_t)V, sizeof *f->column), .left = V, .V = V
    };
    if (!f->column) return PL_ENOMEM;
    for (int i = 0; i < V; i++) f->column[i] = i;
    for (int i = V / 2 - 1; i >= 0; i--) sift(f, i);
    return PL_OK;
}

/* The next in falling order. */
static int next_largest(struct falling *f)
{
    int top = f->column[0];
    f->column[0] = f->column[--f->left];
    f->column[f->left] = top;
    sift(f, 0);
    return top;
}

/* Drops all below the k-th largest: the tokens taken remain. */
static void keep_top_k(struct falling *f, int k)
{
    while (f->V - f->left < k) next_largest(f);
    while (f->left && f->z[f->column[0]] == f->z[f->column[f->left]]) next_largest(f);
}

/* 1. Of top-k's survivors, top-p takes tokens in falling order until the probability before the
 * next one exceeds p; the first is always kept. */
int pl_sample_filter(uint8_t *keep, const float *z, int V, int top_k, double top_p)
{
    struct falling f;
    double most, total = 0, sum_before = 0;
    int first = 0, rc = falling_init(&f, z, V); /* first: where the survivors of top-k begin */
    if (rc != PL_OK) return rc;
    memset(keep, 0, (size_t)V);
    most = z[f.column[0]];
    if (top_k > 0) {
        keep_top_k(&f, top_k < V ? top_k : V);
        first = f.left;
    }
    for (int i = first; i < V; i++) {
        total += exp(z[f.column[i]] - most);
        keep[f.column[i]] = top_p >= 1;
    }
    /* top-p: softmax at temperature 1 over the survivors; sum_before is the probability of all
     * larger tokens, and the first token that reaches p is still kept */
    for (int rank = 0; top_p < 1 && rank < V - first; rank++) {
        int id = rank < V - f.left ? f.column[V - 1 - rank] : next_largest(&f);
        if (rank > 0 && sum_before > top_p) break;
        keep[id] = 1;
        sum_before += exp(z[id] - most) / total;
    }
    pl_free(f.column);
    return PL_OK;
}

/* DALLE-pytorch's filter: the (1 - fraction) V largest. [spec dalle 11] */
int pl_sample_filter_fraction(uint8_t *keep, const float *z, int V, double fraction)
{
    struct falling f;
    int k = (int)((1 - fraction) * V), rc = falling_init(&f, z, V);
    if (rc != PL_OK) return rc;
    memset(keep, 0, (size_t)V);
    if (k < 1) k = 1;
    for (int i = 0; i < k && i < V; i++) keep[next_largest(&f)] = 1;
    pl_free(f.column);
    return PL_OK;
}

/* 2. DALLE-pytorch divides by 1024 before it subtracts the maximum, and multiplies back: the same
 * value. */
void pl_sample_softmax(float *p, const float *z, const uint8_t *keep, int V, double temperature)
{
    double most = -INFINITY, sum = 0;
    assert(temperature > 0);
    for (int i = 0; i < V; i++)
        if (keep[i] && z[i] > most) most = z[i];
    /* p_i = exp((z_i - max) / temperature) / sum; the maximum cancels and keeps exp finite */
    for (int i = 0; i < V; i++)
        if (keep[i]) sum += exp((z[i] - most) / temperature);
    for (int i = 0; i < V; i++)
        p[i] = keep[i] ? (float)(exp((z[i] - most) / temperature) / sum) : 0;
}

/* 3. Inverse of the cumulative distribution: the first token with p_0 + ... + p_id > u. The sum is
 * taken as it is, since rounding leaves it a little off 1. */
int pl_sample_draw(const float *p, int V, struct pl_rng *rng)
{
    double total = 0, sum = 0, target;
    int id = 0;
    for (int i = 0; i < V; i++) total += p[i];
    target = pl_rng_uniform(rng) * total;
    for (int i = 0; i < V && sum <= target; i++)
        if (p[i] > 0) {
            id = i;
            sum += p[i];
        }
    return id;
}

int pl_sample(int *id, const float *z, int V, const struct pl_sampling *how, struct pl_rng *rng)
{
    float *p = pl_alloc((size_t)V, sizeof *p);
    uint8_t *keep = pl_alloc((size_t)V, 1);
    int rc = p && keep ? pl_sample_filter(keep, z, V, how->top_k, how->top_p) : PL_ENOMEM;
    if (rc == PL_OK) {
        pl_sample_softmax(p, z, keep, V, how->temperature); /* 2., then 3. */
        *id = pl_sample_draw(p, V, rng);
    }
    pl_free(p);
    pl_free(keep);
    return rc;
}

/* Temperature 0: the largest logit. */
int pl_sample_greedy(const float *z, int V)
{
    int best = 0;
    for (int i = 1; i < V; i++)
        if (z[i] > z[best]) best = i;
    return best;
}

/* Classifier-free guidance: away from the logits without a caption, by `scale`. [spec dalle 11] */
void pl_sample_guide(float *mixed, const float *given, const float *blank, size_t n, double scale)
{
    for (size_t i = 0; i < n; i++)
        mixed[i] = (float)(blank[i] + ((double)given[i] - blank[i]) * scale);
}
