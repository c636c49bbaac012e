/* attention_bf16.cuh - attention on tensor cores, with operands rounded to bfloat16: what its
 * forward and backward pass share. [Dao 2023: a warp owns its rows, scores stay in registers]
 *
 * A thread block keeps one or two tiles of 64 tokens, its rows, sixteen per warp, and processes one
 * tile after another as columns: queries and keys, or keys and queries. Of a score matrix each lane
 * holds the 32 elements that tensor_core.cuh names: rows g and g+8 of its warp, and two of each
 * eight columns. Columns come in groups of 16; groups that no row of a warp attends to are
 * skipped. */
#ifndef PL_CUDA_ATTENTION_BF16_CUH
#define PL_CUDA_ATTENTION_BF16_CUH

#include "attention.cuh"
#include "tensor_core.cuh"

enum {
    SIDE = 64, /* tokens per tile, and the largest head */
    GROUPS = SIDE / 16,
    ROW_WORDS = SIDE / 2 + 4,     /* eight rows that are read together are in different banks */
    TILE_THREADS = SIDE / 16 * 32 /* per tile of rows */
};
#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f

/* Heads that these kernels support; others are computed in float32. */
static inline int fits_matrix_units(int d) { return d <= SIDE; }

/* Whether vectors can be read and written two channels at a time. */
static inline int in_pairs(int d, const void *a, const void *b)
{
    return d % 2 == 0 && (uintptr_t)a % 8 == 0 && (uintptr_t)b % 8 == 0;
}
struct alignas(8) channels {
    float low, high;
};

static __device__ __forceinline__ int lane_of(void) { return (int)threadIdx.x % 32; }
static __device__ __forceinline__ int warp_of(void) { return (int)threadIdx.x / 32; }

/* Computes the tokens of this many tiles, from `tile` on, into a shared array of 4 * SIDE ints
 * each. `free`: the token exists and is not a masked key. `hidden` is NULL for queries. */
template <int tiles>
static __device__ void fill_tokens(cuda_shared<int> tokens, const struct tiling *t, int tile,
                                   const uint8_t *hidden)
{
    int i = (int)threadIdx.x;
    if (i < tiles * SIDE) {
        struct token p = { -1, -1, 0 };
        if (tile + i / SIDE < t->tiles) p = token_at(t, tile + i / SIDE, i % SIDE);
        tokens[i] = p.position;
        tokens[tiles * SIDE + i] = p.row;
        tokens[2 * tiles * SIDE + i] = p.column;
        tokens[3 * tiles * SIDE + i] = is_shown(t, hidden, p);
    }
}
template <int tiles> static __device__ struct token load_token(cuda_shared<int> tokens, int i)
{
    struct token p = { tokens[i], tokens[tiles * SIDE + i], tokens[2 * tiles * SIDE + i] };
    return p;
}
template <int tiles> static __device__ int is_free(cuda_shared<int> tokens, int i)
{
    return tokens[3 * tiles * SIDE + i];
}

/* Whether a query of tile tq may attend to a key of tile tk; queries before `first` attend to
 * all. */
static __device__ int tile_attends(const struct tiling *t, int tq, int tk, int first)
{
    return tq * SIDE < first || tiles_may_attend(t, tq, tk);
}

/* The same for the block's tiles of rows, from `row` on, and a tile of columns. */
template <int tiles, int rows_are_keys>
static __device__ int block_attends(const struct tiling *t, int row, int column, int first)
{
    for (int i = 0; i < tiles && row + i < t->tiles; i++)
        if (rows_are_keys ? tile_attends(t, column, row + i, first)
                          : tile_attends(t, row + i, column, first))
            return 1;
    return 0;
}

/* Whether all of the warp's rows are free. */
template <int tiles> static __device__ int rows_are_free(cuda_shared<int> rows)
{
    return __all_sync(0xffffffffu, is_free<tiles>(rows, warp_of() * 16 + lane_of() % 16));
}

