/* noise_symmetric.c - Noise's symmetric state: a running hash, a chaining key, a cipher.
 * [Noise protocol framework, revision 34, 5.2] [spec libp2p-wire 5]
 *
 *   h   the hash of everything that both sides have sent; each tag is computed over it
 *   ck  the chaining key: every Diffie-Hellman result is mixed into it
 *   k   the key of the moment, derived from ck; its nonce counts messages
 *
 * So a message that was altered, left out or repeated makes the next tag wrong. */
#include "noise_symmetric.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <string.h>

#define PIECE 8192 /* bytes; whole blocks of the cipher, and a quarter of an L1 cache */

/* h = SHA-256(h || data): both sides must have seen the same bytes, or their tags will not
 * agree. */
void noise_mix_hash(struct noise_symmetric *s, const uint8_t *data, size_t n)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    if (!ctx || !EVP_DigestInit_ex(ctx, EVP_sha256(), NULL) || !EVP_DigestUpdate(ctx, s->h, 32) ||
        (n && !EVP_DigestUpdate(ctx, data, n)) || !EVP_DigestFinal_ex(ctx, s->h, NULL))
        s->failed = 1;
    EVP_MD_CTX_free(ctx);
}

static void hmac(uint8_t out[32], const uint8_t key[32], const uint8_t *data, size_t n)
{
    HMAC(EVP_sha256(), key, 32, data, n, out, NULL);
}

/* HKDF with two outputs: temp = HMAC(ck, in), first = HMAC(temp, 1), second = HMAC(temp, first
 * || 2). */
void noise_derive(uint8_t first[32], uint8_t second[32], const uint8_t ck[32], const uint8_t *in,
                  size_t n)
{
    uint8_t t[32], block[33];
    hmac(t, ck, in, n);
    block[0] = 1;
    hmac(first, t, block, 1);
    memcpy(block, first, 32);
    block[32] = 2;
    hmac(second, t, block, 33);
    OPENSSL_cleanse(t, sizeof t);
    OPENSSL_cleanse(block, sizeof block);
}

int noise_set_key(EVP_CIPHER_CTX *ctx, const uint8_t key[32], int sealing)
{
    return EVP_CipherInit_ex(ctx, EVP_chacha20_poly1305(), NULL, key, NULL, sealing) == 1
               ? PL_OK
               : PL_ENOMEM;
}

/* ck, k = HKDF(ck, DH(mine, theirs)): the key now depends on one more pair of keys. An all-zero
 * result means a point of small order: EVP_PKEY_derive refuses it. */
int noise_mix_dh(struct noise_symmetric *s, EVP_PKEY *mine, const uint8_t theirs[32])
{
    EVP_PKEY *peer = EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, NULL, theirs, 32);
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(mine, NULL);
    uint8_t shared[32], ck[32];
    size_t n = sizeof shared;
    int good = peer && ctx && EVP_PKEY_derive_init(ctx) > 0 &&
               EVP_PKEY_derive_set_peer(ctx, peer) > 0 && EVP_PKEY_derive(ctx, shared, &n) > 0;
    if (good) {
        noise_derive(ck, s->cipher.k, s->ck, shared, 32);
        memcpy(s->ck, ck, 32);
        s->cipher.has_key = 1;
        s->cipher.n = 0;
        if (noise_set_key(s->seal, s->cipher.k, 1) || noise_set_key(s->open, s->cipher.k, 0))
            s->failed = 1;
    }
    OPENSSL_cleanse(shared, sizeof shared);
    EVP_PKEY_CTX_free(ctx);
    EVP_PKEY_free(peer);
    return good ? PL_OK : PL_EPROTO;
}

/* 32 bits of zero, then the counter, little-endian. */
static void nonce_of(uint8_t nonce[12], uint64_t n)
{
    memset(nonce, 0, 4);
    for (int i = 0; i < 8; i++) nonce[4 + i] = (uint8_t)(n >> 8 * i);
}

/* The cipher text is read again for its tag: a piece at a time, while it is in the L1 cache. */
static int in_pieces(EVP_CIPHER_CTX *ctx, uint8_t *out, const uint8_t *in, size_t n)
{
    for (size_t at = 0, part; at < n; at += part) {
        int length;
        part = n - at < PIECE ? n - at : PIECE;
        if (EVP_CipherUpdate(ctx, out + at, &length, in + at, (int)part) != 1) return PL_ENOMEM;
    }
    return PL_OK;
}

int noise_seal(EVP_CIPHER_CTX *ctx, struct noise_cipher *c, uint8_t *out, const uint8_t *plain,
               size_t n, const uint8_t *ad, size_t ad_bytes)
{
    uint8_t nonce[12];
    int length;
    if (c->n == UINT64_MAX) return PL_ELIMIT; /* never in practice; a nonce must not repeat */
    nonce_of(nonce, c->n++);
    if (EVP_EncryptInit_ex(ctx, NULL, NULL, NULL, nonce) != 1 ||
        (ad_bytes && EVP_EncryptUpdate(ctx, NULL, &length, ad, (int)ad_bytes) != 1) ||
        in_pieces(ctx, out, plain, n) || EVP_EncryptFinal_ex(ctx, out + n, &length) != 1 ||
        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, NOISE_TAG, out + n) != 1)
        return PL_ENOMEM;
    return PL_OK;
}

int noise_unseal(EVP_CIPHER_CTX *ctx, struct noise_cipher *c, uint8_t *out, const uint8_t *sealed,
                 size_t n, const uint8_t *ad, size_t ad_bytes)
{
    uint8_t nonce[12], tag[NOISE_TAG];
    int length;
    if (c->n == UINT64_MAX) return PL_ELIMIT;
    nonce_of(nonce, c->n++);
    memcpy(tag, sealed + n, NOISE_TAG);
    if (EVP_DecryptInit_ex(ctx, NULL, NULL, NULL, nonce) != 1 ||
        EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, NOISE_TAG, tag) != 1 ||
        (ad_bytes && EVP_DecryptUpdate(ctx, NULL, &length, ad, (int)ad_bytes) != 1) ||
        in_pieces(ctx, out, sealed, n) || EVP_DecryptFinal_ex(ctx, out + n, &length) != 1)
        return PL_EPROTO;
    return PL_OK;
}

/* The hash is the additional data, so a tag also vouches for all messages before. */
int noise_encrypt_and_hash(struct noise_symmetric *s, struct bytes *out, const uint8_t *plain,
                           size_t n)
{
    size_t total = s->cipher.has_key ? n + NOISE_TAG : n;
    uint8_t *to = bytes_reserve(out, total);
    int rc = PL_OK;
    if (!to) return out->failed;
    if (s->cipher.has_key) rc = noise_seal(s->seal, &s->cipher, to, plain, n, s->h, 32);
    else if (n) memcpy(to, plain, n);
    if (rc) return rc;
    out->end += total;
    noise_mix_hash(s, to, total);
    return PL_OK;
}

int noise_decrypt_and_hash(struct noise_symmetric *s, struct cursor *c, uint8_t *out, size_t n)
{
    const uint8_t *sealed;
    int rc;
    if (get_bytes(c, &sealed, n + NOISE_TAG)) return PL_EPROTO;
    rc = noise_unseal(s->open, &s->cipher, out, sealed, n, s->h, 32);
    noise_mix_hash(s, sealed, n + NOISE_TAG);
    return rc;
}
