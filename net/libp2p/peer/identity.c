/* identity.c - key pairs as files and as signatures. The keys are OpenSSL's, the frames protobuf.
 * [spec libp2p-wire 2]
 *
 *   PublicKey, PrivateKey = { Type = 1: RSA 0, Ed25519 1, secp256k1 2, ECDSA 3;  Data = 2 }
 *
 * Data is raw for Ed25519 (32 bytes; private: 64, the public half behind), a compressed point for
 * secp256k1, DER for the others. A peer ID is computed over the serialized PublicKey, so it must be
 * written in exactly one way. */
#include "identity.h"
#include "data/files/file.h"
#include "net/libp2p/peer/libp2p.pb-c.h"
#include "net/message.h"

#include <errno.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/rsa.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PRIVATE_KEY_MAX 8192 /* an RSA-8192 private key takes about 4,700 bytes */

static int write_frame(struct bytes *out, enum key_type type, const uint8_t *data, size_t n)
{
    Libp2p__PublicKey frame = LIBP2P__PUBLIC_KEY__INIT; /* PrivateKey has the same two fields */
    frame.type = type;
    frame.data = message_bytes(data, n);
    return message_pack(out, &frame.base);
}

/* secp256k1 from its parts: point (compressed or not) and, for a private key, the number. */
static EVP_PKEY *secp256k1_key(const uint8_t *point, size_t n, const uint8_t *secret)
{
    OSSL_PARAM_BLD *build = OSSL_PARAM_BLD_new();
    EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new_from_name(NULL, "EC", NULL);
    OSSL_PARAM *params = NULL;
    BIGNUM *number = secret ? BN_bin2bn(secret, 32, NULL) : NULL;
    EVP_PKEY *key = NULL;
    if (build && ctx && (!secret || number) &&
        OSSL_PARAM_BLD_push_utf8_string(build, OSSL_PKEY_PARAM_GROUP_NAME, "secp256k1", 0) &&
        OSSL_PARAM_BLD_push_octet_string(build, OSSL_PKEY_PARAM_PUB_KEY, point, n) &&
        (!number || OSSL_PARAM_BLD_push_BN(build, OSSL_PKEY_PARAM_PRIV_KEY, number)) &&
        (params = OSSL_PARAM_BLD_to_param(build)) && EVP_PKEY_fromdata_init(ctx) > 0 &&
        EVP_PKEY_fromdata(ctx, &key, secret ? EVP_PKEY_KEYPAIR : EVP_PKEY_PUBLIC_KEY, params) <= 0)
        key = NULL;
    OSSL_PARAM_free(params);
    OSSL_PARAM_BLD_free(build);
    EVP_PKEY_CTX_free(ctx);
    BN_clear_free(number);
    return key;
}

/* The curve's point of a secret number, compressed. */
static int secp256k1_point(uint8_t point[33], const uint8_t secret[32])
{
    EC_GROUP *group = EC_GROUP_new_by_curve_name(NID_secp256k1);
    EC_POINT *p = group ? EC_POINT_new(group) : NULL;
    BIGNUM *number = BN_bin2bn(secret, 32, NULL);
    int good = p && number && !BN_is_zero(number) &&
               BN_cmp(number, EC_GROUP_get0_order(group)) < 0 &&
               EC_POINT_mul(group, p, number, NULL, NULL, NULL) &&
               EC_POINT_point2oct(group, p, POINT_CONVERSION_COMPRESSED, point, 33, NULL) == 33;
    EC_POINT_free(p);
    EC_GROUP_free(group);
    BN_clear_free(number);
    return good ? PL_OK : PL_EFORMAT;
}

static int is_type(EVP_PKEY *key, enum key_type type)
{
    int id = EVP_PKEY_get_base_id(key), bits = EVP_PKEY_get_bits(key);
    if (type == KEY_RSA) return id == EVP_PKEY_RSA && bits >= 2048 && bits <= 8192;
    return id == EVP_PKEY_EC;
}

