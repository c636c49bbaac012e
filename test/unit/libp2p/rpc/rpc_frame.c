/* rpc_frame.c - unary and streamed messages: those that come back, those that are incomplete, and
 * those that are refused. */
#include "net/libp2p/rpc/rpc_frame.h"
#include "test/unit/unit.h"

static const uint8_t call_id[RPC_CALL_ID] = { 7, 1, 2, 3 };

static int get(struct rpc_unary *m, const struct bytes *b, size_t n, size_t max, size_t *want)
{
    struct cursor c = { bytes_at(b), n };
    int rc = rpc_unary_get(&c, m, max, want);
    if (!rc) assert_int_equal(c.left, 0);
    return rc;
}

static void unary_messages(void **state)
{
    for (int kind = RPC_REQUEST; kind <= RPC_ERROR; kind++) {
        struct rpc_unary m = { .kind = (enum rpc_unary_kind)kind,
                               .data = (const uint8_t *)"data",
                               .n = 4,
                               .proto = "proto",
                               .proto_bytes = 5,
                               .peer = (const uint8_t *)"peer!!",
                               .peer_bytes = 6 },
                         back;
        struct bytes b = { 0 };
        size_t want, n;
        memcpy(m.call_id, call_id, sizeof call_id);
        assert_int_equal(rpc_unary_put(&b, &m), PL_OK);
        n = bytes_length(&b);
        /* Any part of it says how much is missing. */
        assert_int_equal(get(&back, &b, 0, 1000, &want), PL_EAGAIN);
        assert_int_equal(want, 1);
        for (size_t part = 1; part < n; part++) {
            assert_int_equal(get(&back, &b, part, 1000, &want), PL_EAGAIN);
            assert_int_equal(want, n);
        }
        assert_int_equal(get(&back, &b, n, n - 2, &want), PL_ELIMIT); /* without its length */
        assert_int_equal(get(&back, &b, n, n - 1, &want), PL_OK);
        assert_int_equal(back.kind, kind);
        assert_memory_equal(back.call_id, call_id, sizeof call_id);
        assert_int_equal(back.n, 4);
        assert_memory_equal(back.data, "data", 4);
        assert_int_equal(back.proto_bytes, kind ? 0 : 5);
        assert_int_equal(back.peer_bytes, kind ? 0 : 6);
        if (!kind) assert_memory_equal(back.proto, "proto", 5);
        if (!kind) assert_memory_equal(back.peer, "peer!!", 6);
        bytes_clear(&b);
    }
}

/* Bytes of a message, with the call ID in front unless `id` says otherwise. */
static int read_body(struct rpc_unary *m, const char *id, size_t id_n, const char *rest, size_t n)
{
    struct bytes b = { 0 };
    size_t want;
    int rc;
    bytes_varint(&b, id_n + n);
    bytes_add(&b, id, id_n);
    bytes_add(&b, rest, n);
    rc = get(m, &b, bytes_length(&b), 1000, &want);
    bytes_clear(&b);
    return rc;
}

#define ID16 \
    "\x0a\x10" \
    "0123456789abcdef"
#define READ(rest) read_body(&m, ID16, 18, rest, sizeof(rest) - 1)

static void what_go_libp2p_daemon_refuses(void **state)
{
    struct rpc_unary m;
    assert_int_equal(READ("\x1a\x06\x0a\x00\x12\x00\x1a\x00"), PL_OK);     /* empty is not absent */
    assert_int_equal(READ("\x1a\x04\x12\x00\x1a\x00"), PL_EPROTO);         /* no peer */
    assert_int_equal(READ("\x1a\x04\x0a\x00\x1a\x00"), PL_EPROTO);         /* no name */
    assert_int_equal(READ("\x1a\x04\x0a\x00\x12\x00"), PL_EPROTO);         /* no data */
    assert_int_equal(READ("\x1a\x06\x08\x00\x12\x00\x1a\x00"), PL_EPROTO); /* a number as peer */
    assert_int_equal(READ("\x22\x02\x0a\x00"), PL_OK);
    assert_int_equal(m.kind, RPC_RESPONSE);
    assert_int_equal(READ("\x22\x02\x12\x00"), PL_OK);
    assert_int_equal(m.kind, RPC_ERROR);
    assert_int_equal(READ("\x22\x00"), PL_EPROTO);         /* neither */
    assert_int_equal(READ("\x22\x02\x08\x00"), PL_EPROTO); /* a number as response */
    assert_int_equal(READ("\x22\x02\x1a\x00"), PL_EPROTO); /* only a field of the future */
    assert_int_equal(READ(""), PL_EPROTO);                 /* no call */
    assert_int_equal(READ("\x18\x01"), PL_EPROTO);         /* a number as call */
    assert_int_equal(READ("\x20\x01"), PL_EPROTO);
    assert_int_equal(read_body(&m, "", 0, "\x22\x02\x0a\x00", 4), PL_EPROTO); /* no call ID */
    assert_int_equal(read_body(&m,
                               "\x0a\x0f"
                               "0123456789abcde",
                               17, "\x22\x02\x0a\x00", 4),
                     PL_EPROTO);
    assert_int_equal(read_body(&m, "\x08\x01", 2, "\x22\x02\x0a\x00", 4), PL_EPROTO);
}

