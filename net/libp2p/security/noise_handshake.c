/* noise_handshake.c - Noise_XX_25519_ChaChaPoly_SHA256 with libp2p's identity in the payload.
 * [Noise protocol framework, revision 34, 7.5] [spec libp2p-wire 5]
 *
 *   initiator                          responder
 *      1  e                  ---->                            e   a fresh public key
 *                            <----     2  e, ee, s, es, payload   s   the static public key, sealed
 *      3  s, se, payload     ---->                            ee  DH of both fresh keys, and so on
 *
 * The static key is the connection's, not the peer's: the payload carries the peer's identity
 * key and its signature over "noise-libp2p-static-key:" and s. Without `ee` there would be no
 * forward secrecy, without `es` and `se` no proof that the static keys are held.
 *
 * Every message has a 2-byte length in front. The initiator has proven nothing before message 3,
 * so the responder acts on nothing before it. Afterwards each direction has a key of its own. */
#include "noise.h"
#include "noise_symmetric.h"
#include "net/message.h"
#include "net/libp2p/peer/libp2p.pb-c.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_MAX 65535
#define PLAIN_MAX (MESSAGE_MAX - NOISE_TAG)
static const char protocol_name[] = "Noise_XX_25519_ChaChaPoly_SHA256"; /* exactly 32 bytes */
static const char signed_prefix[] = "noise-libp2p-static-key:";
static const char yamux_name[] = "/yamux/1.0.0";

struct noise {
    struct secure secure; /* first: the engine is handed out as this */
    const struct identity *me;
    struct peer_id expected;
    int initiator, step; /* messages of the handshake that are done: 0..3 */
    struct noise_symmetric symmetric;
    struct noise_cipher sending, receiving;
    EVP_PKEY *s, *e;
    uint8_t s_public[32], e_public[32], rs[32], re[32];
    struct noise_fixed fixed;
    struct bytes in; /* a message that has not arrived whole */
};

static void trace(struct noise *z, const char *step)
{
    struct noise_trace t = { .step = step,
                             .has_key = z->symmetric.cipher.has_key,
                             .n = z->symmetric.cipher.n };
    if (!z->fixed.trace) return;
    memcpy(t.h, z->symmetric.h, 32);
    memcpy(t.ck, z->symmetric.ck, 32);
    memcpy(t.k, z->symmetric.cipher.k, 32);
    z->fixed.trace(z->fixed.context, &t);
}

/* Our identity key, its signature over the static key, and the multiplexer that we want. */
static int make_payload(const struct noise *z, struct bytes *out)
{
    Libp2p__NoiseHandshakePayload payload = LIBP2P__NOISE_HANDSHAKE_PAYLOAD__INIT;
    Libp2p__NoiseExtensions extensions = LIBP2P__NOISE_EXTENSIONS__INIT;
    char name[sizeof yamux_name], *muxers[1] = { name };
    uint8_t message[sizeof signed_prefix - 1 + 32], signature[SIGNATURE_MAX];
    size_t n;
    if (z->fixed.payload) return bytes_add(out, z->fixed.payload, z->fixed.payload_bytes);
    memcpy(name, yamux_name, sizeof name);
    memcpy(message, signed_prefix, sizeof signed_prefix - 1);
    memcpy(message + sizeof signed_prefix - 1, z->s_public, 32);
    if (identity_sign(z->me, signature, &n, message, sizeof message)) return PL_ENOMEM;
    payload.has_identity_key = payload.has_identity_sig = 1;
    payload.identity_key = message_bytes(bytes_at(&z->me->public_key),
                                         bytes_length(&z->me->public_key));
    payload.identity_sig = message_bytes(signature, n);
    extensions.stream_muxers = muxers;
    extensions.n_stream_muxers = 1;
    payload.extensions = &extensions;
    return message_pack(out, &payload.base);
}

/* The other side's proof: its identity key has signed this handshake's static key. */
static int check_payload(struct noise *z, const uint8_t *data, size_t n, struct pl_err *err)
{
    Libp2p__NoiseHandshakePayload *payload =
        message_unpack(&libp2p__noise_handshake_payload__descriptor, data, n, NULL);
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
        rc = pl_fail(err, PL_EPROTO, "noise: dialed %s, but %s answered", want, got);
        goto done;
    }
    for (size_t i = 0; payload->extensions && i < payload->extensions->n_stream_muxers; i++)
        if (!strcmp(payload->extensions->stream_muxers[i], yamux_name)) z->secure.muxer_agreed = 1;
