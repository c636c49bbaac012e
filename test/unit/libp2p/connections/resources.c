/* resources.c - accounts and scopes: the scopes to which use is charged, refusals, and the largest
 * holder. */
#include "net/libp2p/connections/resources.h"
#include "test/unit/unit.h"

#define MIB ((size_t)1 << 20)

static struct resources all;

/* As the host does it: text "/ip4/...", peer 0: not yet known. */
static void open_account(struct account *a, const char *text, int peer, int dialled)
{
    struct multiaddr at;
    struct peer_id id = { .length = 34 };
    assert_int_equal(multiaddr_from_text(&at, text, NULL), PL_OK);
    memset(a, 0, sizeof *a);
    assert_int_equal(resources_open(&all, a, &at, dialled, 0), PL_OK);
    memset(id.bytes, peer, id.length);
    if (peer) assert_int_equal(resources_authenticate(a, &id), PL_OK);
}

static struct peer_id peer_number(int peer)
{
    struct peer_id id = { .length = 34 };
    memset(id.bytes, peer, id.length);
    return id;
}

static enum scope_kind refused(struct account *a, enum resource kind, size_t n)
{
    const struct scope *full = resources_charge(a, kind, n);
    assert_non_null(full);
    return full->kind;
}

/* After the accounts are closed, nothing is left in any scope. */
static void finish(struct account *accounts, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        resources_close(&accounts[i]);
        resources_close(&accounts[i]);
    }
    assert_null(all.scopes);
    assert_null(all.accounts);
    for (int k = 0; k < RESOURCES; k++) {
        assert_int_equal(all.system.used[k], 0);
        assert_int_equal(all.reserved.used[k], 0);
        assert_int_equal(all.transient.used[k], 0);
    }
    resources_clear(&all);
}

/* A refusal charges nothing anywhere; the nearest scope is named. */
static void limits(void **state)
{
    struct account a[3];
    size_t peer;
    resources_init(&all, SIZE_MAX);
    peer = resources_limit(&all, SCOPE_PEER, RESOURCE_HELD);
    open_account(&a[0], "/ip4/1.2.3.4/tcp/1", 1, 0);
    open_account(&a[1], "/ip4/9.9.9.9/tcp/1", 1, 0);   /* the same peer from elsewhere */
    open_account(&a[2], "/ip4/1.2.3.200/tcp/1", 2, 0); /* another in its /24 */
    assert_null(resources_charge(&a[0], RESOURCE_HELD, peer - 1));
    assert_int_equal(refused(&a[1], RESOURCE_HELD, 2), SCOPE_PEER);
    assert_int_equal(a[1].used[RESOURCE_HELD], 0);
    assert_int_equal(all.system.used[RESOURCE_HELD], peer - 1);
    assert_null(resources_charge(&a[1], RESOURCE_HELD, 1));
    assert_null(resources_charge(&a[2], RESOURCE_HELD, peer)); /* 192 MiB: the subnet's 1 is free */
    assert_int_equal(a[0].subnet->used[RESOURCE_HELD], 2 * peer - 1);
    resources_release(&a[0], RESOURCE_HELD, 10);
    assert_int_equal(refused(&a[0], RESOURCE_HELD, 11), SCOPE_PEER);
    assert_int_equal(refused(&a[0], RESOURCE_HELD, SIZE_MAX), SCOPE_PEER); /* no overflow */
    assert_int_equal(all.system.used[RESOURCE_HELD], 2 * peer - 10);
    finish(a, 3);
}

/* Two addresses of a public /24 or of an IPv6 /64 are one owner's, two loopback addresses are
 * not. */
