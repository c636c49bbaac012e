/* validate.h - records that only their owner can write, and only in the declared form.
 * [spec hivemind-protocol 2]
 *
 * A record whose key or subkey contains "[owner:PUBLIC KEY]" carries "[signature:...]" by that key
 * in its value. hivemind throws a whole found dictionary away if one record in it is wrong; here
 * each is judged by itself. */
#ifndef PL_VALIDATE_H
#define PL_VALIDATE_H

#include "dht_id.h"
#include "rsa_key.h"
#include "schema.h"

#define VALIDATORS_GUARDS_MAX 16 /* a peer takes part in one run: three keys */

/* As it is signed: everything serialised. */
struct record {
    const uint8_t *key, *subkey, *value; /* borrowed; subkey c0: none, a regular value */
    size_t key_n, subkey_n, n;
    double expiration;
};

struct validators {
    const struct rsa_key *key; /* our own, borrowed; NULL: nothing is signed */
    struct { struct dht_id key; const struct schema *schema; } guards[VALIDATORS_GUARDS_MAX];
    size_t count;
};

/* Guards PREFIX_progress, PREFIX_metrics and PREFIX_report. PL_ELIMIT when there are too many. */
int validators_add_run(struct validators *v, const char *prefix);

/* Our subkey: msgpack of "[owner:our key]". */
int record_own_subkey(struct bytes *out, const struct rsa_key *key);

/* Signature, then schema. PL_OK, or PL_EPROTO with a sentence. */
int record_check(const struct validators *v, const struct record *r, struct pl_err *err);
/* Appends the value, signed if the record is ours. */
int record_sign(struct bytes *out, const struct validators *v, const struct record *r);
/* Appends the value without any signature. */
int record_strip(struct bytes *out, const uint8_t *value, size_t n);

/* What is signed: the tuple of key, subkey, value, expiration. */
int record_message(struct bytes *out, const struct record *r);

#endif
