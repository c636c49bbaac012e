/* golden_wire.c - area wire: recorded bytes of libp2p connections. Dispatches by the file's stem
 * and holds the simpler kinds: keys, addresses, protocol negotiation. */
#include "golden_wire.h"
#include "test/conform/golden/areas.h"
#include "test/conform/golden/golden.h"
#include "net/libp2p/peer/base58.h"
#include "net/libp2p/peer/identity.h"
#include "net/libp2p/peer/multiaddr.h"
#include "net/libp2p/muxing/multistream.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *stem;
    void (*run)(struct golden *, const json_t *);
} kinds[] = {
    { "peer_ids", golden_wire_keys },
    { "multiaddr", golden_wire_multiaddr },
    { "multistream", golden_wire_multistream },
    { "noise", golden_wire_noise },
    { "noise_session", golden_wire_noise_session },
    { "tls_certs", golden_wire_certificates },
    { "yamux", golden_wire_yamux },
    { "identify", golden_wire_identify },
    { "kad", golden_wire_kad },
    { "relay", golden_wire_relay },
    { "unary", golden_wire_unary },
    { "streaming", golden_wire_streaming },
    { "dht_session", golden_wire_dht_session },
};

int golden_area_wire(struct golden *g, const char *path, const char *stem)
{
    size_t longest = 0, kind = 0; /* noise_session is no noise */
    json_t *root;
    for (size_t i = 0; i < PL_COUNT(kinds); i++) {
        size_t n = strlen(kinds[i].stem);
        if (n <= longest || strncmp(stem, kinds[i].stem, n)) continue;
        longest = n;
        kind = i;
    }
    if (!longest) return 0;
    root = golden_json(g, strrchr(path, '/') + 1);
    if (root) {
        long seen = g->passed + g->failed;
        kinds[kind].run(g, root);
        if (!g->filter && g->passed + g->failed == seen)
            golden_fail(g, "file", "holds nothing that its kind knows");
    }
    json_decref(root);
    return 1;
}

