/* auth.c - tokens and signatures around DHT messages [spec hivemind-protocol 3]. A coordinator
 * hands out access tokens, "user NAME may use the key K until T", signed with its own RSA key.
 * Each DHT request and response then begins with field 1:
 *
 *   0a len  RequestAuthInfo { token, service_public_key, time, nonce, signature }  plain message
 *           \______________________ signed, with signature = "" _____________________________/
 *
 * The receiver checks five things: the authority signed the token; it has not expired; the
 * token's key signed the message; its time is near; the nonce is new. The response carries the
 * request's nonce, so an old response cannot answer a new request. */
#include "auth.h"
#include "net/hivemind/messages/protobuf_fields.h"
#include "net/message.h"
#include "net/hivemind/messages/dht.pb-c.h"

#include <math.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <string.h>

#define FIELD_1 0x0a /* a message in field 1 */

/* --- tokens ----------------------------------------------------------------------------------- */

void auth_token_clear(struct auth_token *t)
{
    bytes_clear(&t->username);
    bytes_clear(&t->public_key);
    bytes_clear(&t->expiration);
    bytes_clear(&t->signature);
}

/* The wire's type of bytes, over ours: valid while b is. */
static ProtobufCBinaryData view(const struct bytes *b)
{
    return message_bytes(bytes_at(b), bytes_length(b));
}

/* A protobuf-c view of a token: nothing is copied. */
static Hivemind__AccessToken wire_token(const struct auth_token *t)
{
    Hivemind__AccessToken m = HIVEMIND__ACCESS_TOKEN__INIT;
    m.username = view(&t->username);
    m.public_key = view(&t->public_key);
    m.expiration_time = view(&t->expiration);
    m.signature = view(&t->signature);
    return m;
}

int auth_token_write(struct bytes *out, const struct auth_token *t)
{
    Hivemind__AccessToken m = wire_token(t);
    return message_pack(out, &m.base);
}

/* Lengths first: the texts come from strangers and are kept. */
static int copy_token(struct auth_token *t, const Hivemind__AccessToken *m)
{
    memset(t, 0, sizeof *t);
    /* The largest token is about 4 KiB: an RSA key of 8192 bits and a signature by such a key. */
    if (m->username.len > AUTH_TEXT_MAX || m->expiration_time.len > AUTH_TEXT_MAX ||
        m->public_key.len > RSA_TEXT_MAX || m->signature.len > RSA_TEXT_MAX)
        return PL_EFORMAT;
    if (!bytes_add(&t->username, m->username.data, m->username.len) &&
        !bytes_add(&t->public_key, m->public_key.data, m->public_key.len) &&
        !bytes_add(&t->expiration, m->expiration_time.data, m->expiration_time.len) &&
        !bytes_add(&t->signature, m->signature.data, m->signature.len))
        return PL_OK;
    auth_token_clear(t);
    return PL_ENOMEM;
}

int auth_token_read(struct auth_token *t, const uint8_t *data, size_t n)
{
    Hivemind__AccessToken *m = message_unpack(&hivemind__access_token__descriptor, data, n, NULL);
    int rc;
    memset(t, 0, sizeof *t);
    if (!m) return PL_EFORMAT;
    /* The message's memory ends with it, a token lives until it is renewed. */
    rc = copy_token(t, m);
    message_free(m);
    return rc;
}

/* The signed text is f"{username} {public_key} {expiration}" in Python, where public_key is a bytes
 * object; so its repr, b'KEY', is part of what every peer must reproduce. */
int auth_token_message(struct bytes *out, const struct auth_token *t)
{
    bytes_add(out, bytes_at(&t->username), bytes_length(&t->username));
    bytes_add(out, " b'", 3);
    bytes_add(out, bytes_at(&t->public_key), bytes_length(&t->public_key));
    bytes_add(out, "' ", 2);
    return bytes_add(out, bytes_at(&t->expiration), bytes_length(&t->expiration));
}

/* The expiration is text in the token, in the form that datetime.__str__ gives: Python parses it
 * again. */
