/* allreduce_byzantine.c - verified all-reduces of seven peers, with Byzantine peers of each kind at
 * each place: honest peers never ban or charge one another, all of them come to the same result,
 * and each Byzantine peer is banned or charged. */
#define PEERS 7
#define MOST 600
#include "byzantine_messages.h"

/* --- what comes of them ----------------------------------------------------------------------- */

enum outcome {
    HOLDS = 1,  /* the round is applied by all honest peers; no peer is banned or charged */
    BANNED = 2, /* by all honest peers, for it is proven */
    CHARGED = 4 /* by all honest peers: it isn't */
};

static float before[PEERS][VALUES];

static void make_group(struct world *w)
{
    make(w);
    w->verify = 1;
    w->part_bytes = 256;
    w->validation.samples_max = 100;
    for (size_t t = 0; t < TENSORS; t++) w->method[t] = PL_COMPRESS_NONE;
    for (size_t i = 1; i < PEERS; i++)
        for (size_t v = 0; v < VALUES; v++)
            w->peer[i].values[v] = w->peer[0].values[v] + 0.1f * w->peer[i].values[v];
    for (size_t i = 0; i < PEERS; i++) memcpy(before[i], w->peer[i].values, sizeof before[i]);
}

static void tell_lies(struct letter *l)
{
    for (size_t k = 0; k < byzantine_count; k++) {
        if (l->from != byzantine[k]) continue;
        stage_of_lie = stages[k];
        rewrite_letter(l, the_world, reported_by[k]);
    }
}

static void play(struct world *w)
{
    the_world = w;
    if (byzantine_count) w->meddle = tell_lies;
    begin(w);
    run(w);
    for (int i = 0; i < 30; i++)
        tick(w, 1); /* requests for missing messages, and the end of all
                                              * time limits */
}

/* All honest peers have come to the same. Returns what happened to those who lied. */
static int outcome(struct world *w, const char *what)
{
    size_t judge = 0;
    int result;
    while (is_byzantine(judge)) judge++;
    result = w->peer[judge].status ? 0 : HOLDS;
    for (size_t i = 0; i < PEERS; i++) {
        const struct peer *p = &w->peer[i];
        const struct verifier *r = p->x->verify.verifier;
        if (is_byzantine(i)) continue;
        if (!p->over || (p->status == PL_OK) != (result == HOLDS) ||
            (p->status && p->status != PL_EIO))
            fail_msg("%s by %zu: peer %zu is at %d, peer %zu at %d: %s", what, byzantine[0], i,
                     p->status, judge, w->peer[judge].status, p->err.text);
        for (size_t k = 0; result == HOLDS && k < PEERS; k++) assert_false(r->b.guilty[k]);
        if (p->status) assert_memory_equal(p->values, before[i], sizeof before[i]);
        else assert_memory_equal(p->values, w->peer[judge].values, sizeof before[i]);
        for (size_t k = 0; k < PEERS; k++) {
            if (!is_byzantine(k) && lied(p, k))
                fail_msg("%s by %zu: peer %zu bans peer %zu: %s", what, byzantine[0], i, k,
                         p->err.text);
            if (lied(p, k) != lied(&w->peer[judge], k))
                fail_msg("%s by %zu: peers %zu and %zu differ about %zu: %s, %s", what,
                         byzantine[0], i, judge, k, p->err.text, w->peer[judge].err.text);
            if (!is_byzantine(k) && r->charged[k])
                fail_msg("%s by %zu: peer %zu charges peer %zu: %s", what, byzantine[0], i, k,
                         p->err.text);
        }
    }
    for (size_t k = 0; k < byzantine_count; k++) {
        int all_charge = 1;
        for (size_t i = 0; i < PEERS; i++)
            if (!is_byzantine(i))
                all_charge &= w->peer[i].x->verify.verifier->charged[byzantine[k]];
        if (lied(&w->peer[judge], byzantine[k])) result |= BANNED << (4 * k);
        if (all_charge) result |= CHARGED << (4 * k);
    }
    return result;
}

