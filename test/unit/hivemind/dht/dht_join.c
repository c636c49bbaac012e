/* dht_join.c - joining a DHT: early nodes, nodes that are held back, routers, tokens, joins that
 * fail. */
#include "dht_world.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

static void failed_join_says_why(void **state)
{
    struct node n = { .dht = NULL };
    open_node(&n, loop,
              "/ip4/127.0.0.1/tcp/9/p2p/12D3KooWSkvkGQpYmokxqw6g5oz8UUNRDjUwW24iXeXc6gQ5rJ7a");
    assert_false(n.joined);
    assert_non_null(strstr(n.why.text, "127.0.0.1"));
    loop_call(loop, maintenance_now, &n); /* looking after an empty table is no entry */
    nap(0.1);
    loop_call(loop, maintenance_now, &n);
    assert_int_equal(read_status(&n).joined, 0);
    close_node(&n);
}

struct call {
    struct node *from;
    const struct peer_id *to;
    int done, status;
};

static void on_pong(void *context, int status, const struct dht_pong *pong)
{
    struct call *c = context;
    c->status = status;
    note(&c->done);
}

static void begin_ping(void *context)
{
    struct call *c = context;
    dht_node_ping(c->from->dht, c->to, 0, on_pong, c);
}

/* Two that begin at the same time: either may search for the other a little too early. */
static void entry_comes_later(void **state)
{
    struct node early = { .dht = NULL }, entry = { .dht = NULL };
    char at[MULTIADDR_TEXT_MAX];
    double began;
    open_node(&entry, loop, NULL);
    strcpy(at, entry.address);
    *strstr(at, "/p2p/") = 0;
    close_node(&entry);
    open_node(&early, loop, at);
    assert_false(early.joined);
    entry.listen = at;
    open_node(&entry, loop, NULL);
    began = pl_seconds();
    while (!read_status(&early).joined && pl_seconds() - began < 10) nap(0.05);
    assert_int_equal(read_status(&early).joined, 1); /* maintenance comes later than that */
    close_node(&early);
    close_node(&entry);
}

static void enter(void *context)
{
    struct node *n = context;
    dht_node_enter(n->dht);
}

/* It may search before it enters. */
static void held_node_joins_later(void **state)
{
    struct node entry = { .dht = NULL }, n = { .dht = NULL, .options.hold = 1 };
    struct call c = { .from = &n, .to = &entry.me.id, .status = PL_EAGAIN };
    open_node(&entry, loop, NULL);
    open_node(&n, loop, entry.address);
    nap(0.2);
    assert_int_equal(n.tries, 0);
    assert_int_equal(read_status(&n).initial_answered, 0);
    loop_call(loop, enter, &n);
    assert_true(await(&n.tries, 1));
    assert_true(n.joined);
    loop_call(loop, begin_ping, &c);
    assert_true(await(&c.done, 1));
    assert_int_equal(c.status, PL_OK);
    close_node(&n);
    close_node(&entry);
}

/* The address that it announces cannot be dialed: it becomes like a client, unless a relay is
 * there. */
static void behind_a_router(void **state)
{
    struct node hub, hidden, other;
    struct dht_status s;
    for (int relay = 0; relay <= 1; relay++) {
        memset(&hub, 0, sizeof hub);
        memset(&hidden, 0, sizeof hidden);
        memset(&other, 0, sizeof other);
        hub.relay = relay;
        hidden.announce = "/ip4/127.0.0.1/tcp/9";
        open_node(&hub, loop, NULL);
        open_node(&hidden, loop, hub.address);
        assert_true(hidden.joined);
        const double until = pl_seconds() + LIMIT;
        for (;;) {
            s = read_status(&hidden);
            if ((relay ? s.relayed : !s.reachable) || pl_seconds() > until) break;
            nap(0.05);
        }
        assert_int_equal(s.reachable, relay);
        assert_int_equal(s.relayed, relay);
        loop_call(loop, maintenance_now, &hidden); /* is a node again once it has its relay */
        nap(0.2);
        assert_int_equal(store(&hidden, "from behind", NULL, 5, 60), PL_OK);
        assert_int_equal(get_number(&hub, "from behind", 1), 5);
        open_node(&other, loop, hub.address);
        if (relay) {
            struct call c = { .from = &other, .to = &hidden.me.id, .status = PL_EAGAIN };
            /* the hub hears of it */
            for (int tries = 1; c.status && pl_seconds() < until; tries++) {
                loop_call(loop, begin_ping, &c);
                assert_true(await(&c.done, tries));
                if (c.status) nap(0.1);
            }
            assert_int_equal(c.status, PL_OK);
        }
        close_node(&other);
        close_node(&hidden);
        close_node(&hub);
    }
}

