/* check.cpp - tests the emulator itself. Correct kernels give the same values in every order of
 * threads; each faulty one is caught, with a message that names its fault. */
#include "../cuda_runtime.h"

#include <stdio.h>
#include <stdlib.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

enum { N = 64 };
static int passed, failed;

static void check(int good, const char *what)
{
    printf("%s %s\n", good ? "ok  " : "FAIL", what);
    if (good) passed++;
    else failed++;
}

/* N ints that kernels and host can access. */
static int *pinned(void)
{
    void *p;
    if (cudaHostAlloc(&p, N * sizeof(int), 0) != cudaSuccess) abort();
    return (int *)p;
}

/* The kernel must fail, with `word` in the message. */
static void caught(cudaError_t status, const char *word, const char *what)
{
    const char *breach = emu_breach();
    check(status == cudaErrorLaunchFailure && breach && strstr(breach, word), what);
}

/* ---- correct kernels ---- */

static void reverse(int *y, const int *x)
{
    PL_SHARED(int, s, N);
    int i = (int)threadIdx.x;
    s[i] = x[i];
    __syncthreads();
    y[i] = s[N - 1 - i];
}

static void sums(int *y, const int *x)
{
    int v = x[threadIdx.x], bits = (int)__ballot_sync(~0u, v % 2);
    for (int apart = 16; apart; apart /= 2) v += __shfl_xor_sync(~0u, v, apart);
    y[threadIdx.x] = v + __popc((unsigned)bits);
}

static void neighbours(int *y)
{
    PL_SHARED(int, s, N);
    int i = (int)threadIdx.x, lane = i % 32;
    s[i] = i;
    __syncwarp();
    y[i] = s[i - lane + (lane + 1) % 32]; /* within the warp, so no block barrier is needed */
}

static void count(int *y)
{
    if (threadIdx.x == 0 && threadIdx.y == 0) atomicAdd(y, 1);
    if (__syncthreads_or(threadIdx.x == 3 && blockIdx.x == 1)) atomicAdd(y + 1, 1);
}

/* ---- tensor cores, against the fragments of NVIDIA's CUTLASS (MMA_Traits of SM80_16x8x16):
 * strides over column-major matrices ---- */

static int at_a(int lane, int value) /* row + 16 column */
{
    return lane % 4 * 32 + lane / 4 + value % 2 * 16 + value / 2 % 2 * 8 + value / 4 * 128;
}
static int at_b(int lane, int value) /* column + 8 row */
{
    return lane % 4 * 16 + lane / 4 + value % 2 * 8 + value / 2 * 64;
}
static int at_d(int lane, int value) /* row + 16 column */
{
    return lane % 4 * 32 + lane / 4 + value % 2 * 16 + value / 2 * 8;
}
static float value_a(int row, int k) { return (float)(row * 7 % 5 + k * 3 % 11 - 4); }
static float value_b(int k, int column) { return (float)(k * 5 % 7 - column * 2 % 9); }

static uint32_t word_a(int lane, int r)
{
    int first = at_a(lane, 2 * r), second = at_a(lane, 2 * r + 1);
    return emu_word(value_a(first % 16, first / 16), value_a(second % 16, second / 16));
}
static uint32_t word_b(int lane, int r)
{
    int first = at_b(lane, 2 * r), second = at_b(lane, 2 * r + 1);
    return emu_word(value_b(first / 8, first % 8), value_b(second / 8, second % 8));
}

/* y[lane] counts correct results: four sums, then the fragments from shared memory with A
 * row-major, B column-major (16 rows per column), and B row-major. */
