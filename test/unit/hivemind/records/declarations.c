/* declarations.c - declarations of peers that search for a group: whose declarations count, and how
 * much. */
#include "net/hivemind/moderation/auth.h"
#include "net/hivemind/kademlia/dht_result.h"
#include "net/hivemind/kademlia/dht_serve.h"
#include "net/hivemind/progress/progress.h"
#include "test/unit/unit.h"

#include <math.h>
#include <openssl/evp.h>

static struct validators guarded;

static struct peer_id peer_number(uint8_t x)
{
    struct peer_id id = { 34, { 0x12, 0x20, x } };
    return id;
}

/* The subkey that names a peer. */
static struct bytes subkey_of(const struct peer_id *peer)
{
    struct bytes b = { 0 };
    mp_bin(&b, peer->bytes, peer->length);
    return b;
}

/* Stores one declaration of `named`; caller NULL: handed on. */
static int declare(struct dht_state *node, double now, const struct peer_id *caller,
                   const struct peer_id *named, int active, double expiration)
{
    struct dht_caller from = { .subnet = 1 };
    struct bytes subkey = subkey_of(named);
    struct dht_record r = { .key = { { 7 } },
                            .subkey = bytes_at(&subkey),
                            .subkey_n = bytes_length(&subkey),
                            .value = (const uint8_t *)(active ? "\xc3" : "\xc2"),
                            .n = 1,
                            .expiration = expiration,
                            .caller = caller ? &from : NULL };
    int rc;
    if (caller) from.peer = *caller;
    rc = dht_state_store(node, now, &r);
    bytes_clear(&subkey);
    return rc;
}

static void only_its_peer_changes_a_declaration(void **state)
{
    const struct peer_id honest = peer_number(1), stranger = peer_number(2);
    struct dht_id self = { { 1 } }, key_id = { { 7 } };
    struct dht_state node;
    struct dht_item whole = { .value = (uint8_t *)(uintptr_t) "\x07", .n = 1, .expiration = 1000 };
    dht_state_init(&node, &self, 0, &guarded);
    assert_int_equal(declare(&node, 0, &stranger, &honest, 0, 900), PL_EAGAIN);
    assert_int_equal(declare(&node, 0, &honest, &honest, 1, 15), PL_OK);
    assert_int_equal(declare(&node, 0, &stranger, &honest, 0, 900), PL_EAGAIN);
    assert_int_equal(declare(&node, 0, &stranger, &honest, 1, 900), PL_EAGAIN);
    assert_int_equal(declare(&node, 0, NULL, &honest, 0, 900), PL_EAGAIN);
    assert_int_equal(dht_store_put(&node.storage, 0, &key_id, &whole), PL_EAGAIN);
    assert_int_equal(dht_state_get(&node, 0, &key_id)->dictionary.items[0].value[0], 0xc3);
    assert_int_equal(declare(&node, 0, &honest, &honest, 0, nextafter(15, 16)), PL_OK);
    assert_int_equal(dht_state_get(&node, 0, &key_id)->dictionary.items[0].value[0], 0xc2);
    dht_state_clear(&node);
}

/* Stores n unsigned bytes, or lets a reader leave them in the cache. */
static int store_plain(struct dht_state *node, double now, const uint8_t *value, size_t n,
                       double expiration, int in_cache)
{
    const struct dht_caller from = { .peer = peer_number(2), .subnet = 2 };
    struct dht_record r = { .key = { { 7 } },
                            .subkey = dht_no_subkey,
                            .subkey_n = sizeof dht_no_subkey,
                            .value = value,
                            .n = n,
                            .expiration = expiration,
                            .in_cache = in_cache,
                            .caller = &from };
    return dht_state_store(node, now, &r);
}

static void cached_values_hide_no_declaration(void **state)
{
    static struct dht_state node;
    const struct peer_id honest = peer_number(1);
    const struct dht_id self = { { 1 } }, key_id = { { 7 } };
    dht_state_init(&node, &self, 0, &guarded);
    assert_int_equal(store_plain(&node, 0, (const uint8_t *)"\x07", 1, 40, 1), PL_OK);
    assert_non_null(dht_state_get(&node, 0, &key_id)->value); /* there is nothing better yet */
    assert_int_equal(declare(&node, 0, &honest, &honest, 1, 15), PL_OK);
    assert_int_equal(dht_state_get(&node, 0, &key_id)->dictionary.count, 1);
    assert_int_equal(store_plain(&node, 0, (const uint8_t *)"\x07", 1, 50, 1), PL_EAGAIN);
    assert_non_null(dht_state_get(&node, 16, &key_id)->value); /* the declaration has expired */
    assert_int_equal(store_plain(&node, 16, (const uint8_t *)"\x07", 1, 50, 1), PL_OK);
    dht_state_clear(&node);
}

