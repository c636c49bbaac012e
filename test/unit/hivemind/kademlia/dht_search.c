/* dht_search.c - one iterative search and a script of answers, failures and silence: which node is asked next,
 * when others take its place, and when the search is over. [Kademlia 2.3] dht_join.c has searches
 * among nodes that invent others. */
#include "net/hivemind/kademlia/dht_search.h"
#include "test/unit/unit.h"

#include <math.h>

static struct dht_search s;
static const struct dht_id key; /* all zeros: a node's number is its distance */

static struct dht_id id_of(size_t number)
{
    struct dht_id id = { .bytes = { 0 } };
    id.bytes[DHT_ID_BYTES - 1] = (uint8_t)number;
    id.bytes[DHT_ID_BYTES - 2] = (uint8_t)(number >> 8);
    return id;
}

static struct dht_contact node(size_t number)
{
    struct dht_contact c = { .id = id_of(number) };
    c.peer = (struct peer_id){ .length = 34, .bytes = { 0x12, 0x20 } };
    c.peer.bytes[2] = (uint8_t)number;
    c.peer.bytes[3] = (uint8_t)(number >> 8);
    return c;
}

/* A search of node 0xfff, which knows the nodes 1 to n. */
static void begin(size_t n, double sufficient)
{
    const struct dht_id self = id_of(0xfff);
    dht_search_init(&s, &key, &self, sufficient, NULL);
    for (size_t i = n; i; i--) {
        const struct dht_contact c = node(i);
        assert_int_equal(dht_search_add(&s, &c, 1), PL_OK);
    }
    s.now = 10;
}

static int is_node(size_t place, size_t number)
{
    const struct dht_id id = id_of(number);
    return dht_id_equal(&s.nodes[place].who.id, &id);
}

static size_t ask(void) /* the number of the node, 0: none */
{
    struct dht_contact who;
    if (!dht_search_next(&s, &who)) return 0;
    return (size_t)who.id.bytes[DHT_ID_BYTES - 1] | (size_t)who.id.bytes[DHT_ID_BYTES - 2] << 8;
}

/* It reports the nodes `from` to `to`. */
static void answer(size_t number, size_t from, size_t to)
{
    const struct dht_id who = id_of(number);
    struct dht_contact near[16];
    struct dht_found found = { .type = DHT_NOT_FOUND, .expiration = NAN, .nearest = near };
    for (size_t i = from; from && i <= to; i++) near[found.nearest_count++] = node(i);
    assert_int_equal(dht_search_answered(&s, &who, &found), PL_OK);
}

static void answer_record(size_t number, double expiration)
{
    const struct dht_id who = id_of(number);
    struct dht_found found = { DHT_FOUND_REGULAR, (const uint8_t *)"\x01", 1, expiration, NULL, 0 };
    assert_int_equal(dht_search_answered(&s, &who, &found), PL_OK);
}

static void lose(size_t number)
{
    const struct dht_id who = id_of(number);
    dht_search_failed(&s, &who);
}

/* The nearest first, eight at once; each answer or failure frees a place. */
static void the_nearest_are_asked_first(void **state)
{
    begin(30, INFINITY);
    for (size_t i = 1; i <= DHT_SEARCH_WORKERS; i++) assert_int_equal(ask(), i);
    assert_int_equal(ask(), 0);
    answer(3, 0, 0);
    assert_int_equal(ask(), 9);
    assert_int_equal(ask(), 0);
    lose(1);
    assert_int_equal(ask(), 10);
    assert_int_equal(s.asked, DHT_SEARCH_WORKERS);
    answer(3, 0, 0); /* twice: once counts */
    lose(3);
    lose(25); /* was never asked */
    assert_true(s.answered == 1 && s.asked == DHT_SEARCH_WORKERS);
    dht_search_clear(&s);
}

