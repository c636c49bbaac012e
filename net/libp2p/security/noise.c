/* noise.c - Noise_XX_25519_ChaChaPoly_SHA256 with libp2p's identity in the payload.
 *
 *   initiator                          responder
 *      1  e                  ---->
 *                            <----     2  e, ee, s, es, payload
 *      3  s, se, payload     ---->
 *
 * Every message has a 2-byte length in front. The initiator has proven nothing before message 3,
 * so the responder acts on nothing before it. */
#include "noise.h"
#include "net/libp2p/peer/libp2p.pb-c.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_MAX 65535
#define TAG 16
#define PLAIN_MAX (MESSAGE_MAX - TAG)
#define PIECE 8192 /* bytes; whole blocks of the cipher */
static const char protocol_name[] = "Noise_XX_25519_ChaChaPoly_SHA256"; /* exactly 32 bytes */
static const char signed_prefix[] = "noise-libp2p-static-key:";
static const char yamux_name[] = "/yamux/1.0.0";

struct cipher {
    uint8_t k[32];
    int has_key;
    uint64_t n; /* messages so far; the nonce */
};

struct noise {
    struct secure secure; /* first: the engine is handed out as this */
    const struct identity *me;
    struct peer_id expected;
    int initiator, step; /* messages of the handshake that are done: 0..3 */
    int failed;
    uint8_t h[32], ck[32];
    struct cipher hand, sending, receiving;
    EVP_PKEY *s, *e;
    uint8_t s_public[32], e_public[32], rs[32], re[32];
    struct noise_fixed fixed;
    struct bytes in;             /* a message that has not arrived whole */
    EVP_CIPHER_CTX *seal, *open; /* keyed once; a message only brings its nonce */
};

static void trace(struct noise *z, const char *step)
{
    struct noise_trace t = { .step = step, .has_key = z->hand.has_key, .n = z->hand.n };
    if (!z->fixed.trace) return;
    memcpy(t.h, z->h, 32);
    memcpy(t.ck, z->ck, 32);
    memcpy(t.k, z->hand.k, 32);
    z->fixed.trace(z->fixed.context, &t);
}

static void mix_hash(struct noise *z, const uint8_t *data, size_t n)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    if (!ctx || !EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) || !EVP_DigestUpdate(ctx, z->h, 32) ||
        (n && !EVP_DigestUpdate(ctx, data, n)) || !EVP_DigestFinal_ex(ctx, z->h, NULL))
        z->failed = 1;
    EVP_MD_CTX_free(ctx);
}

static void hmac(uint8_t out[32], const uint8_t key[32], const uint8_t *data, size_t n)
{
    HMAC(EVP_sha256(), key, 32, data, n, out, NULL);
}

/* HKDF with two outputs. */
static void derive(uint8_t first[32], uint8_t second[32], const uint8_t ck[32], const uint8_t *in,
                   size_t n)
{
    uint8_t t[32], block[33];
    hmac(t, ck, in, n);
    block[0] = 1;
    hmac(first, t, block, 1);
    memcpy(block, first, 32);
    block[32] = 2;
    hmac(second, t, block, 33);
    OPENSSL_cleanse(t, sizeof t);
    OPENSSL_cleanse(block, sizeof block);
}

static int set_key(EVP_CIPHER_CTX *ctx, const uint8_t key[32], int sealing)
{
    return EVP_CipherInit_ex(ctx, EVP_chacha20_poly1305(), NULL, key, NULL, sealing) == 1
               ? PL_OK
               : PL_ENOMEM;
}

