/* loop.c - the network's thread: posted functions run in order, timers fire in the order of their
 * times, a timer that starts itself again delays no other, and a helper thread's work ends on the
 * loop. */
#include "net/loop/loop.h"
#include "test/unit/unit.h"

#include <pthread.h>

#define JOBS 100
#define TIMERS 20

static struct loop *l;
static int order[JOBS], count;
static struct timer timers[TIMERS];
static pthread_t loop_thread;

static int set_up(void **state)
{
    count = 0;
    memset(timers, 0, sizeof timers);
    return loop_open(&l, NULL);
}

static int tear_down(void **state)
{
    loop_close(l);
    return 0;
}

static void note(void *context) { order[count++] = (int)(intptr_t)context; }
static void nothing(void *context) { (void)context; }

static void posted_functions_run_in_order(void **state)
{
    assert_false(loop_is_here(l));
    for (intptr_t i = 0; i < JOBS; i++) assert_int_equal(loop_post(l, note, (void *)i), PL_OK);
    loop_call(l, nothing, NULL); /* comes back after all that was posted before */
    assert_int_equal(count, JOBS);
    for (int i = 0; i < JOBS; i++) assert_int_equal(order[i], i);
}

static void fire(void *context)
{
    const struct timer *t = context;
    assert_true(loop_is_here(l));
    assert_false(t->is_running);
    order[count++] = (int)(t - timers);
}

/* Begun in a mixed order; every third is stopped, and number 1 is moved to the end. */
static void start_timers(void *context)
{
    for (int i = 0; i < TIMERS; i++) {
        int k = i * 7 % TIMERS;
        timer_start(l, &timers[k], 0.002 * k, fire, &timers[k]);
    }
    for (int i = 0; i < TIMERS; i += 3) timer_stop(&timers[i]);
    timer_start(l, &timers[1], 0.002 * TIMERS, fire, &timers[1]);
}

static void is_moved_one_running(void *context) { *(int *)context = timers[1].is_running; }

static void timers_fire_in_the_order_of_their_times(void **state)
{
    int running = 1, expected = 0;
    loop_call(l, start_timers, NULL);
    while (running) loop_call(l, is_moved_one_running, &running);
    for (int i = 2; i < TIMERS; i++)
        if (i % 3) assert_int_equal(order[expected++], i);
    assert_int_equal(order[expected++], 1);
    assert_int_equal(count, expected);
}

static struct timer again;
static int is_stopped;

static void on_again(void *context)
{
    count++;
    if (!is_stopped) timer_start(l, &again, 0, on_again, context);
}

static void stop_again(void *context) { is_stopped = 1; }

static void a_timer_that_starts_itself_leaves_the_loop_to_others(void **state)
{
    int waited = 0;
    is_stopped = 0;
    loop_call(l, on_again, NULL);
    for (int i = 0; i < 3; i++) loop_call(l, nothing, NULL);
    waited = count;
    loop_call(l, stop_again, NULL);
    assert_in_range(waited, 1, count);
}

struct late {
    struct loop_request request;
    struct timer timer;
};

static void end_late(void *context) { loop_end(context, PL_EAGAIN); }

static void begin_late(void *context)
{
    struct late *w = context;
    timer_start(l, &w->timer, 0.02, end_late, &w->request);
}

static void a_thread_waits_until_its_request_is_ended(void **state)
{
    struct late w = { .request.loop = NULL };
    assert_int_equal(loop_wait(l, &w.request, begin_late, &w), PL_EAGAIN);
    assert_int_equal(w.timer.is_running, 0);
}

struct task {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int worked_elsewhere, done_here;
};

static void work(void *context)
{
    struct task *t = context;
    t->worked_elsewhere = !pthread_equal(pthread_self(), loop_thread);
}

static void done(void *context)
{
    struct task *t = context;
    pthread_mutex_lock(&t->lock);
    t->done_here = loop_is_here(l);
    pthread_cond_signal(&t->changed);
    pthread_mutex_unlock(&t->lock);
}

static void begin_work(void *context)
{
    loop_thread = pthread_self();
    assert_int_equal(loop_work(l, work, done, context), PL_OK);
}

static void work_is_completed_on_the_loop(void **state)
{
    struct task t = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
    loop_post(l, begin_work, &t);
    pthread_mutex_lock(&t.lock);
    while (!t.done_here) pthread_cond_wait(&t.changed, &t.lock);
    pthread_mutex_unlock(&t.lock);
    assert_true(t.worked_elsewhere);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(posted_functions_run_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(timers_fire_in_the_order_of_their_times, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_timer_that_starts_itself_leaves_the_loop_to_others,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_thread_waits_until_its_request_is_ended, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(work_is_completed_on_the_loop, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
