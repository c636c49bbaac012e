/* authority_client.h - asking an authority for an access token. Behind it: libcurl.
 * [spec hivemind-protocol 3] */
#ifndef PL_AUTHORITY_CLIENT_H
#define PL_AUTHORITY_CLIENT_H

#include "net/hivemind/moderation/auth.h"

#define AUTHORITY_ANSWER_MAX 65536
#define AUTHORITY_TIMEOUT_S 20L
#define AUTHORITY_TRIES 10 /* with 1, 2, 4, ... s between them, as the run's volunteers did */

struct authority_ask {
    const char *url;                  /* "https://host:port", before /api */
    const char *user_token;           /* the user's, from the owner of the allowlist */
    const char *ca_file;              /* PEM to trust; NULL: the system's */
    const char *organization, *model; /* of the query; NULL: empty */
    const char *secret_from;          /* the file of user_token, for messages; may be NULL */
    int tries;                        /* 0: AUTHORITY_TRIES */
    long timeout_s;                   /* of a try; 0: AUTHORITY_TIMEOUT_S */
};

/* PL_EUSE, with a sentence that says what to do: not an https URL to which a secret may go. */
int authority_check_url(const char *url, struct pl_err *err);
/* Fills auth->token and auth->authority (which the caller frees with EVP_PKEY_free) for auth->key;
 * both are unchanged after an error. Waits. PL_EUSE: the authority does not know our user token, or
 * the server is no authority. PL_EAGAIN: it may respond later. The sentence names the side that has
 * to act. */
int authority_ask(struct auth *auth, const struct authority_ask *ask, double now,
                  struct pl_err *err);
/* The answer's body, checked like everything from outside. */
int authority_answer_read(struct auth_token *t, EVP_PKEY **authority, const char *json, size_t n,
                          struct pl_err *err);

#endif
