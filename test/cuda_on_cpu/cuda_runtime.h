/* cuda_runtime.h - stands in for CUDA's header when the kernels of cuda/ are compiled for the CPU,
 * so that they are tested where there is no GPU.
 *
 * The threads of a block are fibers of one CPU thread; blocks run one after the other. Detected
 * while they run:
 *   - shared memory: accesses out of bounds, reads of unwritten elements, and races: an element
 *     that one thread writes and another accesses without a barrier in between, in whatever order
 *     they ran
 *   - barriers and warp operations that some thread never reaches
 *   - vectorized accesses that are not aligned to their size
 *   - tensor-core instructions in code that was compiled for devices without tensor cores
 *   - host pointers among a kernel's arguments, and copies whose memory is not where their
 *     direction says, or that exceed an allocation
 *   - in a build with AddressSanitizer: device memory out of bounds, and host code that reads it
 * The first fault is recorded as a sentence, and the launch fails. */
#ifndef CUDA_ON_CPU_RUNTIME_H
#define CUDA_ON_CPU_RUNTIME_H

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

/* ---- the runtime functions that cuda/ calls: see streams.cpp ---- */

enum cudaError_t {
    cudaSuccess,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorPeerAccessAlreadyEnabled = 704,
    cudaErrorLaunchFailure = 719
};
enum cudaMemcpyKind {
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice
};
typedef struct emu_stream *cudaStream_t;
typedef struct emu_event *cudaEvent_t;
enum { cudaEventDefault = 0, cudaEventDisableTiming = 2, cudaHostAllocPortable = 1 };
struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount;
    size_t totalGlobalMem;
};

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int other);
cudaError_t cudaDeviceEnablePeerAccess(int other, unsigned flags);
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device);
cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaMalloc(void **p, size_t bytes);
cudaError_t cudaFree(void *p);
cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void *p);
cudaError_t cudaMemGetInfo(size_t *left, size_t *all);
cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_step, const void *from, size_t from_step,
                              size_t bytes, size_t rows, enum cudaMemcpyKind kind,
                              cudaStream_t stream);
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream);
/* The device a kernel was compiled for: $CUDA_ON_CPU_PTX, or 80. */
struct cudaFuncAttributes {
    int ptxVersion;
};
cudaError_t emu_attributes(struct cudaFuncAttributes *a);
template <class K>
static inline cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, K *)
{
    return emu_attributes(a);
}
cudaError_t cudaGetLastError(void);
const char *cudaGetErrorString(cudaError_t error);

/* ---- what the emulator's own files share ---- */

/* When queued work runs: at once (early); as late as someone waits for it, and then no more than
 * necessary (late); or in an order drawn from a seed. A program that waits where it must computes
 * the same in all of them. $CUDA_ON_CPU_STREAMS (early, late, a number) selects, early by default.
 * $CUDA_ON_CPU_DEVICES: the number of devices; $CUDA_ON_CPU_OLD: one without bfloat16;
 * $CUDA_ON_CPU_PINNED: the largest allocation of page-locked memory that succeeds. */
enum { EMU_EARLY = -1, EMU_LATE = -2 };
extern "C" __attribute__((visibility("default"))) void cuda_on_cpu_streams(long when);
/* Queues run(what) on the stream (NULL: runs it at once); drop(what) is called afterwards. */
cudaError_t emu_enqueue(cudaStream_t stream, void (*run)(void *what), void *what,
                        void (*drop)(void *what));
int emu_device(void); /* the calling thread's */
int emu_stream_device(cudaStream_t stream);
/* Device memory (-1: of all devices) is accessible between begin 1 and 0, by one thread. */
void emu_device_access(int begin, int device);
void emu_fault(cudaError_t error); /* reported by a later call */
/* Whether these bytes are in this device's memory, or, for kernels, in page-locked host memory. An
 * emulated kernel could read any host memory, so this must be checked. */
enum emu_reach { EMU_OWN, EMU_OWN_OR_PINNED };
int emu_lies_on(const void *p, size_t bytes, int device, enum emu_reach reach);
int emu_no_code(void); /* $CUDA_ON_CPU_NO_CODE: a device for which there is no kernel code */

/* ---- execution ---- */

