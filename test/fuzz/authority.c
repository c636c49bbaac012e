/* authority.c - what an authority reads (its allowlist, a request's header and body) and what its
 * users read (its answer). The first byte says which; a token that was issued must be a valid
 * one. */
#include "net/hivemind/moderation/authority.h"
#include "net/hivemind/moderation/authority_client.h"

#include <assert.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

#define NOW 1.7e9
static const char secret[] = "secret";

static void join(const struct rsa_key *key, const uint8_t *data, size_t n)
{
    static const char list[] =
        "# users\nann 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b\n";
    struct authority a = {
        .key = key, .life_s = 300, .coordinator_ip = "::1", .coordinator_port = 1
    };
    struct bytes json = { 0 };
    struct auth_token t;
    EVP_PKEY *authority;
    char bearer[sizeof "Bearer " + sizeof secret];
    int status;
    strcpy(bearer, "Bearer ");
    strcat(bearer, secret);
    assert(!authority_read(&a, list, sizeof list - 1, NULL));
    status = authority_join(&a, &json, bearer, data, n, NOW);
    assert(status == 200 || status == 400);
    if (status == 200) { /* users can use the tokens that we issue */
        assert(!authority_answer_read(&t, &authority, (const char *)bytes_at(&json),
                                      bytes_length(&json), NULL));
        assert(!auth_token_check(&t, authority, NOW, NULL));
        auth_token_clear(&t);
        EVP_PKEY_free(authority);
    }
    bytes_clear(&json);
    authority_clear(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct rsa_key key;
    struct authority a = { .key = &key, .life_s = 300 };
    struct auth_token t;
    struct bytes json = { 0 };
    struct pl_err err;
    EVP_PKEY *authority;
    char *text;
    if (!key.key && rsa_key_make(&key, &err)) return 0;
    if (!n) return 0;
    switch (data[0] % 4) {
    case 0:
        if (!authority_read(&a, (const char *)data + 1, n - 1, &err)) assert(a.user_count <= n);
        authority_clear(&a);
        break;
    case 1: join(&key, data + 1, n - 1); break;
    case 2:
        if (!(text = calloc(n, 1))) return 0;
        memcpy(text, data + 1, n - 1);
        assert(authority_join(&a, &json, text, "{}", 2, NOW) == 401); /* the allowlist is empty */
        bytes_clear(&json);
        free(text);
        break;
    default:
        if (!authority_answer_read(&t, &authority, (const char *)data + 1, n - 1, &err)) {
            auth_token_check(&t, authority, NOW, &err);
            auth_token_clear(&t);
            EVP_PKEY_free(authority);
        }
    }
    return 0;
}