/* Which of the warp's rows attend to which columns: bit 4 j + 2 a + i for row g + 8 a and column 8
 * j + 2 (lane % 4) + i. In most tiles every key precedes every query: then the bits follow from
 * what is free; otherwise each pair is checked. `row` is the first tile of the block's rows,
 * `column` that of the columns. */
template <int tiles, int rows_are_keys>
static __device__ uint32_t attended_pairs(const struct tiling *t, cuda_shared<int> rows, int row,
                                          int all_free, cuda_shared<int> columns, int column,
                                          int first)
{
    int lane = lane_of(), start = warp_of() * 16;
    int mine = row + start / SIDE, tq = rows_are_keys ? column : mine,
        tk = rows_are_keys ? mine : column;
    /* the first query, if it is text, */
    int query = tq * SIDE + (rows_are_keys ? 0 : start % SIDE);
    int key = tk * SIDE + (rows_are_keys ? start % SIDE + 15 : SIDE - 1); /* and the last key */
    int ordered = t->mask.kind == PL_MASK_NONE ||
                  (tk < t->text_tiles && (tq >= t->text_tiles || key <= query));
    uint32_t bits = 0;
    if (mine >= t->tiles || !tile_attends(t, tq, tk, first)) return 0;
    if (ordered && all_free &&
        __all_sync(0xffffffffu, is_free<1>(columns, lane) && is_free<1>(columns, lane + 32)))
        return 0xffffffffu;
    /* text may attend to text keys that are masked for the image only */
    if (ordered && !first && (tq >= t->text_tiles || hides_from_all(t))) {
        uint32_t of_rows = (is_free<tiles>(rows, start + lane / 4) ? 0x33333333u : 0) |
                           (is_free<tiles>(rows, start + lane / 4 + 8) ? 0xccccccccu : 0);
        PL_ROLLED
        for (int j = 0; j < SIDE / 8; j++)
            for (int i = 0; i < 2; i++)
                if (is_free<1>(columns, 8 * j + lane % 4 * 2 + i)) bits |= 5u << (4 * j + i);
        return bits & of_rows;
    }
    PL_UNROLL
    for (int a = 0; a < 2; a++) {
        int r = start + lane / 4 + 8 * a, free = is_free<tiles>(rows, r);
        struct token mine_at = load_token<tiles>(rows, r);
        PL_ROLLED
        for (int j = 0; j < SIDE / 8; j++)
            for (int i = 0; i < 2; i++) {
                int c = 8 * j + lane % 4 * 2 + i;
                struct token at = load_token<1>(columns, c);
                int attends = rows_are_keys ? sees(t, first, at, mine_at, free)
                                            : sees(t, first, mine_at, at, is_free<1>(columns, c));
                bits |= (uint32_t)(attends != 0) << (4 * j + 2 * a + i);
            }
    }
    return bits;
}

/* A bit for each group of columns that some row of the warp attends to. */
static __device__ __forceinline__ int attended_groups(uint32_t bits)
{
    int groups = 0;
    PL_UNROLL
    for (int g = 0; g < GROUPS; g++)
        groups |= (__any_sync(0xffffffffu, (int)(bits >> (8 * g) & 255)) != 0) << g;
    return groups;
}

/* Loads vectors of 64 tokens, from `at` on, into shared memory, rounded, in steps of 16 channels;
 * zeros outside and for positions before `least`. */
template <int threads>
static __device__ __forceinline__ void load_rounded(cuda_shared<uint32_t> to, const float *from,
                                                    size_t stride, cuda_shared<int> tokens, int at,
                                                    int least, int d, int pairs)
{
    int word = lane_of(), c = 2 * word, row = warp_of();
    for (int start = row; start < SIDE; start += threads / 4) {
        struct channels v[8]; /* all loads are issued before the first is used */
        PL_UNROLL
        for (int i = 0; i < 8; i++) {
            int p = tokens[at + start + threads / 32 * i];
            const float *x = from + (size_t)(p < 0 ? 0 : p) * stride + c;
            v[i].low = v[i].high = 0;
            if (p >= least && p >= 0 && c < d) {
                if (pairs) v[i] = *PL_WIDE(const struct channels, x);
                else {
                    v[i].low = x[0];
                    if (c + 1 < d) v[i].high = x[1];
                }
            }
        }
        if (word < (d + 15) / 16 * 8) PL_UNROLL
        for (int i = 0; i < 8; i++)
            to[(start + threads / 32 * i) * ROW_WORDS + word] = cuda_word(v[i].low, v[i].high);
    }
}

