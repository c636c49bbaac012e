/* yamux_script.h - one side of a Yamux session and the frames of the other, which a test scripts. */
#ifndef PL_TEST_YAMUX_SCRIPT_H
#define PL_TEST_YAMUX_SCRIPT_H

#include "net/libp2p/muxing/yamux.h"
#include "test/unit/unit.h"

static struct {
    struct yamux y;
    struct bytes out;
    struct yamux_stream *opened; /* by the other side, the last */
    size_t opens, readable, writable;
    size_t written[8], read[8]; /* bytes, by stream */
    int takes;                  /* 1: what arrives is taken at once */
    struct pl_err err;
} t;

static inline void on_opened(void *context, struct yamux_stream *s) { t.opened = s, t.opens++; }
static inline void on_writable(void *context, struct yamux_stream *s) { t.writable++; }
static inline void on_readable(void *context, struct yamux_stream *s)
{
    assert_ptr_equal(context, &t);
    t.readable++;
    if (t.takes) assert_int_equal(yamux_took(&t.y, s, bytes_length(&s->in), &t.out), PL_OK);
}

static inline void begin(int client)
{
    static const struct yamux_events events = { on_opened, on_readable, on_writable };
    memset(&t, 0, sizeof t);
    memset(&t.y, 0xff, sizeof t.y);
    yamux_init(&t.y, client, &events, &t, 100);
}

static inline void end(void)
{
    yamux_clear(&t.y);
    bytes_clear(&t.out);
}

/* A frame of the other side, with a body of `body` zeros. */
static inline int receive(int type, int flags, uint32_t id, uint32_t length, size_t body)
{
    const struct yamux_frame f = { 0, (uint8_t)type, (uint16_t)flags, id, length };
    struct bytes in = { 0 };
    int rc;
    assert_int_equal(yamux_frame_put(&in, &f), PL_OK);
    assert_non_null(bytes_reserve(&in, body + 1));
    memset(in.data + in.end, 0, body);
    in.end += body;
    rc = yamux_receive(&t.y, bytes_at(&in), bytes_length(&in), &t.out, &t.err);
    bytes_clear(&in);
    return rc;
}

static inline int data(int flags, uint32_t id, uint32_t n)
{
    return receive(YAMUX_DATA, flags, id, n, n);
}

/* The next frame that we sent is this one, and its body goes on where the stream's last ended. */
static inline void expect_sent(int type, int flags, uint32_t id, uint32_t length)
{
    struct cursor c = { bytes_at(&t.out), bytes_length(&t.out) };
    struct yamux_frame f;
    assert_int_equal(yamux_frame_get(&c, &f), PL_OK);
    assert_int_equal(f.type, type);
    assert_int_equal(f.flags, flags);
    assert_int_equal(f.stream, id);
    assert_int_equal(f.length, length);
    for (uint32_t i = 0; type == YAMUX_DATA && i < length; i++)
        if (c.at[i] != t.read[id % 8]++ % 251) fail_msg("another byte at %u", (unsigned)i);
    bytes_take(&t.out, 12 + (type == YAMUX_DATA ? length : 0));
}

static inline void expect_silence(void) { assert_int_equal(bytes_length(&t.out), 0); }

/* A stream of ours that the other side has taken. */
static inline struct yamux_stream *open_stream(void)
{
    struct yamux_stream *s;
    assert_int_equal(yamux_open(&t.y, &s, &t.out), PL_OK);
    expect_sent(YAMUX_WINDOW_UPDATE, YAMUX_SYN, s->id, 0);
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, YAMUX_ACK, s->id, 0, 0), PL_OK);
    return s;
}

/* A stream of theirs. */
static inline struct yamux_stream *be_opened(uint32_t id)
{
    assert_int_equal(receive(YAMUX_WINDOW_UPDATE, YAMUX_SYN, id, 0, 0), PL_OK);
    expect_sent(YAMUX_WINDOW_UPDATE, YAMUX_ACK, id, 0);
    assert_int_equal(t.opened->id, id);
    return t.opened;
}

/* Bytes that count on from the stream's last ones. */
static inline void write_bytes(struct yamux_stream *s, size_t n)
{
    uint8_t *bytes = malloc(n);
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++) bytes[i] = (uint8_t)(t.written[s->id % 8]++ % 251);
    assert_int_equal(yamux_write(&t.y, s, bytes, n, &t.out), PL_OK);
    free(bytes);
}

#endif
