/* emulator.cpp - runs a kernel's blocks one after the other with their threads as fibers, and
 * watches shared memory. See cuda_runtime.h. */
#include "cuda_runtime.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#if !defined(__x86_64__)
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#define THREADS_MAX 1024 /* per block: CUDA's own limit */
#define STACK_BYTES (256 << 10)
#define SHARED_BYTES (48 << 10) /* per block: CUDA's limit on every device */
#define ARRAYS_MAX 32

dim3 threadIdx, blockIdx, blockDim, gridDim;

static unsigned order_of_environment(void)
{
    const char *text = getenv("CUDA_ON_CPU_ORDER");
    return text ? (unsigned)strtoul(text, NULL, 10) : 0;
}
unsigned emu_order = order_of_environment();

enum state { READY, AT_BARRIER, AT_WARP, DONE };
struct fiber {
    enum state state;
    char *stack;
    void *at; /* its stack pointer while it is suspended */
#if !defined(__x86_64__)
    ucontext_t context;
#endif
#if defined(__SANITIZE_ADDRESS__)
    void *fake;
#endif
};
struct warp {
    unsigned arrived, mask;
    uint64_t value[32], seen[32];
    uint32_t epoch; /* __syncwarps so far */
};

static struct fiber fibers[THREADS_MAX];
static struct warp warps[THREADS_MAX / 32];
static int threads;
int emu_current = -1;
uint32_t emu_epoch; /* never 0 while a block runs; increases from block to block */
const uint32_t *emu_warp_epoch;
static int or_now, or_before;
static emu_body *run_body;
static void *run_kernel;
static const char *run_name;
static cudaError_t last_error;
static char breach[512], breach_reported[512];

void emu_fail(const char *format, ...)
{
    va_list args;
    int n;
    last_error = cudaErrorLaunchFailure;
    if (breach[0]) return;
    n = snprintf(breach, sizeof breach, "kernel %s, block %u,%u,%u, thread %d: ", run_name,
                 blockIdx.x, blockIdx.y, blockIdx.z, emu_current);
    va_start(args, format);
    vsnprintf(breach + n, sizeof breach - (size_t)n, format, args);
    va_end(args);
    fprintf(stderr, "cuda-on-cpu: %s\n", breach);
}

void emu_misaligned(size_t bytes, size_t beyond)
{
    emu_fail("%zu bytes at once, %zu beyond where they are aligned", bytes, beyond);
}

cudaError_t emu_out_of_reach(const char *name, int argument)
{
    emu_device_access(1, -1);
    if (!breach[0]) {
        snprintf(breach, sizeof breach,
                 "kernel %s: argument %d is no address that the device reaches", name, argument);
        fprintf(stderr, "cuda-on-cpu: %s\n", breach);
    }
    emu_device_access(0, -1);
    return cudaErrorLaunchFailure;
}

const char *emu_breach(void)
{
    if (!breach[0]) return NULL;
    memcpy(breach_reported, breach, sizeof breach);
    breach[0] = 0;
    return breach_reported;
}

/* ---- fibers ---- */

#if defined(__x86_64__)
/* Saves the registers that the calling convention preserves, and continues on another stack. */
extern "C" void emu_switch(void **from, void *to);
__asm__(".text\n.globl emu_switch\n.hidden emu_switch\n.type emu_switch,@function\nemu_switch:\n"
        "pushq %rbp\npushq %rbx\npushq %r12\npushq %r13\npushq %r14\npushq %r15\n"
        "movq %rsp,(%rdi)\nmovq %rsi,%rsp\n"
        "popq %r15\npopq %r14\npopq %r13\npopq %r12\npopq %rbx\npopq %rbp\nret\n"
        ".size emu_switch,.-emu_switch\n");
static void *scheduler;
#else
static ucontext_t scheduler;
#endif
#if defined(__SANITIZE_ADDRESS__)
static void *scheduler_fake;
static const void *scheduler_stack;
static size_t scheduler_stack_bytes;
#endif

