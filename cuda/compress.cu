/* compress.cu - float16 conversion and 8-bit table lookup, at the speed of the bus. uniform8.cu has
 * the 8-bit encoder. */
#include "../ref/compress.h"

#include "float16.cuh"
#include "streams.cuh"
#include "quant.cuh"

#define HALF_MAX 65504.0f

__global__ void halve(uint16_t *out, const float *x, size_t n)
{
    CUDA_EACH (i, n) {
        float v = x[i];
        v = v < -HALF_MAX ? -HALF_MAX : v > HALF_MAX ? HALF_MAX : v; /* NaN stays NaN */
        out[i] = half_of_float(v);
    }
}

int cuda_float16_encode(void *out, const float *x, size_t n)
{
    struct cuda_operand o[CUDA_OPERANDS] = { { out, 2, CUDA_OUT }, { x, sizeof *x, CUDA_IN } };
    return cuda_run_pipelined(o, n, [](char *const *at, size_t some) {
        return PL_LAUNCH(halve, cuda_blocks(some), CUDA_THREADS, (uint16_t *)at[0],
                         (const float *)at[1], some);
    });
}

__global__ void widen(float *x, const uint16_t *in, size_t n)
{
    CUDA_EACH (i, n) x[i] = float_of_half(in[i]);
}

int cuda_float16_decode(float *x, const void *in, size_t n)
{
    struct cuda_operand o[CUDA_OPERANDS] = { { x, sizeof *x, CUDA_OUT }, { in, 2, CUDA_IN } };
    return cuda_run_pipelined(o, n, [](char *const *at, size_t some) {
        return PL_LAUNCH(widen, cuda_blocks(some), CUDA_THREADS, (float *)at[0],
                         (const uint16_t *)at[1], some);
    });
}

__global__ void look_up(float *x, const uint8_t *codes, size_t n, struct cuda_book from)
{
    PL_SHARED(float, table, PL_CODES);
    load_book(table, &from);
    __syncthreads();
    CUDA_EACH (i, n) x[i] = table[codes[i]];
}

int cuda_table8_decode(float *x, const uint8_t *codes, const float table[PL_CODES], size_t n)
{
    struct cuda_operand o[CUDA_OPERANDS] = { { x, sizeof *x, CUDA_OUT }, { codes, 1, CUDA_IN } };
    struct cuda_book from;
    for (int i = 0; i < PL_CODES; i++) from.at[i] = table[i];
    return cuda_run_pipelined(o, n, [&](char *const *at, size_t some) {
        return PL_LAUNCH(look_up, cuda_blocks(some), CUDA_THREADS, (float *)at[0],
                         (const uint8_t *)at[1], some, from);
    });
}
