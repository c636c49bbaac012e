/* training_digest.c - steps that a peer takes without a mean widen the limit of its own digest, until
 * a round of the parameters corrects it; while they lead far, it stores none. */
#include "training_world.h"
#include "net/hivemind/training/training_internal.h"

static struct group_member members[3];
static const struct group group = { .members = members, .count = PL_COUNT(members) };
static struct digest last;
static double step_length;

static void note_group(void *context)
{
    struct training *c = context;
    training_note_mates(c, &group);
}

/* The same change of the parameters each time, by the mean of a group or alone. */
static void take_step(struct peer *p, int by_mean)
{
    struct digest before = last;
    for (size_t i = 0; i < TOTAL; i++) p->value[i] += 0.01f * (float)(i % 5);
    optimizer_state_get(&p->state, p->host_tensor, p->value);
    digest_take(&last, p->host_tensor, p->c->elements, TENSORS);
    step_length = digest_distance(&last, &before);
    if (by_mean) loop_call(p->loop, note_group, p->c);
    training_advance(p->c, p->host_tensor);
    training_compare(p->c, p->host_tensor);
}

static void end_parameters(struct peer *p, int status, size_t count)
{
    struct training_round r;
    p->c->state.result.status = status;
    p->c->state.result.peers = count;
    p->c->state.phase = STATE_ENDED;
    assert_true(training_corrected(p->c, &r));
}

static void steps_alone_are_counted(void **state)
{
    struct peer *p = &peers[0];
    const struct digest_checks *d;
    pl_backend_ref(&be);
    open_peer(p, 0);
    d = &p->c->digests;
    training_enter(p->c, 0);
    for (int i = 0; i < 3; i++) take_step(p, 0);
    assert_float_equal(d->alone, 3 * 2 * step_length, 1e-3 * step_length);
    take_step(p, 1);
    assert_float_equal(d->alone, 3 * 2 * step_length, 1e-3 * step_length);
    /* A round of the parameters that fails changes nothing; one of three leaves a third. */
    end_parameters(p, PL_EIO, 3);
    assert_float_equal(d->alone, 6 * step_length, 1e-3 * step_length);
    end_parameters(p, PL_OK, 3);
    assert_float_equal(d->alone, 2 * step_length, 1e-3 * step_length);
    /* A step after the copy that the round averages is not corrected by it. */
    take_step(p, 1);
    p->c->digests.alone += step_length;
    end_parameters(p, PL_OK, 2);
    assert_float_equal(d->alone, 2 * step_length, 1e-3 * step_length);
    training_enter(p->c, 9);
    assert_true(d->alone == 0);
}

static struct {
    int ended;
    size_t records;
} found;

static void on_found(void *context, int status, const struct dht_result *r)
{
    found.records = !status && r->type == DHT_FOUND_DICTIONARY ? r->dictionary.count : 0;
    note(&found.ended);
}

static void get_digests(void *context)
{
    struct training *c = context;
    struct dht_id key;
    if (!digest_key(&key, c->run, c->gradient.result.group))
        dht_node_get(c->o.node, &key, 1, on_found, NULL);
}

/* Of the last group. */
static size_t digests(struct peer *p)
{
    const int before = noted(&found.ended);
    loop_call(p->loop, get_digests, p->c);
    assert_true(await_noted(&found.ended, before + 1, LIMIT));
    return found.records;
}

static void far_by_steps_alone_it_stores_no_digest(void **state)
{
    struct peer *p = &peers[0];
    pl_backend_ref(&be);
    open_peer(p, 0);
    training_enter(p->c, 0);
    for (int i = 0; i < DIGEST_STEPS / 2 - 1; i++) take_step(p, 0);
    p->c->gradient.result.group[0] = 1;
    take_step(p, 1);
    assert_int_equal(digests(p), 1);
    for (int i = 0; i < 2; i++) take_step(p, 0);
    p->c->gradient.result.group[0] = 2;
    take_step(p, 1);
    assert_int_equal(digests(p), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(steps_alone_are_counted, close_all),
        cmocka_unit_test_teardown(far_by_steps_alone_it_stores_no_digest, close_all),
    };
    for (size_t i = 0; i < PL_COUNT(members); i++) members[i].peer.length = 34;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
