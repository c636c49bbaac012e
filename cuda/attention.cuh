/* attention.cuh - which queries attend to which keys, tile by tile, for the forward and the
 * backward pass.
 *
 * Positions are cut into tiles of 32 (64 on tensor cores: attention_bf16.cuh), text and image
 * separately. In the reference run a tile of image cells is one row (two); for column attention
 * cells are counted down the columns, and a tile is one column (two). A few comparisons tell
 * whether any pair of two tiles may attend; other pairs of tiles are skipped, and no (n,n) matrix
 * exists. */
#ifndef PL_CUDA_ATTENTION_CUH
#define PL_CUDA_ATTENTION_CUH

#include "../ref/attention.h"

#include "launch.cuh"

enum {
    TILE = 32, /* queries or keys */
    /* channels at a time, the reference run's whole head; wider heads take several passes */
    CHUNK = 64,
    TILE_STRIDE = CHUNK + 1, /* avoids bank conflicts in shared memory */
    WEIGHTS = TILE + 1,
    ATTENTION_THREADS = 128
};

/* The same on tensor cores, for at most 65535 / H sequences at a time: attention_bf16.cu and
 * attention_bf16_backward.cu. o16: o in bfloat16 as well, or NULL. cuda_attention_in_bf16 tells
 * whether operands are to be rounded, heads of d channels fit, and the thread's device has code for
 * it. */
int cuda_attention_in_bf16(int d);
int cuda_attention_bf16(float *o, uint16_t *o16, float *lse, const float *qkv, int B, int n, int H,
                        int d, const struct pl_mask *mask, const uint8_t *key_mask);
int cuda_attention_backward_bf16(float *dqkv, const float *do_, const float *qkv, const float *lse,
                                 const float *delta, int B, int n, int H, int d,
                                 const struct pl_mask *mask, const uint8_t *key_mask);

struct tiling {
    struct pl_mask mask;
    int n;    /* positions */
    int size; /* of a tile */
    int text; /* positions in text tiles; all of them if the mask has no grid */
    int text_tiles, tiles;
    int line; /* cells per row; per column for column attention */
};

static inline struct tiling tiling_of(const struct pl_mask *mask, int n, int size)
{
    struct tiling t = { *mask, n, size, n, 0, 0, 1 };
    int cells = 0;
    if (mask->kind != PL_MASK_FULL && mask->kind != PL_MASK_NONE && mask->P < n) {
        int rows = (n - mask->P + mask->F - 1) / mask->F; /* the last row may be incomplete */
        t.text = mask->P;
        t.line = mask->kind == PL_MASK_COL ? rows : mask->F;
        cells = rows * mask->F;
    }
    t.text_tiles = (t.text + size - 1) / size;
    t.tiles = t.text_tiles + (cells + size - 1) / size;
    return t;
}

/* A token of a tile: its position in the sequence (-1: beyond the end), and its image cell. */
struct token {
    int position, row, column; /* row -1: text */
};

static __device__ struct token token_at(const struct tiling *t, int tile, int i)
{
    struct token p = { tile * t->size + i, -1, 0 };
    int cell;
    if (tile < t->text_tiles) {
        if (p.position >= t->text) p.position = -1;
        return p;
    }
    cell = (tile - t->text_tiles) * t->size + i;
    if (t->mask.kind == PL_MASK_COL) {
        p.row = cell % t->line;
        p.column = cell / t->line;
    } else {
        p.row = cell / t->line;
        p.column = cell % t->line;
    }
    p.position = t->text + p.row * t->mask.F + p.column;
    if (p.position >= t->n || p.column >= t->mask.F) p.position = -1;
    return p;
}

/* Rows above the query's that the convolutional window covers. */
static __device__ int reach_of(const struct pl_mask *m)
{
    return m->dilation * (m->kind == PL_MASK_CONV ? m->kernel / 2 : m->kernel - 1);
}