static int nibble(char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

int wire_hex(struct bytes *out, const char *hex)
{
    if (!hex) return PL_EFORMAT;
    for (; *hex; hex += 2) {
        int high = nibble(hex[0]), low = high < 0 ? -1 : nibble(hex[1]);
        if (low < 0) return PL_EFORMAT;
        bytes_u8(out, (uint8_t)(high << 4 | low));
    }
    return out->failed;
}

int wire_says(const json_t *object, const char *key, const void *data, size_t n)
{
    const json_t *member = json_object_get(object, key);
    struct bytes want = { 0 };
    int same = !member || (!wire_hex(&want, json_string_value(member)) &&
                           bytes_length(&want) == n && !memcmp(bytes_at(&want), data, n));
    bytes_clear(&want);
    return same;
}

int wire_member(struct golden *g, const json_t *object, const char *key, struct bytes *out)
{
    const char *hex = json_string_value(json_object_get(object, key));
    if (hex && !wire_hex(out, hex)) return 1;
    golden_fail(g, key, "no such hex text in the case");
    return 0;
}

void wire_check_body(struct golden *g, const char *name, const json_t *entry,
                     const struct bytes *raw)
{
    struct cursor c = { bytes_at(raw), bytes_length(raw) };
    const uint8_t *body;
    size_t n;
    char what[120];
    if (!json_object_get(entry, "message")) return;
    snprintf(what, sizeof what, "%.80s without its length", name);
    golden_check(g, what,
                 !get_delimited(&c, &body, &n, c.left) && !c.left &&
                     wire_says(entry, "message", body, n),
                 "differs");
}

void wire_same(struct golden *g, const char *what, const struct bytes *got,
               const struct bytes *want)
{
    size_t n = bytes_length(got), m = bytes_length(want), at = 0;
    while (at < n && at < m && bytes_at(got)[at] == bytes_at(want)[at]) at++;
    golden_check(g, what, n == m && at == n, "differ at byte %zu: %zu bytes, expected %zu", at, n,
                 m);
}

static int is_of_type(const struct identity *me, const json_t *type)
{
    static const char *const names[] = { "RSA", "Ed25519", "Secp256k1", "ECDSA" };
    return !type || (json_is_string(type) && !strcmp(json_string_value(type), names[me->type]));
}

static void check_key(struct golden *g, const json_t *key)
{
    const char *name = json_string_value(json_object_get(key, "name"));
    const json_t *signature = json_object_get(key, "signature_of_msg");
    struct bytes secret = { 0 }, shared = { 0 }, id = { 0 }, out = { 0 }, msg = { 0 }, sig = { 0 };
    struct identity me = { 0 };
    struct pl_err err;
    struct peer_id back;
    char what[200], text[PEER_ID_TEXT_MAX];
    const char *base58 = json_string_value(json_object_get(key, "base58"));
    const char *cid = json_string_value(json_object_get(key, "cid"));
    if (!name) name = "?";
    if (!wire_member(g, key, "private_key_protobuf", &secret) ||
        !wire_member(g, key, "public_key_protobuf", &shared) ||
        !wire_member(g, key, "peer_id", &id))
        goto done;
    snprintf(what, sizeof what, "%.80s is read", name);
    if (identity_parse(&me, bytes_at(&secret), bytes_length(&secret), &err)) {
        golden_check(g, what, 0, "%s", err.text);
        goto done;
    }
    golden_check(g, what, is_of_type(&me, json_object_get(key, "type")), "of type %d", me.type);
    snprintf(what, sizeof what, "%.80s public key", name);
    wire_same(g, what, &me.public_key, &shared);
    snprintf(what, sizeof what, "%.80s peer id", name);
    golden_check(g, what,
                 me.id.length == bytes_length(&id) &&
                     !memcmp(me.id.bytes, bytes_at(&id), me.id.length),
                 "another peer id");
    peer_id_text(text, &me.id);
    snprintf(what, sizeof what, "%.80s base58", name);
    golden_check(g, what,
                 base58 && !strcmp(text, base58) &&
                     !peer_id_from_text(&back, base58, strlen(base58)) &&
                     peer_id_equal(&back, &me.id),
                 "gave %s", text);
    if (cid) {
        snprintf(what, sizeof what, "%.80s cid", name);
        golden_check(g, what,
                     !peer_id_from_text(&back, cid, strlen(cid)) && peer_id_equal(&back, &me.id),
                     "not read back");
    }
    snprintf(what, sizeof what, "%.80s private key is written", name);
    identity_serialize(&me, &out);
    /* Old Ed25519 files repeat the public key; ours never do. */
    if (me.type == KEY_ED25519 && bytes_length(&secret) > bytes_length(&out))
        golden_check(g, what, bytes_length(&out) == 68, "%zu bytes", bytes_length(&out));
    else wire_same(g, what, &out, &secret);
    if (json_is_object(signature) && wire_member(g, signature, "msg", &msg) &&
        wire_member(g, signature, "sig", &sig)) {
        uint8_t made[SIGNATURE_MAX];
        size_t n;
        snprintf(what, sizeof what, "%.80s signature verifies", name);
        golden_check(g, what,
                     !public_key_verify(bytes_at(&shared), bytes_length(&shared), bytes_at(&msg),
                                        bytes_length(&msg), bytes_at(&sig), bytes_length(&sig)),
                     "no");
        if (bytes_length(&sig)) sig.data[sig.begin + bytes_length(&sig) / 2] ^= 1;
        snprintf(what, sizeof what, "%.80s altered signature is refused", name);
        golden_check(g, what,
                     public_key_verify(bytes_at(&shared), bytes_length(&shared), bytes_at(&msg),
                                       bytes_length(&msg), bytes_at(&sig), bytes_length(&sig)) != 0,
                     "no");
        if (bytes_length(&sig)) sig.data[sig.begin + bytes_length(&sig) / 2] ^= 1;
        snprintf(what, sizeof what, "%.80s signing", name);
        if (identity_sign(&me, made, &n, bytes_at(&msg), bytes_length(&msg))) n = 0;
        if (json_is_true(json_object_get(signature, "deterministic")))
            golden_check(g, what, n == bytes_length(&sig) && !memcmp(made, bytes_at(&sig), n),
                         "another signature");
        else
            golden_check(g, what,
                         !public_key_verify(bytes_at(&shared), bytes_length(&shared),
                                            bytes_at(&msg), bytes_length(&msg), made, n),
                         "does not verify");
    }
done:
    identity_clear(&me);
    bytes_clear(&secret);
    bytes_clear(&shared);
    bytes_clear(&id);
    bytes_clear(&out);
    bytes_clear(&msg);
    bytes_clear(&sig);
}

void golden_wire_keys(struct golden *g, const json_t *root)
{
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(root, "keys"), i, entry) check_key(g, entry);
    json_array_foreach(json_object_get(root, "must_be_rejected"), i, entry)
    {
        struct bytes key = { 0 };
        const char *why = json_string_value(json_object_get(entry, "why"));
        EVP_PKEY *parsed = NULL;
        struct identity me = { 0 };
        enum key_type type;
        if (json_object_get(entry, "private_key_protobuf")) {
            if (wire_member(g, entry, "private_key_protobuf", &key))
                golden_check(g, why ? why : "refused",
                             identity_parse(&me, bytes_at(&key), bytes_length(&key), NULL) != 0,
                             "was accepted");
            identity_clear(&me);
        } else if (wire_member(g, entry, "public_key_protobuf", &key)) {
            golden_check(g, why ? why : "refused",
                         public_key_parse(&parsed, &type, NULL, bytes_at(&key),
                                          bytes_length(&key)) != 0,
                         "was accepted");
        }
        EVP_PKEY_free(parsed);
        bytes_clear(&key);
    }
}

