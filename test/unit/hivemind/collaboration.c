/* collaboration.c - peers that train a toy together, each with its own thread, over loopback: in
 * step, with the same parameters, while one joins late and one leaves without a word; and whom of
 * those who have reported anything they wait for. */
#include "await.h"
#include "net/hivemind/training/liveness.h"
#include "net/hivemind/training/collaboration.h"
#include "net/hivemind/optimizer/optimizer_state.h"
#include "net/libp2p/libp2p.h"
#include "ref/backend.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#define LEARNERS 3
#define PEERS (LEARNERS + 1) /* and one that only says that it trains */
#define TENSORS 2
#define SIZES \
    { \
        600, 40 \
    }
#define TOTAL 672 /* padded to 16 */
#define TARGET 48
#define BATCH 8
#define LIMIT 120.0 /* s for anything */

static const size_t sizes[TENSORS] = SIZES;

struct peer {
    struct loop *loop;
    struct identity me;
    struct host *host;
    struct dht_node *dht;
    struct rsa_key key;
    struct validators validators;
    char address[MULTIADDR_TEXT_MAX];
    const char *join;
    int tries, told;
    struct progress_record says;
    struct pl_err err;

    struct collaboration *c;
    struct pl_optimizer *optimizer;
    struct optimizer_state state;
    float value[TOTAL], grad[TOTAL], *host_tensor[TENSORS];
    pthread_t thread;
    int learns, leaves;
    int number, joins_late;
    int64_t caught_up; /* how often it was advised to */
    int64_t epoch, epochs, common, begun_at;
    double nap;
};

static struct pl_backend be;
static struct peer peers[PEERS];

static void on_joined(void *context, int status, const struct pl_err *err)
{
    struct peer *p = context;
    (void)status, (void)err;
    note(&p->tries);
}

static void open_dht(void *context)
{
    struct peer *p = context;
    struct dht_node_options o = { .join = &p->join,
                                  .join_count = p->join != NULL,
                                  .validators = &p->validators,
                                  .call_limit_s = LIMIT / 4 };
    struct multiaddr a;
    if (host_addresses(p->host, &a, 1)) multiaddr_text(p->address, &a);
    if (dht_node_open(&p->dht, p->host, &o, on_joined, p, &p->err)) p->dht = NULL;
}

static void close_dht(void *context)
{
    struct peer *p = context;
    dht_node_close(p->dht);
}

