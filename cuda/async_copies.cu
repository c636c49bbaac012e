/* async_copies.cu - copies between host and device: on the stream of the operations, waited for; or
 * asynchronous on two streams, one per direction, because the bus carries both at once; events
 * order them against the operations. Also copies between devices. */
#include "device.cuh"

#include "launch.cuh"
#include "bf16_weights.cuh"

#include <string.h>

/* events per direction; waiting for a newer copy's event waits for older copies, too */
#define TICKETS 64

struct direction {
    cudaStream_t stream;
    cudaEvent_t done[TICKETS];
    uint64_t begun;
};
static struct copies {
    struct direction way[2]; /* down to the host, up to the device */
    cudaEvent_t called;      /* recorded after all operations so far */
} copies[CUDA_DEVICES_MAX];

enum { DOWN, UP };

int cuda_upload(void *device, const void *host, size_t bytes)
{
    cudaStream_t stream = cuda_stream();
    int rc = PL_OK;
    cuda_lock(1); /* no other thread's GEMM may come between the two */
    cuda_written(device, bytes);
    if (bytes)
        rc = cuda_status(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream));
    cuda_lock(0);
    return rc ? rc : cuda_status(cudaStreamSynchronize(stream));
}

int cuda_download(void *host, const void *device, size_t bytes)
{
    cudaStream_t stream = cuda_stream();
    int rc = PL_OK;
    if (bytes)
        rc = cuda_status(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream));
    return rc ? rc : cuda_status(cudaStreamSynchronize(stream));
}

int cuda_copies_open(void)
{
    struct copies *c = &copies[cuda_number()];
    cudaError_t error = cudaSuccess;
    if (c->called) return PL_OK;
    for (int k = 0; k < 2 && error == cudaSuccess; k++) {
        error = cudaStreamCreate(&c->way[k].stream);
        for (int i = 0; i < TICKETS && error == cudaSuccess; i++)
            error = cudaEventCreateWithFlags(&c->way[k].done[i], cudaEventDisableTiming);
    }
    if (error == cudaSuccess) error = cudaEventCreateWithFlags(&c->called, cudaEventDisableTiming);
    return cuda_status(error);
}

/* A ticket: the copy's number on its stream, from 1 on, and the direction in the lowest bit. */
static int begin(uint64_t *ticket, int k, void *to, const void *from, size_t bytes)
{
    struct copies *c = &copies[cuda_number()];
    struct direction *way = &c->way[k];
    cudaError_t error;
    cuda_lock(1);
    error = cudaEventRecord(c->called, cuda_stream());
    if (error == cudaSuccess) error = cudaStreamWaitEvent(way->stream, c->called, 0);
    if (error == cudaSuccess && bytes)
        error = cudaMemcpyAsync(to, from, bytes,
                                k == DOWN ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice,
                                way->stream);
    if (error == cudaSuccess)
        error = cudaEventRecord(way->done[++way->begun % TICKETS], way->stream);
    *ticket = way->begun << 1 | (uint64_t)k;
    cuda_lock(0);
    return cuda_status(error);
}

int cuda_download_begin(uint64_t *ticket, void *host, const void *device, size_t bytes)
{
    return begin(ticket, DOWN, host, device, bytes);
}

int cuda_upload_begin(uint64_t *ticket, void *device, const void *host, size_t bytes)
{
    int rc;
    cuda_lock(1); /* no other thread's GEMM may come between the two */
    cuda_written(device, bytes);
    rc = begin(ticket, UP, device, host, bytes);
    cuda_lock(0);
    return rc;
}

int cuda_copy_end(uint64_t ticket)
{
    const struct direction *way = &copies[cuda_number()].way[ticket & 1];
    if (!(ticket >> 1)) return PL_OK; /* no copy was started */
    return cuda_status(cudaEventSynchronize(way->done[(ticket >> 1) % TICKETS]));
}

int cuda_copy_join(void)
{
    const struct copies *c = &copies[cuda_number()];
    int rc = PL_OK;
    cuda_lock(1);
    for (int k = 0; k < 2 && rc == PL_OK; k++) {
        const struct direction *way = &c->way[k];
        if (way->begun)
            rc = cuda_status(
                cudaStreamWaitEvent(cuda_stream(), way->done[way->begun % TICKETS], 0));
    }
    cuda_lock(0);
    return rc;
}

void *cuda_host_alloc(size_t bytes)
{
    void *p = NULL;
    if (cudaHostAlloc(&p, bytes ? bytes : 1, cudaHostAllocPortable) != cudaSuccess) {
        cudaGetLastError(); /* the NULL reports it: clear CUDA's error */
        cuda_no_host_memory(bytes);
        return NULL;
    }
    return memset(p, 0, bytes);
}

void cuda_host_free(void *p)
{
    if (p) cuda_status(cudaFreeHost(p));
}

/* ---- between devices: peer to peer where possible, otherwise through the host ---- */

/* CUDA copies through the host unless peer access is enabled, even where a direct path exists. If
 * there is none, or it is enabled already, nothing is lost. */
void cuda_reach(int other)
{
    int can = 0;
    if (cudaDeviceCanAccessPeer(&can, cuda_number(), other) == cudaSuccess && can)
        (void)cudaDeviceEnablePeerAccess(other, 0);
    cudaGetLastError(); /* clear the error: a later launch must not report it */
}

#define TAKE_MOST ((size_t)4 << 20) /* floats per copy: the buffer stays small, the bus busy */

__global__ void add_from_peer(float *y, const float *x, size_t n)
{
    CUDA_EACH (i, n) y[i] += x[i];
}

static int take_some(float *y, const float *x, int from, size_t n)
{
    return cuda_status(cudaMemcpyPeerAsync(y, cuda_number(), x, cuda_number_of(from), n * sizeof *y,
                                           cuda_stream()));
}

int cuda_peer_copy(float *y, const float *x, int index, size_t n, int add)
{
    size_t most = cuda_scratch_share(TAKE_MOST * sizeof *y) / sizeof *y;
    float *part;
    int rc;
    cuda_written(y, n * sizeof *y);
    if (!add) return n ? take_some(y, x, index, n) : PL_OK;
    part = (float *)cuda_scratch(&rc, CUDA_SLOT_PEER, (n < most ? n : most) * sizeof *part);
    for (size_t at = 0; at < n && rc == PL_OK; at += most) {
        size_t some = n - at < most ? n - at : most;
        rc = take_some(part, x + at, index, some);
        if (rc == PL_OK)
            rc = PL_LAUNCH(add_from_peer, cuda_blocks(some), CUDA_THREADS, y + at, part, some);
    }
    return rc;
}