/* Asks a node for the key; returns the result. */
static struct dht_found find(struct dht_state *node, double now)
{
    const struct dht_id key_id = { { 7 } };
    const struct dht_caller caller = { .peer = peer_number(3), .subnet = 3 };
    struct bytes request = { 0 }, answer = { 0 };
    struct dht_request r;
    struct dht_answer a;
    struct dht_found f;
    dht_write_find(&request, NULL, &key_id, 1);
    assert_int_equal(dht_serve(node, DHT_FIND, now, &caller, bytes_at(&request),
                               bytes_length(&request), &answer, &r, NULL),
                     PL_OK);
    assert_int_equal(dht_read_answer(&a, DHT_FIND, 1, bytes_at(&answer), bytes_length(&answer),
                                     NULL),
                     PL_OK);
    f = a.found[0];
    dht_answer_clear(&a);
    dht_request_clear(&r);
    bytes_clear(&request);
    bytes_clear(&answer);
    return f;
}

/* A search for declarations brings a stranger's longest value eight times at once, then no
 * more than 64 KiB a second; declarations always. */
static void plain_answers_have_an_allowance(void **state)
{
    static struct dht_state node;
    const struct peer_id honest = peer_number(1);
    const struct dht_id self = { { 1 } };
    uint8_t *value = calloc(1, DHT_VALUE_MAX), subkey[] = { 0xa1, 'x' };
    struct dht_record item = { .key = { { 7 } },
                               .subkey = subkey,
                               .subkey_n = sizeof subkey,
                               .value = value,
                               .n = 400 << 10,
                               .expiration = 190 };
    size_t before;
    dht_state_init(&node, &self, 0, &guarded);
    assert_int_equal(store_plain(&node, 0, value, DHT_VALUE_MAX, 100, 0), PL_OK);
    for (int i = 0; i < 8; i++) assert_int_equal(find(&node, 0).n, DHT_VALUE_MAX);
    assert_int_equal(find(&node, 0).type, DHT_NOT_FOUND);
    assert_int_equal(find(&node, 15.5).type, DHT_NOT_FOUND);
    assert_int_equal(find(&node, 16.5).type, DHT_FOUND_REGULAR);
    assert_int_equal(find(&node, 16.5).type, DHT_NOT_FOUND);
    /* Nor does a long item in their dictionary hide or delay declarations. */
    assert_int_equal(declare(&node, 17, &honest, &honest, 1, 180), PL_OK);
    before = find(&node, 17).n;
    assert_int_equal(dht_state_store(&node, 17, &item), PL_OK);
    assert_int_equal(find(&node, 17).type, DHT_FOUND_DICTIONARY);
    assert_int_equal(find(&node, 17).n, before);
    assert_true(find(&node, 60).n > item.n);
    /* Short values cost nothing. */
    assert_int_equal(store_plain(&node, 200, value, DHT_PLAIN_ANSWER_FREE, 300, 0), PL_OK);
    for (int i = 0; i < 5000; i++) assert_int_equal(find(&node, 200).n, DHT_PLAIN_ANSWER_FREE);
    free(value);
    dht_state_clear(&node);
}

/* Node `teller`'s report about `named`. */
static void report(struct dht_result *r, const struct peer_id *teller, const struct peer_id *named,
                   int active, double expiration)
{
    const struct dht_reporter from = { .peer = teller };
    const struct dht_id key_id = { { 7 } };
    struct bytes subkey = subkey_of(named), packed = { 0 };
    struct dht_dictionary d;
    dht_dictionary_init(&d);
    dht_dictionary_store(&d, 0, bytes_at(&subkey), bytes_length(&subkey), active ? "\xc3" : "\xc2",
                         1, expiration);
    dht_dictionary_write(&packed, &d);
    dht_result_merge(r, &guarded, &key_id, &from, DHT_FOUND_DICTIONARY, bytes_at(&packed),
                     bytes_length(&packed), expiration);
    dht_dictionary_clear(&d);
    bytes_clear(&subkey);
    bytes_clear(&packed);
}

