/* dht_serve.h - a node's records and its answers, as functions of these, a request and the time. No
 * sockets, no clock. [spec hivemind-protocol 1.3, 1.4] */
#ifndef PL_DHT_SERVE_H
#define PL_DHT_SERVE_H

#include "dht_checks.h"
#include "dht_message.h"
#include "net/hivemind/records/dht_store.h"
#include "net/hivemind/records/validate.h"

#define DHT_REPLICAS 5
#define DHT_ANSWER_MAX (3u << 20) /* bytes of values in one answer, of RPC_UNARY_MAX */

/* Any peer may write plain values, and every search of a key returns all that the nearest nodes
 * hold under it, even if the searcher wants signed records. So the plain values that a node sends
 * for one key have an allowance in bytes: eight of the longest at once, then 64 KiB/s. Short ones
 * are free. */
#define DHT_PLAIN_ANSWER_FREE 4096
#define DHT_PLAIN_ANSWERS_BURST (8 * DHT_VALUE_MAX)
#define DHT_PLAIN_ANSWERS_A_SECOND (64 << 10)

/* Handed to a newcomer at once: records of a run of 1,000 peers are in five dictionaries. The other
 * nodes near a key hand on the rest. */
#define DHT_HAND_OVER_RECORDS 1024
#define DHT_HAND_OVER_BYTES (8u << 20)

struct dht_state {
    struct dht_id self;
    int client_mode; /* 1: other nodes do not call us */
    size_t replicas;
    struct dht_routing routing;
    struct dht_store storage, cache;
    struct dht_quota quota; /* of peers and subnets in both; its limits are 0 until they are set */
    const struct validators *validators; /* borrowed */
    struct dht_checks checks;            /* of records that others store or report */
    struct rate_limit plain_answers;     /* bytes, by key */
};
int dht_state_init(struct dht_state *s, const struct dht_id *self, int client_mode,
                   const struct validators *validators);
void dht_state_clear(struct dht_state *s);
/* Ourselves in a message: NULL for a client. */
const struct dht_id *dht_state_self(const struct dht_state *s);

/* Checks and stores a record as rpc_store would, at the cost of its caller. The good entries of a
 * dictionary are kept; a declaration is kept only if the peer that it names is the caller. PL_OK:
 * all of it was accepted. PL_EAGAIN: refused, at least in part. PL_ENOMEM. */
int dht_state_store(struct dht_state *s, double now, const struct dht_record *r);
/* The record of storage or cache: the one of the higher class, or of equal classes the newer; NULL:
 * neither has it. */
const struct dht_entry *dht_state_get(struct dht_state *s, double now, const struct dht_id *key);

/* Appends the answer to a request (its plain form). *r holds the parsed request for further use:
 * has_id means that the sender is a node to be added to the table, once the answer is sent. A ping
 * with `validate` and an id is answered with dht_serve_validated after calling it back. PL_EPROTO:
 * err's sentence is the answer. Clear r with dht_request_clear in any case. */
int dht_serve(struct dht_state *s, enum dht_call call, double now, const struct dht_caller *caller,
              const uint8_t *data, size_t n, struct bytes *answer, struct dht_request *r,
              struct pl_err *err);
int dht_serve_validated(const struct dht_state *s, double now, int available, struct bytes *answer);

/* The records of our main storage that a newly met node should get, before it is in the table:
 * those that we are nearest to, and to which it is nearer than the last of the replicas. Records
 * are views into the storage; dictionaries are packed into `packed`, whose bytes the records point
 * to: keep both until they are sent. *records is freed with free(). */
int dht_state_hand_over(struct dht_state *s, double now, const struct dht_id *newcomer,
                        struct dht_record **records, size_t *count, struct bytes *packed);

#endif
