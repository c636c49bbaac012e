/* membership.c - how a user becomes a member of a moderated run, and stays one. [spec
 * hivemind-protocol 3]
 *
 *   file      the user's secret, from the owner of the authority's allowlist
 *   fetch     secret and a fresh RSA key go to the authority over HTTPS; a token comes back:
 *             "user NAME may use this key until T", signed by the authority
 *   renew     a minute before T the same again, while the swarm goes on with the old token
 *
 * Every DHT message of ours then carries the token and is signed by its key (auth.c). The secret
 * itself never goes to other peers. */
#include "membership.h"

#include "data/files/file.h"
#include "net/hivemind/moderation/authority_client.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* An answer takes a fraction of a second, so 4 s show that something is wrong; 12 s more are for a
 * distant or loaded authority. Together they are less than people wait without a word. */
#define SHORT_TRY 4
#define LONG_TRY 12
#define CA_MAX (4u << 20) /* bytes of a certificate file; a system's own bundle has 0.2 million */
#define RETRY_AFTER 15.0  /* s; a token has AUTH_RENEW_BEFORE left when the first try is made */

/* --- the user's files ------------------------------------------------------------------------- */

#define SECRET \
    "the secret that the swarm's owner gave you (potluck authority --invite), alone in its " \
    "first line"

/* A word of printable characters, alone in its line: a line copied from the allowlist would have a
 * name before it. It becomes part of an HTTP header, where a control character would begin another
 * one. */
static int parse_secret(struct membership *m, const char *text, struct pl_err *err)
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
                           "--token-file %.200s: byte %zu is not a character that a secret may "
                           "contain; your side: it holds " SECRET,
                           m->token_file, i);
    if (text[end] && text[end] != '\n')
        return pl_fail(err, PL_EUSE,
                       "--token-file %.200s: its first line has more than one word; "
                       "your side: it holds " SECRET,
                       m->token_file);
    memcpy(m->secret, text, n);
    m->secret[n] = 0;
    return PL_OK;
}

/* From a file and not from the command line, which every user of the machine can read. */
static int read_secret(struct membership *m, struct pl_err *err)
{
    struct pl_err why;
    void *text;
    size_t n;
    int rc;
    if (!m->token_file)
        return pl_fail(err, PL_EUSE,
                       "--authority needs --token-file, too; your side: a file with " SECRET);
    if ((rc = pl_file_read(&text, &n, m->token_file, sizeof m->secret - 1, &why)))
        return pl_fail(err, rc, "--token-file %.250s; your side: it holds " SECRET, why.text);
    rc = parse_secret(m, text, err);
    /* The secret does not stay in freed memory. */
    OPENSSL_cleanse(text, n);
    free(text);
    return rc;
}

/* Checked here, because libcurl's sentence is the same for a missing file, a private key and an
 * empty file. */
static int check_ca_file(const struct membership *m, struct pl_err *err)
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
                        "--authority-ca %.250s; your side: it must be the authority's certificate "
                        "(PEM), the FILE.crt that its owner gives out",
                        why.text)
              : PL_OK;
}

/* --- the token -------------------------------------------------------------------------------- */

/* Tokens end at a time of the wall clock, which authority and peers share. */
static double wall(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Tries `tries` times, with pauses of 1, 2, ... s. */
static int fetch(struct auth *auth, const struct membership *m, int tries, long timeout_s,
                 double now, struct pl_err *err)
{
    struct authority_ask ask = { .url = m->authority,
                                 .user_token = m->secret,
                                 .ca_file = m->ca_file,
                                 .tries = tries,
                                 .secret_from = m->token_file,
                                 .timeout_s = timeout_s };
    return authority_ask(auth, &ask, now, err);
}

/* An authority that refuses connections may be about to start: it gets two more tries. One that is
 * silent gets a longer wait, which the user can see. */
static int fetch_first(struct membership *m, struct pl_err *err)
{
    double began = pl_seconds();
    struct pl_err text;
    int rc = fetch(&m->auth, m, 1, SHORT_TRY, wall(), err);
    if (rc != PL_EAGAIN) return rc;
    if (pl_seconds() - began < SHORT_TRY - 1) return fetch(&m->auth, m, 2, LONG_TRY, wall(), err);
    pl_fail(&text, PL_EAGAIN, "the authority %.200s has not answered for %d s; waiting %d s more",
            m->authority, SHORT_TRY, LONG_TRY);
    if (m->report) m->report(m->context, text.text);
    return fetch(&m->auth, m, 1, LONG_TRY, wall(), err);
}

/* --- open, renew, close ----------------------------------------------------------------------- */

int membership_open(struct membership *m, struct auth **auth, struct pl_err *err)
{
    int rc;
    *auth = NULL;
    /* An open run; but a secret without an authority shows that the user means a moderated one. */
    if (!m->authority && !m->token_file && !m->ca_file) return PL_OK;
    if (!m->authority)
        return pl_fail(err, PL_EUSE,
                       "%s needs an authority, and none is given; your side: add --authority "
                       "https://NAME:PORT",
                       m->token_file ? "--token-file" : "--authority-ca");
    /* Files first: their mistakes are found without a network. The key is fresh each time, so that
     * a token is of use to this process alone. */
    if ((rc = read_secret(m, err)) || (rc = check_ca_file(m, err)) ||
        (rc = rsa_key_make(&m->key, err)))
        return rc;
    m->auth.key = &m->key;
    if ((rc = fetch_first(m, err))) {
        OPENSSL_cleanse(m->secret, sizeof m->secret);
        rsa_key_clear(&m->key);
        return rc;
    }
    /* From here on close has something to free. */
    m->is_member = 1;
    *auth = &m->auth;
    return PL_OK;
}

/* The loop's thread reads the token whenever it signs a message, so it changes there, without a
 * lock. */
struct change {
    struct auth *auth;
    struct auth_token *fresh;
};

static void change_token(void *context)
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
    /* Not due while it has more than a minute left: in that minute three tries may fail. */
    if (!auth_time_parse(&ends, bytes_at(&m->auth.token.expiration),
                         bytes_length(&m->auth.token.expiration)) &&
        (double)ends / AUTH_SECOND - now > AUTH_RENEW_BEFORE)
        return PL_OK;
    /* The caller's training waits meanwhile, so the first try is short; a slow authority, which it
     * did not suffice for, gets the longer time in the next. */
    rc = fetch(&next, m, 1, m->failures ? LONG_TRY : SHORT_TRY, now, err);
    m->retry_at = wall() + RETRY_AFTER;
    m->failures = rc ? m->failures + 1 : 0;
    if (rc) return rc;
    loop_call(s->loop, change_token, &change);
    auth_token_clear(&next.token); /* the old one */
    EVP_PKEY_free(next.authority); /* the same authority's: ours stays */
    return PL_OK;
}

void membership_close(struct membership *m)
{
    if (!m->is_member) return;
    OPENSSL_cleanse(m->secret, sizeof m->secret);
    EVP_PKEY_free(m->auth.authority);
    auth_clear(&m->auth);
    rsa_key_clear(&m->key);
    m->is_member = 0;
}
