/* identity.c - keys of all four types there and back, what is no key, the identity's file. [spec libp2p-wire 2]
 * Recorded keys are in the golden values of `wire`. */
#include "net/libp2p/peer/identity.h"
#include "test/unit/unit.h"

#include <openssl/evp.h>
#include <openssl/x509.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/identityXXXXXX", path[64];

static int make_folder(void **state)
{
    if (!mkdtemp(folder)) return -1;
    snprintf(path, sizeof path, "%s/key", folder);
    return 0;
}

static int remove_folder(void **state)
{
    unlink(path);
    return rmdir(folder);
}

/* type, data: the two fields of PrivateKey and PublicKey. */
static void frame(struct bytes *out, int type, const void *data, size_t n)
{
    bytes_u8(out, 0x08);
    bytes_u8(out, (uint8_t)type);
    bytes_u8(out, 0x12);
    bytes_varint(out, n);
    assert_int_equal(bytes_add(out, data, n), PL_OK);
}

static int parse(struct identity *me, int type, const void *data, size_t n)
{
    struct bytes b = { 0 };
    int rc;
    frame(&b, type, data, n);
    rc = identity_parse(me, bytes_at(&b), bytes_length(&b), NULL);
    bytes_clear(&b);
    return rc;
}

static int parse_public(int type, const void *data, size_t n)
{
    struct bytes b = { 0 };
    EVP_PKEY *key;
    enum key_type is;
    int rc;
    frame(&b, type, data, n);
    rc = public_key_parse(&key, &is, NULL, bytes_at(&b), bytes_length(&b));
    if (!rc) assert_int_equal(is, type);
    EVP_PKEY_free(key);
    bytes_clear(&b);
    return rc;
}

/* The DER of a fresh key, as RSA and ECDSA are stored. */
static void der_of(struct bytes *private, struct bytes *public, const char *kind, int bits)
{
    EVP_PKEY *key = bits ? EVP_PKEY_Q_keygen(NULL, NULL, kind, (size_t)bits)
                         : EVP_PKEY_Q_keygen(NULL, NULL, "EC", kind);
    uint8_t *der = NULL;
    int n;
    assert_non_null(key);
    assert_true((n = i2d_PrivateKey(key, &der)) > 0);
    bytes_add(private, der, (size_t)n);
    OPENSSL_free(der);
    der = NULL;
    assert_true((n = i2d_PUBKEY(key, &der)) > 0);
    bytes_add(public, der, (size_t)n);
    OPENSSL_free(der);
    EVP_PKEY_free(key);
}

/* --- there and back --------------------------------------------------------------------------- */

/* Its file is the same again, it signs, and only what it has signed is accepted. */
static void check(struct identity *me, enum key_type type)
{
    struct bytes file = { 0 };
    struct identity back;
    struct peer_id id;
    EVP_PKEY *key;
    enum key_type is;
    uint8_t signature[SIGNATURE_MAX];
    const uint8_t *public = bytes_at(&me->public_key);
    const size_t public_n = bytes_length(&me->public_key);
    size_t n;
    assert_int_equal(me->type, type);
    assert_int_equal(public_key_parse(&key, &is, &id, public, public_n), PL_OK);
    EVP_PKEY_free(key);
    assert_true(is == type && peer_id_equal(&id, &me->id));
    assert_int_equal(identity_serialize(me, &file), PL_OK);
    assert_int_equal(identity_parse(&back, bytes_at(&file), bytes_length(&file), NULL), PL_OK);
    assert_true(peer_id_equal(&back.id, &me->id));
    assert_int_equal(identity_sign(&back, signature, &n, "text", 4), PL_OK);
    assert_true(n <= SIGNATURE_MAX);
    assert_int_equal(public_key_verify(public, public_n, "text", 4, signature, n), PL_OK);
    assert_int_equal(public_key_verify(public, public_n, "texT", 4, signature, n), PL_EPROTO);
    assert_int_equal(public_key_verify(public, public_n - 1, "text", 4, signature, n), PL_EFORMAT);
    signature[n / 2] ^= 1;
    assert_int_equal(public_key_verify(public, public_n, "text", 4, signature, n), PL_EPROTO);
    bytes_clear(&file);
    identity_clear(&back);
    identity_clear(me);
}