static void to_scheduler(void)
{
    struct fiber *f = &fibers[emu_current];
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(f->state == DONE ? NULL : &f->fake, scheduler_stack,
                                   scheduler_stack_bytes);
#endif
#if defined(__x86_64__)
    emu_switch(&f->at, scheduler);
#else
    swapcontext(&f->context, &scheduler);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(f->fake, &scheduler_stack, &scheduler_stack_bytes);
#endif
}

static void fiber_main(void)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(NULL, &scheduler_stack, &scheduler_stack_bytes);
#endif
    run_body(run_kernel);
    fibers[emu_current].state = DONE;
    to_scheduler();
    abort(); /* a finished thread is never resumed */
}

static void set_thread(int t)
{
    emu_current = t;
    emu_warp_epoch = &warps[t / 32].epoch;
    threadIdx.x = (unsigned)t % blockDim.x;
    threadIdx.y = (unsigned)t / blockDim.x % blockDim.y;
    threadIdx.z = (unsigned)t / blockDim.x / blockDim.y;
}

static void prepare(struct fiber *f)
{
    if (!f->stack) {
        void *p = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) abort();
        f->stack = (char *)p;
    }
#if defined(__SANITIZE_ADDRESS__)
    /* a thread abandoned in a kernel that failed still has AddressSanitizer's guards on its
     * stack */
    if (f->state != DONE) ASAN_UNPOISON_MEMORY_REGION(f->stack, STACK_BYTES);
#endif
#if defined(__x86_64__)
    {
        void **top = (void **)(f->stack + STACK_BYTES) -
                     3; /* aligned as if fiber_main were called */
        void (*entry)(void) = fiber_main;
        top[0] = top[1] = NULL;
        top--;
        memcpy(top, &entry, sizeof entry);
        f->at = top - 6;
        memset(f->at, 0, 6 * sizeof *top);
    }
#else
    getcontext(&f->context);
    f->context.uc_stack.ss_sp = f->stack;
    f->context.uc_stack.ss_size = STACK_BYTES;
    f->context.uc_link = NULL;
    makecontext(&f->context, fiber_main, 0);
#endif
    f->state = READY;
}

static void resume(int t)
{
    struct fiber *f = &fibers[t];
    set_thread(t);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&scheduler_fake, f->stack, STACK_BYTES);
#endif
#if defined(__x86_64__)
    emu_switch(&scheduler, f->at);
#else
    swapcontext(&scheduler, &f->context);
#endif
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(scheduler_fake, NULL, NULL);
#endif
}

static void wait_as(enum state s)
{
    fibers[emu_current].state = s;
    to_scheduler();
}

/* ---- barriers and warps ---- */

void __syncthreads(void) { wait_as(AT_BARRIER); }

int __syncthreads_or(int predicate)
{
    or_now |= predicate != 0;
    wait_as(AT_BARRIER);
    return or_before;
}

unsigned emu_lane(void) { return (unsigned)emu_current % 32; }

/* Lanes exchange values; `work`, if any, runs once all have arrived. Only __syncwarp orders memory;
 * a shuffle or a vote does not. */
static const uint64_t *meet(unsigned mask, uint64_t mine, int orders,
                            void (*work)(void *const lanes[32]) = NULL)
{
    struct warp *w = &warps[emu_current / 32];
    unsigned lane = emu_lane();
    if (!(mask >> lane & 1)) emu_fail("a warp operation without its own lane in the mask");
    if (w->arrived && w->mask != mask) emu_fail("lanes of a warp meet with different masks");
    w->mask = mask;
    w->value[lane] = mine;
    w->arrived |= 1u << lane;
    if (w->arrived == mask) {
        int first = emu_current / 32 * 32;
        memcpy(w->seen, w->value, sizeof w->seen);
        w->arrived = 0;
        w->epoch += (uint32_t)orders;
        if (work) {
            void *lanes[32];
            for (int i = 0; i < 32; i++) lanes[i] = (void *)(uintptr_t)w->seen[i];
            work(lanes);
        }
        for (int t = first; t < first + 32 && t < threads; t++)
            if (fibers[t].state == AT_WARP && mask >> t % 32 & 1) fibers[t].state = READY;
    } else {
        wait_as(AT_WARP);
    }
    return w->seen; /* remains until all lanes have reached their next operation */
}

