/* training_records.c - which reporting peers the others wait for: peers that died, that never come
 * to a round, that claim to be ahead, that leave; and whose reports count under one name. */
#include "training_world.h"
#include "net/hivemind/training/training_internal.h"

static void on_stored(void *context, int status)
{
    struct peer *p = context;
    note(&p->stored);
}

static void report_as_training(void *context)
{
    struct peer *p = context;
    struct bytes value = { 0 }, subkey = { 0 };
    struct dht_id key;
    if (!p->claim.peer.length) p->claim.peer = *host_id(p->host);
    p->claim.time = dht_node_time(p->dht);
    if (!dht_id_of_text(&key, "toy_progress") && !record_own_subkey(&subkey, &p->key) &&
        !progress_write(&value, &p->claim))
        dht_node_store(p->dht, &key, bytes_at(&subkey), bytes_length(&subkey), bytes_at(&value),
                       bytes_length(&value), p->claim.time + PROGRESS_LIFE, on_stored, p);
    bytes_clear(&value);
    bytes_clear(&subkey);
}

/* Until the first of them counts this many peers, or has made this many steps. */
static int counts(size_t wanted, int64_t steps)
{
    const struct timespec nap = { 0, 20000000 };
    const double until = pl_seconds() + LIMIT;
    struct training_view v;
    int64_t from;
    training_get_view(peers[0].c, &v);
    from = v.epoch;
    while (v.peers != wanted && v.epoch < from + steps && pl_seconds() < until) {
        nanosleep(&nap, NULL);
        training_get_view(peers[0].c, &v);
    }
    return v.peers == wanted;
}

/* Until the first of them has made this many steps more. */
static int steps(int64_t more)
{
    const struct timespec nap = { 0, 20000000 };
    const double until = pl_seconds() + LIMIT;
    struct training_view v;
    int64_t from;
    training_get_view(peers[0].c, &v);
    for (from = v.epoch; v.epoch < from + more && pl_seconds() < until;) {
        nanosleep(&nap, NULL);
        training_get_view(peers[0].c, &v);
    }
    return v.epoch >= from + more;
}

/* Until the first of them has made this many common steps more. On a busy machine a round may fail,
 * and its step is taken alone: the time is limited, not the number of steps. */
static int common_steps(int more)
{
    return await_noted(&peers[0].common, noted(&peers[0].common) + more, LIMIT);
}

static void report_and_vanish(struct peer *p)
{
    struct training_view v;
    const int before = noted(&p->stored);
    training_get_view(peers[0].c, &v);
    p->claim.epoch = v.epoch;
    p->claim.samples = BATCH;
    p->claim.samples_per_second = 1;
    loop_call(p->loop, report_as_training, p);
    assert_true(await_noted(&p->stored, before + 1, LIMIT));
}

/* steps: it comes within a few, unless a peer's thread does not run for a long time */
#define AWHILE 100

/* Both have reported before the first one trains: one that does not see the other yet takes its step
 * alone, and may leave its search just when the other has begun a group with it. Each such round
 * costs a back-off of 15 s or more. */
static void begin_with_two(size_t group_size)
{
    pl_backend_ref(&be);
    for (int i = 0; i < 3; i++) open_peer_for(&peers[i], i, group_size);
    for (int i = 0; i < 2; i++) {
        training_enter(peers[i].c, 0);
        training_add(peers[i].c, BATCH, 1);
    }
    for (int i = 0; i < 2; i++) {
        peers[i].nap = 0.04;
        peers[i].epochs = 1000;
        begin_training(&peers[i]);
    }
    assert_true(counts(2, AWHILE));
}

static void end_with_two(void)
{
    for (int i = 0; i < 2; i++) note(&peers[i].leaves);
    for (int i = 0; i < 2; i++) join_trainer(&peers[i]);
}

/* What the first peer remembers of the third: zeros if nothing. The view's number of peers does not
 * tell whether it counts the third, since it leaves out the second one while that is a step ahead. */
static void remember(void *context)
{
    const struct liveness *l = &peers[0].c->poll.liveness;
    struct participant *third = context;
    memset(third, 0, sizeof *third);
    for (size_t i = 0; i < l->count; i++)
        if (peer_id_equal(&l->list[i].peer, &peers[2].claim.peer)) *third = l->list[i];
}

static int is_left_out(void)
{
    struct participant third;
    loop_call(peers[0].loop, remember, &third);
    return third.reported > 0 && third.reported <= third.missed;
}

/* A round that does not wait for it may end between two polls, and after three of them it is waited
 * for in the 16th again. */
