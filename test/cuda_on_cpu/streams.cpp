/* streams.cpp - the runtime of the emulated devices: streams and events as queues of pending work,
 * memory, copies. See cuda_runtime.h. */
#include "cuda_runtime.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

#define DEVICES_MAX 16

/* Held while queueing and while running queued work. */
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static thread_local int device_now;
static cudaError_t fault;

/* ---- streams ---- */

struct task {
    struct task *next;
    void (*run)(void *);
    void *what;
    void (*drop)(void *);
    struct emu_event *record, *await; /* set instead of run */
    uint64_t turn;
};
struct emu_stream {
    struct emu_stream *next;
    struct task *first, **last;
    int device;
};
struct emu_event {
    uint64_t recorded, done; /* number of records requested, and done */
    int device;
    struct emu_stream *stream; /* of the latest record */
};
static struct emu_stream *streams;

static long when_of_environment(void)
{
    const char *text = getenv("CUDA_ON_CPU_STREAMS");
    if (!text || !strcmp(text, "early")) return EMU_EARLY;
    return strcmp(text, "late") ? strtol(text, NULL, 10) : (long)EMU_LATE;
}
static long when = when_of_environment();
static uint32_t dice = when >= 0 ? (uint32_t)when : 0;

void cuda_on_cpu_streams(long w)
{
    when = w;
    dice = (uint32_t)w;
}

static int drawn(void)
{
    dice = dice * 1664525u + 1013904223u;
    return dice >> 31;
}

/* Whether there is a first task, and what it waits for has happened. */
static int is_ready(const struct emu_stream *s)
{
    const struct task *t = s->first;
    return t && (!t->await || t->await->done >= t->turn);
}

static void reach(struct emu_event *e, uint64_t turn);

static void do_first(struct emu_stream *s)
{
    struct task *t = s->first;
    if (t->await) reach(t->await, t->turn);
    /* removed only now: while this stream waits, it must not be entered again */
    s->first = t->next;
    if (!s->first) s->last = &s->first;
    if (t->record && t->record->done < t->turn) t->record->done = t->turn;
    if (t->run) t->run(t->what);
    if (t->drop) t->drop(t->what);
    free(t);
}

/* Runs queued work until the event's record number `turn` is done. What an event waits for was
 * queued earlier, so this ends. The event may have been recorded on another stream since: all
 * streams are searched. */
static void reach(struct emu_event *e, uint64_t turn)
{
    for (struct emu_stream *s = streams; s && e->done < turn; s = s->next) {
        const struct task *t = s->first;
        while (t && !(t->record == e && t->turn >= turn)) t = t->next;
        while (t && e->done < turn) do_first(s);
    }
}

static void drain(struct emu_stream *s)
{
    while (s->first) do_first(s);
}

static void drain_all(void)
{
    for (struct emu_stream *s = streams; s; s = s->next) drain(s);
}

static void queue(struct emu_stream *s, struct task t)
{
    struct task *own = (struct task *)malloc(sizeof *own);
    if (!own) abort();
    *own = t;
    own->next = NULL;
    *s->last = own;
    s->last = &own->next;
    if (when == EMU_EARLY) drain(s);
    if (when >= 0)
        for (struct emu_stream *q = streams; q; q = q->next)
            while (is_ready(q) && drawn()) do_first(q);
}

static cudaError_t answer(void)
{
    cudaError_t e = fault;
    fault = cudaSuccess;
    return e;
}

void emu_fault(cudaError_t error)
{
    if (error != cudaSuccess) fault = error;
}

int emu_no_code(void)
{
    static const char *const set = getenv("CUDA_ON_CPU_NO_CODE");
    return set && *set;
}

cudaError_t emu_attributes(struct cudaFuncAttributes *a)
{
    static const char *const text = getenv("CUDA_ON_CPU_PTX");
    static const int version = text ? atoi(text) : 80;
    a->ptxVersion = version;
    return cudaSuccess;
}

int emu_device(void) { return device_now; }
int emu_stream_device(cudaStream_t s) { return s->device; }

