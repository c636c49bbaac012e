/* noise_symmetric.c - the transport cipher of a Noise session: messages are accepted in the order
 * in which they were sealed, and in no other. */
#include "net/libp2p/security/noise_symmetric.h"
#include "test/unit/unit.h"

static const uint8_t key[32] = { 1, 2, 3 }, plain[] = "a part of a model";
static EVP_CIPHER_CTX *seal, *open_;

static int set_up(void **state)
{
    seal = EVP_CIPHER_CTX_new();
    open_ = EVP_CIPHER_CTX_new();
    return noise_set_key(seal, key, 1) || noise_set_key(open_, key, 0);
}

static int tear_down(void **state)
{
    EVP_CIPHER_CTX_free(seal);
    EVP_CIPHER_CTX_free(open_);
    return 0;
}

static void messages_come_back_in_order(void **state)
{
    struct noise_cipher out = { 0 }, in = { 0 };
    uint8_t sealed[3][sizeof plain + NOISE_TAG], text[sizeof plain];
    for (int i = 0; i < 3; i++)
        assert_int_equal(noise_seal(seal, &out, sealed[i], plain, sizeof plain, NULL, 0), PL_OK);
    assert_memory_not_equal(sealed[0], sealed[1], sizeof sealed[0]); /* another nonce each time */
    assert_int_equal(noise_unseal(open_, &in, text, sealed[0], sizeof plain, NULL, 0), PL_OK);
    assert_memory_equal(text, plain, sizeof plain);
    /* The second is left out, so the third has the wrong nonce. */
    assert_int_equal(noise_unseal(open_, &in, text, sealed[2], sizeof plain, NULL, 0), PL_EPROTO);
}

static void altered_messages_are_refused(void **state)
{
    static const uint8_t ad[] = { 7, 8 }, other[] = { 7, 9 };
    uint8_t sealed[sizeof plain + NOISE_TAG], text[sizeof plain];
    for (size_t i = 0; i <= sizeof sealed; i++) {
        struct noise_cipher out = { 0 }, in = { 0 };
        int rc;
        assert_int_equal(noise_seal(seal, &out, sealed, plain, sizeof plain, ad, sizeof ad), PL_OK);
        if (i < sizeof sealed) sealed[i] ^= 1;
        rc = noise_unseal(open_, &in, text, sealed, sizeof plain, ad, sizeof ad);
        assert_int_equal(rc, i < sizeof sealed ? PL_EPROTO : PL_OK);
        in.n = 0;
        rc = noise_unseal(open_, &in, text, sealed, sizeof plain, other, sizeof other);
        assert_int_equal(rc, PL_EPROTO);
    }
}

static void nonces_are_never_used_twice(void **state)
{
    struct noise_cipher c = { .n = UINT64_MAX };
    uint8_t sealed[sizeof plain + NOISE_TAG] = { 0 }, text[sizeof plain];
    assert_int_equal(noise_seal(seal, &c, sealed, plain, sizeof plain, NULL, 0), PL_ELIMIT);
    assert_int_equal(noise_unseal(open_, &c, text, sealed, sizeof plain, NULL, 0), PL_ELIMIT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(messages_come_back_in_order, set_up, tear_down),
        cmocka_unit_test_setup_teardown(altered_messages_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(nonces_are_never_used_twice, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