/* The order in which blocks, and the threads of a block, run: 0 ascending, 1 descending, otherwise
 * shuffled by this seed; $CUDA_ON_CPU_ORDER is the default. A correct kernel gives the same bits in
 * every order. One whose blocks, or whose warps between barriers, communicate through device memory
 * does not. */
extern unsigned emu_order;
/* The first fault since the last call, or NULL. */
const char *emu_breach(void);

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

typedef void emu_body(void *kernel);
__attribute__((format(printf, 1, 2))) void emu_fail(const char *format, ...);

/* Arguments are copied before anything runs, as in a launch. */
template <class F> struct emu_launched {
    const char *name;
    dim3 grid, block;
    int device;
    F call;
};
cudaError_t emu_run_on(int device, const char *name, dim3 grid, dim3 block, emu_body *body,
                       void *kernel);
/* A pointer argument must point to memory that the device can access; NULL and the end of an empty
 * array are allowed. */
template <class T> static inline int emu_reaches(T, int) { return 1; }
template <class T> static inline int emu_reaches(T *p, int device)
{
    return !p || emu_lies_on(p, 0, device, EMU_OWN_OR_PINNED);
}
/* Refuses a launch: names the argument (from 1 on) that points elsewhere. */
cudaError_t emu_out_of_reach(const char *name, int argument);

template <class... P, class... A>
static inline cudaError_t emu_launch(const char *name, cudaStream_t stream, dim3 grid, dim3 block,
                                     void (*kernel)(P...), A... args)
{
    auto call = [=] { kernel(args...); };
    typedef emu_launched<decltype(call)> launched;
    if (emu_no_code()) return cudaErrorNoKernelImageForDevice;
    if (stream && emu_stream_device(stream) != emu_device()) return cudaErrorInvalidResourceHandle;
    const int reached[] = { emu_reaches(args, emu_device())... };
    for (size_t i = 0; i < sizeof...(A); i++)
        if (!reached[i]) return emu_out_of_reach(name, (int)i + 1);
    return emu_enqueue(
        stream,
        [](void *l_) {
            launched *l = (launched *)l_;
            emu_fault(emu_run_on(
                l->device, l->name, l->grid, l->block, [](void *c) { (*(decltype(call) *)c)(); },
                &l->call));
        },
        new launched{ name, grid, block, emu_device(), call },
        [](void *l) { delete (launched *)l; });
}
#define PL_UNROLL
#define PL_ROLLED
/* Records a misaligned access, which then continues at the aligned address below it. */
void emu_misaligned(size_t bytes, size_t beyond);
template <class T, class P> static inline T *emu_wide(P *p)
{
    size_t beyond = (uintptr_t)p % alignof(T);
    if (beyond) emu_misaligned(alignof(T), beyond);
    return (T *)((uintptr_t)p - beyond);
}
#define PL_WIDE(type, p) emu_wide<type>(p)
#define CUDA_BLOCKS_MOST 5 /* low, so that grid-stride loops repeat at sizes that can be emulated */
#define PL_LAUNCH(kernel, grid, block, ...) \
    cuda_status(emu_launch(#kernel, cuda_stream(), grid, block, kernel, __VA_ARGS__))

void __syncthreads(void);
int __syncthreads_or(int predicate);
void __syncwarp(unsigned mask = ~0u);

/* Every lane of `mask` contributes a value and receives all of them. */
const uint64_t *emu_warp_exchange(unsigned mask, uint64_t mine);
unsigned emu_lane(void);

template <class T> static inline T emu_warp_value(unsigned mask, T mine, unsigned from)
{
    uint64_t bits = 0;
    T value;
    static_assert(sizeof(T) <= sizeof bits, "a warp exchanges at most 8 bytes a lane");
    memcpy(&bits, &mine, sizeof mine);
    memcpy(&value, &emu_warp_exchange(mask, bits)[from % 32], sizeof value);
    return value;
}
template <class T> static inline T __shfl_sync(unsigned mask, T v, int lane)
{
    return emu_warp_value(mask, v, (unsigned)lane);
}
template <class T> static inline T __shfl_xor_sync(unsigned mask, T v, int lanes)
{
    return emu_warp_value(mask, v, emu_lane() ^ (unsigned)lanes);
}
template <class T> static inline T __shfl_down_sync(unsigned mask, T v, int lanes)
{
    unsigned from = emu_lane() + (unsigned)lanes;
    return emu_warp_value(mask, v, from < 32 ? from : emu_lane());
}
unsigned __ballot_sync(unsigned mask, int predicate);
static inline int __any_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, predicate) != 0;
}
static inline int __all_sync(unsigned mask, int predicate)
{
    return __ballot_sync(mask, !predicate) == 0;
}