int auth_token_issue(struct auth_token *t, const struct rsa_key *authority, const char *username,
                     const void *public_key, size_t n, double expiration)
{
    struct bytes message = { 0 };
    char text[AUTH_TIME_TEXT];
    int rc;
    memset(t, 0, sizeof *t);
    /* Years beyond 9999 have no text in that form. */
    if (!(fabs(expiration) < 1e12) || auth_time_write(text, llround(expiration * AUTH_SECOND)))
        return PL_EUSE;
    bytes_add(&t->username, username, strlen(username));
    bytes_add(&t->public_key, public_key, n);
    bytes_add(&t->expiration, text, strlen(text));
    rc = auth_token_message(&message, t);
    /* RSA-PSS over SHA-256, in base64, as records are signed. [spec hivemind-protocol 2.1] */
    if (!rc)
        rc = rsa_key_sign(&t->signature, authority, bytes_at(&message), bytes_length(&message));
    bytes_clear(&message);
    if (!rc) rc = t->username.failed | t->public_key.failed | t->expiration.failed;
    if (rc) auth_token_clear(t);
    return rc ? PL_ENOMEM : PL_OK;
}

/* The signature first: until then every other field is a stranger's. */
int auth_token_check(const struct auth_token *t, EVP_PKEY *authority, double now,
                     struct pl_err *err)
{
    struct bytes message = { 0 };
    int64_t until;
    int rc = auth_token_message(&message, t);
    if (!rc)
        rc = rsa_public_verify(authority, bytes_at(&message), bytes_length(&message),
                               bytes_at(&t->signature), bytes_length(&t->signature));
    bytes_clear(&message);
    if (rc)
        return rc == PL_EPROTO ? pl_fail(err, rc, "access token: not signed by our authority") : rc;
    /* Python compares it with a UTC time without a zone, and raises an exception for one that has
     * a zone: such a token is refused by every peer. */
    if (auth_time_parse(&until, bytes_at(&t->expiration), bytes_length(&t->expiration)))
        return pl_fail(err, PL_EPROTO,
                       "access token: its expiration_time '%.*s' is not a UTC time without a zone",
                       (int)(bytes_length(&t->expiration) < 40 ? bytes_length(&t->expiration) : 40),
                       (const char *)bytes_at(&t->expiration));
    /* DHT time, which is corrected by the swarm's clocks: an expired token is expired for all. */
    if ((double)until / AUTH_SECOND < now)
        return pl_fail(err, PL_EPROTO, "access token: expired at %.*s UTC, %.1f s ago",
                       (int)bytes_length(&t->expiration), (const char *)bytes_at(&t->expiration),
                       now - (double)until / AUTH_SECOND);
    return PL_OK;
}

/* --- messages --------------------------------------------------------------------------------- */

/* Signs field 1 (with an empty signature in it) and the plain message behind it, then appends
 * both with the signature filled in. Request and response differ only in the type of `info`. */
static int sign(struct bytes *out, const struct auth *a, ProtobufCMessage *info,
                ProtobufCBinaryData *signature, const void *plain, size_t n)
{
    struct bytes message = { 0 }, made = { 0 };
    int rc = PL_OK;
    /* The signed text: 0a, length, info without a signature, the plain message. The verifier clears
     * the signature and serializes again, so both need the same bytes: fields in the order of their
     * numbers, no defaults written out. */
    bytes_u8(&message, FIELD_1);
    message_pack_delimited(&message, info);
    bytes_add(&message, plain, n);
    if (message.failed) rc = message.failed;
    else rc = rsa_key_sign(&made, a->key, bytes_at(&message), bytes_length(&message));
    if (!rc) {
        /* The bytes sent: the same with the signature in it, so with another length. */
        *signature = view(&made);
        bytes_u8(out, FIELD_1);
        message_pack_delimited(out, info);
        rc = bytes_add(out, plain, n);
    }
    bytes_clear(&message);
    bytes_clear(&made);
    return rc;
}

int auth_sign_request(struct bytes *out, uint8_t nonce[AUTH_NONCE], const struct auth *a,
                      double now, const void *plain, size_t n)
{
    Hivemind__RequestAuthInfo m = HIVEMIND__REQUEST_AUTH_INFO__INIT;
    Hivemind__AccessToken token = wire_token(&a->token);
    struct bytes named = { 0 };
    int rc;
    if (RAND_bytes(nonce, AUTH_NONCE) != 1) return PL_ENOMEM;
    /* service_public_key stays empty, as hivemind's DHT leaves it: before a peer's first answer its
     * key is not known. */
    /* The whole token goes along each time: receivers keep no list of members' keys. */
    m.client_access_token = &token;
    /* Time and nonce make each request unique: the receiver needs to remember nonces only as
     * long as their time is accepted. */
    m.time = now;
    m.nonce = message_bytes(nonce, AUTH_NONCE);
    rc = bytes_add(&named, plain, n);
    /* Our own addition, which hivemind ignores as an unknown field: the sender of this request.
     * Without it a member could forward another member's signed request and appear as its
     * sender. */
    if (!rc && a->self.length) rc = field_write(&named, AUTH_SENDER, a->self.bytes, a->self.length);
    if (!rc) rc = sign(out, a, &m.base, &m.signature, bytes_at(&named), bytes_length(&named));
    bytes_clear(&named);
    return rc;
}