/* Fails for an all-zero result: EVP_PKEY_derive refuses it for X25519. */
static int mix_dh(struct noise *z, EVP_PKEY *mine, const uint8_t theirs[32])
{
    EVP_PKEY *peer = EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, theirs, 32);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(mine, NULL);
    uint8_t shared[32], ck[32];
    size_t n = sizeof shared;
    int good = peer && ctx && EVP_PKEY_derive_init(ctx) > 0 &&
               EVP_PKEY_derive_set_peer(ctx, peer) > 0 && EVP_PKEY_derive(ctx, shared, &n) > 0;
    if (good) {
        derive(ck, z->hand.k, z->ck, shared, 32);
        memcpy(z->ck, ck, 32);
        z->hand.has_key = 1;
        z->hand.n = 0;
        if (set_key(z->seal, z->hand.k, 1) || set_key(z->open, z->hand.k, 0)) z->failed = 1;
    }
    OPENSSL_cleanse(shared, sizeof shared);
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(peer);
    return good ? PL_OK : PL_EPROTO;
}

static void nonce_of(uint8_t nonce[12], uint64_t n)
{
    memset(nonce, 0, 4);
    for (int i = 0; i < 8; i++) nonce[4 + i] = (uint8_t)(n >> 8 * i);
}

/* What is enciphered is read again for its tag, a piece at a time, from the first cache. */
static int in_pieces(EVP_CIPHER_CTX *ctx, uint8_t *out, const uint8_t *in, size_t n)
{
    for (size_t at = 0, part; at < n; at += part) {
        int length;
        part = n - at < PIECE ? n - at : PIECE;
        if (EVP_CipherUpdate(ctx, out + at, &length, in + at, (int)part) != 1) return PL_ENOMEM;
    }
    return PL_OK;
}

/* out has room for n + TAG; ad may be NULL. */
static int seal(EVP_CIPHER_CTX *ctx, struct cipher *c, uint8_t *out, const uint8_t *plain, size_t n,
                const uint8_t *ad, size_t ad_bytes)
{
    uint8_t nonce[12];
    int length;
    if (c->n == UINT64_MAX) return PL_ELIMIT; /* never in practice; a nonce must not repeat */
    nonce_of(nonce, c->n++);
    if (EVP_EncryptInit_ex(ctx, NULL, NULL, NULL, nonce) != 1 ||
        (ad_bytes && EVP_EncryptUpdate(ctx, NULL, &length, ad, (int)ad_bytes) != 1) ||
        in_pieces(ctx, out, plain, n) || EVP_EncryptFinal_ex(ctx, out + n, &length) != 1 ||
        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, TAG, out + n) != 1)
        return PL_ENOMEM;
    return PL_OK;
}

/* sealed holds n + TAG bytes; out has room for n. */
static int unseal(EVP_CIPHER_CTX *ctx, struct cipher *c, uint8_t *out, const uint8_t *sealed,
                  size_t n, const uint8_t *ad, size_t ad_bytes)
{
    uint8_t nonce[12], tag[TAG];
    int length;
    if (c->n == UINT64_MAX) return PL_ELIMIT;
    nonce_of(nonce, c->n++);
    memcpy(tag, sealed + n, TAG);
    if (EVP_DecryptInit_ex(ctx, NULL, NULL, NULL, nonce) != 1 ||
        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, TAG, tag) != 1 ||
        (ad_bytes && EVP_DecryptUpdate(ctx, NULL, &length, ad, (int)ad_bytes) != 1) ||
        in_pieces(ctx, out, sealed, n) || EVP_DecryptFinal_ex(ctx, out + n, &length) != 1)
        return PL_EPROTO;
    return PL_OK;
}

static int encrypt_and_hash(struct noise *z, struct bytes *out, const uint8_t *plain, size_t n)
{
    size_t total = z->hand.has_key ? n + TAG : n;
    uint8_t *to = bytes_reserve(out, total);
    int rc = PL_OK;
    if (!to) return out->failed;
    if (z->hand.has_key) rc = seal(z->seal, &z->hand, to, plain, n, z->h, 32);
    else if (n) memcpy(to, plain, n);
    if (rc) return rc;
    out->end += total;
    mix_hash(z, to, total);
    return PL_OK;
}

