/* device.cu - the devices: selection, streams and memory accounting. Each device has one stream for
 * operations, and the two of async_copies.cu. */
#include "device.cuh"

#include "launch.cuh"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct piece {
    void *p;
    size_t bytes;
};
struct device {
    cudaStream_t stream;
    struct {
        void *p;
        size_t bytes;
    } scratch[CUDA_SLOTS];
    /* Allocations, counted: enforces --gpu-memory and explains a refusal. CUDA's context and
     * cuBLAS' workspace, some hundred MB, are not counted. */
    struct piece *pieces;
    size_t piece_count, piece_capacity, held, most;
};
static struct device devices[CUDA_DEVICES_MAX]; /* indexed by CUDA's device number */
static int list[CUDA_DEVICES_MAX], count = 1, present;
static size_t limit;
static thread_local int current = -1; /* CUDA's number of the thread's device; -1: none chosen */
static thread_local char error_text[192];
static void (*on_free)(const void *p);

void cuda_on_free(void (*forget)(const void *p)) { on_free = forget; }

int cuda_failed(const char *why)
{
    snprintf(error_text, sizeof error_text, "%s", why);
    return PL_EDEVICE;
}

int cuda_status(cudaError_t error)
{
    if (error == cudaSuccess) return PL_OK;
    cuda_failed(cudaGetErrorString(error));
    return error == cudaErrorMemoryAllocation ? PL_ENOMEM : PL_EDEVICE;
}

/* A thread that has not chosen a device uses the first of the list. */
int cuda_number(void)
{
    if (current < 0) {
        cuda_status(cudaSetDevice(list[0])); /* if this fails, so does the next call */
        current = list[0];
    }
    return current;
}

int cuda_number_of(int index) { return list[index]; }

static struct device *now(void) { return &devices[cuda_number()]; }

void cuda_lock(int on)
{
    static pthread_mutex_t lock[CUDA_DEVICES_MAX] = {};
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, [] {
        pthread_mutexattr_t again; /* operations that allocate lock it twice */
        pthread_mutexattr_init(&again);
        pthread_mutexattr_settype(&again, PTHREAD_MUTEX_RECURSIVE);
        for (int i = 0; i < CUDA_DEVICES_MAX; i++) pthread_mutex_init(&lock[i], &again);
        pthread_mutexattr_destroy(&again);
    });
    if (on) pthread_mutex_lock(&lock[cuda_number()]);
    else pthread_mutex_unlock(&lock[cuda_number()]);
}

static thread_local cudaStream_t diverted;

void cuda_set_stream(cudaStream_t stream) { diverted = stream; }

cudaStream_t cuda_stream(void) { return diverted ? diverted : now()->stream; }

int cuda_use_device(int index)
{
    struct device *d;
    int rc;
    if (index < 0 || index >= count) return PL_EUSE;
    d = &devices[list[index]];
    current = list[index];
    rc = cuda_status(cudaSetDevice(current));
    if (rc == PL_OK && !d->stream) rc = cuda_status(cudaStreamCreate(&d->stream));
    if (rc == PL_OK) rc = cuda_copies_open();
    return rc == PL_OK ? cuda_linear_open() : rc;
}

int cuda_device_count(void) { return present; }

int cuda_set_devices(const int *numbers, int n)
{
    static const int first = 0;
    int rc;
    if (!n) numbers = &first, n = 1;
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < i; k++)
            if (numbers[k] == numbers[i]) {
                snprintf(error_text, sizeof error_text, "device %d twice", numbers[i]);
                return PL_EUSE;
            }
        if (numbers[i] < 0 || numbers[i] >= present) { /* this also bounds the list's length */
            snprintf(error_text, sizeof error_text, "no device %d: this machine has %d, from 0 on",
                     numbers[i], present);
            return PL_EUSE;
        }
    }
    count = n;
    for (int i = 0; i < n; i++) list[i] = numbers[i];
    for (int i = n - 1; i >= 0; i--) { /* ends at the first device, which the caller then uses */
        if ((rc = cuda_use_device(i)) != PL_OK) return rc;
        for (int k = 0; k < n; k++)
            if (k != i) cuda_reach(list[k]);
    }
    return PL_OK;
}

/* A library without code for this device opens without error, and then no kernel starts: try
 * one. */
__global__ void start(double *x) { *x = threadIdx.x; }

static int try_kernel(void)
{
    int rc;
    double *x = (double *)cuda_scratch(&rc, CUDA_SLOT_SUMS, sizeof *x);
    if (rc == PL_OK) rc = PL_LAUNCH(start, 1, 1, x);
    return rc == PL_OK ? cuda_status(cudaStreamSynchronize(cuda_stream())) : rc;
}

