/* quant.cuh - code books and their search on the device, for quant.cu and the optimizers. The rules
 * stand in ref/quant.h; every operation here is the reference's, so codes are equal bit for bit. */
#ifndef PL_CUDA_QUANT_CUH
#define PL_CUDA_QUANT_CUH

#include "../ref/quant.h"

#include "packs.cuh"

#include <float.h>

/* Travels as a kernel's argument, which is constant memory, and from there into shared memory,
 * where threads that look into different entries don't wait for each other as much. */
struct cuda_book {
    float at[PL_CODES];
};

static inline struct cuda_book cuda_book_of(enum pl_map map, enum pl_rule rule)
{
    struct cuda_book b;
    pl_codebook(b.at, map, rule);
    return b;
}

static __device__ void load_book(cuda_shared<float> to, const struct cuda_book *book)
{
    for (int i = (int)threadIdx.x; i < PL_CODES; i += (int)blockDim.x) to[i] = book->at[i];
}

/* A book to search: behind its values the tree of halving, level by level, node 2k and 2k + 1 below
 * node k. Threads at a level's first five are at neighbours there, which lie in different banks of
 * shared memory; in the book itself they are at multiples of a power of two, which lie in few. */
enum { SEARCHED = 2 * PL_CODES };

static __device__ void load_searched(cuda_shared<float> to, const struct cuda_book *book)
{
    load_book(to, book);
    for (int i = 1 + (int)threadIdx.x; i < PL_CODES; i += (int)blockDim.x) {
        int level = 0;
        while (i >> (level + 1)) level++;
        to[PL_CODES + i] = book->at[(2 * (i - (1 << level)) + 1) * (PL_CODES / 2 >> level)];
    }
}

static __device__ uint8_t code_run(cuda_shared<float> book, float z)
{
    int i = 1;
    for (int level = 0; level < 8; level++) i = 2 * i + (book[PL_CODES + i] <= z);
    i -= PL_CODES;
    if (i < PL_CODES - 1 && fabsf(z - book[i + 1]) < fabsf(z - book[i])) i++;
    return (uint8_t)i;
}

static __device__ uint8_t code_lut(cuda_shared<float> book, float v)
{
    float h, at, grid;
    int i = 0;
    if (!(fabsf(v) <= FLT_MAX)) return 0;
    h = (fminf(fmaxf(v, -1), 1) + 1) * 0.5f;
    at = floorf((float)((double)h * 65535.0 + 0.5));
    grid = -1 + 2 * at / 65535;
    for (int half = PL_CODES / 2; half; half /= 2)
        if (0.5f * (book[i + half - 1] + book[i + half]) < grid) i += half;
    return (uint8_t)i;
}

static __device__ uint8_t code_cuda(cuda_shared<float> book, float v)
{
    int i = 127, lower = 0, upper = 255;
    for (int half = 64; half; half /= 2) {
        if (v > book[i]) lower = i, i += half;
        else upper = i, i -= half;
    }
    if (v > book[i]) return (uint8_t)(v > (book[upper] + book[i]) * 0.5f ? upper : i);
    return (uint8_t)(v < (book[lower] + book[i]) * 0.5f ? lower : i);
}

/* The code of x in a block whose largest is this; scale is 1 / largest. */
static __device__ uint8_t code_of(cuda_shared<float> book, float x, float largest, float scale,
                                  enum pl_rule rule)
{
    return rule == PL_RULE_RUN ? code_run(book, x / largest)
         : rule == PL_RULE_LUT ? code_lut(book, x * scale)
                               : code_cuda(book, x * scale);
}

/* ---- blocks of values: a block of threads takes one after the other ---- */

static inline unsigned cuda_value_threads(size_t block)
{
    return block >= 1024 ? CUDA_THREADS : block >= 128 ? 64 : 32;
}
/* So few blocks of threads that a book is not loaded for each of values'. */
static inline unsigned cuda_value_grid(size_t blocks)
{
    const size_t most = (CUDA_BLOCKS_MOST + 3) / 4;
    return (unsigned)(blocks < most ? blocks : most);
}

#define CUDA_HELD 16 /* values of a block that a thread keeps in registers */

/* f(j, i, left) for this thread's packs of values begin..end-1: the j-th begins at i, and `left`
 * values are there. Of the first CUDA_HELD values j is a constant; -1: of the others. */
template <int WIDTH, class F>
static __device__ void cuda_each_value(size_t begin, size_t end, F f)
{
    size_t i = begin + threadIdx.x * (size_t)WIDTH, step = blockDim.x * (size_t)WIDTH;
    PL_UNROLL for (int j = 0; j < CUDA_HELD / WIDTH; j++, i += step)
        if (i < end) f(j, i, end - i);
    for (; i < end; i += step) f(-1, i, end - i);
}

template <int WIDTH, class T>
static __device__ cuda_pack<T, WIDTH> cuda_load_some(const T *from, size_t left)
{
    cuda_pack<T, WIDTH> p = {};
    if (left >= WIDTH) return cuda_load<WIDTH>(from);
    for (int k = 0; k < WIDTH; k++)
        if ((size_t)k < left) p.at[k] = from[k];
    return p;
}
template <int WIDTH, class T>
static __device__ void cuda_store_some(T *to, cuda_pack<T, WIDTH> p, size_t left)
{
    if (left >= WIDTH) cuda_store(to, p);
    else
        for (int k = 0; k < WIDTH; k++)
            if ((size_t)k < left) to[k] = p.at[k];
}

#endif
