/* loop.c - the network's thread: posted functions run in order, timers fire in the order of their
 * times and never early, a timer that starts itself again delays no other, and a helper thread's
 * work ends on the loop. */
#include "net/loop/loop.h"
#include "test/unit/unit.h"

#include <pthread.h>
#include <signal.h>

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

/* What a job posts comes behind what was posted before it. */
static void post_more(void *context)
{
    note(context);
    assert_int_equal(loop_post(l, note, (void *)2), PL_OK);
    loop_call(l, note, (void *)1); /* on the loop's own thread: at once */
}

static void jobs_may_post(void **state)
{
    loop_call(l, post_more, (void *)0);
    loop_call(l, nothing, NULL);
    assert_int_equal(count, 3);
    for (int i = 0; i < 3; i++) assert_int_equal(order[i], i);
}

/* Closing the loop runs what is queued, and what that posts. */
static void queued_jobs_run_before_the_end(void **state)
{
    for (intptr_t i = 0; i < JOBS / 2; i++) assert_int_equal(loop_post(l, note, (void *)i), PL_OK);
    assert_int_equal(loop_post(l, post_more, NULL), PL_OK);
    loop_close(l);
    l = NULL;
    assert_int_equal(count, JOBS / 2 + 3);
}

static void read_mask(void *context)
{
    assert_int_equal(pthread_sigmask(SIG_BLOCK, NULL, context), 0);
}

/* The program's own threads handle signals: none interrupts the network. */
static void signals_are_for_other_threads(void **state)
{
    sigset_t here, there;
    loop_call(l, read_mask, &there);
    read_mask(&here);
    assert_int_equal(sigismember(&there, SIGTERM), 1);
    assert_int_equal(sigismember(&there, SIGINT), 1);
    assert_int_equal(sigismember(&here, SIGTERM), 0);
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

#define MANY 400

static struct timed {
    struct timer timer;
    double due;
    int fired, stopped;
} timed[MANY];
static double last_due;
static int left, early, disordered;

static void fire_timed(void *context)
{
    struct timed *t = context;
    t->fired++;
    left--;
    early += loop_now(l) < t->due;
    disordered += t->due < last_due;
    last_due = t->due;
    /* One in eight stops another that is still to come, as owners do that end each other. */
    if ((t - timed) % 8 == 0) {
        struct timed *other = &timed[(t - timed) * 5 % MANY];
        if (!other->timer.is_running) return;
        timer_stop(&other->timer);
        other->stopped = 1;
        left--;
    }
}

static void start_many(void *context)
{
    unsigned seed = 1;
    memset(timed, 0, sizeof timed);
    last_due = left = early = disordered = 0;
    for (int turn = 0; turn < 2; turn++) /* most are moved while they run */
        for (int i = turn; i < MANY; i += 1 + turn) {
            double in;
            seed = seed * 1103515245 + 12345;
            in = 0.02 + (seed >> 16 & 0xff) * 1e-4 + 0.00003;
            if (!timed[i].timer.is_running) left++;
            timer_start(l, &timed[i].timer, in, fire_timed, &timed[i]);
            timed[i].due = loop_now(l) + in;
        }
    for (int i = 3; i < MANY; i += 7) {
        timer_stop(&timed[i].timer);
        timed[i].stopped = 1;
        left--;
    }
    timer_stop(&timed[3].timer); /* stopped already: nothing happens */
}

static void read_left(void *context) { *(int *)context = left; }

static void no_timer_fires_early_or_twice(void **state)
{
    int waiting = 1;
    loop_call(l, start_many, NULL);
    while (waiting) loop_call(l, read_left, &waiting);
    for (int i = 0; i < MANY; i++) assert_int_equal(timed[i].fired, !timed[i].stopped);
    assert_int_equal(early, 0);
    assert_int_equal(disordered, 0);
}

/* The loop sleeps until the earliest: also if that is started last, or if the one before it is
 * stopped. They are started from the end of a helper's work, so nothing else wakes the loop. */
struct three {
    struct loop_request request;
    struct timer far, near, stopped;
};

static void on_first(void *context)
{
    struct three *w = context;
    assert_true(w->far.is_running);
    timer_stop(&w->far);
    loop_end(&w->request, PL_OK);
}

static void start_three(void *context)
{
    struct three *w = context;
    timer_start(l, &w->far, 1000, on_first, w);
    timer_start(l, &w->near, 0.03, on_first, w);
    timer_start(l, &w->stopped, 0.01, on_first, w);
    timer_stop(&w->stopped);
}

static void work_first(void *context)
{
    assert_int_equal(loop_work(l, nothing, start_three, context), PL_OK);
}

static void the_earliest_timer_wakes_the_loop(void **state)
{
    struct three w = { .request.loop = NULL };
    assert_int_equal(loop_wait(l, &w.request, work_first, &w), PL_OK);
    assert_int_equal(w.near.is_running, 0);
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

/* Two threads sleep; the one whose request ends first wakes alone. */
static struct late slow, quick;

static void begin_slow(void *context) { timer_start(l, &slow.timer, 0.1, end_late, &slow.request); }

static void *wait_slowly(void *context)
{
    *(int *)context = loop_wait(l, &slow.request, begin_slow, NULL);
    return NULL;
}

static void requests_end_one_by_one(void **state)
{
    pthread_t other;
    int status = PL_OK;
    memset(&slow, 0, sizeof slow);
    memset(&quick, 0, sizeof quick);
    assert_int_equal(pthread_create(&other, NULL, wait_slowly, &status), 0);
    assert_int_equal(loop_wait(l, &quick.request, begin_late, &quick), PL_EAGAIN);
    pthread_join(other, NULL);
    assert_int_equal(status, PL_EAGAIN);
    assert_int_equal(slow.timer.is_running, 0); /* it has slept until its own end */
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
        cmocka_unit_test_setup_teardown(jobs_may_post, set_up, tear_down),
        cmocka_unit_test_setup_teardown(queued_jobs_run_before_the_end, set_up, tear_down),
        cmocka_unit_test_setup_teardown(signals_are_for_other_threads, set_up, tear_down),
        cmocka_unit_test_setup_teardown(no_timer_fires_early_or_twice, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_earliest_timer_wakes_the_loop, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_timer_that_starts_itself_leaves_the_loop_to_others,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_thread_waits_until_its_request_is_ended, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(requests_end_one_by_one, set_up, tear_down),
        cmocka_unit_test_setup_teardown(work_is_completed_on_the_loop, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