static int third_counts(void)
{
    const double until = pl_seconds() + LIMIT;
    int is_counted;
    do {
        report_and_vanish(&peers[2]);
        is_counted = counts(3, 3);
    } while (!is_counted && pl_seconds() < until);
    return is_counted;
}

/* Two train; a third reports that it does, and comes to no round. Its record is there for a minute,
 * which is how long each step would wait for it. */
static void dead_peer_counts_for_one_round(void **state)
{
    begin_with_two(0);
    for (int reports = 0; reports < 2; reports++) { /* then it was asleep */
        assert_true(third_counts());
        for (int k = 0; k < 6 && !is_left_out(); k++) assert_true(steps(1));
        assert_true(is_left_out());
    }
    assert_false(counts(PEERS + 1, 20)); /* never this many: twenty steps more */
    end_with_two();
    assert_true(peers[0].common >= 10);
}

/* Where groups are limited to two, the third may be in another one: no round is charged to it. */
static void others_may_be_in_another_group(void **state)
{
    struct participant third;
    begin_with_two(2);
    report_and_vanish(&peers[2]);
    assert_true(counts(3, AWHILE));
    assert_true(steps(6));
    loop_call(peers[0].loop, remember, &third);
    assert_true(third.reported > 0 && third.due > 0);
    assert_int_equal(third.misses, 0);
    end_with_two();
    assert_true(peers[0].common >= 3);
}

/* Two train; a third goes on reporting, and comes to no round: after a few rounds none waits for it.
 * The number of peers alone would not tell: two are also the third and one that is not a step
 * ahead. */
static void peer_that_only_reports_is_excluded(void **state)
{
    struct training_view v;
    struct participant third;
    int64_t from = 0, start;
    double until;
    begin_with_two(0);
    report_and_vanish(&peers[2]);
    assert_true(counts(3, AWHILE));
    training_get_view(peers[0].c, &v);
    start = v.epoch;
    until = pl_seconds() + LIMIT;
    do { /* until it has been absent, and was not counted, for five steps in a row */
        report_and_vanish(&peers[2]);
        training_get_view(peers[0].c, &v);
        loop_call(peers[0].loop, remember, &third);
        if (third.misses < LIVENESS_MISSES || v.peers > 2 || !from) from = v.epoch;
    } while (v.epoch < from + 5 && v.epoch < start + 29 && pl_seconds() < until);
    end_with_two();
    if (v.epoch < from + 5) fail_msg("step %d, and it still counts", (int)v.epoch);
    assert_false(third.is_met);
    assert_true(v.epoch < start + 16); /* before it is waited for once more */
}

/* Two train in step; a third claims to be ahead, and has no state. They
 * go on with their common steps, and never leave them to search for it. */
static void claimed_lead_is_not_followed(void **state)
{
    static const int64_t leads[] = { 1, 2, 30, INT64_MAX / 2 };
    struct training_view v;
    begin_with_two(0);
    assert_true(steps(AWHILE / 10)); /* so they have met */
    for (size_t i = 0; i < PL_COUNT(leads); i++) {
        const int64_t before = peers[0].caught_up + peers[1].caught_up;
        const int common = noted(&peers[0].common);
        for (int k = 0; k < 5; k++) {
            const int stored = noted(&peers[2].stored);
            training_get_view(peers[0].c, &v);
            peers[2].claim = (struct progress_record){ .epoch = v.epoch + leads[i],
                                                       .samples = INT64_MAX,
                                                       .samples_per_second = 1e308 };
            loop_call(peers[2].loop, report_as_training, &peers[2]);
            assert_true(await_noted(&peers[2].stored, stored + 1, LIMIT));
            assert_true(steps(2));
        }
        training_get_view(peers[0].c, &v);
        assert_true(v.global_epoch <= v.epoch + 1); /* the other one's, at most */
        assert_true(noted(&peers[0].common) > common);
        /* a slow machine may leave one behind */
        assert_true(peers[0].caught_up + peers[1].caught_up - before <= 1);
    }
    end_with_two();
}

/* Three peers were at epoch 0; two of them died, and their records stay for a minute. The third goes on. A
 * newcomer takes over the third one's state, though most records are of epoch 0. */