cudaError_t emu_enqueue(cudaStream_t s, void (*run)(void *), void *what, void (*drop)(void *))
{
    cudaError_t error;
    struct task t = { NULL, run, what, drop, NULL, NULL, 0 };
    pthread_mutex_lock(&lock);
    if (s) queue(s, t);
    else {
        run(what);
        if (drop) drop(what);
    }
    error = answer();
    pthread_mutex_unlock(&lock);
    return error;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    struct emu_stream *s = (struct emu_stream *)calloc(1, sizeof *s);
    *stream = s;
    if (!s) return cudaErrorMemoryAllocation;
    pthread_mutex_lock(&lock);
    s->device = device_now;
    s->last = &s->first;
    s->next = streams;
    streams = s;
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
    cudaError_t error;
    pthread_mutex_lock(&lock);
    drain(s);
    error = answer();
    pthread_mutex_unlock(&lock);
    return error;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    *event = (struct emu_event *)calloc(1, sizeof **event);
    if (!*event) return cudaErrorMemoryAllocation;
    (*event)->device = device_now;
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s)
{
    struct task t = { NULL, NULL, NULL, NULL, e, NULL, 0 };
    if (e->device != s->device) return cudaErrorInvalidResourceHandle;
    pthread_mutex_lock(&lock);
    t.turn = ++e->recorded;
    e->stream = s;
    queue(s, t);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned)
{
    struct task t = { NULL, NULL, NULL, NULL, NULL, e, 0 };
    pthread_mutex_lock(&lock);
    /* its state at this moment; an event that was never recorded delays nothing */
    t.turn = e->recorded;
    queue(s, t);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
    cudaError_t error;
    pthread_mutex_lock(&lock);
    reach(e, e->recorded);
    error = answer();
    pthread_mutex_unlock(&lock);
    return error;
}

/* ---- devices ---- */

static int device_count(void)
{
    const char *text = getenv("CUDA_ON_CPU_DEVICES");
    long n = text ? strtol(text, NULL, 10) : 1;
    return n < 0 ? 0 : n > DEVICES_MAX ? DEVICES_MAX : (int)n;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = device_count();
    return *count ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device)
{
    if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
    device_now = device;
    return cudaSuccess;
}

/* Adjacent devices have peer access, as in machines with two sockets; copies work between all. */
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int other)
{
    if (device < 0 || device >= device_count() || other < 0 || other >= device_count())
        return cudaErrorInvalidDevice;
    *can = device != other && device / 2 == other / 2;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned)
{
    static int enabled[DEVICES_MAX][DEVICES_MAX];
    int can = 0, before;
    if (cudaDeviceCanAccessPeer(&can, device_now, other) != cudaSuccess || !can) {
        emu_fault(cudaErrorInvalidDevice);
        return cudaErrorInvalidDevice;
    }
    pthread_mutex_lock(&lock);
    before = enabled[device_now][other]++;
    if (before) fault = cudaErrorPeerAccessAlreadyEnabled; /* reported until it is fetched */
    pthread_mutex_unlock(&lock);
    return before ? cudaErrorPeerAccessAlreadyEnabled : cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    const char *old = getenv("CUDA_ON_CPU_OLD");
    if (device < 0 || device >= device_count()) return cudaErrorInvalidDevice;
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "the emulation on this CPU");
    p->major = 8; /* has bfloat16 */
    if (old && atoi(old) == device) p->major = 7, p->minor = 5;
    p->multiProcessorCount = 1;
    return cudaSuccess;
}

/* ---- memory: host memory that AddressSanitizer closes while no kernel runs, and to kernels of
 * other devices ---- */

struct block {
    struct block *next, **from;
    void *p;
    size_t bytes;
    int device; /* PINNED: page-locked host memory */
};
#define PINNED (-1)
static struct block *blocks;

static void open_memory(int open, int device)
{
#if defined(__SANITIZE_ADDRESS__)
    for (struct block *b = blocks; b; b = b->next) {
        if (b->device == PINNED) continue;
        if (open && (device < 0 || b->device == device))
            ASAN_UNPOISON_MEMORY_REGION(b->p, b->bytes);
        else ASAN_POISON_MEMORY_REGION(b->p, b->bytes);
    }
#else
    (void)open, (void)device;
#endif
}

void emu_device_access(int begin, int device)
{
    if (begin) pthread_mutex_lock(&lock);
    open_memory(begin, device);
    if (!begin) pthread_mutex_unlock(&lock);
}

static cudaError_t take(void **p, size_t bytes, size_t alignment, int device)
{
    struct block *b = (struct block *)malloc(sizeof *b);
    *p = NULL;
    if (!b || posix_memalign(p, alignment, bytes ? bytes : 1)) {
        *p = NULL;
        free(b);
        return cudaErrorMemoryAllocation;
    }
    pthread_mutex_lock(&lock);
    memset(*p, 0xcb, bytes); /* a value as good as any */
    *b = (struct block){ blocks, &blocks, *p, bytes, device };
    if (blocks) blocks->from = &b->next;
    blocks = b;
    open_memory(0, -1);
    pthread_mutex_unlock(&lock);
    return cudaSuccess;
}

