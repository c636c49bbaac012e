/* winograd.c - Winograd convolution F(4 x 4, 3 x 3): sixteen outputs by 36 multiplications instead
 * of 144. A tile of 6 x 6 inputs and the 3 x 3 weights are polynomials. Both are evaluated at the
 * points 0, +-3/4, +-3/2 and infinity along rows and columns, multiplied there, and the outputs are
 * interpolated from the products. [Lavin and Gray 2016, "Fast algorithms for convolutional neural
 * networks"]
 *
 * Their points (0, +-1, +-2) have 4 times the rounding error of the plain sum; these have 1.9 times
 * at 128 channels (root mean square over random tiles), because no intermediate value grows much.
 * The error is relative to the tile's largest input, so a picture with one large value loses bits
 * in its neighbours: the tolerance in conv.h allows for that.
 *
 * A piece of work is TILES tiles by some shares of the outputs: by all of them, if there are enough
 * tiles for all threads. Its inputs are transformed to [point][input][tile] once, in groups of
 * INPUTS, and multiplied share by share with the transformed weights that all pieces use; a share's
 * products stay in L2. Pieces are independent of each other, and an output's sums are the same in
 * any. */
#include "winograd.h"
#include "fast.h"
#include "isa.h"

#include <omp.h>
#include <string.h>

#define POINTS 36
#define TILES 96          /* per piece, which reads all weights; a multiple of every panel */
#define INPUTS 256        /* input channels at a time: a panel of one point's is 32 KiB, for L1 */
#define OUTPUTS 64        /* output channels of a share, about: 880 KB of products */
#define PIECES 2          /* for each thread, at least, if the outputs have as many shares */
#define LINE (8 * TILES)  /* floats of a row of pixels: 4 per tile, and 4 more where a run ends */
#define LEAST_CHANNELS 16 /* fewer do not repay the transforms, and round worse than a plain sum */

/* The points, and 1 / product of (q - other points), the interpolation factors, folded into the
 * weights. */
#define POINT_A 0.75f
#define POINT_B 1.5f
#define AT_0 (1 / (POINT_A * POINT_A * POINT_B * POINT_B))
#define AT_A (1 / (2 * POINT_A * POINT_A * (POINT_A * POINT_A - POINT_B * POINT_B)))
#define AT_B (1 / (2 * POINT_B * POINT_B * (POINT_B * POINT_B - POINT_A * POINT_A)))

struct kernels {
    void (*weights)(float *to, size_t step, int rows, int ins, const float *w, size_t out_step,
                    size_t in_step, int transposed);
    void (*columns)(float *to, size_t line, const float *const *row, int n);
    void (*rows)(float *to, size_t step, size_t panel, const float *const *tile, int tiles,
                 int line);
    void (*multiply)(float *m, int m_step, const float *w, const float *v, size_t panel, int tiles,
                     int outs, int ins, int in0, int count, int add);
    void (*outputs)(float *to, const float *m, size_t step, float bias);
    int lanes, panel, tile; /* floats per register; tiles and outputs per block of accumulators */
};

#define SIMD_FILE "winograd_simd.inc"
#include "foreach_isa.inc"

static const struct kernels *const kernels[ISA_COUNT] = ISA_TABLE(kernels);

/* A convolution as seen from the tiles; the gradient to the input is one too. */
struct job {
    const struct kernels *k;
    int C, H, W, O, H_out, W_out, top, left;
    int across, down;     /* tiles per image */
    const float *weights; /* [point][output / tile][input][output % tile], points `point` apart */
    size_t point;
    const float *x, *b;
    float *y;
};

/* One thread's buffers. */
struct workspace {
    float products[POINTS * (OUTPUTS + 8) * TILES]; /* [point][output][tile] */
    float lines[6 * LINE], zeros[LINE], patch[4 * 4 * TILES];
    float tiles[]; /* of each group of inputs [panel][point][input][tile] */
};

/* Adjacent tiles of a piece. */
struct run {
    long image;
    int row, column; /* of the first tile's first pixel in x; may be outside */
    int tiles, at;   /* position in the rows */
};

static struct job job_of(const struct pl_conv *c, int transposed)
{
    struct job j = { .C = c->C,
                     .H = c->H,
                     .W = c->W,
                     .O = c->O,
                     .H_out = pl_conv_height(c),
                     .W_out = pl_conv_width(c),
                     .top = c->top,
                     .left = c->left };
    if (transposed)
        j = (struct job){ .C = c->O,
                          .H = j.H_out,
                          .W = j.W_out,
                          .O = c->C,
                          .H_out = c->H,
                          .W_out = c->W,
                          .top = 2 - c->top,
                          .left = 2 - c->left };
    j.k = kernels[isa_chosen()];
    j.across = (j.W_out + 3) / 4;
    j.down = (j.H_out + 3) / 4;
    return j;
}