/* Fields of the future are skipped by their wire types. */
static void unknown_fields(void **state)
{
    struct rpc_unary m;
    assert_int_equal(READ("\x28\x96\x01"
                          "\x22\x02\x0a\x00"),
                     PL_OK); /* varint */
    assert_int_equal(READ("\x29"
                          "12345678"
                          "\x22\x02\x0a\x00"),
                     PL_OK); /* 64 bits */
    assert_int_equal(READ("\x2d"
                          "1234"
                          "\x22\x02\x0a\x00"),
                     PL_OK); /* 32 bits */
    assert_int_equal(READ("\x2a\x03"
                          "abc"
                          "\x22\x02\x0a\x00"),
                     PL_OK); /* bytes */
    assert_int_equal(READ("\x22\x07\x2a\x03"
                          "abc"
                          "\x0a\x00"),
                     PL_OK); /* within */
    assert_int_equal(READ("\x1a\x0b\x2a\x03"
                          "abc"
                          "\x0a\x00\x12\x00\x1a\x00"),
                     PL_OK);
    assert_int_equal(READ("\x22\x02\x0a\x00"
                          "\x29"
                          "1234567"),
                     PL_EPROTO);
    assert_int_equal(READ("\x22\x02\x0a\x00"
                          "\x2d"
                          "123"),
                     PL_EPROTO);
    assert_int_equal(READ("\x22\x02\x0a\x00"
                          "\x2a\x03"
                          "ab"),
                     PL_EPROTO);
    assert_int_equal(READ("\x22\x02\x0a\x00"
                          "\x28\x96"),
                     PL_EPROTO);
    assert_int_equal(READ("\x22\x02\x0a\x00"
                          "\x2b"),
                     PL_EPROTO); /* a group */
    assert_int_equal(READ("\x22\x02\x0a\x00"
                          "\x02\x00"),
                     PL_EPROTO); /* no field is number 0 */
}

static int get_frame(struct rpc_frame *f, const void *data, size_t n, size_t max, size_t *want)
{
    struct cursor c = { data, n };
    int rc = rpc_frame_get(&c, f, max, want);
    assert_true(rc || !c.left);
    return rc;
}

static void streamed_frames(void **state)
{
    struct bytes b = { 0 };
    struct rpc_frame f;
    size_t want;
    uint8_t header[RPC_HEADER];
    assert_int_equal(rpc_header_put(&b, RPC_MESSAGE, 3), PL_OK);
    bytes_add(&b, "abc", 3);
    for (size_t n = 0; n < RPC_HEADER + 3; n++) {
        assert_int_equal(get_frame(&f, bytes_at(&b), n, 3, &want), PL_EAGAIN);
        assert_int_equal(want, n < RPC_HEADER ? RPC_HEADER : RPC_HEADER + 3);
    }
    assert_int_equal(get_frame(&f, bytes_at(&b), RPC_HEADER + 3, 3, &want), PL_OK);
    assert_int_equal(f.marker, RPC_MESSAGE);
    assert_memory_equal(f.data, "abc", 3);
    assert_int_equal(get_frame(&f, bytes_at(&b), RPC_HEADER + 3, 2, &want), PL_ELIMIT);
    bytes_clear(&b);
    assert_int_equal(get_frame(&f, "\2", 1, 3, &want), PL_EPROTO);
    /* The length is big-endian; an error's may be longer than messages are. */
    rpc_header_write(header, RPC_END, 65536);
    assert_memory_equal(header, "\1\0\0\0\0\0\1\0\0", RPC_HEADER);
    assert_int_equal(get_frame(&f, header, RPC_HEADER, 3, &want), PL_EAGAIN);
    assert_int_equal(want, RPC_HEADER + 65536);
    rpc_header_write(header, RPC_END, 65537);
    assert_int_equal(get_frame(&f, header, RPC_HEADER, 3, &want), PL_ELIMIT);
    assert_int_equal(get_frame(&f, header, RPC_HEADER, 65537, &want), PL_EAGAIN);
    rpc_header_write(header, RPC_MESSAGE, 65536);
    assert_int_equal(get_frame(&f, header, RPC_HEADER, 65535, &want), PL_ELIMIT);
}

static void errors_are_printable(void **state)
{
    struct bytes b = { 0 };
    struct rpc_frame f;
    char text[8];
    size_t want;
    assert_int_equal(rpc_error_put(&b, "a\n\x7f~ \xc3"), PL_OK);
    assert_int_equal(get_frame(&f, bytes_at(&b), bytes_length(&b), 0, &want), PL_OK);
    assert_int_equal(f.marker, RPC_END);
    assert_int_equal(rpc_error_text(text, sizeof text, &f), PL_OK);
    assert_string_equal(text, "a??~ \xc3");
    assert_int_equal(rpc_error_text(text, 3, &f), PL_OK); /* cut */
    assert_string_equal(text, "a?");
    bytes_clear(&b);
    f = (struct rpc_frame){ .marker = RPC_END };
    assert_int_equal(rpc_error_text(text, sizeof text, &f), PL_OK); /* the plain end mark */
    assert_string_equal(text, "");
    f.data = (const uint8_t *)"\x12\x01x\x0a\x01y", f.n = 6; /* another field before it */
    assert_int_equal(rpc_error_text(text, sizeof text, &f), PL_OK);
    assert_string_equal(text, "y");
    f.data = (const uint8_t *)"\x08\x01", f.n = 2;
    assert_int_equal(rpc_error_text(text, sizeof text, &f), PL_EPROTO);
    f.n = 1;
    assert_int_equal(rpc_error_text(text, sizeof text, &f), PL_EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unary_messages),       cmocka_unit_test(what_go_libp2p_daemon_refuses),
        cmocka_unit_test(unknown_fields),       cmocka_unit_test(streamed_frames),
        cmocka_unit_test(errors_are_printable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
