/* attention.cu - attention forward, one pass over the keys (FlashAttention's online softmax, [Dao
 * et al. 2022]). A thread block takes 32 queries of one head through all tiles of keys that they
 * may attend to. It keeps, per query, the maximum score m, the denominator l and the weighted sum o
 * so far. When a tile raises the maximum from m to m', both l and o are scaled by exp(m - m').
 * Heads wider than 64 channels use one block for each 64 output channels, each with all scores. */
#include "attention.cuh"
#include "bf16.cuh"

__global__ void __launch_bounds__(ATTENTION_THREADS)
    attend(float *o, float *lse, const float *qkv, struct tiling t, int H, int d,
           const uint8_t *key_mask)
{
    PL_SHARED(float, Q, (TILE * TILE_STRIDE));
    PL_SHARED(float, K, (TILE * TILE_STRIDE));
    PL_SHARED(float, V, (TILE * TILE_STRIDE));
    PL_SHARED(float, W, (TILE * WEIGHTS));
    PL_SHARED(int, queries, TOKEN_INTS);
    PL_SHARED(int, keys, TOKEN_INTS);
    int tq = (int)blockIdx.x, b = (int)blockIdx.y / H, h = (int)blockIdx.y % H;
    int out_c = (int)blockIdx.z * CHUNK, y = (int)threadIdx.x / 8, x = (int)threadIdx.x % 8;
    size_t stride = 3 * (size_t)H * (size_t)d;
    const float *q = qkv + (size_t)b * (size_t)t.n * stride + (size_t)h * (size_t)d;
    const float *k = q + (size_t)H * (size_t)d, *v = k + (size_t)H * (size_t)d;
    const uint8_t *hidden = mask_of(&t, key_mask, b);
    int first = first_seeing(&t, hidden);
    struct token at[2] = { token_at(&t, tq, y), token_at(&t, tq, y + 16) };
    /* some query of the tile has all its keys masked */
    int see_all = token_at(&t, tq, 0).position < first;
    float scale = 1 / sqrtf((float)d), out[2][8] = { { 0 } };
    float best[2] = { -INFINITY, -INFINITY }, sum[2] = { 0, 0 };

    fill_tokens(queries, &t, tq);
    for (int tk = 0; tk < t.tiles; tk++) {
        float s[2][4] = { { 0 } };
        if (!see_all && !tiles_may_attend(&t, tq, tk)) continue;
        __syncthreads(); /* the previous tiles have been read */
        fill_tokens(keys, &t, tk);
        for (int c = 0; c < d; c += CHUNK) {
            __syncthreads(); /* the previous chunk has been read */
            load_tile(Q, q, stride, queries, c, d);
            load_tile(K, k, stride, keys, c, d);
            if (c == 0) load_tile(V, v, stride, keys, out_c, d);
            __syncthreads();
            multiply_rows(s, Q, K, d - c < CHUNK ? d - c : CHUNK);
        }
        PL_UNROLL
        for (int a = 0; a < 2; a++) {
            float most = best[a], part = 0, shrink;
            float factor = at[a].position < first ? 0 : scale;
            for (int j = 0; j < 4; j++) {
                struct token key = load_token(keys, x + 8 * j);
                s[a][j] = sees(&t, first, at[a], key, is_shown(&t, hidden, key)) ? factor * s[a][j]
                                                                                 : -INFINITY;
                most = fmaxf(most, s[a][j]);
            }
            /* m' = max(m, this tile's scores); the eight threads of a row are adjacent */
            for (int distance = 4; distance; distance /= 2)
                most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, distance));
            for (int j = 0; j < 4; j++) {
                float w = s[a][j] == -INFINITY ? 0 : expf(s[a][j] - most);
                W[(y + 16 * a) * WEIGHTS + x + 8 * j] = w;
                part += w;
            }
            for (int distance = 4; distance; distance /= 2)
                part += __shfl_xor_sync(0xffffffffu, part, distance);
            /* l = l exp(m - m') + sum of this tile's weights; o = o exp(m - m') + weights V,
             * below */
            shrink = best[a] == -INFINITY ? 0 : expf(best[a] - most);
            sum[a] = fmaf(sum[a], shrink, part);
            for (int j = 0; j < 8; j++) out[a][j] *= shrink;
            best[a] = most;
        }
        __syncthreads();
        multiply_weights(out, W, V, 0);
    }
    PL_UNROLL
    for (int a = 0; a < 2; a++) {
        size_t p = (size_t)b * (size_t)t.n + (size_t)at[a].position;
        if (at[a].position < 0) continue;
        for (int j = 0; j < 8; j++)
            if (out_c + x + 8 * j < d)
                o[(p * (size_t)H + (size_t)h) * (size_t)d + (size_t)(out_c + x + 8 * j)] =
                    out[a][j] / sum[a];
        if (lse && blockIdx.z == 0 && x == 0)
            lse[((size_t)b * (size_t)H + (size_t)h) * (size_t)t.n + (size_t)at[a].position] =
                best[a] + logf(sum[a]);
    }
}

