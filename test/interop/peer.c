/* peer.c - a C peer for the interop tests: serves a few RPCs, or calls the same RPCs of another
 * peer.
 *
 *   peer --token-times
 *   peer [--listen MULTIADDR] [--identity FILE] [--security noise|tls] [--client-mode] [--relay]
 *        [--join MULTIADDR]... [--use-relay MULTIADDR] [--call PEERID|MULTIADDR] [--direct SECONDS]
 *        [--report]
 *
 * --relay carries connections for others, --use-relay wants to be called through that peer and says
 * {"event":"relayed","multiaddr":...} once it can be.
 *
 * --direct calls nothing: it waits this long for a direct connection to the peer that --call names.
 * --report prints {"event":"addresses","multiaddrs":[...]} whenever our own addresses change.
 *
 * --token-times reads texts that end in NUL, and prints a line each: the time that it is as a
 * token's end, or "-".
 *
 * Prints JSON lines: {"event":"listening","multiaddr":...} first. Without --call it runs until its
 * standard input ends. With it, each step is a line {"event":"step","name":...,"ok":true|false,...}
 * and the exit status is 0 only if every step was ok.
 * peer_served.c serves the calls. */
#include "peer_served.h"
#include "net/hivemind/moderation/auth.h"
#include "net/libp2p/muxing/conn.h"
#include "net/libp2p/protocols/ping.h"
#include "net/libp2p/relay/relay.h"
#include "net/libp2p/rpc/rpc.h"
#include "net/libp2p/libp2p.h"

#include <jansson.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PATIENCE 120.0 /* s for anything: nothing here is judged by how long it takes */

static struct host *host;
static struct loop *loop;

static void say(json_t *line)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    char *text = json_dumps(line, JSON_COMPACT);
    pthread_mutex_lock(&lock);
    puts(text);
    fflush(stdout);
    pthread_mutex_unlock(&lock);
    free(text);
    json_decref(line);
}

/* --- calls, one after the other --- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int done, good;
    struct peer_id peer;
    struct multiaddr at;
    char note[600];
    uint8_t *blob;
    size_t blob_bytes;
    int64_t sum, messages, sent;
} step = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

static void step_done(int good, const char *note)
{
    pthread_mutex_lock(&step.lock);
    step.done = 1;
    step.good = good;
    snprintf(step.note, sizeof step.note, "%s", note ? note : "");
    pthread_cond_signal(&step.changed);
    pthread_mutex_unlock(&step.lock);
}

/* Runs one step on the loop's thread and waits for it. */
static int run(const char *name, loop_fn *fn)
{
    double began = pl_seconds();
    json_t *line;
    step.done = step.good = 0;
    step.sum = step.messages = step.sent = 0;
    loop_post(loop, fn, NULL);
    pthread_mutex_lock(&step.lock);
    while (!step.done) pthread_cond_wait(&step.changed, &step.lock);
    pthread_mutex_unlock(&step.lock);
    line = json_pack("{s:s,s:s,s:b,s:f}", "event", "step", "name", name, "ok", step.good, "ms",
                     1e3 * (pl_seconds() - began));
    if (step.note[0]) json_object_set_new(line, "note", json_string(step.note));
    say(line);
    return step.good;
}

static void on_connected(void *context, int status, const struct peer_id *peer,
                         const struct pl_err *err)
{
    (void)context;
    step.peer = *peer;
    step_done(status == PL_OK, status ? err->text : NULL);
}

static void dial(void *context)
{
    (void)context;
    if (!host_dial(host, &step.at, PATIENCE, on_connected, NULL)) step_done(0, "no memory");
}

static void find(void *context)
{
    (void)context;
    if (!host_connect(host, &step.peer, PATIENCE, on_connected, NULL)) step_done(0, "no memory");
}

static void on_ping(void *context, int status, double rtt_s, const char *why)
{
    (void)context, (void)rtt_s;
    step_done(status == PL_OK, why);
}

