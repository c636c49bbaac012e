/* quant.cuh - code books and their search on the device, for quant.cu and the optimizers. The rules
 * stand in ref/quant.h; every operation here is the reference's, so codes are equal bit for bit. */
#ifndef PL_CUDA_QUANT_CUH
#define PL_CUDA_QUANT_CUH

#include "../ref/quant.h"

#include "launch.cuh"

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

static __device__ uint8_t code_run(cuda_shared<float> book, float z)
{
    int i = 0;
    for (int half = PL_CODES / 2; half; half /= 2)
        if (book[i + half] <= z) i += half;
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

#endif
