/* talk.c - blocking calls to one peer: each waits on a condition for the loop's callbacks. */
#include "talk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void talk_init(struct talk *t, struct host *host, const struct peer_id *peer)
{
    pthread_condattr_t how;
    memset(t, 0, sizeof *t);
    t->host = host;
    t->peer = *peer;
    pthread_mutex_init(&t->lock, NULL);
    pthread_condattr_init(&how);
    pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
    pthread_cond_init(&t->changed, &how);
    pthread_condattr_destroy(&how);
}

void talk_clear(struct talk *t)
{
    pthread_cond_destroy(&t->changed);
    pthread_mutex_destroy(&t->lock);
}

static struct timespec in_seconds(double seconds)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_sec += (time_t)seconds;
    at.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
    if (at.tv_nsec >= 1000000000) at.tv_sec++, at.tv_nsec -= 1000000000;
    return at;
}

void talk_sleep(double seconds)
{
    struct timespec until = in_seconds(seconds);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) continue;
}

void reply_clear(struct reply *s)
{
    bytes_clear(&s->bytes);
    memset(s, 0, sizeof *s);
}

/* --- one question ----------------------------------------------------------------------------- */

struct question {
    struct talk *t;
    const char *name;
    const void *data;
    size_t n, want;
    int finish, done;
    struct reply *reply;
    struct stream *channel;
    struct rpc_request *request;
};

static void end_wait(struct question *q, enum talk_end end, int status, const char *why)
{
    pthread_mutex_lock(&q->t->lock);
    if (!q->done) {
        q->reply->end = end;
        q->reply->status = status;
        snprintf(q->reply->why, sizeof q->reply->why, "%.250s", why);
    }
    q->done = 1;
    pthread_cond_broadcast(&q->t->changed);
    pthread_mutex_unlock(&q->t->lock);
}

static void stop(void *context)
{
    struct question *q = context;
    if (q->request) rpc_cancel(q->request);
    stream_close(q->channel);
    q->channel = NULL;
    q->request = NULL;
}

static void ask(struct question *q, loop_fn *begin)
{
    struct timespec until = in_seconds(TALK_LIMIT);
    int late = 0;
    memset(q->reply, 0, sizeof *q->reply);
    q->reply->bytes.limit = TALK_REPLY_MAX;
    loop_call(host_loop(q->t->host), begin, q);
    pthread_mutex_lock(&q->t->lock);
    while (!q->done && !late)
        late = pthread_cond_timedwait(&q->t->changed, &q->t->lock, &until) == ETIMEDOUT;
    pthread_mutex_unlock(&q->t->lock);
    if (late) end_wait(q, TALK_LATE, PL_EAGAIN, "no answer in time");
    loop_call(host_loop(q->t->host), stop, q);
}

static void on_readable(void *context, struct stream *c)
{
    struct question *q = context;
    size_t n;
    int ended;
    const uint8_t *data = stream_data(c, &n, &ended);
    if (q->done) return;
    if (bytes_add(&q->reply->bytes, data, n))
        end_wait(q, TALK_FAILED, PL_ELIMIT, "an answer that is too long");
    stream_took(c, n);
    if (q->want && bytes_length(&q->reply->bytes) >= q->want) end_wait(q, TALK_ENOUGH, PL_OK, "");
    else if (ended) end_wait(q, TALK_CLOSED, PL_OK, "");
}

static void on_failed(void *context, struct stream *c, int status, const char *why)
{
    (void)c;
    end_wait(context, TALK_FAILED, status, why);
}

static void begin_channel(void *context)
{
    static const struct stream_events events = { .readable = on_readable, .failed = on_failed };
    struct question *q = context;
    q->channel = stream_open(q->t->host, &q->t->peer, q->name, TALK_LIMIT, &events, q);
    if (!q->channel) {
        end_wait(q, TALK_FAILED, PL_ENOMEM, "no memory");
        return;
    }
    if (q->n) stream_write(q->channel, q->data, q->n);
    if (q->finish) stream_finish(q->channel);
}

void talk_stream(struct talk *t, const char *protocol, const void *data, size_t n, int finish,
                 size_t want, struct reply *s)
{
    struct question q = {
        .t = t, .name = protocol, .data = data, .n = n, .want = want, .finish = finish, .reply = s
    };
    ask(&q, begin_channel);
}

static void on_called(void *context, const struct rpc_result *r)
{
    struct question *q = context;
    q->request = NULL;
    if (!r->status) bytes_add(&q->reply->bytes, r->data, r->n);
    end_wait(q, r->status ? TALK_FAILED : TALK_CLOSED, r->status, r->status ? r->error : "");
}

static void begin_unary(void *context)
{
    struct question *q = context;
    q->request = rpc_call_unary(q->t->host, &q->t->peer, q->name, q->data, q->n, TALK_LIMIT,
                                on_called, q);
    if (!q->request) end_wait(q, TALK_FAILED, PL_ENOMEM, "no memory");
}

