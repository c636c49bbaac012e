/* hash_index.c - positions by hash, against a plain list: colliding hashes, removals in any order,
 * elements that move; and hashes that depend on every byte. */
#include "net/hivemind/records/hash_index.h"
#include "ref/rng.h"
#include "test/unit/unit.h"

#define MOST 200

static struct hash_index x;
static struct element {
    uint64_t hash;
    int is_there;
} model[MOST];

static int begin(void **state)
{
    memset(&x, 0, sizeof x);
    memset(model, 0, sizeof model);
    return 0;
}

static int end(void **state)
{
    hash_index_clear(&x);
    assert_null(x.slots);
    assert_int_equal(x.capacity + x.count, 0);
    return 0;
}

/* Every position under each hash is found once, and nothing else. */
static void compare(uint64_t hashes)
{
    size_t count = 0;
    for (uint64_t h = 0; h < hashes; h++) {
        int found[MOST] = { 0 };
        size_t probe = 0, at, n = 0, want = 0;
        while ((at = hash_index_next(&x, h, &probe)) != HASH_INDEX_END) {
            assert_true(at < MOST && model[at].is_there && model[at].hash == h && !found[at]);
            found[at] = 1;
            n++;
        }
        for (size_t i = 0; i < MOST; i++) want += model[i].is_there && model[i].hash == h;
        assert_int_equal(n, want);
        count += n;
    }
    assert_int_equal(x.count, count);
    assert_true(x.capacity >= 2 * count);
}

static void changes_against_a_list(void **state)
{
    static const uint64_t hashes[] = { 3, 40, 1000 }; /* nearly all collide, or few */
    for (size_t k = 0; k < sizeof hashes / sizeof *hashes; k++) {
        struct pl_rng rng;
        pl_rng_init(&rng, k, 0);
        begin(NULL);
        for (int step = 0; step < 1500; step++) {
            const size_t at = pl_rng_below(&rng, MOST), to = pl_rng_below(&rng, MOST);
            if (!model[at].is_there) {
                model[at] = (struct element){ pl_rng_below(&rng, (uint32_t)hashes[k]), 1 };
                assert_int_equal(hash_index_reserve(&x), PL_OK);
                hash_index_add(&x, model[at].hash, at);
            } else if (!model[to].is_there) {
                hash_index_move(&x, model[at].hash, at, to);
                model[to] = model[at];
                model[at].is_there = 0;
            } else {
                hash_index_remove(&x, model[at].hash, at);
                model[at].is_there = 0;
            }
            if (step % 50 == 0) compare(hashes[k]);
        }
        compare(hashes[k]);
        hash_index_empty(&x);
        memset(model, 0, sizeof model);
        compare(hashes[k]);
        hash_index_clear(&x);
    }
}

/* Nothing is found in an index without memory. */
static void an_index_of_nothing(void **state)
{
    size_t probe = 0;
    assert_int_equal(hash_index_next(&x, 7, &probe), HASH_INDEX_END);
    hash_index_empty(&x);
    assert_int_equal(x.capacity, 0);
}

/* Each byte counts, and the length does: bytes of 0 behind the others are another key. */
static void hashes_of_bytes(void **state)
{
    enum { LONGEST = 40 };
    uint8_t data[LONGEST + 1] = { 0 }, moved[LONGEST + 1];
    uint64_t of_length[LONGEST + 1];
    for (size_t n = 0; n <= LONGEST; n++) {
        of_length[n] = hash_bytes(data, n);
        for (size_t k = 0; k < n; k++) assert_true(of_length[k] != of_length[n]);
    }
    for (size_t i = 0; i < LONGEST; i++) data[i] = (uint8_t)(7 * i + 1);
    for (size_t n = 1; n <= LONGEST; n++) {
        const uint64_t before = hash_bytes(data, n);
        memcpy(moved + 1, data, n); /* elsewhere, the same */
        assert_true(hash_bytes(moved + 1, n) == before);
        for (size_t i = 0; i < n; i++) {
            data[i] ^= 0x10;
            assert_true(hash_bytes(data, n) != before);
            data[i] ^= 0x10;
        }
        data[n - 1] ^= 0x80; /* and two changes do not undo each other */
        data[0] ^= 0x80;
        if (n > 1) assert_true(hash_bytes(data, n) != before);
        data[n - 1] ^= 0x80;
        data[0] ^= 0x80;
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(changes_against_a_list),
        TEST(an_index_of_nothing),
        TEST(hashes_of_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
