/* auth_nonce.c - each signed request is accepted once, and every member has its share of the
 * nonces: one key that floods, one user with many keys, replays at any age, and peers that pass on
 * a signed request. */
#include "net/hivemind/moderation/auth.h"
#include "test/unit/unit.h"

static struct auth_nonces table;

static int take(const char *key, const char *user, uint64_t number, double now)
{
    uint8_t nonce[AUTH_NONCE];
    memcpy(nonce, &number, sizeof nonce);
    return auth_nonces_take(&table, key, strlen(key), user, strlen(user), nonce, now);
}

/* How many of them are taken, up to `most`. */
static size_t flood(const char *key, const char *user, size_t most, double now)
{
    size_t n = 0;
    while (n < most && !take(key, user, n, now)) n++;
    return n;
}

/* A member that floods has a quarter, and then is refused itself; others are not. */
static void one_key(void **state)
{
    size_t first;
    first = flood("a", "ann", AUTH_NONCES_MAX, 0);
    assert_true(first > AUTH_NONCES_MAX / 5 && first <= AUTH_NONCES_MAX / 4);
    assert_int_equal(take("a", "ann", 1u << 30, 0), PL_EAGAIN);
    assert_true(flood("b", "bob", AUTH_NONCES_MAX, 0) > 10000);
    assert_true(flood("c", "ann", 1000, 0) == 1000); /* a peer of the same user */
    /* Nonces that were forgotten count no longer, neither for the key nor for its user. */
    assert_int_equal(flood("a", "ann", AUTH_NONCES_MAX, AUTH_NONCE_LIFE + 1), first);
    auth_nonces_clear(&table);
}

/* A user asks for any number of keys: others have half of the table. */
static void one_user(void **state)
{
    char key[32];
    for (int k = 0; k < 5000; k++) {
        snprintf(key, sizeof key, "key %d", k);
        flood(key, "eve", 100, 0);
    }
    assert_true(table.count <= AUTH_NONCES_MAX / 2 + 100);
    assert_true(flood("b", "bob", AUTH_NONCES_MAX, 0) > 10000);
    auth_nonces_clear(&table);
}

/* A nonce is kept for as long as its request may be valid, whatever comes meanwhile; then there is
 * capacity again. */
static void replays(void **state)
{
    assert_int_equal(take("a", "ann", 7, 1000), PL_OK);
    for (int s = 0; s < 120; s++) {
        for (unsigned i = 0; i < 300; i++) take("b", "bob", 1000u * (unsigned)s + i, 1000 + s);
        assert_int_equal(take("a", "ann", 7, 1000 + s), PL_EPROTO);
    }
    assert_int_equal(take("c", "ann", 7, 1119), PL_OK); /* another key's */
    assert_int_equal(take("a", "ann", 7, 1000 + 2 * AUTH_TIME_LIMIT), PL_EPROTO);
    assert_int_equal(take("a", "ann", 7, 1000 + AUTH_NONCE_LIFE + 1), PL_OK);
    assert_int_equal(take("a", "ann", 8, 1e6), PL_OK);
    assert_int_equal(table.count, 1);
    auth_nonces_clear(&table);
}

/* A request names its sender: its receiver cannot send it as its own. */
static void forwarded_request_is_refused(void **state)
{
    struct rsa_key authority, key;
    struct auth member = { .self = { .length = 3, .bytes = "abc" } }, server = { .key = NULL };
    const struct peer_id other = { .length = 3, .bytes = "abd" };
    struct bytes request = { 0 };
    const uint8_t *plain, message[] = { 0x18, 1 }; /* a field of the message itself */
    uint8_t nonce[AUTH_NONCE], heard[AUTH_NONCE];
    size_t n;
    struct pl_err err;
    assert_int_equal(rsa_key_make(&authority, &err), PL_OK);
    assert_int_equal(rsa_key_make(&key, &err), PL_OK);
    member.key = server.key = &key;
    member.authority = server.authority = authority.key;
    assert_int_equal(auth_token_issue(&member.token, &authority, "ann", bytes_at(&key.text),
                                      bytes_length(&key.text), 2e9),
                     PL_OK);
    assert_int_equal(auth_sign_request(&request, nonce, &member, 1e9, message, sizeof message),
                     PL_OK);
    assert_int_equal(auth_check_request(&plain, &n, heard, &server, 1e9, bytes_at(&request),
                                        bytes_length(&request), &err),
                     PL_OK);
    assert_true(server.until == 2e9);
    assert_memory_equal(plain, message, sizeof message);
    assert_int_equal(auth_check_sender(plain, n, &member.self, &err), PL_OK);
    assert_int_equal(auth_check_sender(plain, n, &other, &err), PL_EPROTO);
    assert_int_equal(auth_check_sender(message, sizeof message, &other, &err),
                     PL_OK); /* hivemind's */
    bytes_clear(&request);
    auth_clear(&member);
    auth_clear(&server);
    rsa_key_clear(&key);
    rsa_key_clear(&authority);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_key),
        cmocka_unit_test(one_user),
        cmocka_unit_test(replays),
        cmocka_unit_test(forwarded_request_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
