/* averager_state.c - the state of one peer given to another: whole, checked, from donors that fail
 * or cheat. */
#include "test/unit/hivemind/loopback.h"

#include <unistd.h>

/* The averager's two tensors, and of an optimizer's state `more` values. */
static struct state_snapshot *snapshot(float value, size_t more)
{
    const struct pl_wire_type third = { .dtype = PL_F32, .dims = 1, .size = { (int64_t)more } };
    const size_t n[] = { 4000, VALUES - 4000, more };
    struct state_snapshot *s = state_snapshot_new(3);
    struct bytes metadata = { 0 };
    for (size_t t = 0; t < 3; t++) {
        float *x = state_snapshot_add(s, t < 2 ? &schema[t].type : &third);
        for (size_t i = 0; i < n[t]; i++) x[i] = value;
    }
    bytes_u8(&metadata, 0xc0);
    assert_int_equal(state_snapshot_describe(s, &metadata), PL_OK);
    bytes_clear(&metadata);
    return s;
}

/* Honest peers' states differ a little. */
#define STATE_OF(i) (1000 + (float)(i))
#define NEWER 0.25f

static void share(void *context)
{
    struct peer *p = context;
    averager_share(p->a, snapshot(STATE_OF(p - peers), 15000), (double)(p - peers));
}
static void share_more(void *context)
{
    struct peer *p = context;
    averager_share(p->a, snapshot(STATE_OF(p - peers) + NEWER, 10), (double)(p - peers));
}

static void on_loaded(void *context, int status, const struct peer_id *donor,
                      struct state_load *load, const struct pl_err *err)
{
    struct peer *p = context;
    p->load_status = status;
    p->confirmed = load->confirmed;
    if (!status) memcpy(&p->first_loaded, load->tensors[0].buffer, sizeof p->first_loaded);
    note(&p->loaded);
}

static void on_donor_failed(void *context, const struct peer_id *donor, int status,
                            const struct pl_err *why)
{
    struct peer *p = context;
    p->refused = *donor;
    p->err = *why;
}

/* The third's. */
static int refuse(void *context, const struct state_load *load, struct pl_err *err)
{
    float first;
    memcpy(&first, load->tensors[0].buffer, sizeof first);
    return first == STATE_OF(2) + NEWER ? pl_fail(err, PL_EFORMAT, "not this one") : PL_OK;
}

static void load_another(void *context)
{
    struct peer *p = context;
    p->loaded = 0;
    assert_int_equal(averager_load(p->a, refuse, on_loaded, p), PL_OK);
}

static void load(void *context)
{
    struct peer *p = context;
    p->loaded = 0;
    assert_int_equal(averager_load(p->a, NULL, on_loaded, p), PL_OK);
}

/* Until what the donors have announced is known: the third is among the best. */
static void await_announcements(struct peer *p)
{
    const double until = pl_seconds() + LIMIT;
    do {
        usleep(50000);
        loop_call(loop, load, p);
        assert_true(await(&p->loaded, 1));
        if (pl_seconds() > until) fail_msg("the best donor is not found");
    } while (p->load_status || p->first_loaded != STATE_OF(2));
}

static void newcomers_take_over(void **state)
{
    for (int i = 0; i < 7; i++) add(i == 6, 0);
    peers[3].options.donor_failed = on_donor_failed;
    peers[3].options.donor_context = &peers[3];
    open_all();
    loop_call(loop, load, &peers[3]);
    assert_true(await(&peers[3].loaded, 1));
    assert_int_equal(peers[3].load_status, PL_ENOTFOUND);
    loop_call(loop, share, &peers[0]);
    loop_call(loop, share, &peers[1]);
    loop_call(loop, share, &peers[2]);
    await_announcements(&peers[3]);
    for (int i = 3; i < 7; i++) loop_call(loop, load, &peers[i]); /* more at once than are served */
    loop_call(loop, share_more,
              &peers[2]); /* the donor goes on: waiting peers get the newer state */
    for (int i = 3; i < 7; i++) {
        assert_true(await(&peers[i].loaded, 1));
        assert_int_equal(peers[i].load_status, PL_OK);
        assert_true(peers[i].first_loaded >= STATE_OF(1));
    }
    for (int i = 0; i < 100 && !peers[3].refused.length; i++) {
        loop_call(loop, load_another, &peers[3]); /* a donor's is refused: the next best is asked */
        assert_true(await(&peers[3].loaded, 1));
        assert_int_equal(peers[3].load_status, PL_OK);
        assert_true(peers[3].first_loaded < STATE_OF(2));
    }
    assert_true(peer_id_equal(&peers[3].refused, &peers[2].me.id));
    assert_string_equal(peers[3].err.text, "not this one");
    close_peer(&peers[2]); /* its announcement stays for a while: the next best is asked */
    loop_call(loop, load, &peers[3]);
    assert_true(await(&peers[3].loaded, 1));
    assert_int_equal(peers[3].load_status, PL_OK);
    assert_true(peers[3].first_loaded < STATE_OF(2));
}

