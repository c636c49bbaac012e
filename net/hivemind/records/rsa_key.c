/* rsa_key.c - RSA keys as hivemind uses them: a public key is OpenSSH's text, a signature is
 * RSA-PSS in base64 [spec hivemind-protocol 2.1]. OpenSSL does the arithmetic; this file reads
 * and writes the formats.
 *
 *   ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQ...
 *           base64 of: 00 00 00 07 "ssh-rsa"   three strings, each after its length
 *                      00 00 00 03 01 00 01    exponent e = 65537
 *                      00 00 01 01 00 c3 ...   modulus n = p q, 2048 bits, big-endian
 *
 * A signature s of a message m satisfies s^e mod n = PSS(SHA-256(m), salt): everyone can check
 * it with (e, n); making it needs the factors of n. */
#include "rsa_key.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <stdlib.h>
#include <string.h>

#define HASH_BYTES 32 /* SHA-256 */

/* --- base64 ----------------------------------------------------------------------------------- */

static const char base64_alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* 3 bytes become 4 characters, the last group is padded with '='. */
static int base64_write(struct bytes *out, const uint8_t *data, size_t n)
{
    size_t length = (n + 2) / 3 * 4;
    uint8_t *to = bytes_reserve(out, length + 1); /* EVP_EncodeBlock appends a NUL */
    if (!to) return out->failed;
    EVP_EncodeBlock(to, data, (int)n);
    out->end += length;
    return PL_OK;
}

/* Strict, for keys: one key must have one text, since the text is its owner's name in the DHT. out
 * has space for 3/4 of n. EVP_DecodeBlock skips spaces, so the alphabet is checked first. */
static int base64_read(uint8_t *out, size_t *length, const char *text, size_t n)
{
    size_t pads = 0;
    if (!n || n % 4) return PL_EFORMAT;
    while (pads < 2 && text[n - 1 - pads] == '=') pads++;
    for (size_t i = 0; i < n - pads; i++)
        if (!text[i] || !strchr(base64_alphabet, text[i])) return PL_EFORMAT;
    if (EVP_DecodeBlock(out, (const unsigned char *)text, (int)n) < 0) return PL_EFORMAT;
    *length = n / 4 * 3 - pads;
    return PL_OK;
}

/* As Python's b64decode, by which hivemind reads signatures: characters outside the alphabet are
 * skipped, and padding ends the text. A stricter reader would refuse records that hivemind
 * keeps. */
static int base64_read_loose(uint8_t *out, size_t *length, const char *text, size_t n)
{
    uint32_t bits = 0;
    int held = 0, pads = 0; /* digits of the four at hand */
    *length = 0;
    for (size_t i = 0; i < n; i++) {
        const char *digit = text[i] ? strchr(base64_alphabet, text[i]) : NULL;
        /* Padding counts only after two or three digits of a group of four, and only if it
         * completes the group. */
        if (text[i] == '=' && held >= 2 && held + ++pads >= 4) return PL_OK;
        if (!digit) continue;
        pads = 0;
        /* A digit has 6 bits, so the 2nd, 3rd and 4th digit of each group complete a byte. */
        bits = bits << 6 | (uint32_t)(digit - base64_alphabet);
        held = (held + 1) % 4;
        if (held != 1) out[(*length)++] = (uint8_t)(bits >> (held ? 2 * (4 - held) : 0));
    }
    return held ? PL_EFORMAT : PL_OK;
}

/* --- OpenSSH's text of a public key: base64 of "ssh-rsa", exponent, modulus ------------------- */

/* SSH's encoding of a key (RFC 4253, 6.6): each part after its length of 4 bytes, big-endian. */
static void put_string(struct bytes *b, const void *data, size_t n)
{
    bytes_be32(b, (uint32_t)n);
    bytes_add(b, data, n);
}

static void put_number(struct bytes *b, const BIGNUM *x)
{
    uint8_t raw[RSA_BITS_MAX / 8 + 1] = { 0 };
    size_t n = (size_t)BN_num_bytes(x);
    size_t sign = BN_num_bits(x) % 8 == 0; /* a leading 0: a set top bit means negative */
    BN_bn2bin(x, raw + sign);
    put_string(b, raw, n + sign);
}

/* The text of a key: of ours, to sign with, and of others', to compare with their text. exponent: 0
 * for any; otherwise PL_EFORMAT for a key with another one. */