static void ping(void *context)
{
    (void)context;
    if (ping_peer(host, &step.peer, PATIENCE, on_ping, NULL)) step_done(0, "no memory");
}

static void on_square(void *context, const struct rpc_result *r)
{
    (void)context;
    step_done(r->status == PL_OK && peer_number_read(r->data, r->n) == 49, r->error);
}

static void on_thirteen(void *context, const struct rpc_result *r)
{
    (void)context;
    step_done(r->status == PL_EPROTO && strstr(r->error, "thirteen") != NULL, r->error);
}

static void on_unknown(void *context, const struct rpc_result *r)
{
    (void)context;
    step_done(r->status == PL_ENOTFOUND, r->error);
}

static void on_blob(void *context, const struct rpc_result *r)
{
    (void)context;
    step_done(r->status == PL_OK && r->n == step.blob_bytes && !memcmp(r->data, step.blob, r->n),
              r->error);
}

static void call_number(const char *name, int64_t x, rpc_done *done)
{
    uint8_t raw[16];
    size_t n = peer_number_write(raw, x);
    if (!rpc_call_unary(host, &step.peer, name, raw, n, PATIENCE, done, NULL))
        step_done(0, "no memory");
}

static void call_square(void *context)
{
    (void)context;
    call_number("Test.square", 7, on_square);
}

static void call_thirteen(void *context)
{
    (void)context;
    call_number("Test.square", 13, on_thirteen);
}

static void call_unknown(void *context)
{
    (void)context;
    call_number("Test.unknown", 1, on_unknown);
}

static void call_echo(void *context)
{
    (void)context;
    if (!rpc_call_unary(host, &step.peer, "Test.echo", step.blob, step.blob_bytes, PATIENCE,
                        on_blob, NULL))
        step_done(0, "no memory");
}

static void stream_failed(void *context, struct rpc_stream *s, int status, const char *why)
{
    (void)status;
    step_done(context != NULL && strstr(why, "thirteen") != NULL, why);
    rpc_close(s);
}

static void add_number(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    (void)context, (void)s;
    step.sum += peer_number_read(data, n);
    step.messages++;
}

static void count_over(void *context, struct rpc_stream *s)
{
    step_done(!context && step.messages == 100 && step.sum == 4950, NULL);
    rpc_close(s);
}

static void total_over(void *context, struct rpc_stream *s)
{
    (void)context;
    step_done(step.messages == 1 && step.sum == 5050, NULL);
    rpc_close(s);
}

static void mirrored(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    (void)context, (void)s;
    step.messages += n == step.blob_bytes && !memcmp(data, step.blob, n);
}

static void mirror_over(void *context, struct rpc_stream *s)
{
    (void)context;
    step_done(step.messages == 8, NULL);
    rpc_close(s);
}

static void mirror_more(void *context, struct rpc_stream *s)
{
    (void)context;
    while (step.sent < 8 && !rpc_queued(s)) {
        step.sent++;
        rpc_send(s, step.blob, step.blob_bytes);
    }
    if (step.sent == 8 && !rpc_queued(s)) rpc_end(s);
}

static struct rpc_stream *open_stream(const char *name, const struct rpc_stream_events *events,
                                      void *context)
{
    struct rpc_stream *s = rpc_open(host, &step.peer, name, PEER_MESSAGE_MAX, PATIENCE, events,
                                    context);
    if (!s) step_done(0, "no memory");
    else rpc_deadline(s, PATIENCE);
    return s;
}

static void call_count(void *context)
{
    static const struct rpc_stream_events events = { add_number, count_over, stream_failed, NULL };
    struct rpc_stream *s = open_stream("Test.count", &events, NULL);
    (void)context;
    if (!s) return;
    peer_number_send(s, 100);
    rpc_end(s);
}

static void call_count_thirteen(void *context)
{
    static const struct rpc_stream_events events = { add_number, count_over, stream_failed, NULL };
    static int expected;
    struct rpc_stream *s = open_stream("Test.count", &events, &expected);
    (void)context;
    if (!s) return;
    peer_number_send(s, 13);
    rpc_end(s);
}

