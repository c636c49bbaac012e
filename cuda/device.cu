/* device.cu - the device: found once, one stream, memory. */
#include "device.cuh"

#include "launch.cuh"

#include <stdio.h>
#include <stdlib.h>

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

/* ---- memory, counted: what --gpu-memory allows is kept, and a refusal can be explained. CUDA's own
 * context and cuBLAS' workspace, some hundred MB, are not ours to count. ---- */

static struct piece { void *p; size_t bytes; } *pieces;
static size_t piece_count, piece_room, held, limit;
static char trouble[192];

int cuda_set_memory(size_t bytes)
{
    limit = bytes;
    return PL_OK;
}

const char *cuda_memory_trouble(void) { return trouble; }

size_t cuda_scratch_share(size_t most) { return limit && limit / 8 < most ? limit / 8 : most; }

static void *refuse(size_t bytes, const char *of, double have)
{
    snprintf(trouble, sizeof trouble, "%.1f MiB asked for, %.1f held, of %.1f MiB %s",
             (double)bytes / 0x1p20, (double)held / 0x1p20, have / 0x1p20, of);
    return NULL;
}

/* Room in the list first: a piece that isn't in it would never be counted back. */
static int make_room(void)
{
    size_t room = piece_room ? 2 * piece_room : 256;
    struct piece *more;
    if (piece_count < piece_room) return PL_OK;
    more = (struct piece *)realloc(pieces, room * sizeof *more);
    if (!more) return PL_ENOMEM;
    pieces = more;
    piece_room = room;
    return PL_OK;
}

static void *take(size_t bytes)
{
    size_t left = 0, all = 0;
    void *p = NULL;
    if (!bytes) bytes = 1;
    if (limit && (bytes > limit || held > limit - bytes))
        return refuse(bytes, "that --gpu-memory allows", (double)limit);
    if (make_room() != PL_OK) return NULL;
    if (cudaMalloc(&p, bytes) != cudaSuccess) {
        cudaGetLastError(); /* said by the NULL: no later launch shall answer for it */
        cudaMemGetInfo(&left, &all);
        return refuse(bytes, "that the device has", (double)all);
    }
    pieces[piece_count++] = { p, bytes };
    held += bytes;
    return p;
}

void *cuda_alloc(size_t bytes)
{
    void *p = take(bytes);
    if (p && cudaMemsetAsync(p, 0, bytes, stream) != cudaSuccess) {
        cuda_free(p);
        return NULL;
    }
    return p;
}

void cuda_free(void *p)
{
    if (!p) return;
    cudaFree(p); /* waits for the kernels that still use it */
    for (size_t i = piece_count; i-- > 0;) /* the latest go first, mostly */
        if (pieces[i].p == p) {
            held -= pieces[i].bytes;
            pieces[i] = pieces[--piece_count];
            return;
        }
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
    scratch[slot].p = take(bytes);
    if (scratch[slot].p) scratch[slot].bytes = bytes;
    else *rc = PL_ENOMEM;
    return scratch[slot].p;
}
