/* attention.c - attention computed over the allowed keys only. An image query has a few keys in the
 * image and all text keys: the scores of both are stored side by side, and one softmax and one GEMM
 * each way serve both. Column attention is row attention in another order.
 *
 * Keys are transposed once per head, so that the GEMM runs on whole vector registers. The scores of
 * a block of queries stay in L2. The backward pass recomputes the softmax weights from the stored
 * log-sum-exp instead of storing them.
 *
 * Work is split into (sequence, head, chunk of queries); the chunks depend on the shape alone. Sums
 * over chunks are added afterwards in chunk order, so the number of threads changes no bit. */
#include "attention_tiling.h"
#include "fast.h"
#include "workspace.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SIMD_FILE "attention_simd.inc"
#include "foreach_isa.inc"

#define CHUNK_ROWS 256 /* with fewer queries, packing the keys for each chunk costs too much */
/* floats: prefetch the next head if it fits in L2 together with this one */
#define PREFETCH_MAX 65536

static const struct attention_ops *const ops[ISA_COUNT] = ISA_TABLE(ops);

/* One call. A unit of work is one chunk of one head of one sequence. */
struct call {
    const struct attention_ops *op;
    struct attention_tiling tiling;
    struct attention_key_mask masked;
    int B, causal;
    int chunks;     /* per head */
    size_t scratch; /* floats a thread needs */
};

static void call_clear(struct call *c)
{
    attention_key_mask_clear(&c->masked);
    attention_tiling_clear(&c->tiling);
}

/* Splits each head into as many chunks as give about `pieces` units of work in all, as long as a
 * chunk has at least CHUNK_ROWS queries. */
static int call_init(struct call *c, const struct pl_mask *mask, const uint8_t *key_mask, int B,
                     int n, int H, int d, int backward, int pieces)
{
    struct attention_scratch w;
    int rc;
    *c = (struct call){ .op = ops[isa_chosen()], .B = B, .causal = mask->kind == PL_MASK_FULL };
    if ((rc = attention_tiling_init(&c->tiling, mask, n, H, d, c->op->lanes))) return rc;
    if ((rc = attention_key_mask_init(&c->masked, &c->tiling, mask, key_mask, B))) {
        attention_tiling_clear(&c->tiling);
        return rc;
    }
    c->scratch = attention_scratch(&w, &c->tiling, NULL, backward);
    c->chunks = (pieces + B * H - 1) / (B * H);
    if (c->chunks > n / CHUNK_ROWS) c->chunks = n / CHUNK_ROWS;
    if (c->chunks > c->tiling.blocks) c->chunks = c->tiling.blocks;
    if (c->chunks < 1) c->chunks = 1;
    return PL_OK;
}

/* Where a head begins in qkv, o and lse, and its key masks. */
static struct attention_head head_of(const struct call *c, const float *qkv, int b, int head,
                                     size_t *qkv_at, size_t *o_at, size_t *lse_at)
{
    size_t n = (size_t)c->tiling.n, H = (size_t)c->tiling.H, d = (size_t)c->tiling.d, width = H * d;
    size_t heads = (size_t)c->B * H, next = (size_t)b * H + (size_t)head + 1;
    struct attention_head h = { .stride = 3 * width,
                                .o_stride = width,
                                .text_mask = c->tiling.text_mask };
    *qkv_at = (size_t)b * n * 3 * width + (size_t)head * d;
    *o_at = (size_t)b * n * width + (size_t)head * d;
    *lse_at = ((size_t)b * H + (size_t)head) * n;
    h.q = qkv + *qkv_at;
    h.k = h.q + width;
    h.v = h.k + width;
    if (3 * n * d <= PREFETCH_MAX && next < heads)
        h.next = qkv + (next / H * n * 3 * H + next % H) * d;
    if (c->masked.mask) {
        h.text_mask = c->masked.mask + (size_t)b * c->masked.width;
        h.causal_mask = c->causal ? h.text_mask : NULL;
        h.fully_masked = c->masked.fully_masked[b];
    }
    return h;
}

int fast_attention(float *o, float *lse, const float *qkv, int B, int n, int H, int d,
                   const struct pl_mask *mask, const uint8_t *key_mask)
{
    struct call c;
    int rc = call_init(&c, mask, key_mask, B, n, H, d, 0, 32);
    if (rc) return rc;
#pragma omp parallel for schedule(dynamic) num_threads(fast_threads())
    for (int piece = 0; piece < B * H * c.chunks; piece++) {
        int head = piece / c.chunks, chunk = piece % c.chunks, blocks = c.tiling.blocks;
        size_t qkv_at, o_at, lse_at;
        struct attention_head h = head_of(&c, qkv, head / H, head % H, &qkv_at, &o_at, &lse_at);
        struct attention_scratch w;
        float *base = workspace(c.scratch);
        if (!base) {
#pragma omp atomic write
            rc = PL_ENOMEM;
            continue;
        }
        h.o = o + o_at;
        h.lse = lse ? lse + lse_at : NULL;
        attention_scratch(&w, &c.tiling, base, 0);
        c.op->forward(&c.tiling, &h, &w, chunk * blocks / c.chunks,
                      (chunk + 1) * blocks / c.chunks);
    }
    call_clear(&c);
    return rc;
}