/* Twenty nodes that have not failed; a failed one's place is the next one's. */
static void the_beam_holds_twenty(void **state)
{
    begin(30, INFINITY);
    for (size_t i = 1; i <= 20; i++) {
        assert_int_equal(ask(), i);
        if (i != 5) answer(i, 0, 0);
    }
    assert_int_equal(ask(), 0);
    assert_false(dht_search_is_over(&s)); /* the fifth may still answer */
    lose(5);
    assert_false(dht_search_is_over(&s));
    assert_int_equal(ask(), 21);
    assert_false(dht_search_is_over(&s));
    answer(21, 0, 0);
    assert_true(dht_search_is_over(&s));
    dht_search_clear(&s);
}

/* Nodes that an answer names are asked if they are near enough; never ourselves, and none twice. */
static void answers_bring_nearer_nodes(void **state)
{
    begin(0, INFINITY);
    {
        const struct dht_contact far[] = { node(0x100), node(0x200) };
        assert_int_equal(dht_search_add(&s, far, 2), PL_OK);
    }
    assert_int_equal(ask(), 0x100);
    assert_int_equal(ask(), 0x200);
    answer(0x100, 7, 9);
    answer(0x200, 7, 8);
    assert_int_equal(s.count, 5);
    assert_int_equal(ask(), 7);
    answer(7, 0xffe, 0xfff);
    assert_int_equal(s.count, 6); /* 0xffe, not ourselves */
    assert_int_equal(ask(), 8);
    assert_int_equal(ask(), 9);
    assert_int_equal(ask(), 0xffe);
    assert_int_equal(ask(), 0);
    dht_search_clear(&s);
}

/* The list holds 512 nodes: nearer ones push the farthest out, which are asked last anyway. */
static void the_farthest_are_forgotten(void **state)
{
    struct dht_contact c;
    begin(0, INFINITY);
    for (size_t i = 0; i < DHT_SEARCH_NODES_MAX; i++) {
        c = node(100 + i);
        assert_int_equal(dht_search_add(&s, &c, 1), PL_OK);
    }
    c = node(1000);
    assert_int_equal(dht_search_add(&s, &c, 1), PL_OK);
    assert_int_equal(s.count, DHT_SEARCH_NODES_MAX);
    assert_true(is_node(s.count - 1, 99 + DHT_SEARCH_NODES_MAX));
    c = node(1);
    assert_int_equal(dht_search_add(&s, &c, 1), PL_OK);
    assert_int_equal(s.count, DHT_SEARCH_NODES_MAX);
    assert_true(is_node(0, 1));
    assert_true(is_node(s.count - 1, 98 + DHT_SEARCH_NODES_MAX));
    s.nodes[s.count - 1].state = SEARCH_ASKED; /* its answer is awaited: it stays */
    c = node(2);
    assert_int_equal(dht_search_add(&s, &c, 1), PL_OK);
    assert_true(is_node(1, 100));
    dht_search_clear(&s);
}

/* --- silence ---------------------------------------------------------------------------------- */

/* A silent node is passed over, and counts again when it answers; the search ends without it if as many have
 * answered as are late. */
static void late_nodes_are_passed_over(void **state)
{
    begin(3, INFINITY);
    s.patience = 1;
    assert_int_equal(ask(), 1);
    s.now = 10.5;
    assert_int_equal(ask(), 2);
    assert_true(dht_search_pass(&s) == 11);
    s.now = 11;
    assert_true(dht_search_pass(&s) == 11.5);
    assert_true(s.late == 1 && s.asked == 1);
    assert_int_equal(ask(), 3);
    answer(3, 0, 0);
    s.now = 11.5;
    assert_true(dht_search_pass(&s) == INFINITY);
    assert_true(s.late == 2 && s.asked == 0);
    assert_false(dht_search_is_over(&s)); /* two are late, one has answered */
    s.first_answer_ends = 1;
    assert_true(dht_search_is_over(&s));
    s.first_answer_ends = 0;
    answer(2, 0, 0);
    assert_true(s.late == 1 && s.answered == 2 && s.asked == 0);
    assert_true(dht_search_is_over(&s));
    lose(1);
    assert_true(s.late == 0 && s.asked == 0);
    assert_int_equal(s.vain, 0); /* nobody has invented them */
    dht_search_clear(&s);
    begin(1, INFINITY);
    s.patience = 1;
    s.first_answer_ends = 1;
    assert_int_equal(ask(), 1);
    s.now = 11;
    dht_search_pass(&s);
    assert_false(dht_search_is_over(&s)); /* nobody has replied */
    dht_search_clear(&s);
}

