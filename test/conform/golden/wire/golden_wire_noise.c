/* golden_wire_noise.c - handshakes with fixed keys and every value on the way; a session with a
 * real peer, decrypted. */
#include "golden_wire.h"
#include "net/libp2p/muxing/multistream.h"
#include "net/libp2p/security/noise.h"
#include "net/libp2p/muxing/yamux.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

struct side {
    struct identity me;
    struct bytes identity, fixed_s, fixed_e, payload, out, plain;
    struct secure *secure;
    struct noise_trace seen[16];
    int steps;
};

static void on_trace(void *context, const struct noise_trace *now)
{
    struct side *s = context;
    if (s->steps < (int)PL_COUNT(s->seen)) s->seen[s->steps++] = *now;
}

static int open_side(struct golden *g, struct side *s, const json_t *h, const char *who)
{
    int initiator = !strcmp(who, "initiator");
    struct noise_fixed fixed = { .trace = on_trace, .context = s };
    struct pl_err err;
    char key[60];
    snprintf(key, sizeof key, "%s_identity_private", who);
    if (!wire_member(g, h, key, &s->identity)) return 0;
    snprintf(key, sizeof key, "%s_static_private", who);
    if (!wire_member(g, h, key, &s->fixed_s)) return 0;
    snprintf(key, sizeof key, "%s_ephemeral_private", who);
    if (!wire_member(g, h, key, &s->fixed_e)) return 0;
    snprintf(key, sizeof key, "%s_payload", who);
    if (!wire_member(g, h, key, &s->payload)) return 0;
    if (bytes_length(&s->fixed_s) != 32 || bytes_length(&s->fixed_e) != 32) {
        golden_fail(g, who, "its static or ephemeral key is not of 32 bytes");
        return 0;
    }
    if (identity_parse(&s->me, bytes_at(&s->identity), bytes_length(&s->identity), &err)) {
        golden_fail(g, who, "%s", err.text);
        return 0;
    }
    fixed.static_private = bytes_at(&s->fixed_s);
    fixed.ephemeral_private = bytes_at(&s->fixed_e);
    fixed.payload = bytes_at(&s->payload);
    fixed.payload_bytes = bytes_length(&s->payload);
    if (!noise_open_fixed(&s->secure, &s->me, initiator, NULL, &s->out, &fixed)) return 1;
    golden_fail(g, who, "the engine does not open");
    return 0;
}

static void close_side(struct side *s)
{
    if (s->secure) s->secure->close(s->secure);
    identity_clear(&s->me);
    bytes_clear(&s->identity);
    bytes_clear(&s->fixed_s);
    bytes_clear(&s->fixed_e);
    bytes_clear(&s->payload);
    bytes_clear(&s->out);
    bytes_clear(&s->plain);
}

static int equals(const json_t *object, const char *key, const uint8_t *got)
{
    const char *hex = json_string_value(json_object_get(object, key));
    struct bytes want = { 0 };
    int same = hex && !wire_hex(&want, hex) && bytes_length(&want) == 32 &&
               !memcmp(bytes_at(&want), got, 32);
    bytes_clear(&want);
    return same;
}

/* --- the recording against our engine's state ---------------------------------------- */

static int x25519(uint8_t out[32], const struct bytes *mine, const uint8_t theirs[32])
{
    EVP_PKEY *a = EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, bytes_at(mine),
                                               bytes_length(mine));
    EVP_PKEY *b = theirs ? EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, theirs, 32) : NULL;
    EVP_PKEY_CTX *ctx = a && b ? EVP_PKEY_CTX_new(a, NULL) : NULL;
    size_t n = 32;
    int good = !theirs
                   ? a && EVP_PKEY_get_raw_public_key(a, out, &n) == 1
                   : ctx && EVP_PKEY_derive_init(ctx) > 0 && EVP_PKEY_derive_set_peer(ctx, b) > 0 &&
                         EVP_PKEY_derive(ctx, out, &n) > 0;
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(a);
    EVP_PKEY_free(b);
    return good;
}

