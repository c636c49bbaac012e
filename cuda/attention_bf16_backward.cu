/* attention_bf16_backward.cu - cuda/attention_backward.cu on tensor cores. One kernel keeps queries
 * and sums over keys (dq), one keeps keys and sums over queries (dk, dv). Weights and score
 * gradients exist for 16 rows and 16 columns at a time, and are rounded only as operands of the
 * next GEMM. */
#include "attention_bf16.cuh"

/* Turns scores s and e = do . v of the warp's rows and eight columns into weights, and into score
 * gradients without the scale. lse is in units of log2. `bits` as in attended_pairs, from these
 * columns on. */
static __device__ __forceinline__ void weigh(float s[4], float e[4], uint32_t bits, float scale,
                                             const float lse[4], const float delta[4])
{
    PL_UNROLL
    for (int i = 0; i < 4; i++) {
        s[i] = bits >> i & 1 ? exp2f(fmaf(s[i], scale, -lse[i])) : 0;
        e[i] = s[i] * (e[i] - delta[i]);
    }
}

enum { TILES = 2, QUERY_THREADS = TILES * TILE_THREADS };

__global__ void __launch_bounds__(QUERY_THREADS, 2)
    query_gradient_bf16(float *dqkv, const float *do_, const float *qkv, const float *lse,
                        const float *delta, struct tiling t, int H, int d, const uint8_t *key_mask,
                        int pairs)
{
    PL_SHARED(uint32_t, K, (SIDE * ROW_WORDS)); /* first used for the rows' vectors */
    PL_SHARED(uint32_t, V, (SIDE * ROW_WORDS));
    PL_SHARED(int, rows, (TILES * 4 * SIDE));
    PL_SHARED(int, columns, (4 * SIDE));
    struct head h = head_of(qkv, do_, lse, delta, &t, H, d, key_mask);
    int first = first_seeing(&t, h.hidden), tq = TILES * (int)blockIdx.x;
    int steps = (d + 15) / 16, free;
    float root = 1 / sqrtf((float)d), scale = LOG2_E * root, dq[SIDE / 8][4] = { { 0 } };
    float of_lse[2], of_delta[2];
    uint32_t query[GROUPS][4], above[GROUPS][4];
    fill_tokens<TILES>(rows, &t, tq, NULL);
    __syncthreads();
    load_rounded<QUERY_THREADS>(K, h.q, h.stride, rows, 0, first, d, pairs);
    load_rounded<QUERY_THREADS>(V, h.q, h.stride, rows, SIDE, first, d, pairs);
    __syncthreads();
    take_rows(query, warp_of() < GROUPS ? K : V, steps);
    __syncthreads();
    load_rounded<QUERY_THREADS>(K, h.do_, h.out_stride, rows, 0, 0, d, pairs);
    load_rounded<QUERY_THREADS>(V, h.do_, h.out_stride, rows, SIDE, 0, d, pairs);
    __syncthreads();
    take_rows(above, warp_of() < GROUPS ? K : V, steps);
    free = rows_are_free<TILES>(rows);
    PL_UNROLL
    for (int a = 0; a < 2; a++) {
        int p = rows[warp_of() * 16 + lane_of() / 4 + 8 * a];
        of_lse[a] = p < 0 ? 0 : h.lse[p] * LOG2_E;
        of_delta[a] = p < 0 ? 0 : h.delta[p];
    }

    for (int tk = 0; tk < t.tiles; tk++) {
        uint32_t bits;
        int groups;
        if (!block_attends<TILES, 0>(&t, tq, tk, first)) continue;
        __syncthreads(); /* the previous tiles have been read */
        fill_tokens<1>(columns, &t, tk, h.hidden);
        __syncthreads();
        load_rounded<QUERY_THREADS>(K, h.k, h.stride, columns, 0, 0, d, pairs);
        load_rounded<QUERY_THREADS>(V, h.v, h.stride, columns, 0, 0, d, pairs);
        bits = attended_pairs<TILES, 0>(&t, rows, tq, free, columns, tk, first);
        groups = attended_groups(bits);
        __syncthreads();
        PL_UNROLL
        for (int g = 0; g < GROUPS; g++) {
            const float of_rows[2][4] = { { of_lse[0], of_lse[0], of_lse[1], of_lse[1] },
                                          { of_delta[0], of_delta[0], of_delta[1], of_delta[1] } };
            float s[2][4] = { { 0 } }, e[2][4] = { { 0 } };
            if (!(groups >> g & 1)) continue; /* the same for the whole warp */
            multiply_group(s, query, K, g, steps);
            multiply_group(e, above, V, g, steps);
            PL_UNROLL
            for (int j = 0; j < 2; j++)
                weigh(s[j], e[j], bits >> (8 * g + 4 * j), scale, of_rows[0], of_rows[1]);
            add_group(dq, e, K, g, steps);
        }
    }
    PL_UNROLL
    for (int a = 0; a < 2; a++) { /* a fully masked query: only v has a gradient */
        int p = rows[warp_of() * 16 + lane_of() / 4 + 8 * a];
        store_row(dqkv + (h.q - qkv), NULL, h.stride, p, dq, a, p < first ? 0 : root, d, pairs);
    }
}