const uint64_t *emu_warp_exchange(unsigned mask, uint64_t mine) { return meet(mask, mine, 0); }

void __syncwarp(unsigned mask) { meet(mask, 0, 1); }

void emu_warp_together(void *mine, void (*work)(void *const lanes[32]))
{
    meet(~0u, (uintptr_t)mine, 0, work);
}

unsigned __ballot_sync(unsigned mask, int predicate)
{
    const uint64_t *all = emu_warp_exchange(mask, predicate != 0);
    unsigned bits = 0;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1) bits |= (unsigned)all[i] << i;
    return bits;
}

/* ---- shared memory ---- */

static struct emu_array arrays[ARRAYS_MAX];
static int array_count;
static size_t shared_used;
static struct {
    char data[SHARED_BYTES + ARRAYS_MAX * 64];
    struct emu_mark mark[SHARED_BYTES + 64];
} pool;
static size_t marks_used;

struct emu_array *emu_shared_array(const void *site, const char *name, size_t count, size_t size)
{
    struct emu_array *a;
    for (int i = 0; i < array_count; i++)
        if (arrays[i].site == site) return &arrays[i];
    if (array_count == ARRAYS_MAX || shared_used + count * size > SHARED_BYTES) {
        fprintf(stderr, "cuda-on-cpu: kernel %s: %s goes beyond %d bytes of shared memory\n",
                run_name, name, SHARED_BYTES);
        abort();
    }
    a = &arrays[array_count];
    *a = (struct emu_array){ site, name, count, NULL, NULL };
    /* a spare element behind each array receives what is written out of bounds */
    a->data = pool.data + shared_used + 64 * (size_t)array_count;
    a->data += (16 - (uintptr_t)a->data % 16) % 16;
    a->mark = pool.mark + marks_used;
    memset(a->mark, 0, count * sizeof *a->mark);
    marks_used += count;
    shared_used += (count * size + 15) / 16 * 16;
    array_count++;
    return a;
}

/* Whether no barrier is between an earlier access by thread t and now. */
static int unordered(int t, uint32_t at, uint32_t warp_at)
{
    if (t == emu_current || at != emu_epoch) return 0;
    return t / 32 != emu_current / 32 || warp_at == warps[emu_current / 32].epoch;
}

void emu_shared_read_slow(struct emu_array *a, size_t i)
{
    struct emu_mark *m;
    if (i >= a->count) {
        emu_fail("shared %s[%zu] read, it has %zu elements", a->name, i, a->count);
        return;
    }
    m = &a->mark[i];
    if (!m->write_epoch) {
        emu_fail("shared %s[%zu] read before it was written", a->name, i);
        return;
    }
    if (unordered(m->writer, m->write_epoch, m->write_warp_epoch))
        emu_fail("race: shared %s[%zu] read, thread %d wrote it since the last barrier", a->name, i,
                 m->writer);
    if (m->read_epoch != emu_epoch) {
        m->reader = (int16_t)emu_current;
        m->reader_warp = (int16_t)(emu_current / 32);
    } else {
        if (m->reader != emu_current) m->reader = -2;
        if (m->reader_warp != emu_current / 32) m->reader_warp = -2;
    }
    m->read_epoch = emu_epoch;
    m->read_warp_epoch = warps[emu_current / 32].epoch;
}

void emu_shared_write_slow(struct emu_array *a, size_t i)
{
    struct emu_mark *m;
    if (i >= a->count) {
        emu_fail("shared %s[%zu] written, it has %zu elements", a->name, i, a->count);
        return;
    }
    m = &a->mark[i];
    if (m->write_epoch && unordered(m->writer, m->write_epoch, m->write_warp_epoch))
        emu_fail("race: shared %s[%zu] written, thread %d wrote it since the last barrier", a->name,
                 i, m->writer);
    if (m->read_epoch == emu_epoch && m->reader != emu_current &&
        (m->reader_warp != emu_current / 32 || m->read_warp_epoch == warps[emu_current / 32].epoch))
        emu_fail("race: shared %s[%zu] written, another thread read it since the last barrier",
                 a->name, i);
    m->writer = (int16_t)emu_current;
    m->write_epoch = emu_epoch;
    m->write_warp_epoch = warps[emu_current / 32].epoch;
}

