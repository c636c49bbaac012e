/* dht_message.h - requests and responses of nodes as bytes, without tokens, which auth.h puts in
 * front. [spec hivemind-protocol 1.3] */
#ifndef PL_DHT_MESSAGE_H
#define PL_DHT_MESSAGE_H

#include "net/bytes.h"
#include "dht_routing.h"

#define DHT_STORE_ITEMS_MAX 4096 /* of one request; a newcomer gets all its records in one */
#define DHT_FIND_KEYS_MAX 256    /* of one request; hivemind asks for up to 16 */
#define DHT_NEAREST_MAX 32       /* neighbours read from one result; hivemind sends 20 */

enum dht_call { DHT_PING, DHT_STORE, DHT_FIND, DHT_CALLS };
const char *dht_call_name(enum dht_call call); /* "DHTProtocol.rpc_ping" */

/* self: the sender's id; NULL for a client, which is neither called nor added to tables. */
int dht_write_ping(struct bytes *out, const struct dht_id *self, int validate);

/* The sender of a request, as its connection proves it. */
struct dht_caller {
    struct peer_id peer;
    uint64_t subnet; /* a hash of its address's /24 or /64; 0: not known */
    int is_self;
};

struct dht_record {
    struct dht_id key;
    /* c0: a regular value; empty: `value` is a whole dictionary; else msgpack */
    const uint8_t *subkey;
    const uint8_t *value;
    size_t subkey_n, n;
    double expiration;
    int in_cache;
    const struct dht_caller *caller; /* not sent; borrowed. NULL: we pass on others' records */
};
extern const uint8_t dht_no_subkey[1]; /* c0 */
static inline int dht_is_regular(const struct dht_record *r)
{
    return r->subkey_n == 1 && r->subkey[0] == dht_no_subkey[0];
}
int dht_write_store(struct bytes *out, const struct dht_id *self, const struct dht_record *records,
                    size_t count);
int dht_write_find(struct bytes *out, const struct dht_id *self, const struct dht_id *keys,
                   size_t count);

/* Requests as the server reads them. Views live until dht_request_clear. */
struct dht_request {
    enum dht_call call;
    int has_id; /* 1: the caller is a node with this id */
    struct dht_id id;
    int validate;               /* ping */
    struct dht_record *records; /* store */
    struct dht_id *keys;        /* find */
    size_t count;
    void *message; /* private */
};
/* PL_EPROTO with a sentence for a message that no node sends: fields of different lengths, keys
 * that are not 20 bytes, too many. */
int dht_read_request(struct dht_request *r, enum dht_call call, const uint8_t *data, size_t n,
                     struct pl_err *err);
void dht_request_clear(struct dht_request *r);

enum dht_found_type { DHT_NOT_FOUND, DHT_FOUND_REGULAR, DHT_FOUND_DICTIONARY };
struct dht_found {
    enum dht_found_type type;
    const uint8_t *value;
    size_t n;
    double expiration;
    struct dht_contact *nearest; /* seen: 0 */
    size_t nearest_count;
};

int dht_write_ping_answer(struct bytes *out, const struct dht_id *self, double dht_time,
                          int available);
int dht_write_store_answer(struct bytes *out, const struct dht_id *self, const int *ok,
                           size_t count);
int dht_write_find_answer(struct bytes *out, const struct dht_id *self,
                          const struct dht_found *found, size_t count);

/* Answers as the caller reads them. */
struct dht_answer {
    enum dht_call call;
    int has_id;
    struct dht_id id;
    double dht_time; /* ping; 0: not sent */
    int available;
    const int *ok;           /* store: as many as were asked for, views of the message */
    struct dht_found *found; /* find: as many as were asked for */
    size_t count;
    void *message; /* private */
};
/* count: how many records or keys the request had. PL_EPROTO with a sentence. Neighbours with
 * invalid ids are left out. */
int dht_read_answer(struct dht_answer *a, enum dht_call call, size_t count, const uint8_t *data,
                    size_t n, struct pl_err *err);
void dht_answer_clear(struct dht_answer *a);

#endif
