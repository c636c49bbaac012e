/* rate_limit.c - token buckets, and the work that they bound: signature checks of records that
 * peers store. */
#include "net/hivemind/dht_core/dht_members.h"
#include "net/hivemind/kademlia/dht_result.h"
#include "net/hivemind/kademlia/dht_serve.h"
#include "net/hivemind/records/hash_index.h"
#include "net/rate_limit.h"
#include "test/unit/unit.h"

#include <math.h>

static int take_many(struct rate_limit *l, uint64_t holder, int count, double now)
{
    int taken = 0;
    for (int i = 0; i < count; i++) taken += rate_limit_take(l, holder, 1, now);
    return taken;
}

static void a_holder_gets_its_burst_and_its_rate(void **state)
{
    struct rate_limit *l = calloc(1, sizeof *l);
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

static int make_key(void **state) { return rsa_key_make(&key, NULL); }

static int free_key(void **state)
{
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

/* A record that is stored again unchanged costs no check, whether a stranger or our own cache
 * stores it. */
static void known_records_cost_nothing(void **state)
{
    static const struct validators none = { 0 };
    static struct dht_state node;
    const struct dht_id self = { { 1 } };
    const struct dht_caller caller = { .peer = { 34, { 0x12, 0x20, 1 } }, .subnet = 11 };
    const double now = 1000;
    assert_int_equal(dht_state_init(&node, &self, 0, &none), PL_OK);
    for (int i = 0; i < DHT_CHECKS_BURST / 100; i++) {
        struct signed_record s;
        sign(&s, &caller, now + 50);
        for (int k = 0; k < 200; k++)
            assert_int_equal(dht_state_store(&node, now, &s.r), i || k ? PL_EAGAIN : PL_OK);
        free_signed(&s);
    }
    assert_int_equal(store_good(&node, &caller, now, now + 51), PL_OK);
    dht_state_clear(&node);
}

/* The record as a node reports it to a search: a dictionary of one item. */
static int report(struct dht_result *best, const struct dht_reporter *from, double expiration,
                  int is_good)
{
    static const struct validators none = { 0 };
    struct dht_dictionary d;
    struct bytes packed = { 0 };
    struct signed_record s;
    int rc;
    sign(&s, NULL, expiration);
    if (!is_good) s.value.data[s.value.begin] ^= 2;
    dht_dictionary_init(&d);
    dht_dictionary_store(&d, 0, s.r.subkey, s.r.subkey_n, s.r.value, s.r.n, expiration);
    dht_dictionary_write(&packed, &d);
    rc = dht_result_merge(best, &none, &s.r.key, from, DHT_FOUND_DICTIONARY, bytes_at(&packed),
                          bytes_length(&packed), expiration);
    dht_dictionary_clear(&d);
    bytes_clear(&packed);
    free_signed(&s);
    return rc;
}

/* A search takes reports from any node, so those are charged as stores are. */
static void found_records_are_charged_to_their_reporter(void **state)
{
    static struct dht_checks checks;
    const struct peer_id stranger = { 34, { 0x12, 0x20, 1 } }, honest = { 34, { 0x12, 0x20, 2 } };
    struct dht_reporter bad = { &stranger, 1000, 11, &checks },
                        good = { &honest, 1000, 22, &checks };
    struct record r = {
        .key = (const uint8_t *)"k", .key_n = 1, .subkey = (const uint8_t *)"\xc0", .subkey_n = 1
    };
    struct dht_result best;
    struct bytes subkey = { 0 };
    dht_checks_init(&checks);
    dht_result_init(&best);
    assert_true(dht_checks_take(&checks, 1000, &stranger, 11, &r)); /* a plain record's is free */
    assert_int_equal(report(&best, &bad, 1050, 0), PL_EAGAIN);      /* checked: wrong */
    record_own_subkey(&subkey, &key);
    r.subkey = bytes_at(&subkey);
    r.subkey_n = bytes_length(&subkey);
    while (dht_checks_take(&checks, 1000, &stranger, 11, &r)) {}
    assert_int_equal(report(&best, &bad, 1051, 1), PL_EAGAIN); /* right, but not checked any more */
    assert_int_equal(report(&best, &good, 1052, 1), PL_OK);    /* another node's is */
    bad.now = 1001;
    assert_int_equal(report(&best, &bad, 1053, 1), PL_OK); /* a second later it may again */
    bad.checks = NULL;
    bytes_clear(&subkey);
    dht_result_clear(&best);
}

/* Each peer and subnet may try this many wrong tokens, and no member's token is ever refused. */
static void token_checks_are_charged_to_the_caller(void **state)
{
    struct dht_members *m = calloc(1, sizeof *m);
    struct peer_id stranger = { 34, { 0x12, 0x20, 1 } };
    const struct peer_id member = { 34, { 0x12, 0x20, 2 } }, new = { 34, { 0x12, 0x20, 3 } };
    int tries = 0;
    dht_members_add(m, &member, 5000);
    for (; dht_members_may_try(m, &stranger, 11, 1000); tries++)
        dht_members_failed(m, &stranger, 11, 1000);
    assert_int_equal(tries, DHT_FAILURES_BURST);
    assert_true(dht_members_may_try(m, &new, 11, 1000)); /* another peer of its subnet */
    assert_true(dht_members_may_try(m, &stranger, 11, 1001.1));
    for (int id = 4; dht_members_may_try(m, &new, 11, 1000); id++) {
        stranger.bytes[2] = (uint8_t)id;
        assert_true(++tries < 10000);
        dht_members_failed(m, &stranger, 11, 1000);
    }
    assert_int_equal(tries, DHT_SUBNET_FAILURES_BURST);
    assert_true(dht_members_may_try(m, &member, 11, 1000));
    assert_true(dht_members_may_try(m, &new, 12, 1000));
    dht_members_add(m, &member, 999); /* its token has expired */
    assert_false(dht_members_may_try(m, &member, 11, 1000));
    dht_members_close(m);
    free(m);
}

/* New peer IDs cost nothing, so a subnet has a limit of its own. */
static void a_subnets_peers_share_a_limit(void **state)
{
    static const struct validators none = { 0 };
    static struct dht_state node;
    const struct dht_id self = { { 1 } };
    struct dht_caller caller = { .peer = { 34, { 0x12, 0x20, 1 } }, .subnet = 11 };
    const double now = 1000;
    assert_int_equal(dht_state_init(&node, &self, 0, &none), PL_OK);
    for (int i = 0; i <= DHT_SUBNET_BURSTS; i++) {
        caller.peer.bytes[3] = (uint8_t)i;
        flood(&node, &caller, DHT_CHECKS_BURST, now);
    }
    caller.peer.bytes[3] = 0xff;
    assert_int_equal(store_good(&node, &caller, now, now + 51), PL_EAGAIN);
    caller.subnet = 12;
    assert_int_equal(store_good(&node, &caller, now, now + 51), PL_OK);
    dht_state_clear(&node);
}

static int add(struct dht_state *node, const struct dht_caller *caller, double now, uint8_t first)
{
    const struct dht_id at = { { first } };
    return dht_checks_add(&node->checks, now, &caller->peer, caller->subnet, &at, DHT_SIGNED);
}

/* A caller adds a limited number of owners under one key. Known owners renew their records for
 * nothing, and other keys and callers have allowances of their own. */
static void new_owners_are_charged_to_caller_and_key(void **state)
{
    static const struct validators none = { 0 };
    static struct dht_state node;
    const struct dht_id self = { { 1 } };
    struct dht_caller stranger = { .peer = { 34, { 0x12, 0x20, 1 } }, .subnet = 11 };
    const struct dht_caller honest = { .peer = { 34, { 0x12, 0x20, 2 } }, .subnet = 22 };
    const double now = 1000;
    int left = DHT_OWNERS_BURST;
    assert_int_equal(dht_state_init(&node, &self, 0, &none), PL_OK);
    while (left && add(&node, &stranger, now, 3)) left--;
    assert_int_equal(left, 0);
    assert_int_equal(store_good(&node, &stranger, now, now + 50), PL_EAGAIN);
    assert_true(add(&node, &stranger, now, 4));
    assert_int_equal(store_good(&node, &honest, now, now + 50), PL_OK);
    assert_int_equal(store_good(&node, &stranger, now, now + 51), PL_OK); /* known by now */
    assert_false(add(&node, &stranger, now, 3));
    assert_true(add(&node, &stranger, now + 1.1 / DHT_OWNERS_A_SECOND, 3));
    /* New names of one subnet: each has its own allowance until the subnet's is spent. */
    for (left = DHT_SUBNET_BURSTS * DHT_OWNERS_BURST; left > 0; left--) {
        stranger.peer.bytes[3] = (uint8_t)(1 + left * 8 / (DHT_SUBNET_BURSTS * DHT_OWNERS_BURST));
        if (!add(&node, &stranger, now, 5)) break;
    }
    assert_int_equal(left, 0);
    stranger.peer.bytes[3] = 99;
    assert_false(add(&node, &stranger, now, 5));
    assert_true(add(&node, &honest, now, 5));
    dht_state_clear(&node);
}

static int store_value(struct dht_state *node, const struct dht_caller *caller, double now)
{
    const struct dht_record r = { .key = { { 6 } },
                                  .subkey = (const uint8_t *)"\xc0",
                                  .subkey_n = 1,
                                  .value = (const uint8_t *)"\x01",
                                  .n = 1,
                                  .expiration = now + 50,
                                  .caller = caller };
    return dht_state_store(node, now, &r);
}

/* Each one replaces the last, so that bytes are no limit. */
static void values_are_charged_to_the_caller(void **state)
{
    static const struct validators none = { 0 };
    static struct dht_state node;
    const struct dht_id self = { { 1 } };
    const struct dht_caller stranger = { .peer = { 34, { 0x12, 0x20, 1 } }, .subnet = 11 };
    const struct dht_caller honest = { .peer = { 34, { 0x12, 0x20, 2 } }, .subnet = 11 };
    double now = 1000;
    assert_int_equal(dht_state_init(&node, &self, 0, &none), PL_OK);
    for (int i = 0; i < DHT_UNSIGNED_BURST; i++, now += 1e-9)
        assert_int_equal(store_value(&node, &stranger, now), PL_OK);
    assert_int_equal(store_value(&node, &stranger, now), PL_EAGAIN);
    assert_int_equal(store_value(&node, &honest, now), PL_OK);
    now += 1.0;
    for (int i = 0; i < DHT_UNSIGNED_A_SECOND; i++, now += 1e-9)
        assert_int_equal(store_value(&node, &stranger, now), PL_OK);
    assert_int_equal(store_value(&node, &stranger, now), PL_EAGAIN);
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
        cmocka_unit_test(known_records_cost_nothing),
        cmocka_unit_test(found_records_are_charged_to_their_reporter),
        cmocka_unit_test(token_checks_are_charged_to_the_caller),
        cmocka_unit_test(new_owners_are_charged_to_caller_and_key),
        cmocka_unit_test(values_are_charged_to_the_caller),
        cmocka_unit_test(long_keys_cost_more),
    };
    return cmocka_run_group_tests(tests, make_key, free_key);
}
