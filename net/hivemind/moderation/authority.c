/* authority.c - hands out access tokens. A user proves who it is by a secret (a bearer token, as
 * the run used those of the Hugging Face hub); the peer sends its RSA public key; the answer is
 * an access token for that key, signed by the authority, and the authority's public key:
 *
 *   PUT /api/experiments/join
 *   Authorization: Bearer SECRET
 *   {"experiment_join_input": {"peer_public_key": "ssh-rsa AAAA..."}}
 *
 *   200 {"auth_server_public_key": "ssh-rsa ...", "hivemind_access":
 *        {"username": ..., "peer_public_key": ..., "expiration_time": ..., "signature": ...}}
 *
 * The allowlist stores only SHA-256 of each secret: 256 random bits need no slow hash, and a
 * copy of the file is of no use. */
#include "authority.h"
#include "data/files/json.h"
#include "ref/small.h"

#include <ctype.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the allowlist ---------------------------------------------------------------------------- */

/* The signed text joins name, key and time by spaces, so a name has none. */
static int is_name(const char *name, size_t n)
{
    if (!n || n > AUTHORITY_NAME_MAX) return 0;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)name[i]) && !strchr("._-@+", name[i])) return 0;
    return 1;
}

/* 64 hex digits of both cases: sha256sum writes small letters, others large ones. */
static int read_hex(uint8_t out[32], const char *text, size_t n)
{
    char digits[65];
    if (n != 64) return PL_EFORMAT;
    snprintf(digits, sizeof digits, "%.64s", text);
    return OPENSSL_hexstr2buf_ex(out, 32, NULL, digits, '\0') ? PL_OK : PL_EFORMAT;
}

/* Skips blanks and returns the length of the word that begins there. A list from Windows ends its
 * lines with CR LF, so a CR counts as a blank. */
static size_t word(const char **at, const char *end)
{
    size_t n = 0;
    while (*at < end && (**at == ' ' || **at == '\t' || **at == '\r')) ++*at;
    while (*at + n < end && !strchr(" \t\r", (*at)[n]) && (*at)[n]) n++;
    return n;
}

/* "NAME HEX": both words and nothing else. An error names the line, not its text, which may hold a
 * secret that was put there by mistake. */
static int read_line(struct authority_user *u, const char *line, size_t n, size_t number,
                     struct pl_err *err)
{
    const char *at = line, *end = line + n;
    size_t length = word(&at, end);
    if (!is_name(at, length))
        return pl_fail(err, PL_EFORMAT,
                       "allowlist, line %zu: a name of letters, digits and . _ - @ + comes first",
                       number);
    /* is_name has limited the length, so a final zero byte fits. */
    memset(u, 0, sizeof *u);
    memcpy(u->name, at, length);
    at += length;
    length = word(&at, end);
    /* Hashes are compared, never secrets. */
    if (read_hex(u->secret, at, length))
        return pl_fail(err, PL_EFORMAT,
                       "allowlist, line %zu: behind the name come 64 hex digits, the "
                       "SHA-256 of the token",
                       number);
    at += length;
    return word(&at, end) ? pl_fail(err, PL_EFORMAT,
                                    "allowlist, line %zu: more than a name and a hash", number)
                          : PL_OK;
}

/* All or nothing: a mistake in one line leaves the old list in force. */
int authority_read(struct authority *a, const char *text, size_t n, struct pl_err *err)
{
    struct authority_user *users = NULL;
    size_t count = 0, capacity = 0, number = 0;
    const char *end = text + n;
    int rc = PL_OK;
    while (text < end && !rc) {
        /* One line, without its comment and its line break. */
        const char *stop = memchr(text, '\n', (size_t)(end - text)), *line = text;
        size_t length = (size_t)((stop ? stop : end) - line);
        const char *comment = memchr(line, '#', length), *at = line;
        text = stop ? stop + 1 : end;
        number++;
        if (comment) length = (size_t)(comment - line);
        if (!word(&at, line + length)) continue; /* blank, or a comment alone */
        /* The list grows twofold, so that reading n users copies fewer than 2n. */
        if (count == AUTHORITY_USERS_MAX)
            rc = pl_fail(err, PL_ELIMIT, "allowlist: more than %d users", AUTHORITY_USERS_MAX);
        else if (pl_grow(&users, count, &capacity, 64))
            rc = pl_fail(err, PL_ENOMEM, "allowlist: no memory");
        if (!rc && !(rc = read_line(&users[count], line, length, number, err))) count++;
    }
    if (rc) {
        free(users);
        return rc;
    }
    /* Users whose lines are gone get no further token; those that they hold stay valid until their
     * expiration, since no peer asks the authority. */
    free(a->users);
    a->users = users;
    a->user_count = count;
    return PL_OK;
}

void authority_clear(struct authority *a)
{
    free(a->users);
    a->users = NULL;
    a->user_count = 0;
}

/* SHA-256, as `printf %s SECRET | sha256sum` gives it: a list may be made without our program. */
static int hash(uint8_t out[32], const char *token)
{
    return EVP_Digest(token, strlen(token), out, NULL, EVP_sha256(), NULL) == 1 ? PL_OK : PL_ENOMEM;
}

int authority_check_user(const char *name, struct pl_err *err)
{
    if (is_name(name, strlen(name))) return PL_OK;
    return pl_fail(err, PL_EUSE, "'%.80s' is not a name of up to %d letters, digits and . _ - @ +",
                   name, AUTHORITY_NAME_MAX);
}

