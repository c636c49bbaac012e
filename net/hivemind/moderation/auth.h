/* auth.h - moderated swarms: every DHT message carries the sender's access token and a signature
 * over the whole message. [spec hivemind-protocol 3]
 *
 * Token and signature are field 1, so a signed message is the encoded field 1 and then the plain
 * message: this is a layer around the unary calls, which see neither. */
#ifndef PL_AUTH_H
#define PL_AUTH_H

#include "net/libp2p/peer/peer_id.h"
#include "auth_nonce.h"
#include "net/hivemind/records/rsa_key.h"

#define AUTH_TEXT_MAX 512      /* of a user name or an expiration */
#define AUTH_RENEW_BEFORE 60.0 /* s before its end that a token should be renewed */

struct auth_token {
    struct bytes username, public_key; /* key: OpenSSH text */
    struct bytes expiration;           /* "YYYY-MM-DD HH:MM:SS[.ffffff]", UTC */
    struct bytes signature;
};
void auth_token_clear(struct auth_token *t);
/* The wire's form. PL_EFORMAT for other bytes. */
int auth_token_read(struct auth_token *t, const uint8_t *data, size_t n);
int auth_token_write(struct bytes *out, const struct auth_token *t);
/* The text that the authority signs. */
int auth_token_message(struct bytes *out, const struct auth_token *t);
/* The authority's part: a token for a key until `expiration` (s since 1970). */
int auth_token_issue(struct auth_token *t, const struct rsa_key *authority, const char *username,
                     const void *public_key, size_t n, double expiration);
/* PL_OK, or PL_EPROTO with a sentence: not the authority's, or expired. */
int auth_token_check(const struct auth_token *t, EVP_PKEY *authority, double now,
                     struct pl_err *err);
/* Microseconds since 1970 of the token's text, in any form that Python 3.11's
 * datetime.fromisoformat reads; PL_EFORMAT for anything else, a time zone included, which peers
 * refuse, and a NUL. */
int auth_time_parse(int64_t *micros, const void *text, size_t n);
#define AUTH_SECOND ((int64_t)1000000)
#define AUTH_TIME_TEXT 80 /* with its end; far more than a date of four digits' year takes */
/* The form of Python's str(datetime), which authorities sign: "YYYY-MM-DD HH:MM:SS[.ffffff]".
 * PL_EUSE, and "": not in the years 1 to 9999. */
int auth_time_write(char text[AUTH_TIME_TEXT], int64_t micros);

/* One peer's side. Zero it, set the first three; the rest is private. */
struct auth {
    const struct rsa_key *key; /* ours, the one in our token; borrowed */
    EVP_PKEY *authority;       /* borrowed */
    struct auth_token token;   /* ours */
    /* Our host's peer ID, set by the DHT's node. A request of ours names it behind the plain
     * message, as AUTH_SENDER, so that its receiver cannot pass it on as its own; hivemind
     * keeps fields that it does not know, and the signature holds. */
    struct peer_id self;
    double until; /* after a check that passed: when the other side's token expires */
    struct auth_nonces nonces;
};
void auth_clear(struct auth *a); /* frees token and nonces */

#define AUTH_SENDER 100 /* field number: far from any that hivemind's DHT has */
/* PL_EPROTO with a sentence: the message names another sender. hivemind's name none. */
int auth_check_sender(const uint8_t *plain, size_t n, const struct peer_id *sender,
                      struct pl_err *err);

/* Appends the signed form of a plain message; nonce is filled, the answer has to bear it. */
int auth_sign_request(struct bytes *out, uint8_t nonce[AUTH_NONCE], const struct auth *a,
                      double now, const void *plain, size_t n);
/* PL_OK: *plain is the message without its field 1 (a view), nonce is needed for the answer.
 * PL_EPROTO with a sentence. */
int auth_check_request(const uint8_t **plain, size_t *plain_n, uint8_t nonce[AUTH_NONCE],
                       struct auth *a, double now, const uint8_t *data, size_t n,
                       struct pl_err *err);
int auth_sign_response(struct bytes *out, const struct auth *a, const uint8_t nonce[AUTH_NONCE],
                       const void *plain, size_t n);
int auth_check_response(const uint8_t **plain, size_t *plain_n, struct auth *a,
                        const uint8_t nonce[AUTH_NONCE], double now, const uint8_t *data, size_t n,
                        struct pl_err *err);

#endif