void talk_unary(struct talk *t, const char *name, const void *data, size_t n, struct reply *s)
{
    struct question q = { .t = t, .name = name, .data = data, .n = n, .reply = s };
    ask(&q, begin_unary);
}

/* --- streaming calls -------------------------------------------------------------------------- */

struct talk_stream {
    struct talk *t;
    struct rpc_stream *stream;
    struct peer_id peer;
    const char *name;
    size_t message_max;
    const void *data; /* on its way to the loop */
    size_t n;
    struct bytes message;
    int has_message, was_taken, ended, status;
    char why[256];
};

static void wake(struct talk_stream *s)
{
    pthread_cond_broadcast(&s->t->changed);
    pthread_mutex_unlock(&s->t->lock);
}

static void stream_message(void *context, struct rpc_stream *stream, const uint8_t *data, size_t n)
{
    struct talk_stream *s = context;
    (void)stream;
    pthread_mutex_lock(&s->t->lock);
    bytes_add(&s->message, data, n);
    s->has_message = 1;
    wake(s);
}

static void stream_end(void *context, struct rpc_stream *stream)
{
    struct talk_stream *s = context;
    (void)stream;
    pthread_mutex_lock(&s->t->lock);
    s->ended = 1;
    wake(s);
}

static void stream_failed(void *context, struct rpc_stream *stream, int status, const char *why)
{
    struct talk_stream *s = context;
    (void)stream;
    pthread_mutex_lock(&s->t->lock);
    s->status = status;
    snprintf(s->why, sizeof s->why, "%.250s", why);
    wake(s);
}

static void talk_stream_open(void *context)
{
    static const struct rpc_stream_events events = { stream_message, stream_end, stream_failed,
                                                     NULL };
    struct talk_stream *s = context;
    s->stream = rpc_open(s->t->host, &s->peer, s->name, s->message_max, TALK_LIMIT, &events, s);
    if (!s->stream) return;
    rpc_pause(s->stream);
    rpc_credit(s->stream, 1);
}

struct talk_stream *talk_open(struct talk *t, const struct peer_id *peer, const char *name,
                              size_t message_max)
{
    struct talk_stream *s = calloc(1, sizeof *s);
    if (!s) return NULL;
    s->t = t;
    s->peer = *peer;
    s->name = name;
    s->message_max = message_max;
    loop_call(host_loop(t->host), talk_stream_open, s);
    if (s->stream) return s;
    free(s);
    return NULL;
}

static void stream_send(void *context)
{
    struct talk_stream *s = context;
    if (!s->status) rpc_send(s->stream, s->data, s->n);
}

void talk_send(struct talk_stream *s, const void *data, size_t n)
{
    s->data = data;
    s->n = n;
    loop_call(host_loop(s->t->host), stream_send, s);
}

static void stream_send_end(void *context)
{
    struct talk_stream *s = context;
    if (!s->status) rpc_end(s->stream);
}

void talk_send_end(struct talk_stream *s) { loop_call(host_loop(s->t->host), stream_send_end, s); }

static void stream_send_last(void *context)
{
    stream_send(context);
    stream_send_end(context);
}

void talk_send_last(struct talk_stream *s, const void *data, size_t n)
{
    s->data = data;
    s->n = n;
    loop_call(host_loop(s->t->host), stream_send_last, s);
}

/* The last message is done with: one more may come. */
static void stream_more(void *context)
{
    struct talk_stream *s = context;
    s->has_message = s->was_taken = 0;
    bytes_take(&s->message, bytes_length(&s->message));
    if (!s->status) rpc_credit(s->stream, 1);
}

int talk_next(struct talk_stream *s, double limit_s, const uint8_t **data, size_t *n)
{
    struct timespec until = in_seconds(limit_s);
    int late = 0, rc;
    if (s->was_taken) loop_call(host_loop(s->t->host), stream_more, s);
    pthread_mutex_lock(&s->t->lock);
    while (!s->has_message && !s->ended && !s->status && !late)
        late = pthread_cond_timedwait(&s->t->changed, &s->t->lock, &until) == ETIMEDOUT;
    rc = s->has_message ? s->message.failed
         : s->ended     ? PL_ENOTFOUND
         : s->status    ? s->status
                        : PL_EAGAIN;
    *data = bytes_at(&s->message);
    *n = bytes_length(&s->message);
    s->was_taken = s->has_message;
    pthread_mutex_unlock(&s->t->lock);
    return rc;
}

const char *talk_why(const struct talk_stream *s)
{
    return s->why[0] ? s->why : s->ended ? "the other side has ended it" : "no message in time";
}

static void talk_stream_close(void *context)
{
    struct talk_stream *s = context;
    rpc_close(s->stream);
}

void talk_close(struct talk_stream *s)
{
    if (!s) return;
    loop_call(host_loop(s->t->host), talk_stream_close, s);
    bytes_clear(&s->message);
    free(s);
}