/* --- silence ---------------------------------------------------------------------------------- */

#define SILENT 3
#define SOON 8.0 /* s; twice a second's patience on a slow machine, half of a call's limit */

/* The kernel accepts connections, but no program reads them. */
static int open_silent(struct multiaddr *at)
{
    struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof a;
    char text[64];
    struct pl_err err;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_true(fd >= 0 && !bind(fd, (struct sockaddr *)&a, n) && !listen(fd, 64) &&
                !getsockname(fd, (struct sockaddr *)&a, &n));
    snprintf(text, sizeof text, "/ip4/127.0.0.1/tcp/%d", ntohs(a.sin_port));
    assert_int_equal(multiaddr_from_text(at, text, &err), PL_OK);
    return fd;
}

struct acquaintance {
    struct node *n;
    struct multiaddr at;
    struct identity who;
};

static void acquaint(void *context)
{
    struct acquaintance *a = context;
    struct dht_id id;
    assert_int_equal(dht_id_random(&id), PL_OK);
    host_learn(a->n->host, &a->who.id, &a->at, 600);
    dht_routing_add(&a->n->dht->core.state.routing, &id, &a->who.id, loop_now(loop), NULL);
}

/* A node's table names nodes that accept connections and say nothing: they do not delay a peer that
 * joins through it, stores and gets. */
static void silent_nodes(void **state)
{
    struct node n[SILENT + 1], late;
    struct acquaintance silent[SILENT];
    int fds[SILENT];
    double at[4];
    struct pl_err err;
    int64_t found, missing;
    int stored;
    open_nodes(n, SILENT + 1, loop);
    for (int i = 0; i < SILENT; i++) {
        silent[i].n = &n[0];
        fds[i] = open_silent(&silent[i].at);
        assert_int_equal(identity_make(&silent[i].who, KEY_ED25519, &err), PL_OK);
        loop_call(loop, acquaint, &silent[i]);
    }
    memset(&late, 0, sizeof late);
    at[0] = pl_seconds();
    open_node(&late, loop, n[0].address);
    at[1] = pl_seconds();
    stored = store(&late, "in spite of them", NULL, 3, 60);
    at[2] = pl_seconds();
    missing = get_number(&late, "not there", 1);
    at[3] = pl_seconds();
    found = get_number(&n[1], "in spite of them", 1);
    close_node(&late);
    for (int i = 0; i <= SILENT; i++) close_node(&n[i]);
    for (int i = 0; i < SILENT; i++) {
        close(fds[i]);
        identity_clear(&silent[i].who);
    }
    assert_true(late.joined);
    assert_int_equal(stored, PL_OK);
    assert_int_equal(missing, -1);
    assert_int_equal(found, 3);
    if (at[1] - at[0] > SOON || at[2] - at[1] > SOON || at[3] - at[2] > SOON)
        fail_msg(
            "joined after %.1f s, then stored after %.1f s, then searched for %.1f s; each within "
            "%.1f",
            at[1] - at[0], at[2] - at[1], at[3] - at[2], SOON);
}

/* At the very moment that it names somebody is late: a timer until then would fire forever. */
static void late_when_due(void **state)
{
    const struct dht_id key = { { 1 } };
    const struct dht_contact who = { .id = { { 2 } } };
    for (int i = 0; i < 10000; i++) {
        struct dht_search s;
        struct dht_contact next;
        dht_search_init(&s, &key, &key, INFINITY, NULL);
        assert_int_equal(dht_search_add(&s, &who, 1), PL_OK);
        s.now = 7919.0 * i / 1000;
        s.patience = 1 + 1e-5 * i;
        assert_int_equal(dht_search_next(&s, &next), 1);
        s.now = dht_search_pass(&s);
        assert_true(s.now < INFINITY);
        assert_true(dht_search_pass(&s) == INFINITY);
        assert_int_equal(s.late, 1);
        dht_search_clear(&s);
    }
}

