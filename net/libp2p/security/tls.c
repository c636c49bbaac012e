/* tls.c - TLS 1.3 between memory buffers. [spec libp2p-wire 6]
 *
 * Both sides show a self-signed certificate; tls_cert.c checks that it carries a libp2p
 * identity. No authority and no host name is involved. ALPN names Yamux, so that the multiplexer
 * is agreed on within the handshake. As a server we walk the client's list of protocols in its
 * order. An identity has one certificate, which all its connections share. */
#include "secure_channel.h"
#include "tls_cert.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static const unsigned char protocols[] = "\x0c/yamux/1.0.0\x06libp2p";
static const char yamux_name[] = "/yamux/1.0.0";

struct tls {
    struct secure secure; /* first: the engine is handed out as this */
    SSL *ssl;
    BIO *in, *out; /* owned by ssl */
    int initiator;
    struct peer_id expected;
    struct pl_err refusal; /* why the certificate was refused */
};

/* Runs in the middle of the handshake, so that a refusal reaches the other side as an alert. */
static int verify(X509_STORE_CTX *store, void *context)
{
    const SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    struct tls *t = SSL_get_app_data(ssl);
    X509 *cert = X509_STORE_CTX_get0_cert(store);
    /* the whole chain, leaf included */
    STACK_OF(X509) *sent = X509_STORE_CTX_get0_untrusted(store);
    struct peer_id id;
    t->refusal.text[0] = 0;
    if (!cert || sk_X509_num(sent) != 1) {
        pl_fail(&t->refusal, PL_EPROTO, "tls: %d certificates, exactly one expected",
                sk_X509_num(sent));
    } else if (!tls_cert_check(&id, cert, time(NULL), &t->refusal)) {
        if (!t->expected.length || peer_id_equal(&t->expected, &id)) {
            t->secure.remote = id;
            return 1;
        }
        char want[PEER_ID_TEXT_MAX], got[PEER_ID_TEXT_MAX];
        peer_id_text(want, &t->expected);
        peer_id_text(got, &id);
        pl_fail(&t->refusal, PL_EPROTO, "tls: dialed %s, but %s answered", want, got);
    }
    X509_STORE_CTX_set_error(store, X509_V_ERR_APPLICATION_VERIFICATION);
    return 0;
}

/* ALPN: "/yamux/1.0.0" if the client offers it, otherwise "libp2p", after which Yamux is
 * negotiated. */
static int choose(SSL *ssl, const unsigned char **out, unsigned char *out_bytes,
                  const unsigned char *in, unsigned in_bytes, void *context)
{
    /* The muxer wherever it stands, then the plain name. */
    for (unsigned k = 0; k < sizeof protocols - 1; k += 1u + protocols[k])
        for (unsigned i = 0; i < in_bytes; i += 1u + in[i])
            if (in[i] == protocols[k] && i + in[i] < in_bytes &&
                !memcmp(in + i + 1, protocols + k + 1, in[i])) {
                *out = in + i + 1;
                *out_bytes = in[i];
                return SSL_TLSEXT_ERR_OK;
            }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

static int drain(struct tls *t, struct bytes *wire)
{
    size_t n = BIO_ctrl_pending(t->out);
    uint8_t *to;
    int got;
    if (!n) return PL_OK;
    if (!(to = bytes_reserve(wire, n))) return wire->failed;
    got = BIO_read(t->out, to, (int)n);
    if (got > 0) wire->end += (size_t)got;
    return PL_OK;
}

static int broken(struct tls *t, struct pl_err *err)
{
    const char *why = ERR_reason_error_string(ERR_peek_last_error());
    if (t->refusal.text[0]) return pl_fail(err, PL_EPROTO, "%s", t->refusal.text);
    return pl_fail(err, PL_EPROTO, "tls: %s", why ? why : "the other side closed");
}

static int handshake(struct tls *t, struct pl_err *err)
{
    const unsigned char *name;
    unsigned n;
    int rc = SSL_do_handshake(t->ssl);
    if (rc != 1) {
        int why = SSL_get_error(t->ssl, rc);
        return why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE ? PL_OK : broken(t, err);
    }
    SSL_get0_alpn_selected(t->ssl, &name, &n);
    if (!n) return pl_fail(err, PL_EPROTO, "tls: no application protocol was agreed");
    t->secure.muxer_agreed = n == sizeof yamux_name - 1 && !memcmp(name, yamux_name, n);
    t->secure.established = 1;
    return PL_OK;
}

static int tls_receive(struct secure *s, const uint8_t *in, size_t n, struct bytes *plain,
                       struct bytes *wire, struct pl_err *err)
{
    struct tls *t = (struct tls *)s;
    int rc = PL_OK;
    ERR_clear_error();
    while (n && !rc) { /* a memory BIO takes an int at a time */
        int part = n < 1 << 20 ? (int)n : 1 << 20;
        if (BIO_write(t->in, in, part) != part) return PL_ENOMEM;
        in += part;
        n -= (size_t)part;
        if (!s->established) rc = handshake(t, err);
        while (!rc && s->established) {
            uint8_t *to = bytes_reserve(plain, 1 << 16);
            int got = to ? SSL_read(t->ssl, to, 1 << 16) : 0;
            if (!to) rc = plain->failed;
            else if (got > 0) plain->end += (size_t)got;
            else {
                int why = SSL_get_error(t->ssl, got);
                if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE) rc = broken(t, err);
                break;
            }
        }
    }
    if (drain(t, wire) && !rc) rc = PL_ENOMEM;
    return rc;
}

