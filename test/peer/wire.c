/* wire.c - libp2p's part of a walk: connections, streams, identify, ping, kad, the frames of
 * calls. */
#include "walk.h"
#include "net/hivemind/kademlia/dht_message.h"
#include "net/libp2p/muxing/conn.h"
#include "net/libp2p/protocols/identify.h"
#include "net/libp2p/protocols/kad.h"
#include "net/libp2p/protocols/ping.h"
#include "net/libp2p/rpc/rpc_frame.h"
#include "net/libp2p/libp2p.h"

#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDENTIFY "/ipfs/id/1.0.0"
#define KAD "/ipfs/kad/1.0.0"
#define PING "/ipfs/ping/1.0.0"
#define STREAMS 64 /* at once: fewer than any peer may have waiting, more than one read takes */

/* --- 5, 6: encryptions ------------------------------------------------------------------------ */

struct dialling {
    struct walk *w;
    struct host *host;
    struct reply reply;
    int done;
};

static void on_dialled(void *context, int status, const struct peer_id *peer,
                       const struct pl_err *err)
{
    struct dialling *d = context;
    (void)peer;
    pthread_mutex_lock(&d->w->talk.lock);
    d->reply.status = status;
    snprintf(d->reply.why, sizeof d->reply.why, "%.250s", status ? err->text : "");
    d->done = 1;
    pthread_cond_broadcast(&d->w->talk.changed);
    pthread_mutex_unlock(&d->w->talk.lock);
}

static void begin_dial(void *context)
{
    struct dialling *d = context;
    if (!host_dial(d->host, &d->w->address, TALK_LIMIT, on_dialled, d))
        on_dialled(d, PL_ENOMEM, NULL, &(struct pl_err){ "no memory" });
}

/* As a stranger with that encryption alone. */
static void encryption(struct walk *w, int security, const char *section, const char *what,
                       int optional)
{
    struct dialling d = { .w = w };
    struct identity me;
    struct host_options o = { .me = &me, .securities = security, .client_mode = 1 };
    struct pl_err err;
    if (identity_make(&me, KEY_ED25519, &err)) {
        walk_skip(w, section, what, "%s", err.text);
        return;
    }
    if (libp2p_open(&d.host, host_loop(w->talk.host), &o, &err)) {
        walk_skip(w, section, what, "%s", err.text);
    } else {
        loop_call(host_loop(w->talk.host), begin_dial, &d);
        pthread_mutex_lock(&w->talk.lock);
        while (!d.done)
            pthread_cond_wait(&w->talk.changed, &w->talk.lock); /* the dial has its own limit */
        pthread_mutex_unlock(&w->talk.lock);
        if (d.reply.status && optional && strstr(d.reply.why, "no encryption in common"))
            walk_skip(w, section, what, "switched off there");
        else walk_clause(w, section, what, !d.reply.status, "%s", d.reply.why);
        host_close(d.host);
    }
    identity_clear(&me);
}

/* --- 4, 8, 10: streams ------------------------------------------------------------------------ */

struct pinging {
    struct talk *t;
    int open, good;
    char why[256];
};

static void on_pong(void *context, int status, double rtt_s, const char *why)
{
    struct pinging *p = context;
    (void)rtt_s;
    pthread_mutex_lock(&p->t->lock);
    p->good += !status;
    if (status) snprintf(p->why, sizeof p->why, "%.250s", why);
    p->open--;
    pthread_cond_broadcast(&p->t->changed);
    pthread_mutex_unlock(&p->t->lock);
}

static void begin_pings(void *context)
{
    struct pinging *p = context;
    for (int i = 0; i < STREAMS; i++)
        p->open += !ping_peer(p->t->host, &p->t->peer, TALK_LIMIT, on_pong, p);
}

static void streams(struct walk *w)
{
    struct pinging p = { .t = &w->talk };
    struct reply s;
    uint8_t sent[2 * PING_BYTES];
    talk_stream(&w->talk, "/nobody/serves/this", NULL, 0, 0, 1, &s);
    walk_clause(w, "wire 4", "a protocol that is not served gets na", s.status == PL_ENOTFOUND,
                "%s", s.why[0] ? s.why : "it was agreed on");
    reply_clear(&s);
    loop_call(host_loop(w->talk.host), begin_pings, &p);
    pthread_mutex_lock(&w->talk.lock);
    while (p.open) pthread_cond_wait(&w->talk.changed, &w->talk.lock); /* each has its own limit */
    pthread_mutex_unlock(&w->talk.lock);
    walk_clause(w, "wire 8", "64 streams at once", p.good == STREAMS, "%d of %d answered; %s",
                p.good, STREAMS, p.why);
    RAND_bytes(sent, sizeof sent);
    talk_stream(&w->talk, PING, sent, sizeof sent, 0, sizeof sent, &s);
    walk_clause(w, "wire 10", "ping: 32 bytes come back, twice on one stream",
                s.end == TALK_ENOUGH && !memcmp(bytes_at(&s.bytes), sent, sizeof sent),
                "%zu of 64 bytes; %s", bytes_length(&s.bytes), s.why);
    reply_clear(&s);
    talk_stream(&w->talk, PING, NULL, 0, 1, 0, &s);
    walk_clause(w, "wire 8", "a finished stream is finished in return", s.end == TALK_CLOSED, "%s",
                s.why);
    reply_clear(&s);
}

