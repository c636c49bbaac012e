/* attention_bf16.cu - cuda/attention.cu on tensor cores. A thread block takes 128 queries of one
 * head through all tiles of 64 keys that they may attend to. Scores, softmax and weights never
 * leave the registers of the warp that owns their rows. [Dao et al. 2022; Dao 2023] */
#include "attention_bf16.cuh"
#include "bf16.cuh"
#include "device.cuh"

enum { TILES = 2, THREADS = TILES * TILE_THREADS };

__global__ void __launch_bounds__(THREADS, 2)
    attend_bf16(float *o, uint16_t *o16, float *lse, const float *qkv, struct tiling t, int H,
                int d, const uint8_t *key_mask, int pairs)
{
    PL_SHARED(uint32_t, K, (SIDE * ROW_WORDS)); /* first used for the two tiles of queries */
    PL_SHARED(uint32_t, V, (SIDE * ROW_WORDS));
    PL_SHARED(int, rows, (TILES * 4 * SIDE));
    PL_SHARED(int, columns, (4 * SIDE));
    int b = (int)blockIdx.y / H, h = (int)blockIdx.y % H, tq = TILES * (int)blockIdx.x;
    int steps = (d + 15) / 16, free;
    size_t vector = (size_t)H * (size_t)d, stride = 3 * vector;
    const float *q = qkv + (size_t)b * (size_t)t.n * stride + (size_t)h * (size_t)d;
    const float *k = q + vector, *v = k + vector;
    const uint8_t *hidden = mask_of(&t, key_mask, b);
    int first = first_seeing(&t, hidden);
    float scale = LOG2_E / sqrtf((float)d), out[SIDE / 8][4] = { { 0 } };
    float best[2] = { -INFINITY, -INFINITY }, sum[2] = { 0, 0 }; /* in units of log2 */
    uint32_t query[GROUPS][4];
    fill_tokens<TILES>(rows, &t, tq, NULL);
    __syncthreads();
    /* a fully masked query has equal scores everywhere */
    load_rounded<THREADS>(K, q, stride, rows, 0, first, d, pairs);
    load_rounded<THREADS>(V, q, stride, rows, SIDE, first, d, pairs);
    __syncthreads();
    take_rows(query, warp_of() < GROUPS ? K : V, steps);
    free = rows_are_free<TILES>(rows);

    for (int tk = 0; tk < t.tiles; tk++) {
        uint32_t bits;
        int groups;
        if (!block_attends<TILES, 0>(&t, tq, tk, first)) continue;
        __syncthreads(); /* the previous tiles have been read */
        fill_tokens<1>(columns, &t, tk, hidden);
        __syncthreads();
        load_rounded<THREADS>(K, k, stride, columns, 0, 0, d, pairs);
        load_rounded<THREADS>(V, v, stride, columns, 0, 0, d, pairs);
        bits = attended_pairs<TILES, 0>(&t, rows, tq, free, columns, tk, first);
        groups = attended_groups(bits);
        __syncthreads();
        if (!groups) continue; /* the same for the whole warp */
        float s[SIDE / 8][4] = { { 0 } };
        PL_UNROLL
        for (int g = 0; g < GROUPS; g++)
            if (groups >> g & 1) multiply_group(s + 2 * g, query, K, g, steps);
        PL_UNROLL
        for (int a = 0; a < 2; a++) {
            float most = best[a], base, shrink, part = 0;
            PL_UNROLL
            for (int j = 0; j < SIDE / 8; j++) PL_UNROLL
            for (int i = 2 * a; i < 2 * a + 2; i++) {
                if (!(bits >> (4 * j + i) & 1)) s[j][i] = -INFINITY;
                most = fmaxf(most, s[j][i]);
            }
            /* the four lanes of a row are adjacent */
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
            base = most == -INFINITY ? 0 : most * scale;
            shrink = exp2f(fmaf(best[a], scale, -base));
            PL_UNROLL
            for (int j = 0; j < SIDE / 8; j++) PL_UNROLL
            for (int i = 2 * a; i < 2 * a + 2; i++) {
                s[j][i] = exp2f(fmaf(s[j][i], scale, -base));
                part += s[j][i];
            }
            sum[a] = fmaf(sum[a], shrink, part); /* this lane's own columns */
            best[a] = most;
            PL_UNROLL
            for (int j = 0; j < SIDE / 8; j++) PL_UNROLL
            for (int i = 2 * a; i < 2 * a + 2; i++) out[j][i] *= shrink;
        }
        PL_UNROLL
        for (int g = 0; g < GROUPS; g++)
            if (groups >> g & 1) add_group(out, s + 2 * g, V, g, steps);
    }
    size_t out_at = ((size_t)b * (size_t)t.n * (size_t)H + (size_t)h) * (size_t)d;
    PL_UNROLL
    for (int a = 0; a < 2; a++) {
        int p = rows[warp_of() * 16 + lane_of() / 4 + 8 * a];
        sum[a] += __shfl_xor_sync(0xffffffffu, sum[a], 1);
        sum[a] += __shfl_xor_sync(0xffffffffu, sum[a], 2);
        store_row(o + out_at, o16 ? o16 + out_at : NULL, vector, p, out, a, 1 / sum[a], d, pairs);
        if (lse && p >= 0 && lane_of() % 4 == 0)
            lse[(size_t)blockIdx.y * (size_t)t.n + (size_t)p] = fmaf(best[a], scale,
                                                                     log2f(sum[a])) *
                                                                LN_2;
    }
}

int cuda_attention_in_bf16(int d)
{
    static int code[CUDA_DEVICES_MAX]; /* 1: no tensor-core code for this device; 2: there is */
    int *mine = &code[cuda_number()];
    if (!cuda_bf16() || !fits_matrix_units(d)) return 0;
    if (!*mine) *mine = 1 + cuda_matrix_code(attend_bf16);
    return *mine == 2;
}

int cuda_attention_bf16(float *o, uint16_t *o16, float *lse, const float *qkv, int B, int n, int H,
                        int d, const struct pl_mask *mask, const uint8_t *key_mask)
{
    struct tiling t = tiling_of(mask, n, SIDE);
    dim3 grid((unsigned)((t.tiles + TILES - 1) / TILES), (unsigned)(B * H));
    return PL_LAUNCH(attend_bf16, grid, THREADS, o, o16, lse, qkv, t, H, d, key_mask,
                     in_pairs(d, qkv, o));
}
