/* host_flood.c - strangers use all that they may, and the others do not notice: a peer's
 * handlers have a share of each second, and protected peers have a share of everything that no
 * flood can use up. */
#include "test/unit/libp2p/host_sides.h"
#include "net/libp2p/host/host_protocol.h"

#include <time.h>

#define COST_S 0.02 /* of processor time for each costly request */
#define FLOOD 60    /* of them: six seconds of one peer's share */
#define WATCHED 2.0 /* s */

static double thread_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int costly_calls;

static void costly(void *context, struct rpc_call *call, const uint8_t *data, size_t n)
{
    double until = thread_seconds() + COST_S;
    while (thread_seconds() < until) {}
    note(&costly_calls);
    rpc_reply(call, data, n);
}

static void ask_all_here(void *context)
{
    struct asking *all = context;
    for (int i = 0; i < FLOOD; i++) ask_here(&all[i]);
}

/* One peer asks for all of it at once. */
static void flood(struct asking *all, struct side *from, const struct side *to)
{
    memset(all, 0, FLOOD * sizeof *all);
    for (int i = 0; i < FLOOD; i++)
        all[i] = (struct asking){
            .from = from, .to = &to->me.id, .name = "Test.costly", .timeout_s = LIMIT
        };
    loop_call(from->loop, ask_all_here, all);
}

static double used_s(struct side *s) { return (double)host_resources(s->host)->handled_us * 1e-6; }

struct protecting {
    struct side *side;
    const struct peer_id *peer;
};

static void protect_here(void *context)
{
    struct protecting *p = context;
    assert_int_equal(host_protect(p->side->host, p->peer), PL_OK);
}

/* A peer that asks for more than its share waits, and gets all of its responses in the end; a peer
 * that asks little is answered meanwhile. */
static void one_peer_has_a_share(void **state)
{
    static struct asking all[FLOOD];
    struct side greedy, modest, b;
    struct asking q = { .from = &modest, .to = &b.me.id, .name = "Test.echo", .timeout_s = LIMIT };
    int served, done = 0;
    costly_calls = 0;
    open_side(&greedy, 0, 0);
    open_side(&modest, 0, 0);
    open_side(&b, 1, 0);
    serve(&b, "Test.costly", costly, NULL, NULL);
    serve(&b, "Test.echo", echo, NULL, NULL);
    teach(&greedy, &b);
    teach(&modest, &b);
    ask_and_wait(&q);
    assert_int_equal(q.status, PL_OK);
    bytes_clear(&q.response);
    flood(all, &greedy, &b);
    assert_true(await_noted(&costly_calls, 1, LIMIT));
    q.answered = 0;
    ask_and_wait(&q);
    assert_int_equal(q.status, PL_OK);
    bytes_clear(&q.response);
    assert_true(noted(&costly_calls) < FLOOD);
    served = noted(&costly_calls);
    await_noted(&costly_calls, FLOOD, WATCHED);
    served = noted(&costly_calls) - served;
    /* 0.2 s a second, each second's last handler over it, in at most three of them. */
    if (served * COST_S > (WATCHED + 1) * (0.2 + COST_S)) fail_msg("%d costly calls", served);
    for (int i = 0; i < FLOOD; i++) done += await_noted(&all[i].answered, 1, LIMIT);
    assert_int_equal(done, FLOOD);
    for (int i = 0; i < FLOOD; i++) {
        assert_int_equal(all[i].status, PL_OK);
        bytes_clear(&all[i].response);
    }
    assert_true(used_s(&b) >= FLOOD * COST_S);
    assert_true(host_resources(b.host)->limited > 0);
    close_side(&greedy);
    close_side(&modest);
    close_side(&b);
}

/* The same peer, protected as a groupmate is, does not wait. */
static void protected_peer_does_not_wait(void **state)
{
    static struct asking all[FLOOD];
    struct side mate, b;
    struct protecting p = { &b, &mate.me.id };
    costly_calls = 0;
    open_side(&mate, 0, 0);
    open_side(&b, 1, 0);
    serve(&b, "Test.costly", costly, NULL, NULL);
    teach(&mate, &b);
    loop_call(b.loop, protect_here, &p);
    flood(all, &mate, &b);
    for (int i = 0; i < FLOOD; i++) assert_true(await_noted(&all[i].answered, 1, LIMIT));
    for (int i = 0; i < FLOOD; i++) {
        assert_int_equal(all[i].status, PL_OK);
        bytes_clear(&all[i].response);
    }
    assert_true(used_s(&b) >= FLOOD * COST_S);
    assert_int_equal(host_resources(b.host)->limited, 0);
    close_side(&mate);
    close_side(&b);
}

