/* membership.c - the access token of a moderated swarm. The user's secret is read from a file and
 * sent to the authority over HTTPS; its answer is a token that expires and is renewed a minute
 * before. */
#include "membership.h"

#include "data/files/file.h"
#include "net/hivemind/moderation/authority_client.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SHORT_TRY 4 /* s for the authority's first answer */
#define LONG_TRY \
    12 /* s for its second one: all of it stays below what people wait without a word */
#define CA_MAX (4u << 20) /* bytes of --authority-ca; a system's own bundle has 0.2 million */
#define RETRY_AFTER 15.0  /* s; a token has AUTH_RENEW_BEFORE left when the first try is made */

int membership_option(struct membership *m, int option, const char *value)
{
    switch (option) {
    case MEMBERSHIP_FIRST: m->authority = value; return 1;
    case MEMBERSHIP_FIRST + 1: m->token_file = value; return 1;
    case MEMBERSHIP_FIRST + 2: m->ca_file = value; return 1;
    default: return 0;
    }
}

static double wall(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

#define SECRET \
    "the secret that the swarm's keeper gave you (potluck authority --invite), alone in its " \
    "first line"

/* A word of printable characters, and nothing else in its line: a user who got a line of the
 * list has a name before it. */
static int take_secret(struct membership *m, const char *text, struct pl_err *err)
{
    size_t n = strcspn(text, " \t\r\n"), end = n + strspn(text + n, " \t\r");
    if (!*text)
        return pl_fail(err, PL_EUSE, "--token-file %.200s is empty; your side: it holds " SECRET,
                       m->token_file);
    if (!n)
        return pl_fail(err, PL_EUSE,
                       "--token-file %.200s: its first line begins with a space or is "
                       "empty; your side: it holds " SECRET,
                       m->token_file);
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return pl_fail(err, PL_EUSE,
                           "--token-file %.200s: byte %zu is none of a secret's "
                           "characters; your side: it holds " SECRET,
                           m->token_file, i);
    if (text[end] && text[end] != '\n')
        return pl_fail(err, PL_EUSE,
                       "--token-file %.200s: its first line has more than one word; "
                       "your side: it holds " SECRET,
                       m->token_file);
    memcpy(m->user_token, text, n);
    m->user_token[n] = 0;
    return PL_OK;
}

static int read_secret(struct membership *m, struct pl_err *err)
{
    struct pl_err why;
    void *text;
    size_t n;
    int rc;
    if (!m->token_file)
        return pl_fail(err, PL_EUSE,
                       "--authority asks for --token-file, too; your side: a file "
                       "with " SECRET);
    if ((rc = pl_file_read(&text, &n, m->token_file, sizeof m->user_token - 1, &why)))
        return pl_fail(err, rc, "--token-file %.250s; your side: it holds " SECRET, why.text);
    rc = take_secret(m, text, err);
    free(text);
    return rc;
}

/* libcurl says of all that it cannot read that it is no certificate. */
static int look_at_ca(const struct membership *m, struct pl_err *err)
{
    struct pl_err why = { "" };
    void *text = NULL;
    size_t n;
    int rc = m->ca_file ? pl_file_read(&text, &n, m->ca_file, CA_MAX, &why) : PL_OK;
    if (!rc && m->ca_file && !strstr(text, "-----BEGIN CERTIFICATE-----") &&
        !strstr(text, "-----BEGIN TRUSTED CERTIFICATE-----"))
        rc = pl_fail(&why, PL_EFORMAT, "%.200s: %s, no certificate", m->ca_file,
                     strstr(text, "PRIVATE KEY") ? "a private key"
                     : n                         ? "something else"
                                                 : "empty");
    free(text);
    return rc ? pl_fail(err, rc,
                        "--authority-ca %.250s; your side: it has to be the authority's "
                        "certificate (PEM), the FILE.crt that its keeper gives out",
                        why.text)
              : PL_OK;
}

static int fetch(struct auth *auth, const struct membership *m, int tries, long timeout_s,
                 double now, struct pl_err *err)
{
    struct authority_ask ask = { .url = m->authority,
                                 .user_token = m->user_token,
                                 .ca_file = m->ca_file,
                                 .tries = tries,
                                 .secret_from = m->token_file,
                                 .timeout_s = timeout_s };
    return authority_ask(auth, &ask, now, err);
}

/* A longer wait is explained. */
static int fetch_first(struct membership *m, struct pl_err *err)
{
    double began = pl_seconds();
    int rc = fetch(&m->auth, m, 1, SHORT_TRY, wall(), err);
    if (rc != PL_EAGAIN) return rc;
    if (pl_seconds() - began < SHORT_TRY - 1) /* it was refused: it may be about to start */
        return fetch(&m->auth, m, 2, LONG_TRY, wall(), err);
    fprintf(stderr, "potluck: the authority %.200s has not answered for %d s; waiting %d s more\n",
            m->authority, SHORT_TRY, LONG_TRY);
    return fetch(&m->auth, m, 1, LONG_TRY, wall(), err);
}

int membership_open(struct membership *m, struct auth **auth, struct pl_err *err)
{
    int rc;
    *auth = NULL;
    if (!m->authority && !m->token_file && !m->ca_file) return PL_OK;
    if (!m->authority)
        return pl_fail(err, PL_EUSE,
                       "%s is for an authority's tokens, and none is named; your side: "
                       "--authority https://NAME:PORT",
                       m->token_file ? "--token-file" : "--authority-ca");
    if ((rc = read_secret(m, err)) || (rc = look_at_ca(m, err)) ||
        (rc = rsa_key_make(&m->key, err)))
        return rc;
    m->auth.key = &m->key;
    if ((rc = fetch_first(m, err))) {
        rsa_key_clear(&m->key);
        return rc;
    }
    m->is_member = 1;
    *auth = &m->auth;
    return PL_OK;
}

/* The token changes on the loop's thread, where it is read. */
struct change {
    struct auth *auth;
    struct auth_token *fresh;
};

static void change_here(void *context)
{
    struct change *c = context;
    struct auth_token old = c->auth->token;
    c->auth->token = *c->fresh;
    *c->fresh = old;
}

int membership_renew(struct membership *m, struct swarm *s, struct pl_err *err)
{
    struct auth next = { .key = &m->key };
    struct change change = { &m->auth, &next.token };
    double now = wall();
    int64_t ends;
    int rc;
    if (!m->is_member || now < m->retry_at) return PL_OK;
    if (!auth_time_parse(&ends, bytes_at(&m->auth.token.expiration),
                         bytes_length(&m->auth.token.expiration)) &&
        (double)ends / AUTH_SECOND - now > AUTH_RENEW_BEFORE)
        return PL_OK;
    m->retry_at = now + RETRY_AFTER;
    if ((rc = fetch(&next, m, 1, 0, now, err))) return rc;
    rc = loop_call(s->loop, change_here, &change);
    auth_token_clear(&next.token); /* the old one */
    EVP_PKEY_free(next.authority); /* the same authority's: ours stays */
    return rc;
}

void membership_close(struct membership *m)
{
    if (!m->is_member) return;
    EVP_PKEY_free(m->auth.authority);
    auth_clear(&m->auth);
    rsa_key_clear(&m->key);
    m->is_member = 0;
}