/* The values of a handshake's steps, in their order, from the keys and the messages. */
struct values {
    uint8_t s[2][32], e[2][32], shared[3][32]; /* public halves by side; ee, es, se */
    struct bytes wire[3];
};

static int read_values(struct golden *g, struct values *v, const struct side *a,
                       const struct side *b, const json_t *h)
{
    const json_t *wire = json_object_get(h, "wire");
    for (size_t i = 0; i < 3; i++)
        if (!wire_member(g, json_array_get(wire, i), "hex", &v->wire[i])) return 0;
    if (x25519(v->s[0], &a->fixed_s, NULL) && x25519(v->e[0], &a->fixed_e, NULL) &&
        x25519(v->s[1], &b->fixed_s, NULL) && x25519(v->e[1], &b->fixed_e, NULL) &&
        x25519(v->shared[0], &a->fixed_e, v->e[1]) && x25519(v->shared[1], &a->fixed_e, v->s[1]) &&
        x25519(v->shared[2], &b->fixed_e, v->s[0]) && bytes_length(&v->wire[1]) >= 98 &&
        bytes_length(&v->wire[2]) >= 66)
        return 1;
    golden_fail(g, "values", "keys or messages are too short");
    return 0;
}

/* A step's value: a public half, a shared secret, or sealed bytes of message 2 or 3. */
static struct cursor value_of(const struct values *v, size_t step)
{
    const uint8_t *m2 = bytes_at(&v->wire[1]), *m3 = bytes_at(&v->wire[2]);
    switch (step) {
    case 1: return (struct cursor){ v->e[0], 32 };
    case 2: return (struct cursor){ v->e[1], 32 };
    case 3: return (struct cursor){ v->shared[0], 32 };
    case 4: return (struct cursor){ m2 + 34, 48 };
    case 5: return (struct cursor){ v->shared[1], 32 };
    case 6: return (struct cursor){ m2 + 82, bytes_length(&v->wire[1]) - 82 };
    case 7: return (struct cursor){ m3 + 2, 48 };
    case 8: return (struct cursor){ v->shared[2], 32 };
    case 9: return (struct cursor){ m3 + 50, bytes_length(&v->wire[2]) - 50 };
    default: return (struct cursor){ NULL, 0 };
    }
}

static void check_publics(struct golden *g, const json_t *h, const struct values *v)
{
    static const char *const sides[] = { "initiator", "responder" };
    const json_t *wire = json_object_get(h, "wire");
    for (size_t i = 0; i < 2; i++) {
        char stat[60], ephemeral[60], text[60], what[80];
        uint8_t message[24 + 32];
        memcpy(message, "noise-libp2p-static-key:", 24);
        memcpy(message + 24, v->s[i], 32);
        snprintf(stat, sizeof stat, "%s_static_public", sides[i]);
        snprintf(ephemeral, sizeof ephemeral, "%s_ephemeral_public", sides[i]);
        snprintf(text, sizeof text, "%s_signed_message", sides[i]);
        snprintf(what, sizeof what, "%s public keys, what is signed", sides[i]);
        golden_check(g, what,
                     wire_says(h, stat, v->s[i], 32) && wire_says(h, ephemeral, v->e[i], 32) &&
                         wire_says(h, text, message, sizeof message),
                     "differ");
    }
    for (size_t i = 0; i < 3; i++) {
        const char *from = json_string_value(json_object_get(json_array_get(wire, i), "from"));
        golden_check(g, "who sends it", !from || !strcmp(from, sides[i == 1]), "message %zu",
                     i + 1);
    }
}