/* Reported nodes are late after ten times the slowest answer, but not before 0.2 s; the search does not wait for them. */
static void reported_nodes_have_less_time(void **state)
{
    static const struct {
        double answer, late;
    } cases[] = { { 0.0078125, 0.2 }, { 0.0625, 0.625 }, { 0.5, 2 } };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        begin(2, INFINITY);
        s.patience = 2;
        assert_int_equal(ask(), 1);
        s.now += cases[i].answer;
        answer(1, 3, 4);
        assert_int_equal(ask(), 2); /* known: its patience is the usual */
        assert_int_equal(ask(), 3);
        assert_true(fabs(dht_search_pass(&s) - s.now - cases[i].late) < 1e-9);
        s.now += cases[i].late;
        assert_true(dht_search_pass(&s) ==
                    (cases[i].late < 2 ? s.nodes[1].asked_at + 2 : INFINITY));
        assert_true(s.late_reported == 1 && s.vain == 1);
        answer(2, 0, 0);
        lose(3); /* was late, and is counted already */
        assert_true(s.vain == 1 && s.late == 0 && s.late_reported == 0);
        assert_int_equal(ask(), 4);
        lose(4);
        assert_int_equal(s.vain, 2);
        assert_true(dht_search_is_over(&s));
        dht_search_clear(&s);
    }
}

/* Eight in vain, and two more for each that has answered: then only known nodes are asked. */
static void inventing_nodes_ends(void **state)
{
    for (size_t real = 0; real < 2; real++) {
        size_t asked = 0;
        begin(1, INFINITY);
        assert_int_equal(ask(), 1);
        answer(1, 2, 15);
        if (real) {
            assert_int_equal(ask(), 2);
            answer(2, 0, 0);
            assert_int_equal(s.reported, 1);
        }
        for (size_t n; (n = ask()); asked++) lose(n);
        assert_int_equal(asked, DHT_SEARCH_VAIN + 2 * real);
        assert_true(dht_search_is_over(&s));
        {
            const struct dht_contact c = node(40);
            assert_int_equal(dht_search_add(&s, &c, 1), PL_OK);
        }
        assert_int_equal(ask(), 40);
        dht_search_clear(&s);
    }
}

static size_t judged[3]; /* calls, useless and useful ones of node 1 */

static void judge(void *context, const struct peer_id *reporter, int is_vain)
{
    assert_ptr_equal(context, &s);
    judged[0]++;
    if (reporter->bytes[2] == 1) judged[is_vain ? 1 : 2]++;
}

/* A reporter is judged once: useful if one of its nodes has answered, useless if three were asked in vain. */
static void reporters_are_judged(void **state)
{
    static const struct {
        size_t failed, answered, useless, useful;
    } cases[] = { { 2, 0, 0, 0 }, { 3, 0, 1, 0 }, { 4, 1, 0, 1 }, { 0, 1, 0, 1 }, { 0, 0, 0, 0 } };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        begin(1, INFINITY);
        assert_int_equal(ask(), 1);
        answer(1, 2, 9);
        for (size_t k = 0; k < cases[i].failed; k++) lose(ask());
        for (size_t k = 0; k < cases[i].answered; k++) answer(ask(), 0, 0);
        memset(judged, 0, sizeof judged);
        dht_search_judge(&s, judge, &s);
        assert_int_equal(judged[1], cases[i].useless);
        assert_int_equal(judged[2], cases[i].useful);
        assert_int_equal(judged[0], cases[i].useless + cases[i].useful);
        dht_search_clear(&s);
    }
}

/* --- the user's word -------------------------------------------------------------------------- */