/* Contact number i, the farther from key 0 the larger i is. */
static struct dht_contact contact(int i)
{
    struct dht_contact c = { .id = { { 0 } }, .peer = { .length = 2 } };
    c.id.bytes[18] = c.peer.bytes[0] = (uint8_t)(i >> 8);
    c.id.bytes[19] = c.peer.bytes[1] = (uint8_t)i;
    return c;
}

static int vain, useful;

static void count_judged(void *context, const struct peer_id *reporter, int is_vain)
{
    (void)context;
    vain += is_vain && reporter->bytes[1] == 1;
    useful += !is_vain && reporter->bytes[1] == 2;
}

/* All of the nodes nearest to a key may be one stranger's. What initial peers have is found all the
 * same, they are asked first; and nodes that do not exist delay the search by one patience. */
static void nodes_near_a_key_hide_no_record(void **state)
{
    const struct dht_id key = { { 0 } }, self = { { 255 } };
    struct dht_contact near[40], invented[100], trusted = contact(60000), who, last = contact(3);
    struct dht_found nothing = { .type = DHT_NOT_FOUND, .expiration = -INFINITY };
    struct dht_search s;
    int asked = 0, reported = 0;
    for (int i = 0; i < 40; i++) near[i] = contact(1 + i);
    for (int i = 0; i < 100; i++) invented[i] = contact(1000 + i);
    dht_search_init(&s, &key, &self, INFINITY, NULL);
    s.patience = 1;
    s.now = 100;
    assert_int_equal(dht_search_add(&s, near, 40), PL_OK);
    assert_int_equal(dht_search_trust(&s, &trusted, 1), PL_OK);
    assert_int_equal(dht_search_next(&s, &who), 1);
    assert_true(dht_id_equal(&who.id, &trusted.id));
    dht_search_answered(&s, &who.id, &nothing);
    dht_search_clear(&s);

    /* Number 1 names a hundred that are silent, number 2 one that answers. */
    dht_search_init(&s, &key, &self, INFINITY, NULL);
    s.patience = 1;
    s.now = 100;
    assert_int_equal(dht_search_add(&s, near, 2), PL_OK);
    for (vain = useful = 0; !dht_search_is_over(&s) && s.now < 200; s.now += 0.001) {
        dht_search_pass(&s);
        while (dht_search_next(&s, &who)) {
            struct dht_found f = nothing;
            int number = who.id.bytes[18] * 256 + who.id.bytes[19];
            asked++;
            reported += number >= 1000;
            if (number >= 1000) continue;
            f.nearest = number == 1 ? invented : &last;
            f.nearest_count = number == 1 ? 100 : number == 2;
            assert_int_equal(dht_search_answered(&s, &who.id, &f), PL_OK);
        }
    }
    assert_in_range(reported, DHT_SEARCH_VAIN, DHT_SEARCH_VAIN + 2 + DHT_SEARCH_WORKERS);
    assert_int_equal(asked, reported + 3);
    assert_true(s.now < 100 + 3 * DHT_SEARCH_REPORTED_MIN);
    dht_search_judge(&s, count_judged, NULL);
    assert_int_equal(vain, 1);
    assert_int_equal(useful, 1);
    dht_search_clear(&s);
}

static struct rpc_call *kept[8];
static int kept_count;

static void keep(void *context, struct rpc_call *call, const uint8_t *data, size_t n)
{
    assert_true(kept_count < 8);
    kept[kept_count] = call;
    note(&kept_count);
}

static void keep_stores(void *context)
{
    struct node *n = context;
    rpc_unserve(n->host, dht_call_name(DHT_STORE));
    assert_int_equal(rpc_serve_unary(n->host, dht_call_name(DHT_STORE), keep, NULL), PL_OK);
}

static void answer_kept(void *context)
{
    const struct node *n = context;
    const int ok = 1;
    struct bytes yes = { 0 };
    assert_int_equal(dht_write_store_answer(&yes, &n->dht->core.state.self, &ok, 1), PL_OK);
    for (int i = 0; i < kept_count; i++) rpc_reply(kept[i], bytes_at(&yes), bytes_length(&yes));
    kept_count = 0;
    bytes_clear(&yes);
}