static void matrices(int *y)
{
    PL_SHARED(uint32_t, A, 16 * 8);
    PL_SHARED(uint32_t, columns, 8 * 8);
    PL_SHARED(uint32_t, B, 16 * 4);
    int lane = (int)threadIdx.x, right = 0, row = lane % 16, half = lane / 16;
    uint32_t a[4], b[2], r[4];
    float d[4];
    for (int i = lane; i < 16 * 8; i += 32)
        A[i] = emu_word(value_a(i / 8, i % 8 * 2), value_a(i / 8, i % 8 * 2 + 1));
    for (int i = lane; i < 8 * 8; i += 32) {
        columns[i] = emu_word(value_b(i % 8 * 2, i / 8), value_b(i % 8 * 2 + 1, i / 8));
        B[i] = emu_word(value_b(i / 4, i % 4 * 2), value_b(i / 4, i % 4 * 2 + 1));
    }
    __syncthreads();
    for (int i = 0; i < 4; i++) a[i] = word_a(lane, i), d[i] = (float)i;
    for (int i = 0; i < 2; i++) b[i] = word_b(lane, i);
    emu_multiply(d, a, b[0], b[1]);
    for (int i = 0; i < 4; i++) {
        int at = at_d(lane, i);
        float sum = (float)i;
        for (int k = 0; k < 16; k++) sum += value_a(at % 16, k) * value_b(k, at / 16);
        right += d[i] == sum;
    }
    emu_load_matrices(r, A, row * 8 + half * 4, 0);
    for (int i = 0; i < 4; i++) right += r[i] == a[i];
    emu_load_matrices(r, columns, lane % 8 * 8 + lane / 8 % 2 * 4, 0);
    for (int i = 0; i < 4; i++) right += r[i] == b[i % 2];
    emu_load_matrices(r, B, row * 4, 1);
    for (int i = 0; i < 4; i++) right += r[i] == b[i % 2];
    y[lane] = right;
}

/* ---- correct in some orders only: found by running in other orders ---- */

static void after_the_last_block(int *y) { y[blockIdx.x] = blockIdx.x ? y[blockIdx.x - 1] + 1 : 1; }

static void through_memory(int *y)
{
    int i = (int)threadIdx.x;
    y[i] = i + 1;
    y[i] += y[N - 1 - i]; /* another warp's value, without a barrier */
}

/* How many of the orders end with this value in y. */
static int orders_with(int value, int *y, const unsigned *order, int count, void (*kernel)(int *),
                       dim3 grid, dim3 block)
{
    int found = 0;
    for (int i = 0; i < count; i++) {
        memset(y, 0, N * sizeof *y);
        emu_order = order[i];
        emu_launch("kernel", NULL, grid, block, kernel, y);
        found += y[N - 1] == value;
    }
    return found;
}

/* ---- streams ---- */

static void add_one(int *y) { y[threadIdx.x]++; }

/* Two streams with an event between them if `guarded`: what the host then reads. */
static int two_streams(long when, int guarded)
{
    static cudaStream_t work, down; /* kept, as in a program */
    static cudaEvent_t ready;
    void *device, *host;
    int found;
    cuda_on_cpu_streams(when);
    if (!work &&
        (cudaStreamCreate(&work) != cudaSuccess || cudaStreamCreate(&down) != cudaSuccess ||
         cudaEventCreateWithFlags(&ready, 0) != cudaSuccess))
        return -1;
    if (cudaMalloc(&device, N * sizeof(int)) != cudaSuccess ||
        cudaHostAlloc(&host, N * sizeof(int), 0) != cudaSuccess)
        return -1;
    *(int *)host = -7;
    cudaMemsetAsync(device, 0, N * sizeof(int), work);
    for (int i = 0; i < 5; i++) emu_launch("add_one", work, 1, N, add_one, (int *)device);
    cudaEventRecord(ready, work);
    if (guarded) cudaStreamWaitEvent(down, ready, 0);
    cudaMemcpyAsync(host, device, N * sizeof(int), cudaMemcpyDeviceToHost, down);
    if (guarded) cudaStreamSynchronize(down);
    found = *(int *)host;
    cudaFree(device); /* waits for all work */
    cudaFreeHost(host);
    cuda_on_cpu_streams(EMU_EARLY);
    return found;
}

/* ---- memory, in a build with AddressSanitizer ---- */

