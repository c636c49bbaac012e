/* membership.c - see membership.h. */
#include "membership.h"

#include "../data/file.h"
#include "../net/http/authority_client.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define RETRY_AFTER 15.0 /* s; a token has AUTH_RENEW_BEFORE left when the first try is made */

int membership_option(struct membership *m, int option, const char *value)
{
    switch (option) {
    case MEMBERSHIP_FIRST: m->authority = value; return 1;
    case MEMBERSHIP_FIRST + 1: m->token_file = value; return 1;
    case MEMBERSHIP_FIRST + 2: m->ca_file = value; return 1;
    default: return 0;
    }
}

static int read_secret(struct membership *m, struct pl_err *err)
{
    void *text;
    size_t n;
    int rc;
    if (!m->token_file) return pl_fail(err, PL_EUSE, "--authority asks for --token-file, too");
    if ((rc = pl_file_read(&text, &n, m->token_file, sizeof m->user_token - 1, err))) return rc;
    n = strcspn(text, " \t\r\n");
    memcpy(m->user_token, text, n);
    m->user_token[n] = 0;
    free(text);
    return n ? PL_OK
             : pl_fail(err, PL_EUSE, "%.200s: the first line is the secret, and it is empty",
                       m->token_file);
}

static int fetch(struct auth *auth, const struct membership *m, int tries, double now,
                 struct pl_err *err)
{
    struct authority_ask ask = {
        .url = m->authority, .user_token = m->user_token, .ca_file = m->ca_file, .tries = tries
    };
    return authority_ask(auth, &ask, now, err);
}

static double wall(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int membership_open(struct membership *m, struct auth **auth, struct pl_err *err)
{
    int rc;
    *auth = NULL;
    if (!m->authority) return PL_OK;
    if ((rc = read_secret(m, err)) || (rc = rsa_key_make(&m->key, err))) return rc;
    m->auth.key = &m->key;
    if ((rc = fetch(&m->auth, m, 3, wall(), err))) {
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
    if ((rc = fetch(&next, m, 1, now, err))) return rc;
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
