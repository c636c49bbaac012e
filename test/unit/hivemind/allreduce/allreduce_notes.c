/* allreduce_notes.c - what a round says about each groupmate: whether it delivered, declined or
 * withheld what was expected of it, and the sentence that the user reads about it. */
#include "net/hivemind/allreduce/allreduce_notes.h"
#include "test/unit/unit.h"

#include <math.h>

enum { SELF, MATE, OTHER, PEERS };

static struct allreduce x;
static struct in_peer in[PEERS];
static struct out_peer out[PEERS];
static struct group_member members[PEERS];
static const struct group group = { .members = members, .count = PEERS };
static const size_t elements[] = { 100 };
static const enum pl_compression method[] = { PL_COMPRESS_FLOAT16 };

/* We reduce three parts; the mate reduces four of ours, and has delivered everything. */
static int begin(void **state)
{
    memset(in, 0, sizeof in);
    memset(out, 0, sizeof out);
    memset(&x, 0, sizeof x);
    for (int i = 0; i < PEERS; i++)
        members[i].peer = (struct peer_id){ .length = 34,
                                            .bytes = { 0x12, 0x20, (uint8_t)(40 * i + 1) } };
    x.o = (struct allreduce_options){
        .group = &group, .tensors = 1, .elements = elements, .method = method, .part_bytes = 64
    };
    x.count = PEERS;
    x.self = SELF;
    x.sending.peer = out;
    x.receiving.peer = in;
    x.reducing.own_count = 3;
    in[SELF].next = in[MATE].next = 3;
    in[MATE].latest = 0.25;
    out[MATE].parts = out[MATE].sent = out[MATE].answered = 4;
    return 0;
}

static void expect(enum allreduce_outcome want)
{
    double latest = -1;
    assert_int_equal(allreduce_outcome(&x, MATE, &latest), want);
    assert_true(latest == 0.25);
}

static void sender_and_reducer(void **state)
{
    double latest;
    expect(ALLREDUCE_DELIVERED);
    assert_int_equal(allreduce_outcome(&x, SELF, &latest), ALLREDUCE_UNKNOWN);
    /* Its parts did not come, though it answered ours. */
    in[MATE].fault = IN_FAULT_LOST;
    expect(ALLREDUCE_WITHHELD);
    in[MATE].fault = IN_FAULT_FALSE;
    expect(ALLREDUCE_WITHHELD);
    /* We have had no memory: nobody is to blame. */
    x.cause = CAUSE_OURS;
    expect(ALLREDUCE_UNKNOWN);
}

/* A peer that reduces nothing is judged by its parts alone, where some were expected. */
static void sender_alone(void **state)
{
    out[MATE].parts = out[MATE].sent = out[MATE].answered = 0;
    expect(ALLREDUCE_DELIVERED);
    in[MATE].next = 2; /* the round ended before */
    expect(ALLREDUCE_UNKNOWN);
    in[MATE].next = x.reducing.own_count = 0; /* we reduce nothing: it has none to send us */
    expect(ALLREDUCE_UNKNOWN);
    in[MATE].fault = IN_FAULT_LOST;
    expect(ALLREDUCE_WITHHELD);
}

static void reducer_without_all_answers(void **state)
{
    out[MATE].answered = 3;
    out[MATE].state = OUT_OPEN;
    expect(ALLREDUCE_UNKNOWN); /* the round ended for another reason */
    x.cause = CAUSE_TIME;
    expect(ALLREDUCE_WITHHELD);
    x.cause = CAUSE_THEIRS;
    out[MATE].state = OUT_LOST;
    expect(ALLREDUCE_WITHHELD);
    out[MATE].fault = FAULT_REFUSED;
    expect(ALLREDUCE_REFUSED);
    out[MATE].fault = FAULT_LEFT;
    in[MATE].fault = IN_FAULT_LOST; /* its values are missing as well */
    expect(ALLREDUCE_LEFT);
    in[MATE].fault = IN_FAULT_NONE;
    out[MATE].fault = FAULT_REFUSED;
    /* It may have waited for the sender that we have lost, too... */
    x.report.senders_lost = 1;
    expect(ALLREDUCE_UNKNOWN);
    /* ...but that is no reason for a false answer. */
    out[MATE].fault = FAULT_FALSE;
    expect(ALLREDUCE_WITHHELD);
}

