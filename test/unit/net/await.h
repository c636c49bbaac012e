/* await.h - lets a test's own thread wait for events on the network's threads. Included by one file
 * of each test program. */
#ifndef PL_TEST_AWAIT_H
#define PL_TEST_AWAIT_H

#include <pthread.h>
#include <time.h>

static pthread_mutex_t await_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t await_changed = PTHREAD_COND_INITIALIZER;

static inline void note(int *flag)
{
    pthread_mutex_lock(&await_lock);
    ++*flag;
    pthread_cond_broadcast(&await_changed);
    pthread_mutex_unlock(&await_lock);
}

/* The events noted so far. */
static inline int noted(const int *flag)
{
    int n;
    pthread_mutex_lock(&await_lock);
    n = *flag;
    pthread_mutex_unlock(&await_lock);
    return n;
}

/* Until the flag has been noted n times; 0 after limit_s seconds. */
static inline int await_noted(const int *flag, int n, double limit_s)
{
    struct timespec until;
    int rc = 0, good;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)limit_s;
    until.tv_nsec += (long)((limit_s - (double)(time_t)limit_s) * 1e9);
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    pthread_mutex_lock(&await_lock);
    while (*flag < n && !rc) rc = pthread_cond_timedwait(&await_changed, &await_lock, &until);
    good = *flag >= n;
    pthread_mutex_unlock(&await_lock);
    return good;
}

#endif
