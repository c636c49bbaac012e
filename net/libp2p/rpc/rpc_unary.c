/* rpc_unary.c - one request, one response, on a stream of their own. [spec libp2p-wire 12]
 *
 *   caller                                     handler
 *     request {call ID, name, data}   --->
 *                                     <---     response {the same call ID, data | error}
 *
 * The caller keeps its direction open until it has the response: its end, or anything more from it,
 * means that it has given up. A handler may answer at once or later, exactly once. */
#include "rpc.h"
#include "rpc_frame.h"
#include "rpc_service.h"

#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

#define REQUEST_LIMIT 60.0 /* s for a whole request to arrive */

/* --- server ----------------------------------------------------------------------------------- */

struct rpc_call {
    struct host *host;
    struct stream *stream; /* NULL once answered or cancelled */
    struct peer_id caller;
    struct rpc_service *service; /* NULL once the handler has it */
    uint8_t id[RPC_CALL_ID];
    struct timer timer; /* for the request to arrive */
    int in_handler, answered;
    loop_fn *cancelled;
    void *cancelled_context;
};

static void drop_stream(struct rpc_call *call)
{
    timer_stop(&call->timer);
    stream_close(call->stream);
    call->stream = NULL;
}

/* The handler takes it over; without a handler it is dropped. */
static void leave_service(struct rpc_call *call)
{
    rpc_service_leave(call->service);
    call->service = NULL;
}

static void free_call(struct rpc_call *call)
{
    leave_service(call);
    drop_stream(call);
    free(call);
}

/* The caller is gone or has given up: calls the handler's cancel function; its answer will be
 * dropped. */
static void cancel_call(struct rpc_call *call)
{
    if (call->service) {
        free_call(call);
        return;
    }
    drop_stream(call);
    if (call->cancelled && !call->answered) call->cancelled(call->cancelled_context);
}

/* The handler may answer at once, later, or find that the caller has left. */
static void hand_over(struct rpc_call *call, const struct rpc_unary *m, size_t used)
{
    rpc_unary_handler *handler = call->service->unary;
    void *handler_context = call->service->context;
    memcpy(call->id, m->call_id, RPC_CALL_ID);
    timer_stop(&call->timer);
    leave_service(call);
    call->in_handler = 1;
    handler(handler_context, call, m->data, m->n); /* borrowed from the stream */
    call->in_handler = 0;
    if (call->answered) free_call(call);
    else stream_took(call->stream, used);
}

/* The message that a stream of a unary call carries each way. PL_EAGAIN: it is not whole. */
static int read_message(struct stream *c, struct rpc_unary *m, size_t *want, size_t *used,
                        int *ended)
{
    size_t n;
    struct cursor cursor;
    int rc;
    cursor.at = stream_data(c, &n, ended);
    cursor.left = n;
    rc = rpc_unary_get(&cursor, m, RPC_UNARY_MAX, want);
    *used = n - cursor.left;
    return rc;
}

/* Before the request is whole: more bytes. After it: anything, also an end, means that the
 * caller gave up. */
static void call_readable(void *context, struct stream *c)
{
    struct rpc_call *call = context;
    int ended, rc;
    size_t want, used;
    struct rpc_unary m;
    if (!call->service) {
        stream_data(c, &want, &ended);
        if (want || ended) cancel_call(call);
        return;
    }
    rc = read_message(c, &m, &want, &used, &ended);
    if (!rc && m.kind != RPC_REQUEST) rc = PL_EPROTO;
    if (call->service->retired) rc = PL_ENOTFOUND; /* its owner may be gone */
    if (rc == PL_EAGAIN && !ended) rc = stream_expect(c, want);
    else if (rc == PL_OK) hand_over(call, &m, used);
    if (rc) {
        stream_finish(c); /* as in go-libp2p-daemon: an end without an answer */
        free_call(call);
    }
}

static void call_failed(void *context, struct stream *c, int status, const char *why)
{
    cancel_call(context);
}

static void on_request_late(void *context) { free_call(context); }

static void on_unary(void *context, struct stream *c)
{
    static const struct stream_events events = { .readable = call_readable, .failed = call_failed };
    struct rpc_service *service = context;
    struct rpc_call *call = calloc(1, sizeof *call);
    if (!call) {
        stream_close(c);
        return;
    }
    call->host = service->host;
    call->stream = c;
    call->caller = *stream_peer(c);
    call->service = service;
    rpc_service_enter(service);
    stream_listen(c, &events, call);
    timer_start(host_loop(call->host), &call->timer, REQUEST_LIMIT, on_request_late, call);
}

int rpc_serve_unary(struct host *h, const char *name, rpc_unary_handler *handler, void *context)
{
    struct rpc_service s = {
        .host = h, .name = (char *)(uintptr_t)name, .unary = handler, .context = context
    };
    return rpc_service_add(&s, on_unary);
}

const struct peer_id *rpc_caller(const struct rpc_call *call) { return &call->caller; }

void rpc_on_cancel(struct rpc_call *call, loop_fn *cancelled, void *context)
{
    call->cancelled = cancelled;
    call->cancelled_context = context;
}

static void answer(struct rpc_call *call, enum rpc_unary_kind kind, const void *data, size_t n)
{
    struct rpc_unary m = { .kind = kind, .data = data, .n = n };
    struct bytes out = { 0 };
    if (call->stream) {
        memcpy(m.call_id, call->id, RPC_CALL_ID);
        if (!rpc_unary_put(&out, &m))
            stream_write(call->stream, bytes_at(&out), bytes_length(&out));
        bytes_clear(&out);
        stream_finish(call->stream);
    }
    call->answered = 1;
    if (!call->in_handler) free_call(call); /* otherwise the request's bytes are still in use */
}