static void check_trace(struct golden *g, const struct side *s, const json_t *trace,
                        const char *who, const struct values *v)
{
    size_t i;
    json_t *step;
    json_array_foreach(trace, i, step)
    {
        const char *name = json_string_value(json_object_get(step, "step"));
        const struct noise_trace *t = (int)i < s->steps ? &s->seen[i] : NULL;
        struct cursor value = value_of(v, i);
        char what[100];
        snprintf(what, sizeof what, "%s step %zu (%.20s)", who, i, name ? name : "?");
        golden_check(g, what,
                     t && name && !strcmp(t->step, name) && equals(step, "h", t->h) &&
                         equals(step, "ck", t->ck) &&
                         (t->has_key ? equals(step, "k", t->k)
                                     : !json_is_string(json_object_get(step, "k"))) &&
                         t->n == (uint64_t)golden_int(g, step, "n") &&
                         wire_says(step, "value", value.at, value.left),
                     "state differs after %s", t ? t->step : "nothing");
    }
    golden_check(g, who, !trace || (int)i == s->steps, "%zu steps, we took %d", i, s->steps);
}

static int hand_over(struct side *from, struct side *to, struct pl_err *err)
{
    int rc = to->secure->receive(to->secure, bytes_at(&from->out), bytes_length(&from->out),
                                 &to->plain, &to->out, err);
    bytes_take(&from->out, bytes_length(&from->out));
    return rc;
}

static void check_transport(struct golden *g, struct side *a, struct side *b, const json_t *list)
{
    size_t i, sent[2] = { 0, 0 };
    json_t *entry;
    json_array_foreach(list, i, entry)
    {
        const char *who = json_string_value(json_object_get(entry, "from"));
        const json_t *n = json_object_get(entry, "n");
        struct side *from = who && !strcmp(who, "initiator") ? a : b, *to = from == a ? b : a;
        struct bytes plain = { 0 }, wire = { 0 };
        struct pl_err err = { "" };
        char what[80];
        snprintf(what, sizeof what, "transport %zu from %.10s", i, who ? who : "?");
        if (!who || (from == b && strcmp(who, "responder")))
            golden_fail(g, what, "neither initiator nor responder");
        if (n && json_integer_value(n) != (json_int_t)sent[from == b])
            golden_fail(g, what, "is its number %zu", sent[from == b]);
        if (wire_member(g, entry, "plain", &plain) && wire_member(g, entry, "wire", &wire)) {
            int rc;
            from->secure->send(from->secure, bytes_at(&plain), bytes_length(&plain), &from->out);
            /* longer messages are split */
            sent[from == b] += bytes_length(&plain) ? (bytes_length(&plain) + 65518) / 65519 : 1;
            wire_same(g, what, &from->out, &wire);
            bytes_take(&from->out, bytes_length(&from->out));
            rc = to->secure->receive(to->secure, bytes_at(&wire), bytes_length(&wire), &to->plain,
                                     &to->out, &err);
            golden_check(g, what, rc == PL_OK, "%s", err.text);
            wire_same(g, what, &to->plain, &plain);
            bytes_take(&to->plain, bytes_length(&to->plain));
        }
        bytes_clear(&plain);
        bytes_clear(&wire);
    }
}

/* One side that has come to where the message is due does not take it. */
static void check_refusal(struct golden *g, const json_t *h, const json_t *entry, int by_initiator)
{
    const char *why = json_string_value(json_object_get(entry, "why"));
    const char *member = by_initiator                         ? "message2"
                         : json_object_get(entry, "message1") ? "message1"
                                                              : "message3";
    struct side s = { .steps = 0 };
    struct bytes first = { 0 }, message = { 0 };
    struct pl_err err;
    int rc = PL_OK;
    if (open_side(g, &s, h, by_initiator ? "initiator" : "responder") &&
        wire_member(g, entry, member, &message)) {
        if (!strcmp(member, "message3") &&
            wire_member(g, json_array_get(json_object_get(h, "wire"), 0), "hex", &first))
            rc = s.secure->receive(s.secure, bytes_at(&first), bytes_length(&first), &s.plain,
                                   &s.out, &err);
        if (!rc)
            rc = s.secure->receive(s.secure, bytes_at(&message), bytes_length(&message), &s.plain,
                                   &s.out, &err);
        golden_check(g, why ? why : "refused", rc == PL_EPROTO || !s.secure->established,
                     "was accepted");
    }
    bytes_clear(&first);
    bytes_clear(&message);
    close_side(&s);
}

