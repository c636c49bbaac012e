/* quant.cu - a block of threads takes a block of values: its largest, then each value's code. */
#include "quant.cuh"

template <int WIDTH>
__global__ void encode(uint8_t *codes, float *absmax, const float *x, size_t n, size_t block,
                       size_t blocks, struct cuda_book from, enum pl_rule rule)
{
    PL_SHARED(float, book, SEARCHED);
    load_searched(book, &from);
    for (size_t b = blockIdx.x; b < blocks; b += gridDim.x) {
        size_t begin = b * block, end = n - begin > block ? begin + block : n;
        float largest = -FLT_MAX, scale;
        cuda_pack<float, WIDTH> held[CUDA_HELD / WIDTH];
        cuda_each_value<WIDTH>(begin, end, [&](int j, size_t i, size_t left) {
            auto v = cuda_load_some<WIDTH>(x + i, left);
            if (j >= 0) held[j] = v;
            PL_UNROLL for (int k = 0; k < WIDTH; k++)
                if ((size_t)k < left && fabsf(v.at[k]) > largest) largest = fabsf(v.at[k]);
        });
        largest = cuda_block_max(largest);
        if (threadIdx.x == 0) absmax[b] = largest;
        scale = 1 / largest;
        cuda_each_value<WIDTH>(begin, end, [&](int j, size_t i, size_t left) {
            auto v = j >= 0 ? held[j] : cuda_load_some<WIDTH>(x + i, left);
            cuda_pack<uint8_t, WIDTH> c;
            PL_UNROLL for (int k = 0; k < WIDTH; k++)
                c.at[k] = code_of(book, v.at[k], largest, scale, rule);
            cuda_store_some(codes + i, c, left);
        });
    }
}

int cuda_quantize(uint8_t *codes, float *absmax, const float *x, size_t n, size_t block,
                  enum pl_map map, enum pl_rule rule)
{
    size_t blocks = pl_blocks(n, block);
    if (!n) return PL_OK;
    return CUDA_LAUNCH_PACKS(block % CUDA_PACK == 0 && cuda_packs(codes) && cuda_packs(x), encode,
                             cuda_value_grid(blocks), cuda_value_threads(block), codes, absmax, x,
                             n, block, blocks, cuda_book_of(map, rule), rule);
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
            cuda_pack<float, WIDTH> v;
            PL_UNROLL for (int k = 0; k < WIDTH; k++) v.at[k] = book[c.at[k]] * scale;
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
    return CUDA_LAUNCH_PACKS(block % CUDA_PACK == 0 && cuda_packs(codes) && cuda_packs(y), decode,
                             cuda_value_grid(blocks), cuda_value_threads(block), y, codes, absmax,
                             n, block, blocks, b);
}