/* `plain` is inside of the signature, so the field is as good as the token. hivemind's requests
 * lack it. */
int auth_check_sender(const uint8_t *plain, size_t n, const struct peer_id *sender,
                      struct pl_err *err)
{
    struct cursor c = { plain, n };
    struct field f;
    /* All fields are read: a second one of this number must not contradict the first. */
    while (c.left) {
        if (field_next(&c, &f)) return pl_fail(err, PL_EPROTO, "request: no message");
        if (f.number == AUTH_SENDER && (f.type != FIELD_DELIMITED || f.n != sender->length ||
                                        memcmp(f.data, sender->bytes, f.n)))
            return pl_fail(err, PL_EPROTO, "request: signed for another peer's use");
    }
    return PL_OK;
}

int auth_sign_response(struct bytes *out, const struct auth *a, const uint8_t nonce[AUTH_NONCE],
                       const void *plain, size_t n)
{
    Hivemind__ResponseAuthInfo m = HIVEMIND__RESPONSE_AUTH_INFO__INIT;
    Hivemind__AccessToken token = wire_token(&a->token);
    /* The server shows its token, too: members accept records and answers of members only. */
    m.service_access_token = &token;
    /* The request's nonce ties the answer to it. No time is needed: the client knows when it has
     * asked. */
    m.nonce = message_bytes(nonce, AUTH_NONCE);
    return sign(out, a, &m.base, &m.signature, plain, n);
}

/* Cuts a message into field 1, which is returned, and the plain message behind it, which is left to
 * the DHT's own parser: only field 1 is parsed before the signatures are checked. It must come
 * first: hivemind's serializer writes fields in the order of their numbers. NULL: PL_EPROTO. */
static void *read_info(struct cursor *rest, const ProtobufCMessageDescriptor *type,
                       const uint8_t *data, size_t n, struct pl_err *err)
{
    const uint8_t *info;
    size_t info_n;
    uint8_t tag;
    rest->at = data;
    rest->left = n;
    /* A member that sees this has sent a message without a token: its user joined a moderated run
     * as if it were open. */
    if (!get_u8(rest, &tag) && tag == FIELD_1 && !get_delimited(rest, &info, &info_n, n))
        return message_unpack(type, info, info_n, err);
    pl_fail(err, PL_EPROTO, "message: carries no access token");
    return NULL;
}

/* Token and signature of a message. The signed bytes are rebuilt: info with an empty signature,
 * then the rest as it came. Both are functions of the received fields, so a re-encoded message
 * still verifies. */
static int check(struct auth *a, double now, const Hivemind__AccessToken *wire,
                 ProtobufCMessage *info, ProtobufCBinaryData *signature, const struct cursor *rest,
                 struct pl_err *err)
{
    struct bytes message = { 0 };
    struct auth_token token;
    ProtobufCBinaryData made = *signature;
    EVP_PKEY *key = NULL;
    int64_t until;
    int rc;
    if (!wire || copy_token(&token, wire))
        return pl_fail(err, PL_EPROTO, "message: carries no access token");
    /* First the authority's signature, with the one key that every peer of the run knows ... */
    rc = auth_token_check(&token, a->authority, now, err);
    /* The DHT's node remembers members until then. */
    if (!rc &&
        !auth_time_parse(&until, bytes_at(&token.expiration), bytes_length(&token.expiration)))
        a->until = (double)until / AUTH_SECOND;
    if (!rc && rsa_public_parse(&key, bytes_at(&token.public_key), bytes_length(&token.public_key)))
        rc = pl_fail(err, PL_EPROTO, "access token: its key is not an RSA key");
    auth_token_clear(&token);
    if (rc) return rc;
    /* ... then the sender's, over info with an empty signature and the plain message. The order
     * bounds the work that a stranger can cause: without a token a message costs one verification,
     * by a key that the run has chosen. */
    *signature = message_bytes(NULL, 0);
    bytes_u8(&message, FIELD_1);
    message_pack_delimited(&message, info);
    *signature = made;
    if (!(rc = bytes_add(&message, rest->at, rest->left)))
        rc = rsa_public_verify(key, bytes_at(&message), bytes_length(&message), made.data,
                               made.len);
    EVP_PKEY_free(key);
    bytes_clear(&message);
    return rc == PL_EPROTO ? pl_fail(err, rc, "message: not signed by its token's owner") : rc;
}