static cudaError_t give(void *p, int pinned)
{
    struct block *b;
    pthread_mutex_lock(&lock);
    drain_all(); /* as the real one: waits for all pending work */
    for (b = blocks; p && b && !(b->p == p && (b->device == PINNED) == pinned);) b = b->next;
    if (p && b) {
        *b->from = b->next;
        if (b->next) b->next->from = b->from;
#if defined(__SANITIZE_ADDRESS__)
        ASAN_UNPOISON_MEMORY_REGION(b->p, b->bytes);
#endif
        free(p);
        free(b);
    }
    pthread_mutex_unlock(&lock);
    return p && !b ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaMalloc(void **p, size_t bytes) { return take(p, bytes, 256, device_now); }
cudaError_t cudaFree(void *p) { return give(p, 0); }
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned)
{
    const char *most = getenv("CUDA_ON_CPU_PINNED");
    *p = NULL;
    if (most && bytes > strtoull(most, NULL, 10)) {
        emu_fault(cudaErrorMemoryAllocation);
        return cudaErrorMemoryAllocation;
    }
    return take(p, bytes, 4096, PINNED);
}
cudaError_t cudaFreeHost(void *p) { return give(p, 1); }

/* The allocation that contains these bytes, or any of them. */
static const struct block *block_of(const void *p, size_t bytes)
{
    const char *at = (const char *)p;
    for (struct block *b = blocks; b; b = b->next)
        if (at < (char *)b->p + b->bytes && at + bytes > (char *)b->p) return b;
    return NULL;
}

int emu_lies_on(const void *p, size_t bytes, int device, enum emu_reach reach)
{
    const char *at = (const char *)p;
    int is_inside = 0;
    pthread_mutex_lock(&lock);
    for (struct block *b = blocks; b && !is_inside; b = b->next)
        is_inside = at >= (char *)b->p && at + bytes <= (char *)b->p + b->bytes &&
                    (b->device == device || (reach == EMU_OWN_OR_PINNED && b->device == PINNED));
    pthread_mutex_unlock(&lock);
    return is_inside;
}

/* Everything is free: the emulated size has no limit. */
cudaError_t cudaMemGetInfo(size_t *left, size_t *all)
{
    *left = *all = 0;
    return cudaSuccess;
}

struct move {
    void *to;
    const void *from; /* NULL: fill with a value */
    size_t bytes;
    int value;
};

static void do_move(void *m_)
{
    const struct move *m = (const struct move *)m_;
    emu_device_access(1, -1);
    if (m->from) memcpy(m->to, m->from, m->bytes);
    else memset(m->to, m->value, m->bytes);
    emu_device_access(0, -1);
}

static cudaError_t move(struct move m, cudaStream_t s)
{
    struct move *own = (struct move *)malloc(sizeof *own);
    if (!own) return cudaErrorMemoryAllocation;
    *own = m;
    return emu_enqueue(s, do_move, own, free);
}

/* One side of a copy must be entirely in one device's memory, or entirely outside of all. */
static int is_side(const void *p, size_t bytes, int of_device)
{
    const struct block *b;
    int good;
    pthread_mutex_lock(&lock);
    b = block_of(p, bytes);
    good = of_device ? b && b->device != PINNED : !b || b->device == PINNED;
    if (b)
        good = good && (const char *)p >= (char *)b->p &&
               (const char *)p + bytes <= (char *)b->p + b->bytes;
    pthread_mutex_unlock(&lock);
    return good;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s)
{
    if (bytes && !is_side(p, bytes, 1)) return cudaErrorInvalidValue;
    return move({ p, NULL, bytes, value }, s);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t s)
{
    if (bytes && (!is_side(to, bytes, kind != cudaMemcpyDeviceToHost) ||
                  !is_side(from, bytes, kind != cudaMemcpyHostToDevice)))
        return cudaErrorInvalidValue;
    return move({ to, from, bytes, 0 }, s);
}

/* Row by row; each is a copy like any other. */
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_step, const void *from, size_t from_step,
                              size_t bytes, size_t rows, enum cudaMemcpyKind kind, cudaStream_t s)
{
    cudaError_t error = to_step < bytes || from_step < bytes ? cudaErrorInvalidValue : cudaSuccess;
    for (size_t r = 0; r < rows && error == cudaSuccess; r++)
        error = cudaMemcpyAsync((char *)to + r * to_step, (const char *)from + r * from_step, bytes,
                                kind, s);
    return error;
}

/* The pointers must be where the arguments say. */
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t s)
{
    if (!emu_lies_on(to, bytes, to_device, EMU_OWN) ||
        !emu_lies_on(from, bytes, from_device, EMU_OWN))
        return cudaErrorInvalidValue;
    return move({ to, from, bytes, 0 }, s);
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error;
    pthread_mutex_lock(&lock);
    error = answer();
    pthread_mutex_unlock(&lock);
    return error;
}

const char *cudaGetErrorString(cudaError_t error)
{
    switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "invalid argument";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInsufficientDriver: return "no driver";
    case cudaErrorNoDevice: return "no device";
    case cudaErrorInvalidDevice: return "no such device";
    case cudaErrorPeerAccessAlreadyEnabled: return "peer access has been enabled before";
    case cudaErrorNoKernelImageForDevice:
        return "no kernel image is available for execution on the device";
    case cudaErrorInvalidResourceHandle: return "a stream of another device";
    case cudaErrorLaunchFailure: return "a kernel failed";
    }
    return "unknown";
}