int public_key_parse(EVP_PKEY **key, enum key_type *type, struct peer_id *id, const uint8_t *in,
                     size_t bytes)
{
    Libp2p__PublicKey *frame = bytes <= PUBLIC_KEY_MAX
                                   ? message_unpack(&libp2p__public_key__descriptor, in, bytes,
                                                    NULL)
                                   : NULL;
    const uint8_t *data, *end;
    size_t n;
    *key = NULL;
    if (!frame) return PL_EFORMAT;
    end = data = frame->data.data;
    n = frame->data.len;
    switch (frame->type) {
    case KEY_ED25519:
        if (n == 32) *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, data, n);
        break;
    case KEY_SECP256K1:
        if (n == 33) *key = secp256k1_key(data, n, NULL);
        break;
    case KEY_RSA:
    case KEY_ECDSA:
        *key = n ? d2i_PUBKEY(NULL, &end, (long)n) : NULL;
        if (*key && (end != data + n || !is_type(*key, (enum key_type)frame->type))) {
            EVP_PKEY_free(*key);
            *key = NULL;
        }
        break;
    default: break;
    }
    *type = (enum key_type)frame->type;
    message_free(frame);
    if (!*key) return PL_EFORMAT;
    if (id) peer_id_of_key(id, in, bytes);
    return PL_OK;
}

/* The key came with the message: that it belongs to the claimed peer is checked by its ID. */
int public_key_verify(const uint8_t *key_in, size_t key_bytes, const void *data, size_t n,
                      const uint8_t *signature, size_t signature_bytes)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    EVP_PKEY *key = NULL;
    enum key_type type;
    int rc = public_key_parse(&key, &type, NULL, key_in, key_bytes);
    if (!rc) {
        const EVP_MD *hash = type == KEY_ED25519 ? NULL : EVP_sha256();
        rc = ctx && EVP_DigestVerifyInit(ctx, NULL, hash, NULL, key) == 1 &&
                     EVP_DigestVerify(ctx, signature, signature_bytes, data, n) == 1
                 ? PL_OK
                 : PL_EPROTO;
    }
    EVP_PKEY_free(key);
    EVP_MD_CTX_free(ctx);
    return rc;
}

static int public_data(const struct identity *me, struct bytes *out)
{
    uint8_t raw[65], *der = NULL;
    size_t n = sizeof raw;
    int length;
    switch (me->type) {
    case KEY_ED25519:
        if (EVP_PKEY_get_raw_public_key(me->key, raw, &n) != 1) return PL_ENOMEM;
        return write_frame(out, me->type, raw, n);
    case KEY_SECP256K1:
        if (!EVP_PKEY_get_octet_string_param(me->key, OSSL_PKEY_PARAM_PUB_KEY, raw, sizeof raw, &n))
            return PL_ENOMEM;
        if (n == 65) { /* stored uncompressed: x, and the parity of y in front */
            raw[0] = (uint8_t)(2 + (raw[64] & 1));
            n = 33;
        }
        return write_frame(out, me->type, raw, n);
    case KEY_RSA:
    case KEY_ECDSA: break;
    }
    if ((length = i2d_PUBKEY(me->key, &der)) <= 0) return PL_ENOMEM;
    length = write_frame(out, me->type, der, (size_t)length);
    OPENSSL_free(der);
    return length;
}

/* Fills public_key and id from key and type; takes the key over, also on failure. */
static int complete(struct identity *me, struct pl_err *err)
{
    int rc = public_data(me, &me->public_key);
    if (rc) {
        identity_clear(me);
        return pl_fail(err, rc, "identity: out of memory");
    }
    peer_id_of_key(&me->id, bytes_at(&me->public_key), bytes_length(&me->public_key));
    return PL_OK;
}

int identity_make(struct identity *me, enum key_type type, struct pl_err *err)
{
    memset(me, 0, sizeof *me);
    me->type = type;
    me->key = type == KEY_RSA ? EVP_RSA_gen(2048) : EVP_PKEY_Q_keygen(NULL, NULL, "ED25519");
    if (!me->key) return pl_fail(err, PL_ENOMEM, "identity: no key could be made");
    return complete(me, err);
}

static EVP_PKEY *private_key(enum key_type type, const uint8_t *data, size_t n)
{
    const uint8_t *end = data;
    uint8_t point[33];
    EVP_PKEY *key = NULL;
    switch (type) {
    case KEY_ED25519: /* seed, public key; in old files the public key once more */
        if (n == 64 || (n == 96 && !memcmp(data + 32, data + 64, 32)))
            key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, data, 32);
        break;
    case KEY_SECP256K1:
        if (n == 32 && !secp256k1_point(point, data)) key = secp256k1_key(point, 33, data);
        break;
    case KEY_RSA:
    case KEY_ECDSA:
        key = n ? d2i_PrivateKey(type == KEY_RSA ? EVP_PKEY_RSA : EVP_PKEY_EC, NULL, &end, (long)n)
                : NULL;
        if (key && (end != data + n || !is_type(key, type))) {
            EVP_PKEY_free(key);
            key = NULL;
        }
        break;
    }
    return key;
}

