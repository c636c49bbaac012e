/* averager_slow.c - a groupmate whose first part arrives slowly, as over an uplink of 2 Mbit/s that
 * it shares with parts for others, has as much time for it as for any other part. */
#include "test/unit/hivemind/loopback.h"
#include "net/hivemind/averaging/averager_internal.h"
#include "net/libp2p/rpc/rpc_frame.h"

#include <unistd.h>

#define PART 512 /* values: part_bytes of floats */

static struct stream *part_stream;
static struct bytes message;
static int ended, answered, code;

static void on_open(void *context, struct stream *c)
{
    stream_write(c, bytes_at(&message), bytes_length(&message) / 2);
}

static void on_readable(void *context, struct stream *c)
{
    struct cursor at;
    struct rpc_frame f;
    struct part_message m;
    size_t want;
    int eof;
    at.at = stream_data(c, &at.left, &eof);
    if (!rpc_frame_get(&at, &f, 1 << 20, &want) && !part_message_read(&m, f.data, f.n, NULL)) {
        code = m.code;
        note(&answered);
    } else if (eof) note(&ended);
}

static void on_failed(void *context, struct stream *c, int status, const char *why)
{
    stream_close(c);
    part_stream = NULL;
    note(&ended);
}

static void send_half(void *context)
{
    static const struct stream_events events = { on_open, on_readable, NULL, on_failed };
    struct part_message m = { .code = MSG_PART_FOR_AVERAGING,
                              .group_id = peers[0].a->round.group.id,
                              .group_id_n = DHT_ID_BYTES,
                              .weight = 1,
                              .elements = PART,
                              .has_part = 1,
                              .bytes = PART * sizeof(float) };
    struct bytes part = { 0 };
    uint8_t *values;
    assert_int_equal(part_message_write(&part, &values, &m), PL_OK);
    memset(values, 0, m.bytes);
    rpc_header_put(&message, RPC_MESSAGE, bytes_length(&part));
    bytes_add(&message, bytes_at(&part), bytes_length(&part));
    bytes_clear(&part);
    part_stream = stream_open(peers[1].host, host_id(peers[0].host),
                              "test::DecentralizedAverager.rpc_aggregate_part", LIMIT, &events,
                              NULL);
}

static void send_rest(void *context)
{
    size_t half = bytes_length(&message) / 2;
    stream_write(part_stream, bytes_at(&message) + half, bytes_length(&message) - half);
}

static void close_stream(void *context) { stream_close(part_stream); }

static void slow_first_part_is_waited_for(void **state)
{
    const double until = pl_seconds() + LIMIT;
    add(0, 0), add(0, 0);
    be_impatient(10, LIMIT);
    expect(count);
    open_all();
    peers[1].step.untriggered = 1; /* it sends only the messages that are sent here in its name */
    begin_all();
    for (; loop_call(loop, read_grouped, &peers[0]), !peers[0].grouped; usleep(10000))
        assert_true(pl_seconds() < until);
    loop_call(loop, send_half, NULL);
    if (await_noted(&ended, 1, AVERAGER_FIRST_MESSAGE + 1))
        fail_msg("the groupmate was given up before its time");
    loop_call(loop, send_rest, NULL);
    assert_true(await(&answered, 1));
    assert_int_equal(code, MSG_AVERAGED_PART);
    loop_call(loop, close_stream, NULL);
    bytes_clear(&message);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(slow_first_part_is_waited_for, begin_test, end_test),
    };
    return cmocka_run_group_tests_name("averager_slow", tests, NULL, NULL);
}