static inline int __ffs(unsigned x) { return __builtin_ffs((int)x); }
/* a device's result is off by up to 2 ulp */
static inline float __fdividef(float a, float b) { return a / b; }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }

/* The threads of a block take turns, so plain arithmetic is atomic here. */
template <class T> static inline T atomicAdd(T *at, T v)
{
    T old = *at;
    *at = old + v;
    return old;
}
template <class T> static inline T atomicMax(T *at, T v)
{
    T old = *at;
    if (v > old) *at = v;
    return old;
}

template <class T> static inline T max(T a, T b) { return a > b ? a : b; }
template <class T> static inline T min(T a, T b) { return a < b ? a : b; }

/* ---- shared memory ---- */

/* Which thread accessed an element last, and between which barriers. */
struct emu_mark {
    uint32_t write_epoch, write_warp_epoch, read_epoch, read_warp_epoch;
    int16_t writer, reader; /* a thread; -1 none, -2 several */
    int16_t reader_warp;    /* -2: several */
};
struct emu_array {
    const void *site;
    const char *name;
    size_t count;
    char *data;
    struct emu_mark *mark;
};
/* The block's array declared at `site`: the same for every thread of the block. */
struct emu_array *emu_shared_array(const void *site, const char *name, size_t count, size_t size);
void emu_shared_read_slow(struct emu_array *a, size_t i);
void emu_shared_write_slow(struct emu_array *a, size_t i);

extern uint32_t emu_epoch;             /* barriers so far */
extern const uint32_t *emu_warp_epoch; /* __syncwarps so far of the thread's warp */
extern int emu_current;                /* the running thread */

/* Most accesses are of the simple kind: written before the last barrier, read by this thread
 * before. */
static inline void emu_shared_read(struct emu_array *a, size_t i)
{
    const struct emu_mark *m = &a->mark[i];
    if (i < a->count && m->write_epoch &&
        (m->write_epoch != emu_epoch || m->writer == emu_current) && m->read_epoch == emu_epoch &&
        ((m->reader == emu_current && m->read_warp_epoch == *emu_warp_epoch) ||
         m->reader_warp == -2))
        return;
    emu_shared_read_slow(a, i);
}
static inline void emu_shared_write(struct emu_array *a, size_t i) { emu_shared_write_slow(a, i); }

template <class T> struct emu_cell {
    struct emu_array *a;
    size_t i;
    T &raw(void) const
    {
        return ((T *)a->data)[i < a->count ? i : a->count]; /* one spare element */
    }
    operator T() const
    {
        emu_shared_read(a, i);
        return raw();
    }
    T operator=(T v) const
    {
        emu_shared_write(a, i);
        return raw() = v;
    }
    T operator=(const emu_cell &o) const { return *this = (T)o; }
    T operator+=(T v) const { return *this = (T) * this + v; }
    T operator-=(T v) const { return *this = (T) * this - v; }
    T operator*=(T v) const { return *this = (T) * this * v; }
};
template <class T> struct emu_shared {
    struct emu_array *a;
    emu_shared(const void *site, const char *name, size_t count)
        : a(emu_shared_array(site, name, count, sizeof(T)))
    {
    }
    template <class I> emu_cell<T> operator[](I i) const { return emu_cell<T>{ a, (size_t)i }; }
};
template <class T> using cuda_shared = emu_shared<T>;

/* ---- tensor cores: cuda/tensor_core.cuh says what these do and which lane holds what ---- */

#define PL_EMULATED
uint32_t emu_word(float low, float high);
void emu_multiply(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1);
void emu_load_matrices(uint32_t r[4], emu_shared<uint32_t> words, int at, int transposed);
/* The last lane of the warp to arrive does the work of all: lanes[i] is what lane i passed. */
void emu_warp_together(void *mine, void (*work)(void *const lanes[32]));
#define PL_SHARED(type, name, count) \
    static const char name##_site = 0; \
    const emu_shared<type> name(&name##_site, #name, count)

#endif