static void share_junk(void *context)
{
    struct peer *p = context;
    struct state_snapshot *s = snapshot(0, 10);
    for (size_t t = 0; t < 2; t++) { /* as long as the others' */
        float *x = (float *)(uintptr_t)s->tensors[t].data;
        for (size_t i = 0; i < (t ? VALUES - 4000 : 4000); i++) x[i] = i % 2 ? 1000 : -1000;
    }
    averager_share(p->a, s, DONOR_PRIORITY_MAX);
}

static void load_once(struct peer *p)
{
    usleep(1000000 / STATE_ANSWERS_A_PEER + 50000); /* the others say so often what they have */
    loop_call(loop, load, p);
    assert_true(await(&p->loaded, 1));
}

/* An attacker's state is taken while nobody can tell, and never once two others agree on
 * another. */
static void one_byzantine_donor(void **state)
{
    const double until = pl_seconds() + LIMIT;
    struct peer *newcomer;
    for (int i = 0; i < 5; i++) add(0, 0);
    newcomer = &peers[4];
    open_all();
    loop_call(loop, share_junk, &peers[0]);
    do load_once(newcomer);
    while (newcomer->load_status && pl_seconds() < until);
    assert_int_equal(newcomer->load_status, PL_OK);
    assert_int_equal(newcomer->confirmed, 1); /* it is the only one */
    for (int i = 1; i < 4; i++) loop_call(loop, share, &peers[i]);
    do load_once(newcomer); /* until the announcements are found */
    while ((newcomer->load_status || newcomer->confirmed < 3) && pl_seconds() < until);
    for (int i = 0; i < 10; i++) {
        load_once(newcomer);
        assert_int_equal(newcomer->load_status, PL_OK);
        assert_true(newcomer->first_loaded >= STATE_OF(1));
        assert_true(newcomer->confirmed >= 2);
    }
}

/* Witnesses' calls that are never answered. */
static struct rpc_call *unanswered[16];
static size_t unanswered_count;

static void on_samples_asked(void *context, struct rpc_call *call, const uint8_t *data, size_t n)
{
    assert_true(unanswered_count < PL_COUNT(unanswered));
    unanswered[unanswered_count++] = call;
}

static void fall_silent(void *context)
{
    struct peer *p = context;
    char name[GROUP_NAME_MAX];
    assert_int_equal(group_rpc_name(name, p->options.prefix, p->options.class_name,
                                    AVERAGER_SAMPLES, NULL),
                     PL_OK);
    rpc_unserve(p->host, name);
    assert_int_equal(rpc_serve_unary(p->host, name, on_samples_asked, p), PL_OK);
}

static void answer_all(void *context)
{
    while (unanswered_count) rpc_reply(unanswered[--unanswered_count], "", 0);
}

/* A witness that does not answer holds up one load for STATE_WITNESS_LIMIT, not each. */
static void silent_witness_is_asked_once(void **state)
{
    double begun;
    for (int i = 0; i < 4; i++) add(0, 0);
    open_all();
    for (int i = 0; i < 3; i++) loop_call(loop, share, &peers[i]);
    await_announcements(&peers[3]);
    loop_call(loop, fall_silent, &peers[0]);
    load_once(&peers[3]);
    assert_int_equal(peers[3].load_status, PL_OK);
    assert_int_equal(unanswered_count, 1);
    begun = pl_seconds();
    load_once(&peers[3]);
    assert_true(pl_seconds() - begun < STATE_WITNESS_LIMIT);
    assert_int_equal(peers[3].load_status, PL_OK);
    assert_int_equal(unanswered_count, 1);
    loop_call(loop, answer_all, NULL);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin_test, end_test)

/* A name, with * and ?, runs only the tests that match it. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(newcomers_take_over),
        TEST(one_byzantine_donor),
        TEST(silent_witness_is_asked_once),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