static void take_all(void *context, struct rpc_call *call, const uint8_t *data, size_t n)
{
    rpc_reply(call, "", 0);
}

/* Encryption of what we send is charged as decryption of what comes: 32 MiB, both ways. The side
 * that sends reads nothing but credit meanwhile. */
static void sending_is_charged(void **state)
{
    struct side from, to;
    uint8_t *data = noise(1 << 20, 9);
    int sent = 0;
    open_side(&from, 0, 0);
    open_side(&to, 1, 0);
    serve(&to, "Test.take", take_all, NULL, NULL);
    teach(&from, &to);
    for (; sent < 32; sent++) {
        struct asking q = { .from = &from,
                            .to = &to.me.id,
                            .name = "Test.take",
                            .data = data,
                            .n = 1 << 20,
                            .timeout_s = LIMIT };
        ask_and_wait(&q);
        assert_int_equal(q.status, PL_OK);
        bytes_clear(&q.response);
    }
    if (used_s(&from) < used_s(&to) / 2)
        fail_msg("%g s for sending, %g s for receiving", used_s(&from), used_s(&to));
    close_side(&from);
    close_side(&to);
    free(data);
}

/* --- every share used up ---------------------------------------------------------------------- */

#define STRANGERS 6

static void fill_here(void *context)
{
    struct side *b = context;
    struct resources *r = host_resources(b->host);
    for (int k = 0; k < RESOURCES; k++) r->system.used[k] += r->limits[SCOPE_SYSTEM][k];
}

static void empty_here(void *context)
{
    struct side *b = context;
    struct resources *r = host_resources(b->host);
    for (int k = 0; k < RESOURCE_HANDLER_US; k++) r->system.used[k] -= r->limits[SCOPE_SYSTEM][k];
    r->system.used[RESOURCE_HANDLER_US] = 0;
}

/* Strangers hold every connection, stream and byte that they may together: a stranger is
 * refused, and a protected peer connects, opens streams, sends a message of a megabyte and is
 * answered. */
static void reserved_share_under_flood(void **state)
{
    struct side stranger[STRANGERS], mate, b;
    struct protecting p = { &b, &mate.me.id };
    uint8_t *data = noise(1 << 20, 7);
    struct asking q = { .from = &mate,
                        .to = &b.me.id,
                        .name = "Test.echo",
                        .data = data,
                        .n = 1 << 20,
                        .timeout_s = LIMIT };
    open_side(&b, 1, 0);
    open_side(&mate, 0, 0);
    serve(&b, "Test.echo", echo, NULL, NULL);
    loop_call(b.loop, protect_here, &p);
    teach(&mate, &b);
    ask_and_wait(&q); /* it is connected before the flood, as groupmates are */
    assert_int_equal(q.status, PL_OK);
    bytes_clear(&q.response);
    loop_call(b.loop, fill_here, &b);
    for (int i = 0; i < STRANGERS; i++) {
        struct asking s = {
            .from = &stranger[i], .to = &b.me.id, .name = "Test.echo", .timeout_s = 2
        };
        open_side(&stranger[i], 0, 0);
        teach(&stranger[i], &b);
        ask_and_wait(&s);
        assert_int_not_equal(s.status, PL_OK);
        q.answered = 0;
        ask_and_wait(&q);
        if (q.status) fail_msg("a groupmate under flood: %s", q.error);
        assert_int_equal(bytes_length(&q.response), 1 << 20);
        bytes_clear(&q.response);
    }
    loop_call(b.loop, empty_here, &b);
    for (int i = 0; i < STRANGERS; i++) close_side(&stranger[i]);
    close_side(&mate);
    close_side(&b);
    free(data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_peer_has_a_share),
        cmocka_unit_test(protected_peer_does_not_wait),
        cmocka_unit_test(sending_is_charged),
        cmocka_unit_test(reserved_share_under_flood),
    };
    return cmocka_run_group_tests_name("host_flood", tests, NULL, NULL);
}
