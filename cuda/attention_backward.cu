/* attention_backward.cu - the softmax weights are recomputed from scores and log-sum-exp, tile by
 * tile. One kernel sums over keys (dq), one over queries (dk, dv): there are no atomic additions,
 * so the bits are always the same.
 *
 *   w = exp(s - lse),  e = do . v,  delta = do . o,  ds = w (e - delta)
 *   dq = scale * sum ds k,  dk = scale * sum ds q,  dv = sum w do */
#include "attention.cuh"

/* delta (B,H,n) = do . o; one warp per vector. */
__global__ void products(float *delta, const float *do_, const float *o, size_t vectors, int n,
                         int H, int d)
{
    int lane = (int)threadIdx.x % 32;
    size_t v = blockIdx.x * (size_t)(CUDA_THREADS / 32) +
               threadIdx.x / 32; /* (b, position, head) */
    float s = 0;
    for (int c = lane; v < vectors && c < d; c += 32)
        s = fmaf(do_[v * (size_t)d + (size_t)c], o[v * (size_t)d + (size_t)c], s);
    s = cuda_warp_sum(s);
    if (v < vectors && lane == 0) {
        size_t p = v / (size_t)H;
        delta[(p / (size_t)n * (size_t)H + v % (size_t)H) * (size_t)n + p % (size_t)n] = s;
    }
}

/* Softmax weights W and score gradients E of a pair of tiles; rows are queries. The shared tiles Q,
 * K, O (do), V hold the last chunk of channels afterwards. */
static __device__ void weigh(cuda_shared<float> W, cuda_shared<float> E, cuda_shared<float> Q,
                             cuda_shared<float> K, cuda_shared<float> O, cuda_shared<float> V,
                             cuda_shared<int> queries, cuda_shared<int> keys, const struct head *g,
                             const struct tiling *t, int first, int d)
{
    int y = (int)threadIdx.x / 8, x = (int)threadIdx.x % 8;
    float s[2][4] = { { 0 } }, e[2][4] = { { 0 } }, scale = 1 / sqrtf((float)d);
    for (int c = 0; c < d; c += CHUNK) {
        int width = d - c < CHUNK ? d - c : CHUNK;
        __syncthreads(); /* the previous contents have been read */
        load_tile(Q, g->q, g->stride, queries, c, d);
        load_tile(K, g->k, g->stride, keys, c, d);
        load_tile(O, g->do_, g->out_stride, queries, c, d);
        load_tile(V, g->v, g->stride, keys, c, d);
        __syncthreads();
        multiply_rows(s, Q, K, width); /* s = q . k */
        multiply_rows(e, O, V, width); /* e = do . v */
    }
    PL_UNROLL
    for (int a = 0; a < 2; a++) {
        struct token q = load_token(queries, y + 16 * a);
        float lse = q.position < 0 ? 0 : g->lse[q.position],
              delta = q.position < 0 ? 0 : g->delta[q.position];
        /* a fully masked query: only v has a gradient */
        float factor = q.position < first ? 0 : scale;
        for (int j = 0; j < 4; j++) {
            int at = (y + 16 * a) * WEIGHTS + x + 8 * j;
            struct token key = load_token(keys, x + 8 * j);
            int seen = sees(t, first, q, key, is_shown(t, g->hidden, key));
            float w = seen ? expf(factor * s[a][j] - lse) : 0; /* the softmax, recomputed */
            W[at] = w;
            E[at] = w * factor * (e[a][j] - delta);
        }
    }
    __syncthreads();
}

static __device__ void store(float *to, size_t stride, const float out[2][8],
                             const struct tiling *t, int tile, int out_c, int d)
{
    int y = (int)threadIdx.x / 8, x = (int)threadIdx.x % 8;
    PL_UNROLL
    for (int a = 0; a < 2; a++) {
        int p = token_at(t, tile, y + 16 * a).position;
        for (int j = 0; p >= 0 && j < 8; j++)
            if (out_c + x + 8 * j < d)
                to[(size_t)p * stride + (size_t)(out_c + x + 8 * j)] = out[a][j];
    }
}

__global__ void __launch_bounds__(ATTENTION_THREADS)
    query_gradient(float *dqkv, const float *do_, const float *qkv, const float *lse,
                   const float *delta, struct tiling t, int H, int d, const uint8_t *key_mask)
{
    PL_SHARED(float, Q, (TILE * TILE_STRIDE));
    PL_SHARED(float, K, (TILE * TILE_STRIDE));
    PL_SHARED(float, O, (TILE * TILE_STRIDE));
    PL_SHARED(float, V, (TILE * TILE_STRIDE));
    PL_SHARED(float, W, (TILE * WEIGHTS));
    PL_SHARED(float, E, (TILE * WEIGHTS));
    PL_SHARED(int, queries, TOKEN_INTS);
    PL_SHARED(int, keys, TOKEN_INTS);
    struct head g = head_of(qkv, do_, lse, delta, &t, H, d, key_mask);
    int tq = (int)blockIdx.x, out_c = (int)blockIdx.z * CHUNK, first = first_seeing(&t, g.hidden);
    float out[2][8] = { { 0 } };
    fill_tokens(queries, &t, tq);
    for (int tk = 0; tk < t.tiles; tk++) {
        if (!tiles_may_attend(&t, tq, tk)) continue;
        __syncthreads(); /* the previous positions have been read */
        fill_tokens(keys, &t, tk);
        weigh(W, E, Q, K, O, V, queries, keys, &g, &t, first, d);
        if (d > CHUNK) {
            load_tile(K, g.k, g.stride, keys, out_c, d);
            __syncthreads();
        }
        multiply_weights(out, E, K, 0);
    }
    store(dqkv + (g.q - qkv), g.stride, out, &t, tq, out_c, d);
}

