/* certificate.c - a certificate for a server that has none of a public authority: clients are given
 * it as the one that they trust. */
#include "net/http/authority/authority_server.h"

#include <arpa/inet.h>
#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>

#define TEN_YEARS (10L * 365 * 24 * 3600)

static int add_extension(X509 *cert, int nid, const char *value)
{
    X509V3_CTX context;
    X509_EXTENSION *e;
    int good;
    X509V3_set_ctx_nodb(&context);
    X509V3_set_ctx(&context, cert, cert, NULL, NULL, 0);
    e = X509V3_EXT_conf_nid(NULL, &context, nid, value);
    good = e && X509_add_ext(cert, e, -1);
    X509_EXTENSION_free(e);
    return good;
}

static int take(struct bytes *out, BIO *from)
{
    char *data;
    long n = BIO_get_mem_data(from, &data);
    if (n <= 0 || bytes_add(out, data, (size_t)n)) return 0;
    return bytes_u8(out, 0) == PL_OK; /* a text */
}

int certificate_make(struct bytes *cert_pem, struct bytes *key_pem, const char *name,
                     struct pl_err *err)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = X509_new();
    X509_NAME *subject = cert ? X509_get_subject_name(cert) : NULL;
    BIO *c = BIO_new(BIO_s_mem()), *k = BIO_new(BIO_s_mem());
    uint8_t ip[16];
    char san[300];
    uint64_t serial = 1;
    int is_ip = inet_pton(AF_INET, name, ip) == 1 || inet_pton(AF_INET6, name, ip) == 1, good;
    if (strlen(name) > 250 || strchr(name, ','))
        return pl_fail(err, PL_EUSE, "'%.80s' is not a valid host name", name);
    snprintf(san, sizeof san, "%s:%s", is_ip ? "IP" : "DNS", name);
    good = key && cert && c && k && RAND_bytes((uint8_t *)&serial, sizeof serial) == 1 &&
           X509_set_version(cert, X509_VERSION_3) &&
           ASN1_INTEGER_set_uint64(X509_get_serialNumber(cert), serial >> 1 | 1) &&
           X509_gmtime_adj(X509_getm_notBefore(cert), -3600) &&
           X509_gmtime_adj(X509_getm_notAfter(cert), TEN_YEARS) &&
           X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                                      (const uint8_t *)"potluck authority", -1, -1, 0) &&
           X509_set_issuer_name(cert, subject) && X509_set_pubkey(cert, key) &&
           add_extension(cert, NID_subject_alt_name, san) &&
           add_extension(cert, NID_basic_constraints, "critical,CA:TRUE") &&
           X509_sign(cert, key, EVP_sha256()) && PEM_write_bio_X509(c, cert) &&
           PEM_write_bio_PrivateKey(k, key, NULL, NULL, 0, NULL, NULL) && take(cert_pem, c) &&
           take(key_pem, k);
    BIO_free(c);
    BIO_free(k);
    X509_free(cert);
    EVP_PKEY_free(key);
    return good ? PL_OK : pl_fail(err, PL_EUSE, "no certificate could be made for '%.80s'", name);
}

int certificate_check(const char *cert, const char *cert_path, const char *key,
                      const char *key_path, struct pl_err *err)
{
    BIO *c = BIO_new_mem_buf(cert, -1), *k = BIO_new_mem_buf(key, -1);
    X509 *x = c ? PEM_read_bio_X509(c, NULL, NULL, NULL) : NULL;
    EVP_PKEY *p = k ? PEM_read_bio_PrivateKey(k, NULL, NULL, NULL) : NULL;
    int rc = PL_OK;
    if (!x) rc = pl_fail(err, PL_EFORMAT, "%.300s: no certificate (PEM)", cert_path);
    else if (!p) rc = pl_fail(err, PL_EFORMAT, "%.300s: no private key (PEM)", key_path);
    else if (X509_check_private_key(x, p) != 1)
        rc = pl_fail(err, PL_EFORMAT,
                     "%.200s is the certificate of another key than that of %.200s", cert_path,
                     key_path);
    ERR_clear_error();
    EVP_PKEY_free(p);
    X509_free(x);
    BIO_free(c);
    BIO_free(k);
    return rc;
}
