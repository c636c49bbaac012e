/* rsa_key.c - see rsa_key.h. */
#include "rsa_key.h"

#include <openssl/bio.h>
#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>

#define HASH_BYTES 32

/* --- base64 ----------------------------------------------------------------------------------- */

static const char base64_alphabet[] =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

static int base64_write(struct bytes *out, const uint8_t *data, size_t n)
{
    size_t length = (n + 2) / 3 * 4;
    uint8_t *to = bytes_reserve(out, length + 1); /* the library adds a zero */
    if (!to) return out->failed;
    EVP_EncodeBlock(to, data, (int)n);
    out->end += length;
    return PL_OK;
}

/* Strictly; out has space for 3/4 of n. EVP_DecodeBlock forgives spaces, so the alphabet is checked
 * first. */
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

/* As Python's b64decode, by which real peers read signatures: what is not of the alphabet is passed
 * over, and the padding ends it. A stricter reader would refuse records that others keep. */
static int base64_read_loose(uint8_t *out, size_t *length, const char *text, size_t n)
{
    uint32_t bits = 0;
    int held = 0, pads = 0; /* digits of the four at hand */
    *length = 0;
    for (size_t i = 0; i < n; i++) {
        const char *digit = text[i] ? strchr(base64_alphabet, text[i]) : NULL;
        if (text[i] == '=' && held >= 2 && held + ++pads >= 4) return PL_OK;
        if (!digit) continue;
        pads = 0;
        bits = bits << 6 | (uint32_t)(digit - base64_alphabet);
        held = (held + 1) % 4;
        if (held != 1) out[(*length)++] = (uint8_t)(bits >> (held ? 2 * (4 - held) : 0));
    }
    return held ? PL_EFORMAT : PL_OK;
}

/* --- OpenSSH's text of a public key: base64 of "ssh-rsa", exponent, modulus ------------------- */

static void put_string(struct bytes *b, const void *data, size_t n)
{
    bytes_be32(b, (uint32_t)n);
    bytes_add(b, data, n);
}

static void put_number(struct bytes *b, const BIGNUM *x)
{
    uint8_t raw[RSA_BITS_MAX / 8 + 1] = { 0 };
    size_t n = (size_t)BN_num_bytes(x);
    size_t sign = BN_num_bits(x) % 8 == 0; /* a zero in front, or it would read as negative */
    BN_bn2bin(x, raw + sign);
    put_string(b, raw, n + sign);
}

/* exponent: 0, or the one that it must have. */
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

static int get_string(struct cursor *c, const uint8_t **data, size_t *n)
{
    uint32_t length;
    int rc = get_be32(c, &length);
    *n = length;
    return rc ? rc : get_bytes(c, data, length);
}

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

int rsa_public_parse(EVP_PKEY **key, const void *text_, size_t n)
{
    const char *text = text_, *space;
    uint8_t raw[RSA_TEXT_MAX];
    const uint8_t *name, *exponent, *modulus;
    size_t length, name_n, exponent_n, modulus_n;
    struct cursor c;
    *key = NULL;
    if (n > RSA_TEXT_MAX || n < 8 || memcmp(text, "ssh-rsa ", 8)) return PL_EFORMAT;
    text += 8;
    n -= 8;
    if ((space = memchr(text, ' ', n))) n = (size_t)(space - text); /* a comment follows */
    if (base64_read(raw, &length, text, n)) return PL_EFORMAT;
    c.at = raw;
    c.left = length;
    if (get_string(&c, &name, &name_n) || get_string(&c, &exponent, &exponent_n) ||
        get_string(&c, &modulus, &modulus_n) || c.left || name_n != 7 || memcmp(name, "ssh-rsa", 7))
        return PL_EFORMAT;
    if (!exponent_n || exponent_n > 5 || exponent[0] >> 7 || !modulus_n || modulus[0] >> 7 ||
        modulus_n > RSA_BITS_MAX / 8 + 1)
        return PL_EFORMAT; /* a large exponent would make checking slow */
    if (!(*key = from_numbers(exponent, exponent_n, modulus, modulus_n))) return PL_EFORMAT;
    if (EVP_PKEY_get_bits(*key) >= RSA_BITS && EVP_PKEY_get_bits(*key) <= RSA_BITS_MAX)
        return PL_OK;
    EVP_PKEY_free(*key);
    *key = NULL;
    return PL_EFORMAT;
}

/* --- private keys ----------------------------------------------------------------------------- */

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
    if (n > 11 && !memcmp(data, "-----BEGIN ", 11)) {
        BIO *bio = BIO_new_mem_buf(data, (int)n);
        k->key = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
        BIO_free(bio);
    } else {
        k->key = d2i_AutoPrivateKey(NULL, &at, (long)n);
    }
    if (k->key && EVP_PKEY_get_base_id(k->key) == EVP_PKEY_RSA &&
        EVP_PKEY_get_bits(k->key) >= RSA_BITS && EVP_PKEY_get_bits(k->key) <= RSA_BITS_MAX &&
        !write_text(&k->text, k->key, 0))
        return PL_OK;
    rsa_key_clear(k);
    return pl_fail(err, PL_EFORMAT, "RSA key: no private key of %d to %d bits in %zu bytes",
                   RSA_BITS, RSA_BITS_MAX, n);
}

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

/* SHA-256 throughout; the salt fills what the key leaves: 222 bytes for 2048 bits. */
static int set_padding(EVP_PKEY_CTX *ctx, const EVP_PKEY *key)
{
    int salt = (EVP_PKEY_get_bits(key) - 1 + 7) / 8 - HASH_BYTES - 2;
    return EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_PSS_PADDING) > 0 &&
           EVP_PKEY_CTX_set_rsa_pss_saltlen(ctx, salt) > 0 &&
           EVP_PKEY_CTX_set_rsa_mgf1_md(ctx, EVP_sha256()) > 0;
}

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

int rsa_public_is_canonical(EVP_PKEY *key, const void *text, size_t n)
{
    struct bytes written = { 0 };
    int same = !write_text(&written, key, RSA_F4) && bytes_length(&written) == n &&
               !memcmp(bytes_at(&written), text, n);
    bytes_clear(&written);
    return same;
}

int rsa_public_verify(EVP_PKEY *key, const void *data, size_t n, const void *signature,
                      size_t signature_n)
{
    EVP_MD_CTX *md;
    EVP_PKEY_CTX *ctx;
    uint8_t raw[RSA_TEXT_MAX];
    size_t length;
    int good;
    if (signature_n > RSA_TEXT_MAX || base64_read_loose(raw, &length, signature, signature_n))
        return PL_EPROTO;
    if (!(md = EVP_MD_CTX_new())) return PL_ENOMEM;
    good = EVP_DigestVerifyInit(md, &ctx, EVP_sha256(), NULL, key) > 0 && set_padding(ctx, key) &&
           EVP_DigestVerify(md, raw, length, data, n) == 1;
    EVP_MD_CTX_free(md);
    return good ? PL_OK : PL_EPROTO;
}