__global__ void __launch_bounds__(ATTENTION_THREADS)
    key_gradients(float *dqkv, const float *do_, const float *qkv, const float *lse,
                  const float *delta, struct tiling t, int H, int d, const uint8_t *key_mask)
{
    PL_SHARED(float, Q, (TILE * TILE_STRIDE));
    PL_SHARED(float, K, (TILE * TILE_STRIDE));
    PL_SHARED(float, O, (TILE * TILE_STRIDE));
    PL_SHARED(float, V, (TILE * TILE_STRIDE));
    PL_SHARED(float, W, (TILE * WEIGHTS));
    PL_SHARED(float, E, (TILE * WEIGHTS));
    PL_SHARED(int, queries, TOKEN_INTS);
    PL_SHARED(int, keys, TOKEN_INTS);
    struct head g = head_of(qkv, do_, lse, delta, &t, H, d, key_mask);
    int tk = (int)blockIdx.x, out_c = (int)blockIdx.z * CHUNK, first = first_seeing(&t, g.hidden);
    float dk[2][8] = { { 0 } }, dv[2][8] = { { 0 } };
    fill_tokens(keys, &t, tk);
    for (int tq = 0; tq < t.tiles; tq++) {
        if (!tiles_may_attend(&t, tq, tk) && token_at(&t, tq, 0).position >= first) continue;
        __syncthreads();
        fill_tokens(queries, &t, tq);
        weigh(W, E, Q, K, O, V, queries, keys, &g, &t, first, d);
        if (d > CHUNK) {
            load_tile(Q, g.q, g.stride, queries, out_c, d);
            load_tile(O, g.do_, g.out_stride, queries, out_c, d);
            __syncthreads();
        }
        multiply_weights(dk, E, Q, 1);
        multiply_weights(dv, W, O, 1);
    }
    store(dqkv + (g.k - qkv), g.stride, dk, &t, tk, out_c, d);
    store(dqkv + (g.v - qkv), g.stride, dv, &t, tk, out_c, d);
}

int cuda_attention_backward(float *dqkv, const float *do_, const float *qkv, const float *o,
                            const float *lse, int B, int n, int H, int d,
                            const struct pl_mask *mask, const uint8_t *key_mask)
{
    struct tiling t = tiling_of(mask, n, TILE);
    size_t heads = (size_t)B * (size_t)H, vectors = heads * (size_t)n, per = vectors / (size_t)B;
    int whole = mask->kind == PL_MASK_FULL || mask->kind == PL_MASK_NONE, at_once = 65535 / H, rc;
    int in_bf16 = cuda_attention_in_bf16(d);
    size_t warps = CUDA_THREADS / 32, mask_step = (size_t)(whole ? n : mask->P);
    float *delta = (float *)cuda_scratch(&rc, CUDA_SLOT_SUMS, vectors * sizeof *delta);
    if (rc == PL_OK)
        rc = PL_LAUNCH(products, (unsigned)((vectors + warps - 1) / warps), CUDA_THREADS, delta,
                       do_, o, vectors, n, H, d);
    for (int b = 0; rc == PL_OK && b < B; b += at_once) {
        int some = B - b < at_once ? B - b : at_once;
        dim3 grid((unsigned)t.tiles, (unsigned)(some * H), (unsigned)((d + CHUNK - 1) / CHUNK));
        size_t out = (size_t)b * per * (size_t)d, in = 3 * out, row = (size_t)b * per;
        const uint8_t *hidden = key_mask ? key_mask + (size_t)b * mask_step : key_mask;
        if (in_bf16) {
            rc = cuda_attention_backward_bf16(dqkv + in, do_ + out, qkv + in, lse + row,
                                              delta + row, some, n, H, d, mask, hidden);
            continue;
        }
        rc = PL_LAUNCH(query_gradient, grid, ATTENTION_THREADS, dqkv + in, do_ + out, qkv + in,
                       lse + row, delta + row, t, H, d, hidden);
        if (rc == PL_OK)
            rc = PL_LAUNCH(key_gradients, grid, ATTENTION_THREADS, dqkv + in, do_ + out, qkv + in,
                           lse + row, delta + row, t, H, d, hidden);
    }
    return rc;
}