/* Takes n plain bytes (n + TAG sealed ones) from c into out. */
static int decrypt_and_hash(struct noise *z, struct cursor *c, uint8_t *out, size_t n)
{
    const uint8_t *sealed;
    int rc;
    if (get_bytes(c, &sealed, n + TAG)) return PL_EPROTO;
    rc = unseal(z->open, &z->hand, out, sealed, n, z->h, 32);
    mix_hash(z, sealed, n + TAG);
    return rc;
}

static int make_payload(const struct noise *z, struct bytes *out)
{
    Libp2p__NoiseHandshakePayload payload = LIBP2P__NOISE_HANDSHAKE_PAYLOAD__INIT;
    Libp2p__NoiseExtensions extensions = LIBP2P__NOISE_EXTENSIONS__INIT;
    char name[sizeof yamux_name], *muxers[1] = { name };
    uint8_t message[sizeof signed_prefix - 1 + 32], signature[SIGNATURE_MAX], *to;
    size_t n, bytes;
    if (z->fixed.payload) return bytes_add(out, z->fixed.payload, z->fixed.payload_bytes);
    memcpy(name, yamux_name, sizeof name);
    memcpy(message, signed_prefix, sizeof signed_prefix - 1);
    memcpy(message + sizeof signed_prefix - 1, z->s_public, 32);
    if (identity_sign(z->me, signature, &n, message, sizeof message)) return PL_ENOMEM;
    payload.has_identity_key = payload.has_identity_sig = 1;
    payload.identity_key.data = (uint8_t *)(uintptr_t)bytes_at(&z->me->public_key);
    payload.identity_key.len = bytes_length(&z->me->public_key);
    payload.identity_sig.data = signature;
    payload.identity_sig.len = n;
    extensions.stream_muxers = muxers;
    extensions.n_stream_muxers = 1;
    payload.extensions = &extensions;
    bytes = libp2p__noise_handshake_payload__get_packed_size(&payload);
    if (!(to = bytes_reserve(out, bytes))) return out->failed;
    out->end += libp2p__noise_handshake_payload__pack(&payload, to);
    return PL_OK;
}

/* The other side's proof: its identity key has signed this handshake's static key. */
static int check_payload(struct noise *z, const uint8_t *data, size_t n, struct pl_err *err)
{
    Libp2p__NoiseHandshakePayload *payload = libp2p__noise_handshake_payload__unpack(NULL, n, data);
    uint8_t message[sizeof signed_prefix - 1 + 32];
    int rc = PL_OK;
    if (!payload || !payload->has_identity_key || !payload->has_identity_sig) {
        rc = pl_fail(err, PL_EPROTO, "noise: the payload holds no identity");
        goto done;
    }
    memcpy(message, signed_prefix, sizeof signed_prefix - 1);
    memcpy(message + sizeof signed_prefix - 1, z->rs, 32);
    if (public_key_verify(payload->identity_key.data, payload->identity_key.len, message,
                          sizeof message, payload->identity_sig.data, payload->identity_sig.len)) {
        rc = pl_fail(err, PL_EPROTO, "noise: the identity's key or signature is not valid");
        goto done;
    }
    peer_id_of_key(&z->secure.remote, payload->identity_key.data, payload->identity_key.len);
    if (z->expected.length && !peer_id_equal(&z->expected, &z->secure.remote)) {
        char want[PEER_ID_TEXT_MAX], got[PEER_ID_TEXT_MAX];
        peer_id_text(want, &z->expected);
        peer_id_text(got, &z->secure.remote);
        rc = pl_fail(err, PL_EPROTO, "noise: dialled %s, but %s answered", want, got);
        goto done;
    }
    for (size_t i = 0; payload->extensions && i < payload->extensions->n_stream_muxers; i++)
        if (!strcmp(payload->extensions->stream_muxers[i], yamux_name)) z->secure.muxer_agreed = 1;
done:
    if (payload) libp2p__noise_handshake_payload__free_unpacked(payload, NULL);
    return rc;
}