static void open_peer_for(struct peer *p, int number, size_t group_size)
{
    static const char *const listen[] = { "/ip4/127.0.0.1/tcp/0" };
    struct host_options o = { .me = &p->me, .listen = listen, .listen_count = 1 };
    struct pl_optimizer_options lamb = pl_lamb_options();
    const struct pl_optimizer_tensor tensors[TENSORS] = { { 0, 600, 0, NULL },
                                                          { 608, 40, 0.045, NULL } };
    const struct pl_wire_type types[TENSORS] = { { .dtype = PL_F32, .dims = 2, .size = { 20, 30 } },
                                                 { .dtype = PL_F32, .dims = 1, .size = { 40 } } };
    static const enum pl_compression method[TENSORS] = { PL_COMPRESS_FLOAT16, PL_COMPRESS_FLOAT16 };
    struct collaboration_options c = { .run = "toy",
                                       .be = &be,
                                       .tensors = TENSORS,
                                       .method = method,
                                       .target_batch = TARGET,
                                       .matchmaking_time = 2,
                                       .averaging_timeout = 40,
                                       .allreduce_timeout = 30,
                                       .average_state_every = 1,
                                       .group_size = group_size,
                                       .bandwidth = PL_BANDWIDTH_UNKNOWN };
    memset(p, 0, sizeof *p);
    p->number = number;
    p->join = number ? peers[0].address : NULL;
    lamb.min_8bit = 0;
    assert_int_equal(loop_open(&p->loop, &p->err), PL_OK);
    assert_int_equal(identity_make(&p->me, KEY_ED25519, &p->err), PL_OK);
    assert_int_equal(rsa_key_make(&p->key, &p->err), PL_OK);
    p->validators.key = &p->key;
    assert_int_equal(validators_add_run(&p->validators, "toy"), PL_OK);
    if (libp2p_open(&p->host, p->loop, &o, &p->err)) fail_msg("%s", p->err.text);
    loop_call(p->loop, open_dht, p);
    if (!p->dht) fail_msg("%s", p->err.text);
    assert_true(await_noted(&p->tries, 1, LIMIT));
    for (size_t i = 0; i < TOTAL; i++)
        p->value[i] = i < 600 || (i >= 608 && i < 648) ? 1 + 0.01f * (float)i : 0;
    assert_int_equal(pl_optimizer_open(&p->optimizer, &be, &lamb, tensors, TENSORS, &p->err),
                     PL_OK);
    assert_int_equal(optimizer_state_open(&p->state, p->optimizer, &lamb, &be, tensors, types,
                                          TENSORS, &p->err),
                     PL_OK);
    for (size_t t = 0; t < TENSORS; t++) {
        p->host_tensor[t] = pl_alloc(sizes[p->state.order[t]], sizeof(float));
        assert_non_null(p->host_tensor[t]);
    }
    c.host = p->host;
    c.node = p->dht;
    c.key = &p->key;
    c.schema = p->state.schema;
    if (collaboration_open(&p->c, &c, &p->err)) fail_msg("%s", p->err.text);
}

static void open_peer(struct peer *p, int number) { open_peer_for(p, number, 0); }

static void join_learner(struct peer *p)
{
    if (p->learns) pthread_join(p->thread, NULL);
    p->learns = 0;
}

/* As far as it was opened: a test that fails ends with its message, its threads stopped. */
static void close_peer(struct peer *p)
{
    if (!p->loop) return;
    join_learner(p);
    collaboration_close(p->c);
    if (p->dht) loop_call(p->loop, close_dht, p);
    if (p->host) host_close(p->host);
    loop_close(p->loop);
    identity_clear(&p->me);
    rsa_key_clear(&p->key);
    pl_optimizer_close(p->optimizer);
    optimizer_state_close(&p->state);
    for (size_t t = 0; t < TENSORS; t++) pl_free(p->host_tensor[t]);
    memset(p, 0, sizeof *p);
}

static int close_all(void **state)
{
    (void)state;
    for (int i = 0; i < PEERS; i++) note(&peers[i].leaves);
    for (int i = PEERS; i-- > 0;) close_peer(&peers[i]);
    return 0;
}

/* --- a learner -------------------------------------------------------------------------------- */

static int check(void *context, const struct state_load *l, struct pl_err *err)
{
    struct peer *p = context;
    return optimizer_state_check(&p->state, l, p->epoch, err);
}

static int take_over(struct peer *p)
{
    struct state_load l;
    struct pl_err err;
    int rc = collaboration_load(p->c, INT64_MAX, check, p, &l, &err);
    if (!rc) rc = optimizer_state_take(&p->state, p->value, &p->epoch, &l, &err);
    state_load_clear(&l);
    return rc;
}

static void share(struct peer *p)
{
    struct state_snapshot *s = optimizer_state_snapshot(&p->state, p->value, p->epoch, 0.01, -1,
                                                        "");
    if (s) collaboration_share(p->c, s);
}

static void correct(struct peer *p)
{
    struct collaboration_round r;
    if (!collaboration_corrected(p->c, &r) || r.status) return;
    optimizer_state_get(&p->state, p->host_tensor, p->value);
    collaboration_correct(p->c, p->host_tensor);
    optimizer_state_put(&p->state, p->value, (const float *const *)p->host_tensor);
}

