/* scheduler.c - the virtual clock, the queue of events, and threads of which one runs at a time.
 *
 *   while something can happen:
 *       a thread is ready:   the seed picks one; it runs until it waits
 *       none is ready:       the clock jumps to the next event
 *
 * A thread is a coroutine with a stack of its own (ucontext.h), all on one thread of the system. So
 * each run of a seed takes the same turns, and a thread of a crashed computer is simply never
 * resumed. */
#include "simulation.h"
#include "threads.h"

#include <errno.h>
#include <setjmp.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>

#define STACK (512u << 10) /* the deepest calls are RSA and msgpack: 100 KiB */
#define THREADS_MAX 512    /* alive at once: each computer has a handful */
/* Processor time of one turn of a thread, at most; the mean is half of it. */
#define TURN (20 * SIM_US)

/* --- events ----------------------------------------------------------------------------------- */

struct event {
    uint64_t when, number;
    sim_event_fn *fn;
    void *context;
    uint64_t argument;
};

static struct event *heap; /* heap[1] is the earliest */
static size_t heap_count, heap_capacity;
static uint64_t now, event_number;
static int is_stopping;

struct sim_random sim_order;

uint64_t sim_now(void) { return now; }

/* Each read advances the clock, so a thread that waits by reading it makes progress. */
uint64_t sim_read_clock(void) { return now += SIM_US; }

static int is_before(const struct event *a, const struct event *b)
{
    return a->when < b->when || (a->when == b->when && a->number < b->number);
}

void sim_at(uint64_t when, sim_event_fn *fn, void *context, uint64_t argument)
{
    struct event e = { when > now ? when : now, event_number++, fn, context, argument };
    size_t i;
    if (heap_count + 2 > heap_capacity) {
        heap_capacity = heap_capacity ? 2 * heap_capacity : 1024;
        heap = __real_realloc(heap, heap_capacity * sizeof *heap);
        if (!heap) abort();
    }
    for (i = ++heap_count; i > 1 && is_before(&e, &heap[i / 2]); i /= 2) heap[i] = heap[i / 2];
    heap[i] = e;
}

void sim_after(uint64_t delay, sim_event_fn *fn, void *context, uint64_t argument)
{
    sim_at(now + delay, fn, context, argument);
}

static struct event take_first(void)
{
    struct event first = heap[1], last = heap[heap_count--];
    size_t i = 1, child;
    while ((child = 2 * i) <= heap_count) {
        if (child < heap_count && is_before(&heap[child + 1], &heap[child])) child++;
        if (!is_before(&heap[child], &last)) break;
        heap[i] = heap[child];
        i = child;
    }
    heap[i] = last;
    return first;
}

/* --- threads ---------------------------------------------------------------------------------- */

enum thread_state { THREAD_READY, THREAD_WAITING, THREAD_OVER };

struct sim_thread {
    ucontext_t first; /* how it begins */
    jmp_buf context;  /* where it left, afterwards */
    int has_begun;
    void *stack;
    struct sim_peer *peer;
    unsigned boot;
    enum thread_state state;
    const void *waits_for;
    uint64_t wait; /* number of this wait: a timeout of an earlier one is stale */
    int was_late;
    sim_thread_fn *fn;
    void *argument, *result;
    int error;        /* its errno */
    const void *loop; /* that it runs: loop.c's thread-local variable */
};

static struct sim_thread *threads[THREADS_MAX];
static size_t thread_count;
static struct sim_thread *running;
static jmp_buf outside;
static void *free_stacks[THREADS_MAX];
static size_t free_stack_count;
static int has_ended; /* some thread is over, and still in the list */

struct sim_thread *sim_thread_here(void) { return running; }
struct sim_peer *sim_peer_here(void) { return running ? running->peer : NULL; }

static void leave(void)
{
    struct sim_thread *t = running;
    t->error = errno;
    if (!_setjmp(t->context)) _longjmp(outside, 1);
    errno = t->error;
}

static void begin(void)
{
    struct sim_thread *t = running;
    t->result = t->fn(t->argument);
    t->state = THREAD_OVER;
    has_ended = 1;
    sim_wake(t, 1);
    leave();
}