int cuda_attention(float *o, float *lse, const float *qkv, int B, int n, int H, int d,
                   const struct pl_mask *mask, const uint8_t *key_mask)
{
    struct tiling t = tiling_of(mask, n, TILE);
    int at_once = 65535 / H, rc = PL_OK; /* gridDim.y is at most 65535 */
    int whole = mask->kind == PL_MASK_FULL || mask->kind == PL_MASK_NONE;
    size_t in = (size_t)n * 3 * (size_t)H * (size_t)d, mask_step = (size_t)(whole ? n : mask->P);
    int in_bf16 = cuda_attention_in_bf16(d);
    uint16_t *out16 = in_bf16 ? cuda_round_copy(o, (size_t)B * in / 3) : NULL;
    for (int b = 0; rc == PL_OK && b < B; b += at_once) {
        int some = B - b < at_once ? B - b : at_once;
        dim3 grid((unsigned)t.tiles, (unsigned)(some * H), (unsigned)((d + CHUNK - 1) / CHUNK));
        float *to = o + (size_t)b * in / 3,
              *saved_lse = lse ? lse + (size_t)b * (size_t)H * (size_t)n : lse;
        const float *from = qkv + (size_t)b * in;
        const uint8_t *hidden = key_mask ? key_mask + (size_t)b * mask_step : key_mask;
        rc = in_bf16
                 ? cuda_attention_bf16(to, out16 ? out16 + (size_t)b * in / 3 : out16, saved_lse,
                                       from, some, n, H, d, mask, hidden)
                 : PL_LAUNCH(attend, grid, ATTENTION_THREADS, to, saved_lse, from, t, H, d, hidden);
    }
    return rc;
}

/* ---- one step with a KV cache: one block per head, 128 keys at a time ---- */

__global__ void __launch_bounds__(ATTENTION_THREADS)
    attend_step(float *o, float *k_cache, float *v_cache, const float *qkv, struct tiling t, int S,
                int H, int d, int p)
{
    PL_SHARED(float, W, ATTENTION_THREADS);
    int b = (int)blockIdx.x / H, h = (int)blockIdx.x % H, me = (int)threadIdx.x;
    const float *q = qkv + ((size_t)b * 3 * (size_t)H + (size_t)h) * (size_t)d;
    const float *k = q + (size_t)H * (size_t)d, *v = k + (size_t)H * (size_t)d;
    float *ks = k_cache + (size_t)blockIdx.x * (size_t)S * (size_t)d;
    float *vs = v_cache + (size_t)blockIdx.x * (size_t)S * (size_t)d;
    float *out = o + (size_t)blockIdx.x * (size_t)d;
    float scale = 1 / sqrtf((float)d), best = -INFINITY, sum = 0;
    int P = t.mask.P, F = t.mask.F, cell = p - P;
    struct token mine = { p, -1, 0 };
    if (cell >= 0 && t.text < t.n) mine.row = cell / F, mine.column = cell % F;
    for (int c = me; c < d; c += ATTENTION_THREADS) {
        ks[(size_t)p * (size_t)d + (size_t)c] = k[c];
        vs[(size_t)p * (size_t)d + (size_t)c] = v[c];
        out[c] = 0;
    }
    __syncthreads();
    for (int begin = 0; begin <= p; begin += ATTENTION_THREADS) {
        struct token at = { begin + me, -1, 0 };
        float s = -INFINITY, most, shrink, w;
        if (at.position >= P && t.text < t.n) {
            at.row = (at.position - P) / F;
            at.column = (at.position - P) % F;
        }
        if (at.position <= p && is_allowed(&t.mask, mine, at)) {
            const float *row = ks + (size_t)at.position * (size_t)d;
            s = 0;
            for (int c = 0; c < d; c++) s = fmaf(q[c], row[c], s);
            s *= scale;
        }
        most = fmaxf(best, cuda_block_max(s));
        /* all of these keys are masked, for every thread of the block */
        if (most == -INFINITY) continue;
        w = s == -INFINITY ? 0 : expf(s - most);
        shrink = best == -INFINITY ? 0 : expf(best - most);
        sum = fmaf(sum, shrink, cuda_block_sum(w));
        best = most;
        W[me] = w;
        __syncthreads();
        for (int c = me; c < d; c += ATTENTION_THREADS) {
            float part = out[c] * shrink;
            for (int i = 0; i < ATTENTION_THREADS; i++) {
                float wi = W[i];
                if (wi != 0) part = fmaf(wi, vs[(size_t)(begin + i) * (size_t)d + (size_t)c], part);
            }
            out[c] = part;
        }
        __syncthreads();
    }
    for (int c = me; c < d; c += ATTENTION_THREADS) out[c] /= sum;
}

int cuda_attention_step(float *o, float *k_cache, float *v_cache, const float *qkv, int B, int S,
                        int H, int d, int p, const struct pl_mask *mask)
{
    struct tiling t = tiling_of(mask, p + 1, TILE);
    return PL_LAUNCH(attend_step, (unsigned)(B * H), ATTENTION_THREADS, o, k_cache, v_cache, qkv, t,
                     S, H, d, p);
}