static void subnets(void **state)
{
    static const struct {
        const char *a, *b;
        int same;
        enum scope_kind kind;
    } pairs[] = {
        { "/ip4/1.2.3.4/tcp/1", "/ip4/1.2.3.9/tcp/2", 1, SCOPE_SUBNET },
        { "/ip4/1.2.3.4/tcp/1", "/ip4/1.2.4.4/tcp/1", 0, SCOPE_SUBNET },
        { "/ip6/2001:db8::1/tcp/1", "/ip6/2001:db8::ffff:1/tcp/1", 1, SCOPE_SUBNET },
        { "/ip6/2001:db8::1/tcp/1", "/ip6/2001:db8:0:1::1/tcp/1", 0, SCOPE_SUBNET },
        { "/ip4/127.0.0.1/tcp/1", "/ip4/127.0.0.1/tcp/2", 1, SCOPE_MACHINE },
        { "/ip4/127.0.0.1/tcp/1", "/ip4/127.0.0.2/tcp/1", 0, SCOPE_MACHINE },
    };
    struct account a[2];
    for (size_t i = 0; i < PL_COUNT(pairs); i++) {
        resources_init(&all, SIZE_MAX);
        open_account(&a[0], pairs[i].a, 0, 0);
        open_account(&a[1], pairs[i].b, 0, 0);
        if ((a[0].subnet == a[1].subnet) != pairs[i].same) fail_msg("%s", pairs[i].b);
        assert_int_equal(a[0].subnet->kind, pairs[i].kind);
        finish(a, 2);
    }
}

/* Unproven connections have a scope of their own; with the handshake they leave it. */
static void transient(void **state)
{
    static struct account a[1000];
    size_t most, n = 0;
    resources_init(&all, SIZE_MAX);
    most = resources_limit(&all, SCOPE_TRANSIENT, RESOURCE_CONNECTIONS);
    for (; n <= most; n++) {
        open_account(&a[n], "/ip4/127.0.0.1/tcp/1", 0, 0);
        if (n < most) assert_null(resources_charge(&a[n], RESOURCE_CONNECTIONS, 1));
    }
    assert_int_equal(refused(&a[most], RESOURCE_CONNECTIONS, 1), SCOPE_TRANSIENT);
    for (size_t i = 0; i < 5; i++) {
        struct peer_id id = peer_number((int)i + 1);
        assert_int_equal(resources_authenticate(&a[i], &id), PL_OK);
    }
    assert_int_equal(all.transient.used[RESOURCE_CONNECTIONS], most - 5);
    assert_int_equal(all.system.used[RESOURCE_CONNECTIONS], most);
    assert_null(resources_charge(&a[most], RESOURCE_CONNECTIONS, 1));
    finish(a, n);
}

/* Of bytes: in the subnet that holds most, the peer that does, its fullest connection. A subnet
 * of many small ones is larger than one honest peer with more than each of them. */
static void largest(void **state)
{
    struct account a[6];
    resources_init(&all, SIZE_MAX);
    open_account(&a[0], "/ip4/5.5.5.5/tcp/1", 1, 0);
    resources_count(&a[0], RESOURCE_HELD, 10 * MIB);
    for (int i = 1; i < 4; i++) { /* three identities of one owner */
        open_account(&a[i], "/ip4/6.6.6.6/tcp/1", i == 3 ? 3 : 2, 0);
        resources_count(&a[i], RESOURCE_HELD, (size_t)(3 + i) * MIB);
    }
    open_account(&a[4], "/ip4/6.6.6.7/tcp/1", 4, 0); /* a newcomer */
    resources_count(&a[4], RESOURCE_HELD, 1);
    assert_ptr_equal(resources_largest(&all, &all.system, RESOURCE_HELD),
                     &a[2]); /* of 4 + 5, not 6 */
    assert_ptr_equal(resources_largest(&all, a[0].subnet, RESOURCE_HELD), &a[0]);
    assert_ptr_equal(resources_largest(&all, a[3].peer, RESOURCE_HELD), &a[3]);
    open_account(&a[5], "/ip4/7.7.7.7/tcp/1", 5, 0);
    assert_null(
        resources_largest(&all, a[5].subnet, RESOURCE_HELD)); /* a scope that uses nothing has no
                                                               * largest holder */
    finish(a, 6);
}

/* Of connections: in the largest subnet the one that has been idle longest; never a peer that we
 * have dialled or protect. */