int identity_parse(struct identity *me, const uint8_t *in, size_t bytes, struct pl_err *err)
{
    Libp2p__PrivateKey *frame = bytes <= PRIVATE_KEY_MAX
                                    ? message_unpack(&libp2p__private_key__descriptor, in, bytes,
                                                     NULL)
                                    : NULL;
    int rc = PL_OK;
    memset(me, 0, sizeof *me);
    if (!frame || frame->type > KEY_ECDSA) {
        message_free(frame);
        return pl_fail(err, PL_EFORMAT, "identity: not a serialised private key");
    }
    me->type = (enum key_type)frame->type;
    me->key = private_key(me->type, frame->data.data, frame->data.len);
    if (!me->key) rc = pl_fail(err, PL_EFORMAT, "identity: the private key's data are broken");
    else rc = complete(me, err);
    if (!rc && me->type == KEY_ED25519 &&
        memcmp(bytes_at(&me->public_key) + 4, frame->data.data + 32, 32)) {
        identity_clear(me);
        rc = pl_fail(err, PL_EFORMAT, "identity: the public half belongs to another key");
    }
    OPENSSL_cleanse(frame->data.data, frame->data.len);
    message_free(frame);
    return rc;
}

int identity_serialize(const struct identity *me, struct bytes *out)
{
    uint8_t raw[64], *der = NULL;
    size_t n = 32;
    BIGNUM *number = NULL;
    int length, rc;
    switch (me->type) {
    case KEY_ED25519:
        if (EVP_PKEY_get_raw_private_key(me->key, raw, &n) != 1) return PL_ENOMEM;
        n = 32;
        if (EVP_PKEY_get_raw_public_key(me->key, raw + 32, &n) != 1) return PL_ENOMEM;
        rc = write_frame(out, me->type, raw, 64);
        break;
    case KEY_SECP256K1:
        if (!EVP_PKEY_get_bn_param(me->key, OSSL_PKEY_PARAM_PRIV_KEY, &number)) return PL_ENOMEM;
        BN_bn2binpad(number, raw, 32);
        BN_clear_free(number);
        rc = write_frame(out, me->type, raw, 32);
        break;
    default:
        if ((length = i2d_PrivateKey(me->key, &der)) <= 0) return PL_ENOMEM;
        rc = write_frame(out, me->type, der, (size_t)length);
        OPENSSL_clear_free(der, (size_t)length);
    }
    OPENSSL_cleanse(raw, sizeof raw);
    return rc;
}

/* Mode 0400: anyone who can read the file can act as this peer. */
int identity_file(struct identity *me, const char *path, struct pl_err *err)
{
    struct bytes out = { 0 };
    struct pl_err why = { "" };
    void *data;
    size_t n;
    int rc;
    memset(me, 0, sizeof *me);
    if (access(path, F_OK) == 0) {
        rc = pl_file_read(&data, &n, path, PRIVATE_KEY_MAX, err);
        if (rc) return rc;
        rc = identity_parse(me, data, n, &why);
        OPENSSL_cleanse(data, n);
        free(data);
        return rc ? pl_fail(err, rc, "%s: %.400s", path, why.text) : PL_OK;
    }
    if (errno != ENOENT) return pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno));
    rc = identity_make(me, KEY_ED25519, err);
    if (rc) return rc;
    rc = identity_serialize(me, &out);
    if (!rc) {
        mode_t before = umask(0277); /* no other user may read it, not even for a moment */
        rc = pl_file_write(path, bytes_at(&out), bytes_length(&out), err);
        umask(before);
    }
    bytes_clear(&out);
    if (rc) identity_clear(me);
    return rc;
}

void identity_clear(struct identity *me)
{
    SSL_CTX_free(me->tls);
    EVP_PKEY_free(me->key);
    bytes_clear(&me->public_key);
    memset(me, 0, sizeof *me);
}

/* Ed25519 signs the bytes, RSA and ECDSA their SHA-256. */
int identity_sign(const struct identity *me, uint8_t *signature, size_t *n, const void *data,
                  size_t bytes)
{
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    const EVP_MD *hash = me->type == KEY_ED25519 ? NULL : EVP_sha256();
    int good;
    *n = SIGNATURE_MAX;
    good = ctx && EVP_DigestSignInit(ctx, NULL, hash, NULL, me->key) == 1 &&
           EVP_DigestSign(ctx, signature, n, data, bytes) == 1;
    EVP_MD_CTX_free(ctx);
    return good ? PL_OK : PL_ENOMEM;
}