/* The secret exists twice only: as hex in the user's hands, as a hash in the list. */
int authority_invite(char token[AUTHORITY_TOKEN_MAX], struct bytes *line, const char *name,
                     struct pl_err *err)
{
    uint8_t random[32], secret[32];
    char text[65];
    if (authority_check_user(name, err)) return PL_EUSE;
    if (RAND_bytes(random, sizeof random) != 1) return pl_fail(err, PL_ENOMEM, "no random numbers");
    /* 256 bits from the system's generator: a secret that cannot be guessed, so a fast hash of it
     * in the list gives nothing away. */
    pl_hex(token, random, 32);
    if (hash(secret, token)) return pl_fail(err, PL_ENOMEM, "no memory");
    pl_hex(text, secret, 32);
    bytes_add(line, name, strlen(name));
    bytes_u8(line, ' ');
    bytes_add(line, text, 64);
    return bytes_u8(line, '\n') ? pl_fail(err, PL_ENOMEM, "no memory") : PL_OK;
}

/* --- a request -------------------------------------------------------------------------------- */

/* Writes o, which it takes and which was built since pl_json_begin(), and returns the HTTP status:
 * 500 without memory. */
static int answer(struct bytes *json, int status, json_t *o)
{
    char *text = pl_json_text(o, JSON_COMPACT);
    int rc = text ? bytes_add(json, text, strlen(text)) : PL_ENOMEM;
    free(text);
    json_decref(o);
    return rc ? 500 : status;
}

/* The form of FastAPI's errors: {"detail": a sentence}. */
static int refuse(struct bytes *json, int status, const char *why)
{
    pl_json_begin();
    return answer(json, status, json_pack("{s:s}", "detail", why));
}

/* All users are compared with, in constant time each: how long it takes reveals nothing about
 * which ones exist. */
static const struct authority_user *find_user(const struct authority *a, const char *bearer)
{
    static const char scheme[] = "Bearer ";
    const struct authority_user *found = NULL;
    uint8_t secret[32];
    if (!bearer || strncmp(bearer, scheme, sizeof scheme - 1) ||
        hash(secret, bearer + sizeof scheme - 1))
        return NULL;
    for (size_t i = 0; i < a->user_count; i++) /* no early exit: the time reveals nothing */
        if (!CRYPTO_memcmp(a->users[i].secret, secret, sizeof secret)) found = &a->users[i];
    return found;
}

/* Bytes as JSON text: all of these were checked or made here and are ASCII. */
static json_t *text_of(const struct bytes *b)
{
    return json_stringn((const char *)bytes_at(b), bytes_length(b));
}

/* The answer of 200. Its hivemind_access is the token in JSON; a peer trusts auth_server_public_key
 * as the run's authority from then on, so the connection has to be HTTPS. */
static int issue(const struct authority *a, struct bytes *json, const char *name, const char *key,
                 size_t n, double now)
{
    struct auth_token t = { 0 };
    json_t *o, *access;
    if (auth_token_issue(&t, a->key, name, key, n, now + a->life_s)) {
        auth_token_clear(&t);
        return refuse(json, 500, "no memory");
    }
    pl_json_begin();
    access = json_pack("{s:o,s:o,s:o,s:o}", "username", text_of(&t.username), "peer_public_key",
                       text_of(&t.public_key), "expiration_time", text_of(&t.expiration),
                       "signature", text_of(&t.signature));
    o = json_pack("{s:o,s:o}", "auth_server_public_key", text_of(&a->key->text), "hivemind_access",
                  access);
    /* The run's volunteers read their first initial peer here; ours take it from the user. */
    if (o && a->coordinator_ip) {
        json_object_set_new(o, "coordinator_ip", json_string(a->coordinator_ip));
        json_object_set_new(o, "coordinator_port", json_integer(a->coordinator_port));
    }
    auth_token_clear(&t);
    return answer(json, 200, o);
}

/* The secret first: without it the body is not even parsed. */
int authority_join(const struct authority *a, struct bytes *json, const char *bearer,
                   const void *body, size_t n, double now)
{
    const struct authority_user *user = find_user(a, bearer);
    json_t *o = NULL, *key;
    EVP_PKEY *parsed = NULL;
    const char *text;
    int status;
    if (!user) return refuse(json, 401, "this access token is not on the list");
    /* Two keys of one name in JSON are read differently by different readers, so they are
     * refused. */
    o = n <= AUTHORITY_BODY_MAX ? pl_json_load(body, n, JSON_REJECT_DUPLICATES, NULL) : NULL;
    key = json_object_get(json_object_get(o, "experiment_join_input"), "peer_public_key");
    text = json_string_value(key);
    if (!o && n <= AUTHORITY_BODY_MAX && pl_json_status() == PL_ENOMEM)
        return refuse(json, 500, "no memory");
    /* JSON texts may hold a NUL, which would cut the key that is signed. */
    if (!text || strlen(text) != json_string_length(key) ||
        rsa_public_parse(&parsed, text, strlen(text)))
        status = refuse(json, 400,
                        "experiment_join_input.peer_public_key is not an RSA key as OpenSSH text");
    else status = issue(a, json, user->name, text, strlen(text), now);
    EVP_PKEY_free(parsed);
    json_decref(o);
    return status;
}
