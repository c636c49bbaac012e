/* tls_certificate.c - any bytes as the certificate of a peer that connects by TLS; and, when the
 * first byte is odd, as the libp2p extension of a certificate that is valid otherwise. */
#include "net/libp2p/security/tls_cert.h"

#include <openssl/evp.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define NOW 1900000000 /* s; the seeds of the corpus are valid then */

static X509 *own;
static EVP_PKEY *own_key;

static void make_own(void)
{
    struct identity me;
    if (identity_make(&me, KEY_ED25519, NULL) || tls_cert_make(&own, &own_key, &me)) abort();
    identity_clear(&me);
}

/* Our certificate with other bytes in its extension, signed again. */
static X509 *with_extension(const uint8_t *data, size_t bytes)
{
    X509 *cert = X509_dup(own);
    X509_EXTENSION *e = cert ? X509_delete_ext(cert, 0) : NULL;
    ASN1_OCTET_STRING *value = e ? X509_EXTENSION_get_data(e) : NULL;
    if (!value || !ASN1_OCTET_STRING_set(value, data, (int)bytes) || !X509_add_ext(cert, e, -1) ||
        !X509_sign(cert, own_key, EVP_sha256()))
        abort();
    X509_EXTENSION_free(e);
    return cert;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    const unsigned char *at = data + 1;
    struct peer_id id, again;
    char text[PEER_ID_TEXT_MAX];
    X509 *cert;
    if (!bytes) return 0;
    if (!own) make_own();
    cert = data[0] & 1 ? with_extension(at, bytes - 1) : d2i_X509(NULL, &at, (long)(bytes - 1));
    if (cert && !tls_cert_check(&id, cert, NOW, NULL)) {
        peer_id_text(text, &id);
        if (peer_id_from_text(&again, text, strlen(text)) || !peer_id_equal(&id, &again)) abort();
    }
    X509_free(cert);
    return 0;
}