static void idle(void **state)
{
    struct account a[6];
    struct peer_id groupmate = peer_number(2);
    resources_init(&all, SIZE_MAX);
    for (int i = 0; i < 6; i++) {
        open_account(&a[i], i ? "/ip4/6.6.6.6/tcp/1" : "/ip4/5.5.5.5/tcp/1", i + 1, i == 2);
        resources_charge(&a[i], RESOURCE_CONNECTIONS, 1);
        a[i].active_at = i; /* the single one has been idle longest of all */
    }
    assert_ptr_equal(resources_largest(&all, &all.system, RESOURCE_CONNECTIONS), &a[1]);
    assert_int_equal(resources_protect(&all, &groupmate), PL_OK);
    assert_ptr_equal(resources_largest(&all, &all.system, RESOURCE_CONNECTIONS), &a[3]);
    assert_ptr_equal(resources_largest(&all, a[1].subnet, RESOURCE_CONNECTIONS), &a[3]);
    resources_unprotect(&all, &groupmate);
    assert_ptr_equal(resources_largest(&all, &all.system, RESOURCE_CONNECTIONS), &a[1]);
    finish(a, 6);
}

/* A groupmate's use is not charged to strangers: a scope that is full for strangers is not full for
 * it. */
static void reserved(void **state)
{
    struct account a[5];
    struct peer_id groupmate = peer_number(9);
    size_t limit;
    resources_init(&all, SIZE_MAX);
    limit = resources_limit(&all, SCOPE_SYSTEM, RESOURCE_HELD);
    open_account(&a[0], "/ip4/1.1.1.1/tcp/1", 9, 0);
    resources_count(&a[0], RESOURCE_HELD, MIB);
    assert_int_equal(resources_protect(&all, &groupmate), PL_OK);
    assert_int_equal(resources_protect(&all, &groupmate), PL_OK);
    assert_int_equal(all.system.used[RESOURCE_HELD], 0);
    assert_int_equal(all.reserved.used[RESOURCE_HELD], MIB);
    for (int i = 1; i < 4; i++) {
        char text[64];
        snprintf(text, sizeof text, "/ip4/2.2.%d.2/tcp/1", i);
        open_account(&a[i], text, i, 0);
        resources_count(&a[i], RESOURCE_HELD, i < 3 ? (size_t)(91 - i) * MIB : limit - 179 * MIB);
    }
    assert_int_equal(refused(&a[3], RESOURCE_HELD, 1), SCOPE_SYSTEM);
    assert_null(resources_charge(&a[0], RESOURCE_HELD, 200 * MIB)); /* more than a peer may, too */
    assert_ptr_equal(resources_largest(&all, &all.system, RESOURCE_HELD), &a[1]);
    open_account(&a[4], "/ip4/1.1.1.1/tcp/2", 9,
                 0); /* a second connection of it is no stranger's */
    assert_null(resources_charge(&a[4], RESOURCE_HELD, MIB));
    resources_unprotect(&all, &groupmate);
    assert_int_equal(all.reserved.used[RESOURCE_HELD], 202 * MIB);
    resources_unprotect(&all, &groupmate);
    assert_int_equal(all.reserved.used[RESOURCE_HELD], 0);
    resources_unprotect(&all, &groupmate); /* one too many harms nobody */
    finish(a, 5);
}

/* A node that we have dialed may be anybody's. Its connection is our choice and reserved; what it
 * holds is a stranger's, up to the limits of a peer, of a subnet and of all strangers. */
static void the_dialed_hold_as_strangers(void **state)
{
    const struct peer_id who = peer_number(1);
    struct account a[2];
    resources_init(&all, SIZE_MAX);
    open_account(&a[0], "/ip4/1.1.1.1/tcp/1", 1, 1);
    open_account(&a[1], "/ip4/2.1.1.1/tcp/1", 2, 1);
    assert_null(resources_charge(&a[0], RESOURCE_CONNECTIONS, 1));
    assert_int_equal(all.reserved.used[RESOURCE_CONNECTIONS], 1);
    assert_int_equal(all.system.used[RESOURCE_CONNECTIONS], 0);
    resources_count(&a[0], RESOURCE_HELD, resources_limit(&all, SCOPE_PEER, RESOURCE_HELD));
    assert_int_equal(refused(&a[0], RESOURCE_HELD, 1), SCOPE_PEER);
    assert_int_equal(all.reserved.used[RESOURCE_HELD], 0);
    resources_count(&a[1], RESOURCE_HELD, MIB);
    assert_ptr_equal(resources_largest(&all, &all.system, RESOURCE_HELD), &a[0]);
    assert_int_equal(resources_protect(&all, &who), PL_OK);
    assert_null(resources_charge(&a[0], RESOURCE_HELD, 1));
    assert_int_equal(all.reserved.used[RESOURCE_HELD], a[0].used[RESOURCE_HELD]);
    assert_int_equal(all.reserved.used[RESOURCE_CONNECTIONS], 1);
    resources_unprotect(&all, &who);
    assert_int_equal(all.reserved.used[RESOURCE_HELD], 0);
    finish(a, 2);
}