static int tls_send(struct secure *s, const uint8_t *plain, size_t n, struct bytes *wire)
{
    struct tls *t = (struct tls *)s;
    ERR_clear_error();
    while (n) {
        int part = n < 1 << 20 ? (int)n : 1 << 20, rc;
        if (SSL_write(t->ssl, plain, part) != part) return PL_ENOMEM;
        if ((rc = drain(t, wire))) return rc;
        plain += part;
        n -= (size_t)part;
    }
    return PL_OK;
}

static void tls_close(struct secure *s)
{
    struct tls *t = (struct tls *)s;
    if (!t) return;
    SSL_free(t->ssl);
    free(t);
}

static SSL_CTX *make_context(const struct identity *me)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    X509 *cert = NULL;
    EVP_PKEY *key = NULL;
    int good = ctx && !tls_cert_make(&cert, &key, me) &&
               SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION) &&
               SSL_CTX_use_certificate(ctx, cert) && SSL_CTX_use_PrivateKey(ctx, key) &&
               SSL_CTX_set_num_tickets(ctx, 0) &&
               SSL_CTX_set_alpn_protos(ctx, protocols, sizeof protocols - 1) == 0;
    X509_free(cert);
    EVP_PKEY_free(key);
    if (!good) {
        SSL_CTX_free(ctx);
        return NULL;
    }
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    /* 34 KiB less for a connection that is quiet */
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_cert_verify_callback(ctx, verify, NULL);
    SSL_CTX_set_alpn_select_cb(ctx, choose, NULL);
    return ctx;
}

/* The identity's, made at its first use. */
static SSL_CTX *context_of(const struct identity *me)
{
    _Atomic(SSL_CTX *) *place = &((struct identity *)(uintptr_t)me)->tls;
    SSL_CTX *ctx = *place, *none = NULL;
    if (ctx || !(ctx = make_context(me))) return ctx;
    if (atomic_compare_exchange_strong(place, &none, ctx)) return ctx;
    SSL_CTX_free(ctx);
    return none;
}

static int set_up(struct tls *t, const struct identity *me)
{
    SSL_CTX *ctx = context_of(me);
    if (!ctx || !(t->ssl = SSL_new(ctx))) return PL_ENOMEM;
    SSL_set_app_data(t->ssl, t);
    t->in = BIO_new(BIO_s_mem());
    t->out = BIO_new(BIO_s_mem());
    if (!t->in || !t->out) {
        BIO_free(t->in);
        BIO_free(t->out);
        return PL_ENOMEM;
    }
    SSL_set_bio(t->ssl, t->in, t->out);
    if (t->initiator) SSL_set_connect_state(t->ssl);
    else SSL_set_accept_state(t->ssl);
    return PL_OK;
}

int tls_open(struct secure **out, const struct identity *me, int initiator,
             const struct peer_id *expected, struct bytes *wire)
{
    struct tls *t = calloc(1, sizeof *t);
    int rc;
    *out = NULL;
    if (!t) return PL_ENOMEM;
    t->secure.receive = tls_receive;
    t->secure.send = tls_send;
    t->secure.close = tls_close;
    t->initiator = initiator;
    if (expected) t->expected = *expected;
    rc = set_up(t, me);
    if (!rc && initiator) {
        rc = handshake(t, NULL); /* the client hello */
        if (!rc) rc = drain(t, wire);
    }
    if (rc) {
        tls_close(&t->secure);
        return rc;
    }
    *out = &t->secure;
    return PL_OK;
}