/* k1 carries what the initiator sends. */
static void split(struct noise *z)
{
    uint8_t first[32], second[32];
    derive(first, second, z->ck, NULL, 0);
    memcpy(z->sending.k, z->initiator ? first : second, 32);
    memcpy(z->receiving.k, z->initiator ? second : first, 32);
    OPENSSL_cleanse(first, sizeof first);
    OPENSSL_cleanse(second, sizeof second);
    if (set_key(z->seal, z->sending.k, 1) || set_key(z->open, z->receiving.k, 0)) z->failed = 1;
    z->secure.established = 1;
    EVP_PKEY_free(z->e);
    z->e = NULL;
}

/* Puts the length in front of a message that was built in `body`. */
static int frame(struct bytes *wire, struct bytes *body)
{
    int rc = body->failed;
    if (!rc && bytes_length(body) > MESSAGE_MAX) rc = PL_ELIMIT;
    if (!rc) rc = bytes_be16(wire, (uint16_t)bytes_length(body));
    if (!rc) rc = bytes_add(wire, bytes_at(body), bytes_length(body));
    bytes_clear(body);
    return rc;
}

static int write_1(struct noise *z, struct bytes *wire)
{
    struct bytes body = { 0 };
    bytes_add(&body, z->e_public, 32);
    mix_hash(z, z->e_public, 32);
    trace(z, "e");
    mix_hash(z, NULL, 0); /* the empty payload */
    return frame(wire, &body);
}

static int read_1(struct noise *z, struct cursor *c)
{
    const uint8_t *e;
    if (get_bytes(c, &e, 32)) return PL_EPROTO;
    memcpy(z->re, e, 32);
    mix_hash(z, e, 32);
    trace(z, "e");
    mix_hash(z, c->at, c->left); /* XX sends no payload here; one that is there only gets hashed */
    c->left = 0;
    return PL_OK;
}

static int write_2(struct noise *z, struct bytes *wire)
{
    struct bytes body = { 0 }, payload = { 0 };
    int rc = bytes_add(&body, z->e_public, 32);
    mix_hash(z, z->e_public, 32);
    trace(z, "e");
    if (!rc) rc = mix_dh(z, z->e, z->re);
    trace(z, "ee");
    if (!rc) rc = encrypt_and_hash(z, &body, z->s_public, 32);
    trace(z, "s");
    if (!rc) rc = mix_dh(z, z->s, z->re);
    trace(z, "es");
    if (!rc) rc = make_payload(z, &payload);
    if (!rc) rc = encrypt_and_hash(z, &body, bytes_at(&payload), bytes_length(&payload));
    trace(z, "payload");
    bytes_clear(&payload);
    if (rc) bytes_clear(&body);
    return rc ? rc : frame(wire, &body);
}

/* The end of messages 2 and 3: the payload takes what is left. */
static int read_payload(struct noise *z, struct cursor *c, struct pl_err *err)
{
    size_t n = c->left < TAG ? 0 : c->left - TAG;
    uint8_t *plain = malloc(n + 1);
    int rc = plain ? decrypt_and_hash(z, c, plain, n) : PL_ENOMEM;
    trace(z, "payload");
    if (!rc) rc = check_payload(z, plain, n, err);
    free(plain);
    return rc;
}

static int read_2(struct noise *z, struct cursor *c, struct pl_err *err)
{
    const uint8_t *e;
    int rc;
    if (get_bytes(c, &e, 32)) return PL_EPROTO;
    memcpy(z->re, e, 32);
    mix_hash(z, e, 32);
    trace(z, "e");
    rc = mix_dh(z, z->e, z->re);
    trace(z, "ee");
    if (!rc) rc = decrypt_and_hash(z, c, z->rs, 32);
    trace(z, "s");
    if (!rc) rc = mix_dh(z, z->e, z->rs);
    trace(z, "es");
    return rc ? rc : read_payload(z, c, err);
}