struct sim_thread *sim_thread_new(struct sim_peer *p, sim_thread_fn *fn, void *argument)
{
    struct sim_thread *t = __real_calloc(1, sizeof *t);
    if (!t || thread_count == THREADS_MAX) abort();
    t->peer = p;
    t->boot = p->boots;
    t->fn = fn;
    t->argument = argument;
    if (free_stack_count) t->stack = free_stacks[--free_stack_count];
    else
        t->stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (t->stack == MAP_FAILED) abort();
    /* below the stack lies an inaccessible page */
    mprotect(t->stack, 4096, PROT_NONE);
    getcontext(&t->first);
    t->first.uc_stack.ss_sp = (char *)t->stack + 4096;
    t->first.uc_stack.ss_size = STACK - 4096;
    makecontext(&t->first, begin, 0);
    threads[thread_count++] = t;
    return t;
}

int sim_thread_is_over(const struct sim_thread *t) { return t->state == THREAD_OVER; }
void *sim_thread_result(const struct sim_thread *t) { return t->result; }

static void on_late(void *context, uint64_t wait)
{
    struct sim_thread *t = context;
    if (t->state != THREAD_WAITING || t->wait != wait) return;
    t->was_late = 1;
    t->state = THREAD_READY;
}

int sim_wait(const void *on, uint64_t until)
{
    struct sim_thread *t = running;
    if (!t) sim_fail("an event of the simulation waits");
    t->waits_for = on;
    t->was_late = 0;
    t->wait++;
    t->state = THREAD_WAITING;
    if (until != SIM_FOR_EVER) sim_at(until, on_late, t, t->wait);
    leave();
    return t->was_late;
}

void sim_wake(const void *on, int all)
{
    struct sim_thread *waiting[THREADS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < thread_count; i++)
        if (threads[i]->state == THREAD_WAITING && threads[i]->waits_for == on)
            waiting[n++] = threads[i];
    if (!n) return;
    if (!all) {
        waiting[sim_random_below(&sim_order, n)]->state = THREAD_READY;
        return;
    }
    while (n) waiting[--n]->state = THREAD_READY;
}

void sim_yield(void)
{
    if (running) leave();
}

void sim_threads_end(struct sim_peer *p)
{
    p->boots++;
    has_ended = 1;
    for (size_t i = 0; i < thread_count; i++)
        if (threads[i]->peer == p) threads[i]->state = THREAD_OVER;
    if (running && running->peer == p) leave();
}

/* Threads that are over leave the list. Another may still join one and ask for its result, so their
 * structs stay until the process ends. */
static void sweep_threads(void)
{
    size_t kept = 0;
    for (size_t i = 0; i < thread_count; i++)
        if (threads[i]->state != THREAD_OVER) threads[kept++] = threads[i];
        else free_stacks[free_stack_count++] = threads[i]->stack;
    thread_count = kept;
    has_ended = 0;
}

static struct sim_thread *pick_ready(void)
{
    struct sim_thread *ready[THREADS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < thread_count; i++)
        if (threads[i]->state == THREAD_READY && threads[i]->peer->stopped_until <= now)
            ready[n++] = threads[i];
    return n ? ready[n == 1 ? 0 : sim_random_below(&sim_order, n)] : NULL;
}

/* swapcontext asks the kernel for the signal mask at each turn, jumps do not. */
static void jump_to(struct sim_thread *t)
{
    if (_setjmp(outside)) return;
    if (t->has_begun) _longjmp(t->context, 1);
    t->has_begun = 1;
    setcontext(&t->first);
}

static void resume(struct sim_thread *t)
{
    now += (uint64_t)((double)sim_random_below(&sim_order, TURN) * t->peer->slowness);
    running = t;
    loop_here_set(t->loop);
    jump_to(t);
    t->loop = loop_here();
    loop_here_set(NULL);
    running = NULL;
}

void sim_stop(void) { is_stopping = 1; }

void sim_run(uint64_t until)
{
    is_stopping = 0;
    while (!is_stopping) {
        struct sim_thread *t;
        while (heap_count && heap[1].when <= now && !is_stopping) {
            struct event e = take_first();
            e.fn(e.context, e.argument);
        }
        if (is_stopping) break;
        if (has_ended) sweep_threads();
        if ((t = pick_ready())) {
            resume(t);
            continue;
        }
        if (!heap_count && !thread_count) break;
        if (!heap_count) sim_fail("nobody can go on: all threads wait for each other");
        if (heap[1].when > until) break;
        if (heap[1].when > now) now = heap[1].when;
    }
}
