/* peer_record.c - a peer's addresses under its own signature: they come back, and no other peer can
 * change or replace them. */
#include "net/libp2p/peer/peer_record.h"
#include "net/libp2p/peer/libp2p.pb-c.h"
#include "test/unit/unit.h"

static struct identity me, other;

static int begin(void **state)
{
    return identity_make(&me, KEY_ED25519, NULL) || identity_make(&other, KEY_ED25519, NULL);
}

static int end(void **state)
{
    identity_clear(&me);
    identity_clear(&other);
    return 0;
}

static struct multiaddr numbered(unsigned port)
{
    struct multiaddr a = { 0 };
    multiaddr_add_ip(&a, 4, (const uint8_t *)"\1\2\3\4");
    multiaddr_add_tcp(&a, (uint16_t)port);
    return a;
}

static void addresses_come_back(void **state)
{
    static const size_t counts[] = { 0, 1, RECORD_ADDRESSES_MAX, RECORD_ADDRESSES_MAX + 1 };
    static struct multiaddr a[RECORD_ADDRESSES_MAX + 1];
    static struct record r;
    for (unsigned i = 0; i < PL_COUNT(a); i++) a[i] = numbered(i);
    for (size_t i = 0; i < PL_COUNT(counts); i++) {
        size_t n = counts[i] < RECORD_ADDRESSES_MAX ? counts[i] : RECORD_ADDRESSES_MAX;
        struct bytes b = { 0 };
        assert_int_equal(record_put(&b, &me, 1234567890123456789u, a, counts[i]), PL_OK);
        assert_int_equal(record_get(&r, bytes_at(&b), bytes_length(&b)), PL_OK);
        assert_true(peer_id_equal(&r.peer, &me.id));
        assert_true(r.seq == 1234567890123456789u);
        assert_int_equal(r.address_count, n);
        for (size_t k = 0; k < n; k++) assert_true(multiaddr_equal(&r.addresses[k], &a[k]));
        bytes_clear(&b);
    }
}

/* Each single byte of the envelope counts. */
static void altered_envelopes_are_refused(void **state)
{
    static struct record r;
    const struct multiaddr a = numbered(1);
    struct bytes b = { 0 };
    assert_int_equal(record_put(&b, &me, 7, &a, 1), PL_OK);
    for (size_t i = 0; i < bytes_length(&b); i++) {
        uint8_t *at = (uint8_t *)(uintptr_t)bytes_at(&b) + i;
        *at ^= 1;
        if (!record_get(&r, bytes_at(&b), bytes_length(&b))) fail_msg("byte %zu", i);
        *at ^= 1;
        assert_int_not_equal(record_get(&r, bytes_at(&b), i), PL_OK);
    }
    assert_int_equal(record_get(&r, bytes_at(&b), bytes_length(&b)), PL_OK);
    bytes_clear(&b);
}

/* Another peer's record, signed by us. */
static void a_record_is_about_its_signer(void **state)
{
    static struct record r;
    const struct multiaddr a = numbered(1);
    struct identity forged = me;
    struct bytes b = { 0 };
    forged.id = other.id;
    assert_int_equal(record_put(&b, &forged, 7, &a, 1), PL_OK);
    assert_int_equal(record_get(&r, bytes_at(&b), bytes_length(&b)), PL_EPROTO);
    bytes_clear(&b);
}

static void envelopes_have_a_limit(void **state)
{
    static uint8_t large[ENVELOPE_MAX + 1];
    static struct record r;
    assert_int_equal(record_get(&r, large, sizeof large), PL_ELIMIT);
    assert_int_equal(record_get(&r, large, sizeof large - 1), PL_EFORMAT);
    assert_int_equal(record_get(&r, large, 0), PL_EFORMAT); /* without any field */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_come_back),
        cmocka_unit_test(altered_envelopes_are_refused),
        cmocka_unit_test(a_record_is_about_its_signer),
        cmocka_unit_test(envelopes_have_a_limit),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
