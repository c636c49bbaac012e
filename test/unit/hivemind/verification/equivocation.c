/* equivocation.c - valid and invalid proofs of equivocation; and the log of rounds, by which a peer
 * bans by a proof that arrives after its own round has ended. */
#include "net/hivemind/verification/broadcast.h"
#include "net/hivemind/verification/equivocation_log.h"
#include "net/hivemind/verification/verifier_internal.h"
#include "test/unit/unit.h"

#define PEERS 4
#define AUTHOR 2
#define OUTSIDER PEERS /* has a key, and is in no group */

static struct identity keys[PEERS + 1];
static struct group group;
static const uint8_t round_a[PL_HASH_BYTES] = { 1 }, round_b[PL_HASH_BYTES] = { 2 };

static int make_group(void **state)
{
    static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    for (size_t i = 0; i <= PEERS; i++)
        assert_int_equal(identity_make(&keys[i], KEY_ED25519, NULL), 0);
    for (size_t i = 0; i < PEERS; i++)
        assert_int_equal(group_add(&group, &keys[i].id, gather, sizeof gather, NULL), 0);
    return 0;
}

static int free_group(void **state)
{
    group_clear(&group);
    for (size_t i = 0; i <= PEERS; i++) identity_clear(&keys[i]);
    return 0;
}

/* A message of the author, signed by `signer`, whose body is this many bytes of `fill`. */
static struct bytes message(size_t signer, int stage, size_t to, uint8_t fill, size_t n,
                            const uint8_t round[PL_HASH_BYTES])
{
    struct bytes out = { 0 };
    uint8_t *body = malloc(n + 1);
    struct signed_message m = {
        .stage = (uint8_t)stage, .from = AUTHOR, .to = (uint16_t)to, .body = body, .n = n
    };
    assert_non_null(body);
    memset(body, fill, n);
    assert_int_equal(signed_message_write(&out, &m, &keys[signer], round), PL_OK);
    free(body);
    return out;
}

/* Frees both messages. */
static struct bytes proof_of(struct bytes x, struct bytes y)
{
    struct bytes out = { 0 };
    assert_int_equal(equivocation_write(&out, bytes_at(&x), bytes_length(&x), bytes_at(&y),
                                        bytes_length(&y)),
                     PL_OK);
    bytes_clear(&x);
    bytes_clear(&y);
    return out;
}

static int proves(struct bytes proof)
{
    struct equivocation_scope s;
    uint8_t *exact = malloc(bytes_length(&proof)); /* a reader beyond its end is seen */
    size_t peer = PEERS;
    int rc;
    assert_non_null(exact);
    memcpy(exact, bytes_at(&proof), bytes_length(&proof));
    assert_int_equal(equivocation_scope_init(&s, &verifier_rules, &group, round_a), PL_OK);
    rc = equivocation_check(&peer, &s, exact, bytes_length(&proof));
    assert_int_equal(peer, rc ? PEERS : AUTHOR);
    equivocation_scope_clear(&s);
    bytes_clear(&proof);
    free(exact);
    return rc == PL_OK;
}

static struct bytes reveal(uint8_t fill)
{
    return message(AUTHOR, VERIFIER_REVEAL, SIGNED_TO_ALL, fill, 64, round_a);
}
static struct bytes sent(size_t to, uint8_t fill)
{
    return message(AUTHOR, VERIFIER_SENT, to, fill, SENT_BYTES, round_a);
}
static struct bytes commit(uint8_t fill, size_t n)
{
    return message(AUTHOR, VERIFIER_COMMIT, SIGNED_TO_ALL, fill, n, round_a);
}

static void two_messages_of_a_stage_prove_equivocation(void **state)
{
    assert_true(proves(proof_of(reveal(1), reveal(2))));
    assert_true(proves(proof_of(sent(1, 1), sent(1, 2))));
    /* a list of hashes is signed as a message is */
    assert_true(proves(proof_of(
        message(AUTHOR, VERIFIER_PHASES + VERIFIER_REVEAL, SIGNED_TO_ALL, 1, 8, round_a),
        message(AUTHOR, VERIFIER_PHASES + VERIFIER_REVEAL, SIGNED_TO_ALL, 2, 8, round_a))));
}

