/* peer_id.c - a multihash of the public key: identity (the key itself) up to 42 bytes, else
 * SHA-256. [spec libp2p-wire 2]
 *
 *   00 24 <36 bytes of key>      Ed25519:  text 12D3Koo...
 *   12 20 <32 bytes of hash>     RSA:      text Qm... */
#include "peer_id.h"
#include "base58.h"

#include <openssl/evp.h>
#include <string.h>

#define IDENTITY 0x00 /* multihash code: the data themselves */
#define SHA2_256 0x12
#define KEY_INLINE_MAX 42 /* longer serialised keys are hashed */

void peer_id_of_key(struct peer_id *id, const uint8_t *key, size_t n)
{
    memset(id, 0, sizeof *id);
    if (n <= KEY_INLINE_MAX) {
        id->bytes[0] = IDENTITY;
        id->bytes[1] = (uint8_t)n;
        if (n) memcpy(id->bytes + 2, key, n);
        id->length = (uint8_t)(n + 2);
        return;
    }
    id->bytes[0] = SHA2_256;
    id->bytes[1] = 32;
    EVP_Digest(key, n, id->bytes + 2, NULL, EVP_sha256(), NULL);
    id->length = 34;
}

int peer_id_parse(struct peer_id *id, const uint8_t *bytes, size_t n)
{
    if (n < 3 || n > KEY_INLINE_MAX + 2 || bytes[1] != n - 2) return PL_EFORMAT;
    if (bytes[0] != IDENTITY && !(bytes[0] == SHA2_256 && n == 34)) return PL_EFORMAT;
    memset(id, 0, sizeof *id);
    memcpy(id->bytes, bytes, n);
    id->length = (uint8_t)n;
    return PL_OK;
}

/* RFC 4648 base32, lower case, no padding: 5 bits a character, left-over bits must be zero. */
static int base32_decode(uint8_t *out, size_t capacity, size_t *n, const char *text, size_t length)
{
    uint32_t bits = 0;
    int held = 0;
    *n = 0;
    for (size_t i = 0; i < length; i++) {
        char c = text[i];
        unsigned value;
        if (c >= 'a' && c <= 'z') value = (unsigned)(c - 'a');
        else if (c >= '2' && c <= '7') value = (unsigned)(c - '2') + 26;
        else return PL_EFORMAT;
        bits = bits << 5 | value;
        held += 5;
        if (held >= 8) {
            if (*n == capacity) return PL_ELIMIT;
            held -= 8;
            out[(*n)++] = (uint8_t)(bits >> held);
            bits &= (1u << held) - 1;
        }
    }
    return bits || held >= 5 ? PL_EFORMAT : PL_OK;
}

int peer_id_from_text(struct peer_id *id, const char *text, size_t n)
{
    uint8_t raw[BASE58_BYTES_MAX];
    size_t bytes;
    int rc;
    if (n && text[0] == 'b') { /* CIDv1: version 1, codec libp2p-key 0x72, multihash */
        rc = base32_decode(raw, sizeof raw, &bytes, text + 1, n - 1);
        if (rc) return rc;
        if (bytes < 2 || raw[0] != 0x01 || raw[1] != 0x72) return PL_EFORMAT;
        return peer_id_parse(id, raw + 2, bytes - 2);
    }
    rc = base58_decode(raw, &bytes, text, n);
    return rc ? rc : peer_id_parse(id, raw, bytes);
}

void peer_id_text(char text[PEER_ID_TEXT_MAX], const struct peer_id *id)
{
    char wide[BASE58_TEXT_MAX];
    base58_encode(wide, id->bytes, id->length); /* 44 bytes give at most 61 characters */
    memcpy(text, wide, PEER_ID_TEXT_MAX);
    text[PEER_ID_TEXT_MAX - 1] = 0;
}

/* Ed25519 keys are in the ID itself; of an RSA key only the hash is known. */
const uint8_t *peer_id_key(const struct peer_id *id, size_t *n)
{
    if (!id->length || id->bytes[0] != IDENTITY) return NULL;
    *n = id->length - 2u;
    return id->bytes + 2;
}

int peer_id_equal(const struct peer_id *a, const struct peer_id *b)
{
    return a->length == b->length && !memcmp(a->bytes, b->bytes, a->length);
}

/* As Python compares byte strings: both sides must order groups alike. */
int peer_id_compare(const struct peer_id *a, const struct peer_id *b)
{
    size_t n = a->length < b->length ? a->length : b->length;
    int c = memcmp(a->bytes, b->bytes, n);
    return c ? c : (int)a->length - (int)b->length;
}
