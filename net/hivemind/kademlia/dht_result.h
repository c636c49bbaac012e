/* dht_result.h - the newest of the records that several nodes report under one key. [spec
 * hivemind-protocol 1.6] */
#ifndef PL_DHT_RESULT_H
#define PL_DHT_RESULT_H

#include "dht_checks.h"
#include "net/hivemind/records/dht_store.h"
#include "net/hivemind/records/validate.h"

/* Nodes' reports about a peer that looks for a group: see averager_join.c. */
struct dht_claim {
    struct peer_id peer;
    double expiration;
    int active;  /* the value: true or false */
    int own;     /* 1: reported by the peer itself, or stored here by it */
    int reports; /* nodes that reported it */
};
/* Claims in one result: 20 nodes that each report 1,000 peers. */
#define DHT_CLAIMS_MAX 20480
/* Claims of other nodes about one peer. Honest nodes differ while a new declaration spreads; a
 * lying node must not hide their reports. */
#define DHT_CLAIMS_OF_PEER 4

struct dht_result {
    enum dht_found_type type;
    double expiration;  /* -INFINITY: nothing yet */
    struct bytes value; /* a regular value */
    struct dht_dictionary dictionary;
    struct dht_claim *claims; /* of a group's key; after dht_result_finish only active ones */
    size_t claim_count, claim_capacity;
};
void dht_result_init(struct dht_result *r);
void dht_result_clear(struct dht_result *r);

/* A node that reports a record, and when. peer NULL: our own storage, whose records were checked
 * before. */
struct dht_reporter {
    const struct peer_id *peer;
    double now;                /* DHT time */
    uint64_t subnet;           /* as of dht_caller */
    struct dht_checks *checks; /* the peer's allowance; NULL: none is needed */
};
/* Takes a node's report (or our own storage's). Records that are not newer are skipped; others
 * are checked one by one, and bad ones left out. Dictionaries are merged by the storage rule, a
 * regular value and a dictionary replace each other by expiration; a lesser kind never replaces a
 * later one (dht_share.h). A record that its reporter has no allowance to have checked is passed
 * over. PL_OK: something newer came. PL_EAGAIN: nothing newer. PL_ENOMEM. */
int dht_result_merge(struct dht_result *r, const struct validators *v, const struct dht_id *key,
                     const struct dht_reporter *from, enum dht_found_type type,
                     const uint8_t *value, size_t n, double expiration);

/* For the caller of a get: drops expired records and the signatures. It keeps the claims of peers
 * that look for a group. A third party's "false" is only a hint: it removes nothing. */
int dht_result_finish(struct dht_result *r, double now);
int dht_result_copy(struct dht_result *to, const struct dht_result *from);

/* As a record to hand on (still signed). `packed` takes a dictionary's bytes. */
int dht_result_record(struct dht_record *to, struct bytes *packed, const struct dht_result *r,
                      const struct dht_id *key);

#endif