/* Initial peers are asked before all others, and stay however far they are; not for nodes alone. */
static void initial_peers_are_asked_in_any_case(void **state)
{
    const struct dht_contact far = node(0xf00);
    begin(30, INFINITY);
    assert_int_equal(dht_search_trust(&s, &far, 1), PL_OK);
    assert_int_equal(s.nodes[0].is_trusted, 0);
    assert_int_equal(ask(), 0xf00);
    assert_int_equal(ask(), 1);
    dht_search_clear(&s);
    begin(30, INFINITY);
    s.nodes_only = 1;
    assert_int_equal(dht_search_trust(&s, &far, 1), PL_OK);
    assert_int_equal(ask(), 1);
    dht_search_clear(&s);
    begin(0, INFINITY);
    assert_int_equal(dht_search_trust(&s, &far, 1), PL_OK);
    for (size_t i = 1; i <= DHT_SEARCH_NODES_MAX; i++) {
        const struct dht_contact c = node(i);
        assert_int_equal(dht_search_add(&s, &c, 1), PL_OK);
    }
    assert_int_equal(s.count, DHT_SEARCH_NODES_MAX);
    assert_int_equal(ask(), 0xf00);
    dht_search_clear(&s);
}

/* --- the record ------------------------------------------------------------------------------- */

/* Any record that is alive may be enough; for the latest one all of the beam is asked. */
static void a_sufficient_record_ends_the_search(void **state)
{
    for (int latest = 0; latest < 2; latest++) {
        begin(9, latest ? INFINITY : 50);
        assert_int_equal(ask(), 1);
        answer_record(1, 49);
        assert_false(dht_search_is_over(&s));
        assert_int_equal(ask(), 2);
        answer_record(2, 50);
        assert_int_equal(dht_search_is_over(&s), !latest);
        assert_int_equal(ask(), latest ? 3 : 0);
        assert_true(s.best.type == DHT_FOUND_REGULAR && s.best.expiration == 50);
        dht_search_clear(&s);
    }
    begin(1, 50);
    s.nodes_only = 1;
    assert_int_equal(ask(), 1);
    answer_record(1, 60);
    assert_int_equal(s.best.type, DHT_NOT_FOUND);
    dht_search_clear(&s);
}

/* Those that have answered, nearest first; and the nearest of them without the best record. */
static void what_is_known_afterwards(void **state)
{
    struct dht_contact near[4];
    begin(6, INFINITY);
    for (size_t i = 1; i <= 6; i++) assert_int_equal(ask(), i);
    assert_null(dht_search_without(&s));
    answer_record(1, 60);
    lose(2);
    assert_null(dht_search_without(&s)); /* the one that has answered has it */
    answer_record(5, 59);
    assert_true(dht_search_without(&s)->id.bytes[DHT_ID_BYTES - 1] == 5);
    answer(4, 0, 0);
    assert_true(dht_search_without(&s)->id.bytes[DHT_ID_BYTES - 1] == 4);
    assert_int_equal(dht_search_nearest(&s, near, 4), 3);
    assert_int_equal(dht_search_nearest(&s, near, 2), 2);
    assert_true(near[0].id.bytes[DHT_ID_BYTES - 1] == 1 && near[1].id.bytes[DHT_ID_BYTES - 1] == 4);
    dht_search_clear(&s);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nearest_are_asked_first),
        cmocka_unit_test(the_beam_holds_twenty),
        cmocka_unit_test(answers_bring_nearer_nodes),
        cmocka_unit_test(the_farthest_are_forgotten),
        cmocka_unit_test(late_nodes_are_passed_over),
        cmocka_unit_test(reported_nodes_have_less_time),
        cmocka_unit_test(inventing_nodes_ends),
        cmocka_unit_test(reporters_are_judged),
        cmocka_unit_test(initial_peers_are_asked_in_any_case),
        cmocka_unit_test(a_sufficient_record_ends_the_search),
        cmocka_unit_test(what_is_known_afterwards),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
