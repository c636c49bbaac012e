/* crypto.c - the ideals that signatures and ciphers stand for, in place of their arithmetic, which
 * took three quarters of a seed's time and has tests of its own (test/unit/libp2p, /hivemind).
 *
 *   RSA       a signature is random bytes, valid if the key's owner has made it over this message
 *   Ed25519   likewise; a signature that nobody has made is checked by OpenSSL
 *   Noise     handshakes are OpenSSL's; of the messages after them only the tag is made, from the
 *             key, the nonce and the text
 *
 * Nobody can make a signature or a tag without the key: a peer that tries is refused as before. */
#include "plan.h"
#include "threads.h"

#include "net/hivemind/records/rsa_key.h"
#include "net/libp2p/peer/identity.h"
#include "net/libp2p/security/noise_symmetric.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#define TEXTS_MAX 256         /* texts of keys; each boot of a peer has one */
#define SIGNATURES (1u << 18) /* made in a seed; a power of two */
#define SIGNATURE_BYTES 344   /* a multiple of 8; base64 of 2048 bits, as a real one has */
#define ED25519_BYTES 64

/* --- RSA keys --------------------------------------------------------------------------------- */

static struct text {
    char *text;
    size_t n;
    EVP_PKEY *key;
    int status, is_canonical;
} texts[TEXTS_MAX];
static size_t text_count;

int __real_rsa_public_parse(EVP_PKEY **key, const void *text, size_t n);
int __wrap_rsa_public_parse(EVP_PKEY **key, const void *text, size_t n);
int __real_rsa_public_is_canonical(EVP_PKEY *key, const void *text, size_t n);
int __wrap_rsa_public_is_canonical(EVP_PKEY *key, const void *text, size_t n);

static struct text *find_text(const void *text, size_t n)
{
    for (size_t i = 0; i < text_count; i++)
        if (texts[i].n == n && !memcmp(texts[i].text, text, n)) return &texts[i];
    return NULL;
}

int __wrap_rsa_public_parse(EVP_PKEY **key, const void *text, size_t n)
{
    struct text *t = find_text(text, n);
    *key = NULL;
    if (!t) {
        if (text_count == TEXTS_MAX) sim_fail("more than %d RSA keys", TEXTS_MAX);
        t = &texts[text_count++];
        t->text = __real_malloc(n + 1);
        memcpy(t->text, text, n);
        t->n = n;
        t->status = __real_rsa_public_parse(&t->key, text, n);
        t->is_canonical = !t->status && __real_rsa_public_is_canonical(t->key, text, n);
    }
    if (t->status) return t->status;
    EVP_PKEY_up_ref(t->key);
    *key = t->key;
    return PL_OK;
}

int __wrap_rsa_public_is_canonical(EVP_PKEY *key, const void *text, size_t n)
{
    const struct text *t = find_text(text, n);
    return t && t->key == key && t->is_canonical;
}

/* --- RSA signatures --------------------------------------------------------------------------- */

static uint64_t made[SIGNATURES]; /* open addressing; 0: free */
static size_t made_count;

/* Of key, message and signature, each with its length. Never 0. */
static uint64_t digest(const void *key, size_t key_n, const void *data, size_t n,
                       const void *signature, size_t signature_n)
{
    uint64_t h = sim_digest(sim_digest(0, key, key_n), data, n);
    return sim_digest(h, signature, signature_n) | 1;
}

static uint64_t *find_made(uint64_t d)
{
    size_t i = (size_t)(d >> 20) % SIGNATURES;
    while (made[i] && made[i] != d) i = (i + 1) % SIGNATURES;
    return &made[i];
}

static void note_made(uint64_t d)
{
    uint64_t *place = find_made(d);
    if (*place) return;
    if (++made_count > SIGNATURES / 2) sim_fail("more than %u signatures", SIGNATURES / 2);
    *place = d;
}

static void draw_bytes(uint8_t *to, size_t n)
{
    for (size_t at = 0; at < n; at += 8) {
        uint64_t x = sim_random_next(&sim_peer_here()->random);
        memcpy(to + at, &x, 8);
    }
}

