/* loop.c - libuv's loop on a thread of its own, with timers and a way in for other threads.
 *
 * A libuv timer's memory must stay until its close callback. Ours lie in their owners' structs,
 * which come and go: so they are kept in a heap here, under a single libuv timer, and can
 * be dropped at any moment. Other threads append to a list of jobs and wake the loop with one
 * uv_async_t. */
#include "loop.h"
#include "loop_uv.h"

#include <assert.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

struct loop {
    uv_loop_t uv;
    uv_async_t wake;
    uv_timer_t alarm;
    pthread_t thread;
    pthread_mutex_t lock;   /* guards jobs, last, closing, and the requests' ends */
    pthread_cond_t changed; /* a request has ended */
    struct loop_job *jobs, **last;
    int closing;
    struct timer *first; /* the earliest: the heap's root */
    uint64_t round;      /* counts calls of run_timers */
    int runs_timers;
    uint8_t *scratch;
};

uv_loop_t *loop_uv(struct loop *l) { return &l->uv; }

uint8_t *loop_scratch(struct loop *l) { return l->scratch; }

double loop_now(const struct loop *l) { return (double)uv_now(&l->uv) * 1e-3; }

static _Thread_local const struct loop *mine; /* the loop that this thread runs */

int loop_is_here(const struct loop *l) { return mine == l; }

/* --- timers ----------------------------------------------------------------------------------- */

/* A pairing heap [Fredman, Sedgewick, Sleator, Tarjan 1986]. The timers are its nodes, so starting
 * one needs no memory and cannot fail: most callers have no other way to go on than their next
 * timer. */

/* Merges two heaps, either of which may be NULL: the later root becomes the first child of the
 * earlier one. */
static struct timer *merge_heaps(struct timer *a, struct timer *b)
{
    if (!a || !b) return a ? a : b;
    if (b->at < a->at) {
        struct timer *earlier = b;
        b = a;
        a = earlier;
    }
    b->next = a->child;
    if (b->next) b->next->link = &b->next;
    b->link = &a->child;
    a->child = b;
    return a;
}

/* Siblings become one heap: in pairs first, then the pairs, which makes it O(log n) on average. */
static struct timer *merge_children(struct timer *first)
{
    struct timer *pairs = NULL, *root = NULL, *next;
    for (; first; first = next) {
        struct timer *second = first->next, *pair;
        next = second ? second->next : NULL;
        pair = merge_heaps(first, second);
        pair->next = pairs;
        pairs = pair;
    }
    for (; pairs; pairs = next) {
        next = pairs->next;
        pairs->next = NULL;
        root = merge_heaps(root, pairs);
    }
    return root;
}

static void set_first(struct loop *l, struct timer *t)
{
    l->first = t;
    if (t) t->link = &l->first;
}

static void on_alarm(uv_timer_t *alarm);

/* The one libuv timer follows the heap's first. Rounded up: a timer comes up to a millisecond late,
 * never early. A callback that came early would start its timer again for the rest of the time, and
 * would be called again and again, since the loop's clock stands still meanwhile. */
static void set_alarm(struct loop *l)
{
    double wait;
    if (!l->first) {
        uv_timer_stop(&l->alarm);
        return;
    }
    if (l->runs_timers) return; /* it is set when they have run */
    wait = (l->first->at - loop_now(l)) * 1e3;
    uv_timer_start(&l->alarm, on_alarm, wait > 0 ? (uint64_t)ceil(wait) : 0, 0);
}

/* A timer that is started meanwhile and is due at once comes after the sockets: its callback may
 * start it again and again. libuv would call its own timer again before it looks at a socket, so we
 * wake ourselves in its place. */
static void run_timers(struct loop *l)
{
    double now = loop_now(l);
    l->round++;
    l->runs_timers = 1;
    while (l->first && l->first->at <= now && l->first->round != l->round) {
        struct timer *t = l->first;
        timer_stop(t);
        t->fn(t->context); /* t may be gone now */
    }
    l->runs_timers = 0;
    if (l->first && l->first->at <= now) uv_async_send(&l->wake);
    else set_alarm(l);
}

static void on_alarm(uv_timer_t *alarm) { run_timers(alarm->data); }

void timer_start(struct loop *l, struct timer *t, double in_s, loop_fn *fn, void *context)
{
    timer_stop(t);
    *t = (struct timer){ .fn = fn,
                         .context = context,
                         .at = loop_now(l) + in_s,
                         .is_running = 1,
                         .round = l->round,
                         .loop = l };
    set_first(l, merge_heaps(l->first, t));
    if (l->first == t) set_alarm(l);
}

void timer_stop(struct timer *t)
{
    struct loop *l = t->loop;
    if (!t->is_running) return;
    t->is_running = 0;
    *t->link = t->next;
    if (t->next) t->next->link = t->link;
    set_first(l, merge_heaps(l->first, merge_children(t->child)));
}

/* --- other threads ---------------------------------------------------------------------------- */

/* Taken off under the lock, run without it: a job may post the next. */
static void run_jobs(struct loop *l)
{
    struct loop_job *job, *next;
    pthread_mutex_lock(&l->lock);
    job = l->jobs;
    l->jobs = NULL;
    l->last = &l->jobs;
    pthread_mutex_unlock(&l->lock);
    for (; job; job = next) {
        const struct loop_job now = *job; /* a submitted one may be gone once its fn runs */
        next = job->next;
        if (job->is_allocated) free(job);
        now.fn(now.context);
    }
}

