/* golden_wire_tls.c - certificates, good and bad, judged at the recorded time. */
#include "golden_wire.h"
#include "../../net/libp2p/tls_cert.h"

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
    good = cert && !tls_cert_check(&id, cert, now, &err);
    peer_id_text(text, &id);
    if (valid)
        golden_check(g, name ? name : "?", good && peer && !strcmp(peer, text), "%s", err.text);
    else golden_check(g, name ? name : "?", !good, "was accepted");
    X509_free(cert);
    bytes_clear(&der);
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
    if (json_is_object(signed_key)) {
        struct bytes key = { 0 }, spki = { 0 }, want = { 0 }, got = { 0 };
        struct identity me = { 0 };
        if (wire_member(g, signed_key, "host_private_key_protobuf", &key) &&
            wire_member(g, signed_key, "certificate_spki", &spki) &&
            wire_member(g, signed_key, "signed_key_der", &want) &&
            !identity_parse(&me, bytes_at(&key), bytes_length(&key), NULL)) {
            tls_signed_key(&got, &me, bytes_at(&spki), bytes_length(&spki));
            wire_same(g, "SignedKey is made", &got, &want);
        }
        identity_clear(&me);
        bytes_clear(&key);
        bytes_clear(&spki);
        bytes_clear(&want);
        bytes_clear(&got);
    }
}
