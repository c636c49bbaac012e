/* threads.c - pthreads and clocks of the code under test (ld's --wrap), on the scheduler. A mutex
 * is its owner, a condition only an address to wait for: both lie in the caller's own memory. */
#include "threads.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define WALL_BEGIN 1700000000ull /* s since 1970 when a simulation begins */
#define PREEMPTION (1.0 / 32)    /* how often a thread loses its turn as it leaves a lock */

struct mutex {
    const void *owner;
};
struct condition {
    clockid_t clock;
};
_Static_assert(sizeof(struct mutex) <= sizeof(pthread_mutex_t), "a mutex fits");
_Static_assert(sizeof(struct condition) <= sizeof(pthread_cond_t), "a condition fits");

static const char outside; /* owner of the locks that an event takes */

static const void *self(void)
{
    const void *t = sim_thread_here();
    return t ? t : &outside;
}

/* --- threads ---------------------------------------------------------------------------------- */

int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *a, void *(*fn)(void *), void *arg);
int __wrap_pthread_create(pthread_t *out, const pthread_attr_t *a, void *(*fn)(void *), void *arg)
{
    (void)a;
    *out = (pthread_t)sim_thread_new(sim_peer_here(), fn, arg);
    return 0;
}

int __wrap_pthread_join(pthread_t thread, void **result);
int __wrap_pthread_join(pthread_t thread, void **result)
{
    struct sim_thread *t = (struct sim_thread *)thread;
    while (!sim_thread_is_over(t)) sim_wait(t, SIM_FOR_EVER);
    if (result) *result = sim_thread_result(t);
    return 0;
}

/* --- locks ------------------------------------------------------------------------------------ */

int __wrap_pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a);
int __wrap_pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *a)
{
    (void)a;
    ((struct mutex *)m)->owner = NULL;
    return 0;
}

int __wrap_pthread_mutex_destroy(pthread_mutex_t *m);
int __wrap_pthread_mutex_destroy(pthread_mutex_t *m)
{
    if (((struct mutex *)m)->owner) sim_fail("a locked mutex is destroyed");
    return 0;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *m_);
int __wrap_pthread_mutex_lock(pthread_mutex_t *m_)
{
    struct mutex *m = (struct mutex *)m_;
    if (m->owner == self()) sim_fail("a thread locks a mutex that it has locked");
    while (m->owner) sim_wait(m, SIM_FOR_EVER);
    m->owner = self();
    return 0;
}

static void unlock(struct mutex *m)
{
    if (m->owner != self()) sim_fail("a thread unlocks a mutex that it has not locked");
    m->owner = NULL;
    sim_wake(m, 0);
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *m);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *m)
{
    unlock((struct mutex *)m);
    if (sim_thread_here() && sim_random_happens(&sim_order, PREEMPTION)) sim_yield();
    return 0;
}

int __wrap_pthread_cond_init(pthread_cond_t *c, const pthread_condattr_t *a);
int __wrap_pthread_cond_init(pthread_cond_t *c, const pthread_condattr_t *a)
{
    struct condition *condition = (struct condition *)c;
    condition->clock = CLOCK_REALTIME;
    if (a) pthread_condattr_getclock(a, &condition->clock);
    return 0;
}

int __wrap_pthread_cond_destroy(pthread_cond_t *c);
int __wrap_pthread_cond_destroy(pthread_cond_t *c)
{
    (void)c;
    return 0;
}

static int wait_until(pthread_cond_t *c, pthread_mutex_t *m, uint64_t until)
{
    int late;
    unlock((struct mutex *)m);
    late = sim_wait(c, until);
    __wrap_pthread_mutex_lock(m);
    return late ? ETIMEDOUT : 0;
}

int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m);
int __wrap_pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m)
{
    return wait_until(c, m, SIM_FOR_EVER);
}

int __wrap_pthread_cond_signal(pthread_cond_t *c);
int __wrap_pthread_cond_signal(pthread_cond_t *c)
{
    sim_wake(c, 0);
    return 0;
}

int __wrap_pthread_cond_broadcast(pthread_cond_t *c);
int __wrap_pthread_cond_broadcast(pthread_cond_t *c)
{
    sim_wake(c, 1);
    return 0;
}

/* --- clocks ----------------------------------------------------------------------------------- */

/* The clocks of the computer that runs; outside all threads, of a computer that is right. */
static uint64_t clock_ns(clockid_t clock)
{
    const struct sim_peer *p = sim_peer_here();
    double skew = p ? p->skew : 0;
    static uint64_t processor;
    switch (clock) {
    case CLOCK_REALTIME:
        return (uint64_t)((int64_t)(WALL_BEGIN * SIM_S + sim_read_clock()) + (int64_t)(skew * 1e9));
    /* Handlers are charged by it; each reading of it costs a little, or nothing would ever cost. */
    case CLOCK_THREAD_CPUTIME_ID: return processor += 10 * SIM_US;
    default: return SIM_S + sim_read_clock();
    }
}

int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t);
int __wrap_pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *t)
{
    uint64_t at = (uint64_t)t->tv_sec * SIM_S + (uint64_t)t->tv_nsec;
    uint64_t clock = clock_ns(((struct condition *)c)->clock);
    return wait_until(c, m, sim_now() + (at > clock ? at - clock : 0));
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
    uint64_t ns = clock_ns(clock);
    *t = (struct timespec){ (time_t)(ns / SIM_S), (long)(ns % SIM_S) };
    return 0;
}

/* Not wrapped but defined: OpenSSL asks for the time, too, when it makes a certificate. */
time_t time(time_t *out)
{
    time_t t = (time_t)(clock_ns(CLOCK_REALTIME) / SIM_S);
    if (out) *out = t;
    return t;
}

int __wrap_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
    (void)left;
    sim_wait(t, sim_now() + (uint64_t)t->tv_sec * SIM_S + (uint64_t)t->tv_nsec);
    return 0;
}

/* A file's temporary name holds it: another boot has another one. */
pid_t __wrap_getpid(void);
pid_t __wrap_getpid(void)
{
    const struct sim_peer *p = sim_peer_here();
    return p ? (pid_t)(1000 + p->boots) : 1;
}

/* Signals are the simulation's own business. */
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *before);
int __wrap_pthread_sigmask(int how, const sigset_t *set, sigset_t *before)
{
    return (void)how, (void)set, (void)before, 0;
}
