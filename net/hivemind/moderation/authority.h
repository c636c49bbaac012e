/* authority.h - an allowlist of users, and access tokens for their peers' keys. A stand-in for the
 * run's own service, which no longer exists. Requests and time come in, answers go out; the web
 * server around it is net/http/authority/authority_server.h. [spec hivemind-protocol 3] */
#ifndef PL_AUTHORITY_H
#define PL_AUTHORITY_H

#include "auth.h"

#define AUTHORITY_USERS_MAX 100000
#define AUTHORITY_LIST_MAX (16u << 20) /* bytes of an allowlist */
#define AUTHORITY_NAME_MAX 64
#define AUTHORITY_BODY_MAX 8192 /* bytes of a request: one public key in JSON */

struct authority_user {
    char name[AUTHORITY_NAME_MAX + 1];
    uint8_t secret[32]; /* SHA-256 of the user's own token, which is stored nowhere */
};

struct authority {
    const struct rsa_key *key;  /* signs; borrowed */
    double life_s;              /* of a token */
    const char *coordinator_ip; /* borrowed; where a first peer listens; NULL: not sent */
    int coordinator_port;
    struct authority_user *users;
    size_t user_count;
};

/* An allowlist: a line a user, "NAME HEX" with the SHA-256 of the user's token; # begins a comment.
 * Replaces the users, or leaves them as they were after an error, whose sentence names the line. */
int authority_read(struct authority *a, const char *text, size_t n, struct pl_err *err);
void authority_clear(struct authority *a);

/* PL_EUSE, with the expectation in err, if it is no name that a list may hold. */
int authority_check_user(const char *name, struct pl_err *err);
/* A fresh token for a user (64 hex digits, for the user), and the line for the allowlist. */
#define AUTHORITY_TOKEN_MAX 65
int authority_invite(char token[AUTHORITY_TOKEN_MAX], struct bytes *line, const char *name,
                     struct pl_err *err);

/* Answers PUT .../api/experiments/join. bearer: the Authorization header's value, or NULL. Appends
 * JSON and returns the HTTP status: 200, 400 (the body makes no sense), 401 (not allowed), 500. */
int authority_join(const struct authority *a, struct bytes *json, const char *bearer,
                   const void *body, size_t n, double now);

#endif
