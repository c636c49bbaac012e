/* state_witness.c - what a donor answers about its state, byte by byte, and that a newcomer finds the
 * same samples in the state that it was given. [state_witness.h] */
#include "net/hivemind/sharing/state_witness.h"
#include "ref/backend.h"
#include "ref/small.h"
#include "test/unit/unit.h"

#define TENSORS 2
#define LARGE 60000
#define VALUES (LARGE + 50)

static const size_t elements[TENSORS] = { LARGE, 50 };
static const struct schema_tensor schema[TENSORS] = {
    { .type = { .dtype = PL_F32, .dims = 2, .size = { 200, 300 } } },
    { .type = { .dtype = PL_F32, .dims = 1, .size = { 50 } } },
};
static const uint8_t seed[STATE_SEED] = { 3, 1, 4 }, other_seed[STATE_SEED] = { 3, 1, 5 };
static float values[VALUES];
static struct pl_backend be;
static struct state_peer peer = { .be = &be, .tensors = TENSORS, .elements = elements };

static int begin(void **state)
{
    pl_backend_ref(&be);
    for (size_t i = 0; i < VALUES; i++) values[i] = (float)i + 0.25f;
    return 0;
}

/* The state of these values, as a newcomer has it, compressed or not. */
static void carry(struct state_load *l, enum pl_compression method, int64_t epoch)
{
    const struct state_tensor tensors[TENSORS] = { { schema[0].type, method, values },
                                                   { schema[1].type, method, values + LARGE } };
    const struct training_state t = { .epoch = epoch };
    struct bytes metadata = { 0 }, message = { 0 };
    struct state_source source = { .tensors = tensors, .count = TENSORS };
    assert_int_equal(training_state_write(&metadata, &t), PL_OK);
    source.metadata = bytes_at(&metadata);
    source.metadata_n = bytes_length(&metadata);
    state_load_expect(l, schema, TENSORS);
    while (!state_source_next(&source, &message, &be, NULL)) {
        assert_int_equal(state_load_add(l, bytes_at(&message), bytes_length(&message), NULL),
                         PL_OK);
        bytes_clear(&message);
    }
    assert_int_equal(state_load_finish(l, NULL), PL_OK);
    bytes_clear(&metadata);
}

/* 8 bytes of the epoch, then each sample, all little-endian; the samples are values of the state, and
 * others for another seed. A small tensor has all of its values in it. */
static void an_answer_byte_by_byte(void **state)
{
    const struct state_tensor tensors[TENSORS] = { { schema[0].type, PL_COMPRESS_NONE, values },
                                                   { schema[1].type, PL_COMPRESS_NONE,
                                                     values + LARGE } };
    const size_t samples = state_samples_count(elements, TENSORS);
    struct bytes out = { 0 }, other = { 0 };
    size_t small = 0;
    assert_int_equal(state_answer_write(&out, &peer, tensors, 0x0102030405060708u, seed), PL_OK);
    assert_int_equal(state_answer_write(&other, &peer, tensors, 0x0102030405060708u, other_seed),
                     PL_OK);
    assert_int_equal(bytes_length(&out), 8 + 4 * samples);
    for (int i = 0; i < 8; i++) assert_int_equal(bytes_at(&out)[i], 8 - i);
    for (size_t i = 0; i < samples; i++) {
        const uint32_t bits = pl_le32(bytes_at(&out) + 8 + 4 * i);
        float x;
        memcpy(&x, &bits, sizeof x);
        assert_true(x >= 0.25f && x < VALUES && x == values[(size_t)x]);
        small += (size_t)x >= LARGE;
    }
    assert_int_equal(small, 50);
    assert_memory_not_equal(bytes_at(&out), bytes_at(&other), bytes_length(&out));
    bytes_clear(&out);
    bytes_clear(&other);
}

static void the_newcomer_finds_the_same_samples(void **state)
{
    const struct state_tensor tensors[TENSORS] = { { schema[0].type, PL_COMPRESS_NONE, values },
                                                   { schema[1].type, PL_COMPRESS_NONE,
                                                     values + LARGE } };
    const size_t samples = state_samples_count(elements, TENSORS);
    struct state_load l = { 0 };
    struct bytes out = { 0 };
    struct state_claim c;
    carry(&l, PL_COMPRESS_NONE, 12);
    c = state_claim_of(&peer, &l, seed);
    assert_non_null(c.samples);
    assert_int_equal(c.epoch, 12);
    assert_int_equal(state_answer_write(&out, &peer, tensors, 12, seed), PL_OK);
    for (size_t i = 0; i < samples; i++) {
        const uint32_t bits = pl_le32(bytes_at(&out) + 8 + 4 * i);
        assert_memory_equal(&c.samples[i], &bits, sizeof bits);
    }
    free(c.samples);
    bytes_clear(&out);
    state_load_clear(&l);
}

/* A compressed state has nearly the same samples, and is compared by them. */
static void a_compressed_state_agrees(void **state)
{
    struct state_load l = { 0 }, half = { 0 };
    struct state_claim c, h;
    for (size_t i = 0; i < VALUES; i++) values[i] = (float)(i % 97) / 97 - 0.5f;
    carry(&l, PL_COMPRESS_NONE, 12);
    carry(&half, PL_COMPRESS_FLOAT16, 12);
    c = state_claim_of(&peer, &l, seed);
    h = state_claim_of(&peer, &half, seed);
    assert_int_equal(state_claims_match(&c, &h, elements, TENSORS), STATE_AGREES);
    free(c.samples);
    free(h.samples);
    state_load_clear(&l);
    state_load_clear(&half);
}

/* Without an epoch in it only values are compared; without all values nothing is. */
static void claims_that_are_not_whole(void **state)
{
    struct state_load l = { 0 };
    struct state_claim c;
    carry(&l, PL_COMPRESS_NONE, 12);
    l.metadata_n--; /* cut off */
    c = state_claim_of(&peer, &l, seed);
    assert_non_null(c.samples);
    assert_int_equal(c.epoch, -1);
    free(c.samples);
    l.tensors[1].bytes -= 4; /* no longer as many values as its type says */
    c = state_claim_of(&peer, &l, seed);
    assert_null(c.samples);
    state_load_clear(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(an_answer_byte_by_byte, begin),
        cmocka_unit_test_setup(the_newcomer_finds_the_same_samples, begin),
        cmocka_unit_test_setup(a_compressed_state_agrees, begin),
        cmocka_unit_test_setup(claims_that_are_not_whole, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
