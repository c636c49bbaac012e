/* tls_cert.c - the libp2p extension of a certificate. [spec libp2p-wire 6]
 *
 *   extension 1.3.6.1.4.1.53594.1.1 = SignedKey { identity's public key, signature }
 *   signature over "libp2p-tls-handshake:" || the certificate's SubjectPublicKeyInfo
 *
 * The certificate's key signs the handshake, the identity's key signs the certificate's key:
 * together they prove that the other end of this connection is that peer. */
#include "tls_cert.h"

#include <limits.h>
#include <openssl/asn1.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/x509v3.h>
#include <string.h>

static const char oid_text[] = "1.3.6.1.4.1.53594.1.1";
static const char signed_prefix[] = "libp2p-tls-handshake:";
#define SPKI_MAX 2048 /* an RSA-8192 key takes about 1,100 bytes */
#define HOUR 3600
#define YEARS_100 (100L * 365 * 24 * HOUR)

/* The text that an identity signs: the prefix and the certificate's key. Returns the length, 0 if
 * too long. */
static size_t message_of(uint8_t *message, const uint8_t *spki, size_t n)
{
    if (n > SPKI_MAX) return 0;
    memcpy(message, signed_prefix, sizeof signed_prefix - 1);
    memcpy(message + sizeof signed_prefix - 1, spki, n);
    return sizeof signed_prefix - 1 + n;
}

/* A DER value's tag and length; n bytes follow. */
static void der_header(struct bytes *out, int tag, int is_constructed, size_t n)
{
    unsigned char header[16], *end = header;
    ASN1_put_object(&end, is_constructed, (int)n, tag, V_ASN1_UNIVERSAL);
    bytes_add(out, header, (size_t)(end - header));
}

static void der_octets(struct bytes *out, const uint8_t *data, size_t n)
{
    der_header(out, V_ASN1_OCTET_STRING, 0, n);
    bytes_add(out, data, n);
}

int tls_signed_key(struct bytes *out, const struct identity *me, const uint8_t *spki, size_t n)
{
    uint8_t message[sizeof signed_prefix + SPKI_MAX], signature[SIGNATURE_MAX];
    size_t signature_bytes, length = message_of(message, spki, n);
    struct bytes body = { 0 };
    int rc;
    if (!length || identity_sign(me, signature, &signature_bytes, message, length))
        return PL_ENOMEM;
    der_octets(&body, bytes_at(&me->public_key), bytes_length(&me->public_key));
    der_octets(&body, signature, signature_bytes);
    der_header(out, V_ASN1_SEQUENCE, 1, bytes_length(&body));
    rc = body.failed ? body.failed : bytes_add(out, bytes_at(&body), bytes_length(&body));
    bytes_clear(&body);
    return rc;
}

/* One DER value of the given tag; the cursor moves behind it. */
static int der_get(struct cursor *c, int tag, const uint8_t **data, size_t *n)
{
    const unsigned char *p = c->at;
    long length;
    int found, class;
    if (c->left > LONG_MAX || !c->left) return PL_EFORMAT;
    if (ASN1_get_object(&p, &length, &found, &class, (long)c->left) & 0x80) return PL_EFORMAT;
    if (found != tag || class != V_ASN1_UNIVERSAL || length < 0 ||
        (size_t)length > c->left - (size_t)(p - c->at))
        return PL_EFORMAT;
    *data = p;
    *n = (size_t)length;
    c->left -= (size_t)(p - c->at) + *n;
    c->at = p + *n;
    return PL_OK;
}

