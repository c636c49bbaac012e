/* averager_members.c - averaging in a swarm with access tokens: members with each other, with a
 * client among them, and a stranger that makes the calls which hivemind leaves open: groups, parts,
 * the state. */
#include "test/unit/hivemind/loopback.h"
#include "net/libp2p/rpc/rpc.h"

#include <time.h>

#define MEMBERS 3

static struct rsa_key authority, keys[MEMBERS];
static struct auth auths[MEMBERS];

static void make_tokens(void)
{
    struct pl_err err;
    memset(auths, 0, sizeof auths);
    assert_int_equal(rsa_key_make(&authority, &err), PL_OK);
    for (int i = 0; i < MEMBERS; i++) {
        assert_int_equal(rsa_key_make(&keys[i], &err), PL_OK);
        auths[i].key = &keys[i];
        auths[i].authority = authority.key;
        assert_int_equal(auth_token_issue(&auths[i].token, &authority, "user",
                                          bytes_at(&keys[i].text), bytes_length(&keys[i].text),
                                          (double)time(NULL) + 3600),
                         PL_OK);
    }
}

static void clear_tokens(void)
{
    for (int i = 0; i < MEMBERS; i++) {
        auth_clear(&auths[i]);
        rsa_key_clear(&keys[i]);
    }
    rsa_key_clear(&authority);
}

/* --- a stranger's calls ----------------------------------------------------------------------- */

static struct call {
    const char *name;
    struct rpc_stream *stream;
    int over, messages;
    char why[320];
} calls[] = {
    { .name = "test::DecentralizedAverager.rpc_join_group" },
    { .name = "test::DecentralizedAverager.rpc_aggregate_part" },
    { .name = "test::DecentralizedAverager.rpc_download_state" },
};

static void on_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    ((struct call *)context)->messages++;
}
static void on_end(void *context, struct rpc_stream *s) { note(&((struct call *)context)->over); }
static void on_failed(void *context, struct rpc_stream *s, int status, const char *why)
{
    struct call *c = context;
    snprintf(c->why, sizeof c->why, "%s", why);
    on_end(context, s);
}

static void call_all(void *context)
{
    static const struct rpc_stream_events events = { on_message, on_end, on_failed, NULL };
    struct peer *stranger = context;
    for (size_t i = 0; i < PL_COUNT(calls); i++) {
        calls[i].over = calls[i].messages = 0;
        calls[i].why[0] = 0;
        calls[i].stream = rpc_open(stranger->host, &peers[0].me.id, calls[i].name, 1 << 20, LIMIT,
                                   &events, &calls[i]);
        assert_non_null(calls[i].stream);
        rpc_send(calls[i].stream, "", 0);
        rpc_end(calls[i].stream);
    }
}

static void close_calls(void *context)
{
    for (size_t i = 0; i < PL_COUNT(calls); i++) rpc_close(calls[i].stream);
}

static void refused_everywhere(struct peer *stranger)
{
    loop_call(loop, call_all, stranger);
    for (size_t i = 0; i < PL_COUNT(calls); i++) {
        assert_true(await(&calls[i].over, 1));
        assert_int_equal(calls[i].messages, 0);
        if (!strstr(calls[i].why, "moderated")) fail_msg("%s: '%s'", calls[i].name, calls[i].why);
    }
    loop_call(loop, close_calls, NULL);
}

/* --- a state ---------------------------------------------------------------------------------- */

static void share(void *context)
{
    struct peer *p = context;
    struct state_snapshot *s = state_snapshot_new(2);
    struct bytes metadata = { 0 };
    bytes_u8(&metadata, 0);
    for (size_t t = 0; t < 2; t++)
        memset(state_snapshot_add(s, &schema[t].type), 0,
               (t ? VALUES - 4000 : 4000) * sizeof(float));
    assert_int_equal(state_snapshot_describe(s, &metadata), PL_OK);
    bytes_clear(&metadata);
    averager_share(p->a, s, 1);
}

static void on_loaded(void *context, int status, const struct peer_id *donor,
                      struct state_load *load, const struct pl_err *err)
{
    struct peer *p = context;
    p->load_status = status;
    p->err = *err;
    note(&p->loaded);
}

static void load(void *context)
{
    struct peer *p = context;
    p->loaded = 0;
    assert_int_equal(averager_load(p->a, NULL, on_loaded, p), PL_OK);
}

static void members_only(void **state)
{
    struct peer *stranger;
    double until;
    make_tokens();
    for (int i = 0; i < MEMBERS; i++) {
        token = &auths[i];
        add(i == 2, 0);
    }
    token = NULL;
    open_all();
    stranger = add(0, 0);
    expect(MEMBERS);
    loop_call(loop, share, &peers[0]);
    refused_everywhere(stranger); /* asked for its token, */
    refused_everywhere(stranger); /* and turned away without that */
    count = MEMBERS;
    begin_all();
    for (size_t i = 0; i < count; i++) {
        assert_true(await(&peers[i].done, 1));
        if (peers[i].status) fail_msg("peer %zu: %s", i, peers[i].err.text);
        assert_int_equal(peers[i].group, MEMBERS);
        assert_int_equal(peers[i].attempts, 1);
        assert_int_equal(peers[i].report.senders_lost, 0);
    }
    until = pl_seconds() + LIMIT;
    for (size_t i = 1; i < MEMBERS; i++) do { /* until the announcement is found */
            loop_call(loop, load, &peers[i]);
            assert_true(await(&peers[i].loaded, 1));
            if (pl_seconds() > until) fail_msg("peer %zu: %s", i, peers[i].err.text);
        } while (peers[i].load_status);
    count = MEMBERS + 1;
    for (size_t i = count; i-- > 0;) close_peer(&peers[i]);
    clear_tokens();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(members_only, begin_test, end_test),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