static void check_address(struct golden *g, const char *text, const char *printed, const char *hex)
{
    struct bytes want = { 0 };
    struct multiaddr a, b;
    struct pl_err err = { "" };
    char back[MULTIADDR_TEXT_MAX], what[300];
    if (!text || !hex || wire_hex(&want, hex)) {
        golden_fail(g, "pair", "text or binary form is missing");
        bytes_clear(&want);
        return;
    }
    snprintf(what, sizeof what, "%.200s from text", text);
    golden_check(g, what,
                 !multiaddr_from_text(&a, text, &err) && a.length == bytes_length(&want) &&
                     !memcmp(a.bytes, bytes_at(&want), a.length),
                 "%s", err.text);
    snprintf(what, sizeof what, "%.200s from binary", text);
    back[0] = 0;
    if (!multiaddr_parse(&b, bytes_at(&want), bytes_length(&want))) multiaddr_text(back, &b);
    golden_check(g, what, !strcmp(back, printed), "gave '%s'", back);
    bytes_clear(&want);
}

void golden_wire_multiaddr(struct golden *g, const json_t *root)
{
    size_t i;
    json_t *entry;
    struct multiaddr a;
    json_array_foreach(json_object_get(root, "pairs"), i, entry)
    {
        const char *text = json_string_value(json_object_get(entry, "text"));
        check_address(g, text, text ? text : "",
                      json_string_value(json_object_get(entry, "binary")));
    }
    json_array_foreach(json_object_get(root, "text_alias"), i, entry)
    {
        const char *same = json_string_value(json_object_get(entry, "same_as"));
        check_address(g, json_string_value(json_object_get(entry, "text")), same ? same : "",
                      json_string_value(json_object_get(entry, "binary")));
    }
    json_array_foreach(json_object_get(root, "invalid_text"), i, entry)
    {
        char what[200];
        if (!json_is_string(entry)) {
            golden_fail(g, "invalid_text", "%zu is not text", i);
            continue;
        }
        snprintf(what, sizeof what, "'%.150s' is refused", json_string_value(entry));
        golden_check(g, what, multiaddr_from_text(&a, json_string_value(entry), NULL) != 0,
                     "accepted");
    }
    json_array_foreach(json_object_get(root, "invalid_binary"), i, entry)
    {
        struct bytes raw = { 0 };
        const char *why = json_string_value(json_object_get(entry, "why"));
        if (wire_member(g, entry, "hex", &raw))
            golden_check(g, why ? why : "refused",
                         multiaddr_parse(&a, bytes_at(&raw), bytes_length(&raw)) != 0, "accepted");
        bytes_clear(&raw);
    }
    json_array_foreach(json_object_get(root, "base58"), i, entry)
    {
        struct bytes raw = { 0 };
        const char *text = json_string_value(json_object_get(entry, "text"));
        char got[BASE58_TEXT_MAX], what[220];
        uint8_t back[BASE58_BYTES_MAX];
        size_t n;
        snprintf(what, sizeof what, "base58 '%.150s'", text ? text : "?");
        if (text && wire_member(g, entry, "hex", &raw))
            golden_check(g, what,
                         !base58_encode(got, bytes_at(&raw), bytes_length(&raw)) &&
                             !strcmp(got, text) && !base58_decode(back, &n, text, strlen(text)) &&
                             n == bytes_length(&raw) && !memcmp(back, bytes_at(&raw), n),
                         "differs");
        bytes_clear(&raw);
    }
}

