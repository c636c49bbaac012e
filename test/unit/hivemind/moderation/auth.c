/* auth.c - moderated swarms: each check of a request, of an answer and of a token, at its bounds; and the authority's allowlist
 * and answers. [spec hivemind-protocol 3] */
#include "net/hivemind/moderation/authority.h"
#include "net/hivemind/moderation/authority_client.h"
#include "net/hivemind/messages/dht.pb-c.h"
#include "net/message.h"
#include "test/unit/unit.h"

#include <jansson.h>
#include <math.h>
#include <openssl/evp.h>

#define NOW 1.8e9
#define ENDS (NOW + 100) /* of the tokens */

static struct rsa_key authority, stranger, keys[2];
static struct auth client, server;

static void give_token(struct auth_token *t, const struct rsa_key *by, const struct rsa_key *to)
{
    auth_token_clear(t);
    assert_int_equal(auth_token_issue(t, by, "ann", bytes_at(&to->text), bytes_length(&to->text),
                                      ENDS),
                     PL_OK);
}

static int begin(void **state)
{
    struct pl_err err;
    assert_int_equal(rsa_key_make(&authority, &err), PL_OK);
    assert_int_equal(rsa_key_make(&stranger, &err), PL_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(rsa_key_make(&keys[i], &err), PL_OK);
    client.key = &keys[0];
    server.key = &keys[1];
    client.authority = server.authority = authority.key;
    give_token(&client.token, &authority, &keys[0]);
    give_token(&server.token, &authority, &keys[1]);
    return 0;
}

static int end(void **state)
{
    auth_clear(&client);
    auth_clear(&server);
    rsa_key_clear(&authority);
    rsa_key_clear(&stranger);
    for (int i = 0; i < 2; i++) rsa_key_clear(&keys[i]);
    return 0;
}

static const uint8_t message[] = { 0x18, 1 }; /* field 3 of the plain message */

/* The client's request of the time `made`, as the server sees it at `now`. */
static int ask(double made, double now, struct pl_err *err)
{
    struct bytes request = { 0 };
    uint8_t nonce[AUTH_NONCE], heard[AUTH_NONCE];
    const uint8_t *plain;
    size_t n;
    int rc;
    assert_int_equal(auth_sign_request(&request, nonce, &client, made, message, sizeof message),
                     PL_OK);
    rc = auth_check_request(&plain, &n, heard, &server, now, bytes_at(&request),
                            bytes_length(&request), err);
    if (!rc) {
        assert_memory_equal(nonce, heard, sizeof nonce);
        assert_int_equal(n, sizeof message);
        assert_memory_equal(plain, message, sizeof message);
        /* once: the same bytes are a recording */
        assert_int_equal(auth_check_request(&plain, &n, heard, &server, now, bytes_at(&request),
                                            bytes_length(&request), err),
                         PL_EPROTO);
        assert_non_null(strstr(err->text, "seen before"));
    }
    bytes_clear(&request);
    return rc;
}

static void refused(double made, double now, const char *words)
{
    struct pl_err err = { "" };
    assert_int_equal(ask(made, now, &err), PL_EPROTO);
    if (!strstr(err.text, words)) fail_msg("'%s' has no '%s'", err.text, words);
}

/* |time - now| <= 60 s, on both sides; the token until its last moment. */
static void times_of_requests(void **state)
{
    struct pl_err err;
    for (int side = -1; side <= 1; side++)
        assert_int_equal(ask(NOW + side * AUTH_TIME_LIMIT, NOW, &err), PL_OK);
    refused(NOW + AUTH_TIME_LIMIT + 0.1, NOW, "away from our clock");
    refused(NOW - AUTH_TIME_LIMIT - 0.1, NOW, "away from our clock");
    refused(NAN, NOW, "away from our clock");
    refused(INFINITY, NOW, "away from our clock");
    assert_int_equal(ask(ENDS, ENDS, &err), PL_OK);
    assert_true(server.until == ENDS);
    refused(ENDS + 1, ENDS + 1, "expired");
}

static void tokens_of_others(void **state)
{
    give_token(&client.token, &stranger, &keys[0]);
    refused(NOW, NOW, "not signed by our authority");
    give_token(&client.token, &authority, &keys[1]); /* a token that was seen, without its key */
    refused(NOW, NOW, "not signed by its token's owner");
    give_token(&client.token, &authority, &keys[0]);
    bytes_u8(&client.token.username, 'x');
    refused(NOW, NOW, "not signed by our authority");
    give_token(&client.token, &authority, &keys[0]);
    client.token.expiration.data[0] = '3'; /* a later year */
    refused(NOW, NOW, "not signed by our authority");
    give_token(&client.token, &authority, &keys[0]);
}

/* A request that this test packs and signs, with a receiver's key and a nonce of any length. */
static int ask_packed(const void *receiver, size_t receiver_n, size_t nonce_n, int change)
{
    Hivemind__RequestAuthInfo m = HIVEMIND__REQUEST_AUTH_INFO__INIT;
    Hivemind__AccessToken t = HIVEMIND__ACCESS_TOKEN__INIT;
    static uint8_t count;
    uint8_t nonce[16] = { 9, 9, ++count }, heard[AUTH_NONCE];
    struct bytes info = { 0 }, signature = { 0 };
    const uint8_t *plain;
    size_t n;
    int rc;
    t.username = message_bytes(bytes_at(&client.token.username),
                               bytes_length(&client.token.username));
    t.public_key = message_bytes(bytes_at(&client.token.public_key),
                                 bytes_length(&client.token.public_key));
    t.expiration_time = message_bytes(bytes_at(&client.token.expiration),
                                      bytes_length(&client.token.expiration));
    t.signature = message_bytes(bytes_at(&client.token.signature),
                                bytes_length(&client.token.signature));
    m.client_access_token = &t;
    m.service_public_key = message_bytes(receiver, receiver_n);
    m.time = NOW;
    m.nonce = message_bytes(nonce, nonce_n);
    for (int signed_already = 0; signed_already <= 1; signed_already++) {
        bytes_clear(&info);
        bytes_u8(&info, 0x0a);
        bytes_varint(&info, protobuf_c_message_get_packed_size(&m.base));
        message_pack(&info, &m.base);
        bytes_add(&info, message, sizeof message);
        if (signed_already) break;
        rsa_key_sign(&signature, client.key, bytes_at(&info), bytes_length(&info));
        m.signature = message_bytes(bytes_at(&signature), bytes_length(&signature));
    }
    if (change) info.data[bytes_length(&info) - 1] ^= 1; /* of the plain message */
    rc = auth_check_request(&plain, &n, heard, &server, NOW, bytes_at(&info), bytes_length(&info),
                            NULL);
    bytes_clear(&info);
    bytes_clear(&signature);
    return rc;
}

static void fields_of_requests(void **state)
{
    const void *own = bytes_at(&keys[1].text), *other = bytes_at(&keys[0].text);
    const size_t own_n = bytes_length(&keys[1].text);
    const uint8_t *plain;
    uint8_t nonce[AUTH_NONCE];
    size_t n;
    assert_int_equal(ask_packed(NULL, 0, AUTH_NONCE, 0), PL_OK);
    assert_int_equal(ask_packed(own, own_n, AUTH_NONCE, 0), PL_OK);
    assert_int_equal(ask_packed(own, own_n - 1, AUTH_NONCE, 0), PL_EPROTO);
    assert_int_equal(ask_packed(other, own_n, AUTH_NONCE, 0), PL_EPROTO);
    assert_int_equal(ask_packed(NULL, 0, AUTH_NONCE - 1, 0), PL_EPROTO);
    assert_int_equal(ask_packed(NULL, 0, AUTH_NONCE + 1, 0), PL_EPROTO);
    assert_int_equal(ask_packed(NULL, 0, AUTH_NONCE, 1), PL_EPROTO);
    /* no field 1, or not at the beginning, or longer than the message */
    assert_int_equal(auth_check_request(&plain, &n, nonce, &server, NOW, message, 2, NULL),
                     PL_EPROTO);
    assert_int_equal(auth_check_request(&plain, &n, nonce, &server, NOW, message, 0, NULL),
                     PL_EPROTO);
    assert_int_equal(auth_check_request(&plain, &n, nonce, &server, NOW,
                                        (const uint8_t *)"\x0a\x09x", 3, NULL),
                     PL_EPROTO);
}

/* An answer bears the request's nonce, and is a member's. */
static void answers(void **state)
{
    uint8_t nonce[AUTH_NONCE] = { 1, 2, 3 }, other[AUTH_NONCE] = { 1, 2, 4 };
    struct bytes answer = { 0 };
    const uint8_t *plain;
    size_t n;
    struct pl_err err;
    assert_int_equal(auth_sign_response(&answer, &server, nonce, message, sizeof message), PL_OK);
    assert_int_equal(auth_check_response(&plain, &n, &client, nonce, NOW, bytes_at(&answer),
                                         bytes_length(&answer), &err),
                     PL_OK);
    assert_int_equal(n, sizeof message);
    assert_int_equal(auth_check_response(&plain, &n, &client, other, NOW, bytes_at(&answer),
                                         bytes_length(&answer), &err),
                     PL_EPROTO);
    assert_non_null(strstr(err.text, "another request"));
    assert_int_equal(auth_check_response(&plain, &n, &client, nonce, ENDS + 1, bytes_at(&answer),
                                         bytes_length(&answer), &err),
                     PL_EPROTO);
    answer.data[bytes_length(&answer) - 1] ^= 1;
    assert_int_equal(auth_check_response(&plain, &n, &client, nonce, NOW, bytes_at(&answer),
                                         bytes_length(&answer), &err),
                     PL_EPROTO);
    bytes_clear(&answer);
}

/* The texts of a token are kept, so each has a longest. */
static void lengths_of_tokens(void **state)
{
    static char text[RSA_TEXT_MAX + 2];
    const size_t limits[] = { AUTH_TEXT_MAX, RSA_TEXT_MAX, AUTH_TEXT_MAX, RSA_TEXT_MAX };
    struct auth_token none;
    memset(text, 'a', sizeof text);
    for (int field = 0; field < 4; field++)
        for (int more = 0; more <= 1; more++) {
            struct auth_token t = { 0 }, back;
            struct bytes *const fields[] = { &t.username, &t.public_key, &t.expiration,
                                             &t.signature };
            struct bytes wire = { 0 };
            bytes_add(fields[field], text, limits[field] + (size_t)more);
            assert_int_equal(auth_token_write(&wire, &t), PL_OK);
            assert_int_equal(auth_token_read(&back, bytes_at(&wire), bytes_length(&wire)),
                             more ? PL_EFORMAT : PL_OK);
            if (!more) auth_token_clear(&back);
            auth_token_clear(&t);
            bytes_clear(&wire);
        }
    assert_int_equal(auth_token_issue(&none, &authority, "a", "k", 1, 1e12), PL_EUSE);
    assert_int_equal(auth_token_issue(&none, &authority, "a", "k", 1, NAN), PL_EUSE);
}

/* --- the authority ------------------------------------------------------------------------------- */

static int read_list(struct authority *a, const char *text, struct pl_err *err)
{
    return authority_read(a, text, strlen(text), err);
}

#define HEX "0123456789abcdefABCDEF0123456789abcdefABCDEF0123456789abcdefABCD"

static void allowlists(void **state)
{
    static const char *const bad[] = {
        "a",
        "a " HEX "0",
        "a 0123",
        "a g" HEX,
        "a " HEX " b",
        "a,b " HEX,
        ",a " HEX,
        "a,"
        " " HEX,
        "a g123456789abcdefABCDEF0123456789abcdefABCDEF0123456789abcdefABCD",
        "a 0123456789abcdefABCDEF0123456789abcdefABCDEF0123456789abcdefABC:",
        " " HEX
    };
    char name[AUTHORITY_NAME_MAX + 2], line[256];
    struct authority a = { .key = &authority, .life_s = 60 };
    struct pl_err err;
    assert_int_equal(read_list(&a,
                               "# nobody\n\n \t\r\nann " HEX "\r\n  bob\t" HEX
                               "  # his\nz._-@+9 " HEX,
                               &err),
                     PL_OK);
    assert_int_equal(a.user_count, 3);
    assert_string_equal(a.users[0].name, "ann");
    assert_string_equal(a.users[2].name, "z._-@+9");
    assert_int_equal(a.users[0].secret[0], 0x01);
    assert_int_equal(a.users[0].secret[7], 0xef);
    assert_int_equal(a.users[0].secret[8], 0xab & 0xff);
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        snprintf(line, sizeof line, "\nok " HEX "\n%s\n", bad[i]);
        if (read_list(&a, line, &err) != PL_EFORMAT) fail_msg("%s", bad[i]);
        assert_non_null(strstr(err.text, "line 3"));
        assert_int_equal(a.user_count, 3); /* the old list stays in force */
    }
    memset(name, 'n', sizeof name);
    for (int more = 1; more >= 0; more--) {
        name[AUTHORITY_NAME_MAX + more] = 0;
        snprintf(line, sizeof line, "%s " HEX, name);
        assert_int_equal(read_list(&a, line, &err), more ? PL_EFORMAT : PL_OK);
    }
    assert_string_equal(a.users[0].name, name);
    assert_int_equal(read_list(&a, "", &err), PL_OK);
    assert_int_equal(a.user_count, 0);
    authority_clear(&a);
}