static void call_total(void *context)
{
    static const struct rpc_stream_events events = { add_number, total_over, stream_failed, NULL };
    struct rpc_stream *s = open_stream("Test.total", &events, NULL);
    (void)context;
    if (!s) return;
    for (int i = 1; i <= 100; i++) peer_number_send(s, i);
    rpc_end(s);
}

static void call_mirror(void *context)
{
    static const struct rpc_stream_events events = { mirrored, mirror_over, stream_failed,
                                                     mirror_more };
    struct rpc_stream *s = open_stream("Test.mirror", &events, NULL);
    (void)context;
    if (s) mirror_more(NULL, s);
}

static void use_relay(void *context)
{
    (void)context;
    relay_use(host, &step.peer);
}

static void find_relay_address(void *context)
{
    struct multiaddr at;
    char text[MULTIADDR_TEXT_MAX];
    int *found = context;
    if (*found || !relay_addresses(host, &at, 1)) return;
    *found = 1;
    multiaddr_add_peer(&at, host_id(host));
    multiaddr_text(text, &at);
    say(json_pack("{s:s,s:s}", "event", "relayed", "multiaddr", text));
}

static int be_called_through(const char *relay, struct pl_err *err)
{
    double end = pl_seconds() + PATIENCE;
    int found = 0;
    if (multiaddr_from_text(&step.at, relay, err) || !run("relay", dial)) return 0;
    loop_call(loop, use_relay, NULL);
    while (!found && pl_seconds() < end) {
        usleep(50000);
        loop_call(loop, find_relay_address, &found);
    }
    if (!found) fprintf(stderr, "peer: %s: no reservation within %g s\n", relay, PATIENCE);
    return found;
}

static int call_all(void)
{
    int good = run("square", call_square);
    good &= run("error", call_thirteen);
    good &= run("unknown", call_unknown);
    good &= run("echo", call_echo);
    good &= run("count", call_count);
    good &= run("stream error", call_count_thirteen);
    good &= run("total", call_total);
    good &= run("mirror", call_mirror);
    return good & run("ping", ping);
}

/* A runtime.Tensor whose field 1, buffer, is `n` bytes: both sides can parse it. */
static void make_blob(size_t n)
{
    struct bytes b = { 0 };
    bytes_u8(&b, 1 << 3 | 2);
    bytes_varint(&b, n);
    for (size_t i = 0; i < n; i++) bytes_u8(&b, (uint8_t)(i * 2654435761u >> 13));
    step.blob = b.data;
    step.blob_bytes = bytes_length(&b);
}

static void print_addresses(void *context)
{
    struct multiaddr list[HOST_LISTEN_MAX];
    size_t n = host_addresses(host, list, PL_COUNT(list));
    char text[MULTIADDR_TEXT_MAX], id[PEER_ID_TEXT_MAX];
    (void)context;
    peer_id_text(id, host_id(host));
    text[0] = 0;
    if (n) multiaddr_text(text, &list[0]);
    say(json_pack("{s:s,s:s,s:s}", "event", "listening", "multiaddr", text, "peer_id", id));
}

/* A connection to the peer of this step that no relay carries. */
static void find_direct(void *context)
{
    struct multiaddr_target t;
    int *found = context;
    *found = !host_remote_address(host, &step.peer, &step.at) && !multiaddr_target(&t, &step.at) &&
             !t.relay.length;
}

static int await_direct(double seconds)
{
    char text[MULTIADDR_TEXT_MAX] = "";
    double began = pl_seconds();
    int found = 0;
    while (!found && pl_seconds() < began + seconds) {
        usleep(10000);
        loop_call(loop, find_direct, &found);
    }
    if (found) multiaddr_text(text, &step.at);
    say(json_pack("{s:s,s:s,s:b,s:f,s:s}", "event", "step", "name", "direct", "ok", found, "ms",
                  1e3 * (pl_seconds() - began), "note", text));
    return found;
}

