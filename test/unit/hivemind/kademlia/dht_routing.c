/* dht_routing.c - properties of the routing table for any order of contacts, not only the recorded
 * ones. */
#include "net/hivemind/kademlia/dht_routing.h"
#include "ref/rng.h"
#include "test/unit/unit.h"

static void draw(struct dht_id *id, struct peer_id *peer, struct pl_rng *rng,
                 const struct dht_id *near)
{
    int common = near ? (int)pl_rng_below(rng, 40) : 0;
    for (int i = 0; i < DHT_ID_BYTES; i++) id->bytes[i] = (uint8_t)pl_rng_u64(rng);
    for (int bit = 0; near && bit < common; bit++) {
        uint8_t mask = (uint8_t)(0x80 >> bit % 8);
        id->bytes[bit / 8] = (uint8_t)((id->bytes[bit / 8] & ~mask) |
                                       (near->bytes[bit / 8] & mask));
    }
    memset(peer, 0, sizeof *peer);
    peer->length = 34;
    memcpy(peer->bytes, id->bytes, DHT_ID_BYTES);
}

static void check(const struct dht_routing *r)
{
    for (size_t i = 0; i < r->count; i++) {
        const struct dht_bucket *b = &r->buckets[i];
        assert_true(b->nodes.count <= r->bucket_size);
        assert_true(b->nodes.count == r->bucket_size || !b->replacements.count);
        for (size_t k = 0; k < b->nodes.count; k++)
            assert_true(dht_id_common_bits(&b->lower, &b->nodes.at[k].id) >= b->depth);
        if (i) assert_true(dht_id_compare(&r->buckets[i - 1].lower, &b->lower) < 0);
    }
}

static void random_contacts(void **state)
{
    struct pl_rng rng;
    pl_rng_init(&rng, 7, 0);
    for (int round = 0; round < 6; round++) {
        struct dht_id self, ids[600], query;
        struct peer_id peers[600], none;
        struct dht_routing r;
        draw(&self, &none, &rng, NULL);
        assert_int_equal(dht_routing_init(&r, &self, 1 + pl_rng_below(&rng, 20),
                                          1 + (int)pl_rng_below(&rng, 6)),
                         PL_OK);
        for (int i = 0; i < 600; i++) draw(&ids[i], &peers[i], &rng, &self);
        for (int step = 0; step < 3000; step++) {
            size_t i = pl_rng_below(&rng, 600);
            if (pl_rng_below(&rng, 4)) {
                assert_int_equal(dht_routing_add(&r, &ids[i], &peers[i], step, NULL), PL_OK);
                assert_non_null(dht_routing_find(&r, &ids[i]));
            } else {
                dht_routing_remove(&r, &ids[i]);
                assert_null(dht_routing_find(&r, &ids[i]));
            }
        }
        check(&r);
        draw(&query, &none, &rng, &self);
        for (size_t k = 1; k < 50; k += 7) { /* the same as sorting everybody */
            struct dht_contact near[50];
            size_t n = dht_routing_nearest(&r, near, k, &query, &ids[0]), beyond = 0;
            assert_true(n == k || n + 1 >= dht_routing_size(&r));
            for (size_t i = 1; i < n; i++)
                assert_true(dht_id_nearer(&near[i - 1].id, &near[i].id, &query) < 0);
            for (size_t b = 0; b < r.count; b++)
                for (size_t i = 0; n && i < r.buckets[b].nodes.count; i++) {
                    const struct dht_id *id = &r.buckets[b].nodes.at[i].id;
                    beyond += !dht_id_equal(id, &ids[0]) &&
                              dht_id_nearer(id, &near[n - 1].id, &query) <= 0;
                }
            assert_true(beyond == n);
        }
        dht_routing_clear(&r);
    }
}

/* The longest silent node is asked first; each once, until it is heard of. */
static void asks_the_silent(void **state)
{
    struct dht_id self = { { 0x80 } }, ids[8];
    struct peer_id peers[8];
    struct dht_contact ask;
    struct dht_routing r;
    struct pl_rng rng;
    pl_rng_init(&rng, 1, 0);
    dht_routing_init(&r, &self, 2, 1);
    for (int i = 0; i < 8; i++) {
        draw(&ids[i], &peers[i], &rng, NULL);
        ids[i].bytes[0] &= 0x3f; /* all in the half that is not ours */
    }
    dht_routing_add(&r, &ids[0], &peers[0], 1, &ask);
    dht_routing_add(&r, &ids[1], &peers[1], 2, &ask);
    dht_routing_add(&r, &self, &peers[0], 2, &ask);
    assert_null(dht_routing_find(&r, &self));
    for (int i = 2; i < 4; i++) {
        dht_routing_add(&r, &ids[i], &peers[i], i + 1, &ask);
        assert_true(ask.peer.length && dht_id_equal(&ask.id, &ids[i - 2]));
    }
    dht_routing_add(&r, &ids[4], &peers[4], 5, &ask);
    assert_int_equal(ask.peer.length, 0); /* both are asked already */
    dht_routing_add(&r, &ids[0], &peers[0], 6, &ask);
    dht_routing_add(&r, &ids[5], &peers[5], 7, &ask);
    assert_true(dht_id_equal(&ask.id, &ids[0]));
    dht_routing_remove(&r, &ids[1]); /* the youngest of those waiting takes the place */
    assert_true(dht_id_equal(&r.buckets[0].nodes.at[1].id, &ids[5]));
    assert_true(dht_id_equal(&dht_routing_oldest(&r)->id, &ids[0]));
    dht_routing_clear(&r);
}

static void replacements_are_bounded(void **state)
{
    struct dht_id self = { { 0x80 } };
    struct dht_routing r;
    dht_routing_init(&r, &self, 1, 1);
    for (unsigned i = 0; i < DHT_REPLACEMENTS_MAX + 100; i++) {
        struct dht_id id = { { 0, (uint8_t)(i >> 8), (uint8_t)i } };
        struct peer_id peer = { .length = 34 };
        dht_routing_add(&r, &id, &peer, i, NULL);
    }
    assert_true(r.buckets[0].replacements.count == DHT_REPLACEMENTS_MAX);
    assert_int_equal(r.buckets[0].replacements.at[0].seen, 100);
    dht_routing_clear(&r);
}

static void refresh(void **state)
{
    struct dht_id self = { { 0x80 } }, id;
    struct peer_id peer = { .length = 34 };
    struct dht_routing r;
    dht_routing_init(&r, &self, 1, 1);
    for (int i = 0; i < 40; i++) {
        id = self;
        id.bytes[i / 8] ^= (uint8_t)(0x80 >> i % 8);
        dht_routing_add(&r, &id, &peer, 10 + i, NULL);
    }
    assert_int_equal(dht_routing_refresh(&r, &id, r.buckets[0].updated, 200), PL_EAGAIN);
    for (size_t i = 0; i < r.count; i++) { /* each bucket once, ids inside it */
        assert_int_equal(dht_routing_refresh(&r, &id, 100, 200), PL_OK);
        assert_int_equal(r.count, 41);
    }
    assert_int_equal(dht_routing_refresh(&r, &id, 100, 200), PL_EAGAIN);
    dht_routing_clear(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_contacts),
        cmocka_unit_test(asks_the_silent),
        cmocka_unit_test(replacements_are_bounded),
        cmocka_unit_test(refresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