int __wrap_rsa_key_sign(struct bytes *out, const struct rsa_key *k, const void *data, size_t n);
int __wrap_rsa_key_sign(struct bytes *out, const struct rsa_key *k, const void *data, size_t n)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    uint8_t *to = bytes_reserve(out, SIGNATURE_BYTES);
    if (!to) return out->failed;
    draw_bytes(to, SIGNATURE_BYTES);
    for (int i = 0; i < SIGNATURE_BYTES; i++) to[i] = (uint8_t)alphabet[to[i] % 64];
    memcpy(to + SIGNATURE_BYTES - 2, "==", 2);
    out->end += SIGNATURE_BYTES;
    note_made(digest(bytes_at(&k->text), bytes_length(&k->text), data, n, to, SIGNATURE_BYTES));
    return PL_OK;
}

int __wrap_rsa_public_verify(EVP_PKEY *key, const void *data, size_t n, const void *signature,
                             size_t signature_n);
int __wrap_rsa_public_verify(EVP_PKEY *key, const void *data, size_t n, const void *signature,
                             size_t signature_n)
{
    for (size_t i = 0; i < text_count; i++)
        if (texts[i].key == key)
            return *find_made(digest(texts[i].text, texts[i].n, data, n, signature, signature_n))
                       ? PL_OK
                       : PL_EPROTO;
    return PL_EPROTO;
}

/* --- Ed25519 ---------------------------------------------------------------------------------- */

int __wrap_identity_sign(const struct identity *me, uint8_t *signature, size_t *n, const void *data,
                         size_t bytes);
int __wrap_identity_sign(const struct identity *me, uint8_t *signature, size_t *n, const void *data,
                         size_t bytes)
{
    *n = ED25519_BYTES;
    draw_bytes(signature, *n);
    note_made(digest(bytes_at(&me->public_key), bytes_length(&me->public_key), data, bytes,
                     signature, *n));
    return PL_OK;
}

int __real_public_key_verify(const uint8_t *key, size_t key_bytes, const void *data, size_t n,
                             const uint8_t *signature, size_t signature_bytes);
int __wrap_public_key_verify(const uint8_t *key, size_t key_bytes, const void *data, size_t n,
                             const uint8_t *signature, size_t signature_bytes);
int __wrap_public_key_verify(const uint8_t *key, size_t key_bytes, const void *data, size_t n,
                             const uint8_t *signature, size_t signature_bytes)
{
    if (*find_made(digest(key, key_bytes, data, n, signature, signature_bytes))) return PL_OK;
    return __real_public_key_verify(key, key_bytes, data, n, signature, signature_bytes);
}

/* --- Noise ------------------------------------------------------------------------------------ */

static void make_tag(uint8_t tag[NOISE_TAG], const struct noise_cipher *c, const uint8_t *text,
                     size_t n)
{
    uint64_t d[2];
    d[0] = sim_digest(sim_digest(c->n, c->k, sizeof c->k), text, n);
    d[1] = sim_digest(d[0], d, 8);
    memcpy(tag, d, NOISE_TAG);
}

int __wrap_noise_seal(EVP_CIPHER_CTX *ctx, struct noise_cipher *c, uint8_t *out,
                      const uint8_t *plain, size_t n, const uint8_t *ad, size_t ad_bytes);
int __wrap_noise_seal(EVP_CIPHER_CTX *ctx, struct noise_cipher *c, uint8_t *out,
                      const uint8_t *plain, size_t n, const uint8_t *ad, size_t ad_bytes)
{
    (void)ctx, (void)ad, (void)ad_bytes;
    memmove(out, plain, n);
    make_tag(out + n, c, out, n);
    c->n++;
    return PL_OK;
}

int __wrap_noise_unseal(EVP_CIPHER_CTX *ctx, struct noise_cipher *c, uint8_t *out,
                        const uint8_t *sealed, size_t n, const uint8_t *ad, size_t ad_bytes);
int __wrap_noise_unseal(EVP_CIPHER_CTX *ctx, struct noise_cipher *c, uint8_t *out,
                        const uint8_t *sealed, size_t n, const uint8_t *ad, size_t ad_bytes)
{
    uint8_t tag[NOISE_TAG];
    (void)ctx, (void)ad, (void)ad_bytes;
    make_tag(tag, c, sealed, n);
    if (memcmp(tag, sealed + n, NOISE_TAG)) return PL_EPROTO;
    memmove(out, sealed, n);
    c->n++;
    return PL_OK;
}