static void a_list_has_a_longest(void **state)
{
    struct authority a = { .key = &authority, .life_s = 60 };
    char *text = malloc((size_t)(AUTHORITY_USERS_MAX + 1) * 67), *at = text;
    struct pl_err err;
    assert_non_null(text);
    for (int i = 0; i <= AUTHORITY_USERS_MAX; i++) {
        memcpy(at, "a " HEX "\n", 67);
        at += 67;
    }
    assert_int_equal(authority_read(&a, text, (size_t)(at - text), &err), PL_ELIMIT);
    assert_int_equal(authority_read(&a, text, (size_t)(at - text) - 67, &err), PL_OK);
    assert_int_equal(a.user_count, AUTHORITY_USERS_MAX);
    free(text);
    authority_clear(&a);
}

static int join(const struct authority *a, const char *bearer, const char *body, size_t n,
                struct auth_token *t)
{
    struct bytes json = { 0 };
    struct pl_err err;
    EVP_PKEY *key = NULL;
    const int status = authority_join(a, &json, bearer, body, n, NOW);
    if (status == 200) {
        if (authority_answer_read(t, &key, (const char *)bytes_at(&json), bytes_length(&json),
                                  &err))
            fail_msg("%s", err.text);
        EVP_PKEY_free(key);
    }
    bytes_clear(&json);
    return status;
}