static void withdrawal_by_another_peer_is_a_hint(void **state)
{
    const struct peer_id a = peer_number(1), b = peer_number(2), attacker = peer_number(3),
                         node = peer_number(4);
    struct dht_result r;
    dht_result_init(&r);
    report(&r, &attacker, &a, 0, 900); /* hidden by one, shown by another */
    report(&r, &node, &a, 1, 15);
    report(&r, &b, &b, 1, 16); /* its own word, and others' */
    report(&r, &attacker, &b, 0, 900);
    assert_int_equal(dht_result_finish(&r, 1), PL_OK);
    assert_int_equal(r.claim_count, 2);
    assert_true(peer_id_equal(&r.claims[0].peer, &a) && r.claims[0].expiration == 15 &&
                !r.claims[0].own);
    assert_true(peer_id_equal(&r.claims[1].peer, &b) && r.claims[1].expiration == 16 &&
                r.claims[1].own);
    /* a dictionary cannot be hidden by a value either */
    {
        const struct dht_reporter from = { .peer = &attacker, .now = 1 };
        const struct dht_id key_id = { { 7 } };
        assert_int_equal(dht_result_merge(&r, &guarded, &key_id, &from, DHT_FOUND_REGULAR,
                                          (const uint8_t *)"\x07", 1, 3000),
                         PL_EAGAIN);
    }
    dht_result_clear(&r);
    dht_result_init(&r);
    report(&r, &a, &a, 0, nextafter(15, 16)); /* it has found a group; another is behind */
    report(&r, &node, &a, 1, 15);
    for (int i = 0; i < 20; i++) report(&r, &attacker, &b, 1, 100 + i);
    for (int i = 0; i < 2; i++) report(&r, &node, &b, 1, 17);
    assert_int_equal(dht_result_finish(&r, 1), PL_OK);
    assert_int_equal(r.claim_count, DHT_CLAIMS_OF_PEER);
    assert_true(peer_id_equal(&r.claims[0].peer, &b));
    assert_true(r.claims[0].expiration == 17); /* peers that most nodes report come first */
    dht_result_clear(&r);
}

/* A peer's own word comes first, then newer reports by others, those first that most nodes make; the
 * nodes answer in any order. A copy has the same claims. */
static void claims_are_sorted_out(void **state)
{
    enum { A, B, C, NODE, OTHER, PEERS };
    static const struct {
        int teller, named, active;
        double expiration;
    } claims[] = {
        { NODE, C, 1, 17 },  { A, A, 1, 15 },     { OTHER, B, 1, 17 }, { NODE, A, 1, 15 },
        { OTHER, C, 1, 18 }, { B, B, 0, 16 },     { OTHER, A, 1, 20 }, { NODE, B, 1, 15 },
        { NODE, A, 0, 30 },  { OTHER, C, 1, 17 }, { A, A, 1, 14 },
    };
    static const struct {
        int named, own, reports;
        double expiration;
    } want[] = {
        { A, 1, 1, 15 }, { A, 0, 1, 20 }, { B, 0, 1, 17 }, { C, 0, 2, 17 }, { C, 0, 1, 18 }
    };
    struct peer_id peer[PEERS];
    struct dht_result r, copy;
    for (int i = 0; i < PEERS; i++) peer[i] = peer_number((uint8_t)(i + 1));
    for (int turn = 0; turn < 2; turn++) {
        dht_result_init(&r);
        for (size_t i = 0; i < PL_COUNT(claims); i++) {
            const size_t k = turn ? PL_COUNT(claims) - 1 - i : i;
            report(&r, &peer[claims[k].teller], &peer[claims[k].named], claims[k].active,
                   claims[k].expiration);
        }
        assert_int_equal(dht_result_copy(&copy, &r), PL_OK);
        assert_int_equal(copy.claim_count, PL_COUNT(claims));
        dht_result_clear(&r);
        assert_int_equal(dht_result_finish(&copy, 1), PL_OK);
        assert_int_equal(copy.claim_count, PL_COUNT(want));
        for (size_t i = 0; i < PL_COUNT(want); i++) {
            const struct dht_claim *c = &copy.claims[i];
            assert_true(peer_id_equal(&c->peer, &peer[want[i].named]));
            assert_true(c->active && c->expiration == want[i].expiration);
            assert_int_equal(c->own, want[i].own);
            assert_int_equal(c->reports, want[i].reports);
        }
        dht_result_clear(&copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_its_peer_changes_a_declaration),
        cmocka_unit_test(cached_values_hide_no_declaration),
        cmocka_unit_test(plain_answers_have_an_allowance),
        cmocka_unit_test(claims_are_sorted_out),
        cmocka_unit_test(withdrawal_by_another_peer_is_a_hint),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