static void check_refusals(struct golden *g, const json_t *h)
{
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(h, "must_be_rejected_by_initiator"), i, entry)
        check_refusal(g, h, entry, 1);
    json_array_foreach(json_object_get(h, "must_be_rejected_by_responder"), i, entry)
        check_refusal(g, h, entry, 0);
}

static void check_handshake(struct golden *g, const json_t *h)
{
    struct side a = { .steps = 0 }, b = { .steps = 0 };
    const json_t *wire = json_object_get(h, "wire");
    struct values values = { .wire = { { 0 } } };
    struct pl_err err = { "" };
    uint8_t first[32], second[32];
    if (!open_side(g, &a, h, "initiator") || !open_side(g, &b, h, "responder") ||
        !read_values(g, &values, &a, &b, h))
        goto done;
    check_publics(g, h, &values);
    for (int i = 0; i < 3; i++) {
        struct side *from = i == 1 ? &b : &a, *to = i == 1 ? &a : &b;
        struct bytes want = { 0 };
        char what[40];
        snprintf(what, sizeof what, "message %d", i + 1);
        if (wire_member(g, json_array_get(wire, (size_t)i), "hex", &want))
            wire_same(g, what, &from->out, &want);
        bytes_clear(&want);
        if (hand_over(from, to, &err)) {
            golden_check(g, what, 0, "%s", err.text);
            goto done;
        }
    }
    check_trace(g, &a, json_object_get(h, "initiator_trace"), "initiator", &values);
    check_trace(g, &b, json_object_get(h, "responder_trace"), "responder", &values);
    golden_check(g, "handshake hash",
                 a.steps && b.steps && wire_says(h, "handshake_hash", a.seen[a.steps - 1].h, 32) &&
                     wire_says(h, "handshake_hash", b.seen[b.steps - 1].h, 32),
                 "differs");
    golden_check(g, "both know each other",
                 a.secure->established && b.secure->established &&
                     peer_id_equal(&a.secure->remote, &b.me.id) &&
                     peer_id_equal(&b.secure->remote, &a.me.id),
                 "not established");
    noise_keys(a.secure, first, second);
    golden_check(g, "keys",
                 equals(h, "key_initiator_to_responder", first) &&
                     equals(h, "key_responder_to_initiator", second),
                 "differ");
    check_transport(g, &a, &b, json_object_get(h, "transport"));
done:
    for (size_t i = 0; i < 3; i++) bytes_clear(&values.wire[i]);
    close_side(&a);
    close_side(&b);
    check_refusals(g, h);
}

void golden_wire_noise(struct golden *g, const json_t *root)
{
    size_t i;
    json_t *h;
    const char *name = json_string_value(json_object_get(root, "protocol"));
    const char *prologue = json_string_value(json_object_get(root, "prologue"));
    golden_check(g, "protocol",
                 (!name || !strcmp(name, "Noise_XX_25519_ChaChaPoly_SHA256")) &&
                     (!prologue || !*prologue),
                 "another, or a prologue");
    json_array_foreach(json_object_get(root, "handshakes"), i, h) check_handshake(g, h);
}

/* --- a session with a real peer --------------------------------------------------------------- */

