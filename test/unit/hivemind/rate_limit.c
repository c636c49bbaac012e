/* rate_limit.c - token buckets, and what they bound: signature checks of records that peers store. */
#include "net/hivemind/kademlia/dht_serve.h"
#include "net/hivemind/records/hash_index.h"
#include "net/rate_limit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static int take_many(struct rate_limit *l, uint64_t holder, int count, double now)
{
    int taken = 0;
    for (int i = 0; i < count; i++) taken += rate_limit_take(l, holder, 1, now);
    return taken;
}

static void a_holder_gets_its_burst_and_its_rate(void **state)
{
    struct rate_limit *l = calloc(1, sizeof *l);
    (void)state;
    l->rate = 2;
    l->burst = 10;
    assert_int_equal(take_many(l, 7, 100, 1000), 10);
    assert_int_equal(take_many(l, 8, 100, 1000), 10); /* another holder's are its own */
    assert_int_equal(take_many(l, 7, 100, 1002.5), 5);
    assert_int_equal(take_many(l, 7, 100, 1000), 0); /* the clock was set back: no refill */
    assert_int_equal(take_many(l, 7, 100, 1e6), 10); /* never more than the burst */
    assert_false(rate_limit_take(l, 9, 10.5, 1000));
    assert_true(rate_limit_take(l, 9, 10, 1000));
    assert_int_equal(take_many(l, 0, 100, 1000), 10); /* 0 is a holder like others */
    assert_int_equal(take_many(l, 0, 100, 1000), 0);
    free(l);
}

/* A flood of new holders does not give one that has used up its units new ones. */
static void a_full_table_forgets_the_least_used(void **state)
{
    struct rate_limit *l = calloc(1, sizeof *l);
    (void)state;
    l->rate = 1;
    l->burst = 10;
    assert_int_equal(take_many(l, 5, 10, 0), 10);
    for (uint64_t i = 0; i < 3 * RATE_HOLDERS_MAX; i++)
        assert_true(rate_limit_take(l, 100 + i, 1, 0));
    assert_int_equal(take_many(l, 5, 10, 0), 0);
    free(l);
}

/* --- signatures of records --------------------------------------------------------------------- */

static struct rsa_key key;

static int make_key(void **state)
{
    (void)state;
    return rsa_key_make(&key, NULL);
}

static int free_key(void **state)
{
    (void)state;
    rsa_key_clear(&key);
    return 0;
}

/* A signed record as a stranger would store it; its signature is right. */
struct signed_record {
    struct bytes subkey, value;
    struct dht_record r;
};

static void sign(struct signed_record *s, const struct dht_caller *caller, double expiration)
{
    static const struct validators mine = { .key = &key };
    struct record plain = { .value = (const uint8_t *)"\x01", .n = 1, .expiration = expiration };
    memset(s, 0, sizeof *s);
    record_own_subkey(&s->subkey, &key);
    s->r = (struct dht_record){ .key = { { 3 } }, .expiration = expiration, .caller = caller };
    s->r.subkey = plain.subkey = bytes_at(&s->subkey);
    s->r.subkey_n = plain.subkey_n = bytes_length(&s->subkey);
    plain.key = s->r.key.bytes;
    plain.key_n = DHT_ID_BYTES;
    assert_int_equal(record_sign(&s->value, &mine, &plain), PL_OK);
    s->r.value = bytes_at(&s->value);
    s->r.n = bytes_length(&s->value);
}

static void free_signed(struct signed_record *s)
{
    bytes_clear(&s->subkey);
    bytes_clear(&s->value);
}

/* How many of `count` records with broken signatures are checked: those leave units behind. */
static void flood(struct dht_state *node, const struct dht_caller *caller, int count, double now)
{
    struct signed_record s;
    sign(&s, caller, now + 60);
    s.value.data[s.value.begin] ^= 2; /* the value is another one than was signed */
    for (int i = 0; i < count; i++) assert_int_equal(dht_state_store(node, now, &s.r), PL_EAGAIN);
    free_signed(&s);
}