#if defined(__SANITIZE_ADDRESS__)
static void probe(int *closed, const char *mine, size_t bytes, size_t elsewhere)
{
    const char *other = (const char *)
        elsewhere; /* like an access within a struct, this is not checked */
    closed[0] = __asan_address_is_poisoned(mine) || __asan_address_is_poisoned(mine + bytes - 1);
    closed[1] = __asan_address_is_poisoned(mine + bytes);
    closed[2] = __asan_address_is_poisoned(other);
}

/* A kernel may access its own device's memory only, within its allocations; the host may access
 * none. */
static void memory_is_closed(void)
{
    void *mine, *other;
    int *closed = pinned(), good;
    setenv("CUDA_ON_CPU_DEVICES", "2", 1);
    good = cudaSetDevice(1) == cudaSuccess && cudaMalloc(&other, N) == cudaSuccess &&
           cudaSetDevice(0) == cudaSuccess && cudaMalloc(&mine, N - 3) == cudaSuccess &&
           emu_launch("probe", NULL, 1, 1, probe, closed, (const char *)mine, (size_t)N - 3,
                      (size_t)other) == cudaSuccess;
    check(good && closed[0] == 0, "a kernel may touch its device's memory");
    check(good && closed[1] == 1, "not what is beyond a block of it");
    check(good && closed[2] == 1, "nor another device's");
    check(good && __asan_address_is_poisoned(mine) && __asan_address_is_poisoned(other),
          "and the host no device's");
    cudaFree(mine);
    cudaFree(other);
    cudaFreeHost(closed);
}
#endif

/* ---- pointers ---- */

/* Copies in a wrong direction and beyond the end; kernels with a host address, an address of
 * another device, and freed memory; an event of another device's stream. */
static void addresses_are_checked(void)
{
    int own[N] = {}, *host = pinned();
    void *mine, *other;
    static cudaStream_t here, there; /* kept, as in a program */
    static cudaEvent_t event;
    setenv("CUDA_ON_CPU_DEVICES", "2", 1);
    if (cudaSetDevice(1) != cudaSuccess || cudaMalloc(&other, sizeof own) != cudaSuccess ||
        cudaStreamCreate(&there) != cudaSuccess || cudaSetDevice(0) != cudaSuccess ||
        cudaMalloc(&mine, sizeof own) != cudaSuccess || cudaStreamCreate(&here) != cudaSuccess ||
        cudaEventCreateWithFlags(&event, 0) != cudaSuccess)
        return check(0, "two devices");
    check(cudaMemcpyAsync(mine, own, sizeof own, cudaMemcpyHostToDevice, here) == cudaSuccess &&
              cudaMemcpyAsync(other, mine, sizeof own, cudaMemcpyDeviceToDevice, here) ==
                  cudaSuccess &&
              cudaMemcpyAsync(host, other, sizeof own, cudaMemcpyDeviceToHost, here) ==
                  cudaSuccess &&
              cudaMemsetAsync(mine, 0, sizeof own, here) == cudaSuccess,
          "copies that go where they say");
    check(cudaMemcpyAsync(own, mine, sizeof own, cudaMemcpyHostToDevice, here) ==
                  cudaErrorInvalidValue &&
              cudaMemcpyAsync(mine, host, sizeof own, cudaMemcpyDeviceToDevice, here) ==
                  cudaErrorInvalidValue,
          "a copy that goes another way");
    check(cudaMemcpyAsync(mine, own, sizeof own + 1, cudaMemcpyHostToDevice, here) ==
                  cudaErrorInvalidValue &&
              cudaMemcpyAsync(host + 1, mine, sizeof own, cudaMemcpyDeviceToHost, here) ==
                  cudaErrorInvalidValue &&
              cudaMemsetAsync((char *)mine + 4, 0, sizeof own, here) == cudaErrorInvalidValue,
          "and one that goes too far");
    check(emu_launch("add_one", here, 1, N, add_one, (int *)mine) == cudaSuccess &&
              emu_launch("add_one", here, 1, N, add_one, host) == cudaSuccess,
          "a kernel reaches its device, and the host's page-locked memory");
    caught(emu_launch("add_one", here, 1, N, add_one, own), "argument 1", "not the host's other");
    caught(emu_launch("add_one", here, 1, N, add_one, (int *)other), "argument 1",
           "and no other device's");
    check(cudaEventRecord(event, here) == cudaSuccess &&
              cudaEventRecord(event, there) == cudaErrorInvalidResourceHandle,
          "an event stays on its device");
    check(cudaFree(mine) == cudaSuccess && cudaFree(mine) == cudaErrorInvalidValue &&
              cudaFree(host) == cudaErrorInvalidValue && cudaFree(NULL) == cudaSuccess,
          "memory is freed once, by its own function");
    caught(emu_launch("add_one", here, 1, N, add_one, (int *)mine), "argument 1", "then gone");
    cudaFree(other);
    cudaFreeHost(host);
}