int winograd_is_faster(const struct pl_conv *c, int transposed)
{
    struct job j = job_of(c, transposed);
    /* With more than 1 pixel of padding, a corner output would consist of its tile's rounding error
     * alone. */
    int least = transposed ? 1 : 0, most = transposed ? 2 : 1;
    if (c->K != 3 || c->stride != 1) return 0;
    if (c->top < least || c->left < least || c->bottom < least || c->right < least) return 0;
    if (c->top > most || c->left > most || c->bottom > most || c->right > most) return 0;
    if (j.C < LEAST_CHANNELS || j.O < LEAST_CHANNELS) return 0;
    return (long)j.H_out * j.W_out * 2 > 16L * j.across * j.down; /* tiles are at least half full */
}

/* Cuts tiles first..first+count-1 of all images into runs and computes each one's position in the
 * rows. Returns the number of runs. */
static int find_runs(struct run *run, const float **tile, const struct job *j, const float *lines,
                     long first, int count)
{
    int runs = 0, at = 0;
    for (int i = 0; i < count; runs++) {
        long row = (first + i) / j->across;
        int column = (int)((first + i) % j->across);
        struct run *r = &run[runs];
        *r = (struct run){ row / j->down, (int)(row % j->down) * 4 - j->top, column * 4 - j->left,
                           j->across - column < count - i ? j->across - column : count - i, at };
        for (int t = 0; t < r->tiles; t++) tile[i++] = lines + at + 4 * t;
        at += 4 * r->tiles + 4;
    }
    for (int i = count; i < TILES; i++) tile[i] = lines; /* computed, never stored */
    return runs;
}

/* Transforms one channel of a piece's tiles, to to_tiles. Rows hold zeros where a run is outside
 * the picture. */
static void transform(float *to_tiles, struct workspace *m, const struct job *j,
                      const struct run *run, int runs, const float *const *tile, int tiles,
                      int channel, int inputs)
{
    for (const struct run *r = run; r < run + runs; r++) {
        const float *plane = j->x + ((size_t)r->image * (size_t)j->C + (size_t)channel) *
                                        (size_t)j->H * (size_t)j->W,
                    *row[6];
        int from = r->column < 0 ? 0 : r->column, to = r->column + 4 * r->tiles + 2;
        if (to > j->W) to = j->W;
        for (int i = 0; i < 6; i++)
            row[i] = r->row + i < 0 || r->row + i >= j->H
                         ? m->zeros
                         : plane + (size_t)(r->row + i) * (size_t)j->W + from;
        if (to > from) j->k->columns(m->lines + r->at + from - r->column, LINE, row, to - from);
    }
    j->k->rows(to_tiles, (size_t)(inputs * j->k->panel), (size_t)(POINTS * inputs * j->k->panel),
               tile, tiles, LINE);
}

/* Stores one register of tiles of one output, cut off at the picture's edge. */
static void store_tile_rows(const struct job *j, const float *patch, long first, int count, int o)
{
    long row = first / j->across;
    int tile = (int)(first % j->across), lanes = j->k->lanes;
    for (int t = 0; t < count; t++, patch += 4) {
        int x = 4 * tile, y = (int)(row % j->down) * 4;
        float *to = j->y +
                    (((size_t)(row / j->down) * (size_t)j->O + (size_t)o) * (size_t)j->H_out +
                     (size_t)y) *
                        (size_t)j->W_out +
                    (size_t)x;
        int wide = j->W_out - x < 4 ? j->W_out - x : 4, high = j->H_out - y < 4 ? j->H_out - y : 4;
        if (wide == 4 && high == 4)
            for (int i = 0; i < 4; i++, to += j->W_out) memcpy(to, patch + 4 * i * lanes, 16);
        else
            for (int i = 0; i < high; i++, to += j->W_out)
                for (int q = 0; q < wide; q++) to[q] = patch[4 * i * lanes + q];
        if (++tile == j->across) {
            tile = 0;
            row++;
        }
    }
}

/* Inputs c0 to c0 + group_of_inputs() - 1 are transformed and multiplied together. */
static int group_of_inputs(const struct job *j, int c0)
{
    return j->C - c0 < INPUTS ? j->C - c0 : INPUTS;
}