static void what_an_honest_peer_signs_proves_nothing(void **state)
{
    assert_false(proves(proof_of(reveal(1), reveal(1))));
    assert_false(proves(proof_of(sent(1, 1), sent(3, 2))));
    assert_false(proves(
        proof_of(reveal(1), message(AUTHOR, VERIFIER_REPORT, SIGNED_TO_ALL, 2, 64, round_a))));
    assert_false(proves(
        proof_of(reveal(1), message(AUTHOR, VERIFIER_REVEAL, SIGNED_TO_ALL, 2, 64, round_b))));
    /* of AGREE a message that differs is ignored */
    assert_false(proves(
        proof_of(message(AUTHOR, VERIFIER_AGREE, SIGNED_TO_ALL, 1, PL_HASH_BYTES, round_a),
                 message(AUTHOR, VERIFIER_AGREE, SIGNED_TO_ALL, 2, PL_HASH_BYTES, round_a))));
    /* a pair's message, and the message to all that agrees with it */
    assert_false(proves(proof_of(sent(1, 1), commit(1, COMMIT_BYTES(PEERS)))));
}

static void another_peers_signature_proves_nothing(void **state)
{
    for (size_t signer = 0; signer <= PEERS; signer++) {
        struct bytes other = message(signer, VERIFIER_REVEAL, SIGNED_TO_ALL, 2, 64, round_a);
        assert_int_equal(proves(proof_of(reveal(1), other)), signer == AUTHOR);
        other = message(signer, VERIFIER_REVEAL, SIGNED_TO_ALL, 2, 64, round_a);
        assert_int_equal(proves(proof_of(other, reveal(1))), signer == AUTHOR);
    }
}

static void a_commitment_other_than_sent_proves(void **state)
{
    assert_true(proves(proof_of(sent(1, 1), commit(2, COMMIT_BYTES(PEERS)))));
    /* bodies of other lengths, an invalid receiver, and a body that the hash is not of */
    assert_false(proves(proof_of(sent(1, 1), commit(2, COMMIT_BYTES(PEERS) - 1))));
    assert_false(proves(proof_of(sent(1, 1), commit(2, 0))));
    assert_false(proves(proof_of(message(AUTHOR, VERIFIER_SENT, 1, 1, SENT_BYTES - 1, round_a),
                                 commit(2, COMMIT_BYTES(PEERS)))));
    assert_false(proves(proof_of(sent(PEERS, 1), commit(2, COMMIT_BYTES(PEERS)))));
    struct bytes forged = commit(1, COMMIT_BYTES(PEERS));
    forged.data[forged.end - 1] ^= 1; /* the last digest: of the pair with the last peer */
    assert_false(proves(proof_of(sent(PEERS - 1, 1), forged)));
}

static void no_proof_is_cut_short(void **state)
{
    struct bytes whole = proof_of(sent(1, 1), commit(2, COMMIT_BYTES(PEERS)));
    for (size_t n = 0; n < bytes_length(&whole); n++) {
        struct bytes cut = { 0 };
        bytes_add(&cut, bytes_at(&whole), n);
        if (n) assert_false(proves(cut));
        else bytes_clear(&cut);
    }
    bytes_clear(&whole);
}

/* --- the log ---------------------------------------------------------------------------------- */

struct heard {
    size_t peer, times, n;
};

static void on_convicted(void *context, const struct logged_round *round, size_t peer,
                         const uint8_t *packet, size_t n)
{
    struct heard *h = context;
    struct equivocation_log other = { 0 }; /* the proof passed on convicts at its receiver */
    struct heard there = { 0 };
    h->peer = peer;
    h->n = n;
    if (h->times++) return;
    assert_int_equal(equivocation_log_add(&other, 0, &verifier_rules, &group, round_a), PL_OK);
    there.times = 1;
    assert_int_equal(equivocation_log_receive(&other, 0, &keys[0].id, packet, n, on_convicted,
                                              &there),
                     1);
    assert_int_equal(there.times, 2);
    equivocation_log_clear(&other);
}

