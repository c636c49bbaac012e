/* quant.cu - 8-bit block quantization: a block of threads takes a block of values, finds the
 * largest magnitude, then each value's code: by table for the reference run's rule, by search for
 * the others. */
#include "quant.cuh"

/* The largest magnitude of values begin..end-1, for all threads; each thread keeps its first values
 * in `held`. */
template <int WIDTH>
static __device__ float hold_values(cuda_vector<float, WIDTH> held[CUDA_HELD / WIDTH],
                                    const float *x, size_t begin, size_t end)
{
    float largest = -FLT_MAX;
    cuda_each_value<WIDTH>(begin, end, [&](int j, size_t i, size_t left) {
        auto v = cuda_load_some<WIDTH>(x + i, left);
        if (j >= 0) held[j] = v;
        PL_UNROLL
        for (int k = 0; k < WIDTH; k++)
            if (fabsf(v.at[k]) > largest) largest = fabsf(v.at[k]);
    });
    return cuda_block_max(largest);
}

/* Stores code(v) of each value. */
template <int WIDTH, class F>
static __device__ void store_codes(uint8_t *codes, const cuda_vector<float, WIDTH> *held,
                                   const float *x, size_t begin, size_t end, F code)
{
    cuda_each_value<WIDTH>(begin, end, [&](int j, size_t i, size_t left) {
        auto v = j >= 0 ? held[j] : cuda_load_some<WIDTH>(x + i, left);
        cuda_vector<uint8_t, WIDTH> c;
        PL_UNROLL
        for (int k = 0; k < WIDTH; k++) c.at[k] = code(v.at[k]);
        cuda_store_some(codes + i, c, left);
    });
}

template <int WIDTH>
__global__ void encode_run(uint8_t *codes, float *absmax, const float *x, size_t n, size_t block,
                           size_t blocks, struct cuda_step_table steps)
{
    PL_SHARED(uint32_t, entries, STEP_TABLE_ROWS);
    load_step_table(entries, &steps); /* visible to all threads before the first maximum is */
    for (size_t b = blockIdx.x; b < blocks; b += gridDim.x) {
        size_t begin = b * block, end = n - begin > block ? begin + block : n;
        cuda_vector<float, WIDTH> held[CUDA_HELD / WIDTH];
        float largest = hold_values<WIDTH>(held, x, begin, end);
        struct cuda_quotient by = quotient_by(largest);
        if (threadIdx.x == 0) absmax[b] = largest;
        store_codes<WIDTH>(codes, held, x, begin, end,
                           [&](float v) { return code_run(entries, &steps, quotient_of(v, by)); });
    }
}

template <int WIDTH>
__global__ void encode_searched(uint8_t *codes, float *absmax, const float *x, size_t n,
                                size_t block, size_t blocks, struct cuda_book from,
                                enum pl_rule rule)
{
    PL_SHARED(float, book, PL_CODES);
    load_book(book, &from); /* as above */
    for (size_t b = blockIdx.x; b < blocks; b += gridDim.x) {
        size_t begin = b * block, end = n - begin > block ? begin + block : n;
        cuda_vector<float, WIDTH> held[CUDA_HELD / WIDTH];
        float largest = hold_values<WIDTH>(held, x, begin, end), scale = 1 / largest;
        if (threadIdx.x == 0) absmax[b] = largest;
        store_codes<WIDTH>(codes, held, x, begin, end,
                           [&](float v) { return code_searched(book, v, scale, rule); });
    }
}

int cuda_quantize(uint8_t *codes, float *absmax, const float *x, size_t n, size_t block,
                  enum pl_map map, enum pl_rule rule)
{
    size_t blocks = pl_blocks(n, block);
    int vectorized = block % CUDA_VECTOR_WIDTH == 0 && cuda_is_vectorizable(codes) &&
                     cuda_is_vectorizable(x),
        rc;
    struct cuda_step_table steps;
    if (!n) return PL_OK;
    if (rule != PL_RULE_RUN)
        return CUDA_LAUNCH_VECTORIZED(vectorized, encode_searched, cuda_value_grid(blocks),
                                      cuda_value_threads(block), codes, absmax, x, n, block, blocks,
                                      cuda_book_of(map, rule), rule);
    if ((rc = cuda_step_table_get(&steps, map)) != PL_OK) return rc;
    return CUDA_LAUNCH_VECTORIZED(vectorized, encode_run, cuda_value_grid(blocks),
                                  cuda_value_threads(block), codes, absmax, x, n, block, blocks,
                                  steps);
}

template <int WIDTH>
__global__ void decode(float *y, const uint8_t *codes, const float *absmax, size_t n, size_t block,
                       size_t blocks, struct cuda_book from)
{
    PL_SHARED(float, book, PL_CODES);
    load_book(book, &from);
    __syncthreads();
    for (size_t b = blockIdx.x; b < blocks; b += gridDim.x) {
        size_t begin = b * block, end = n - begin > block ? begin + block : n;
        float scale = absmax[b];
        cuda_each_value<WIDTH>(begin, end, [&](int, size_t i, size_t left) {
            auto c = cuda_load_some<WIDTH>(codes + i, left);
            cuda_vector<float, WIDTH> v;
            PL_UNROLL
            for (int k = 0; k < WIDTH; k++) v.at[k] = book[c.at[k]] * scale;
            cuda_store_some(y + i, v, left);
        });
    }
}

int cuda_dequantize(float *y, const uint8_t *codes, const float *absmax, size_t n, size_t block,
                    const float book[PL_CODES])
{
    size_t blocks = pl_blocks(n, block);
    struct cuda_book b;
    if (!n) return PL_OK;
    for (int i = 0; i < PL_CODES; i++) b.at[i] = book[i];
    return CUDA_LAUNCH_VECTORIZED(block % CUDA_VECTOR_WIDTH == 0 && cuda_is_vectorizable(codes) &&
                                      cuda_is_vectorizable(y),
                                  decode, cuda_value_grid(blocks), cuda_value_threads(block), y,
                                  codes, absmax, n, block, blocks, b);
}