done:
    message_free(payload);
    return rc;
}

/* The handshake ends: two keys from ck, the first for the initiator's messages. */
static void split(struct noise *z)
{
    uint8_t first[32], second[32];
    noise_derive(first, second, z->symmetric.ck, NULL, 0);
    memcpy(z->sending.k, z->initiator ? first : second, 32);
    memcpy(z->receiving.k, z->initiator ? second : first, 32);
    OPENSSL_cleanse(first, sizeof first);
    OPENSSL_cleanse(second, sizeof second);
    if (noise_set_key(z->symmetric.seal, z->sending.k, 1) ||
        noise_set_key(z->symmetric.open, z->receiving.k, 0))
        z->symmetric.failed = 1;
    z->secure.established = 1;
    EVP_PKEY_free(z->e);
    z->e = NULL;
}

/* Puts the length in front of a message that was built in `body`: length (2, big-endian) | message,
 * at most 65,535 bytes. */
static int frame(struct bytes *wire, struct bytes *body)
{
    int rc = body->failed;
    if (!rc && bytes_length(body) > MESSAGE_MAX) rc = PL_ELIMIT;
    if (!rc) rc = bytes_be16(wire, (uint16_t)bytes_length(body));
    if (!rc) rc = bytes_add(wire, bytes_at(body), bytes_length(body));
    bytes_clear(body);
    return rc;
}

/* -> e: the initiator's fresh public key, in the clear. */
static int write_1(struct noise *z, struct bytes *wire)
{
    struct bytes body = { 0 };
    bytes_add(&body, z->e_public, 32);
    noise_mix_hash(&z->symmetric, z->e_public, 32);
    trace(z, "e");
    noise_mix_hash(&z->symmetric, NULL, 0); /* the empty payload */
    return frame(wire, &body);
}

/* The responder: nothing is proven yet, so only the fresh key is kept. */
static int read_1(struct noise *z, struct cursor *c)
{
    const uint8_t *e;
    if (get_bytes(c, &e, 32)) return PL_EPROTO;
    memcpy(z->re, e, 32);
    noise_mix_hash(&z->symmetric, e, 32);
    trace(z, "e");
    noise_mix_hash(&z->symmetric, c->at,
                   c->left); /* XX sends no payload here; one that is there only gets hashed */
    return PL_OK;
}

/* The end of messages 2 and 3: the identity's signature over the static key, sealed; then the
 * frame. rc: the status of the message so far; body is freed in any case. */
static int write_payload(struct noise *z, struct bytes *wire, struct bytes *body, int rc)
{
    struct bytes payload = { 0 };
    if (!rc) rc = make_payload(z, &payload);
    if (!rc)
        rc = noise_encrypt_and_hash(&z->symmetric, body, bytes_at(&payload),
                                    bytes_length(&payload));
    trace(z, "payload");
    bytes_clear(&payload);
    if (rc) bytes_clear(body);
    return rc ? rc : frame(wire, body);
}

/* <- e, ee, s, es, payload: from `ee` on everything is sealed. */
static int write_2(struct noise *z, struct bytes *wire)
{
    struct bytes body = { 0 };
    int rc = bytes_add(&body, z->e_public, 32);
    noise_mix_hash(&z->symmetric, z->e_public, 32);
    trace(z, "e");
    if (!rc) rc = noise_mix_dh(&z->symmetric, z->e, z->re);
    trace(z, "ee");
    if (!rc) rc = noise_encrypt_and_hash(&z->symmetric, &body, z->s_public, 32);
    trace(z, "s");
    if (!rc) rc = noise_mix_dh(&z->symmetric, z->s, z->re);
    trace(z, "es");
    return write_payload(z, wire, &body, rc);
}

/* The end of messages 2 and 3: the payload is the rest. */
static int read_payload(struct noise *z, struct cursor *c, struct pl_err *err)
{
    size_t n = c->left < NOISE_TAG ? 0 : c->left - NOISE_TAG;
    uint8_t *plain = malloc(n + 1);
    int rc = plain ? noise_decrypt_and_hash(&z->symmetric, c, plain, n) : PL_ENOMEM;
    trace(z, "payload");
    if (!rc) rc = check_payload(z, plain, n, err);
    free(plain);
    return rc;
}

/* The initiator learns the listener's identity; a wrong peer ends the handshake here, before we
 * have sent ours. */
