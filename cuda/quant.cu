/* quant.cu - a block of threads takes a block of values: its largest, then each value's code. */
#include "quant.cuh"

/* Threads for blocks of so many values. */
static unsigned threads_for(size_t block)
{
    return block >= 1024 ? CUDA_THREADS : block >= 128 ? 64 : 32;
}

__global__ void encode(uint8_t *codes, float *absmax, const float *x, size_t n, size_t block,
                       struct cuda_book from, enum pl_rule rule)
{
    PL_SHARED(float, book, PL_CODES);
    size_t begin = blockIdx.x * block, end = n - begin > block ? begin + block : n;
    float largest = -FLT_MAX, scale;
    load_book(book, &from);
    for (size_t i = begin + threadIdx.x; i < end; i += blockDim.x)
        if (fabsf(x[i]) > largest) largest = fabsf(x[i]);
    largest = cuda_block_max(largest);
    if (threadIdx.x == 0) absmax[blockIdx.x] = largest;
    scale = 1 / largest;
    for (size_t i = begin + threadIdx.x; i < end; i += blockDim.x)
        codes[i] = code_of(book, x[i], largest, scale, rule);
}

int cuda_quantize(uint8_t *codes, float *absmax, const float *x, size_t n, size_t block,
                  enum pl_map map, enum pl_rule rule)
{
    if (!n) return PL_OK;
    return PL_LAUNCH(encode, (unsigned)pl_blocks(n, block), threads_for(block), codes, absmax, x, n,
                     block, cuda_book_of(map, rule), rule);
}

__global__ void decode(float *y, const uint8_t *codes, const float *absmax, size_t n, size_t block,
                       struct cuda_book from)
{
    PL_SHARED(float, book, PL_CODES);
    load_book(book, &from);
    __syncthreads();
    CUDA_EACH(i, n) y[i] = book[codes[i]] * absmax[i / block];
}

int cuda_dequantize(float *y, const uint8_t *codes, const float *absmax, size_t n, size_t block,
                    const float book[PL_CODES])
{
    struct cuda_book b;
    if (!n) return PL_OK;
    for (int i = 0; i < PL_CODES; i++) b.at[i] = book[i];
    return PL_LAUNCH(decode, cuda_blocks(n), CUDA_THREADS, y, codes, absmax, n, block, b);
}
