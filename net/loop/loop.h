/* loop.h - the network's thread: one event loop, timers, and a way in for other threads. Everything
 * of net/ runs on this thread; training runs on others and never waits here unless it asks to. */
#ifndef PL_LOOP_H
#define PL_LOOP_H

#include "ref/base.h"

struct loop;
typedef void loop_fn(void *context);

/* Starts the thread. */
int loop_open(struct loop **l, struct pl_err *err);
/* Stops and joins it, from another thread; jobs still queued are run first. Everything on the loop
 * must have been closed before. NULL may be closed. */
void loop_close(struct loop *l);

/* From any thread: fn runs on the loop's thread, soon, in the order of posting. PL_ENOMEM or
 * PL_OK. */
int loop_post(struct loop *l, loop_fn *fn, void *context);
/* A job that lies in the memory of the thread that waits for it cannot fail; it may be gone when fn
 * is called. */
struct loop_job {
    loop_fn *fn; /* all private */
    void *context;
    int is_allocated;
    struct loop_job *next;
};
/* A request for which a thread sleeps until the loop's thread has ended it: at once, or long after
 * `begin` has returned. It lies on the stack of the thread that sleeps, zero-initialised, and is
 * gone when it has ended. */
struct loop_request {
    struct loop *loop; /* all private */
    struct loop_job job;
    int status, is_over;
};
/* Runs begin(context) on the loop's thread, and returns the status that the request ends with. The
 * wait has no limit: whatever ends the request must have one. */
int loop_wait(struct loop *l, struct loop_request *r, loop_fn *begin, void *context);
void loop_end(struct loop_request *r, int status); /* on the loop's thread, once */
/* From any thread: runs fn on the loop's thread and returns when it has. On that thread: at
 * once. */
void loop_call(struct loop *l, loop_fn *fn, void *context);
/* From the loop's thread: `work` runs on a helper thread (encoding, hashing: anything longer than a
 * millisecond), then `done` on the loop's. PL_ENOMEM or PL_OK. */
int loop_work(struct loop *l, loop_fn *work, loop_fn *done, void *context);
int loop_is_here(const struct loop *l); /* 1 on the loop's thread */

/* Monotonic seconds, as of this turn of the loop. */
double loop_now(const struct loop *l);

/* A timer lies in its owner's struct, zero-initialised; only the loop's thread touches it. It fires
 * once; a running one that is started again moves. It is stopped when fn is called. */
struct timer {
    loop_fn *fn;
    void *context;
    double at;      /* s; private from here */
    int is_running; /* in the loop's heap */
    uint64_t round; /* of callbacks, in which it was started */
    struct loop *loop;
    /* Its place in a heap whose nodes are the timers themselves: its first child, the next child of
     * its parent, and the pointer that leads here. */
    struct timer *child, *next, **link;
};
/* Needs no memory. */
void timer_start(struct loop *l, struct timer *t, double in_s, loop_fn *fn, void *context);
void timer_stop(struct timer *t);

#endif