/* The fields that only requests have: intended receiver, time, nonce. The nonce is stored last, so
 * that unsigned requests use no memory. */
static int check_request(struct auth *a, double now, Hivemind__RequestAuthInfo *m,
                         const struct cursor *rest, struct pl_err *err)
{
    const struct bytes *mine = &a->key->text;
    int rc = check(a, now, m->client_access_token, &m->base, &m->signature, rest, err);
    if (rc) return rc;
    /* A request may name its receiver's key; hivemind leaves the field empty. */
    if (m->service_public_key.len &&
        (m->service_public_key.len != bytes_length(mine) ||
         memcmp(m->service_public_key.data, bytes_at(mine), bytes_length(mine))))
        return pl_fail(err, PL_EPROTO, "request: meant for another peer");
    /* |time - now| <= 60 s: a request from a clock that is 60 s ahead is accepted for 120 s, and
     * its nonce is kept as long (hivemind: 180 s). !(x <= limit) refuses a NaN, too. */
    if (!(fabs(m->time - now) <= AUTH_TIME_LIMIT))
        return pl_fail(err, PL_EPROTO, "request: %.1f s away from our clock", m->time - now);
    if (m->nonce.len != AUTH_NONCE) return pl_fail(err, PL_EPROTO, "request: no nonce of 8 bytes");
    rc = auth_nonces_take(&a->nonces, m->client_access_token->public_key.data,
                          m->client_access_token->public_key.len,
                          m->client_access_token->username.data,
                          m->client_access_token->username.len, m->nonce.data, now);
    if (rc == PL_EPROTO) return pl_fail(err, rc, "request: seen before");
    if (rc == PL_EAGAIN)
        return pl_fail(err, PL_EPROTO, "request: too many of yours within %.0f s", AUTH_NONCE_LIFE);
    return rc;
}

int auth_check_request(const uint8_t **plain, size_t *plain_n, uint8_t nonce[AUTH_NONCE],
                       struct auth *a, double now, const uint8_t *data, size_t n,
                       struct pl_err *err)
{
    struct cursor rest;
    Hivemind__RequestAuthInfo *m = read_info(&rest, &hivemind__request_auth_info__descriptor, data,
                                             n, err);
    int rc;
    if (!m) return PL_EPROTO;
    if (!(rc = check_request(a, now, m, &rest, err))) {
        /* The answer has to bear this nonce. */
        memcpy(nonce, m->nonce.data, AUTH_NONCE);
        *plain = rest.at;
        *plain_n = rest.left;
    }
    message_free(m);
    return rc;
}

int auth_check_response(const uint8_t **plain, size_t *plain_n, struct auth *a,
                        const uint8_t nonce[AUTH_NONCE], double now, const uint8_t *data, size_t n,
                        struct pl_err *err)
{
    struct cursor rest;
    Hivemind__ResponseAuthInfo *m = read_info(&rest, &hivemind__response_auth_info__descriptor,
                                              data, n, err);
    int rc;
    if (!m) return PL_EPROTO;
    /* The answering peer needs a token as well: an outsider's answers could name outsiders. */
    rc = check(a, now, m->service_access_token, &m->base, &m->signature, &rest, err);
    /* Our request's nonce: this is the answer to it and no recording of another. */
    if (!rc && (m->nonce.len != AUTH_NONCE || memcmp(m->nonce.data, nonce, AUTH_NONCE)))
        rc = pl_fail(err, PL_EPROTO, "response: answers another request");
    message_free(m);
    if (rc) return rc;
    *plain = rest.at;
    *plain_n = rest.left;
    return PL_OK;
}

void auth_clear(struct auth *a)
{
    auth_token_clear(&a->token);
    auth_nonces_clear(&a->nonces);
}