static void keys_there_and_back(void **state)
{
    struct identity me;
    struct bytes private = { 0 }, public = { 0 };
    uint8_t secret[32] = { 0 };
    assert_int_equal(identity_make(&me, KEY_ED25519, NULL), PL_OK);
    check(&me, KEY_ED25519);
    assert_int_equal(identity_make(&me, KEY_RSA, NULL), PL_OK);
    assert_int_equal(EVP_PKEY_get_bits(me.key), 2048);
    check(&me, KEY_RSA);
    der_of(&private, &public, "P-256", 0);
    assert_int_equal(parse(&me, KEY_ECDSA, bytes_at(&private), bytes_length(&private)), PL_OK);
    check(&me, KEY_ECDSA);
    for (int last = 1; last < 9; last++) { /* points with either parity of y */
        secret[31] = (uint8_t)last;
        assert_int_equal(parse(&me, KEY_SECP256K1, secret, 32), PL_OK);
        assert_int_equal(bytes_length(&me.public_key), 4 + 33);
        check(&me, KEY_SECP256K1);
    }
    bytes_clear(&private);
    bytes_clear(&public);
}

/* --- others ------------------------------------------------------------------------------------ */

static void ed25519_keys_that_are_none(void **state)
{
    struct identity me, made;
    struct bytes file = { 0 };
    uint8_t data[97];
    assert_int_equal(identity_make(&made, KEY_ED25519, NULL), PL_OK);
    assert_int_equal(identity_serialize(&made, &file), PL_OK);
    assert_int_equal(bytes_length(&file), 4 + 64);
    memcpy(data, bytes_at(&file) + 4, 64);
    memcpy(data + 64, data + 32, 32);
    assert_int_equal(parse(&me, KEY_ED25519, data, 96), PL_OK); /* as in old files */
    assert_true(peer_id_equal(&me.id, &made.id));
    identity_clear(&me);
    for (size_t n = 32; n <= 97; n += n == 32 ? 31 : n == 63 ? 2 : n == 65 ? 30 : 2)
        assert_int_equal(parse(&me, KEY_ED25519, data, n), PL_EFORMAT);
    data[95] ^= 1;
    assert_int_equal(parse(&me, KEY_ED25519, data, 96), PL_EFORMAT);
    data[63] ^= 1; /* another key's public half */
    assert_int_equal(parse(&me, KEY_ED25519, data, 64), PL_EFORMAT);
    assert_int_equal(parse_public(KEY_ED25519, data, 31), PL_EFORMAT);
    assert_int_equal(parse_public(KEY_ED25519, data, 33), PL_EFORMAT);
    bytes_clear(&file);
    identity_clear(&made);
}

static void secp256k1_keys_that_are_none(void **state)
{
    static const uint8_t order[32] = { 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
                                       0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe,
                                       0xba, 0xae, 0xdc, 0xe6, 0xaf, 0x48, 0xa0, 0x3b,
                                       0xbf, 0xd2, 0x5e, 0x8c, 0xd0, 0x36, 0x41, 0x41 };
    uint8_t secret[33] = { 0 }, below[32];
    struct identity me;
    assert_int_equal(parse(&me, KEY_SECP256K1, secret, 32), PL_EFORMAT); /* 0 */
    assert_int_equal(parse(&me, KEY_SECP256K1, order, 32), PL_EFORMAT);
    memcpy(below, order, 32);
    below[31]--;
    assert_int_equal(parse(&me, KEY_SECP256K1, below, 32), PL_OK);
    assert_int_equal(parse_public(KEY_SECP256K1, bytes_at(&me.public_key) + 4, 33), PL_OK);
    assert_int_equal(parse_public(KEY_SECP256K1, bytes_at(&me.public_key) + 4, 32), PL_EFORMAT);
    identity_clear(&me);
    secret[31] = 1;
    assert_int_equal(parse(&me, KEY_SECP256K1, secret, 31), PL_EFORMAT);
    assert_int_equal(parse(&me, KEY_SECP256K1, secret, 33), PL_EFORMAT);
}

