/* buffer_queue.c - bytes leave a queue in the order in which they were added, however that was
 * done; memory that is given to it is neither copied nor lost. */
#include "net/buffer_queue.h"
#include "test/unit/unit.h"

static uint8_t nth(size_t i) { return (uint8_t)(i * 2654435761u >> 24); }

static void fill(uint8_t *to, size_t at, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = nth(at + i);
}

/* Adds, gives and takes of all sizes, at random. */
static void queue_keeps_order_and_bytes(void **state)
{
    static uint8_t some[40000];
    struct buffer_queue c = { 0 };
    struct bytes given = { 0 };
    uint32_t seed = 1;
    size_t in = 0, out = 0, n;
    for (int step = 0; step < 4000; step++) {
        seed = seed * 1664525u + 1013904223u;
        n = seed >> 12 & 1 ? seed >> 16 & 31 : (seed >> 16) % sizeof some;
        if (seed >> 8 & 1 && c.length < 1 << 20) {
            fill(some, in, n);
            if (seed >> 9 & 1) {
                assert_int_equal(buffer_queue_add(&c, some, n), PL_OK);
            } else {
                assert_int_equal(bytes_add(&given, some, n), PL_OK);
                assert_int_equal(buffer_queue_give(&c, &given), PL_OK);
                assert_int_equal(bytes_length(&given), 0);
            }
            in += n;
        } else {
            size_t there;
            const uint8_t *at = buffer_queue_at(&c, &there);
            if (n > there) n = there;
            for (size_t i = 0; i < n; i++) assert_int_equal(at[i], nth(out + i));
            buffer_queue_take(&c, n);
            out += n;
        }
        assert_int_equal(c.length, in - out);
    }
    buffer_queue_clear(&c);
    bytes_clear(&given);
}

/* Ten messages one behind the other need no other memory than two at a time do. */
static void memory_comes_back(void **state)
{
    static uint8_t some[100000];
    struct buffer_queue c = { 0 };
    struct bytes given = { 0 };
    const uint8_t *place[10];
    for (size_t k = 0; k < 10; k++) {
        size_t n;
        assert_int_equal(bytes_add(&given, some, sizeof some), PL_OK);
        place[k] = given.data;
        assert_int_equal(buffer_queue_give(&c, &given), PL_OK);
        assert_int_equal(buffer_queue_add(&c, "header", 6), PL_OK); /* behind it, in its buffer */
        assert_ptr_equal(c.last->bytes.data, place[k]);
        assert_ptr_equal(given.data, k < 2 ? NULL : place[k - 2]);
        if (!k) continue;
        assert_ptr_equal(buffer_queue_at(&c, &n), place[k - 1]);
        assert_int_equal(n, sizeof some + 6);
        buffer_queue_take(&c, n);
    }
    buffer_queue_clear(&c);
    bytes_clear(&given);
}

/* A buffer that has failed is refused, and the queue stays as it is. */
static void failures(void **state)
{
    struct buffer_queue c = { 0 };
    struct bytes broken = { .limit = 1 };
    assert_int_equal(buffer_queue_add(&c, "before", 6), PL_OK);
    assert_int_equal(bytes_add(&broken, "12", 2), PL_ELIMIT);
    assert_int_equal(buffer_queue_give(&c, &broken), PL_ELIMIT);
    assert_int_equal(c.length, 6);
    buffer_queue_clear(&c);
    assert_int_equal(c.length, 0);
    bytes_clear(&broken);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(queue_keeps_order_and_bytes),
        cmocka_unit_test(memory_comes_back),
        cmocka_unit_test(failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