/* Whether a query of tile tq may attend to a key of tile tk; may return 1 where none does. */
static __device__ int tiles_may_attend(const struct tiling *t, int tq, int tk)
{
    int first, last;
    if (t->mask.kind == PL_MASK_NONE) return 1;
    if (tk > tq) return 0;
    if (tk < t->text_tiles) return 1; /* earlier text */
    if (t->mask.kind == PL_MASK_FULL) return 1;
    /* the queries' first row (or column) */
    first = (tq - t->text_tiles) * t->size / t->line;
    last = ((tk - t->text_tiles + 1) * t->size - 1) / t->line; /* the keys' last row (or column) */
    if (t->mask.kind == PL_MASK_CONV || t->mask.kind == PL_MASK_CONV_CORNER)
        first -= reach_of(&t->mask);
    return last >= first;
}

/* pl_mask_allowed for tokens inside the sequence. */
static __device__ int is_allowed(const struct pl_mask *m, struct token q, struct token k)
{
    int down = q.row - k.row, right = q.column - k.column, reach;
    if (m->kind == PL_MASK_NONE) return 1;
    if (k.position > q.position) return 0;
    if (k.row < 0 || m->kind == PL_MASK_FULL) return 1;
    switch (m->kind) {
    case PL_MASK_ROW: return down == 0;
    case PL_MASK_COL: return right == 0;
    default: break;
    }
    reach = reach_of(m);
    if (down % m->dilation || right % m->dilation || down > reach || right > reach) return 0;
    return m->kind == PL_MASK_CONV ? -right <= reach : right >= 0;
}

/* Whether the key mask applies to all queries, or only to those of the image. */
static __device__ int hides_from_all(const struct tiling *t)
{
    return t->mask.kind == PL_MASK_FULL || t->mask.kind == PL_MASK_NONE;
}

/* The first query of a sequence that has a key left. Earlier queries have all keys masked and then,
 * by contract, attend to all keys equally. Happens only where the mask applies to every query. For
 * the whole block. */
static __device__ int first_seeing(const struct tiling *t, const uint8_t *key_mask)
{
    int first = t->n;
    if (!key_mask || !hides_from_all(t)) return 0;
    for (int k = (int)threadIdx.x; k < t->n; k += (int)blockDim.x)
        if (key_mask[k] && k < first) first = k;
    first = -cuda_block_max(-first);
    return t->mask.kind == PL_MASK_NONE && first < t->n ? 0 : first;
}

/* Whether the key exists and the sequence's key mask allows it. */
static __device__ int is_shown(const struct tiling *t, const uint8_t *key_mask, struct token k)
{
    if (k.position < 0) return 0;
    return !key_mask || (k.row >= 0 && !hides_from_all(t)) || key_mask[k.position];
}

/* Whether the query attends to the key, all masks combined. */
static __device__ int sees(const struct tiling *t, int first, struct token q, struct token k,
                           int shown)
{
    if (q.position < 0 || k.position < 0) return 0;
    if (q.position < first) return 1;
    if (!is_allowed(&t->mask, q, k)) return 0;
    return shown || (q.row < 0 && !hides_from_all(t));
}

/* One sequence's key mask. */
static __device__ const uint8_t *mask_of(const struct tiling *t, const uint8_t *key_mask, int b)
{
    return key_mask ? key_mask + (size_t)b * (size_t)(hides_from_all(t) ? t->n : t->mask.P) : NULL;
}

/* One head of one sequence, as the backward pass reads it. */
struct head {
    const float *q, *k, *v, *do_, *lse, *delta;
    const uint8_t *hidden;
    size_t stride, out_stride; /* of qkv; of do */
};

