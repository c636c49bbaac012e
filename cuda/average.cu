/* average.cu - the reducer of an all-reduce: messages are decoded where they are added.
 * Multiplications and additions are not fused, so the bits equal every other backend's. */
#include "../ref/reduce.h"

#include "float16.cuh"
#include "streams.cuh"
#include "quant.cuh"

/* Value i of a message; an 8-bit message's table is in shared memory. */
static __device__ float value_of(const void *x, enum pl_compression method,
                                 cuda_shared<float> table, size_t i)
{
    return method == PL_COMPRESS_UNIFORM8  ? (float)table[((const uint8_t *)x)[i]]
           : method == PL_COMPRESS_FLOAT16 ? float_of_half(((const uint16_t *)x)[i])
                                           : ((const float *)x)[i];
}

__global__ void add_message(float *sum, const void *x, enum pl_compression method, float weight,
                            size_t n, struct cuda_book from)
{
    PL_SHARED(float, table, PL_CODES);
    load_book(table, &from);
    __syncthreads();
    CUDA_EACH (i, n) sum[i] = sum[i] + weight * value_of(x, method, table, i);
}

__global__ void mean_minus(float *delta, const float *sum, float weight, const void *x,
                           enum pl_compression method, size_t n, struct cuda_book from)
{
    PL_SHARED(float, table, PL_CODES);
    load_book(table, &from);
    __syncthreads();
    CUDA_EACH (i, n) {
        float v = value_of(x, method, table, i);
        delta[i] = weight != 0 ? sum[i] / weight - v : 0;
    }
}

static size_t size_of(const struct pl_coded *x)
{
    return x->method == PL_COMPRESS_UNIFORM8 ? 1 : x->method == PL_COMPRESS_FLOAT16 ? 2 : 4;
}

/* Zeros for a message without a table. */
static struct cuda_book book_of(const struct pl_coded *x)
{
    struct cuda_book b = {};
    for (int i = 0; x->method == PL_COMPRESS_UNIFORM8 && i < PL_CODES; i++) b.at[i] = x->table[i];
    return b;
}

int cuda_average_add(float *sum, const struct pl_coded *x, float weight, size_t n)
{
    struct cuda_operand o[CUDA_OPERANDS] = { { sum, sizeof *sum, CUDA_IN | CUDA_OUT },
                                             { x->data, size_of(x), CUDA_IN } };
    struct cuda_book from = book_of(x);
    return cuda_run_pipelined(o, n, [&](char *const *at, size_t some) {
        return PL_LAUNCH(add_message, cuda_blocks(some), CUDA_THREADS, (float *)at[0],
                         (const void *)at[1], x->method, weight, some, from);
    });
}

int cuda_average_delta(float *delta, const float *sum, float weight, const struct pl_coded *x,
                       size_t n)
{
    struct cuda_operand o[CUDA_OPERANDS] = { { delta, sizeof *delta, CUDA_OUT },
                                             { sum, sizeof *sum, CUDA_IN },
                                             { x->data, size_of(x), CUDA_IN } };
    struct cuda_book from = book_of(x);
    return cuda_run_pipelined(o, n, [&](char *const *at, size_t some) {
        return PL_LAUNCH(mean_minus, cuda_blocks(some), CUDA_THREADS, (float *)at[0],
                         (const float *)at[1], weight, (const void *)at[2], x->method, some, from);
    });
}