/* --- 9: identify ------------------------------------------------------------------------------ */

static int serves(const struct identify_message *m, const char *protocol)
{
    for (size_t i = 0; i < m->protocol_count; i++)
        if (!strcmp(m->protocols[i], protocol)) return 1;
    return 0;
}

static void signed_record(struct walk *w, const struct identify_message *m)
{
    const char *what = "the signed record is this peer's";
    struct record r;
    int rc;
    if (!m->record_bytes) {
        walk_skip(w, "wire 9", what, "it sends none, as it may");
        return;
    }
    rc = record_get(&r, m->record, m->record_bytes);
    walk_clause(w, "wire 9", what, !rc && peer_id_equal(&r.peer, &w->talk.peer), "%s",
                rc ? pl_status_name(rc) : "another peer's");
}

/* 1: it serves kad. */
static int identify(struct walk *w)
{
    struct identify_message m = { 0 };
    struct peer_id id = { 0 };
    struct reply s;
    int rc, kad;
    talk_stream(&w->talk, IDENTIFY, NULL, 0, 0, 0, &s);
    rc = s.end == TALK_CLOSED ? identify_get(&m, bytes_at(&s.bytes), bytes_length(&s.bytes))
                              : s.status;
    if (!walk_clause(w, "wire 9", "identify is answered, and ends", s.end == TALK_CLOSED && !rc,
                     "%s", s.why[0] ? s.why : pl_status_name(rc))) {
        identify_clear(&m);
        reply_clear(&s);
        return 0;
    }
    if (m.public_key_bytes) peer_id_of_key(&id, m.public_key, m.public_key_bytes);
    walk_clause(w, "wire 9", "its public key is the one that its ID is made of",
                !m.public_key_bytes || peer_id_equal(&id, &w->talk.peer), "another key");
    walk_clause(w, "wire 9", "it tells where it listens", m.address_count > 0,
                "no address: nobody else can find it");
    walk_clause(w, "wire 9", "it tells how it sees us", m.observed.length > 0,
                "no observed address");
    signed_record(w, &m);
    walk_clause(w, "wire 9", "it names what it serves: ping, and the DHT's three calls",
                serves(&m, PING) && serves(&m, dht_call_name(DHT_PING)) &&
                    serves(&m, dht_call_name(DHT_STORE)) && serves(&m, dht_call_name(DHT_FIND)),
                "of %zu protocols one of these is missing", m.protocol_count);
    kad = serves(&m, KAD);
    identify_clear(&m);
    reply_clear(&s);
    return kad;
}

/* --- 11: kad ---------------------------------------------------------------------------------- */

static int find_node(struct walk *w, const uint8_t *key, size_t n, struct kad_message *m,
                     struct reply *s)
{
    struct kad_message ask = { .type = KAD_FIND_NODE, .key_bytes = n, .cluster = 1 };
    struct bytes out = { 0 };
    struct cursor c;
    const uint8_t *body;
    size_t length;
    int rc;
    memset(m, 0, sizeof *m);
    if (n) memcpy(ask.key, key, n);
    kad_put(&out, &ask);
    talk_stream(&w->talk, KAD, bytes_at(&out), bytes_length(&out), 1, 0, s);
    bytes_clear(&out);
    c = (struct cursor){ bytes_at(&s->bytes), bytes_length(&s->bytes) };
    rc = s->end != TALK_CLOSED ? s->status : get_delimited(&c, &body, &length, KAD_RESPONSE_MAX);
    if (!rc) rc = kad_get(m, body, length);
    if (rc && !s->why[0])
        snprintf(s->why, sizeof s->why, "%s",
                 c.left ? pl_status_name(rc) : "it ended without an answer");
    return rc;
}

static int names(const struct kad_message *m, const struct peer_id *peer)
{
    for (size_t i = 0; i < m->closer_count; i++)
        if (peer_id_equal(&m->closer[i].id, peer)) return m->closer[i].address_count ? 2 : 1;
    return 0;
}