static int write_text(struct bytes *out, EVP_PKEY *key, unsigned long exponent)
{
    BIGNUM *e = NULL, *n = NULL;
    struct bytes raw = { 0 };
    int rc = PL_EFORMAT;
    if (EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_E, &e) &&
        EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_N, &n) && BN_num_bits(n) <= RSA_BITS_MAX &&
        (!exponent || BN_is_word(e, exponent))) {
        put_string(&raw, "ssh-rsa", 7);
        put_number(&raw, e);
        put_number(&raw, n);
        rc = raw.failed;
        bytes_add(out, "ssh-rsa ", 8);
        if (!rc) rc = base64_write(out, bytes_at(&raw), bytes_length(&raw));
    }
    bytes_clear(&raw);
    BN_free(e);
    BN_free(n);
    return rc;
}

/* SSH's strings: a length of 4 bytes, big-endian, then the bytes. */
static int get_string(struct cursor *c, const uint8_t **data, size_t *n)
{
    uint32_t length;
    int rc = get_be32(c, &length);
    *n = length;
    return rc ? rc : get_bytes(c, data, length);
}

/* OpenSSL 3 takes a key's numbers as named parameters. */
static EVP_PKEY *from_numbers(const uint8_t *e, size_t e_n, const uint8_t *n, size_t n_n)
{
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "RSA", NULL);
    BIGNUM *exponent = BN_bin2bn(e, (int)e_n, NULL), *modulus = BN_bin2bn(n, (int)n_n, NULL);
    OSSL_PARAM *params = NULL;
    EVP_PKEY *key = NULL;
    if (build && ctx && exponent && modulus &&
        OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_E, exponent) &&
        OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_RSA_N, modulus) &&
        (params = OSSL_PARAM_BLD_to_param(build)) && EVP_PKEY_fromdata_init(ctx) > 0 &&
        EVP_PKEY_fromdata(ctx, &key, EVP_PKEY_PUBLIC_KEY, params) <= 0)
        key = NULL;
    OSSL_PARAM_free(params);
    OSSL_PARAM_BLD_free(build);
    EVP_PKEY_CTX_free(ctx);
    BN_free(exponent);
    BN_free(modulus);
    return key;
}

/* The text comes from strangers. Its three numbers are bounded before OpenSSL sees them:
 * verification costs O(bits of e * bits of n^2), so an exponent of 2048 bits would make one
 * signature a hundred times as slow. */
int rsa_public_parse(EVP_PKEY **key, const void *text_, size_t n)
{
    const char *text = text_, *space;
    uint8_t raw[RSA_TEXT_MAX];
    const uint8_t *name, *exponent, *modulus;
    size_t length, name_n, exponent_n, modulus_n;
    struct cursor c;
    *key = NULL;
    if (n > RSA_TEXT_MAX || n < 8 || memcmp(text, "ssh-rsa ", 8)) return PL_EFORMAT;
    /* A comment may follow, as in a file of OpenSSH's; it is not part of the key. */
    text += 8;
    n -= 8;
    if ((space = memchr(text, ' ', n))) n = (size_t)(space - text);
    if (base64_read(raw, &length, text, n)) return PL_EFORMAT;
    c.at = raw;
    c.left = length;
    if (get_string(&c, &name, &name_n) || get_string(&c, &exponent, &exponent_n) ||
        get_string(&c, &modulus, &modulus_n) || c.left || name_n != 7 || memcmp(name, "ssh-rsa", 7))
        return PL_EFORMAT;
    /* Numbers of SSH are signed: a set top bit would be a negative one. 5 bytes of exponent hold
     * any that is in use (65537 has 3). */
    if (!exponent_n || exponent_n > 5 || exponent[0] >> 7 || !modulus_n || modulus[0] >> 7 ||
        modulus_n > RSA_BITS_MAX / 8 + 1)
        return PL_EFORMAT;
    /* Keys of fewer than 2048 bits are no longer safe; above 8192 each check would take
     * milliseconds. */
    if (!(*key = from_numbers(exponent, exponent_n, modulus, modulus_n))) return PL_EFORMAT;
    if (EVP_PKEY_get_bits(*key) >= RSA_BITS && EVP_PKEY_get_bits(*key) <= RSA_BITS_MAX)
        return PL_OK;
    EVP_PKEY_free(*key);
    *key = NULL;
    return PL_EFORMAT;
}

/* --- private keys ----------------------------------------------------------------------------- */

/* hivemind makes a pair for each process: it is an identity for one run, not for life. */
int rsa_key_make(struct rsa_key *k, struct pl_err *err)
{
    memset(k, 0, sizeof *k);
    if (!(k->key = EVP_RSA_gen(RSA_BITS)) || write_text(&k->text, k->key, 0)) {
        rsa_key_clear(k);
        return pl_fail(err, PL_ENOMEM, "RSA key: could not be made");
    }
    return PL_OK;
}