static void update(struct peer *p, int64_t samples)
{
    struct collaboration_round r;
    be.scale(p->grad, 1 / (float)samples, TOTAL);
    optimizer_state_get(&p->state, p->host_tensor, p->grad);
    collaboration_average(p->c, p->host_tensor, &r);
    if (!r.status) optimizer_state_put(&p->state, p->grad, (const float *const *)p->host_tensor);
    p->common += !r.status;
    correct(p);
    pl_optimizer_step(p->optimizer, p->value, p->grad, 0.01);
    memset(p->grad, 0, sizeof p->grad);
    p->epoch++;
    optimizer_state_get(&p->state, p->host_tensor, p->value);
    collaboration_advance(p->c, p->host_tensor);
    share(p);
    collaboration_publish(p->c, 1.5, samples / BATCH, samples);
}

static void *learn(void *context)
{
    struct peer *p = context;
    struct timespec nap = { 0, (long)(p->nap * 1e9) };
    const double until = pl_seconds() + LIMIT;
    int64_t samples = 0;
    collaboration_enter(p->c, p->epoch);
    do { /* whom a newcomer asks may be too slow to answer it in time */
        if (!take_over(p)) collaboration_set_epoch(p->c, p->epoch);
    } while (p->joins_late && !p->epoch && pl_seconds() < until && !noted(&p->leaves));
    p->begun_at = p->epoch;
    share(p);
    while (p->epoch < p->epochs && !noted(&p->leaves)) {
        correct(p);
        for (size_t i = 0; i < TOTAL; i++) /* towards 0, and each a little somewhere else */
            if (p->value[i] != 0)
                p->grad[i] += BATCH * (p->value[i] + (i % 3 == (size_t)p->number ? 2 : 0));
        samples += BATCH;
        nanosleep(&nap, NULL);
        switch (collaboration_add(p->c, BATCH, p->nap)) {
        case COLLABORATION_UPDATE:
            update(p, samples);
            samples = 0;
            break;
        case COLLABORATION_CATCH_UP:
            p->caught_up++;
            memset(p->grad, 0, sizeof p->grad);
            samples = 0;
            if (!take_over(p)) collaboration_set_epoch(p->c, p->epoch);
            break;
        case COLLABORATION_GO_ON: break;
        }
    }
    correct(p);
    return NULL;
}

static void begin_learning(struct peer *p)
{
    assert_int_equal(pthread_create(&p->thread, NULL, learn, p), 0);
    p->learns = 1;
}

static double length(const float *x)
{
    double s = 0;
    for (size_t i = 0; i < TOTAL; i++) s += (double)x[i] * x[i];
    return sqrt(s);
}

/* Of uneven speed; one comes when the others have begun; the fastest leaves half-way,
 * unannounced. */
static void three_learn_together(void **state)
{
    struct collaboration_view v;
    struct metrics_sums sums;
    struct report_record totals;
    double apart = 0, start;
    (void)state;
    pl_backend_ref(&be);
    for (int i = 0; i < LEARNERS; i++) open_peer(&peers[i], i);
    start = length(peers[0].value);
    for (int i = 0; i < LEARNERS; i++) {
        peers[i].nap = 0.04 + 0.03 * i;
        peers[i].epochs = i == 1 ? 6 : 12;
        if ((peers[i].joins_late = i == 2)) {
            do {
                struct timespec nap = { 0, 20000000 };
                nanosleep(&nap, NULL);
                collaboration_get_view(peers[0].c, &v);
            } while (v.epoch < 2);
        }
        begin_learning(&peers[i]);
    }
    join_learner(&peers[1]);
    join_learner(&peers[0]);
    join_learner(&peers[2]);
    assert_true(peers[2].begun_at >=
                1); /* it took a state over: who is slow may have lent the one before */
    for (int i = 0; i < LEARNERS; i++)
        assert_true(peers[i].common >= 1); /* a slow machine may spoil some */
    for (size_t i = 0; i < TOTAL; i++)
        apart = fmax(apart, fabs((double)peers[0].value[i] - peers[2].value[i]));
    assert_true(apart <
                0.2); /* of values up to 7, steps of 1 %: alone they would be farther apart */
    assert_true(length(peers[0].value) < start);
    collaboration_metrics(peers[0].c, &sums);
    assert_true(sums.step >= 6);
    assert_true(sums.loss > 0);
    collaboration_totals(peers[0].c, &totals);
    assert_true(totals.rounds >= 1 && totals.sent > 0 && totals.received > 0);
    assert_true(totals.uncompressed >=
                4 * (int64_t)TOTAL / 2); /* half of it goes to the other, at least */
    assert_string_equal(totals.version, "potluck " PL_VERSION);
}

