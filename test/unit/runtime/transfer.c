/* transfer.c - copies and devices of a backend that has neither: a copy is complete at once, and there
 * is one device, number 0. A backend that has them is asked, and its answer passed on. */
#include "runtime/transfer.h"
#include "test/unit/unit.h"

static struct pl_backend be;
static int numbers_seen[3], count_seen, index_seen, copy_seen;
static const void *joined;

static void without_devices(void **state)
{
    static const int zero[] = { 0 }, one[] = { 1 }, two[] = { 0, 1 };
    float x[3] = { 1, 2, 3 }, y[3] = { 10, 20, 30 };
    uint64_t ticket = 7;
    uint8_t *host;
    pl_backend_ref(&be);
    assert_int_equal(pl_device_count(&be), 1);
    assert_int_equal(pl_set_devices(&be, NULL, 0), PL_OK);
    assert_int_equal(pl_set_devices(&be, zero, 1), PL_OK);
    assert_int_equal(pl_set_devices(&be, one, 1), PL_EUSE);
    assert_int_equal(pl_set_devices(&be, two, 2), PL_EUSE);
    assert_int_equal(pl_use_device(&be, 0), PL_OK);
    assert_int_equal(pl_use_device(&be, 1), PL_EUSE);
    assert_int_equal(pl_peer_copy(&be, y, x, 0, 2, 1), PL_OK); /* adds */
    assert_true(y[0] == 11 && y[1] == 22 && y[2] == 30);
    assert_int_equal(pl_peer_copy(&be, y, x, 0, 2, 0), PL_OK); /* replaces */
    assert_true(y[0] == 1 && y[1] == 2 && y[2] == 30);
    assert_int_equal(pl_get_begin(&be, &ticket, y, x, sizeof x), PL_OK);
    assert_int_equal(ticket, 0);
    assert_memory_equal(y, x, sizeof x); /* without waiting */
    ticket = 7;
    x[0] = -1;
    assert_int_equal(pl_put_begin(&be, &ticket, y, x, sizeof x), PL_OK);
    assert_int_equal(ticket, 0);
    assert_memory_equal(y, x, sizeof x);
    assert_int_equal(pl_copy_end(&be, ticket), PL_OK);
    assert_int_equal(pl_copy_join(&be), PL_OK);
    assert_non_null(host = pl_host_alloc(&be, 100));
    assert_int_equal((uintptr_t)host % 64, 0); /* as pl_alloc aligns */
    for (int i = 0; i < 100; i++) assert_int_equal(host[i], 0);
    pl_host_free(&be, host);
}

static int set_devices(const int *numbers, int count)
{
    count_seen = count;
    for (int i = 0; i < count && i < 3; i++) numbers_seen[i] = numbers[i];
    return count == 3 ? PL_EUSE : PL_OK;
}

static int device_count(void) { return 4; }
static int use_device(int index)
{
    index_seen = index;
    return index == 3 ? PL_EDEVICE : PL_OK;
}

static int peer_copy(float *y, const float *x, int index, size_t n, int add)
{
    index_seen = index;
    copy_seen = (int)n * 10 + add;
    return y == x ? PL_EDEVICE : PL_OK;
}

static int get_begin(uint64_t *ticket, void *host, const void *device, size_t bytes)
{
    *ticket = bytes;
    joined = host;
    return device ? PL_OK : PL_EDEVICE;
}

static int put_begin(uint64_t *ticket, void *device, const void *host, size_t bytes)
{
    *ticket = 2 * bytes;
    joined = device;
    return host ? PL_OK : PL_EDEVICE;
}

static int copy_end(uint64_t ticket) { return ticket == 5 ? PL_EDEVICE : PL_OK; }
static int copy_join(void) { return joined ? PL_EDEVICE : PL_OK; }
static void *host_alloc(size_t bytes) { return bytes == 4096 ? numbers_seen : NULL; }
static void host_free(void *p) { joined = p; }

static void with_devices(void **state)
{
    static const int chosen[] = { 2, 0, 1 };
    float x[2], y[2];
    uint64_t ticket;
    pl_backend_ref(&be);
    be.set_devices = set_devices;
    be.device_count = device_count;
    be.use_device = use_device;
    be.peer_copy = peer_copy;
    be.get_begin = get_begin;
    be.put_begin = put_begin;
    be.copy_end = copy_end;
    be.copy_join = copy_join;
    be.host_alloc = host_alloc;
    be.host_free = host_free;
    assert_int_equal(pl_device_count(&be), 4);
    assert_int_equal(pl_set_devices(&be, chosen, 2), PL_OK);
    assert_true(count_seen == 2 && numbers_seen[0] == 2 && numbers_seen[1] == 0);
    assert_int_equal(pl_set_devices(&be, chosen, 3), PL_EUSE);
    assert_int_equal(pl_use_device(&be, 2), PL_OK);
    assert_int_equal(index_seen, 2);
    assert_int_equal(pl_use_device(&be, 3), PL_EDEVICE);
    assert_int_equal(pl_peer_copy(&be, y, x, 1, 2, 1), PL_OK);
    assert_true(index_seen == 1 && copy_seen == 21);
    assert_int_equal(pl_peer_copy(&be, x, x, 1, 2, 0), PL_EDEVICE);
    assert_int_equal(copy_seen, 20);
    assert_int_equal(pl_get_begin(&be, &ticket, y, x, 3), PL_OK);
    assert_true(ticket == 3 && joined == y);
    assert_int_equal(pl_get_begin(&be, &ticket, y, NULL, 3), PL_EDEVICE);
    assert_int_equal(pl_put_begin(&be, &ticket, x, y, 3), PL_OK);
    assert_true(ticket == 6 && joined == x);
    assert_int_equal(pl_put_begin(&be, &ticket, x, NULL, 3), PL_EDEVICE);
    assert_int_equal(pl_copy_end(&be, 4), PL_OK);
    assert_int_equal(pl_copy_end(&be, 5), PL_EDEVICE);
    assert_int_equal(pl_copy_join(&be), PL_EDEVICE);
    assert_ptr_equal(pl_host_alloc(&be, 4096), numbers_seen);
    pl_host_free(&be, NULL);
    assert_int_equal(pl_copy_join(&be), PL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_devices),
        cmocka_unit_test(with_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