static int write_3(struct noise *z, struct bytes *wire)
{
    struct bytes body = { 0 }, payload = { 0 };
    int rc = encrypt_and_hash(z, &body, z->s_public, 32);
    trace(z, "s");
    if (!rc) rc = mix_dh(z, z->s, z->re);
    trace(z, "se");
    if (!rc) rc = make_payload(z, &payload);
    if (!rc) rc = encrypt_and_hash(z, &body, bytes_at(&payload), bytes_length(&payload));
    trace(z, "payload");
    bytes_clear(&payload);
    if (rc) bytes_clear(&body);
    return rc ? rc : frame(wire, &body);
}

static int read_3(struct noise *z, struct cursor *c, struct pl_err *err)
{
    int rc = decrypt_and_hash(z, c, z->rs, 32);
    trace(z, "s");
    if (!rc) rc = mix_dh(z, z->e, z->rs);
    trace(z, "se");
    return rc ? rc : read_payload(z, c, err);
}

static int on_handshake(struct noise *z, struct cursor *c, struct bytes *wire, struct pl_err *err)
{
    int rc;
    if (!z->initiator && z->step == 0) {
        rc = read_1(z, c);
        if (!rc) rc = write_2(z, wire);
        z->step = 2;
    } else if (z->initiator && z->step == 1) {
        rc = read_2(z, c, err);
        if (!rc) rc = write_3(z, wire);
        z->step = 3;
    } else {
        rc = read_3(z, c, err);
        z->step = 3;
    }
    if (!rc && z->step == 3 && !z->failed) split(z);
    return rc || !z->failed ? rc : PL_ENOMEM;
}

static int on_message(struct noise *z, const uint8_t *message, size_t n, struct bytes *plain,
                      struct bytes *wire, struct pl_err *err)
{
    struct cursor c = { message, n };
    uint8_t *to;
    int rc;
    if (!z->secure.established) {
        if (err) err->text[0] = 0;
        rc = on_handshake(z, &c, wire, err);
        if (rc == PL_EPROTO && err && !err->text[0])
            pl_fail(err, rc, "noise: the handshake does not fit together");
        return rc;
    }
    if (n < TAG) return pl_fail(err, PL_EPROTO, "noise: a message of %zu bytes, a tag has 16", n);
    if (!(to = bytes_reserve(plain, n - TAG))) return plain->failed;
    if (unseal(z->open, &z->receiving, to, message, n - TAG, NULL, 0))
        return pl_fail(err, PL_EPROTO, "noise: a message was altered on its way");
    plain->end += n - TAG;
    return PL_OK;
}

/* Bytes that the held message lacks, or lacks to know its length; 0: it is whole. */
static size_t missing(const struct noise *z)
{
    struct cursor held = { bytes_at(&z->in), bytes_length(&z->in) };
    uint16_t length;
    return get_be16(&held, &length) ? 2 - held.left : held.left < length ? length - held.left : 0;
}

/* Completes the message whose beginning is held; takes from c no more than it needs. */
static int complete(struct noise *z, struct cursor *c)
{
    size_t want;
    int rc = PL_OK;
    while (!rc && c->left && (want = missing(z)) > 0) {
        size_t part = want < c->left ? want : c->left;
        rc = bytes_add(&z->in, c->at, part);
        c->at += part;
        c->left -= part;
    }
    return rc;
}

/* Works on whole messages where they arrived; only one that came in pieces is copied. */
static int noise_receive(struct secure *s, const uint8_t *in, size_t n, struct bytes *plain,
                         struct bytes *wire, struct pl_err *err)
{
    struct noise *z = (struct noise *)s;
    struct cursor c = { in, n };
    int rc = PL_OK, held = bytes_length(&z->in) > 0;
    if (held && (rc = complete(z, &c))) return rc;
    while (!rc) {
        struct cursor ahead = held ? (struct cursor){ bytes_at(&z->in), bytes_length(&z->in) } : c;
        const uint8_t *message;
        uint16_t length;
        if (get_be16(&ahead, &length) || get_bytes(&ahead, &message, length)) break;
        rc = on_message(z, message, length, plain, wire, err);
        if (held) bytes_take(&z->in, bytes_length(&z->in));
        else c = ahead;
        held = 0;
    }
    if (!rc && c.left) rc = bytes_add(&z->in, c.at, c.left);
    return rc;
}