static const struct lie {
    const char *what;
    lie_fn *lie;
    int first, last; /* stage_of_lie, each of these */
    int expected;    /* either of these */
} lies[] = {
    { "an accusation of all", accuse_all, 0, 0, BANNED },
    { "an accusation of one", accuse_one, 0, 0, BANNED },
    { "an accusation about a part of another", accuse_of_others, 0, 0, BANNED },
    { "wrong hashes for all", commit_wrongly, 0, 0, BANNED },
    { "wrong hashes for one", commit_one_wrongly, 0, 0, BANNED },
    { "a wrong hash of its aggregates", commit_to_other_aggregates, 0, 0, BANNED },
    { "two stories", equivocate, VERIFIER_COMMIT, VERIFIER_OPEN, BANNED },
    { "two stories at the end", equivocate, VERIFIER_AGREE, VERIFIER_AGREE, HOLDS },
    { "two stories by halves", equivocate_by_halves, VERIFIER_COMMIT, VERIFIER_OPEN, BANNED },
    { "two stories at the end, by halves", equivocate_by_halves, VERIFIER_AGREE, VERIFIER_AGREE,
      HOLDS },
    { "another number", reveal_another, 0, 0, BANNED },
    { "a false report", misreport, 0, 0, BANNED },
    { "a report of no numbers", report_no_numbers, 0, 0, BANNED },
    { "other values shown", open_other_values, 0, 0, BANNED },
    { "no values shown", open_nothing, 0, 0, BANNED },
    { "other hashes shown", open_other_hashes, 0, 0, BANNED },
    { "too many samples", claim_too_much, 0, 0, BANNED },
    { "another epoch", be_of_another_epoch, 0, 0, CHARGED },
    { "another agreement", agree_to_another, 0, 0, CHARGED },
    { "silence", fall_silent, VERIFIER_SENT, VERIFIER_AGREE, CHARGED },
    { "silence to one", be_silent_to_one, VERIFIER_COMMIT, VERIFIER_AGREE, HOLDS },
    { "silence to most", be_silent_to_most, VERIFIER_COMMIT, VERIFIER_AGREE, HOLDS },
    { "silence to most about what it has sent", be_silent_to_most, VERIFIER_SENT, VERIFIER_SENT,
      CHARGED },
    { "another list", list_another, VERIFIER_COMMIT, VERIFIER_OPEN, CHARGED },
    { "a denial of all", deny_all, 0, 0, CHARGED },
    { "another signature to all", sign_another, 0, 0, CHARGED },
};

static void each_kind_at_each_place(void **state)
{
    byzantine_count = 1;
    for (size_t k = 0; k < PL_COUNT(lies); k++)
        for (stages[0] = lies[k].first; stages[0] <= lies[k].last; stages[0]++)
            for (byzantine[0] = 0; byzantine[0] < PEERS; byzantine[0] += 3) {
                static struct world w;
                int got;
                make_group(&w);
                /* letters come in their order; or one peer's before another's */
                for (size_t i = 0; byzantine[0] == 3 && i < PEERS; i++) w.rank[i] = 0;
                reported_by[0] = lies[k].lie;
                play(&w);
                got = outcome(&w, lies[k].what);
                if (got != lies[k].expected)
                    fail_msg("%s by %zu at stage %d: %d, expected %d: %s", lies[k].what,
                             byzantine[0], stages[0], got, lies[k].expected,
                             w.peer[victim()].err.text);
                end(&w);
            }
}

/* Whatever two Byzantine peers report together, no honest peer is banned or charged, and if the
 * round is lost one of the two is. */