static void on_wake(uv_async_t *async)
{
    struct loop *l = async->data;
    int closing;
    run_jobs(l);
    run_timers(l);
    pthread_mutex_lock(&l->lock);
    closing = l->closing && !l->jobs;
    pthread_mutex_unlock(&l->lock);
    if (!closing) return;
    uv_close((uv_handle_t *)&l->wake, NULL);
    uv_close((uv_handle_t *)&l->alarm, NULL);
}

static void append_job(struct loop *l, const struct loop_job *filled, struct loop_job *job)
{
    pthread_mutex_lock(&l->lock);
    *job = *filled;
    *l->last = job;
    l->last = &job->next;
    uv_async_send(&l->wake);
    pthread_mutex_unlock(&l->lock);
}

int loop_post(struct loop *l, loop_fn *fn, void *context)
{
    struct loop_job *job = malloc(sizeof *job);
    if (!job) return PL_ENOMEM;
    append_job(l, &(struct loop_job){ .fn = fn, .context = context, .is_allocated = 1 }, job);
    return PL_OK;
}

int loop_wait(struct loop *l, struct loop_request *r, loop_fn *begin, void *context)
{
    r->loop = l;
    append_job(l, &(struct loop_job){ .fn = begin, .context = context }, &r->job);
    pthread_mutex_lock(&l->lock);
    while (!r->is_over) pthread_cond_wait(&l->changed, &l->lock);
    pthread_mutex_unlock(&l->lock);
    return r->status;
}

/* All that sleep wake, and each looks at its own request: there are few. */
void loop_end(struct loop_request *r, int status)
{
    struct loop *l = r->loop; /* r is gone once its thread wakes */
    pthread_mutex_lock(&l->lock);
    r->status = status;
    r->is_over = 1;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->lock);
}

struct call {
    loop_fn *fn;
    void *context;
    struct loop_request request;
};

static void run_call(void *context)
{
    struct call *c = context;
    c->fn(c->context);
    loop_end(&c->request, PL_OK);
}

/* The caller sleeps until the loop has run it; on the loop's own thread it would never wake, so the
 * call runs at once. */
void loop_call(struct loop *l, loop_fn *fn, void *context)
{
    struct call c = { .fn = fn, .context = context };
    if (loop_is_here(l)) fn(context);
    else loop_wait(l, &c.request, run_call, &c);
}

struct work {
    uv_work_t req;
    loop_fn *work, *done;
    void *context;
};

static void on_work(uv_work_t *req)
{
    struct work *w = req->data;
    w->work(w->context);
}

static void after_work(uv_work_t *req, int status)
{
    struct work *w = req->data;
    (void)status; /* we never cancel */
    w->done(w->context);
    free(w);
}

/* libuv's pool of four threads; `done` comes back on the loop. */
int loop_work(struct loop *l, loop_fn *work, loop_fn *done, void *context)
{
    struct work *w = malloc(sizeof *w);
    if (!w) return PL_ENOMEM;
    *w = (struct work){ .work = work, .done = done, .context = context };
    w->req.data = w;
    if (!uv_queue_work(&l->uv, &w->req, on_work, after_work)) return PL_OK;
    free(w);
    return PL_ENOMEM;
}

/* --- life ------------------------------------------------------------------------------------- */

static void *run(void *context)
{
    struct loop *l = context;
    mine = l;
    uv_run(&l->uv, UV_RUN_DEFAULT);
    return NULL;
}

static void free_loop(struct loop *l)
{
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->lock);
    free(l->scratch);
    free(l);
}

int loop_open(struct loop **out, struct pl_err *err)
{
    struct loop *l = calloc(1, sizeof *l);
    sigset_t all, before;
    int rc;
    *out = NULL;
    if (!l || !(l->scratch = malloc(LOOP_SCRATCH))) {
        free(l);
        return pl_fail(err, PL_ENOMEM, "network: out of memory");
    }
    l->last = &l->jobs;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    if (uv_loop_init(&l->uv)) goto no_loop;
    if (uv_async_init(&l->uv, &l->wake, on_wake)) goto no_wake;
    uv_timer_init(&l->uv, &l->alarm);
    l->wake.data = l->alarm.data = l;
    uv_unref((uv_handle_t *)&l->alarm);
    /* Signals are handled by the program's own threads; SIGPIPE is ignored. */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    rc = pthread_create(&l->thread, NULL, run, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!rc) {
        *out = l;
        return PL_OK;
    }
    uv_close((uv_handle_t *)&l->wake, NULL);
    uv_close((uv_handle_t *)&l->alarm, NULL);
    uv_run(&l->uv, UV_RUN_DEFAULT); /* until they are closed */
no_wake:
    uv_loop_close(&l->uv);
no_loop:
    free_loop(l);
    return pl_fail(err, PL_EIO, "network: the system has no thread or descriptor left");
}

void loop_close(struct loop *l)
{
    if (!l) return;
    assert(!loop_is_here(l));
    pthread_mutex_lock(&l->lock);
    l->closing = 1;
    uv_async_send(&l->wake);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    assert(!l->first);
    uv_loop_close(&l->uv);
    free_loop(l);
}
