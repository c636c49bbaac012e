/* libp2p_message.c - any bytes as a message of libp2p's own protocols; the first byte says of
 * which. What is read is written, and that is read again. */
#include "net/libp2p/relay/autonat.h"
#include "net/libp2p/relay/dcutr.h"
#include "net/libp2p/protocols/identify.h"
#include "net/libp2p/protocols/kad.h"
#include "net/libp2p/relay/relay_message.h"
#include "net/libp2p/security/tls_cert.h"

#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void try_identify(const uint8_t *data, size_t n)
{
    static struct identify_message m, again; /* large */
    struct bytes out = { 0 };
    if (!identify_get(&m, data, n) && !identify_put(&out, &m) && bytes_length(&out) < 65536) {
        if (!identify_get(&again, bytes_at(&out), bytes_length(&out)) &&
            (again.address_count != m.address_count || again.protocol_count != m.protocol_count))
            abort();
        identify_clear(&again);
    }
    identify_clear(&m);
    bytes_clear(&out);
}

static void try_kad(const uint8_t *data, size_t n)
{
    struct kad_message m;
    struct bytes out = { 0 };
    if (!kad_get(&m, data, n)) kad_put(&out, &m);
    kad_clear(&m);
    bytes_clear(&out);
}

static void try_relay(enum relay_protocol p, const uint8_t *data, size_t n)
{
    struct relay_message m, again;
    struct bytes out = { 0 };
    if (!relay_get(&m, p, data, n) && !relay_put(&out, p, &m)) {
        struct cursor c = { bytes_at(&out), bytes_length(&out) };
        const uint8_t *body;
        size_t length;
        if (get_delimited(&c, &body, &length, 1 << 20) || relay_get(&again, p, body, length) ||
            again.address_count != m.address_count)
            abort();
    }
    bytes_clear(&out);
}

static void try_autonat(const uint8_t *data, size_t n)
{
    struct autonat_message m;
    struct bytes out = { 0 };
    if (!autonat_get(&m, data, n)) autonat_put(&out, &m);
    bytes_clear(&out);
}

static void try_dcutr(const uint8_t *data, size_t n)
{
    struct dcutr_message m, again;
    struct bytes out = { 0 };
    if (!dcutr_get(&m, data, n) && !dcutr_put(&out, &m)) {
        struct cursor c = { bytes_at(&out), bytes_length(&out) };
        const uint8_t *body;
        size_t length;
        if (get_delimited(&c, &body, &length, 1 << 20) || dcutr_get(&again, body, length) ||
            again.type != m.type || again.address_count != m.address_count)
            abort();
    }
    bytes_clear(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct record record;
    const unsigned char *der;
    struct peer_id id;
    X509 *cert;
    if (!n) return 0;
    data++;
    n--;
    switch (data[-1] == 'D' ? 7 : data[-1] % 7) {
    case 7: try_dcutr(data, n); break;
    case 0: try_identify(data, n); break;
    case 1: try_kad(data, n); break;
    case 2: try_relay(RELAY_HOP, data, n); break;
    case 3: try_relay(RELAY_STOP, data, n); break;
    case 4: try_autonat(data, n); break;
    case 5: record_get(&record, data, n); break;
    default:
        der = data;
        if ((cert = d2i_X509(NULL, &der, (long)n))) tls_cert_check(&id, cert, 1700000000, NULL);
        X509_free(cert);
    }
    return 0;
}