static void two_of_seven(void **state)
{
    byzantine_count = 2;
    byzantine[0] = 1;
    byzantine[1] = 2;
    for (size_t k = 0; k < PL_COUNT(lies); k++)
        for (size_t i = k; i < PL_COUNT(lies); i++) {
            static struct world w;
            make_group(&w);
            reported_by[0] = lies[k].lie;
            reported_by[1] = lies[i].lie;
            stages[0] = (lies[k].first + lies[k].last) / 2;
            stages[1] = (lies[i].first + lies[i].last + 1) / 2;
            play(&w);
            if (!outcome(&w, lies[k].what))
                fail_msg("%s and %s: the round is void at nobody's cost: %s", lies[k].what,
                         lies[i].what, w.peer[0].err.text);
            end(&w);
        }
}

static void large_values_of_a_sender_ban_no_reducer(void **state)
{
    static struct world w;
    byzantine_count = 1;
    byzantine[0] = 2;
    reported_by[0] = misreport_a_share;
    make_group(&w);
    for (size_t v = 0; v < VALUES; v++) w.peer[2].values[v] *= LONG;
    play(&w);
    assert_int_equal(outcome(&w, "a share of a long sender's length"), BANNED);
    end(&w);
}

/* --- forgeries -------------------------------------------------------------------------------- */

static void put_other(struct bytes *out, const struct broadcast *b, enum frame_kind kind,
                      const struct bytes *content)
{
    uint8_t start[FRAME_START] = { (uint8_t)kind };
    memcpy(start + 1, b->o.round, PL_HASH_BYTES);
    put_frame(out, start, bytes_at(content), bytes_length(content));
}

/* Two heads in the victim's name, as a proof. */
static void put_proof(struct bytes *out, const struct broadcast *b, const uint8_t *head, size_t n,
                      const uint8_t *other, size_t other_n)
{
    struct bytes proof = { 0 };
    bytes_be32(&proof, (uint32_t)n);
    bytes_add(&proof, head, n);
    bytes_add(&proof, other, other_n);
    put_other(out, b, FRAME_PROOF, &proof);
    bytes_clear(&proof);
}

static uint8_t old_head[512]; /* the victim's, of a round before */
static size_t old_n;

/* With each packet go the victim's commitment with another body, or hash, under its old signature;
 * the same one twice, and one of another round, as proofs that it equivocates; and a pair's message
 * that it should have signed. */
static void forge(struct letter *l)
{
    const struct broadcast *b;
    const struct cell *c;
    struct bytes out = { 0 }, forged = { 0 };
    if (l->kind == VERIFY && l->from == victim() && l->to == 0 &&
        the_world->peer[l->from].x->verify.verifier->phase == VERIFIER_COMMIT)
        l->n = 0; /* lost on its way: the forgery comes first */
    if (l->kind != VERIFY || !is_byzantine(l->from)) return;
    b = &the_world->peer[l->from].x->verify.verifier->b;
    c = &b->cell[VERIFIER_COMMIT * PEERS + victim()];
    bytes_add(&out, l->data, l->n);
    if (bytes_length(&c->message)) {
        const uint8_t *m = bytes_at(&c->message);
        size_t hash = 5; /* behind stage, sender, receiver */
        struct signed_message sent = { .stage = VERIFIER_SENT,
                                       .from = (uint16_t)victim(),
                                       .to = (uint16_t)after(victim()),
                                       .body = (const uint8_t *)"a",
                                       .n = 2 * PL_HASH_BYTES };
        uint8_t body[2 * PL_HASH_BYTES] = { 1 };
        bytes_add(&forged, m, bytes_length(&c->message));
        forged.data[forged.begin + c->head + COMMIT_LOT] ^= 1;
        put_other(&out, b, FRAME_MESSAGE, &forged);
        signed_hash(forged.data + forged.begin + hash, forged.data + forged.begin + c->head,
                    bytes_length(&forged) - c->head);
        put_other(&out, b, FRAME_MESSAGE, &forged);
        put_proof(&out, b, m, c->head, bytes_at(&forged), c->head);
        put_proof(&out, b, m, c->head, m, c->head);
        put_proof(&out, b, m, c->head, old_head, old_n);
        bytes_clear(&forged);
        sent.body = body;
        assert_int_equal(signed_message_write(&forged, &sent, &the_world->peer[l->from].me,
                                              b->o.round),
                         PL_OK);
        put_other(&out, b, FRAME_MESSAGE, &forged);
    }
    free(l->data);
    l->n = bytes_length(&out);
    assert_non_null(l->data = malloc(l->n + 1));
    memcpy(l->data, bytes_at(&out), l->n);
    bytes_clear(&out);
    bytes_clear(&forged);
}