/* What an honest peer cannot have done by a bad link is a proof. */
static void proofs(void **state)
{
    assert_null(allreduce_proof(&x, MATE));
    out[MATE].fault = FAULT_REFUSED;
    in[MATE].fault = IN_FAULT_LOST;
    assert_null(allreduce_proof(&x, MATE));
    in[MATE].fault = IN_FAULT_FALSE;
    assert_non_null(strstr(allreduce_proof(&x, MATE), "parts"));
    out[MATE].fault = FAULT_FALSE;
    assert_non_null(strstr(allreduce_proof(&x, MATE), "answers"));
    assert_null(allreduce_proof(&x, OTHER));
    assert_int_equal(allreduce_is_charged(&x, MATE), 0);
}

/* From 0 to the user's limit; without one, and above the wire format's, to that. */
static void weights_have_a_limit(void **state)
{
    const double limits[] = { 0, 4096, 1e12 }, most[] = { PART_WEIGHT_MAX, 4096, PART_WEIGHT_MAX };
    for (size_t i = 0; i < PL_COUNT(limits); i++) {
        x.o.weight_max = limits[i];
        assert_true(allreduce_is_weight(&x, 0) && allreduce_is_weight(&x, most[i]));
        assert_false(allreduce_is_weight(&x, nextafter(most[i], INFINITY)));
        assert_false(allreduce_is_weight(&x, -1e-9));
        assert_false(allreduce_is_weight(&x, INFINITY));
        assert_false(allreduce_is_weight(&x, NAN));
    }
}

/* The first peer and reason of a kind is named, and stays. */
static void values_left_out(void **state)
{
    struct contribution c = { .peer = MATE, .part = { .weight = 1 } };
    char name[PEER_ID_TEXT_MAX], first[512];
    assert_null(allreduce_left_out(&x));
    allreduce_note_left_out(&x, &c);
    peer_id_text(name, &members[MATE].peer);
    assert_memory_equal(allreduce_left_out(&x), name, strlen(name));
    assert_non_null(strstr(allreduce_left_out(&x), "not finite"));
    snprintf(first, sizeof first, "%s", allreduce_left_out(&x));
    c.peer = OTHER;
    allreduce_note_left_out(&x, &c);
    assert_string_equal(allreduce_left_out(&x), first);
    begin(state);
    x.o.weight_max = 64;
    c.part.weight = 65;
    allreduce_note_left_out(&x, &c);
    assert_non_null(strstr(allreduce_left_out(&x), "weight is 65, expected 0 to 64"));
}

/* 64 bytes a part: 32 values as float16, 64 as 8 bits. A part as long as its own
 * compression makes it differs by the compression; another length by --part-bytes. */
static void which_option_differs(void **state)
{
    static const struct {
        enum pl_compression method;
        size_t at, elements;
        const char *option;
    } cases[] = { { PL_COMPRESS_UNIFORM8, 0, 64, "--compression differs" },
                  { PL_COMPRESS_UNIFORM8, 64, 36, "--compression differs" }, /* a tensor's last */
                  { PL_COMPRESS_UNIFORM8, 0, 128, "our --part-bytes 64 differs" },
                  { PL_COMPRESS_FLOAT16, 0, 64, "our --part-bytes 64 differs" } };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        const struct pl_part part = { .start = cases[i].at, .length = 32 };
        const struct part_message m = { .method = cases[i].method, .elements = cases[i].elements };
        begin(state);
        allreduce_note_mismatch(&x, MATE, &part, &m);
        if (!strstr(x.notes.mismatch.text, cases[i].option)) fail_msg("%s", x.notes.mismatch.text);
    }
}

/* A harmless difference is reported unless a harmful one is. */
static void harmless_differences(void **state)
{
    const struct pl_part part = { .length = 32 };
    struct part_message m = { .method = PL_COMPRESS_FLOAT16, .elements = 32 };
    allreduce_note_differs(&x, MATE, &part, &m);
    assert_null(allreduce_differs(&x));
    m.method = PL_COMPRESS_MEANSTD16;
    allreduce_note_differs(&x, MATE, &part, &m);
    assert_non_null(allreduce_differs(&x));
    allreduce_note_refusal(&x, MATE);
    assert_non_null(strstr(x.notes.refusal.text, "--part-bytes (ours: 64)"));
    assert_null(allreduce_differs(&x));
    x.notes.refusal.text[0] = 0;
    pl_fail(&x.notes.mismatch, PL_EPROTO, "worse");
    assert_null(allreduce_differs(&x));
}

#define TEST(f) cmocka_unit_test_setup(f, begin)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(sender_and_reducer),          TEST(sender_alone),
        TEST(reducer_without_all_answers), TEST(proofs),
        TEST(weights_have_a_limit),        TEST(values_left_out),
        TEST(which_option_differs),        TEST(harmless_differences),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
