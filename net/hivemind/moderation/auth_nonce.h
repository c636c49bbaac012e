/* auth_nonce.h - requests that were seen before: a signed request is taken once, and no member
 * can fill the memory that this needs.
 *
 * A request is valid for AUTH_TIME_LIMIT before and after the time in it, so its nonce is kept for
 * twice that time. All members share one table; how much of it one may hold depends on what is
 * free, as a switch shares its buffer among its queues: each key has at most a part of the free
 * entries, so there are always some left for the next member, however many others flood. */
#ifndef PL_AUTH_NONCE_H
#define PL_AUTH_NONCE_H

#include "net/bytes.h"

#define AUTH_NONCE 8
#define AUTH_TIME_LIMIT 60.0 /* s that a request's clock may differ */
#define AUTH_NONCE_LIFE \
    120.0 /* s: a request of a clock that is as early as may be, until it is too late */
/* A key that is alone may hold a quarter, 273 requests a second; hivemind's busiest pair of
 * peers made 165 each. 5 MB, which are touched only as they fill. */
#define AUTH_NONCES_MAX 131072
#define AUTH_NONCE_HOLDERS \
    65536 /* counters; members whose hashes collide share theirs; hashes cannot be chosen */

struct auth_nonces {
    /* a ring, oldest first */
    struct auth_nonce {
        uint8_t id[16]; /* hash of key and nonce */
        double until;
        uint16_t key, user; /* their counters */
        uint32_t next;      /* in its bucket, + 1; 0: the last */
    } * ring;
    uint32_t *bucket;           /* (AUTH_NONCES_MAX) ring place + 1 */
    uint32_t *by_key, *by_user; /* (AUTH_NONCE_HOLDERS) entries that they hold */
    uint8_t secret[16];         /* of the hashes: collisions cannot be made */
    size_t first, count;
};
void auth_nonces_clear(struct auth_nonces *a);

/* Remembers a member's nonce. PL_EPROTO: seen before. PL_EAGAIN: the member has too many.
 * PL_ENOMEM. */
int auth_nonces_take(struct auth_nonces *a, const void *key, size_t key_n, const void *user,
                     size_t user_n, const uint8_t nonce[AUTH_NONCE], double now);

#endif
