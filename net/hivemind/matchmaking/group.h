/* group.h - peers that average together: their group key, each peer's gather message, and the list
 * of members. [spec hivemind-protocol 4.1 to 4.5] */
#ifndef PL_GROUP_H
#define PL_GROUP_H

#include "ref/balance.h"
#include "ref/wire.h"
#include "net/bytes.h"
#include "net/libp2p/peer/peer_id.h"
#include "net/hivemind/messages/tensor_message.h"
#include "net/hivemind/records/dht_id.h"

#define GROUP_PEERS_MAX 1024 /* a join message of each fits into memory; the run had 50 at most */
#define GROUP_KEY_MAX 256    /* characters of a group key with its zero */
#define GROUP_NAME_MAX 256   /* of an RPC's name, as rpc.h takes them */
#define GATHER_MAX 4096      /* bytes of a gather message; trainers need 12 */
/* A member reduces at most this many equal shares, whatever bandwidth it states: a quarter of all
 * values in a group of 16. A fast peer among slow ones reduces more than its equal share, but at
 * four of them its uplink rarely sets the time. */
#define GROUP_SHARES_MAX 4.0
#define GROUP_BITS_MAX 64 /* of a group key; no known run has used more than 8 */
#define SCHEMA_HASH_BYTES 20

/* "PREFIX.0bBITS". PL_EUSE with a sentence: the prefix is empty or holds a dot, or the bits are not
 * zeros and ones. */
int group_key(char key[GROUP_KEY_MAX], const char *prefix, const char *bits, struct pl_err *err);
/* 1 for a text of that form. */
int group_key_is_valid(const char *key);

/* The name of an RPC that an averager serves: "PREFIX::CLASS.rpc_join_group" and so on. */
enum averager_rpc {
    AVERAGER_JOIN,
    AVERAGER_AGGREGATE,
    AVERAGER_DOWNLOAD,
    AVERAGER_RPCS,                   /* those that hivemind's peers serve */
    AVERAGER_VERIFY = AVERAGER_RPCS, /* between potluck's peers alone */
    AVERAGER_SAMPLES,
    AVERAGER_GATHER,
    AVERAGER_ALL_RPCS
};
int group_rpc_name(char name[GROUP_NAME_MAX], const char *prefix, const char *class_name,
                   enum averager_rpc rpc, struct pl_err *err);

/* The schema hash: SHA-1 over a text description of each tensor, in order. Averagers with different
 * hashes do not average with each other. */
int group_schema_hash(uint8_t hash[SCHEMA_HASH_BYTES], const struct schema_tensor *tensors,
                      size_t count);
/* Appends the text that is hashed. */
int group_schema_text(struct bytes *out, const struct schema_tensor *tensors, size_t count);

/* The gather message: a peer's statement about itself to its groupmates. */
enum group_mode { GROUP_FULL, GROUP_CLIENT, GROUP_AUXILIARY };
struct gather {
    double bandwidth; /* any unit, the same for all; PL_BANDWIDTH_UNKNOWN; 0 reduces nothing */
    enum group_mode mode;
    const uint8_t *user; /* msgpack of the averager's user; borrowed */
    size_t user_n;
};
int gather_write(struct bytes *out, const struct gather *g);
/* 0: it only sends. Clients can't be called, so no sender could bring them its part. */
int gather_reduces(const struct gather *g);
/* PL_EFORMAT with a sentence. */
int gather_read(struct gather *g, const uint8_t *data, size_t n, struct pl_err *err);

/* A group that has been found, in the order that all of its peers know. */
struct group_member {
    struct peer_id peer;
    uint8_t *gathered; /* its gather message, read without error */
    size_t gathered_n;
    struct gather gather; /* points into it */
};
struct group {
    uint8_t id[DHT_ID_BYTES];
    struct group_member *members;
    size_t count, self;
};
/* Appends a copy; checks its gather message. */
int group_add(struct group *g, const struct peer_id *peer, const uint8_t *gather, size_t n,
              struct pl_err *err);
/* The same for many members in a row: duplicates are found once at the end, by sorting, not by a
 * search for each. */
int group_append(struct group *g, const struct peer_id *peer, const uint8_t *gather, size_t n,
                 struct pl_err *err);
/* PL_EPROTO: a peer is in it twice. */
int group_check_peers(const struct group *g);
/* Makes its gather message state this bandwidth. On PL_ENOMEM the member is unchanged. */
int group_set_bandwidth(struct group_member *m, double bandwidth);
/* In a group that we lead, lowers the highest stated bandwidths until no member reduces more than
 * GROUP_SHARES_MAX equal shares. PL_OK or PL_ENOMEM. */
int group_limit_bandwidths(struct group *g);
void group_clear(struct group *g);
/* The member's number, or -1. */
int group_find(const struct group *g, const struct peer_id *peer);
/* How many elements of `total` each member reduces. All peers compute the same result. */
int group_shares(size_t *share, const struct group *g, size_t total, struct pl_err *err);

/* Group bits for the next round of the member at `place`: `buckets` is the target size, or 0 for
 * the next power of two. new_bits holds GROUP_BITS_MAX + 1 characters. */
int group_next_bits(char *new_bits, const char *bits, const uint8_t id[DHT_ID_BYTES], size_t size,
                    size_t place, size_t buckets);

#endif
