/* tls_cert.c - what a certificate must hold to prove an identity, and each way in which it may not.
 * [spec libp2p-wire 6] */
#include "net/libp2p/security/tls_cert.h"
#include "net/bytes.h"
#include "test/unit/hivemind/numbered_identity.h"

#include <openssl/x509.h>

#define EXTENSION "1.3.6.1.4.1.53594.1.1"

static struct identity me, other;
static X509 *cert;
static EVP_PKEY *key;
static struct pl_err err;

static int begin(void **state)
{
    numbered_identity(&me, 1);
    numbered_identity(&other, 2);
    return tls_cert_make(&cert, &key, &me);
}

static int end(void **state)
{
    X509_free(cert);
    EVP_PKEY_free(key);
    identity_clear(&me);
    identity_clear(&other);
    return 0;
}

/* The certificate must be refused, with these words. */
static void refused(const char *words)
{
    struct peer_id id;
    err.text[0] = 0;
    assert_int_equal(tls_cert_check(&id, cert, time(NULL), &err), PL_EPROTO);
    if (!strstr(err.text, words)) fail_msg("'%s' says nothing of '%s'", err.text, words);
}

static void accepted(void)
{
    struct peer_id id;
    assert_int_equal(tls_cert_check(&id, cert, time(NULL), &err), PL_OK);
    assert_true(peer_id_equal(&id, &me.id));
}

static void sign(EVP_PKEY *by) { assert_true(X509_sign(cert, by, EVP_sha256()) > 0); }

static void add_extension(const char *name, int is_critical, const uint8_t *data, size_t n)
{
    ASN1_OBJECT *object = OBJ_txt2obj(name, 1);
    ASN1_OCTET_STRING *value = ASN1_OCTET_STRING_new();
    X509_EXTENSION *e;
    assert_int_equal(ASN1_OCTET_STRING_set(value, data, (int)n), 1);
    e = X509_EXTENSION_create_by_OBJ(NULL, object, is_critical, value);
    assert_int_equal(X509_add_ext(cert, e, -1), 1);
    X509_EXTENSION_free(e);
    ASN1_OCTET_STRING_free(value);
    ASN1_OBJECT_free(object);
}

/* The value of the libp2p extension, the first one. Returns its bytes. */
static size_t value_of(uint8_t *out, size_t capacity)
{
    const ASN1_OCTET_STRING *data = X509_EXTENSION_get_data(X509_get_ext(cert, 0));
    size_t n = (size_t)ASN1_STRING_length(data);
    assert_true(n < capacity);
    memcpy(out, ASN1_STRING_get0_data(data), n);
    return n;
}

/* Another value in its place, and the certificate signed again. */
static void replace(const uint8_t *data, size_t n)
{
    X509_EXTENSION_free(X509_delete_ext(cert, 0));
    add_extension(EXTENSION, 0, data, n);
    sign(key);
}

/* Neither before its time nor after it. */
static void valid_now(void **state)
{
    struct peer_id id;
    time_t now = time(NULL);
    accepted();
    assert_int_equal(tls_cert_check(&id, cert, now - 7200, &err), PL_EPROTO);
    assert_non_null(strstr(err.text, "not valid now"));
    X509_gmtime_adj(X509_getm_notAfter(cert), -60);
    sign(key);
    refused("not valid now");
    assert_int_equal(tls_cert_check(&id, cert, now - 120, &err), PL_OK);
}

/* By its own key, and by no other. */
static void signed_with_its_own_key(void **state)
{
    EVP_PKEY *another = EVP_EC_gen("P-256");
    sign(another);
    refused("not signed with its own key");
    sign(key);
    accepted();
    EVP_PKEY_free(another);
}

/* SEQUENCE { publicKey, signature }, no byte less and no byte more. */
static void extension_is_a_signed_key(void **state)
{
    uint8_t value[512];
    const size_t n = value_of(value, sizeof value - 2);
    assert_true(value[0] == 0x30 && value[1] == n - 2); /* a length of one byte */
    value[n] = 0;
    replace(value, n + 1); /* behind the sequence */
    refused("not a SignedKey");
    value[1]++;
    replace(value, n + 1); /* in the sequence, behind the signature */
    refused("not a SignedKey");
    value[1]--;
    for (size_t cut = 0; cut < n; cut++) {
        replace(value, cut);
        refused("not a SignedKey");
    }
    for (size_t at = 0; at < 4; at += 2) { /* the sequence, and the public key in it */
        value[at] ^= 1;
        replace(value, n);
        refused("not a SignedKey");
        value[at] ^= 1;
    }
    replace(value, n);
    accepted();
}

/* The identity has signed this certificate's key, not another one's; and the signature is its own. */
static void signature_of_the_identity(void **state)
{
    uint8_t value[512], *spki = NULL;
    size_t n = value_of(value, sizeof value);
    EVP_PKEY *another = EVP_EC_gen("P-256");
    struct bytes of_another = { 0 };
    int length = i2d_PUBKEY(another, &spki);
    assert_true(length > 0);
    assert_int_equal(tls_signed_key(&of_another, &me, spki, (size_t)length), PL_OK);
    replace(bytes_at(&of_another), bytes_length(&of_another));
    refused("key or signature is not valid");
    value[n - 1] ^= 1;
    replace(value, n);
    refused("key or signature is not valid");
    value[n - 1] ^= 1;
    /* 30 n 04 n' key: another identity's key, of the same length */
    assert_int_equal(value[3], bytes_length(&other.public_key));
    memcpy(value + 4, bytes_at(&other.public_key), bytes_length(&other.public_key));
    replace(value, n);
    refused("key or signature is not valid");
    OPENSSL_free(spki);
    EVP_PKEY_free(another);
    bytes_clear(&of_another);
}

/* One of libp2p's, and none that is critical and unknown: it might change what the others mean. */
static void other_extensions(void **state)
{
    uint8_t value[512];
    const size_t n = value_of(value, sizeof value);
    add_extension("1.2.3.4", 0, value, 3);
    sign(key);
    accepted();
    add_extension("1.2.3.5", 1, value, 3);
    sign(key);
    refused("critical extension 1.2.3.5");
    X509_EXTENSION_free(X509_delete_ext(cert, 2));
    add_extension(EXTENSION, 0, value, n);
    sign(key);
    refused("two libp2p extensions");
    X509_EXTENSION_free(X509_delete_ext(cert, 2));
    X509_EXTENSION_free(X509_delete_ext(cert, 0));
    sign(key);
    refused("no libp2p extension");
    add_extension(EXTENSION, 1, value, n); /* critical, and known */
    sign(key);
    accepted();
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(valid_now),
        TEST(signed_with_its_own_key),
        TEST(extension_is_a_signed_key),
        TEST(signature_of_the_identity),
        TEST(other_extensions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
