/* peer_served.c - the calls that a C peer of the interop tests serves: Test.square (unary: a number's square; 13 fails),
 * Test.echo (unary), Test.count (a number in, that many out), Test.total (numbers in, their sum out), Test.mirror (messages,
 * each sent back). */
#include "peer_served.h"

#include <stdlib.h>
#include <string.h>

/* --- messages with one number: field 1, a varint --- */

int64_t peer_number_read(const uint8_t *data, size_t n)
{
    struct cursor c = { data, n };
    uint64_t key, value = 0;
    if (n && (get_varint(&c, &key) || key != 8 || get_varint(&c, &value))) return -1;
    return (int64_t)value;
}

size_t peer_number_write(uint8_t out[16], int64_t x)
{
    struct bytes b = { 0 };
    size_t n;
    bytes_u8(&b, 8);
    bytes_varint(&b, (uint64_t)x);
    n = bytes_length(&b);
    memcpy(out, bytes_at(&b), n);
    bytes_clear(&b);
    return n;
}

void peer_number_send(struct rpc_stream *s, int64_t x)
{
    uint8_t raw[16];
    rpc_send(s, raw, peer_number_write(raw, x));
}

/* --- served --- */

static void square(void *context, struct rpc_call *call, const uint8_t *data, size_t n)
{
    int64_t x = peer_number_read(data, n);
    uint8_t raw[16];
    (void)context;
    if (x == 13) rpc_reply_error(call, "ValueError('thirteen')");
    else rpc_reply(call, raw, peer_number_write(raw, x * x));
}

static void echo(void *context, struct rpc_call *call, const uint8_t *data, size_t n)
{
    (void)context;
    rpc_reply(call, data, n);
}

struct sum {
    int64_t total;
};

static void gone(void *context, struct rpc_stream *s, int status, const char *why)
{
    (void)status, (void)why;
    free(context);
    rpc_close(s);
}

static void count_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    int64_t x = peer_number_read(data, n);
    (void)context;
    for (int64_t i = 0; i < x; i++) peer_number_send(s, i);
    if (x == 13) rpc_fail(s, "thirteen");
    else rpc_end(s);
}

static void total_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    (void)s;
    ((struct sum *)context)->total += peer_number_read(data, n);
}

static void total_end(void *context, struct rpc_stream *s)
{
    peer_number_send(s, ((struct sum *)context)->total);
    rpc_end(s);
    free(context);
    rpc_close(s);
}

static void mirror_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    (void)context;
    rpc_send(s, data, n);
}

static void end_too(void *context, struct rpc_stream *s)
{
    free(context);
    rpc_end(s);
    rpc_close(s);
}

static const struct rpc_stream_events count_events = { count_message, end_too, gone, NULL };
static const struct rpc_stream_events total_events = { total_message, total_end, gone, NULL };
static const struct rpc_stream_events mirror_events = { mirror_message, end_too, gone, NULL };

static void opened(void *context, struct rpc_stream *s)
{
    struct sum *sum = calloc(1, sizeof *sum);
    rpc_listen(s, context, sum);
}

void peer_serve(void *context)
{
    struct host *host = context;
    rpc_serve_unary(host, "Test.square", square, NULL);
    rpc_serve_unary(host, "Test.echo", echo, NULL);
    rpc_serve_stream(host, "Test.count", PEER_MESSAGE_MAX, opened,
                     (void *)(uintptr_t)&count_events);
    rpc_serve_stream(host, "Test.total", PEER_MESSAGE_MAX, opened,
                     (void *)(uintptr_t)&total_events);
    rpc_serve_stream(host, "Test.mirror", PEER_MESSAGE_MAX, opened,
                     (void *)(uintptr_t)&mirror_events);
}