static __device__ struct head head_of(const float *qkv, const float *do_, const float *lse,
                                      const float *delta, const struct tiling *t, int H, int d,
                                      const uint8_t *key_mask)
{
    size_t b = blockIdx.y / (unsigned)H, h = blockIdx.y % (unsigned)H,
           vector = (size_t)H * (size_t)d;
    struct head r;
    r.stride = 3 * vector;
    r.out_stride = vector;
    r.q = qkv + b * (size_t)t->n * r.stride + h * (size_t)d;
    r.k = r.q + vector;
    r.v = r.k + vector;
    r.do_ = do_ + b * (size_t)t->n * vector + h * (size_t)d;
    r.lse = lse + blockIdx.y * (size_t)t->n;
    r.delta = delta + blockIdx.y * (size_t)t->n;
    r.hidden = mask_of(t, key_mask, (int)b);
    return r;
}

/* The tokens of a tile, computed once by 32 threads into a shared array of TOKEN_INTS. */
enum { TOKEN_INTS = 3 * TILE };

static __device__ void fill_tokens(cuda_shared<int> tokens, const struct tiling *t, int tile)
{
    int i = (int)threadIdx.x;
    if (i < TILE) {
        struct token p = token_at(t, tile, i);
        tokens[i] = p.position;
        tokens[TILE + i] = p.row;
        tokens[2 * TILE + i] = p.column;
    }
}

static __device__ struct token load_token(cuda_shared<int> tokens, int i)
{
    struct token p = { tokens[i], tokens[TILE + i], tokens[2 * TILE + i] };
    return p;
}

/* Loads channels c.. of a tile's vectors into shared memory (TILE, TILE_STRIDE), zeros outside.
 * `from` is the vector of position 0; vectors are `stride` floats apart. */
static __device__ void load_tile(cuda_shared<float> to, const float *from, size_t stride,
                                 cuda_shared<int> tokens, int c, int d)
{
    int x = (int)threadIdx.x % CHUNK, channel = c + x;
    for (int r = (int)threadIdx.x / CHUNK; r < TILE; r += ATTENTION_THREADS / CHUNK) {
        int p = tokens[r];
        to[r * TILE_STRIDE + x] = p >= 0 && channel < d ? from[(size_t)p * stride + (size_t)channel]
                                                        : 0.0f;
    }
}

/* Thread (y, x) of 16 x 8 owns rows y and y + 16 of a tile: scores of keys x + 8j, channels x + 8j.
 * s[a][j] += the dot product of rows of A and of B over `width` channels. */
static __device__ void multiply_rows(float s[2][4], cuda_shared<float> A, cuda_shared<float> B,
                                     int width)
{
    int y = (int)threadIdx.x / 8, x = (int)threadIdx.x % 8;
    for (int i = 0; i < width; i++) {
        float a0 = A[y * TILE_STRIDE + i], a1 = A[(y + 16) * TILE_STRIDE + i];
        for (int j = 0; j < 4; j++) {
            float b = B[(x + 8 * j) * TILE_STRIDE + i];
            s[0][j] = fmaf(a0, b, s[0][j]);
            s[1][j] = fmaf(a1, b, s[1][j]);
        }
    }
}

/* out[a][j] += sum over the 32 entries k of W(row, k) * V[k][channel]; with `transposed`, W(k,
 * row). */
static __device__ void multiply_weights(float out[2][8], cuda_shared<float> W, cuda_shared<float> V,
                                        int transposed)
{
    int y = (int)threadIdx.x / 8, x = (int)threadIdx.x % 8;
    for (int k = 0; k < TILE; k++) {
        float w0 = transposed ? W[k * WEIGHTS + y] : W[y * WEIGHTS + k];
        float w1 = transposed ? W[k * WEIGHTS + y + 16] : W[(y + 16) * WEIGHTS + k];
        for (int j = 0; j < 8; j++) {
            float v = V[k * TILE_STRIDE + x + 8 * j];
            out[0][j] = fmaf(w0, v, out[0][j]);
            out[1][j] = fmaf(w1, v, out[1][j]);
        }
    }
}

#endif