/* Twice the sums, so half the rows: three such blocks fit on a multiprocessor. */
__global__ void __launch_bounds__(TILE_THREADS, 3)
    key_gradients_bf16(float *dqkv, const float *do_, const float *qkv, const float *lse,
                       const float *delta, struct tiling t, int H, int d, const uint8_t *key_mask,
                       int pairs)
{
    PL_SHARED(uint32_t, Q, (SIDE * ROW_WORDS)); /* first used for the rows' k */
    PL_SHARED(uint32_t, O, (SIDE * ROW_WORDS)); /* do; first used for v */
    PL_SHARED(int, rows, (4 * SIDE));
    PL_SHARED(int, columns, (4 * SIDE));
    PL_SHARED(float, statistics, (2 * SIDE)); /* the columns' lse and delta */
    struct head h = head_of(qkv, do_, lse, delta, &t, H, d, key_mask);
    int first = first_seeing(&t, h.hidden), tk = (int)blockIdx.x, i = (int)threadIdx.x;
    int steps = (d + 15) / 16, free;
    float root = 1 / sqrtf((float)d), scale = LOG2_E * root;
    float dk[SIDE / 8][4] = { { 0 } }, dv[SIDE / 8][4] = { { 0 } };
    uint32_t key[GROUPS][4], value[GROUPS][4];
    fill_tokens<1>(rows, &t, tk, h.hidden);
    __syncthreads();
    load_rounded<TILE_THREADS>(Q, h.k, h.stride, rows, 0, 0, d, pairs);
    load_rounded<TILE_THREADS>(O, h.v, h.stride, rows, 0, 0, d, pairs);
    __syncthreads();
    take_rows(key, Q, steps);
    take_rows(value, O, steps);
    free = rows_are_free<1>(rows);

    for (int tq = 0; tq < t.tiles; tq++) {
        uint32_t bits;
        int groups;
        if (!block_attends<1, 1>(&t, tk, tq, first)) continue;
        __syncthreads(); /* the previous tiles have been read */
        fill_tokens<1>(columns, &t, tq, NULL);
        __syncthreads();
        /* a fully masked query gives k no gradient */
        load_rounded<TILE_THREADS>(Q, h.q, h.stride, columns, 0, first, d, pairs);
        load_rounded<TILE_THREADS>(O, h.do_, h.out_stride, columns, 0, 0, d, pairs);
        if (i < SIDE) {
            int p = columns[i];
            statistics[i] = p < 0 ? 0 : h.lse[p] * LOG2_E;
            statistics[SIDE + i] = p < 0 ? 0 : h.delta[p];
        }
        bits = attended_pairs<1, 1>(&t, rows, tk, free, columns, tq, first);
        groups = attended_groups(bits);
        __syncthreads();
        PL_UNROLL
        for (int g = 0; g < GROUPS; g++) {
            float s[2][4] = { { 0 } }, e[2][4] = { { 0 } };
            if (!(groups >> g & 1)) continue; /* the same for the whole warp */
            multiply_group(s, key, Q, g, steps);
            multiply_group(e, value, O, g, steps);
            PL_UNROLL
            for (int j = 0; j < 2; j++) {
                int c = 16 * g + 8 * j + lane_of() % 4 * 2;
                float l0 = statistics[c], l1 = statistics[c + 1];
                float d0 = statistics[SIDE + c], d1 = statistics[SIDE + c + 1];
                const float of_lse[4] = { l0, l1, l0, l1 }, of_delta[4] = { d0, d1, d0, d1 };
                weigh(s[j], e[j], bits >> (8 * g + 4 * j), scale, of_lse, of_delta);
            }
            add_group(dv, s, O, g, steps);
            add_group(dk, e, Q, g, steps);
        }
    }
    PL_UNROLL
    for (int a = 0; a < 2; a++) {
        int p = rows[warp_of() * 16 + lane_of() / 4 + 8 * a];
        store_row(dqkv + (h.k - qkv), NULL, h.stride, p, dk, a, root, d, pairs);
        store_row(dqkv + (h.v - qkv), NULL, h.stride, p, dv, a, 1, d, pairs);
    }
}

int cuda_attention_backward_bf16(float *dqkv, const float *do_, const float *qkv, const float *lse,
                                 const float *delta, int B, int n, int H, int d,
                                 const struct pl_mask *mask, const uint8_t *key_mask)
{
    struct tiling t = tiling_of(mask, n, SIDE);
    dim3 grid((unsigned)((t.tiles + TILES - 1) / TILES), (unsigned)(B * H));
    dim3 of_keys((unsigned)t.tiles, (unsigned)(B * H));
    int pairs = in_pairs(d, qkv, dqkv) && in_pairs(d, do_, do_);
    int rc = PL_LAUNCH(query_gradient_bf16, grid, QUERY_THREADS, dqkv, do_, qkv, lse, delta, t, H,
                       d, key_mask, pairs);
    if (rc == PL_OK)
        rc = PL_LAUNCH(key_gradients_bf16, of_keys, TILE_THREADS, dqkv, do_, qkv, lse, delta, t, H,
                       d, key_mask, pairs);
    return rc;
}