static int read_2(struct noise *z, struct cursor *c, struct pl_err *err)
{
    const uint8_t *e;
    int rc;
    if (get_bytes(c, &e, 32)) return PL_EPROTO;
    memcpy(z->re, e, 32);
    noise_mix_hash(&z->symmetric, e, 32);
    trace(z, "e");
    rc = noise_mix_dh(&z->symmetric, z->e, z->re);
    trace(z, "ee");
    if (!rc) rc = noise_decrypt_and_hash(&z->symmetric, c, z->rs, 32);
    trace(z, "s");
    if (!rc) rc = noise_mix_dh(&z->symmetric, z->e, z->rs);
    trace(z, "es");
    return rc ? rc : read_payload(z, c, err);
}

/* -> s, se, payload: the initiator proves its identity last, so it is hidden from eavesdroppers. */
static int write_3(struct noise *z, struct bytes *wire)
{
    struct bytes body = { 0 };
    int rc = noise_encrypt_and_hash(&z->symmetric, &body, z->s_public, 32);
    trace(z, "s");
    if (!rc) rc = noise_mix_dh(&z->symmetric, z->s, z->re);
    trace(z, "se");
    return write_payload(z, wire, &body, rc);
}

/* The initiator's static key and identity; now both are proven. */
static int read_3(struct noise *z, struct cursor *c, struct pl_err *err)
{
    int rc = noise_decrypt_and_hash(&z->symmetric, c, z->rs, 32);
    trace(z, "s");
    if (!rc) rc = noise_mix_dh(&z->symmetric, z->e, z->rs);
    trace(z, "se");
    return rc ? rc : read_payload(z, c, err);
}

/* The role and the number of messages done decide which side is next. */
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
    if (!rc && z->step == 3 && !z->symmetric.failed) split(z);
    return rc || !z->symmetric.failed ? rc : PL_ENOMEM;
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
    if (n < NOISE_TAG)
        return pl_fail(err, PL_EPROTO, "noise: a message of %zu bytes, a tag has 16", n);
    if (!(to = bytes_reserve(plain, n - NOISE_TAG))) return plain->failed;
    if (noise_unseal(z->symmetric.open, &z->receiving, to, message, n - NOISE_TAG, NULL, 0))
        return pl_fail(err, PL_EPROTO, "noise: a message was altered on its way");
    plain->end += n - NOISE_TAG;
    return PL_OK;
}

/* Bytes that the held message lacks, or lacks to know its length; 0: it is whole. */
static size_t missing(const struct noise *z)
{
    struct cursor held = { bytes_at(&z->in), bytes_length(&z->in) };
    uint16_t length;
    return get_be16(&held, &length) ? 2 - held.left : held.left < length ? length - held.left : 0;
}

/* Completes the message whose beginning has arrived; takes from c no more than it needs. */
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

/* Messages of at most 65,519 bytes and their tags, each with the next nonce. */
static int noise_send(struct secure *s, const uint8_t *plain, size_t n, struct bytes *wire)
{
    struct noise *z = (struct noise *)s;
    do { /* nothing to send makes an empty message, which is legal */
        size_t part = n < PLAIN_MAX ? n : PLAIN_MAX;
        uint8_t *to;
        int rc = bytes_be16(wire, (uint16_t)(part + NOISE_TAG));
        if (rc) return rc;
        if (!(to = bytes_reserve(wire, part + NOISE_TAG))) return wire->failed;
        if ((rc = noise_seal(z->symmetric.seal, &z->sending, to, plain, part, NULL, 0))) return rc;
        wire->end += part + NOISE_TAG;
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
    EVP_CIPHER_CTX_free(z->symmetric.seal);
    EVP_CIPHER_CTX_free(z->symmetric.open);
    bytes_clear(&z->in);
    OPENSSL_clear_free(z, sizeof *z);
}

/* X25519. The static key is new for each connection: its worth is in the identity's signature. */
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
    z->symmetric.seal = EVP_CIPHER_CTX_new();
    z->symmetric.open = EVP_CIPHER_CTX_new();
    if (!z->symmetric.seal || !z->symmetric.open ||
        key_pair(&z->s, z->s_public, z->fixed.static_private) ||
        key_pair(&z->e, z->e_public, z->fixed.ephemeral_private))
        goto done;
    memcpy(z->symmetric.h, protocol_name, 32);
    memcpy(z->symmetric.ck, protocol_name, 32);
    noise_mix_hash(&z->symmetric, NULL, 0); /* the empty prologue */
    trace(z, "start");
    rc = PL_OK;
    if (initiator) {
        rc = write_1(z, wire);
        z->step = 1;
    }
    if (!rc && !z->symmetric.failed) {
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
