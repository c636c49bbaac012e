/* host.c - two hosts over loopback: calls, refusals, ends. */
#include "test/unit/libp2p/host_sides.h"
#include "net/libp2p/libp2p.h"

#include <pthread.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void unary_over(int dialler, int listener)
{
    static const size_t sizes[] = { 0, 1, 200, 70000, 300000, 4194304 - 120 };
    struct side a, b;
    open_side(&a, 0, dialler);
    open_side(&b, 1, listener);
    serve(&b, "Test.echo", echo, NULL, NULL);
    serve(&b, "Test.thirteen", thirteen, NULL, NULL);
    teach(&a, &b);
    for (size_t i = 0; i < PL_COUNT(sizes); i++) {
        uint8_t *data = noise(sizes[i], (uint32_t)i);
        struct asking q = { .from = &a,
                            .to = &b.me.id,
                            .name = "Test.echo",
                            .data = data,
                            .n = sizes[i],
                            .timeout_s = LIMIT };
        ask_and_wait(&q);
        if (q.status) fail_msg("%zu bytes: %s", sizes[i], q.error);
        assert_int_equal(bytes_length(&q.response), sizes[i]);
        if (sizes[i]) assert_memory_equal(bytes_at(&q.response), data, sizes[i]);
        bytes_clear(&q.response);
        free(data);
    }
    {
        struct asking q = {
            .from = &a, .to = &b.me.id, .name = "Test.thirteen", .timeout_s = LIMIT
        };
        ask_and_wait(&q);
        assert_int_equal(q.status, PL_EPROTO);
        assert_string_equal(q.error, "ValueError('thirteen')");
    }
    {
        struct asking q = {
            .from = &a, .to = &b.me.id, .name = "Test.nothing", .timeout_s = LIMIT
        };
        ask_and_wait(&q);
        assert_int_equal(q.status, PL_ENOTFOUND);
    }
    close_side(&a);
    close_side(&b);
}

static void unary_noise(void **state) { unary_over(CONN_NOISE, CONN_NOISE | CONN_TLS); }

static void unary_tls(void **state) { unary_over(CONN_NOISE | CONN_TLS, CONN_TLS); }

/* --- refusals --------------------------------------------------------------------------------- */

static void no_encryption_in_common(void **state)
{
    struct side a, b;
    struct asking q = { .from = &a, .to = &b.me.id, .name = "Test.echo", .timeout_s = LIMIT };
    open_side(&a, 0, CONN_NOISE);
    open_side(&b, 1, CONN_TLS);
    teach(&a, &b);
    ask_and_wait(&q);
    assert_int_equal(q.status, PL_EIO);
    assert_non_null(strstr(q.error, "no encryption in common"));
    close_side(&a);
    close_side(&b);
}

/* The address is right, but another peer answers there. */
static void wrong_peer(void **state)
{
    for (int securities = CONN_NOISE; securities <= CONN_TLS; securities++) {
        struct side a, b, other;
        struct asking q = {
            .from = &a, .to = &other.me.id, .name = "Test.echo", .timeout_s = LIMIT
        };
        open_side(&a, 0, securities);
        open_side(&b, 1, securities);
        open_side(&other, 0, securities);
        other.at = b.at;
        multiaddr_strip_peer(&other.at, &b.me.id);
        teach(&a, &other);
        ask_and_wait(&q);
        assert_int_equal(q.status, PL_EIO);
        if (!strstr(q.error, "answered")) fail_msg("%s", q.error);
        close_side(&a);
        close_side(&b);
        close_side(&other);
    }
}

static void nobody_there(void **state)
{
    struct side a, b;
    struct asking q = { .from = &a, .to = &b.me.id, .name = "Test.echo", .timeout_s = LIMIT };
    struct asking self = { .from = &a, .to = &a.me.id, .name = "Test.echo", .timeout_s = LIMIT };
    open_side(&a, 0, 0);
    open_side(&b, 0, 0);
    ask_and_wait(&q); /* nothing is known of it */
    assert_int_equal(q.status, PL_EIO);
    assert_non_null(strstr(q.error, "no address"));
    ask_and_wait(&self);
    assert_int_equal(self.status, PL_EUSE);
    assert_int_equal(multiaddr_from_text(&b.at, "/ip4/127.0.0.1/tcp/1", NULL), PL_OK);
    teach(&a, &b);
    q.answered = 0;
    ask_and_wait(&q); /* no program listens */
    assert_int_equal(q.status, PL_EIO);
    assert_non_null(strstr(q.error, "/tcp/1"));
    close_side(&a);
    close_side(&b);
}

/* --- slow handlers, cancelling ---------------------------------------------------------------- */

static int slow_called, slow_cancelled;
static struct rpc_call *slow_call;

static void on_slow_cancelled(void *context)
{
    rpc_reply(slow_call, NULL, 0); /* must still be answered */
    note(&slow_cancelled);
}

static void slow(void *context, struct rpc_call *call, const uint8_t *data, size_t n)
{
    slow_call = call;
    rpc_on_cancel(call, on_slow_cancelled, NULL);
    note(&slow_called);
}

static void cancel_here(void *context) { rpc_cancel(((struct asking *)context)->request); }