static void report_addresses(void *context)
{
    struct multiaddr list[HOST_LISTEN_MAX];
    size_t n = host_addresses(host, list, PL_COUNT(list));
    char text[MULTIADDR_TEXT_MAX];
    json_t *array = json_array();
    (void)context;
    for (size_t i = 0; i < n; i++) {
        multiaddr_text(text, &list[i]);
        json_array_append_new(array, json_string(text));
    }
    say(json_pack("{s:s,s:o}", "event", "addresses", "multiaddrs", array));
}

static struct host_watch report = { .events.changed = report_addresses };
static void begin_report(void *context)
{
    (void)context;
    host_watch(host, &report);
}

static int token_times(void)
{
    char *line = NULL, text[AUTH_TIME_TEXT];
    size_t capacity = 0;
    int64_t time;
    for (ssize_t n; (n = getdelim(&line, &capacity, 0, stdin)) > 0;)
        puts(auth_time_parse(&time, line, (size_t)n - 1) || auth_time_write(text, time) ? "-"
                                                                                        : text);
    free(line);
    return 0;
}

int main(int argc, char **argv)
{
    struct host_options o = { 0 };
    struct identity me = { 0 };
    struct pl_err err = { "" };
    const char *listen[HOST_LISTEN_MAX], *identity = NULL, *call = NULL, *relay = NULL, *join[16];
    size_t joins = 0;
    double direct = 0;
    int good = 1, reports = 0;
    o.listen = listen;
    if (argc == 2 && !strcmp(argv[1], "--token-times")) return token_times();
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (!strcmp(argv[i], "--client-mode")) {
            o.client_mode = 1;
            continue;
        }
        if (!strcmp(argv[i], "--report")) {
            reports = 1;
            continue;
        }
        if (!strcmp(argv[i], "--relay")) {
            o.relay = 1;
            continue;
        }
        if (!strcmp(argv[i], "--listen") && o.listen_count < PL_COUNT(listen))
            listen[o.listen_count++] = value;
        else if (!strcmp(argv[i], "--identity")) identity = value;
        else if (!strcmp(argv[i], "--security"))
            o.securities = strcmp(value, "tls") ? CONN_NOISE : CONN_TLS;
        else if (!strcmp(argv[i], "--join") && joins < PL_COUNT(join)) join[joins++] = value;
        else if (!strcmp(argv[i], "--use-relay")) relay = value;
        else if (!strcmp(argv[i], "--call")) call = value;
        else if (!strcmp(argv[i], "--direct")) direct = atof(value);
        else return fprintf(stderr, "peer: unknown option %s\n", argv[i]), 2;
        i++;
    }
    if (identity ? identity_file(&me, identity, &err) : identity_make(&me, KEY_ED25519, &err))
        return fprintf(stderr, "peer: %s\n", err.text), 1;
    o.me = &me;
    if (loop_open(&loop, &err) || libp2p_open(&host, loop, &o, &err))
        return fprintf(stderr, "peer: %s\n", err.text), 1;
    loop_call(loop, peer_serve, host);
    loop_call(loop, print_addresses, NULL);
    if (reports) loop_call(loop, begin_report, NULL);
    make_blob(3 << 20);
    for (size_t i = 0; i < joins && good; i++) {
        good = !multiaddr_from_text(&step.at, join[i], &err);
        if (good) good = run("join", dial);
    }
    if (relay && good) good = be_called_through(relay, &err);
    if (call && good) {
        if (call[0] == '/') {
            good = !multiaddr_from_text(&step.at, call, &err) && run("dial", dial);
        } else {
            good = !peer_id_from_text(&step.peer, call, strlen(call)) && run("find", find);
        }
        if (good) good = direct > 0 ? await_direct(direct) : call_all();
    }
    if (!call && good)
        while (getchar() != EOF) {}
    host_close(host);
    loop_close(loop);
    identity_clear(&me);
    free(step.blob);
    return good ? 0 : 1;
}
