/* loopback.h - up to eight averagers in this process, on one network thread, over real connections,
 * for the tests of averaging. Included by one file of each test program. */
#ifndef PL_TEST_LOOPBACK_H
#define PL_TEST_LOOPBACK_H

#include "test/unit/net/await.h"
#include "net/hivemind/averaging/averager.h"
#include "ref/backend.h"
#include "net/libp2p/libp2p.h"
#include "test/unit/hivemind/numbered_identity.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <unistd.h>

#define PEERS 8
#define LIMIT 60.0 /* s for anything; nothing here takes a fifth of it on an idle machine */
#define VALUES 5000

static inline int await(const int *flag, int n) { return await_noted(flag, n, LIMIT); }

struct peer {
    struct loop *loop;
    struct identity me;
    struct host *host;
    struct dht_node *dht;
    struct averager *a;
    char address[MULTIADDR_TEXT_MAX];
    const char *join;
    struct auth *auth;
    struct averager_options options;
    struct averager_step step;
    double timeout;
    float values[VALUES], *tensor[2];
    int tries, opened, closed, done, grouped, status, attempts, banned, verified;
    int loaded, load_status;
    size_t confirmed;
    struct allreduce_report report;
    size_t group;
    uint8_t group_id[DHT_ID_BYTES];
    size_t share[PEERS];
    struct peer_id member[PEERS];
    float first_loaded;
    struct peer_id refused; /* a donor whose state was not taken */
    struct pl_err err;
    char caught[sizeof((struct pl_err *)0)->text];
};

static struct pl_backend be;
static struct loop *loop;
static struct peer peers[PEERS];
static size_t count;
static int relays;           /* those who are added from now on carry connections for others, */
static const char *announce; /* tell others this address instead, */
static struct auth *token;   /* show this one, */
static int numbered;         /* have the keys of their numbers: the same peers in every run */
static const struct schema_tensor schema[2] = {
    { .type = { .dtype = PL_F32, .dims = 2, .size = { 40, 100 } } },
    { .type = { .dtype = PL_F32, .dims = 1, .size = { 1000 } } },
};
static const enum pl_compression method[2] = { PL_COMPRESS_NONE, PL_COMPRESS_NONE };

static inline void on_joined(void *context, int status, const struct pl_err *err)
{
    note(&((struct peer *)context)->tries);
}

static inline void open_dht(void *context)
{
    struct peer *p = context;
    struct dht_node_options o = { .join = &p->join,
                                  .join_count = p->join != NULL,
                                  .client_mode = p->options.client_mode,
                                  .auth = p->auth,
                                  .call_limit_s = LIMIT / 2 };
    struct multiaddr a;
    if (host_addresses(p->host, &a, 1)) multiaddr_text(p->address, &a);
    if (dht_node_open(&p->dht, p->host, &o, on_joined, p, &p->err)) p->dht = NULL;
}

static inline void open_averager(void *context)
{
    struct peer *p = context;
    if (averager_open(&p->a, p->host, p->dht, &p->options, &p->err)) p->a = NULL;
}

static inline void on_averager_closed(void *context) { note(&((struct peer *)context)->closed); }

static inline void close_averager(void *context)
{
    struct peer *p = context;
    averager_close(p->a, on_averager_closed, p);
}

static inline void close_dht(void *context)
{
    struct peer *p = context;
    dht_node_close(p->dht);
    p->dht = NULL;
}