static void transform_piece(struct workspace *m, const struct job *j, long first, int tiles,
                            int whole)
{
    struct run run[TILES];
    const float *tile[TILES];
    int runs = find_runs(run, tile, j, m->lines, first, tiles), panel = j->k->panel;
    memset(m->lines, 0, sizeof m->lines);
    for (int c = 0; c < j->C; c++) {
        int place = c % INPUTS;
        transform(m->tiles + (size_t)(c - place) * POINTS * TILES + (size_t)(place * panel), m, j,
                  run, runs, tile, whole, c, group_of_inputs(j, c - place));
    }
}

static void multiply_share(struct workspace *m, const struct job *j, long first, int tiles,
                           int whole, int o0, int outs)
{
    int panel = j->k->panel;
    size_t step = (size_t)(outs * TILES);
    for (int c0 = 0; c0 < j->C; c0 += INPUTS) {
        int inputs = group_of_inputs(j, c0);
        for (int f = 0; f < POINTS; f++)
            j->k->multiply(m->products + (size_t)f * step, TILES,
                           j->weights + (size_t)f * j->point + (size_t)o0 * (size_t)j->C,
                           m->tiles + (size_t)c0 * POINTS * TILES + (size_t)(f * inputs * panel),
                           (size_t)(POINTS * inputs * panel), whole, outs, j->C, c0, inputs,
                           c0 > 0);
    }
    for (int o = 0; o < outs; o++)
        for (int t = 0; t < tiles; t += j->k->lanes) {
            int count = tiles - t < j->k->lanes ? tiles - t : j->k->lanes;
            j->k->outputs(m->patch, m->products + o * TILES + t, step, j->b ? j->b[o0 + o] : 0);
            store_tile_rows(j, m->patch, first + t, count, o0 + o);
        }
}

int winograd(float *y, const float *x, const float *w, const float *b, const struct pl_conv *c,
             int transposed)
{
    struct job j = job_of(c, transposed);
    long tiles = (long)c->B * j.across * j.down, strips = (tiles + TILES - 1) / TILES;
    int shares = fast_chunk_count(j.O, OUTPUTS), threads = fast_threads();
    long wanted = threads > 1 ? (PIECES * threads + strips - 1) / strips : 1;
    int parts = wanted < shares ? (int)wanted : shares; /* of a strip's shares */
    /* An odd number of cache lines: 36 points a multiple of 4 KiB apart share one set of L1. */
    size_t point = ((size_t)j.O * (size_t)j.C + 15) / 16 * 16 | 16;
    size_t weights = (size_t)POINTS * point;
    size_t own = sizeof(struct workspace) / 4 + (size_t)j.C * POINTS * TILES;
    size_t out_step = (size_t)(transposed ? 9 : 9 * c->C),
           in_step = (size_t)(transposed ? 9 * c->C : 9);
    float *memory = fast_scratch_alloc((size_t)threads * own + weights);
    float *packed;
    if (!memory) return PL_ENOMEM;
    packed = memory + (size_t)threads * own;
    j.x = x;
    j.y = y;
    j.b = b;
    j.weights = packed;
    j.point = point;
#pragma omp parallel num_threads(threads)
    {
        struct workspace *m = (void *)(memory + (size_t)omp_get_thread_num() * own);
        memset(m->zeros, 0, sizeof m->zeros);
#pragma omp for schedule(static)
        for (int o = 0; o < j.O; o += j.k->tile) {
            int rows = j.O - o < j.k->tile ? j.O - o : j.k->tile;
            j.k->weights(packed + (size_t)o * (size_t)j.C, point, rows, j.C,
                         w + (size_t)o * out_step, out_step, in_step, transposed);
        }
#pragma omp for schedule(dynamic)
        for (long piece = 0; piece < strips * parts; piece++) {
            long first = piece / parts * TILES;
            int part = (int)(piece % parts), panel = j.k->panel;
            int count = (int)(tiles - first < TILES ? tiles - first : TILES);
            int whole = (count + panel - 1) / panel * panel;
            transform_piece(m, &j, first, count, whole);
            for (int s = part * shares / parts; s < (part + 1) * shares / parts; s++) {
                struct fast_range p = fast_chunk(j.O, OUTPUTS, j.k->tile, s);
                if (p.count) multiply_share(m, &j, first, count, whole, p.start, p.count);
            }
        }
    }
    fast_scratch_free(memory);
    return PL_OK;
}
