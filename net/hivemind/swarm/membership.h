/* membership.h - the options of commands that join a moderated swarm, and the access token that
 * they bring: fetched before joining, renewed in time. */
#ifndef PL_CMD_MEMBERSHIP_H
#define PL_CMD_MEMBERSHIP_H

#include "net/hivemind/swarm/swarm.h"

#include <getopt.h>

struct membership {
    const char *authority, *token_file, *ca_file;
    /* private */
    int is_member;
    struct rsa_key key;
    struct auth auth;
    char user_token[256];
    double retry_at; /* after a failed renewal, s since 1970 */
};

#define MEMBERSHIP_FIRST 1100
#define MEMBERSHIP_OPTIONS \
    { "authority", required_argument, NULL, MEMBERSHIP_FIRST }, \
        { "token-file", required_argument, NULL, MEMBERSHIP_FIRST + 1 }, \
    { \
        "authority-ca", required_argument, NULL, MEMBERSHIP_FIRST + 2 \
    }

#define MEMBERSHIP_USAGE \
    "  --authority URL     a moderated swarm: who gives access tokens (https://...)\n" \
    "  --token-file FILE   our secret there, as its keeper gave it to us\n" \
    "  --authority-ca FILE its certificate, if it is not a public one\n"

/* 1: it was one of ours and is stored; 0: not ours. */
int membership_option(struct membership *m, int option, const char *value);
/* Fetches a token if an authority is named. *auth is for swarm_options.auth: NULL without one. */
int membership_open(struct membership *m, struct auth **auth, struct pl_err *err);
/* To be called now and then: fetches the next token when this one ends soon. An open swarm gets it
 * at once. PL_OK also when nothing was due; after a failure nothing is for a while. */
int membership_renew(struct membership *m, struct swarm *s, struct pl_err *err);
/* After swarm_close. */
void membership_close(struct membership *m);

#endif
