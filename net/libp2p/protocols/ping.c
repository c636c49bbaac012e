/* ping.c - 32 random bytes there and back. [spec libp2p-wire 10]
 *
 * The server sends back whole blocks of 32 bytes, for as long as the stream is open. The client
 * measures from the moment that the protocol is agreed on, so that connecting does not count. */
#include "ping.h"
#include "net/libp2p/host/exchange.h"
#include "net/libp2p/host/host_protocol.h"

#include <openssl/rand.h>
#include <string.h>

#define PING "/ipfs/ping/1.0.0"

/* --- server ----------------------------------------------------------------------------------- */

/* Whole blocks only: half a block waits for its rest. */
static void on_pinged(void *context, struct stream *c)
{
    struct exchange *x = context;
    size_t n;
    int ended;
    const uint8_t *data = stream_data(c, &n, &ended);
    size_t whole = n - n % PING_BYTES;
    if (whole) {
        stream_write(c, data, whole);
        stream_took(c, whole);
        timer_start(host_loop(x->host), &x->timer, PING_IDLE_LIMIT, exchange_end, x);
    }
    if (!ended) return;
    stream_finish(c);
    exchange_end(x);
}

static void on_opened(void *context, struct stream *c)
{
    static const struct stream_events events = { .readable = on_pinged, .failed = exchange_failed };
    exchange_serve(c, NULL, sizeof(struct exchange), &events, PING_IDLE_LIMIT, exchange_end);
}

static int start(struct host *h) { return host_serve(h, PING, on_opened, h); }

const struct host_protocol ping_protocol = { .start = start };

/* --- client ----------------------------------------------------------------------------------- */

/* A ping of ours. */
struct pinging {
    struct exchange exchange;
    uint8_t sent[PING_BYTES];
    double sent_at;
    ping_done *done;
    void *context;
};

static void report(struct pinging *p, int status, const char *why)
{
    ping_done *done = p->done;
    void *context = p->context;
    double rtt = pl_seconds() - p->sent_at;
    struct pl_err copy;
    pl_fail(&copy, status, "%s", why);
    exchange_end(p);
    done(context, status, status ? 0 : rtt, copy.text);
}

static void on_late(void *context) { report(context, PL_EAGAIN, "no answer to a ping in time"); }

static void on_failed(void *context, struct stream *c, int status, const char *why)
{
    report(context, status, why);
}

static void on_agreed(void *context, struct stream *c)
{
    struct pinging *p = context;
    p->sent_at = pl_seconds();
    stream_write(c, p->sent, PING_BYTES);
}

/* The bytes must be ours: an echo of anything else proves nothing. */
static void on_echo(void *context, struct stream *c)
{
    struct pinging *p = context;
    size_t n;
    int ended;
    const uint8_t *data = stream_data(c, &n, &ended);
    if (n < PING_BYTES && !ended) return;
    stream_finish(c);
    if (n == PING_BYTES && !memcmp(data, p->sent, PING_BYTES)) report(p, PL_OK, "");
    else report(p, PL_EPROTO, "the answer to a ping differs from the ping");
}

int ping_peer(struct host *h, const struct peer_id *peer, double timeout_s, ping_done *done,
              void *context)
{
    static const struct stream_events events = { .open = on_agreed,
                                                 .readable = on_echo,
                                                 .failed = on_failed };
    struct pinging *p = exchange_new(h, NULL, sizeof *p);
    if (!p) return PL_ENOMEM;
    p->done = done;
    p->context = context;
    if (RAND_bytes(p->sent, PING_BYTES) != 1 ||
        !(p->exchange.stream = stream_open(h, peer, PING, timeout_s, &events, p))) {
        exchange_end(p);
        return PL_ENOMEM;
    }
    timer_start(host_loop(h), &p->exchange.timer, timeout_s, on_late, p);
    return PL_OK;
}