int fast_attention_backward(float *dqkv, const float *do_, const float *qkv, const float *o,
                            const float *lse, int B, int n, int H, int d,
                            const struct pl_mask *mask, const uint8_t *key_mask)
{
    struct call c;
    size_t sums, part;
    /* (B*H, chunks): dk, then dv, of each chunk, if a head has several chunks */
    float *parts = NULL;
    int rc = call_init(&c, mask, key_mask, B, n, H, d, 1, 8);
    assert(dqkv != qkv);
    if (rc) return rc;
    sums = (size_t)n * (size_t)c.tiling.row_stride;
    part = 2 * sums;
    if (c.chunks > 1 && !(parts = malloc((size_t)(B * H * c.chunks) * part * sizeof *parts)))
        rc = PL_ENOMEM;
#pragma omp parallel for schedule(dynamic) num_threads(fast_threads())
    for (int piece = 0; piece < (rc ? 0 : B * H * c.chunks); piece++) {
        int head = piece / c.chunks, chunk = piece % c.chunks, blocks = c.tiling.blocks;
        size_t qkv_at, o_at, lse_at;
        struct attention_head h = head_of(&c, qkv, head / H, head % H, &qkv_at, &o_at, &lse_at);
        struct attention_scratch w;
        float *base = workspace(c.scratch + (parts ? 0 : part));
        if (!base) {
#pragma omp atomic write
            rc = PL_ENOMEM;
            continue;
        }
        h.dout = do_ + o_at;
        h.saved_o = o + o_at;
        h.saved_lse = lse + lse_at;
        h.dq = dqkv + qkv_at;
        h.dk = h.dq + h.stride / 3;
        h.dv = h.dk + h.stride / 3;
        attention_scratch(&w, &c.tiling, base, 1);
        w.dk = parts ? parts + (size_t)piece * part : base + c.scratch;
        w.dv = w.dk + sums;
        c.op->backward(&c.tiling, &h, &w, chunk * blocks / c.chunks,
                       (chunk + 1) * blocks / c.chunks);
        if (!parts) c.op->reduce(&c.tiling, &h, w.dk, w.dv, 1, 0);
    }
#pragma omp parallel for schedule(dynamic) num_threads(fast_threads())
    for (int head = 0; head < (parts && !rc ? B * H : 0); head++) {
        const float *dk = parts + (size_t)(head * c.chunks) * part;
        size_t qkv_at, o_at, lse_at;
        struct attention_head h = head_of(&c, qkv, head / H, head % H, &qkv_at, &o_at, &lse_at);
        h.dk = dqkv + qkv_at + h.stride / 3;
        h.dv = h.dk + h.stride / 3;
        c.op->reduce(&c.tiling, &h, dk, dk + sums, c.chunks, part);
    }
    free(parts);
    call_clear(&c);
    return rc;
}

int fast_attention_step(float *o, float *k_cache, float *v_cache, const float *qkv, int B, int S,
                        int H, int d, int p, const struct pl_mask *mask)
{
    const struct attention_ops *op = ops[isa_chosen()];
    size_t width = (size_t)H * (size_t)d, bytes = (size_t)d * sizeof *o;
    int *key = malloc((size_t)(p + 1) * sizeof *key), count = 0, rc = PL_OK;
    assert(0 <= p && p < S);
    if (!key) return PL_ENOMEM;
    for (int k = 0; k <= p; k++)
        if (pl_mask_allowed(mask, p, k)) key[count++] = k;
#pragma omp parallel for schedule(static) num_threads(fast_threads())
    for (int head = 0; head < B * H; head++) {
        const float *q = qkv + (size_t)(head / H) * 3 * width + (size_t)(head % H) * (size_t)d;
        size_t cache = (size_t)head * (size_t)S * (size_t)d, new = cache + (size_t)p *(size_t)d;
        float *weight = workspace((size_t)count + 16);
        if (!weight) {
#pragma omp atomic write
            rc = PL_ENOMEM;
            continue;
        }
        memcpy(k_cache + new, q + width, bytes);
        memcpy(v_cache + new, q + 2 * width, bytes);
        op->step(o + (size_t)head * (size_t)d, q, k_cache + cache, v_cache + cache, key, count, d,
                 weight);
    }
    free(key);
    return rc;
}