/* Valid for a century from an hour ago: clocks differ, and it is never renewed. */
int tls_cert_make(X509 **cert_out, EVP_PKEY **key_out, const struct identity *me)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    X509_NAME *name = cert ? X509_get_subject_name(cert) : NULL;
    ASN1_OBJECT *oid = OBJ_txt2obj(oid_text, 1);
    ASN1_OCTET_STRING *value = ASN1_OCTET_STRING_new();
    X509_EXTENSION *extension = NULL;
    struct bytes signed_key = { 0 };
    uint8_t *spki = NULL;
    int length, good;
    good = key && cert && oid && value && (length = i2d_PUBKEY(key, &spki)) > 0 &&
           !tls_signed_key(&signed_key, me, spki, (size_t)length) &&
           ASN1_OCTET_STRING_set(value, bytes_at(&signed_key), (int)bytes_length(&signed_key)) &&
           (extension = X509_EXTENSION_create_by_OBJ(NULL, oid, 0, value)) &&
           X509_set_version(cert, X509_VERSION_3) &&
           ASN1_INTEGER_set(X509_get_serialNumber(cert), 1) &&
           X509_gmtime_adj(X509_getm_notBefore(cert), -HOUR) &&
           X509_gmtime_adj(X509_getm_notAfter(cert), YEARS_100) &&
           X509_NAME_add_entry_by_txt(name, "serialNumber", MBSTRING_ASC, (const uint8_t *)"1", -1,
                                      -1, 0) &&
           X509_set_issuer_name(cert, name) && X509_set_pubkey(cert, key) &&
           X509_add_ext(cert, extension, -1) && X509_sign(cert, key, EVP_sha256());
    OPENSSL_free(spki);
    bytes_clear(&signed_key);
    X509_EXTENSION_free(extension);
    ASN1_OCTET_STRING_free(value);
    ASN1_OBJECT_free(oid);
    if (!good) {
        X509_free(cert);
        EVP_PKEY_free(key);
        return PL_ENOMEM;
    }
    *cert_out = cert;
    *key_out = key;
    return PL_OK;
}

/* The libp2p extension's value; refuses a second one and foreign critical ones. */
/* A critical extension that we do not know may change the meaning of the certificate, so it is
 * refused. */
static int find_extension(X509 *cert, struct cursor *value, struct pl_err *err)
{
    char text[80];
    int found = 0;
    for (int i = 0; i < X509_get_ext_count(cert); i++) {
        X509_EXTENSION *e = X509_get_ext(cert, i);
        OBJ_obj2txt(text, sizeof text, X509_EXTENSION_get_object(e), 1);
        if (!strcmp(text, oid_text)) {
            const ASN1_OCTET_STRING *data = X509_EXTENSION_get_data(e);
            if (found++) return pl_fail(err, PL_EPROTO, "tls: two libp2p extensions");
            value->at = ASN1_STRING_get0_data(data);
            value->left = (size_t)ASN1_STRING_length(data);
        } else if (X509_EXTENSION_get_critical(e)) {
            return pl_fail(err, PL_EPROTO, "tls: critical extension %s is unknown", text);
        }
    }
    return found ? PL_OK : pl_fail(err, PL_EPROTO, "tls: the certificate has no libp2p extension");
}

int tls_cert_check(struct peer_id *id, X509 *cert, time_t now, struct pl_err *err)
{
    uint8_t message[sizeof signed_prefix + SPKI_MAX], *spki = NULL;
    const uint8_t *sequence, *key, *signature;
    size_t sequence_bytes, key_bytes, signature_bytes, message_bytes;
    struct cursor c = { NULL, 0 };
    int length, rc;
    /* 1. The certificate is valid now, and signed with its own key. */
    if (X509_cmp_time(X509_get0_notBefore(cert), &now) != -1 ||
        X509_cmp_time(X509_get0_notAfter(cert), &now) != 1)
        return pl_fail(err, PL_EPROTO, "tls: the certificate is not valid now");
    if (X509_verify(cert, X509_get0_pubkey(cert)) != 1)
        return pl_fail(err, PL_EPROTO, "tls: the certificate is not signed with its own key");
    /* 2. Its extension is a SignedKey and nothing more. */
    if ((rc = find_extension(cert, &c, err))) return rc;
    if (der_get(&c, V_ASN1_SEQUENCE, &sequence, &sequence_bytes) || c.left)
        return pl_fail(err, PL_EPROTO, "tls: the libp2p extension is not a SignedKey");
    c = (struct cursor){ sequence, sequence_bytes };
    if (der_get(&c, V_ASN1_OCTET_STRING, &key, &key_bytes) ||
        der_get(&c, V_ASN1_OCTET_STRING, &signature, &signature_bytes) || c.left)
        return pl_fail(err, PL_EPROTO, "tls: the libp2p extension is not a SignedKey");
    /* 3. The identity has signed this certificate's key: its ID is the peer's. */
    length = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(cert), &spki);
    message_bytes = length > 0 ? message_of(message, spki, (size_t)length) : 0;
    OPENSSL_free(spki);
    if (!message_bytes ||
        public_key_verify(key, key_bytes, message, message_bytes, signature, signature_bytes))
        return pl_fail(err, PL_EPROTO, "tls: the identity's key or signature is not valid");
    peer_id_of_key(id, key, key_bytes);
    return PL_OK;
}