/* ---- faulty kernels ---- */

static void no_barrier(int *y, const int *x)
{
    PL_SHARED(int, s, N);
    int i = (int)threadIdx.x;
    s[i] = x[i];
    y[i] = s[i ^ 32];
}

static void no_second_barrier(int *y, const int *x)
{
    PL_SHARED(int, s, N);
    int i = (int)threadIdx.x;
    for (int k = 0; k < 2; k++) {
        s[i] = x[i] + k;
        __syncthreads();
        y[i] = s[N - 1 - i]; /* and the next iteration writes it at once */
    }
}

static void same_place(int *)
{
    PL_SHARED(int, s, 1);
    s[0] = (int)threadIdx.x;
}

static void across_warps(int *y)
{
    PL_SHARED(int, s, N);
    int i = (int)threadIdx.x;
    s[i] = i;
    __syncwarp();
    y[i] = s[(i + 32) % N];
}

static void shuffle_between(int *y)
{
    PL_SHARED(int, s, N);
    int i = (int)threadIdx.x, lane = i % 32;
    s[i] = i;
    y[i] = __shfl_xor_sync(~0u, i, 1); /* the shuffle synchronizes lanes, not memory */
    y[i] += s[i - lane + (lane + 1) % 32];
}

static void unwritten(int *y)
{
    PL_SHARED(int, s, N);
    if (threadIdx.x < N / 2) s[threadIdx.x] = 1;
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x];
}

static void beyond(int *y)
{
    PL_SHARED(int, s, N - 1);
    s[threadIdx.x] = 1;
    y[threadIdx.x] = 1;
}

static void left_behind(int *y)
{
    if (threadIdx.x < 7) return;
    __syncthreads();
    y[threadIdx.x] = 1;
}

static void half_a_warp(int *y)
{
    int v = (int)threadIdx.x;
    if (threadIdx.x % 32 < 16)
        v += __shfl_xor_sync(~0u, v, 1); /* the mask names lanes that do not arrive */
    y[threadIdx.x] = v;
}

static void between_words(int *y)
{
    PL_SHARED(uint32_t, s, 32 * 4 + 1);
    uint32_t r[4];
    for (int i = (int)threadIdx.x; i < 32 * 4 + 1; i += 32) s[i] = 0;
    __syncthreads();
    emu_load_matrices(r, s, (int)threadIdx.x * 4 + 1, 0);
    y[threadIdx.x] = (int)r[0];
}

struct alignas(16) four {
    int at[4];
};
static void in_fours(int *y, const int *x)
{
    *PL_WIDE(struct four, y + 4 * threadIdx.x) = *PL_WIDE(const struct four, x + 4 * threadIdx.x);
}