int cuda_open(char *note, size_t size)
{
    struct cudaDeviceProp p;
    cudaError_t error = cudaGetDeviceCount(&present);
    if (error == cudaErrorInsufficientDriver || error == cudaErrorNoDevice ||
        (error == cudaSuccess && present == 0)) {
        snprintf(note, size, "%s",
                 error == cudaErrorInsufficientDriver ? "no NVIDIA driver, or one that is too old"
                                                      : "no CUDA device here");
        return PL_EDEVICE;
    }
    if (present > CUDA_DEVICES_MAX) present = CUDA_DEVICES_MAX;
    if (error == cudaSuccess) error = cudaGetDeviceProperties(&p, list[0]);
    if (error != cudaSuccess || cuda_use_device(0) != PL_OK) {
        snprintf(note, size, "%s",
                 cudaGetErrorString(error != cudaSuccess ? error : cudaGetLastError()));
        return PL_EDEVICE;
    }
    if (try_kernel() != PL_OK) {
        snprintf(note, size, "%.60s, sm_%d%d: %.100s; make cuda CUDA_ARCH=%d%d", p.name, p.major,
                 p.minor, error_text, p.major, p.minor);
        return PL_EDEVICE;
    }
    snprintf(note, size, "cuda: %.100s, sm_%d%d, %.1f GiB, float32 without TF32", p.name, p.major,
             p.minor, (double)p.totalGlobalMem / 0x1p30);
    if (present > 1) {
        size_t used = strlen(note);
        snprintf(note + used, size - used, ", one of %d: --gpus takes more", present);
    }
    return PL_OK;
}

/* ---- memory ---- */

int cuda_set_memory(size_t bytes)
{
    limit = bytes;
    return PL_OK;
}

const char *cuda_memory_error(void) { return error_text; }

size_t cuda_memory_most(void) { return now()->most; }

size_t cuda_scratch_share(size_t most) { return limit && limit / 8 < most ? limit / 8 : most; }

static void *refuse(size_t bytes, const char *of, double have)
{
    snprintf(error_text, sizeof error_text, "%.1f MiB requested, %.1f in use, of %.1f MiB %s",
             (double)bytes / 0x1p20, (double)now()->held / 0x1p20, have / 0x1p20, of);
    return NULL;
}

void cuda_no_host_memory(size_t bytes)
{
    snprintf(error_text, sizeof error_text,
             "%.1f MiB of page-locked host memory requested, more than the system provides",
             (double)bytes / 0x1p20);
}

/* Grows the list of allocations first: one that is not listed could never be uncounted. */
static int free_scratch_until(struct device *d)
{
    size_t capacity = d->piece_capacity ? 2 * d->piece_capacity : 256;
    struct piece *more;
    if (d->piece_count < d->piece_capacity) return PL_OK;
    more = (struct piece *)realloc(d->pieces, capacity * sizeof *more);
    if (!more) return PL_ENOMEM;
    d->pieces = more;
    d->piece_capacity = capacity;
    return PL_OK;
}

static void *take_piece(size_t bytes)
{
    struct device *d = now();
    size_t left = 0, all = 0;
    void *p = NULL;
    if (!bytes) bytes = 1;
    if (limit && (bytes > limit || d->held > limit - bytes))
        return refuse(bytes, "that --gpu-memory allows", (double)limit);
    if (free_scratch_until(d) != PL_OK) return NULL;
    if (cudaMalloc(&p, bytes) != cudaSuccess) {
        cudaGetLastError(); /* the NULL reports it: a later launch must not */
        if (cudaMemGetInfo(&left, &all) != cudaSuccess) all = 0;
        return refuse(bytes, "that the device has", (double)all);
    }
    d->pieces[d->piece_count++] = { p, bytes };
    d->held += bytes;
    if (d->held > d->most) d->most = d->held;
    return p;
}

void *cuda_alloc_uncounted(size_t bytes)
{
    void *p;
    cuda_lock(1);
    p = take_piece(bytes);
    cuda_lock(0);
    return p;
}

void *cuda_alloc(size_t bytes)
{
    void *p;
    cuda_lock(1);
    p = take_piece(bytes);
    if (p && cuda_status(cudaMemsetAsync(p, 0, bytes, cuda_stream())) != PL_OK) {
        cuda_free(p);
        p = NULL;
    }
    cuda_lock(0);
    return p;
}

void cuda_free(void *p)
{
    struct device *d = now();
    if (!p) return;
    cuda_lock(1);
    if (on_free) on_free(p);
    /* waits for the kernels that still use p, and may report their errors */
    cuda_status(cudaFree(p));
    for (size_t i = d->piece_count; i-- > 0;) /* the newest are usually freed first */
        if (d->pieces[i].p == p) {
            d->held -= d->pieces[i].bytes;
            d->pieces[i] = d->pieces[--d->piece_count];
            break;
        }
    cuda_lock(0);
}

/* From sm_80 on; cuBLAS has no bfloat16 GEMM for older devices. */
int cuda_has_bf16(void)
{
    for (int i = 0; i < count; i++) {
        struct cudaDeviceProp p;
        if (cudaGetDeviceProperties(&p, list[i]) != cudaSuccess || p.major < 8) return 0;
    }
    return 1;
}

int cuda_sync(void)
{
    int rc = cuda_copy_join();
    return rc ? rc : cuda_status(cudaStreamSynchronize(cuda_stream()));
}

void *cuda_scratch(int *rc, enum cuda_slot slot, size_t bytes)
{
    struct device *d = now();
    *rc = PL_OK;
    if (d->scratch[slot].p && bytes <= d->scratch[slot].bytes) return d->scratch[slot].p;
    cuda_free(d->scratch[slot].p);
    d->scratch[slot].p = NULL;
    d->scratch[slot].bytes = 0;
    d->scratch[slot].p = take_piece(bytes);
    if (d->scratch[slot].p) d->scratch[slot].bytes = bytes;
    else *rc = PL_ENOMEM;
    return d->scratch[slot].p;
}
