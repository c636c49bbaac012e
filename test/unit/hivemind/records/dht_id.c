/* dht_id.c - Kademlia's 160-bit numbers: order, common bits, distance, and keys of any text. */
#include "net/hivemind/records/dht_id.h"
#include "test/unit/unit.h"

static void bits_in_common(void **state)
{
    for (int bit = 0; bit < DHT_ID_BITS; bit++) {
        struct dht_id a = { { 0 } }, b = { { 0 } };
        b.bytes[bit / 8] = (uint8_t)(0x80 >> bit % 8);
        assert_int_equal(dht_id_common_bits(&a, &b), bit);
        b.bytes[DHT_ID_BYTES - 1] |= 1; /* later bits do not matter */
        assert_int_equal(dht_id_common_bits(&b, &a), bit);
        assert_false(dht_id_equal(&a, &b));
        assert_true(dht_id_compare(&a, &b) < 0 && dht_id_compare(&b, &a) > 0);
    }
    {
        const struct dht_id a = { { 7 } }, b = a;
        assert_int_equal(dht_id_common_bits(&a, &b), DHT_ID_BITS);
        assert_true(dht_id_equal(&a, &b));
    }
}

/* By XOR: 0 and 3 are nearer to 1 than 4 is; which of two is nearer does not follow their order. */
static void distances(void **state)
{
    const struct dht_id to = { { 1, 9 } }, same = to, near = { { 0, 200 } }, far = { { 2, 0 } },
                        other = { { 1, 9, 1 } };
    assert_true(dht_id_nearer(&near, &far, &to) < 0 && dht_id_nearer(&far, &near, &to) > 0);
    assert_true(dht_id_nearer(&other, &near, &to) < 0);
    assert_true(dht_id_nearer(&same, &other, &to) < 0);
    assert_int_equal(dht_id_nearer(&same, &to, &to), 0);
}

/* SHA-1 of the key's msgpack form: a3 "ttt". Keys have at most 1,000 characters. */
static void keys_of_texts(void **state)
{
    struct dht_id a, b;
    char text[1002];
    dht_id_of(&a, "\xa3ttt", 4);
    assert_int_equal(dht_id_of_text(&b, "ttt"), PL_OK);
    assert_true(dht_id_equal(&a, &b));
    memset(text, 'k', sizeof text);
    text[1001] = 0;
    assert_int_equal(dht_id_of_text(&a, text), PL_ELIMIT);
    text[1000] = 0;
    assert_int_equal(dht_id_of_text(&a, text), PL_OK);
    assert_int_equal(dht_id_parse(&b, a.bytes, DHT_ID_BYTES), PL_OK);
    assert_true(dht_id_equal(&a, &b));
    assert_int_equal(dht_id_parse(&b, a.bytes, DHT_ID_BYTES - 1), PL_EFORMAT);
    assert_int_equal(dht_id_random(&a), PL_OK);
    assert_int_equal(dht_id_random(&b), PL_OK);
    assert_false(dht_id_equal(&a, &b));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(bits_in_common),
                                        cmocka_unit_test(distances),
                                        cmocka_unit_test(keys_of_texts) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
