/* averager_declarations.c - false declarations in the DHT: a stranger's declarations about other
 * peers keep no peer from averaging. */
#include "test/unit/hivemind/loopback.h"
#include "net/hivemind/dht/dht_node_internal.h"

#include <arpa/inet.h>
#include <unistd.h>

#define HONEST 3
#define MADE_UP 400

/* A dictionary item of the attacker's own storage, or a record that it stores at others. */
static void send_declaration(struct peer *attacker, const struct peer_id *named, int active,
                             double expiration, int at_others)
{
    struct dht_state *own = &attacker->dht->core.state;
    struct dht_id key;
    struct bytes subkey = { 0 };
    uint8_t value = active ? 0xc3 : 0xc2;
    struct dht_record r;
    struct dht_item item;
    dht_id_of_text(&key, "test.0b");
    mp_bin(&subkey, named->bytes, named->length);
    r = (struct dht_record){ .key = key,
                             .subkey = bytes_at(&subkey),
                             .subkey_n = bytes_length(&subkey),
                             .value = &value,
                             .n = 1,
                             .expiration = expiration };
    item = (struct dht_item){ .subkey = (uint8_t *)(uintptr_t)r.subkey,
                              .subkey_n = r.subkey_n,
                              .value = &value,
                              .n = 1,
                              .expiration = expiration,
                              .from = { 1, 1, 0, DHT_DECLARATION } };
    dht_store_put(&own->storage, dht_node_time(attacker->dht), &key, &item);
    for (size_t i = 0; at_others && i < HONEST; i++) {
        struct dht_contact to = { .id = peers[i].dht->core.state.self,
                                  .peer = *host_id(peers[i].host) };
        dht_ask_store(&attacker->dht->calls, &to, &r, NULL, NULL);
    }
    bytes_clear(&subkey);
}

/* "false" for all that take part, with a later expiration each time; and a value over the whole
 * dictionary. */
static void lie(void *context)
{
    struct peer *attacker = context;
    double now = dht_node_time(attacker->dht);
    struct dht_record whole = { .subkey = dht_no_subkey,
                                .subkey_n = 1,
                                .value = (const uint8_t *)"\x07",
                                .n = 1,
                                .expiration = now + 3000 };
    dht_id_of_text(&whole.key, "test.0b");
    for (size_t i = 0; i < HONEST; i++) {
        struct dht_contact to = { .id = peers[i].dht->core.state.self,
                                  .peer = *host_id(peers[i].host) };
        send_declaration(attacker, host_id(peers[i].host), 0, now + 600, 1);
        dht_ask_store(&attacker->dht->calls, &to, &whole, NULL, NULL);
    }
}

static struct multiaddr silent_address;

/* A port that takes connections and says nothing. */
static int open_silent_port(void)
{
    const uint8_t ip[4] = { 127, 0, 0, 1 };
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof at;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(s, 1024), 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&at, &n), 0);
    silent_address.length = 0;
    multiaddr_add_ip(&silent_address, 4, ip);
    multiaddr_add_tcp(&silent_address, ntohs(at.sin_port));
    return s;
}

/* Peers that do not exist and want to begin before everybody else; all others find an address of each,
 * where nobody answers. */
static void make_up(void *context)
{
    struct peer *attacker = context;
    double now = dht_node_time(attacker->dht);
    for (uint32_t i = 0; i < MADE_UP; i++) {
        struct peer_id nobody = { 34, { 0x12, 0x20 } };
        memcpy(nobody.bytes + 2, &i, sizeof i);
        send_declaration(attacker, &nobody, 1, now + 9 + i * 1e-3, 0);
        for (size_t k = 0; k < HONEST && silent_address.length; k++)
            host_learn(peers[k].host, &nobody, &silent_address, 60);
    }
}

/* The honest peers find each other in each of three steps, while a node of the DHT reports all the
 * time that no peer searches for a group, or that thousands do. */
static void lied_to(loop_fn *attack)
{
    const double window = 10;
    struct peer *attacker;
    for (int i = 0; i < HONEST; i++) add(0, 0);
    attacker = add(0, 0);
    be_impatient(window, 15);
    expect(HONEST);
    for (int i = 0; i < HONEST; i++) {
        peers[i].options.request_timeout = 2;
        loop_call(loop, open_averager, &peers[i]);
        if (!peers[i].a) fail_msg("%s", peers[i].err.text);
    }
    for (int round = 0; round < 3; round++) {
        loop_call(loop, attack, attacker);
        usleep(300000); /* it is everywhere before they begin */
        for (int i = 0; i < HONEST; i++) loop_call(loop, begin, &peers[i]);
        for (int i = 0; i < HONEST; i++) {
            const double until = pl_seconds() + 3 * window; /* a fifth of one is enough when idle */
            for (; !noted(&peers[i].done); usleep(100000)) {
                if (pl_seconds() > until) fail_msg("peer %d: no group", i);
                loop_call(loop, attack, attacker);
            }
            if (peers[i].status) fail_msg("peer %d: %s", i, peers[i].err.text);
            assert_int_equal(peers[i].group, HONEST);
            assert_int_equal(peers[i].attempts, 1);
        }
    }
}
static void false_withdrawals_hide_no_peer(void **state) { lied_to(lie); }
static void invented_peers_cost_part_of_a_window(void **state)
{
    int port = open_silent_port();
    lied_to(make_up);
    close(port);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin_test, end_test)

/* A name, with * and ?, runs only the tests that match it. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(false_withdrawals_hide_no_peer),
        TEST(invented_peers_cost_part_of_a_window),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