static int store_good(struct dht_state *node, const struct dht_caller *caller, double now,
                      double expiration)
{
    struct signed_record s;
    int rc;
    sign(&s, caller, expiration);
    rc = dht_state_store(node, now, &s.r);
    free_signed(&s);
    return rc;
}

static void signature_checks_are_charged_to_the_caller(void **state)
{
    static const struct validators none = { 0 };
    static struct dht_state node;
    const struct dht_id self = { { 1 } };
    const struct dht_caller stranger = { .peer = { 34, { 0x12, 0x20, 1 } }, .subnet = 11 };
    const struct dht_caller honest = { .peer = { 34, { 0x12, 0x20, 2 } }, .subnet = 22 };
    const double now = 1000;
    (void)state;
    assert_int_equal(dht_state_init(&node, &self, 0, &none), PL_OK);
    assert_int_equal(store_good(&node, &stranger, now, now + 50), PL_OK);
    flood(&node, &stranger, DHT_CHECKS_BURST, now);
    /* Its allowance is used up: even a right signature is refused, unchecked. */
    assert_int_equal(store_good(&node, &stranger, now, now + 51), PL_EAGAIN);
    assert_int_equal(store_good(&node, &honest, now, now + 52), PL_OK);
    assert_int_equal(store_good(&node, NULL, now, now + 53), PL_OK); /* ours */
    assert_int_equal(store_good(&node, &stranger, now + 1, now + 54), PL_OK);
    dht_state_clear(&node);
}

/* New peer IDs cost nothing, so a subnet has a limit of its own. */
static void a_subnets_peers_share_a_limit(void **state)
{
    static const struct validators none = { 0 };
    static struct dht_state node;
    const struct dht_id self = { { 1 } };
    struct dht_caller caller = { .peer = { 34, { 0x12, 0x20, 1 } }, .subnet = 11 };
    const double now = 1000;
    (void)state;
    assert_int_equal(dht_state_init(&node, &self, 0, &none), PL_OK);
    for (int i = 0; i <= DHT_SUBNET_CHECKS_BURST / DHT_CHECKS_BURST; i++) {
        caller.peer.bytes[3] = (uint8_t)i;
        flood(&node, &caller, DHT_CHECKS_BURST, now);
    }
    caller.peer.bytes[3] = 0xff;
    assert_int_equal(store_good(&node, &caller, now, now + 51), PL_EAGAIN);
    caller.subnet = 12;
    assert_int_equal(store_good(&node, &caller, now, now + 51), PL_OK);
    dht_state_clear(&node);
}

/* A check costs about the square of the key's length. */
static void long_keys_cost_more(void **state)
{
    struct record r = {
        .key = (const uint8_t *)"k", .key_n = 1, .subkey = (const uint8_t *)"\xc0", .subkey_n = 1
    };
    struct bytes subkey = { 0 };
    char text[1400] = "[owner:";
    double of_2048;
    (void)state;
    assert_true(record_check_cost(&r) == 0); /* no owner, no signature */
    record_own_subkey(&subkey, &key);
    r.subkey = bytes_at(&subkey);
    r.subkey_n = bytes_length(&subkey);
    of_2048 = record_check_cost(&r);
    assert_true(fabs(of_2048 - 1) < 0.1);
    memset(text + 7, 'A', 1372);
    text[7 + 1372] = ']';
    r.subkey = (const uint8_t *)text;
    r.subkey_n = 7 + 1372 + 1;
    assert_true(record_check_cost(&r) > 12 * of_2048);
    bytes_clear(&subkey);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_holder_gets_its_burst_and_its_rate),
        cmocka_unit_test(a_full_table_forgets_the_least_used),
        cmocka_unit_test(signature_checks_are_charged_to_the_caller),
        cmocka_unit_test(a_subnets_peers_share_a_limit),
        cmocka_unit_test(long_keys_cost_more),
    };
    return cmocka_run_group_tests(tests, make_key, free_key);
}