static void forged_messages_have_no_effect(void **state)
{
    byzantine_count = 1;
    byzantine[0] = 4;
    for (int round = 0; round < 2; round++) {
        static struct world w;
        const struct cell *c;
        make_group(&w);
        for (size_t i = 0; i < PEERS; i++) w.peer[i].group.id[0] = (uint8_t)round;
        the_world = &w;
        if (round) w.meddle = forge;
        begin(&w);
        run(&w);
        for (int i = 0; i < 10; i++) tick(&w, 1);
        assert_int_equal(outcome(&w, "a forgery"), HOLDS);
        c = &w.peer[0].x->verify.verifier->b.cell[VERIFIER_COMMIT * PEERS + victim()];
        memcpy(old_head, bytes_at(&c->message), old_n = c->head);
        end(&w);
    }
}

/* --- votes ------------------------------------------------------------------------------------ */

static float given[PEERS][VALUES]; /* from each peer's data */
enum votes { FOR_EACH_OTHER, AGAINST_ALL };
static enum votes votes;

static int recompute(void *context, const struct peer_id *peer, const struct verifier_claim *claim,
                     float *const *tensor)
{
    const struct peer *judge = context;
    size_t of = 0;
    while (!peer_id_equal(peer, &judge->w->peer[of].me.id)) of++;
    for (size_t t = 0, at = 0; t < TENSORS; at += elements[t++])
        for (size_t k = 0; k < elements[t]; k++)
            tensor[t][k] = is_byzantine(judge->self) && votes == AGAINST_ALL ? -given[of][at + k]
                           : is_byzantine(judge->self)                       ? before[of][at + k]
                                                                             : given[of][at + k];
    return PL_OK;
}

/* Two Byzantine peers that vote for each other's false values, or that accuse and vote falsely,
 * have no majority. */
static void two_false_votes_have_no_majority(void **state)
{
    byzantine_count = 2;
    byzantine[0] = 1;
    byzantine[1] = 5;
    reported_by[0] = reported_by[1] = NULL;
    for (votes = FOR_EACH_OTHER; votes <= AGAINST_ALL; votes++) {
        int found = 0;
        for (int round = 0; !found && round < 40; round++) {
            static struct world w;
            make_group(&w);
            memcpy(given, before, sizeof given);
            for (size_t v = 0; votes == FOR_EACH_OTHER && v < VALUES; v++)
                for (size_t k = 0; k < byzantine_count; k++)
                    w.peer[byzantine[k]].values[v] = before[byzantine[k]][v] *= -1;
            w.validation.validators = 3;
            w.validation.recompute = recompute;
            begin(&w);
            run(&w);
            found = outcome(&w, "a false vote");
            if (found & HOLDS) found = 0;
            else assert_true(found & (BANNED | BANNED << 4));
            end(&w);
        }
        assert_true(found);
    }
}

/* From a stage on everything of verification to and from the first three is lost. */
static void some_are_cut_off(struct letter *l)
{
    if (l->kind == VERIFY && (l->from < 3 || l->to < 3) &&
        the_world->peer[l->from].x->verify.verifier->phase >= VERIFIER_REPORT)
        l->n = 0;
}

/* The first packet of each pair is lost: it is asked for again. */
static uint8_t lost[PEERS][PEERS];
static void lose_the_first(struct letter *l)
{
    if (l->kind == VERIFY && !lost[l->from][l->to]++) l->n = 0;
}

