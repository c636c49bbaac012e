/* membership.h - a peer's place in a moderated run: an access token, which the run's authority
 * gives to users that know their secret. Fetched before joining, renewed in time.
 * [spec hivemind-protocol 3] */
#ifndef PL_MEMBERSHIP_H
#define PL_MEMBERSHIP_H

#include "swarm.h"

struct membership {
    const char *authority;  /* https://NAME:PORT; NULL: the run is open to everybody */
    const char *token_file; /* the user's secret, alone in its first line */
    const char *ca_file;    /* the authority's certificate (PEM); NULL: the system's are trusted */
    /* Called with a sentence when the authority takes long to answer; may be NULL. */
    void (*report)(void *context, const char *text);
    void *context;
    /* private */
    int is_member;
    struct rsa_key key; /* the token is for this key, which signs our DHT messages */
    struct auth auth;
    char secret[256];
    double retry_at; /* after a failed renewal, s since 1970 */
    int failures;    /* renewals in a row that failed */
};

/* Fetches a token if an authority is named; waits up to 16 s for a slow one. *auth is for
 * swarm_options.auth: NULL in an open run. Sentences name the fields as the options --authority,
 * --token-file and --authority-ca of `potluck train`, and the side that has to act. */
int membership_open(struct membership *m, struct auth **auth, struct pl_err *err);
/* To be called now and then, not on the loop's thread: fetches the next token when this one ends
 * soon, and gives it to the open swarm. PL_OK also when nothing was due; after a failure nothing
 * is due for a while. */
int membership_renew(struct membership *m, struct swarm *s, struct pl_err *err);
/* After swarm_close. */
void membership_close(struct membership *m);

#endif