static int noise_send(struct secure *s, const uint8_t *plain, size_t n, struct bytes *wire)
{
    struct noise *z = (struct noise *)s;
    do { /* nothing to send makes an empty message, which is legal */
        size_t part = n < PLAIN_MAX ? n : PLAIN_MAX;
        uint8_t *to;
        int rc = bytes_be16(wire, (uint16_t)(part + TAG));
        if (rc) return rc;
        if (!(to = bytes_reserve(wire, part + TAG))) return wire->failed;
        if ((rc = seal(z->seal, &z->sending, to, plain, part, NULL, 0))) return rc;
        wire->end += part + TAG;
        plain += part;
        n -= part;
    } while (n);
    return PL_OK;
}

static void noise_close(struct secure *s)
{
    struct noise *z = (struct noise *)s;
    if (!z) return;
    EVP_PKEY_free(z->s);
    EVP_PKEY_free(z->e);
    EVP_CIPHER_CTX_free(z->seal);
    EVP_CIPHER_CTX_free(z->open);
    bytes_clear(&z->in);
    OPENSSL_clear_free(z, sizeof *z);
}

static int key_pair(EVP_PKEY **key, uint8_t public_half[32], const uint8_t *fixed)
{
    size_t n = 32;
    *key = fixed ? EVP_PKEY_new_raw_private_key(EVP_PKEY_X25519, NULL, fixed, 32)
                 : EVP_PKEY_Q_keygen(NULL, NULL, "X25519");
    return *key && EVP_PKEY_get_raw_public_key(*key, public_half, &n) == 1 ? PL_OK : PL_ENOMEM;
}

int noise_open_fixed(struct secure **out, const struct identity *me, int initiator,
                     const struct peer_id *expected, struct bytes *wire,
                     const struct noise_fixed *fixed)
{
    struct noise *z = OPENSSL_zalloc(sizeof *z);
    int rc = PL_ENOMEM;
    *out = NULL;
    if (!z) return rc;
    z->secure.receive = noise_receive;
    z->secure.send = noise_send;
    z->secure.close = noise_close;
    z->me = me;
    z->initiator = initiator;
    z->in.limit = MESSAGE_MAX + 2;
    if (expected) z->expected = *expected;
    if (fixed) z->fixed = *fixed;
    z->seal = EVP_CIPHER_CTX_new();
    z->open = EVP_CIPHER_CTX_new();
    if (!z->seal || !z->open || key_pair(&z->s, z->s_public, z->fixed.static_private) ||
        key_pair(&z->e, z->e_public, z->fixed.ephemeral_private))
        goto done;
    memcpy(z->h, protocol_name, 32);
    memcpy(z->ck, protocol_name, 32);
    mix_hash(z, NULL, 0); /* the empty prologue */
    trace(z, "start");
    rc = PL_OK;
    if (initiator) {
        rc = write_1(z, wire);
        z->step = 1;
    }
    if (!rc && !z->failed) {
        *out = &z->secure;
        return PL_OK;
    }
    rc = PL_ENOMEM;
done:
    noise_close(&z->secure);
    return rc;
}

int noise_open(struct secure **s, const struct identity *me, int initiator,
               const struct peer_id *expected, struct bytes *wire)
{
    return noise_open_fixed(s, me, initiator, expected, wire, NULL);
}

void noise_keys(const struct secure *s, uint8_t first[32], uint8_t second[32])
{
    const struct noise *z = (const struct noise *)s;
    memcpy(first, z->initiator ? z->sending.k : z->receiving.k, 32);
    memcpy(second, z->initiator ? z->receiving.k : z->sending.k, 32);
}