static void what_is_lost_is_sent_again(void **state)
{
    static struct world w;
    byzantine_count = 0;
    byzantine[0] = PEERS;
    make_group(&w);
    w.meddle = lose_the_first;
    begin(&w);
    run(&w);
    for (int i = 0; i < 30; i++) tick(&w, 1);
    assert_int_equal(outcome(&w, "loss"), HOLDS);
    end(&w);
}

/* Of more than can be Byzantine the silence is the network's. */
static void network_failure_charges_nobody(void **state)
{
    static struct world w;
    byzantine_count = 0;
    byzantine[0] = PEERS;
    make_group(&w);
    the_world = &w;
    w.meddle = some_are_cut_off;
    begin(&w);
    run(&w);
    for (int i = 0; i < 30; i++) tick(&w, 1);
    for (size_t i = 0; i < PEERS; i++) {
        assert_int_equal(w.peer[i].status, PL_EIO);
        for (size_t k = 0; k < PEERS; k++) {
            assert_int_equal(lied(&w.peer[i], k), 0);
            assert_int_equal(w.peer[i].x->verify.verifier->charged[k], 0);
        }
    }
    end(&w);
}

/* One peer denies to have received what the other has signed. No third peer knows which one lies:
 * both are charged, and neither is banned. A peer that knows charges the other. */
static void denial_charges_both_peers(void **state)
{
    for (byzantine_count = 1; byzantine_count <= 2; byzantine_count++) {
        static struct world w;
        byzantine[0] = 3;
        byzantine[1] = 4;
        reported_by[0] = reported_by[1] = deny_one;
        make_group(&w);
        play(&w);
        for (size_t i = 0; i < PEERS; i++) {
            const struct verifier *r = w.peer[i].x->verify.verifier;
            if (is_byzantine(i)) continue;
            assert_int_equal(w.peer[i].status, PL_EIO);
            for (size_t k = 0; k < PEERS; k++) {
                int pays = is_byzantine(k) || (k == victim() && k != i);
                assert_int_equal(lied(&w.peer[i], k), 0);
                assert_int_equal(r->charged[k], pays);
            }
        }
        end(&w);
    }
}

/* In a group of seven two may be Byzantine, so an honest peer may have two denials. A peer that denies two is charged
 * with both of them; none is banned. */
static void two_denials_charge_three_peers(void **state)
{
    static struct world w;
    (void)state;
    byzantine_count = 1;
    byzantine[0] = 3;
    reported_by[0] = deny_two;
    make_group(&w);
    play(&w);
    for (size_t i = 0; i < PEERS; i++) {
        if (i == 3) continue;
        for (size_t k = 0; k < PEERS; k++) {
            const int pays = k == 3 || k == victim() || k == after(victim());
            assert_int_equal(lied(&w.peer[i], k), 0);
            assert_int_equal(w.peer[i].x->verify.verifier->charged[k], pays && k != i);
        }
    }
    end(&w);
}

static void honest_groups_apply_their_round(void **state)
{
    static struct world w;
    byzantine_count = 0;
    byzantine[0] = PEERS;
    make_group(&w);
    play(&w);
    assert_int_equal(outcome(&w, "nothing"), HOLDS);
    end(&w);
}

/* A name, with * and ?, runs only the tests that match it. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_groups_apply_their_round),
        cmocka_unit_test(each_kind_at_each_place),
        cmocka_unit_test(two_of_seven),
        cmocka_unit_test(denial_charges_both_peers),
        cmocka_unit_test(two_denials_charge_three_peers),
        cmocka_unit_test(large_values_of_a_sender_ban_no_reducer),
        cmocka_unit_test(forged_messages_have_no_effect),
        cmocka_unit_test(two_false_votes_have_no_majority),
        cmocka_unit_test(what_is_lost_is_sent_again),
        cmocka_unit_test(network_failure_charges_nobody),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