static void dead_peers_hold_no_newcomer_back(void **state)
{
    struct peer *late = &peers[3];
    struct training_view v;
    pl_backend_ref(&be);
    for (int i = 0; i < PEERS; i++) open_peer(&peers[i], i);
    for (int i = 1; i <= 2; i++) {
        loop_call(peers[i].loop, report_as_training, &peers[i]);
        assert_true(await_noted(&peers[i].stored, 1, LIMIT));
        close_peer(&peers[i]);
    }
    peers[0].nap = 0.04;
    peers[0].epochs = 1000;
    begin_training(&peers[0]);
    assert_true(steps(5));
    training_enter(late->c, 0);
    training_get_view(late->c, &v);
    assert_int_equal(v.peers, 3); /* two are dead, and a third one claims more than most */
    assert_int_equal(v.global_epoch, 0);
    assert_int_equal(take_over(late), PL_OK);
    assert_true(late->epoch >= 3);
    note(&peers[0].leaves);
    join_trainer(&peers[0]);
}

/* As the first one sees it, for half a record's life. */
static int sees(size_t wanted)
{
    const struct timespec nap = { 0, 20000000 };
    const double until = pl_seconds() + PROGRESS_LIFE / 2;
    struct training_view v;
    do {
        nanosleep(&nap, NULL);
        training_get_view(peers[0].c, &v);
    } while (v.peers != wanted && pl_seconds() < until);
    return v.peers == wanted;
}

/* Its report does not outlive it: no round waits for it. */
static void leaving_peer_withdraws_its_report(void **state)
{
    pl_backend_ref(&be);
    for (int i = 0; i < 2; i++) open_peer(&peers[i], i);
    training_enter(peers[0].c, 0); /* it only polls */
    peers[1].nap = 0.04;
    peers[1].epochs = 3;
    train_loop(&peers[1]);
    assert_true(sees(2));
    close_peer(&peers[1]);
    assert_true(sees(1));
}

/* A stranger reports in a peer's name before the peer does. Who has seen it takes the peer's own
 * report once it comes, since its identity has signed for the key. */
static void a_name_claimed_before_its_peer_reports(void **state)
{
    const double until = pl_seconds() + PROGRESS_LIFE / 2; /* the false record is still there */
    struct training_view v;
    pl_backend_ref(&be);
    for (int i = 0; i < 3; i++) open_peer(&peers[i], i);
    training_enter(peers[0].c, 0); /* it only polls */
    training_enter(peers[1].c, 0);
    peers[2].claim.peer = *host_id(peers[1].host);
    report_and_vanish(&peers[2]);
    training_enter(peers[0].c, 0);
    training_get_view(peers[0].c, &v);
    assert_int_equal(v.global_samples, BATCH); /* the false one */
    training_add(peers[1].c, 3 * BATCH, 1);
    do {
        training_enter(peers[0].c, 0); /* polls */
        training_get_view(peers[0].c, &v);
    } while (v.global_samples < 3 * BATCH && pl_seconds() < until);
    assert_int_equal(v.global_samples, 3 * BATCH);
}

/* What is under a key of progress records. */
struct found {
    int ended;
    size_t sums, in_sums, alone;
};

static void on_found(void *context, int status, const struct dht_result *r)
{
    struct found *f = context;
    struct progress_record records[2 * PEERS];
    size_t n = 0;
    if (!status && r->type == DHT_FOUND_DICTIONARY && r->dictionary.count <= PL_COUNT(records))
        n = claims_read(records, r->dictionary.items, r->dictionary.count);
    f->sums = f->in_sums = f->alone = 0;
    for (size_t i = 0; i < n; i++) {
        f->sums += records[i].peers > 0;
        f->in_sums += records[i].peers;
        f->alone += !records[i].peers;
    }
    note(&f->ended);
}

static struct found found;

static void poll_run(void *context)
{
    struct peer *p = context;
    struct dht_id key;
    if (!dht_id_of_text(&key, "toy_progress")) dht_node_get(p->dht, &key, 1, on_found, &found);
}

static void poll_part(void *context)
{
    struct peer *p = context;
    dht_node_get(p->dht, &p->c->report.key[1], 1, on_found, &found);
}

/* Until it has found this many peers' own records; within half of a record's life. */
static int finds_alone(loop_fn *request, size_t wanted)
{
    const double until = pl_seconds() + PROGRESS_LIFE / 2;
    do {
        const int before = noted(&found.ended);
        loop_call(peers[0].loop, request, &peers[0]);
        assert_true(await_noted(&found.ended, before + 1, LIMIT));
    } while (found.alone != wanted && pl_seconds() < until);
    return found.alone == wanted;
}

/* Until this many sums are under the run's key. */
static int finds_sums(size_t wanted)
{
    const double until = pl_seconds() + PROGRESS_LIFE / 2;
    do {
        const int before = noted(&found.ended);
        loop_call(peers[0].loop, poll_run, &peers[0]);
        assert_true(await_noted(&found.ended, before + 1, LIMIT));
    } while (found.sums != wanted && pl_seconds() < until);
    return found.sums == wanted;
}