/* A node that is slow to store a record is passed over, but stays in the table. */
static void late_store(void **state)
{
    struct node n[3];
    double took;
    struct dht_status seen;
    int stored, were_kept;
    open_nodes(n, 3, loop);
    loop_call(loop, keep_stores, &n[1]);
    took = pl_seconds();
    stored = store(&n[2], "slowly", NULL, 4, 60);
    took = pl_seconds() - took;
    were_kept = kept_count;
    loop_call(loop, answer_kept, &n[1]);
    nap(0.1);
    seen = read_status(&n[2]);
    for (int i = 0; i < 3; i++) close_node(&n[i]);
    assert_int_equal(stored, PL_OK);
    assert_int_equal(were_kept, 1);
    if (took > SOON) fail_msg("stored after %.1f s, not within %.1f", took, SOON);
    assert_int_equal(seen.nodes, 2);
    assert_int_equal(seen.calls_failed, 0);
}

struct admission {
    struct node *by;
    const struct peer_id *peer;
    int is_asked, refuses, done, status;
};

static void on_admitted(void *context, int status)
{
    struct admission *a = context;
    a->status = status;
    note(&a->done);
}

static void admit_here(void *context)
{
    struct admission *a = context;
    struct dht_node *d = a->by->dht;
    if (a->refuses) dht_members_refuse(&d->core.members, a->peer, loop_now(loop));
    a->is_asked = dht_node_admit(d, a->peer, on_admitted, a) != NULL;
}

/* A peer is asked for its token, but not soon after it has shown none: each question costs a signature. */
static void admit(struct node *by, const struct node *peer)
{
    struct admission a = { .by = by, .peer = &peer->me.id };
    loop_call(loop, admit_here, &a);
    assert_true(a.is_asked && await(&a.done, 1));
    assert_int_equal(a.status, PL_OK);
    a.refuses = 1;
    loop_call(loop, admit_here, &a);
    assert_false(a.is_asked);
}

/* A swarm with tokens: members understand each other, others are refused, with the reason. */
static void tokens(void **state)
{
    struct rsa_key authority, keys[3];
    struct auth auths[3];
    struct node n[4];
    struct pl_err err;
    memset(n, 0, sizeof n);
    memset(auths, 0, sizeof auths);
    assert_int_equal(rsa_key_make(&authority, &err), PL_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rsa_key_make(&keys[i], &err), PL_OK);
        auths[i].key = &keys[i];
        auths[i].authority = authority.key;
        auth_token_issue(&auths[i].token, &authority, "user", bytes_at(&keys[i].text),
                         bytes_length(&keys[i].text), (double)time(NULL) + (i < 2 ? 86400 : -100));
        n[i].options.auth = &auths[i];
    }
    open_node(&n[0], loop, NULL);
    open_node(&n[1], loop, n[0].address);
    assert_true(n[1].joined);
    assert_int_equal(store(&n[1], "members only", NULL, 1, 60), PL_OK);
    assert_int_equal(get_number(&n[0], "members only", 1), 1);
    assert_int_equal(read_status(&n[0]).nodes, 1);
    admit(&n[0], &n[1]);
    open_node(&n[2], loop, n[0].address); /* its token has expired */
    assert_false(n[2].joined);
    assert_non_null(strstr(n[2].why.text, "expired"));
    open_node(&n[3], loop, n[0].address); /* has none */
    assert_false(n[3].joined);
    assert_non_null(strstr(n[3].why.text, "access token"));
    assert_int_equal(read_status(&n[0]).nodes, 1);
    for (int i = 0; i < 4; i++) close_node(&n[i]);
    for (int i = 0; i < 3; i++) {
        auth_clear(&auths[i]);
        rsa_key_clear(&keys[i]);
    }
    rsa_key_clear(&authority);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failed_join_says_why),
        cmocka_unit_test(entry_comes_later),
        cmocka_unit_test(held_node_joins_later),
        cmocka_unit_test(behind_a_router),
        cmocka_unit_test(silent_nodes),
        cmocka_unit_test(late_when_due),
        cmocka_unit_test(nodes_near_a_key_hide_no_record),
        cmocka_unit_test(late_store),
        cmocka_unit_test(tokens),
    };
    return cmocka_run_group_tests(tests, open_loop, close_loop);
}