/* RSA from 2,048 bits on; nothing behind the DER; no other kind of key under the name. */
static void der_keys_that_are_none(void **state)
{
    static const struct {
        const char *kind;
        int bits, type, is_good;
    } cases[] = { { "RSA", 2048, KEY_RSA, 1 },
                  { "RSA", 2047, KEY_RSA, 0 },
                  { "P-256", 0, KEY_ECDSA, 1 },
                  { "P-256", 0, KEY_RSA, 0 } };
    struct identity me;
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        struct bytes private = { 0 }, public = { 0 };
        const int want = cases[i].is_good ? PL_OK : PL_EFORMAT, type = cases[i].type;
        der_of(&private, &public, cases[i].kind, cases[i].bits);
        assert_int_equal(parse_public(type, bytes_at(&public), bytes_length(&public)), want);
        assert_int_equal(parse(&me, type, bytes_at(&private), bytes_length(&private)), want);
        if (!want) identity_clear(&me);
        bytes_u8(&private, 0);
        bytes_u8(&public, 0);
        assert_int_equal(parse_public(type, bytes_at(&public), bytes_length(&public)), PL_EFORMAT);
        assert_int_equal(parse(&me, type, bytes_at(&private), bytes_length(&private)), PL_EFORMAT);
        bytes_clear(&private);
        bytes_clear(&public);
    }
    assert_int_equal(parse(&me, KEY_RSA, "", 0), PL_EFORMAT);
    assert_int_equal(parse_public(KEY_RSA, "", 0), PL_EFORMAT);
    assert_int_equal(parse(&me, KEY_ECDSA + 1, "x", 1), PL_EFORMAT);
    assert_int_equal(parse_public(KEY_ECDSA + 1, "x", 1), PL_EFORMAT);
    assert_int_equal(identity_parse(&me, (const uint8_t *)"\xff", 1, NULL), PL_EFORMAT);
}

/* Fields that nobody knows are passed over, up to the limits of 8,192 and PUBLIC_KEY_MAX bytes. */
static void keys_are_bounded(void **state)
{
    static const size_t limits[] = { 8192, PUBLIC_KEY_MAX };
    struct identity made;
    assert_int_equal(identity_make(&made, KEY_ED25519, NULL), PL_OK);
    for (int public = 0; public < 2; public ++)
        for (size_t more = 0; more < 2; more++) {
            struct bytes b = { 0 };
            struct identity me;
            EVP_PKEY *key;
            enum key_type type;
            int rc;
            if (public) bytes_add(&b, bytes_at(&made.public_key), bytes_length(&made.public_key));
            else assert_int_equal(identity_serialize(&made, &b), PL_OK);
            bytes_u8(&b, 0x7a);
            bytes_varint(&b, limits[public] + more - bytes_length(&b) - 2);
            while (bytes_length(&b) < limits[public] + more) bytes_u8(&b, 0);
            rc = public ? public_key_parse(&key, &type, NULL, bytes_at(&b), bytes_length(&b))
                        : identity_parse(&me, bytes_at(&b), bytes_length(&b), NULL);
            assert_int_equal(rc, more ? PL_EFORMAT : PL_OK);
            if (!rc && public) EVP_PKEY_free(key);
            if (!rc && !public) identity_clear(&me);
            bytes_clear(&b);
        }
    identity_clear(&made);
}

/* --- the file --------------------------------------------------------------------------------- */

/* Made once, for its owner's eyes alone, and the same peer from then on. */
static void the_file_keeps_the_peer(void **state)
{
    struct identity first, again;
    struct pl_err err = { "" };
    struct stat st;
    const mode_t before = umask(022);
    assert_int_equal(identity_file(&first, path, &err), PL_OK);
    assert_int_equal(umask(before), 022); /* as it was */
    assert_int_equal(first.type, KEY_ED25519);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0400);
    assert_int_equal(identity_file(&again, path, &err), PL_OK);
    assert_true(peer_id_equal(&first.id, &again.id));
    identity_clear(&first);
    identity_clear(&again);
    unlink(path);
    {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs("no key", f);
        fclose(f);
    }
    assert_int_equal(identity_file(&first, path, &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(identity_file(&first, "/dev/null/key", &err), PL_EIO);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_there_and_back),
        cmocka_unit_test(ed25519_keys_that_are_none),
        cmocka_unit_test(secp256k1_keys_that_are_none),
        cmocka_unit_test(der_keys_that_are_none),
        cmocka_unit_test(keys_are_bounded),
        cmocka_unit_test_setup_teardown(the_file_keeps_the_peer, make_folder, remove_folder),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