static size_t level;
static void read_level(void *context)
{
    struct peer *p = context;
    level = p->c->report.level;
}

static int reaches_level(struct peer *p, size_t wanted)
{
    const double until = pl_seconds() + PROGRESS_LIFE / 2;
    do {
        training_enter(p->c, 0); /* polls */
        loop_call(p->loop, read_level, p);
    } while (level != wanted && pl_seconds() < until);
    return level == wanted;
}

static void withdraw(void *context)
{
    struct peer *p = context;
    struct bytes nil = { 0 }, subkey = { 0 };
    struct dht_id key;
    if (!dht_id_of_text(&key, "toy_progress") && !record_own_subkey(&subkey, &p->key) &&
        !mp_nil(&nil))
        dht_node_store(p->dht, &key, bytes_at(&subkey), bytes_length(&subkey), bytes_at(&nil),
                       bytes_length(&nil), dht_node_time(p->dht) + PROGRESS_LIFE, on_stored, p);
    bytes_clear(&nil);
    bytes_clear(&subkey);
}

/* Three are too many for one key; when two have left, the third reports under the run's key again.
 * Its record in the part is withdrawn: nobody counts it twice. */
static void records_move_with_the_size_of_the_run(void **state)
{
    part_peers = 2;
    pl_backend_ref(&be);
    for (int i = 0; i < 3; i++) open_peer(&peers[i], i);
    training_enter(peers[0].c, 0);
    training_add(peers[0].c, BATCH, 1); /* it reports */
    for (int i = 1; i < 3; i++) report_and_vanish(&peers[i]);
    assert_true(reaches_level(&peers[0], 1));
    for (int i = 1; i < 3; i++) {
        const int before = noted(&peers[i].stored);
        loop_call(peers[i].loop, withdraw, &peers[i]);
        assert_true(await_noted(&peers[i].stored, before + 1, LIMIT));
    }
    assert_true(reaches_level(&peers[0], 0));
    assert_true(finds_alone(poll_run, 1));
    assert_true(finds_alone(poll_part, 0));
    part_peers = 0;
}

/* A part's leader leaves: its sum does not stay under the run's key for a minute. */
static void leaving_leader_withdraws_its_sum(void **state)
{
    part_peers = 2;
    pl_backend_ref(&be);
    for (int i = 0; i < 3; i++) open_peer(&peers[i], i);
    training_enter(peers[1].c, 0);
    training_add(peers[1].c, BATCH, 1); /* it reports */
    report_and_vanish(&peers[0]);
    report_and_vanish(&peers[2]);
    assert_true(reaches_level(&peers[1], 1));
    assert_true(finds_sums(1));
    close_peer(&peers[1]);
    assert_true(finds_sums(0));
    part_peers = 0;
}

/* A run that is large for its keys: two trainers report in parts, each part's leader under the run's
 * key. A third, of an older version or of hivemind, reports under the run's key itself. All are
 * counted once, and the two go on with their common steps. */
static void parts_and_old_peers_count_once(void **state)
{
    const double until = pl_seconds() + LIMIT;
    int before;
    part_peers = 1;
    begin_with_two(0);
    assert_true(common_steps(1));
    assert_true(third_counts());
    do {
        report_and_vanish(&peers[2]);
        before = noted(&found.ended);
        loop_call(peers[2].loop, poll_run, &peers[2]);
        assert_true(await_noted(&found.ended, before + 1, LIMIT));
    } while ((found.in_sums != 2 || found.alone != 1) && pl_seconds() < until);
    assert_int_equal(found.in_sums, 2);
    assert_int_equal(found.alone, 1);
    assert_true(common_steps(3));
    assert_false(counts(4, 5));
    assert_true(common_steps(1));
    end_with_two();
    part_peers = 0;
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(leaving_peer_withdraws_its_report, close_all),
        cmocka_unit_test_teardown(a_name_claimed_before_its_peer_reports, close_all),
        cmocka_unit_test_teardown(dead_peer_counts_for_one_round, close_all),
        cmocka_unit_test_teardown(peer_that_only_reports_is_excluded, close_all),
        cmocka_unit_test_teardown(claimed_lead_is_not_followed, close_all),
        cmocka_unit_test_teardown(others_may_be_in_another_group, close_all),
        cmocka_unit_test_teardown(dead_peers_hold_no_newcomer_back, close_all),
        cmocka_unit_test_teardown(records_move_with_the_size_of_the_run, close_all),
        cmocka_unit_test_teardown(leaving_leader_withdraws_its_sum, close_all),
        cmocka_unit_test_teardown(parts_and_old_peers_count_once, close_all),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