int rsa_key_parse(struct rsa_key *k, const uint8_t *data, size_t n, struct pl_err *err)
{
    const unsigned char *at = data;
    memset(k, 0, sizeof *k);
    /* PEM is base64 between two lines of text; DER is the same bytes without them. */
    if (n > 11 && !memcmp(data, "-----BEGIN ", 11)) {
        BIO *bio = BIO_new_mem_buf(data, (int)n);
        k->key = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
        BIO_free(bio);
    } else {
        k->key = d2i_AutoPrivateKey(NULL, &at, (long)n);
    }
    /* The same limits as for others' keys: a key that they would refuse is of no use. */
    if (k->key && EVP_PKEY_get_base_id(k->key) == EVP_PKEY_RSA &&
        EVP_PKEY_get_bits(k->key) >= RSA_BITS && EVP_PKEY_get_bits(k->key) <= RSA_BITS_MAX &&
        !write_text(&k->text, k->key, 0))
        return PL_OK;
    rsa_key_clear(k);
    return pl_fail(err, PL_EFORMAT, "RSA key: no private key of %d to %d bits in %zu bytes",
                   RSA_BITS, RSA_BITS_MAX, n);
}

/* Not encrypted: the file's permissions protect it (the caller's). */
int rsa_key_write(struct bytes *pem, const struct rsa_key *k)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *data = NULL;
    long n = 0;
    int rc = PL_ENOMEM;
    if (bio && PEM_write_bio_PKCS8PrivateKey(bio, k->key, NULL, NULL, 0, NULL, NULL) == 1 &&
        (n = BIO_get_mem_data(bio, &data)) > 0)
        rc = bytes_add(pem, data, (size_t)n);
    BIO_free(bio);
    return rc;
}

void rsa_key_clear(struct rsa_key *k)
{
    EVP_PKEY_free(k->key);
    bytes_clear(&k->text);
    k->key = NULL;
}

/* --- signatures ------------------------------------------------------------------------------- */

/* PSS with SHA-256 as hash and in MGF1. The salt is as long as the key allows, and that length
 * is part of the format: ceil((2048 - 1) / 8) - 32 - 2 = 222 bytes. */
static int set_padding(EVP_PKEY_CTX *ctx, const EVP_PKEY *key)
{
    int salt = (EVP_PKEY_get_bits(key) - 1 + 7) / 8 - HASH_BYTES - 2;
    return EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_PSS_PADDING) > 0 &&
           EVP_PKEY_CTX_set_rsa_pss_saltlen(ctx, salt) > 0 &&
           EVP_PKEY_CTX_set_rsa_mgf1_md(ctx, EVP_sha256()) > 0;
}

/* The salt is random, so two signatures of one message differ: a record that is stored again is not
 * the same bytes, and its expiration decides which is newer. */
int rsa_key_sign(struct bytes *out, const struct rsa_key *k, const void *data, size_t n)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    EVP_PKEY_CTX *ctx;
    uint8_t raw[RSA_BITS_MAX / 8];
    size_t length = sizeof raw;
    int rc = PL_ENOMEM;
    if (md && EVP_DigestSignInit(md, &ctx, EVP_sha256(), NULL, k->key) > 0 &&
        set_padding(ctx, k->key) && EVP_DigestSign(md, raw, &length, data, n) > 0)
        rc = base64_write(out, raw, length);
    EVP_MD_CTX_free(md);
    return rc;
}

/* Written again, the key must give the same text: one key then has one owner tag, and one
 * record. */
int rsa_public_is_canonical(EVP_PKEY *key, const void *text, size_t n)
{
    struct bytes written = { 0 };
    int same = !write_text(&written, key, RSA_F4) && bytes_length(&written) == n &&
               !memcmp(bytes_at(&written), text, n);
    bytes_clear(&written);
    return same;
}

/* A wrong signature and one that is not base64 are the same to the caller: not this key's. */
int rsa_public_verify(EVP_PKEY *key, const void *data, size_t n, const void *signature,
                      size_t signature_n)
{
    EVP_MD_CTX *md;
    EVP_PKEY_CTX *ctx;
    uint8_t raw[RSA_TEXT_MAX];
    size_t length;
    int good;
    /* RSA_TEXT_MAX characters are more than RSA_BITS_MAX need (1,368); raw holds 3/4 of them. */
    if (signature_n > RSA_TEXT_MAX || base64_read_loose(raw, &length, signature, signature_n))
        return PL_EPROTO;
    if (!(md = EVP_MD_CTX_new())) return PL_ENOMEM;
    good = EVP_DigestVerifyInit(md, &ctx, EVP_sha256(), NULL, key) > 0 && set_padding(ctx, key) &&
           EVP_DigestVerify(md, raw, length, data, n) == 1;
    EVP_MD_CTX_free(md);
    return good ? PL_OK : PL_EPROTO;
}