/* The protocols that the listener of a recorded exchange serves: those that it echoed. */
#define TOKENS 64

struct served {
    char name[TOKENS][MULTISTREAM_TOKEN_MAX];
    int count;
};

static int find_served(void *context, const char *name, size_t n)
{
    const struct served *s = context;
    for (int i = 0; i < s->count; i++)
        if (strlen(s->name[i]) == n && !memcmp(s->name[i], name, n)) return i;
    return -1;
}

/* The tokens in a piece of a recording, as text. */
static int tokens_of(const struct bytes *raw, char token[TOKENS][MULTISTREAM_TOKEN_MAX])
{
    struct cursor c = { bytes_at(raw), bytes_length(raw) };
    const uint8_t *data;
    size_t n;
    int count = 0;
    while (c.left && count < TOKENS && !get_delimited(&c, &data, &n, MULTISTREAM_TOKEN_MAX) && n)
        snprintf(token[count++], MULTISTREAM_TOKEN_MAX, "%.*s", (int)n - 1, (const char *)data);
    return count;
}

static void join(const json_t *pieces, struct bytes *out)
{
    size_t i;
    json_t *piece;
    json_array_foreach(pieces, i, piece) if (wire_hex(out, json_string_value(piece))) return;
}

struct allreduce_tokens {
    char asked[TOKENS][MULTISTREAM_TOKEN_MAX], answered[TOKENS][MULTISTREAM_TOKEN_MAX];
    struct served served;
};

