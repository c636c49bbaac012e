/* golden_wire_tls.c - certificates, good and bad, judged at the recorded time. */
#include "golden_wire.h"
#include "net/libp2p/security/tls_cert.h"

#include <openssl/objects.h>
#include <openssl/x509.h>
#include <string.h>
#include <time.h>

static void check_certificate(struct golden *g, const json_t *entry, time_t now)
{
    const char *name = json_string_value(json_object_get(entry, "name"));
    const char *peer = json_string_value(json_object_get(entry, "peer_id"));
    int valid = json_is_true(json_object_get(entry, "valid")), good;
    struct bytes der = { 0 };
    struct pl_err err = { "it is no certificate" };
    struct peer_id id = { 0 };
    struct tm born = { 0 };
    char text[PEER_ID_TEXT_MAX];
    const unsigned char *p;
    X509 *cert;
    if (!wire_member(g, entry, "der", &der)) return;
    p = bytes_at(&der);
    cert = d2i_X509(NULL, &p, (long)bytes_length(&der));
    /* A certificate that was recorded from a live peer is younger than the day of the check. */
    if (cert && valid && ASN1_TIME_to_tm(X509_get0_notBefore(cert), &born) && timegm(&born) >= now)
        now = timegm(&born) + 1;
    good = cert && p == bytes_at(&der) + bytes_length(&der) &&
           !tls_cert_check(&id, cert, now, &err);
    peer_id_text(text, &id);
    if (valid)
        golden_check(g, name ? name : "?", good && peer && !strcmp(peer, text), "%s", err.text);
    else golden_check(g, name ? name : "?", !good, "was accepted");
    X509_free(cert);
    bytes_clear(&der);
}

/* 1 if the member is absent, or these bytes. */
static int says(const json_t *object, const char *key, const struct bytes *got)
{
    const json_t *member = json_object_get(object, key);
    struct bytes want = { 0 };
    int same = !member || (!wire_hex(&want, json_string_value(member)) &&
                           bytes_length(&want) == bytes_length(got) &&
                           !memcmp(bytes_at(&want), bytes_at(got), bytes_length(got)));
    bytes_clear(&want);
    return same;
}

/* The signed data, the key and the extension's name; then the whole value, if it can be
 * reproduced. */
static void check_signed_key(struct golden *g, const json_t *entry)
{
    const char *oid = json_string_value(json_object_get(entry, "oid"));
    ASN1_OBJECT *object = oid ? OBJ_txt2obj(oid, 1) : NULL;
    struct bytes key = { 0 }, spki = { 0 }, want = { 0 }, got = { 0 }, text = { 0 }, name = { 0 };
    struct identity me = { 0 };
    struct pl_err err = { "" };
    unsigned char *der = NULL;
    int n = object ? i2d_ASN1_OBJECT(object, &der) : 0;
    if (n > 0) bytes_add(&name, der, (size_t)n);
    golden_check(g, "the extension's name",
                 (!oid || !strcmp(oid, "1.3.6.1.4.1.53594.1.1")) &&
                     (!oid || says(entry, "oid_der", &name)),
                 "differs");
    if (wire_member(g, entry, "host_private_key_protobuf", &key) &&
        wire_member(g, entry, "certificate_spki", &spki) &&
        wire_member(g, entry, "signed_key_der", &want)) {
        const json_t *signature = json_object_get(entry, "signature");
        bytes_add(&text, "libp2p-tls-handshake:", 21);
        bytes_add(&text, bytes_at(&spki), bytes_length(&spki));
        golden_check(g, "what SignedKey signs", says(entry, "signed_message", &text), "differs");
        if (identity_parse(&me, bytes_at(&key), bytes_length(&key), &err)) {
            golden_fail(g, "host_private_key_protobuf", "%s", err.text);
        } else if (me.type == KEY_ED25519 || me.type == KEY_RSA) { /* others draw numbers */
            tls_signed_key(&got, &me, bytes_at(&spki), bytes_length(&spki));
            wire_same(g, "SignedKey is made", &got, &want);
        }
        if (signature && wire_member(g, entry, "signature", (bytes_clear(&got), &got)))
            golden_check(g, "SignedKey's signature",
                         memmem(bytes_at(&want), bytes_length(&want), bytes_at(&got),
                                bytes_length(&got)) &&
                             !public_key_verify(bytes_at(&me.public_key),
                                                bytes_length(&me.public_key), bytes_at(&text),
                                                bytes_length(&text), bytes_at(&got),
                                                bytes_length(&got)),
                         "is not the host's");
    }
    OPENSSL_free(der);
    ASN1_OBJECT_free(object);
    identity_clear(&me);
    bytes_clear(&key);
    bytes_clear(&spki);
    bytes_clear(&want);
    bytes_clear(&got);
    bytes_clear(&text);
    bytes_clear(&name);
}

void golden_wire_certificates(struct golden *g, const json_t *root)
{
    const char *when = json_string_value(json_object_get(root, "verify_at"));
    const json_t *signed_key = json_object_get(root, "signed_key");
    struct tm tm = { 0 };
    size_t i;
    json_t *entry;
    if (!when || !strptime(when, "%Y-%m-%dT%H:%M:%SZ", &tm)) {
        golden_fail(g, "verify_at", "no such time in the file");
        return;
    }
    json_array_foreach(json_object_get(root, "certificates"), i, entry)
        check_certificate(g, entry, timegm(&tm));
    if (json_is_object(signed_key)) check_signed_key(g, signed_key);
}
