/* golden_wire_session.c - whole decrypted sessions: our engine receives every recorded frame; then
 * each stream is parsed as the protocol it negotiated: identify, Kademlia, hivemind's unary
 * calls. */
#include "golden_wire.h"
#include "net/libp2p/protocols/identify.h"
#include "net/libp2p/muxing/multistream.h"
#include "net/libp2p/rpc/rpc_frame.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STREAMS_MAX 4096

struct talk {
    uint32_t id;
    int theirs;           /* opened by the other side */
    struct bytes in, out; /* bodies as they went */
};

struct session {
    struct talk talks[STREAMS_MAX];
    size_t count;
    const json_t *entry;
};

static struct talk *talk_of(struct session *s, uint32_t id, int theirs)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->talks[i].id == id) return &s->talks[i];
    if (s->count == STREAMS_MAX) return NULL;
    s->talks[s->count] = (struct talk){ .id = id, .theirs = theirs };
    return &s->talks[s->count++];
}

/* The protocol that a listener finds: the last one that was proposed, if the recorded listener
 * accepted it. */
struct proposal {
    char name[MULTISTREAM_TOKEN_MAX];
    struct cursor answers; /* the recorded listener's tokens, header first */
    int refused;           /* others before it were */
};

static int take_as_recorded(void *context, const char *name, size_t n)
{
    struct proposal *p = context;
    const uint8_t *token;
    size_t length;
    snprintf(p->name, sizeof p->name, "%.*s", (int)n, name);
    if (get_delimited(&p->answers, &token, &length, MULTISTREAM_TOKEN_MAX) || length != 3 ||
        memcmp(token, "na\n", 3))
        return 0;
    p->refused = 1;
    return -1;
}

/* The peer that a session names under the key, if it names one. */
static int is_peer(const json_t *entry, const char *key, const struct peer_id *id)
{
    const char *want = json_string_value(json_object_get(entry, key));
    char text[PEER_ID_TEXT_MAX];
    peer_id_text(text, id);
    return !want || !strcmp(want, text);
}

static void check_identity(struct golden *g, const struct session *s, const char *what,
                           struct cursor message, int by_them)
{
    struct identify_message m;
    struct peer_id id = { 0 };
    int rc = identify_get(&m, message.at, message.left);
    if (!rc && m.public_key_bytes) peer_id_of_key(&id, m.public_key, m.public_key_bytes);
    golden_check(g, what,
                 !rc && m.protocol_count &&
                     is_peer(s->entry, by_them ? "dialer_peer_id" : "our_peer_id", &id),
                 "status %d", rc);
    if (!rc && m.record_bytes) {
        struct record r;
        golden_check(g, what,
                     !record_get(&r, m.record, m.record_bytes) && peer_id_equal(&r.peer, &id),
                     "its signed record is not valid");
    }
    identify_clear(&m);
}

static void check_lookups(struct golden *g, const char *what, struct cursor asked,
                          struct cursor answered)
{
    while (asked.left) {
        struct kad_message request = { 0 }, reply = { 0 };
        struct bytes raw = { 0 };
        const uint8_t *body;
        size_t n;
        int rc = get_delimited(&asked, &body, &n, KAD_REQUEST_MAX);
        if (!rc) {
            bytes_add(&raw, body, n);
            rc = golden_wire_kad_message(g, what, &raw, &request);
            bytes_take(&raw, bytes_length(&raw));
        }
        if (!rc) rc = get_delimited(&answered, &body, &n, KAD_RESPONSE_MAX);
        if (!rc && !kad_get(&reply, body, n))
            golden_check(g, what, request.type == KAD_FIND_NODE && reply.type == KAD_FIND_NODE,
                         "another type");
        else golden_fail(g, what, "a request or its answer cannot be read: status %d", rc);
        kad_clear(&request);
        kad_clear(&reply);
        bytes_clear(&raw);
        if (rc) return;
    }
}

