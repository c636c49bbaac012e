/* validate.h - signed records, which only their owner can write, their schemas, and limits on a
 * record's size and lifetime. [spec hivemind-protocol 2]
 *
 * A record whose key or subkey contains "[owner:PUBLIC KEY]" carries "[signature:...]" by that
 * key in its value. hivemind throws a whole found dictionary away if one record in it is wrong;
 * here each is judged by itself.
 *
 * | kind | subkey | may live | because hivemind 1.1.12 stores it for |
 * | --- | --- | --- | --- |
 * | progress | its owner's tag, nothing else | 60 s | 60 s, every 30 s |
 * | metrics, report, manifest, identity | the same | 1 h | 600 s, an option of its trainer |
 * | other signed records | has an owner's tag | 1 h | as its user asks: 600 s in its examples |
 * | group declarations (true, false) | a peer ID | 1 h | as long as a group may form: 15 s |
 * | announcements of a state | a peer ID | 120 s | 30 s, every 30 s |
 * | plain values | any other | 1 h | what its user asks for |
 *
 * RECORD_CLOCK_SLACK is added to each. What would live longer is refused, wherever it comes
 * from: a signature covers the expiration, so a shorter one could not be handed on. */
#ifndef PL_VALIDATE_H
#define PL_VALIDATE_H

#include "net/libp2p/peer/peer_id.h"
#include "dht_id.h"
#include "dht_share.h"
#include "rsa_key.h"
#include "schema.h"

#define VALIDATORS_GUARDS_MAX 16 /* a peer takes part in one run: five keys, and its parts' */
/* Large runs report their progress in parts (progress/parts.h). A part holds those owners whose
 * hashes begin with the same bits: as many more on each level. */
#define RECORD_PART_BITS 4
#define RECORD_PART_LEVELS 4 /* the first is RUN_progress itself: no bits, all owners */
/* s; two clocks that are each within hivemind's 3 s of a third one */
#define RECORD_CLOCK_SLACK 6.0
/* Bytes; the longest is a tag with a key of RSA_BITS_MAX. */
#define RECORD_SUBKEY_MAX 2048

/* As it is signed: everything serialised. */
struct record {
    const uint8_t *key, *subkey, *value; /* borrowed; the subkey is msgpack's nil (c0) for a regular
                                          * value */
    size_t key_n, subkey_n, n;
    double expiration;
};

struct validators {
    const struct rsa_key *key; /* our own, borrowed; NULL: nothing is signed */
    struct {
        struct dht_id key;
        const struct schema *schema;
    } guards[VALIDATORS_GUARDS_MAX];
    size_t count;
};

/* Guards PREFIX_progress, _metrics, _report, _manifest and _identity; with a key of ours also the
 * parts of the run's progress that it belongs to. PL_ELIMIT when there are too many. */
int validators_add_run(struct validators *v, const char *prefix);

/* Our subkey: msgpack of "[owner:our key]". */
int record_own_subkey(struct bytes *out, const struct rsa_key *key);

/* The key of the progress records of a part: that of `owner`, on this level. PL_ELIMIT: the prefix
 * is too long. */
int record_part_key(struct dht_id *key, const char *prefix, const struct dht_id *owner,
                    size_t level);

/* The class and owner of *from, by its form alone; they decide which peers may write the record. */
void record_origin(struct dht_origin *from, const struct record *r);
/* The peer that a declaration's subkey names. PL_ENOTFOUND: it names none. */
int record_declarer(struct peer_id *peer, const struct record *r);
/* PL_OK, or PL_EPROTO: the expiration is too late for this kind of record, or not a number. */
int record_check_life(const struct validators *v, const struct record *r, double now);
/* The cost of checking its signature: 1 for a key of RSA_BITS, 0 for a record without an owner. */
double record_check_cost(const struct record *r);
/* Sizes, signature, then schema. Linear in the record's bytes. PL_OK, or PL_EPROTO with a
 * sentence. */
int record_check(const struct validators *v, const struct record *r, struct pl_err *err);
/* Appends the value, signed if the record is ours. */
int record_sign(struct bytes *out, const struct validators *v, const struct record *r);
/* Appends the value without any signature. */
int record_strip(struct bytes *out, const uint8_t *value, size_t n);

/* The signed text: the tuple of key, subkey, value, expiration. */
int record_message(struct bytes *out, const struct record *r);

#endif