/* One sealed message, appended to plain. 0: its tag is not right. */
static int unseal(struct bytes *plain, const uint8_t key[32], uint64_t n, const uint8_t *ad,
                  size_t ad_n, struct cursor sealed)
{
    EVP_CIPHER_CTX *ctx = EVP_CIPHER_CTX_new();
    uint8_t nonce[12] = { 0 }, tag[16], *to;
    size_t length = sealed.left < 16 ? 0 : sealed.left - 16;
    int done, good = 0;
    for (int i = 0; i < 8; i++) nonce[4 + i] = (uint8_t)(n >> 8 * i);
    if (ctx && sealed.left >= 16 && (to = bytes_reserve(plain, length + 1))) {
        memcpy(tag, sealed.at + length, 16);
        good = EVP_DecryptInit_ex(ctx, EVP_chacha20_poly1305(), NULL, key, nonce) == 1 &&
               EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, 16, tag) == 1 &&
               (!ad_n || EVP_DecryptUpdate(ctx, NULL, &done, ad, (int)ad_n) == 1) &&
               (!length || EVP_DecryptUpdate(ctx, to, &done, sealed.at, (int)length) == 1) &&
               EVP_DecryptFinal_ex(ctx, to + length, &done) == 1;
        if (good) plain->end += length;
    }
    EVP_CIPHER_CTX_free(ctx);
    return good;
}

static int next_message(struct cursor *c, struct cursor *message)
{
    struct cursor ahead = *c;
    const uint8_t *body;
    uint16_t n;
    if (get_be16(&ahead, &n) || get_bytes(&ahead, &body, n)) return 0;
    *message = (struct cursor){ body, n };
    *c = ahead;
    return 1;
}

/* Every message of ours behind the handshake, under the key that came of it. */
static void check_sent(struct golden *g, const uint8_t key[32], struct cursor sent,
                       struct bytes *plain)
{
    struct cursor message;
    uint64_t n = 0;
    int good = 1;
    while (good && next_message(&sent, &message)) good = unseal(plain, key, n++, NULL, 0, message);
    golden_check(g, "every message of ours decrypts", good && n, "number %llu does not",
                 (unsigned long long)n);
}

/* The muxer's input: whole frames, perhaps after the muxer's own negotiation. */
static void check_frames(struct golden *g, const char *what, const struct bytes *plain, int agreed)
{
    static const char token[] = "\x13/multistream/1.0.0\n\x0d/yamux/1.0.0\n";
    struct cursor c = { bytes_at(plain), bytes_length(plain) };
    struct yamux_frame f;
    size_t frames = 0, n = sizeof token - 1;
    int rc = agreed || (c.left >= n && !memcmp(c.at, token, n)) ? PL_OK : PL_EPROTO;
    if (!agreed && !rc) c = (struct cursor){ c.at + n, c.left - n };
    while (!rc && (rc = yamux_frame_get(&c, &f)) == PL_OK) {
        const uint8_t *body;
        frames++;
        if (f.type == YAMUX_DATA) rc = get_bytes(&c, &body, f.length);
    }
    golden_check(g, what, rc == PL_EAGAIN && frames > 2, "%zu frames, status %d", frames, rc);
}

/* The payload that we sent then, from our third message and our engine's state before it. */
static int read_payload(struct side *a, struct cursor sent)
{
    struct cursor message;
    const struct noise_trace *s = &a->seen[7], *se = &a->seen[8];
    return a->steps > 8 && next_message(&sent, &message) && next_message(&sent, &message) &&
           message.left > 48 &&
           unseal(&a->payload, se->k, 0, s->h, 32,
                  (struct cursor){ message.at + 48, message.left - 48 });
}