static void check_call(struct golden *g, const struct session *s, const char *what,
                       const char *protocol, struct cursor asked, struct cursor answered)
{
    const char *hex = json_string_value(json_object_get(s->entry, "response_data"));
    struct bytes request_raw = { 0 }, reply_raw = { 0 }, want = { 0 };
    struct rpc_unary request, reply;
    bytes_add(&request_raw, asked.at, asked.left);
    bytes_add(&reply_raw, answered.at, answered.left);
    if (!golden_wire_unary_message(g, what, &request_raw, &request) &&
        !golden_wire_unary_message(g, what, &reply_raw, &reply)) {
        golden_check(g, what,
                     request.kind == RPC_REQUEST && reply.kind != RPC_REQUEST &&
                         !memcmp(request.call_id, reply.call_id, RPC_CALL_ID) &&
                         request.proto_bytes == strlen(protocol) &&
                         !memcmp(request.proto, protocol, request.proto_bytes),
                     "request and answer do not belong together");
        if (hex && !wire_hex(&want, hex))
            golden_check(g, what,
                         reply.n == bytes_length(&want) &&
                             !memcmp(reply.data, bytes_at(&want), reply.n),
                         "another response");
    }
    bytes_clear(&request_raw);
    bytes_clear(&reply_raw);
    bytes_clear(&want);
}

static void check_talk(struct golden *g, const struct session *s, const struct talk *t,
                       const char *name)
{
    const struct bytes *opener = t->theirs ? &t->in : &t->out,
                       *other = t->theirs ? &t->out : &t->in;
    struct cursor asked = { bytes_at(opener), bytes_length(opener) };
    struct cursor answered = { bytes_at(other), bytes_length(other) };
    struct proposal p = { .answers = answered };
    const char *wanted[1] = { p.name };
    struct multistream listener, dialer;
    struct bytes ours = { 0 };
    const uint8_t *token;
    char what[200];
    size_t n;
    int rc;
    get_delimited(&p.answers, &token, &n, MULTISTREAM_TOKEN_MAX);
    multistream_listen(&listener, take_as_recorded, &p, &ours);
    rc = multistream_receive(&listener, &asked, &ours);
    snprintf(what, sizeof what, "%.60s stream %u %.80s", name, (unsigned)t->id, p.name);
    golden_check(g, what,
                 (!rc || rc == PL_EAGAIN) && answered.left >= bytes_length(&ours) &&
                     !memcmp(answered.at, bytes_at(&ours), bytes_length(&ours)),
                 "negotiates otherwise");
    n = bytes_length(&ours);
    bytes_take(&ours, n);
    if (!rc && p.refused) {
        answered = n <= answered.left ? (struct cursor){ answered.at + n, answered.left - n }
                                      : (struct cursor){ answered.at, 0 };
    } else if (!rc) {
        multistream_dial(&dialer, wanted, 1, &ours);
        rc = multistream_receive(&dialer, &answered, &ours);
        golden_check(g, what, !rc, "the answer is not taken: status %d", rc);
    }
    if (!rc && !strcmp(p.name, "/ipfs/id/1.0.0")) check_identity(g, s, what, answered, !t->theirs);
    else if (!rc && !strcmp(p.name, "/ipfs/id/push/1.0.0"))
        check_identity(g, s, what, asked, t->theirs);
    else if (!rc && !strcmp(p.name, "/ipfs/kad/1.0.0")) check_lookups(g, what, asked, answered);
    else if (!rc && p.name[0] != '/') check_call(g, s, what, p.name, asked, answered);
    bytes_clear(&ours);
}

static void check_session(struct golden *g, const char *name, const json_t *entry)
{
    struct session *s = calloc(1, sizeof *s);
    size_t i;
    json_t *frame;
    if (!s) return;
    s->entry = entry;
    golden_wire_replay(g, name, entry);
    json_array_foreach(json_object_get(entry, "frames"), i, frame)
    {
        const char *dir = json_string_value(json_object_get(frame, "dir"));
        int in = dir && !strcmp(dir, "in");
        struct bytes raw = { 0 };
        struct yamux_frame f;
        struct cursor c;
        struct talk *t;
        if (!golden_wire_frame_bytes(g, frame, &raw)) continue;
        c = (struct cursor){ bytes_at(&raw), bytes_length(&raw) };
        if (!yamux_frame_get(&c, &f) && f.stream && (t = talk_of(s, f.stream, in)) &&
            f.type == YAMUX_DATA)
            bytes_add(in ? &t->in : &t->out, c.at, c.left);
        bytes_clear(&raw);
    }
    for (i = 0; i < s->count; i++) {
        check_talk(g, s, &s->talks[i], name);
        bytes_clear(&s->talks[i].in);
        bytes_clear(&s->talks[i].out);
    }
    free(s);
}

void golden_wire_dht_session(struct golden *g, const json_t *root)
{
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)(uintptr_t)root, name,
                        entry) if (json_object_get(entry, "frames")) check_session(g, name, entry);
}