static inline struct peer *add(int client, int auxiliary)
{
    static const char *const listen[] = { "/ip4/127.0.0.1/tcp/0" };
    struct peer *p = &peers[count];
    struct host_options o = { .me = &p->me,
                              .listen = listen,
                              .listen_count = !client,
                              .client_mode = client,
                              .announce = &announce,
                              .announce_count = announce != NULL,
                              .relay = relays };
    memset(p, 0, sizeof *p);
    p->loop = loop;
    p->join = count ? peers[0].address : NULL;
    p->auth = token;
    p->timeout = LIMIT - 10;
    p->options = (struct averager_options){ .prefix = "test",
                                            .class_name = "DecentralizedAverager",
                                            .bits = "",
                                            .be = &be,
                                            .tensors = 2,
                                            .schema = schema,
                                            .method = method,
                                            .part_bytes = 2048,
                                            .min_size = 2,
                                            .min_matchmaking_time = 10,
                                            .request_timeout = 10,
                                            .sender_timeout = 15,
                                            .reducer_timeout = 30,
                                            .allreduce_timeout = 40,
                                            .bandwidth = PL_BANDWIDTH_UNKNOWN,
                                            .client_mode = client,
                                            .auxiliary = auxiliary };
    p->tensor[0] = p->values;
    p->tensor[1] = p->values + 4000;
    for (size_t i = 0; i < VALUES; i++)
        p->values[i] = (float)((double)(i * (count + 3) % 97) / 97 - 0.3);
    p->step = (struct averager_step){ .weight = (double)(count + 1), .tensor = p->tensor };
    if (numbered) numbered_identity(&p->me, count);
    else assert_int_equal(identity_make(&p->me, KEY_ED25519, &p->err), PL_OK);
    if (libp2p_open(&p->host, loop, &o, &p->err)) fail_msg("%s", p->err.text);
    loop_call(loop, open_dht, p);
    if (!p->dht) fail_msg("%s", p->err.text);
    assert_true(await(&p->tries, 1));
    count++;
    return p;
}

static inline void open_all(void)
{
    for (size_t i = 0; i < count; i++) {
        loop_call(loop, open_averager, &peers[i]);
        if (!peers[i].a) fail_msg("%s", peers[i].err.text);
    }
}

static inline void close_peer(struct peer *p)
{
    if (!p->host) return;
    if (p->a) {
        loop_call(loop, close_averager, p);
        assert_true(await(&p->closed, 1));
    }
    if (p->dht) loop_call(loop, close_dht, p);
    host_close(p->host);
    identity_clear(&p->me);
    p->host = NULL;
    p->a = NULL;
}

/* How long peers wait for each other, where somebody falls silent and that time has to pass. */
static inline void be_impatient(double matchmaking, double sender)
{
    for (size_t i = 0; i < count; i++) {
        peers[i].options.min_matchmaking_time = matchmaking;
        peers[i].options.sender_timeout = sender;
        peers[i].options.reducer_timeout = 2 * sender;
    }
}

static inline void read_grouped(void *context)
{
    struct peer *p = context;
    p->grouped = averager_has_group(p->a);
}

/* Until the first n have found their group. */
static inline void await_groups(size_t n)
{
    const double until = pl_seconds() + LIMIT;
    for (size_t i = 0; i < n; i++)
        for (peers[i].grouped = 0; loop_call(loop, read_grouped, &peers[i]), !peers[i].grouped;
             usleep(10000))
            if (pl_seconds() > until) fail_msg("peer %zu finds no group", i);
}

static inline int begin_test(void **state)
{
    struct pl_err err;
    count = 0;
    relays = numbered = 0;
    announce = NULL;
    token = NULL;
    memset(peers, 0, sizeof peers);
    pl_backend_ref(&be);
    return loop_open(&loop, &err);
}

static inline int end_test(void **state)
{
    for (size_t i = count; i-- > 0;) close_peer(&peers[i]);
    loop_close(loop);
    return 0;
}

static inline void on_done(void *context, const struct averager_result *r)
{
    struct peer *p = context;
    p->status = r->status;
    p->report = r->report;
    p->attempts = r->attempts;
    p->banned += r->banned;
    if (r->banned) snprintf(p->caught, sizeof p->caught, "%s", r->caught);
    p->verified = r->verified;
    p->group = r->group ? r->group->count : 0;
    if (r->group) memcpy(p->group_id, r->group->id, sizeof p->group_id);
    if (r->group && !r->status)
        assert_int_equal(group_shares(p->share, r->group, VALUES, NULL), PL_OK);
    for (size_t i = 0; i < p->group; i++) p->member[i] = r->group->members[i].peer;
    snprintf(p->err.text, sizeof p->err.text, "%s", r->why);
    note(&p->done);
}

static inline void begin(void *context)
{
    struct peer *p = context;
    p->step.deadline = dht_node_time(p->dht) + p->timeout;
    p->done = 0;
    assert_int_equal(averager_begin(p->a, &p->step, on_done, p), PL_OK);
}

static inline void begin_all(void)
{
    for (size_t i = 0; i < count; i++) loop_call(loop, begin, &peers[i]);
}

/* A group begins as soon as this many have come, and on a slow machine waits for them. */
static inline void expect(size_t n)
{
    for (size_t i = 0; i < count; i++) peers[i].step.expected = n;
}

#endif
