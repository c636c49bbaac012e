/* device.cu - the device: found once, one stream, memory. */
#include "device.cuh"

#include "launch.cuh"

#include <stdio.h>

static cudaStream_t stream;
static struct { void *p; size_t bytes; } scratch[CUDA_SLOTS];

cudaStream_t cuda_stream(void) { return stream; }

int cuda_status(cudaError_t error)
{
    if (error == cudaSuccess) return PL_OK;
    return error == cudaErrorMemoryAllocation ? PL_ENOMEM : PL_EDEVICE;
}

int cuda_open(char *note, size_t size)
{
    struct cudaDeviceProp p;
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice ||
        (error == cudaSuccess && count == 0)) {
        snprintf(note, size, "%s",
                 error == cudaErrorInsufficientDriver ? "no NVIDIA driver, or too old a one"
                                                      : "no CUDA device here");
        return PL_EDEVICE;
    }
    if (error == cudaSuccess) error = cudaSetDevice(0);
    if (error == cudaSuccess) error = cudaGetDeviceProperties(&p, 0);
    if (error == cudaSuccess && !stream) error = cudaStreamCreate(&stream);
    if (error != cudaSuccess) {
        snprintf(note, size, "%s", cudaGetErrorString(error));
        return PL_EDEVICE;
    }
    snprintf(note, size, "cuda: %.100s, sm_%d%d, %.1f GiB, float32 without TF32%s", p.name, p.major,
             p.minor, (double)p.totalGlobalMem / 0x1p30, count > 1 ? ", the first of several" : "");
    return PL_OK;
}

void *cuda_alloc(size_t bytes)
{
    void *p = NULL;
    if (cudaMalloc(&p, bytes ? bytes : 1) != cudaSuccess) {
        cudaGetLastError(); /* said by the NULL: no later launch shall answer for it */
        return NULL;
    }
    if (cudaMemsetAsync(p, 0, bytes, stream) != cudaSuccess) {
        cudaFree(p);
        return NULL;
    }
    return p;
}

void cuda_free(void *p)
{
    if (p) cudaFree(p); /* waits for the kernels that still use it */
}

int cuda_put(void *device, const void *host, size_t bytes)
{
    int rc = bytes
                 ? cuda_status(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream))
                 : PL_OK;
    return rc ? rc : cuda_sync();
}

int cuda_get(void *host, const void *device, size_t bytes)
{
    int rc = bytes
                 ? cuda_status(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream))
                 : PL_OK;
    return rc ? rc : cuda_sync();
}

int cuda_sync(void) { return cuda_status(cudaStreamSynchronize(stream)); }

void *cuda_scratch(int *rc, enum cuda_slot slot, size_t bytes)
{
    *rc = PL_OK;
    if (scratch[slot].p && bytes <= scratch[slot].bytes) return scratch[slot].p;
    cuda_free(scratch[slot].p);
    scratch[slot].p = NULL;
    scratch[slot].bytes = 0;
    if (cudaMalloc(&scratch[slot].p, bytes ? bytes : 1) != cudaSuccess) {
        cudaGetLastError();
        scratch[slot].p = NULL;
        *rc = PL_ENOMEM;
        return NULL;
    }
    scratch[slot].bytes = bytes;
    return scratch[slot].p;
}