/* 16 bytes of id and at most four field headers come on top. */
#define RESPONSE_MAX (RPC_UNARY_MAX - RPC_CALL_ID - 24)

void rpc_reply(struct rpc_call *call, const void *data, size_t n)
{
    if (n > RESPONSE_MAX) rpc_reply_error(call, "ValueError('the response is larger than 4 MiB')");
    else answer(call, RPC_RESPONSE, data, n);
}

void rpc_reply_error(struct rpc_call *call, const char *text)
{
    size_t n = strlen(text);
    answer(call, RPC_ERROR, text, n < RESPONSE_MAX ? n : RESPONSE_MAX);
}

/* --- client ----------------------------------------------------------------------------------- */

struct rpc_request {
    struct host *host;
    struct stream *stream;
    struct timer timer;
    uint8_t id[RPC_CALL_ID];
    int status; /* the error that the timer will report */
    const char *why;
    rpc_done *done;
    void *context;
};

static void free_request(struct rpc_request *r)
{
    timer_stop(&r->timer);
    stream_close(r->stream);
    free(r);
}

/* Tells the owner once; the response lies in the stream until it has returned. */
static void finish(struct rpc_request *r, const struct rpc_result *result)
{
    timer_stop(&r->timer);
    r->done(r->context, result);
    free_request(r);
}

static void finish_failed(struct rpc_request *r, int status, const char *why)
{
    char text[512];
    struct rpc_result result = { .status = status, .error = text };
    rpc_printable(text, sizeof text, (const uint8_t *)why, strlen(why));
    finish(r, &result);
}

static void response(struct rpc_request *r, const struct rpc_unary *m)
{
    struct rpc_result result = { .data = m->data, .n = m->n };
    stream_finish(r->stream); /* we are done as well: close in order, no reset */
    if (m->kind == RPC_RESPONSE) {
        finish(r, &result);
    } else {
        char text[512];
        rpc_printable(text, sizeof text, m->data, m->n);
        finish_failed(r, PL_EPROTO, text);
    }
}

/* The response must carry our call ID; then both sides have ended, and nothing is reset. */
static void request_readable(void *context, struct stream *c)
{
    struct rpc_request *r = context;
    struct rpc_unary m;
    size_t want, used;
    int ended, rc = read_message(c, &m, &want, &used, &ended);
    if (!rc && (m.kind == RPC_REQUEST || memcmp(m.call_id, r->id, RPC_CALL_ID))) rc = PL_EPROTO;
    if (rc == PL_OK) response(r, &m);
    else if (rc == PL_EAGAIN && ended)
        finish_failed(r, PL_EIO, "the peer has closed the call without an answer");
    else if (rc == PL_EAGAIN && stream_expect(c, want))
        finish_failed(r, PL_ELIMIT, "too much lies unread to take the response");
    else if (rc == PL_ELIMIT) finish_failed(r, rc, "the response is larger than 4 MiB");
    else if (rc != PL_EAGAIN) finish_failed(r, PL_EPROTO, "the response is malformed");
}

static void request_failed(void *context, struct stream *c, int status, const char *why)
{
    finish_failed(context, status, why);
}

static void on_request_over(void *context)
{
    struct rpc_request *r = context;
    finish_failed(r, r->status, r->why);
}

/* A call ID is random: a peer that guesses it gains nothing, since the stream is its caller's
 * anyway. */
static int send_request(struct rpc_request *r, const struct peer_id *peer, const char *name,
                        const void *data, size_t n)
{
    struct rpc_unary m = { .kind = RPC_REQUEST,
                           .data = data,
                           .n = n,
                           .proto = name,
                           .proto_bytes = strlen(name),
                           .peer = peer->bytes,
                           .peer_bytes = peer->length };
    struct bytes out = { 0 };
    int rc = PL_ENOMEM;
    if (RAND_bytes(r->id, RPC_CALL_ID) == 1) {
        memcpy(m.call_id, r->id, RPC_CALL_ID);
        rc = rpc_unary_put(&out, &m);
    }
    if (!rc) stream_write(r->stream, bytes_at(&out), bytes_length(&out));
    bytes_clear(&out);
    return rc;
}

struct rpc_request *rpc_call_unary(struct host *h, const struct peer_id *peer, const char *name,
                                   const void *data, size_t n, double timeout_s, rpc_done *done,
                                   void *context)
{
    static const struct stream_events events = { .readable = request_readable,
                                                 .failed = request_failed };
    struct rpc_request *r = calloc(1, sizeof *r);
    size_t frame = RPC_CALL_ID + 40 + peer->length + strlen(name); /* at most, around the data */
    if (!r) return NULL;
    r->host = h;
    r->done = done;
    r->context = context;
    r->status = PL_EAGAIN;
    r->why = "no answer in time";
    if (frame + n > RPC_UNARY_MAX) {
        r->status = PL_ELIMIT;
        r->why = "the request is larger than 4 MiB";
        timeout_s = 0;
    } else if (!(r->stream = stream_open(h, peer, name, timeout_s + 1, &events, r)) ||
               send_request(r, peer, name, data, n)) {
        free_request(r);
        return NULL;
    }
    timer_start(host_loop(h), &r->timer, timeout_s, on_request_over, r);
    return r;
}

void rpc_cancel(struct rpc_request *r)
{
    if (r) free_request(r); /* the reset tells the other side */
}