/* Both engines against each other must give the recorded bytes of both sides. */
static void check_exchange(struct golden *g, const json_t *entry)
{
    const char *what = json_string_value(json_object_get(entry, "what"));
    struct bytes dialer = { 0 }, listener = { 0 }, from_dialer = { 0 }, from_listener = { 0 };
    struct multistream d, l;
    struct allreduce_tokens *t = calloc(1, sizeof *t);
    const char *wanted[TOKENS];
    size_t d_read = 0, l_read = 0;
    int n, rc_d = PL_EAGAIN, rc_l = PL_EAGAIN, proposals;
    if (!t) return;
    join(json_object_get(entry, "dialer"), &dialer);
    join(json_object_get(entry, "listener"), &listener);
    n = tokens_of(&dialer, t->asked);
    proposals = n - 1;
    if (proposals < 1) {
        golden_fail(g, "exchange", "the dialer proposes nothing");
        goto done;
    }
    for (int i = 0; i < proposals; i++) wanted[i] = t->asked[i + 1];
    n = tokens_of(&listener, t->answered);
    for (int i = 1; i < n; i++)
        if (strcmp(t->answered[i], "na")) strcpy(t->served.name[t->served.count++], t->answered[i]);
    multistream_dial(&d, wanted, (size_t)proposals, &from_dialer);
    multistream_listen(&l, find_served, &t->served, &from_listener);
    for (int turn = 0; turn < 2 * TOKENS && (rc_d == PL_EAGAIN || rc_l == PL_EAGAIN); turn++) {
        struct cursor c = { bytes_at(&from_dialer) + l_read, bytes_length(&from_dialer) - l_read };
        if (rc_l == PL_EAGAIN) rc_l = multistream_receive(&l, &c, &from_listener);
        l_read = bytes_length(&from_dialer) - c.left;
        c = (struct cursor){ bytes_at(&from_listener) + d_read,
                             bytes_length(&from_listener) - d_read };
        if (rc_d == PL_EAGAIN) rc_d = multistream_receive(&d, &c, &from_dialer);
        d_read = bytes_length(&from_listener) - c.left;
    }
    wire_same(g, what ? what : "exchange", &from_dialer, &dialer);
    wire_same(g, what ? what : "exchange", &from_listener, &listener);
done:
    free(t);
    bytes_clear(&dialer);
    bytes_clear(&listener);
    bytes_clear(&from_dialer);
    bytes_clear(&from_listener);
}

/* Where our listener gives up on these bytes: at once, or when nothing follows a token that is cut
 * short. Headers differ from proposals: of those, any that is a token gets an answer. */
static int is_refused(const struct bytes *raw, int behind_header)
{
    struct bytes in = { 0 }, out = { 0 };
    struct served *none = calloc(1, sizeof *none);
    struct multistream m;
    struct cursor c;
    int rc;
    if (!none) return 0;
    multistream_listen(&m, find_served, none, &out);
    if (behind_header) multistream_token(&in, "/multistream/1.0.0", 18);
    bytes_add(&in, bytes_at(raw), bytes_length(raw));
    c = (struct cursor){ bytes_at(&in), bytes_length(&in) };
    rc = multistream_receive(&m, &c, &out);
    bytes_clear(&in);
    bytes_clear(&out);
    free(none);
    return rc == PL_EPROTO || (rc == PL_EAGAIN && c.left);
}

static int is_token(const struct bytes *raw)
{
    struct cursor c = { bytes_at(raw), bytes_length(raw) };
    const uint8_t *data;
    size_t n;
    return !get_delimited(&c, &data, &n, MULTISTREAM_TOKEN_MAX) && n && data[n - 1] == '\n';
}

void golden_wire_multistream(struct golden *g, const json_t *root)
{
    size_t i;
    json_t *entry;
    json_array_foreach(json_object_get(root, "tokens"), i, entry)
    {
        const char *text = json_string_value(json_object_get(entry, "text"));
        struct bytes got = { 0 }, want = { 0 };
        char what[60];
        snprintf(what, sizeof what, "token %.40s", text ? text : "?");
        if (text && wire_member(g, entry, "hex", &want)) {
            multistream_token(&got, text, strlen(text));
            wire_same(g, what, &got, &want);
        }
        bytes_clear(&got);
        bytes_clear(&want);
    }
    json_array_foreach(json_object_get(root, "invalid"), i, entry)
    {
        const char *why = json_string_value(json_object_get(entry, "why"));
        struct bytes raw = { 0 };
        if (wire_member(g, entry, "hex", &raw))
            golden_check(g, why ? why : "refused",
                         is_refused(&raw, 0) && (is_token(&raw) || is_refused(&raw, 1)),
                         "accepted");
        bytes_clear(&raw);
    }
    json_array_foreach(json_object_get(root, "exchanges"), i, entry) check_exchange(g, entry);
}