int main(void)
{
    int *x = pinned(), *y = pinned();
    static const unsigned orders[] = { 0, 1, 7, 12345 };
    static const long whens[] = { EMU_EARLY, EMU_LATE, 1, 2, 3 };
    for (int i = 0; i < N; i++) x[i] = i * i;
    for (unsigned order : orders) {
        int good = 1;
        emu_order = order;
        good &= emu_launch("reverse", NULL, 1, N, reverse, y, x) == cudaSuccess;
        for (int i = 0; i < N; i++) good &= y[i] == x[N - 1 - i];
        check(good, "a barrier orders what is shared");
        good = emu_launch("sums", NULL, 1, N, sums, y, x) == cudaSuccess;
        for (int i = 0; i < N; i++) good &= y[i] == (i < 32 ? 10416 : 74928) + 16;
        check(good, "shuffles and votes");
        good = emu_launch("neighbours", NULL, 1, N, neighbours, y) == cudaSuccess && !emu_breach();
        for (int i = 0; i < N; i++) good &= y[i] == i - i % 32 + (i % 32 + 1) % 32;
        check(good, "a warp's own barrier is enough within it");
        memset(y, 0, N * sizeof *y);
        good = emu_launch("count", NULL, dim3(3, 2, 2), dim3(4, 2), count, y) == cudaSuccess;
        check(good && y[0] == 12 && y[1] == 4 * 8,
              "a grid of three sides, atomics, a vote of the block");

        memset(y, 0, N * sizeof *y);
        good = emu_launch("matrices", NULL, 1, 32, matrices, y) == cudaSuccess;
        for (int i = 0; i < 32; i++) good &= y[i] == 16;
        check(good, "fragments of matrices, and their product");
        caught(emu_launch("between_words", NULL, 1, 32, between_words, y),
               "no multiple of 16 bytes", "a row of a matrix that begins between");

        caught(emu_launch("no_barrier", NULL, 1, N, no_barrier, y, x), "shared s[",
               "a missing barrier");
        caught(emu_launch("no_second_barrier", NULL, 1, N, no_second_barrier, y, x), "race",
               "a missing barrier before the next round");
        caught(emu_launch("same_place", NULL, 1, N, same_place, y), "race",
               "two threads write one place");
        caught(emu_launch("across_warps", NULL, 1, N, across_warps, y), "shared s",
               "a warp's barrier is not enough across warps");
        caught(emu_launch("shuffle_between", NULL, 1, N, shuffle_between, y), "race",
               "a shuffle is no barrier");
        caught(emu_launch("unwritten", NULL, 1, N, unwritten, y), "before it was written",
               "an unwritten read");
        caught(emu_launch("beyond", NULL, 1, N, beyond, y), "it has 63 elements", "out of bounds");
        caught(emu_launch("left_behind", NULL, 1, N, left_behind, y), "7 have left",
               "a barrier not all reach");
        good = emu_launch("in_fours", NULL, 1, N / 4, in_fours, y, x) == cudaSuccess;
        check(good && !memcmp(y, x, N * sizeof *y), "four at once");
        caught(emu_launch("in_fours", NULL, 1, N / 4 - 1, in_fours, y, x + 1), "4 beyond",
               "four at once from one beyond");
        caught(emu_launch("in_fours", NULL, 1, N / 4 - 1, in_fours, y + 2, x), "8 beyond",
               "four at once to two beyond");
        caught(emu_launch("half_a_warp", NULL, 1, N, half_a_warp, y), "warp operation",
               "a shuffle not all reach");
    }
    check(orders_with(N, y, orders, 1, after_the_last_block, N, 1) == 1 &&
              orders_with(N, y, orders, 4, after_the_last_block, N, 1) == 1,
          "blocks that wait for each other are right in one order alone");
    check(orders_with(N + 1, y, orders, 4, through_memory, 1, N) < 4,
          "so are warps that meet in the device's memory");
    emu_order = 0;
    for (long when : whens) check(two_streams(when, 1) == 5, "an event orders two streams");
    check(two_streams(EMU_LATE, 0) == -7, "without a wait the host finds what was there before");
    addresses_are_checked();
#if defined(__SANITIZE_ADDRESS__)
    memory_is_closed();
#endif
    cudaFreeHost(x);
    cudaFreeHost(y);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