static void cancelled_and_late(void **state)
{
    struct side a, b;
    struct asking q = { .from = &a, .to = &b.me.id, .name = "Test.slow", .timeout_s = LIMIT };
    slow_called = slow_cancelled = 0;
    open_side(&a, 0, 0);
    open_side(&b, 1, 0);
    serve(&b, "Test.slow", slow, NULL, NULL);
    teach(&a, &b);
    ask(&q);
    assert_true(await_noted(&slow_called, 1, LIMIT));
    loop_call(a.loop, cancel_here, &q);
    assert_true(await_noted(&slow_cancelled, 1, LIMIT));
    assert_int_equal(q.answered, 0);
    /* Now the caller runs out of patience; on a slow machine perhaps before the call has
     * arrived. */
    for (q.timeout_s = 0.3; noted(&slow_called) < 2 && q.timeout_s < LIMIT; q.timeout_s *= 2) {
        q.answered = 0;
        ask_and_wait(&q);
        assert_int_equal(q.status, PL_EAGAIN);
    }
    assert_true(await_noted(&slow_cancelled, 2, LIMIT));
    close_side(&a);
    close_side(&b);
}

/* A host that closes tells everybody who still waits. */
static void closing_host_ends_open_calls(void **state)
{
    struct side a, b;
    struct asking q = { .from = &a, .to = &b.me.id, .name = "Test.slow", .timeout_s = LIMIT };
    slow_called = slow_cancelled = 0;
    open_side(&a, 0, 0);
    open_side(&b, 1, 0);
    serve(&b, "Test.slow", slow, NULL, NULL);
    teach(&a, &b);
    ask(&q);
    assert_true(await_noted(&slow_called, 1, LIMIT));
    close_side(&a);
    assert_int_equal(q.answered, 1);
    assert_int_equal(q.status, PL_EIO);
    assert_true(await_noted(&slow_cancelled, 1, LIMIT));
    close_side(&b);
}

/* --- many at once ----------------------------------------------------------------------------- */

#define MANY 600 /* more than may be opened before the other side has taken them */

static void ask_many_here(void *context)
{
    struct asking *all = context;
    for (int i = 0; i < MANY; i++) ask_here(&all[i]);
}

static void many_calls(void **state)
{
    static struct asking all[MANY];
    static uint32_t numbers[MANY];
    struct side a, b;
    int done = 0;
    open_side(&a, 0, 0);
    open_side(&b, 1, 0);
    serve(&b, "Test.echo", echo, NULL, NULL);
    teach(&a, &b);
    memset(all, 0, sizeof all);
    for (uint32_t i = 0; i < MANY; i++) {
        numbers[i] = i;
        all[i] = (struct asking){ .from = &a,
                                  .to = &b.me.id,
                                  .name = "Test.echo",
                                  .n = 4,
                                  .data = &numbers[i],
                                  .timeout_s = LIMIT };
    }
    loop_call(a.loop, ask_many_here, all);
    for (int i = 0; i < MANY; i++) done += await_noted(&all[i].answered, 1, LIMIT);
    assert_int_equal(done, MANY);
    for (int i = 0; i < MANY; i++) {
        if (all[i].status) fail_msg("call %d: %s", i, all[i].error);
        assert_int_equal(bytes_length(&all[i].response), 4);
        assert_memory_equal(bytes_at(&all[i].response), &numbers[i], 4);
        bytes_clear(&all[i].response);
    }
    close_side(&a);
    close_side(&b);
}

/* --- a peer in another process ---------------------------------------------------------------- */

/* A listening peer with Test.slow that never answers; its address comes through the pipe. */
static pid_t other_process(struct side *s)
{
    int fds[2];
    pid_t pid;
    assert_int_equal(pipe(fds), 0);
    if (!(pid = fork())) {
        open_side(s, 1, 0);
        serve(s, "Test.slow", slow, NULL, NULL);
        if (write(fds[1], s, sizeof *s) != (ssize_t)sizeof *s) _exit(1);
        pause();
        _exit(0);
    }
    assert_true(pid > 0);
    /* its id and address are plain values */
    assert_int_equal(read(fds[0], s, sizeof *s), sizeof *s);
    close(fds[0]);
    close(fds[1]);
    return pid;
}

static void peer_is_killed(void **state)
{
    struct side a, b;
    struct asking q = { .from = &a, .to = &b.me.id, .name = "Test.slow", .timeout_s = 3 * LIMIT };
    pid_t pid = other_process(&b);
    open_side(&a, 0, 0);
    teach(&a, &b);
    ask(&q);
    assert_false(await_noted(&q.answered, 1, 0.3));
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    assert_true(await_noted(&q.answered, 1, LIMIT)); /* long before the time is up */
    assert_int_equal(q.status, PL_EIO);
    q.answered = 0;
    ask_and_wait(&q); /* and it is not there any more */
    assert_int_equal(q.status, PL_EIO);
    close_side(&a);
}

static void peer_is_frozen(void **state)
{
    struct side a, b;
    struct asking q = { .from = &a, .to = &b.me.id, .name = "Test.slow", .timeout_s = 0.5 };
    pid_t pid = other_process(&b);
    kill(pid, SIGSTOP);
    open_side(&a, 0, 0);
    teach(&a, &b);
    ask_and_wait(&q); /* the kernel accepts, but no handshake follows */
    assert_int_equal(q.status, PL_EAGAIN);
    close_side(&a);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peer_is_killed), /* these fork: first, while there is one thread */
        cmocka_unit_test(peer_is_frozen),     cmocka_unit_test(unary_noise),
        cmocka_unit_test(unary_tls),          cmocka_unit_test(no_encryption_in_common),
        cmocka_unit_test(wrong_peer),         cmocka_unit_test(nobody_there),
        cmocka_unit_test(cancelled_and_late), cmocka_unit_test(closing_host_ends_open_calls),
        cmocka_unit_test(many_calls),
    };
    return cmocka_run_group_tests_name("host", tests, NULL, NULL);
}
