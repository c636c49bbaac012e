/* rotary.cu - a thread a pair of channels; tables of sines come from the caller. */
#include "../ref/rotary.h"

#include "launch.cuh"

__global__ void rotate(float *x, const float *cosine, const float *sine, size_t pairs, int n, int G,
                       int d, int half, float sign)
{
    CUDA_EACH(i, pairs) {
        size_t vector = i / (size_t)half, pair = i % (size_t)half;
        size_t at = vector / (size_t)G % (size_t)n * (size_t)half + pair;
        float *p = x + vector * (size_t)d + 2 * pair;
        float c = cosine[at], s = sign * sine[at], u = p[0], v = p[1];
        p[0] = u * c - v * s;
        p[1] = v * c + u * s;
    }
}

int cuda_rotary(float *x, const float *cosine, const float *sine, int B, int n, int G, int d, int R,
                int inverse)
{
    size_t pairs = (size_t)B * (size_t)n * (size_t)G * (size_t)(R / 2);
    if (!pairs) return PL_OK; /* a head too narrow to turn */
    return PL_LAUNCH(rotate, cuda_blocks(pairs), CUDA_THREADS, x, cosine, sine, pairs, n, G, d,
                     R / 2, inverse ? -1.0f : 1.0f);
}
