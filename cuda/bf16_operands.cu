/* bf16_operands.cu - GEMM operands in bfloat16: a parameter's working copy, or a tensor rounded
 * into scratch memory. The last rounded tensor is remembered, because a layer's output gradient is
 * an operand of two GEMMs; and an operation whose result is the next operand rounds it as it writes
 * it. */
#include "bf16.cuh"
#include "device.cuh"
#include "vectorized.cuh"
#include "bf16_weights.cuh"

/* The tensor in CUDA_SLOT_OPERAND: x (n). n 0: none. */
static struct {
    const float *x;
    size_t n;
    uint16_t *y;
} latest[CUDA_DEVICES_MAX];

template <int WIDTH> __global__ void to_bf16(uint16_t *y, const float *x, size_t n)
{
    cuda_each_vector<WIDTH>(n, [=](size_t i, auto width) {
        auto from = cuda_load<width.is>(x + i);
        cuda_vector<uint16_t, width.is> to;
        PL_UNROLL
        for (int k = 0; k < width.is; k++) to.at[k] = bf16_of_float(from.at[k]);
        cuda_store(y + i, to);
    });
}

int cuda_to_bf16(uint16_t *y, const float *x, size_t n)
{
    int vectorized = cuda_is_vectorizable(y) && cuda_is_vectorizable(x);
    return CUDA_LAUNCH_VECTORIZED(vectorized, to_bf16, cuda_vector_blocks(vectorized, n),
                                  CUDA_THREADS, y, x, n);
}

void cuda_rounded_written(const void *p, size_t bytes)
{
    int d = cuda_number();
    const char *begin = (const char *)p, *end = begin + bytes;
    if (begin < (const char *)(latest[d].x + latest[d].n) && end > (const char *)latest[d].x)
        latest[d].n = 0;
}

void cuda_rounded_forget(void) { latest[cuda_number()].n = 0; }

const uint16_t *cuda_rounded_known(const float *x, size_t n)
{
    int d = cuda_number();
    const float *first = latest[d].x;
    return n && latest[d].n >= n && x >= first && x + n <= first + latest[d].n
               ? latest[d].y + (x - first)
               : NULL;
}

uint16_t *cuda_round_into(int *rc, const float *x, size_t n)
{
    uint16_t *y = (uint16_t *)cuda_scratch(rc, CUDA_SLOT_OPERAND, n * sizeof *y);
    latest[cuda_number()] = { x, y ? n : 0, y };
    return y;
}

uint16_t *cuda_round_copy(const float *x, size_t n)
{
    int rc;
    return cuda_bf16() ? cuda_round_into(&rc, x, n) : NULL;
}

const uint16_t *cuda_rounded(int *rc, enum cuda_slot slot, const float *x, size_t n)
{
    const uint16_t *known = cuda_weights_bf16(rc, x);
    uint16_t *y;
    if (known || *rc != PL_OK) return known;
    if ((known = cuda_rounded_known(x, n))) return known;
    y = slot == CUDA_SLOT_OPERAND ? cuda_round_into(rc, x, n)
                                  : (uint16_t *)cuda_scratch(rc, slot, n * sizeof *y);
    if (*rc == PL_OK) *rc = cuda_to_bf16(y, x, n);
    return y;
}