static void kad(struct walk *w)
{
    uint8_t random[34] = { 0x12, 0x20 };
    struct kad_message m;
    struct reply s;
    int rc = find_node(w, w->talk.peer.bytes, w->talk.peer.length, &m, &s);
    walk_clause(w, "wire 11", "asked for itself it names itself",
                !rc && m.type == KAD_FIND_NODE && names(&m, &w->talk.peer), "%s",
                rc ? s.why : "it does not: nobody would put it into a table");
    kad_clear(&m);
    reply_clear(&s);
    RAND_bytes(random + 2, 32);
    rc = find_node(w, random, sizeof random, &m, &s);
    walk_clause(w, "wire 11", "asked for a stranger it names peers, neither us nor too many",
                !rc && m.type == KAD_FIND_NODE && m.closer_count <= KAD_CLOSER &&
                    !names(&m, host_id(w->talk.host)),
                "%s", rc ? s.why : "it names the asker");
    kad_clear(&m);
    reply_clear(&s);
    rc = find_node(w, NULL, 0, &m, &s);
    walk_clause(w, "wire 11", "an empty key is no question: reset", rc && s.end != TALK_LATE, "%s",
                rc ? s.why : "it was answered");
    kad_clear(&m);
    reply_clear(&s);
}

/* --- 12: unary calls, by the byte ------------------------------------------------------------- */

static void raw_call(struct walk *w, const struct bytes *frame, size_t want, struct reply *s)
{
    talk_stream(&w->talk, dht_call_name(DHT_PING), bytes_at(frame), bytes_length(frame), 0, want,
                s);
}

/* Longest first: the answer's beginning says how long it is. */
static void unary(struct walk *w)
{
    const char *name = dht_call_name(DHT_PING);
    struct rpc_unary ask = { .kind = RPC_REQUEST,
                             .proto = name,
                             .proto_bytes = strlen(name),
                             .peer = w->talk.peer.bytes,
                             .peer_bytes = w->talk.peer.length },
                     answer;
    struct bytes ping = { 0 }, plain = { 0 }, frame = { 0 };
    uint8_t nonce[AUTH_NONCE];
    struct reply s;
    struct cursor c;
    size_t want = 0;
    int rc;
    dht_write_ping(w->auth ? &plain : &ping, NULL, 0);
    if (w->auth) walk_sign(w, &ping, nonce, &plain);
    bytes_clear(&plain);
    RAND_bytes(ask.call_id, RPC_CALL_ID);
    ask.data = bytes_at(&ping);
    ask.n = bytes_length(&ping);
    rpc_unary_put(&frame, &ask);
    raw_call(w, &frame, 0, &s); /* until the end: the callee finishes behind its answer */
    c = (struct cursor){ bytes_at(&s.bytes), bytes_length(&s.bytes) };
    rc = rpc_unary_get(&c, &answer, RPC_UNARY_MAX, &want);
    walk_clause(w, "wire 12",
                "an answer repeats the call's id, and the stream is finished behind it",
                !rc && s.end == TALK_CLOSED && !c.left && answer.kind == RPC_RESPONSE &&
                    !memcmp(answer.call_id, ask.call_id, RPC_CALL_ID),
                "%s",
                s.why[0] ? s.why
                : rc     ? pl_status_name(rc)
                         : "another id, or bytes behind it");
    reply_clear(&s);

    /* Field 1 comes first: id of 16 bytes behind the length, its key and its own length. */
    if (!frame.failed) {
        struct bytes wrong = { 0 };
        c = (struct cursor){ bytes_at(&frame), bytes_length(&frame) };
        uint64_t length;
        if (!get_varint(&c, &length)) {
            bytes_varint(&wrong, length - 1);
            bytes_u8(&wrong, c.at[0]);
            bytes_u8(&wrong, RPC_CALL_ID - 1);
            bytes_add(&wrong, c.at + 3, c.left - 3);
            raw_call(w, &wrong, 0, &s);
            walk_clause(w, "wire 12", "a call id of 15 bytes: finished without an answer",
                        s.end != TALK_LATE && !bytes_length(&s.bytes), "%s",
                        s.end == TALK_LATE ? s.why : "it was answered");
            reply_clear(&s);
        }
        bytes_clear(&wrong);
    }
    bytes_clear(&frame);
    bytes_varint(&frame, RPC_UNARY_MAX + 1);
    bytes_u8(&frame, 0x0a);
    raw_call(w, &frame, 0, &s);
    walk_clause(w, "wire 12", "a request of 4 MiB and a byte: finished without an answer",
                s.end != TALK_LATE && !bytes_length(&s.bytes), "%s",
                s.end == TALK_LATE ? "it waits for all of it" : "it was answered");
    reply_clear(&s);
    bytes_clear(&frame);
    talk_unary(&w->talk, dht_call_name(DHT_FIND), "\xff\xff", 2, &s);
    walk_clause(w, "wire 12", "a request that is no protobuf: refused, not ignored",
                s.end == TALK_FAILED, "%s", s.end == TALK_LATE ? s.why : "it was answered");
    reply_clear(&s);
    bytes_clear(&ping);
}

void walk_wire(struct walk *w)
{
    encryption(w, CONN_NOISE, "wire 5", "a connection by Noise", 0);
    encryption(w, CONN_TLS, "wire 6", "a connection by TLS 1.3", 1);
    streams(w);
    if (identify(w)) kad(w);
    else
        walk_skip(w, "wire 11", "lookups of peers",
                  "it does not serve them: newcomers need another initial peer");
    unary(w);
}