/* Takes the proof. */
static struct bytes packet_of(struct bytes proof, const uint8_t round[PL_HASH_BYTES])
{
    struct bytes out = { 0 };
    bytes_be32(&out, (uint32_t)(FRAME_START + bytes_length(&proof)));
    bytes_u8(&out, FRAME_PROOF);
    bytes_add(&out, round, PL_HASH_BYTES);
    bytes_add(&out, bytes_at(&proof), bytes_length(&proof));
    bytes_clear(&proof);
    return out;
}

static size_t receive(struct equivocation_log *l, double now, size_t from,
                      const struct bytes *packet, struct heard *h)
{
    return equivocation_log_receive(l, now, &keys[from].id, bytes_at(packet), bytes_length(packet),
                                    on_convicted, h);
}

static void a_late_proof_convicts_once(void **state)
{
    struct equivocation_log l = { 0 };
    struct heard h = { 0 };
    struct bytes proof = packet_of(proof_of(reveal(1), reveal(2)), round_a);
    assert_int_equal(equivocation_log_add(&l, 100, &verifier_rules, &group, round_a), PL_OK);
    assert_int_equal(receive(&l, 100 + EQUIVOCATION_TIME - 1, OUTSIDER, &proof, &h), 0);
    assert_int_equal(h.times, 0);
    assert_int_equal(receive(&l, 100 + EQUIVOCATION_TIME - 1, 0, &proof, &h), 1);
    assert_int_equal(h.times, 1);
    assert_int_equal(h.peer, AUTHOR);
    receive(&l, 100 + EQUIVOCATION_TIME - 1, 1, &proof, &h); /* passed on by another peer */
    assert_int_equal(h.times, 1);
    equivocation_log_clear(&l);
    bytes_clear(&proof);
}

static void rounds_are_forgotten(void **state)
{
    struct equivocation_log l = { 0 };
    struct heard h = { 0 };
    struct bytes proof = packet_of(proof_of(reveal(1), reveal(2)), round_a);
    assert_int_equal(equivocation_log_add(&l, 100, &verifier_rules, &group, round_a), PL_OK);
    assert_int_equal(receive(&l, 100 + EQUIVOCATION_TIME, 0, &proof, &h), 0); /* in time */
    assert_int_equal(equivocation_log_add(&l, 1000, &verifier_rules, &group, round_a), PL_OK);
    for (int i = 0; i < EQUIVOCATION_ROUNDS_MAX; i++) /* in number */
        assert_int_equal(equivocation_log_add(&l, 1000, &verifier_rules, &group, round_b), PL_OK);
    assert_int_equal(l.count, EQUIVOCATION_ROUNDS_MAX);
    assert_int_equal(receive(&l, 1000, 0, &proof, &h), 0);
    assert_int_equal(h.times, 0);
    equivocation_log_clear(&l);
    bytes_clear(&proof);
}

/* A peer that sends a proof of nothing is not checked again; others are. */
static void false_proofs_are_charged_to_their_sender(void **state)
{
    struct equivocation_log l = { 0 };
    struct heard h = { 0 };
    struct bytes nothing = packet_of(proof_of(reveal(1), reveal(1)), round_a),
                 proof = packet_of(proof_of(reveal(1), reveal(2)), round_a);
    assert_int_equal(equivocation_log_add(&l, 0, &verifier_rules, &group, round_a), PL_OK);
    assert_int_equal(receive(&l, 0, 3, &nothing, &h), 1);
    assert_true(l.rounds[0].ignored[3]);
    receive(&l, 0, 3, &proof, &h);
    assert_int_equal(h.times, 0);
    receive(&l, 0, 1, &proof, &h);
    assert_int_equal(h.times, 1);
    equivocation_log_clear(&l);
    bytes_clear(&nothing);
    bytes_clear(&proof);
}

/* A name, with * and ?, runs only the tests that match it. */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_messages_of_a_stage_prove_equivocation),
        cmocka_unit_test(what_an_honest_peer_signs_proves_nothing),
        cmocka_unit_test(another_peers_signature_proves_nothing),
        cmocka_unit_test(a_commitment_other_than_sent_proves),
        cmocka_unit_test(no_proof_is_cut_short),
        cmocka_unit_test(a_late_proof_convicts_once),
        cmocka_unit_test(rounds_are_forgotten),
        cmocka_unit_test(false_proofs_are_charged_to_their_sender),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, make_group, free_group);
}