static void protocols(void **state)
{
    static struct scope *streams[20000];
    size_t most, n = 0;
    struct scope *other;
    resources_init(&all, SIZE_MAX);
    most = resources_limit(&all, SCOPE_PROTOCOL, RESOURCE_STREAMS);
    while (n < PL_COUNT(streams) && (streams[n] = resources_enter_protocol(&all, "/a"))) n++;
    assert_int_equal(n, most);
    assert_non_null(other = resources_enter_protocol(&all, "/b"));
    resources_leave_protocol(&all, other);
    resources_leave_protocol(&all, NULL);
    while (n) resources_leave_protocol(&all, streams[--n]);
    finish(NULL, 0);
}

/* --- time on the loop ------------------------------------------------------------------------- */

#define MS 1000u

static void run_handler(struct account *a, size_t us)
{
    struct handler_charge charge;
    resources_begin_handler(&charge, a);
    resources_end_handler(&all, &charge, us);
}

/* A peer that has used its share waits, over all of its connections, until it has paid. */
static void handler_share(void **state)
{
    struct account a[4];
    size_t share;
    resources_init(&all, SIZE_MAX);
    share = resources_limit(&all, SCOPE_PEER, RESOURCE_HANDLER_US);
    resources_renew(&all, 100);
    open_account(&a[0], "/ip4/1.1.1.1/tcp/1", 1, 0);
    open_account(&a[1], "/ip4/9.9.9.9/tcp/1", 1, 0);
    open_account(&a[2], "/ip4/1.1.1.2/tcp/1", 2, 0); /* its neighbour */
    run_handler(&a[0], share - 1);
    assert_false(resources_must_wait(&a[0]));
    run_handler(&a[0], 1);
    assert_true(resources_must_wait(&a[0]));
    assert_true(resources_must_wait(&a[1]));
    assert_false(resources_must_wait(&a[2]));
    resources_renew(&all, 100.9);
    assert_true(resources_must_wait(&a[0]));
    resources_renew(&all, 101);
    assert_false(resources_must_wait(&a[0]));
    /* A handler that took three seconds' shares is paid for in two more: also by a peer that closes
     * its connections and comes again. */
    run_handler(&a[0], 3 * share);
    resources_close(&a[0]);
    resources_close(&a[1]);
    open_account(&a[0], "/ip4/5.5.5.5/tcp/1", 1, 0);
    assert_true(resources_must_wait(&a[0]));
    resources_renew(&all, 102);
    assert_true(resources_must_wait(&a[0]));
    resources_renew(&all, 103);
    assert_true(resources_must_wait(&a[0]));
    resources_renew(&all, 104);
    assert_false(resources_must_wait(&a[0]));
    /* No debt is larger than five seconds; several may pass at once. */
    run_handler(&a[0], 1000 * share);
    resources_renew(&all, 105);
    assert_true(resources_must_wait(&a[0]));
    resources_renew(&all, 110.5);
    assert_false(resources_must_wait(&a[0]));
    assert_int_equal(all.system.used[RESOURCE_HANDLER_US], 0);
    /* A handler that ends its own connection is charged as well. */
    {
        struct handler_charge charge;
        resources_begin_handler(&charge, &a[2]);
        resources_close(&a[2]);
        resources_end_handler(&all, &charge, share);
    }
    open_account(&a[3], "/ip4/1.1.1.2/tcp/1", 2, 0);
    assert_true(resources_must_wait(&a[3]));
    for (int i = 0; i < 4; i++) resources_close(&a[i]);
    resources_renew(&all, 200);
    finish(NULL, 0);
}

/* When strangers have used all of their time, subnets that used little go on, and groupmates
 * always; together strangers never have more than three quarters of a second. */