/* The engines, given the keys of the recording, must send our bytes and understand theirs. */
void golden_wire_noise_session(struct golden *g, const json_t *root)
{
    static const char *const wanted[] = { "/noise" };
    struct side a = { .steps = 0 };
    struct bytes in = { 0 }, out = { 0 }, ours = { 0 }, plain = { 0 }, sent = { 0 };
    struct noise_fixed fixed = { .trace = on_trace, .context = &a };
    struct multistream m;
    struct pl_err err = { "" };
    const char *peer = json_string_value(json_object_get(root, "p2pd_peer_id"));
    char text[PEER_ID_TEXT_MAX];
    uint8_t first[32], second[32];
    struct cursor c;
    size_t i, greeting;
    json_t *piece;
    int rc, agreed;
    json_array_foreach(json_object_get(root, "pieces"), i, piece)
    {
        const char *dir = json_string_value(json_array_get(piece, 0));
        int is_in = dir && !strcmp(dir, "in");
        if ((!is_in && (!dir || strcmp(dir, "out"))) ||
            wire_hex(is_in ? &in : &out, json_string_value(json_array_get(piece, 1))))
            golden_fail(g, "piece", "%zu goes neither in nor out, or is no hex text", i);
    }
    if (!wire_member(g, root, "identity_private", &a.identity) ||
        !wire_member(g, root, "static_private", &a.fixed_s) ||
        !wire_member(g, root, "ephemeral_private", &a.fixed_e))
        goto done;
    if (bytes_length(&a.fixed_s) != 32 || bytes_length(&a.fixed_e) != 32 ||
        identity_parse(&a.me, bytes_at(&a.identity), bytes_length(&a.identity), &err)) {
        golden_fail(g, "our keys", "cannot be read: %s", err.text);
        goto done;
    }
    fixed.static_private = bytes_at(&a.fixed_s);
    fixed.ephemeral_private = bytes_at(&a.fixed_e);
    multistream_dial(&m, wanted, 1, &ours);
    c = (struct cursor){ bytes_at(&in), bytes_length(&in) };
    rc = multistream_receive(&m, &c, &ours);
    golden_check(g, "negotiation", rc == PL_OK, "status %d", rc);
    greeting = bytes_length(&ours);
    for (int turn = 0; turn < 2; turn++) { /* first to learn what our payload was */
        ours.end = ours.begin + greeting;
        bytes_take(&plain, bytes_length(&plain));
        if (a.secure) a.secure->close(a.secure);
        if (noise_open_fixed(&a.secure, &a.me, 1, NULL, &ours, &fixed)) goto done;
        rc = a.secure->receive(a.secure, c.at, c.left, &plain, &ours, &err);
        if (turn || bytes_length(&out) < greeting ||
            !read_payload(&a, (struct cursor){ bytes_at(&out) + greeting,
                                               bytes_length(&out) - greeting }))
            continue;
        fixed.payload = bytes_at(&a.payload);
        fixed.payload_bytes = bytes_length(&a.payload);
    }
    golden_check(g, "every message decrypts", rc == PL_OK, "%s", err.text);
    peer_id_text(text, &a.secure->remote);
    golden_check(g, "the peer", peer && !strcmp(peer, text), "is %s", text);
    golden_check(g, "our first bytes",
                 bytes_length(&ours) <= bytes_length(&out) &&
                     !memcmp(bytes_at(&ours), bytes_at(&out), bytes_length(&ours)),
                 "differ");
    golden_check(g, "our identity is in our payload",
                 bytes_length(&a.payload) &&
                     memmem(bytes_at(&a.payload), bytes_length(&a.payload),
                            bytes_at(&a.me.public_key), bytes_length(&a.me.public_key)),
                 "is not");
    if (!a.secure->established || bytes_length(&ours) > bytes_length(&out)) goto done;
    noise_keys(a.secure, first, second);
    check_sent(g, first,
               (struct cursor){ bytes_at(&out) + bytes_length(&ours),
                                bytes_length(&out) - bytes_length(&ours) },
               &sent);
    agreed = a.secure->muxer_agreed &&
             memmem(bytes_at(&a.payload), bytes_length(&a.payload), "/yamux/1.0.0", 12);
    check_frames(g, "frames of streams", &plain, agreed);
    check_frames(g, "our frames of streams", &sent, agreed);
done:
    bytes_clear(&in);
    bytes_clear(&out);
    bytes_clear(&ours);
    bytes_clear(&plain);
    bytes_clear(&sent);
    close_side(&a);
}