/* Loads the warp's rows of a tile as the left operand. */
static __device__ __forceinline__ void take_rows(uint32_t f[GROUPS][4], cuda_shared<uint32_t> from,
                                                 int steps)
{
    int lane = lane_of();
    int at = (warp_of() % GROUPS * 16 + lane % 16) * ROW_WORDS + lane / 16 * 4;
    PL_UNROLL
    for (int k = 0; k < GROUPS; k++)
        if (k < steps) cuda_load_matrices<0>(f[k], from, at + 8 * k);
}

/* s += the warp's rows times the vectors of a group of columns. */
static __device__ __forceinline__ void multiply_group(float s[2][4], const uint32_t f[GROUPS][4],
                                                      cuda_shared<uint32_t> columns, int group,
                                                      int steps)
{
    int lane = lane_of();
    int at = (16 * group + lane % 8 + lane / 16 * 8) * ROW_WORDS + lane / 8 % 2 * 4;
    PL_UNROLL
    for (int k = 0; k < GROUPS; k++)
        if (k < steps) {
            uint32_t b[4];
            cuda_load_matrices<0>(b, columns, at + 8 * k);
            cuda_multiply(s[0], f[k], b[0], b[1]);
            cuda_multiply(s[1], f[k], b[2], b[3]);
        }
}

/* out += s, rounded, times the vectors of a group of columns. */
static __device__ __forceinline__ void add_group(float out[SIDE / 8][4], const float s[2][4],
                                                 cuda_shared<uint32_t> columns, int group,
                                                 int steps)
{
    int lane = lane_of(), at = (16 * group + lane % 16) * ROW_WORDS + lane / 16 * 4;
    uint32_t a[4] = { cuda_word(s[0][0], s[0][1]), cuda_word(s[0][2], s[0][3]),
                      cuda_word(s[1][0], s[1][1]), cuda_word(s[1][2], s[1][3]) };
    PL_UNROLL
    for (int c = 0; c < GROUPS; c++)
        if (c < steps) {
            uint32_t b[4];
            cuda_load_matrices<1>(b, columns, at + 8 * c);
            cuda_multiply(out[2 * c], a, b[0], b[1]);
            cuda_multiply(out[2 * c + 1], a, b[2], b[3]);
        }
}

/* Stores a row's vector (elements 2 a and 2 a + 1 of the lane) times a factor; `to` is the address
 * of position 0. to16: the same in bfloat16, or NULL. */
static __device__ __forceinline__ void store_row(float *to, uint16_t *to16, size_t stride,
                                                 int position, const float out[SIDE / 8][4], int a,
                                                 float factor, int d, int pairs)
{
    size_t at = (size_t)position * stride;
    if (position < 0) return;
    PL_UNROLL
    for (int j = 0; j < SIDE / 8; j++) {
        int c = 8 * j + lane_of() % 4 * 2;
        float *y = to + at + c;
        struct channels v = { out[j][2 * a] * factor, out[j][2 * a + 1] * factor };
        if (c >= d) continue;
        if (pairs) *PL_WIDE(struct channels, y) = v;
        else {
            y[0] = v.low;
            if (c + 1 < d) y[1] = v.high;
        }
        if (to16) {
            uint32_t word = cuda_word(v.low, v.high);
            if (pairs) *PL_WIDE(uint32_t, to16 + at + c) = word;
            else {
                to16[at + c] = (uint16_t)word;
                if (c + 1 < d) to16[at + c + 1] = (uint16_t)(word >> 16);
            }
        }
    }
}

#endif