/* Handshakes cost time before there is a peer, and a peer that we have dialed may be any node of the
 * DHT. Only protected peers are never held back. */
static void time_of_handshakes_and_of_the_dialed(void **state)
{
    const struct peer_id who = peer_number(3);
    struct account a[3];
    resources_init(&all, SIZE_MAX);
    resources_renew(&all, 100);
    open_account(&a[0], "/ip4/1.1.1.1/tcp/1", 0, 0);
    open_account(&a[1], "/ip4/1.1.1.2/tcp/1", 0, 0);
    run_handler(&a[0], resources_limit(&all, SCOPE_SUBNET, RESOURCE_HANDLER_US));
    assert_true(resources_must_wait(&a[1]));
    resources_renew(&all, 101);
    assert_false(resources_must_wait(&a[1]));
    open_account(&a[2], "/ip4/9.9.9.9/tcp/1", 3, 1);
    run_handler(&a[2], resources_limit(&all, SCOPE_PEER, RESOURCE_HANDLER_US));
    assert_true(resources_must_wait(&a[2]));
    assert_int_equal(resources_protect(&all, &who), PL_OK);
    assert_false(resources_must_wait(&a[2]));
    resources_unprotect(&all, &who);
    resources_close(&a[2]);
    resources_renew(&all, 200);
    finish(a, 3);
}

static void handler_time_of_all(void **state)
{
    static struct account a[40];
    struct peer_id groupmate = peer_number(1);
    size_t limit, used = 0;
    resources_init(&all, SIZE_MAX);
    resources_renew(&all, 100);
    limit = resources_limit(&all, SCOPE_SYSTEM, RESOURCE_HANDLER_US);
    for (int i = 0; i < 40; i++) {
        char text[64];
        snprintf(text, sizeof text, "/ip4/2.2.%d.2/tcp/1", i);
        open_account(&a[i], text, i + 1, 0);
    }
    assert_int_equal(resources_protect(&all, &groupmate), PL_OK);
    for (int i = 1; i < 30; i++) run_handler(&a[i], limit / 29 + 1);
    assert_true(resources_must_wait(&a[1]));
    assert_false(resources_must_wait(&a[35])); /* it has used nothing */
    assert_false(resources_must_wait(&a[0]));
    for (int round = 0; round < 1000; round++)
        for (int i = 1; i < 40; i++)
            if (!resources_must_wait(&a[i])) run_handler(&a[i], MS);
    used = all.system.used[RESOURCE_HANDLER_US];
    assert_in_range(used, limit, limit + HANDLER_EQUAL_US + 40 * MS);
    run_handler(&a[0], 10 * limit);
    assert_false(resources_must_wait(&a[0]));
    assert_int_equal(all.system.used[RESOURCE_HANDLER_US], used);
    resources_unprotect(&all, &groupmate);
    for (int i = 0; i < 40; i++) resources_close(&a[i]);
    resources_renew(&all, 200);
    finish(NULL, 0);
}

/* A process that may open few files has to keep some for itself. */
static void few_descriptors(void **state)
{
    for (size_t files = 0; files < 5000; files += 1 + files / 8) {
        size_t connections;
        resources_init(&all, files);
        connections = resources_limit(&all, SCOPE_SYSTEM, RESOURCE_CONNECTIONS) +
                      resources_limit(&all, SCOPE_RESERVED, RESOURCE_CONNECTIONS);
        assert_true(connections >= 9 && connections <= 1536);
        if (files >= 64) assert_true(connections <= files * 3 / 4);
        assert_in_range(resources_limit(&all, SCOPE_SUBNET, RESOURCE_CONNECTIONS), 1, 256);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(limits),
        cmocka_unit_test(subnets),
        cmocka_unit_test(transient),
        cmocka_unit_test(largest),
        cmocka_unit_test(idle),
        cmocka_unit_test(reserved),
        cmocka_unit_test(the_dialed_hold_as_strangers),
        cmocka_unit_test(protocols),
        cmocka_unit_test(handler_share),
        cmocka_unit_test(time_of_handshakes_and_of_the_dialed),
        cmocka_unit_test(handler_time_of_all),
        cmocka_unit_test(few_descriptors),
    };
    return cmocka_run_group_tests_name("resources", tests, NULL, NULL);
}