/* ---- a launch ---- */

static void shuffle(int *turn, unsigned seed)
{
    for (int i = 0; i < threads; i++) turn[i] = seed == 1 ? threads - 1 - i : i;
    for (int i = threads - 1; seed > 1 && i > 0; i--) {
        int k, t = turn[i];
        seed = seed * 1664525u + 1013904223u;
        k = (int)((seed >> 8) % (unsigned)(i + 1));
        turn[i] = turn[k];
        turn[k] = t;
    }
}

/* All threads wait or have finished: releases the barrier, or reports which thread is missing. 0:
 * the block ends. */
static int release(void)
{
    int waiting = 0, done = 0;
    for (int t = 0; t < threads; t++) {
        waiting += fibers[t].state == AT_BARRIER;
        done += fibers[t].state == DONE;
    }
    if (done == threads) return 0;
    if (waiting < threads) {
        emu_fail("%d threads wait at a barrier, %d in a warp operation, %d have left", waiting,
                 threads - waiting - done, done);
        return 0;
    }
    emu_epoch++;
    or_before = or_now;
    or_now = 0;
    for (int t = 0; t < threads; t++) fibers[t].state = READY;
    return 1;
}

static void run_block(const int *turn)
{
    array_count = 0;
    shared_used = marks_used = 0;
    memset(warps, 0, sizeof warps);
    or_now = 0;
    emu_epoch++;
    for (int t = 0; t < threads; t++) prepare(&fibers[t]);
    do {
        int ran;
        do {
            ran = 0;
            for (int i = 0; i < threads; i++)
                if (fibers[turn[i]].state == READY) {
                    resume(turn[i]);
                    ran = 1;
                }
        } while (ran);
    } while (release());
}

/* A stride through n blocks that visits each once: it must be coprime to n; 1 always is, so the
 * search ends. */
static uint64_t stride_of(uint64_t n, unsigned seed)
{
    uint64_t stride = seed < 2 ? 1 : n / 2 + seed % 97;
    for (;; stride++) {
        uint64_t a = n, b = stride;
        while (b) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1) return stride;
    }
}

static void run_blocks(dim3 grid, const int *turn)
{
    uint64_t n = (uint64_t)grid.x * grid.y * grid.z, stride = stride_of(n, emu_order);
    for (uint64_t i = 0, at = emu_order > 1 ? emu_order % n : 0; i < n && last_error == cudaSuccess;
         i++, at = (at + stride) % n) {
        uint64_t b = emu_order == 1 ? n - 1 - i : at;
        blockIdx.x = (unsigned)(b % grid.x);
        blockIdx.y = (unsigned)(b / grid.x % grid.y);
        blockIdx.z = (unsigned)(b / grid.x / grid.y);
        run_block(turn);
    }
}

cudaError_t emu_run_on(int device, const char *name, dim3 grid, dim3 block, emu_body *body,
                       void *kernel)
{
    static int turn[THREADS_MAX];
    cudaError_t error;
    emu_device_access(1, device); /* one kernel at a time */
    gridDim = grid;
    blockDim = block;
    run_name = name;
    run_body = body;
    run_kernel = kernel;
    last_error = cudaSuccess;
    threads = (int)(block.x * block.y * block.z);
    if (!grid.x || !grid.y || !grid.z || grid.y > 65535 || grid.z > 65535 || grid.x > 0x7fffffff ||
        threads < 1 || threads > THREADS_MAX) {
        emu_fail("a grid of %u,%u,%u blocks of %d threads", grid.x, grid.y, grid.z, threads);
    } else {
        shuffle(turn, emu_order);
        run_blocks(grid, turn);
    }
    emu_current = -1;
    error = last_error;
    emu_device_access(0, device);
    return error;
}
