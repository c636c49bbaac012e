/* owner_proof.c - a record under RUN_identity shows which peer its owner belongs to. Nodes refuse
 * one that another identity has signed, or that another owner publishes again. */
#include "net/hivemind/records/owner_proof.h"
#include "net/hivemind/records/validate.h"
#include "test/unit/unit.h"

static struct validators guarded;
static struct identity me, stranger;
static struct rsa_key key, other;
static struct dht_id id;

static int setup(void **state)
{
    return identity_make(&me, KEY_ED25519, NULL) || identity_make(&stranger, KEY_RSA, NULL) ||
           rsa_key_make(&key, NULL) || rsa_key_make(&other, NULL) ||
           validators_add_run(&guarded, "run") || dht_id_of_text(&id, "run_identity");
}

static int teardown(void **state)
{
    identity_clear(&me);
    identity_clear(&stranger);
    rsa_key_clear(&key);
    rsa_key_clear(&other);
    return 0;
}

/* As a node judges it: the proof that identity has signed for `of`, in a record of `by`. */
static int store(const struct rsa_key *by, const struct rsa_key *of,
                 const struct identity *identity, struct peer_id *peer)
{
    struct validators mine = { .key = by };
    struct bytes subkey = { 0 }, claimed = { 0 }, value = { 0 }, sealed = { 0 };
    struct record r = { .key = id.bytes, .key_n = DHT_ID_BYTES, .expiration = 1000 };
    int rc;
    assert_int_equal(record_own_subkey(&subkey, by), PL_OK);
    assert_int_equal(record_own_subkey(&claimed, of), PL_OK);
    assert_int_equal(identity_record_write(&value, &claimed, identity), PL_OK);
    r.subkey = bytes_at(&subkey);
    r.subkey_n = bytes_length(&subkey);
    r.value = bytes_at(&value);
    r.n = bytes_length(&value);
    assert_int_equal(record_sign(&sealed, &mine, &r), PL_OK);
    assert_int_equal(identity_record_read(peer, r.value, r.n), PL_OK);
    r.value = bytes_at(&sealed);
    r.n = bytes_length(&sealed);
    rc = record_check(&guarded, &r, NULL);
    assert_int_equal(record_check_life(&guarded, &r, 1000 - IDENTITY_LIFE), PL_OK);
    bytes_clear(&subkey);
    bytes_clear(&claimed);
    bytes_clear(&value);
    bytes_clear(&sealed);
    return rc;
}

static void proofs_are_checked(void **state)
{
    struct identity false_one = stranger;
    struct peer_id peer;
    assert_int_equal(store(&key, &key, &me, &peer), PL_OK);
    assert_true(peer_id_equal(&peer, &me.id));
    assert_int_equal(store(&other, &other, &stranger, &peer), PL_OK); /* an RSA identity */
    assert_true(peer_id_equal(&peer, &stranger.id));
    /* What me has signed for `key` is of no use to another owner; nobody else signs for me. */
    assert_int_equal(store(&other, &key, &me, &peer), PL_EPROTO);
    false_one.public_key = me.public_key;
    assert_int_equal(store(&other, &other, &false_one, &peer), PL_EPROTO);
    assert_true(peer_id_equal(&peer, &me.id));
}

static void other_values_are_none(void **state)
{
    struct peer_id peer;
    struct bytes b = { 0 };
    mp_map(&b, 2);
    mp_text(&b, "identity");
    mp_bin(&b, "x", 1);
    mp_text(&b, "signature");
    mp_int(&b, 5);
    assert_int_equal(identity_record_read(&peer, bytes_at(&b), bytes_length(&b)), PL_EPROTO);
    assert_int_not_equal(identity_record_read(&peer, bytes_at(&b), bytes_length(&b) - 1), PL_OK);
    bytes_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(proofs_are_checked),
        cmocka_unit_test(other_values_are_none),
    };
    return cmocka_run_group_tests_name("owner_proof", tests, setup, teardown);
}