/* 200 for the secret's own user, 401 for any other, 400 for an invalid body. */
static void requests_for_tokens(void **state)
{
    struct authority a = { .key = &authority, .life_s = 60 };
    struct bytes list = { 0 };
    char secrets[2][AUTHORITY_TOKEN_MAX], bearer[128], body[AUTHORITY_BODY_MAX + 2];
    struct auth_token t;
    struct pl_err err;
    int n;
    assert_int_equal(authority_invite(secrets[0], &list, "ann", &err), PL_OK);
    assert_int_equal(authority_invite(secrets[1], &list, "bob", &err), PL_OK);
    assert_int_equal(authority_invite(secrets[1], &list, "b b", &err), PL_EUSE);
    assert_int_equal(authority_read(&a, (const char *)bytes_at(&list), bytes_length(&list), &err),
                     PL_OK);
    n = snprintf(body, sizeof body, "{\"experiment_join_input\":{\"peer_public_key\":\"%.*s\"}}",
                 (int)bytes_length(&keys[0].text), (const char *)bytes_at(&keys[0].text));
    for (int i = 0; i < 2; i++) {
        snprintf(bearer, sizeof bearer, "Bearer %s", secrets[i]);
        assert_int_equal(join(&a, bearer, body, (size_t)n, &t), 200);
        assert_int_equal(bytes_length(&t.username), 3);
        assert_memory_equal(bytes_at(&t.username), i ? "bob" : "ann", 3);
        assert_int_equal(auth_token_check(&t, authority.key, NOW + 60, &err), PL_OK);
        assert_int_equal(auth_token_check(&t, authority.key, NOW + 61, &err), PL_EPROTO);
        auth_token_clear(&t);
    }
    assert_int_equal(join(&a, NULL, body, (size_t)n, &t), 401);
    assert_int_equal(join(&a, secrets[0], body, (size_t)n, &t), 401); /* not "Bearer ..." */
    bearer[7] ^= 1;
    assert_int_equal(join(&a, bearer, body, (size_t)n, &t), 401);
    bearer[7] ^= 1;
    assert_int_equal(join(&a, bearer, "", 0, &t), 400);
    assert_int_equal(join(&a, bearer, "{\"experiment_join_input\":5}", 27, &t), 400);
    assert_int_equal(join(&a, bearer, body, (size_t)n - 1, &t), 400);
    /* the longest body: JSON may end in spaces */
    memset(body + n, ' ', sizeof body - (size_t)n);
    assert_int_equal(join(&a, bearer, body, AUTHORITY_BODY_MAX, &t), 200);
    auth_token_clear(&t);
    assert_int_equal(join(&a, bearer, body, AUTHORITY_BODY_MAX + 1, &t), 400);
    bytes_clear(&list);
    authority_clear(&a);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(times_of_requests),    cmocka_unit_test(tokens_of_others),
        cmocka_unit_test(fields_of_requests),   cmocka_unit_test(answers),
        cmocka_unit_test(lengths_of_tokens),    cmocka_unit_test(allowlists),
        cmocka_unit_test(a_list_has_a_longest), cmocka_unit_test(requests_for_tokens)
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, begin, end);
}
