/* allreduce_silence.c - groupmates that are silent or slow in an all-reduce, or send unusable
 * messages: how long the others wait for each, which are blamed, and which error the user reads. */
#include "allreduce_world.h"
#include "net/hivemind/allreduce/allreduce_internal.h"

static enum allreduce_outcome outcome(const struct world *w, size_t at, size_t peer)
{
    double latest;
    return allreduce_outcome(w->peer[at].x, peer, &latest);
}

static size_t senders_lost(const struct world *w, size_t at)
{
    struct allreduce_report report;
    allreduce_report(w->peer[at].x, &report);
    return report.senders_lost;
}

static const struct allreduce_patience short_patience[PEERS] = {
    { 1, 2 }, { 1, 2 }, { 1, 2 }, { 1, 2 }
};

/* A client that is silent while the others have sent: given up after its patience, not after the
 * timeout; and it alone has withheld anything. */
static void silent_sender(void **state)
{
    static struct world w;
    for (int is_short = 0; is_short <= 1; is_short++) {
        make(&w);
        if (is_short) w.patience = short_patience;
        w.peer[1].frozen = 1;
        begin(&w);
        run(&w);
        assert_true(allreduce_wake(w.peer[0].x) <= (is_short ? 1 : 4));
        tick(&w, 0.9);
        assert_int_equal(senders_lost(&w, 0), 0);
        tick(&w, 0.2);
        assert_int_equal(w.peer[0].over, is_short);
        assert_int_equal(outcome(&w, 0, 1), is_short ? ALLREDUCE_WITHHELD : ALLREDUCE_UNKNOWN);
        tick(&w, 3);
        for (size_t i = 0; i < PEERS; i++) {
            if (i == 1) continue;
            assert_int_equal(w.peer[i].over && !w.peer[i].status, 1);
            for (size_t k = 0; k < PEERS; k++)
                if (k != i)
                    assert_int_equal(outcome(&w, i, k),
                                     k == 1 ? ALLREDUCE_WITHHELD : ALLREDUCE_DELIVERED);
        }
        w.peer[1].frozen = 0;
        end(&w);
    }
}

/* A slow link is not silence: a message that moves fast enough to arrive in time has all of that
 * time. A byte now and then has not. */
static void slow_or_trickling(void **state)
{
    static struct world w;
    for (int slow = 0; slow <= 1; slow++) {
        make(&w);
        w.patience = short_patience;
        w.peer[1].frozen = 1;
        begin(&w);
        run(&w);
        for (int i = 0; i < 3; i++) {
            for (size_t p = 0; p < PEERS; p++) w.peer[p].moved[1] += slow ? 300 : 1;
            tick(&w, 1.05);
            assert_int_equal(senders_lost(&w, 0), !slow);
        }
        tick(&w, 1); /* the timeout holds for both */
        assert_int_equal(senders_lost(&w, 0), 1);
        w.peer[1].frozen = 0;
        end(&w);
    }
}

/* What the third peer answers, and that it has, becomes what nobody listens to. */
static void mute(struct letter *l)
{
    if (l->from == 2 && l->way == ALLREDUCE_OUT) l->kind = VERIFY;
}

/* A reducer that sends its parts and answers none, though the others have: it alone is to blame, and
 * the round is over after its patience. */
static void silent_reducer(void **state)
{
    static struct world w;
    make(&w);
    w.patience = short_patience;
    w.meddle = mute;
    begin(&w);
    run(&w);
    tick(&w, 1.9);
    assert_false(w.peer[0].over);
    tick(&w, 0.2);
    for (size_t i = 0; i < PEERS; i++) {
        if (i == 2) continue;
        assert_int_equal(w.peer[i].over && w.peer[i].status == PL_EIO, 1);
        for (size_t k = 0; k < PEERS; k++)
            if (k != i)
                assert_int_equal(outcome(&w, i, k), k == 2                     ? ALLREDUCE_WITHHELD
                                                    : w.share[i] || w.share[k] ? ALLREDUCE_DELIVERED
                                                                               : ALLREDUCE_UNKNOWN);
    }
    end(&w);
}

/* Reducers that a silent sender holds up are not to blame for it: not even by one who gives them up
 * first. */
static void reducer_waiting_for_a_sender_is_not_blamed(void **state)
{
    static const struct allreduce_patience hasty[PEERS] = {
        { 9, 1 }, { 9, 1 }, { 9, 1 }, { 9, 1 }
    };
    static struct world w;
    make(&w);
    w.patience = hasty;
    w.peer[3].frozen = 1;
    begin(&w);
    run(&w);
    tick(&w, 61);
    assert_int_equal(w.peer[0].over && w.peer[0].status, 1);
    assert_int_equal(outcome(&w, 0, 3), ALLREDUCE_WITHHELD);
    assert_true(outcome(&w, 0, 2) != ALLREDUCE_WITHHELD);
    w.peer[3].frozen = 0;
    end(&w);
}

static struct bytes heavy; /* in place of the fourth peer's first message */

static void make_heavy(struct letter *l)
{
    if (l->from != 3 || l->kind != MESSAGE || l->way != ALLREDUCE_IN || !bytes_length(&heavy))
        return;
    free(l->data);
    assert_non_null(l->data = malloc(bytes_length(&heavy)));
    memcpy(l->data, bytes_at(&heavy), l->n = bytes_length(&heavy));
}

/* Each invalid weight and value is refused by its name, and costs the others nothing. */
static void named_reasons(void **state)
{
    static const struct {
        double weight;
        float value;
        const char *why;
    } cases[] = {
        { -1, 0, "weight is -1" },
        { NAN, 0, "weight is " },
        { INFINITY, 0, "weight is inf" },
        { 101, 0, "weight is 101, expected 0 to 100" },
        { 1, NAN, "not finite" },
        { 1, -INFINITY, "not finite" },
        { 1, 2 * PART_VALUE_MAX, "beyond 1e+18" },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        static struct world w;
        struct part_message m = { .code = MSG_PART_FOR_AVERAGING,
                                  .method = PL_COMPRESS_NONE,
                                  .group_id_n = DHT_ID_BYTES,
                                  .weight = cases[i].weight,
                                  .elements = 512,
                                  .bytes = 2048 };
        uint8_t *buffer, id[DHT_ID_BYTES];
        memset(id, 7, sizeof id);
        m.group_id = id;
        make(&w);
        w.meddle = make_heavy;
        assert_int_equal(part_message_write(&heavy, &buffer, &m), PL_OK);
        memset(buffer, 0, m.bytes);
        memcpy(buffer + 80, &cases[i].value, sizeof(float));
        begin(&w);
        run(&w);
        for (size_t p = 0; p < 3; p += 2) {
            assert_int_equal(senders_lost(&w, p), 1);
            assert_non_null(allreduce_left_out(w.peer[p].x));
            if (!strstr(allreduce_left_out(w.peer[p].x), cases[i].why))
                fail_msg("%s", allreduce_left_out(w.peer[p].x));
            assert_int_equal(outcome(&w, p, 3), ALLREDUCE_WITHHELD);
        }
        end(&w);
        bytes_clear(&heavy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(silent_sender),
        cmocka_unit_test(slow_or_trickling),
        cmocka_unit_test(silent_reducer),
        cmocka_unit_test(reducer_waiting_for_a_sender_is_not_blamed),
        cmocka_unit_test(named_reasons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