/* --- who counts ------------------------------------------------------------------------------- */

static struct progress_record report_of(uint8_t who, double time)
{
    const struct peer_id peer = { .length = 34, .bytes = { 0x12, 0x20, who } };
    return (struct progress_record){ .peer = peer, .time = time };
}

static void who_did_not_come_does_not_count(void **state)
{
    static const uint8_t said[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    struct progress_record r[3] = { report_of(9, 100), report_of(5, 101), report_of(7, 102) };
    struct liveness a = { 0 };
    struct group g = { 0 };
    size_t n;
    (void)state;
    liveness_round(&a, NULL, 103); /* nobody is known yet */
    assert_int_equal(liveness_update(&a, r, 3, 103, &n), PL_OK);
    assert_int_equal(n, 3);
    assert_int_equal(group_add(&g, &r[1].peer, said, sizeof said, NULL), PL_OK);
    liveness_round(&a, &g, 101.5); /* the third has reported since, the first has not */
    assert_int_equal(liveness_update(&a, r, 3, 104, &n), PL_OK);
    assert_int_equal(n, 2);
    assert_int_equal(r[0].peer.bytes[2], 5);
    assert_int_equal(r[1].peer.bytes[2], 7);
    liveness_round(&a, NULL, 105);
    r[0] = report_of(9, 100), r[1] = report_of(5, 105), r[2] = report_of(7, 105.5);
    assert_int_equal(liveness_update(&a, r, 3, 106, &n), PL_OK);
    assert_int_equal(n, 1);
    assert_int_equal(r[0].peer.bytes[2], 7);
    r[0] = report_of(9, 106.5); /* it lives; of the others this look finds nothing */
    assert_int_equal(liveness_update(&a, r, 1, 107, &n), PL_OK);
    assert_int_equal(n, 1);
    r[0] = report_of(5, 90);
    assert_int_equal(liveness_update(&a, r, 1, 108, &n), PL_OK);
    assert_int_equal(n, 0);
    assert_int_equal(liveness_update(&a, r, 0, 109 + PROGRESS_LIFE, &n), PL_OK);
    assert_int_equal(a.count, 0);
    r[0] = report_of(5, 90); /* forgotten: as new */
    assert_int_equal(liveness_update(&a, r, 1, 110 + PROGRESS_LIFE, &n), PL_OK);
    assert_int_equal(n, 1);
    group_clear(&g);
    liveness_clear(&a);
}

/* It reports, and does not come: after three rounds in a row it does not count any more, until it has
 * been in one, or for every sixteenth. Rounds without a group say nothing about it. */
static void who_never_comes_is_absent(void **state)
{
    static const uint8_t said[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    struct liveness a = { 0 };
    struct group with = { 0 }, without = { 0 };
    const struct peer_id talker = report_of(9, 0).peer, other = report_of(5, 0).peer;
    int counted = 0;
    (void)state;
    for (uint8_t who = 5; who <= 9; who += 2) {
        const struct progress_record r = report_of(who, 0);
        assert_int_equal(group_add(&with, &r.peer, said, sizeof said, NULL), PL_OK);
        if (who < 9) assert_int_equal(group_add(&without, &r.peer, said, sizeof said, NULL), PL_OK);
    }
    for (int round = 0; round < 60; round++) {
        const int alone = round == 1, comes = round == 40;
        const double now = 100 + 10 * round;
        struct progress_record r[3] = { report_of(9, now), report_of(5, now), report_of(7, now) };
        size_t n;
        assert_int_equal(liveness_update(&a, r, 3, now + 1, &n), PL_OK);
        assert_int_equal(liveness_is_absent(&a, &talker), n == 2);
        assert_false(liveness_is_absent(&a, &other));
        counted += n == 3;
        /* one round was without a group: 0 to 3; 3 + 13, and once more after as many; 41 to 43 */
        assert_int_equal(n, round <= 3 || round == 17 || round == 33 ||
                                    (round >= 41 && round <= 43) || round == 57
                                ? 3
                                : 2);
        liveness_round(&a, alone ? NULL : comes ? &with : &without, now + 5);
    }
    assert_int_equal(counted, 4 + 1 + 1 + 3 + 1);
    group_clear(&with);
    group_clear(&without);
    liveness_clear(&a);
}

/* What a peer claims to have done counts until we should have met it three times, and again once we
 * have: in groups of two among six that takes five times as many rounds. */
static void who_shows_nothing_has_no_samples(void **state)
{
    static const uint8_t said[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    struct liveness a = { 0 };
    struct group pair = { 0 }, with = { 0 };
    struct progress_record r[5] = { report_of(1, 0), report_of(2, 0), report_of(9, 0) };
    size_t n;
    (void)state;
    for (int i = 0; i < 2; i++)
        assert_int_equal(group_add(&pair, &r[i].peer, said, sizeof said, NULL), PL_OK);
    assert_int_equal(group_add(&with, &r[2].peer, said, sizeof said, NULL), PL_OK);
    for (int limited = 0; limited <= 1; limited++) {
        for (int round = 0; round < 140; round++) {
            const int due = limited ? round / 5 : round;
            for (uint8_t i = 0; i < 5; i++) {
                r[i] = report_of(i < 4 ? i + 2 : 9, 100 + round);
                r[i].samples = TARGET;
                r[i].samples_per_second = 5;
            }
            assert_int_equal(liveness_update(&a, r, 5, 100 + round, &n), PL_OK);
            assert_int_equal(n, 5);         /* it is waited for */
            if (!limited || round % 5 == 2) /* a fifth is no binary number */
                assert_int_equal(r[4].samples, due < 3 || due % LIVENESS_AGAIN == 0 ? TARGET : 0);
            assert_int_equal(r[4].samples > 0, r[4].samples_per_second > 0);
            if (limited && round)
                assert_int_equal(r[0].samples, TARGET); /* it was in each of them */
            liveness_note_group(&a, limited ? &pair : NULL);
        }
        liveness_note_group(&a, &with);
        r[0] = r[4];
        r[0].samples = TARGET;
        assert_int_equal(liveness_update(&a, r, 1, 300, &n), PL_OK);
        assert_int_equal(r[0].samples, TARGET);
        liveness_clear(&a);
    }
    group_clear(&pair);
    group_clear(&with);
}

static void on_told(void *context, int status)
{
    struct peer *p = context;
    (void)status;
    note(&p->told);
}

static void report_as_training(void *context)
{
    struct peer *p = context;
    struct bytes value = { 0 }, subkey = { 0 };
    struct dht_id key;
    p->says.peer = *host_id(p->host);
    p->says.time = dht_node_time(p->dht);
    if (!dht_id_of_text(&key, "toy_progress") && !record_own_subkey(&subkey, &p->key) &&
        !progress_write(&value, &p->says))
        dht_node_store(p->dht, &key, bytes_at(&subkey), bytes_length(&subkey), bytes_at(&value),
                       bytes_length(&value), p->says.time + PROGRESS_LIFE, on_told, p);
    bytes_clear(&value);
    bytes_clear(&subkey);
}

/* Until the first of them counts so many peers, or has made so many steps. */
static int counts(size_t wanted, int64_t steps)
{
    const struct timespec nap = { 0, 20000000 };
    const double until = pl_seconds() + LIMIT;
    struct collaboration_view v;
    int64_t from;
    collaboration_get_view(peers[0].c, &v);
    from = v.epoch;
    while (v.peers != wanted && v.epoch < from + steps && pl_seconds() < until) {
        nanosleep(&nap, NULL);
        collaboration_get_view(peers[0].c, &v);
    }
    return v.peers == wanted;
}

/* Until the first of them has made so many steps more. */
static int steps(int64_t more)
{
    const struct timespec nap = { 0, 20000000 };
    const double until = pl_seconds() + LIMIT;
    struct collaboration_view v;
    int64_t from;
    collaboration_get_view(peers[0].c, &v);
    for (from = v.epoch; v.epoch < from + more && pl_seconds() < until;) {
        nanosleep(&nap, NULL);
        collaboration_get_view(peers[0].c, &v);
    }
    return v.epoch >= from + more;
}

static void say_and_vanish(struct peer *p)
{
    struct collaboration_view v;
    const int before = noted(&p->told);
    collaboration_get_view(peers[0].c, &v);
    p->says.epoch = v.epoch;
    p->says.samples = BATCH;
    p->says.samples_per_second = 1;
    loop_call(p->loop, report_as_training, p);
    assert_true(await_noted(&p->told, before + 1, LIMIT));
}

#define AWHILE 100 /* steps: it comes within a few, unless the machine stands still for somebody */

static void begin_with_two(size_t group_size)
{
    pl_backend_ref(&be);
    for (int i = 0; i < 3; i++) open_peer_for(&peers[i], i, group_size);
    for (int i = 0; i < 2; i++) {
        peers[i].nap = 0.04;
        peers[i].epochs = 1000;
        begin_learning(&peers[i]);
    }
    assert_true(counts(2, AWHILE));
}

static void end_with_two(void)
{
    for (int i = 0; i < 2; i++) note(&peers[i].leaves);
    for (int i = 0; i < 2; i++) join_learner(&peers[i]);
}

/* Two train; a third says so and comes to no round. Its record is there for a minute, which is how
 * long each step would wait for it. Where groups are limited to two, it may be in another one. */
static void wait_for_the_dead(size_t group_size)
{
    struct peer *dead = &peers[2];
    double said;
    int left_out;
    begin_with_two(group_size);
    said = pl_seconds();
    say_and_vanish(dead);
    assert_true(counts(3, AWHILE));
    left_out = counts(2, 6);
    if (!group_size) { /* it was asleep */
        assert_true(left_out);
        say_and_vanish(dead);
        assert_true(counts(3, AWHILE));
        assert_true(counts(2, 6));
    } else if (pl_seconds() < said + PROGRESS_LIFE / 2) assert_false(left_out); /* not by its age */
    assert_false(counts(PEERS + 1, 20)); /* never so many: twenty steps more */
    end_with_two();
    assert_true(peers[0].common >= 10);
}

/* Two train; a third goes on saying so, and comes to no round: after a few it costs nobody anything. */
static void who_only_talks_is_left_out(void **state)
{
    struct collaboration_view v;
    int64_t from = 0, start;
    double until;
    (void)state;
    begin_with_two(0);
    say_and_vanish(&peers[2]);
    assert_true(counts(3, AWHILE));
    collaboration_get_view(peers[0].c, &v);
    start = v.epoch;
    until = pl_seconds() + LIMIT;
    do { /* until five steps in a row have not counted it */
        say_and_vanish(&peers[2]);
        collaboration_get_view(peers[0].c, &v);
        if (v.peers != 2 || !from) from = v.epoch;
    } while (v.epoch < from + 5 && v.epoch < start + 29 && pl_seconds() < until);
    end_with_two();
    if (v.epoch < from + 5) fail_msg("step %d, and it still counts", (int)v.epoch);
    assert_true(v.epoch < start + 16); /* before it is waited for once more */
}

/* Two train in step; a third claims to be ahead, and has no state. They
 * go on with their common steps, and never leave them to look for it. */
static void who_claims_a_lead_is_not_followed(void **state)
{
    static const int64_t leads[] = { 1, 2, 30, INT64_MAX / 2 };
    struct collaboration_view v;
    (void)state;
    begin_with_two(0);
    assert_true(steps(AWHILE / 10)); /* so they have met */
    for (size_t i = 0; i < PL_COUNT(leads); i++) {
        const int64_t common = peers[0].common, before = peers[0].caught_up + peers[1].caught_up;
        for (int k = 0; k < 5; k++) {
            const int told = noted(&peers[2].told);
            collaboration_get_view(peers[0].c, &v);
            peers[2].says = (struct progress_record){ .epoch = v.epoch + leads[i],
                                                      .samples = INT64_MAX,
                                                      .samples_per_second = 1e308 };
            loop_call(peers[2].loop, report_as_training, &peers[2]);
            assert_true(await_noted(&peers[2].told, told + 1, LIMIT));
            assert_true(steps(2));
        }
        collaboration_get_view(peers[0].c, &v);
        assert_true(v.global_epoch <= v.epoch + 1); /* the other one's, at most */
        assert_true(peers[0].common > common);
        /* a slow machine may leave one behind */
        assert_true(peers[0].caught_up + peers[1].caught_up - before <= 1);
    }
    end_with_two();
}

/* Three peers were at epoch 0; two of them died, and their records stay for a minute. The third goes on. A
 * newcomer takes over the third one's state, though most records are of epoch 0. */
static void the_dead_hold_no_newcomer_back(void **state)
{
    struct peer *late = &peers[3];
    struct collaboration_view v;
    (void)state;
    pl_backend_ref(&be);
    for (int i = 0; i < PEERS; i++) open_peer(&peers[i], i);
    for (int i = 1; i <= 2; i++) {
        loop_call(peers[i].loop, report_as_training, &peers[i]);
        assert_true(await_noted(&peers[i].told, 1, LIMIT));
        close_peer(&peers[i]);
    }
    peers[0].nap = 0.04;
    peers[0].epochs = 1000;
    begin_learning(&peers[0]);
    assert_true(steps(5));
    collaboration_enter(late->c, 0);
    collaboration_get_view(late->c, &v);
    assert_int_equal(v.peers, 3); /* two are dead, and a third one claims more than most */
    assert_int_equal(v.global_epoch, 0);
    assert_int_equal(take_over(late), PL_OK);
    assert_true(late->epoch >= 3);
    note(&peers[0].leaves);
    join_learner(&peers[0]);
}

/* As the first one sees it, for half a record's life. */
static int sees(size_t wanted)
{
    const struct timespec nap = { 0, 20000000 };
    const double until = pl_seconds() + PROGRESS_LIFE / 2;
    struct collaboration_view v;
    do {
        nanosleep(&nap, NULL);
        collaboration_get_view(peers[0].c, &v);
    } while (v.peers != wanted && pl_seconds() < until);
    return v.peers == wanted;
}

/* Its report does not outlive it: nobody's round waits for it. */
static void who_leaves_takes_its_report_back(void **state)
{
    (void)state;
    pl_backend_ref(&be);
    for (int i = 0; i < 2; i++) open_peer(&peers[i], i);
    collaboration_enter(peers[0].c, 0); /* it only looks */
    peers[1].nap = 0.04;
    peers[1].epochs = 3;
    learn(&peers[1]);
    assert_true(sees(2));
    close_peer(&peers[1]);
    assert_true(sees(1));
}

static void the_dead_count_for_one_round(void **state)
{
    (void)state;
    wait_for_the_dead(0);
}
static void others_may_be_in_another_group(void **state)
{
    (void)state;
    wait_for_the_dead(2);
}

/* What one gives, another takes: every bit of it; and what does not fit is refused with a
 * sentence. */
static void state_there_and_back(void **state)
{
    struct state_snapshot *s;
    struct state_source source;
    struct state_load l = { 0 };
    struct bytes message = { 0 };
    struct pl_err err = { "" };
    struct training_state meta;
    int64_t epoch;
    (void)state;
    pl_backend_ref(&be);
    open_peer(&peers[0], 0);
    open_peer(&peers[1], 1);
    for (int i = 0; i < 3; i++) {
        for (size_t k = 0; k < TOTAL; k++)
            peers[0].grad[k] = sinf((float)k) * (peers[0].value[k] != 0);
        pl_optimizer_step(peers[0].optimizer, peers[0].value, peers[0].grad, 0.01);
    }
    s = optimizer_state_snapshot(&peers[0].state, peers[0].value, 7, 0.01, 0.02, "0110");
    assert_non_null(s);
    assert_int_equal(training_state_read(&meta, s->metadata, s->metadata_n, &err), PL_OK);
    assert_string_equal(meta.group_bits, "0110");
    training_state_clear(&meta);
    source = (struct state_source){ .metadata = s->metadata,
                                    .metadata_n = s->metadata_n,
                                    .tensors = s->tensors,
                                    .count = s->count };
    while (!state_source_next(&source, &message, &be, NULL)) {
        assert_int_equal(state_load_add(&l, bytes_at(&message), bytes_length(&message), &err),
                         PL_OK);
        bytes_clear(&message);
    }
    assert_int_equal(state_load_finish(&l, &err), PL_OK);
    assert_int_equal(optimizer_state_check(&peers[1].state, &l, 8, &err), PL_EPROTO);
    assert_non_null(strstr(err.text, "epoch"));
    assert_int_equal(optimizer_state_check(&peers[1].state, &l, 7, &err), PL_OK);
    assert_int_equal(optimizer_state_take(&peers[1].state, peers[1].value, &epoch, &l, &err),
                     PL_OK);
    assert_int_equal(epoch, 7);
    assert_memory_equal(peers[0].value, peers[1].value, sizeof peers[0].value);
    assert_int_equal(pl_optimizer_steps(peers[1].optimizer), 3);
    for (size_t k = 0; k < pl_optimizer_state_count(peers[0].optimizer); k++) {
        float a[600], b[600];
        size_t n = pl_optimizer_state_at(peers[0].optimizer, k).n;
        pl_optimizer_state_get(peers[0].optimizer, k, a);
        pl_optimizer_state_get(peers[1].optimizer, k, b);
        assert_memory_equal(a, b, n * sizeof *a);
    }
    memset(l.tensors[1].buffer, 0xff, 4); /* not a number */
    assert_int_equal(optimizer_state_check(&peers[1].state, &l, 0, &err), PL_EFORMAT);
    state_source_clear(&source);
    state_load_clear(&l);
    s->release(s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(state_there_and_back, close_all),
        cmocka_unit_test_teardown(three_learn_together, close_all),
        cmocka_unit_test(who_did_not_come_does_not_count),
        cmocka_unit_test(who_never_comes_is_absent),
        cmocka_unit_test(who_shows_nothing_has_no_samples),
        cmocka_unit_test_teardown(who_leaves_takes_its_report_back, close_all),
        cmocka_unit_test_teardown(the_dead_count_for_one_round, close_all),
        cmocka_unit_test_teardown(who_only_talks_is_left_out, close_all),
        cmocka_unit_test_teardown(who_claims_a_lead_is_not_followed, close_all),
        cmocka_unit_test_teardown(others_may_be_in_another_group, close_all),
        cmocka_unit_test_teardown(the_dead_hold_no_newcomer_back, close_all),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
