/* dht_message.c - the three calls of hivemind's DHT, as protobuf [spec hivemind-protocol 1.3]:
 *
 *   rpc_ping   {peer, validate}                      -> {peer, dht_time, available}
 *   rpc_store  {peer, keys, subkeys, values,         -> {peer, store_ok}
 *               expiration_time, in_cache}
 *   rpc_find   {peer, keys}                          -> {peer, results: {type, value,
 *                                                       expiration_time, nearest ids and peers}}
 *
 * Each request may be about many keys: the i-th entries of all its arrays belong together, and
 * so does the i-th entry of the answer. `peer` has the sender's node id, so that each message
 * also updates the receiver's routing table; a client leaves the id empty. Reading gives views
 * of the received bytes, after checks of the lengths. */
#include "dht_message.h"
#include "net/message.h"
#include "net/hivemind/messages/dht.pb-c.h"

#include <stdlib.h>
#include <string.h>

const uint8_t dht_no_subkey[1] = { 0xc0 };

/* hivemind names a call by the Python class and method that serve it. */
const char *dht_call_name(enum dht_call call)
{
    static const char *const names[DHT_CALLS] = { "DHTProtocol.rpc_ping", "DHTProtocol.rpc_store",
                                                  "DHTProtocol.rpc_find" };
    return names[call];
}

/* Writing fills protobuf-c's structs with views of the caller's bytes and packs them at once;
 * nothing is copied in between, and each function appends to `out` or leaves its failure in
 * out->failed. */

/* --- writing ---------------------------------------------------------------------------------- */

static ProtobufCBinaryData view_id(const struct dht_id *id)
{
    return message_bytes(id->bytes, DHT_ID_BYTES);
}

/* The field itself is always present (hivemind reads it); for a client it is empty. */
static Hivemind__NodeInfo node_info(const struct dht_id *self)
{
    Hivemind__NodeInfo m = HIVEMIND__NODE_INFO__INIT;
    if (self) m.node_id = view_id(self);
    return m;
}

/* `validate` asks the other side to open a connection to us before it answers: how a node learns
 * whether others can call it. */
int dht_write_ping(struct bytes *out, const struct dht_id *self, int validate)
{
    Hivemind__PingRequest m = HIVEMIND__PING_REQUEST__INIT;
    Hivemind__NodeInfo info = node_info(self);
    m.peer = &info;
    m.validate = validate;
    return message_pack(out, &m.base);
}

/* The records become columns, because the protocol has one repeated field for each property: the
 * i-th entries of all five make record i. An empty subkey means a whole dictionary, so "no subkey"
 * is c0, msgpack's nil. */
int dht_write_store(struct bytes *out, const struct dht_id *self, const struct dht_record *records,
                    size_t count)
{
    Hivemind__StoreRequest m = HIVEMIND__STORE_REQUEST__INIT;
    Hivemind__NodeInfo info = node_info(self);
    /* Keys, subkeys and values behind each other in one block: n views each. */
    ProtobufCBinaryData *views = calloc(3 * count + 1, sizeof *views);
    double *expirations = calloc(count + 1, sizeof *expirations);
    protobuf_c_boolean *in_cache = calloc(count + 1, sizeof *in_cache);
    if (views && expirations && in_cache) {
        m.keys = views;
        m.subkeys = views + count;
        m.values = views + 2 * count;
        m.expiration_time = expirations;
        m.in_cache = in_cache;
        /* in_cache is sent even where it is false: packed, the i-th flag must be the i-th
         * record's. */
        m.n_keys = m.n_subkeys = m.n_values = m.n_expiration_time = m.n_in_cache = count;
        m.peer = &info;
        for (size_t i = 0; i < count; i++) {
            const struct dht_record *r = &records[i];
            m.keys[i] = view_id(&r->key);
            m.subkeys[i] = message_bytes(r->subkey, r->subkey_n);
            m.values[i] = message_bytes(r->value, r->n);
            expirations[i] = r->expiration;
            in_cache[i] = r->in_cache != 0;
        }
        message_pack(out, &m.base);
    } else {
        out->failed = PL_ENOMEM;
    }
    free(views);
    free(expirations);
    free(in_cache);
    return out->failed;
}

/* The keys of one search or of several that ask the same node: one round trip and one signature (in
 * a moderated swarm) serve them all. hivemind puts up to 16 keys into a call. */
int dht_write_find(struct bytes *out, const struct dht_id *self, const struct dht_id *keys,
                   size_t count)
{
    Hivemind__FindRequest m = HIVEMIND__FIND_REQUEST__INIT;
    Hivemind__NodeInfo info = node_info(self); /* lets the other node learn of us */
    if (!(m.keys = calloc(count + 1, sizeof *m.keys))) return out->failed = PL_ENOMEM;
    for (size_t i = 0; i < count; i++) m.keys[i] = view_id(&keys[i]);
    m.n_keys = count;
    m.peer = &info;
    message_pack(out, &m.base);
    free(m.keys);
    return out->failed;
}

/* dht_time is our clock at this moment, Unix time in seconds. 0 would mean "not sent": proto3 omits
 * zeros. */
int dht_write_ping_answer(struct bytes *out, const struct dht_id *self, double dht_time,
                          int available)
{
    Hivemind__PingResponse m = HIVEMIND__PING_RESPONSE__INIT;
    Hivemind__NodeInfo info = node_info(self);
    m.peer = &info;
    m.dht_time = dht_time;
    m.available = available;
    return message_pack(out, &m.base);
}

/* false: refused, because the record has expired, is not newer than ours, or is invalid. The caller
 * counts that as an answer, not as a failure: we did our work as a replica. */
int dht_write_store_answer(struct bytes *out, const struct dht_id *self, const int *ok,
                           size_t count)
{
    Hivemind__StoreResponse m = HIVEMIND__STORE_RESPONSE__INIT;
    Hivemind__NodeInfo info = node_info(self);
    m.store_ok = (protobuf_c_boolean *)(uintptr_t)ok; /* only read */
    m.n_store_ok = count;
    m.peer = &info;
    return message_pack(out, &m.base);
}

/* The answer to rpc_find: as many results as keys, in their order. Each has the record, if there is
 * one, and in any case the nearest nodes that we know, which is how a search gets nearer to its
 * key. */
int dht_write_find_answer(struct bytes *out, const struct dht_id *self,
                          const struct dht_found *found, size_t count)
{
    Hivemind__FindResponse m = HIVEMIND__FIND_RESPONSE__INIT;
    Hivemind__NodeInfo info = node_info(self);
    size_t views_n = 0, used = 0; /* used: of the views */
    Hivemind__FindResult *results = calloc(count + 1, sizeof *results);
    ProtobufCBinaryData *views;
    /* All ids and peer ids share one block: 2 for each neighbour. */
    for (size_t i = 0; i < count; i++) views_n += 2 * found[i].nearest_count;
    views = calloc(views_n + 1, sizeof *views);
    /* protobuf-c needs pointers to repeated messages. */
    m.results = calloc(count + 1, sizeof *m.results);
    m.n_results = count;
    m.peer = &info;
    if (!results || !views || !m.results) out->failed = PL_ENOMEM;
    for (size_t i = 0; !out->failed && i < count; i++) {
        const struct dht_found *f = &found[i];
        Hivemind__FindResult *r = &results[i];
        /* A dictionary's expiration is that of the whole key: the latest of its items. */
        hivemind__find_result__init(r);
        r->type = f->type;
        r->value = message_bytes(f->value, f->n);
        r->expiration_time = f->expiration;
        /* Two aligned lists, nearest first: node ids for the distance, peer IDs for the way.
         * Addresses do not travel here; libp2p finds them by peer ID [spec hivemind-protocol
         * 1.1]. */
        r->n_nearest_node_ids = r->n_nearest_peer_ids = f->nearest_count;
        r->nearest_node_ids = views + used;
        r->nearest_peer_ids = views + used + f->nearest_count;
        used += 2 * f->nearest_count;
        for (size_t k = 0; k < f->nearest_count; k++) {
            const struct dht_contact *c = &f->nearest[k];
            r->nearest_node_ids[k] = view_id(&c->id);
            r->nearest_peer_ids[k] = message_bytes(c->peer.bytes, c->peer.length);
        }
        m.results[i] = r;
    }
    if (!out->failed) message_pack(out, &m.base);
    free(results);
    free(views);
    free(m.results);
    return out->failed;
}

/* Reading checks each length before it is used as one. An error here refuses the whole message:
 * honest nodes never send such a message, so nothing is lost. Entries that may be honest but are
 * useless (an expired record, an unknown type) are dropped one by one further up. */

/* --- reading requests ------------------------------------------------------------------------- */

/* The sender's id: absent (a client) or 20 bytes; anything else is PL_EPROTO. It is a claim: the
 * table accepts it only together with the connection's peer ID (dht_table.c). */
static int read_node(int *has_id, struct dht_id *id, const Hivemind__NodeInfo *info,
                     struct pl_err *err)
{
    *has_id = 0;
    if (!info || !info->node_id.len) return PL_OK;
    if (dht_id_parse(id, info->node_id.data, info->node_id.len))
        return pl_fail(err, PL_EPROTO, "DHT message: a node id of %zu bytes", info->node_id.len);
    *has_id = 1;
    return PL_OK;
}

/* The columns must have equal lengths: one index is used for all of them. */
static int read_store(struct dht_request *r, struct pl_err *err)
{
    const Hivemind__StoreRequest *m = r->message;
    size_t n = m->n_keys;
    int rc = read_node(&r->has_id, &r->id, m->peer, err);
    if (rc) return rc;
    if (m->n_subkeys != n || m->n_values != n || m->n_expiration_time != n || m->n_in_cache != n)
        return pl_fail(err, PL_EPROTO,
                       "store: %zu keys, but %zu subkeys, %zu values, %zu expirations, %zu flags",
                       n, m->n_subkeys, m->n_values, m->n_expiration_time, m->n_in_cache);
    /* The message is parsed already, in linear time and with bounded memory (message.c); this
     * bounds the work that its records cause: look-ups, signature checks, evictions. */
    if (n > DHT_STORE_ITEMS_MAX)
        return pl_fail(err, PL_EPROTO, "store: %zu records, %d are allowed", n,
                       DHT_STORE_ITEMS_MAX);
    if (!(r->records = calloc(n + 1, sizeof *r->records)))
        return pl_fail(err, PL_ENOMEM, "no memory");
    for (size_t i = 0; i < n; i++) {
        struct dht_record *to = &r->records[i];
        /* One wrong key voids the request: no node sends it, so no honest record is lost by
         * that. */
        if (dht_id_parse(&to->key, m->keys[i].data, m->keys[i].len))
            return pl_fail(err, PL_EPROTO, "store: a key of %zu bytes", m->keys[i].len);
        /* Views: a record is copied once, when it is stored. */
        to->subkey = m->subkeys[i].data;
        to->subkey_n = m->subkeys[i].len;
        to->value = m->values[i].data;
        to->n = m->values[i].len;
        to->expiration = m->expiration_time[i];
        to->in_cache = m->in_cache[i] != 0;
    }
    r->count = n;
    return PL_OK;
}

/* Each key costs us a search of tables and an answer with 20 neighbours, so their number is
 * limited. */
static int read_find(struct dht_request *r, struct pl_err *err)
{
    const Hivemind__FindRequest *m = r->message;
    int rc = read_node(&r->has_id, &r->id, m->peer, err);
    if (rc) return rc;
    if (m->n_keys > DHT_FIND_KEYS_MAX)
        return pl_fail(err, PL_EPROTO, "find: %zu keys, %d are allowed", m->n_keys,
                       DHT_FIND_KEYS_MAX);
    if (!(r->keys = calloc(m->n_keys + 1, sizeof *r->keys)))
        return pl_fail(err, PL_ENOMEM, "no memory");
    for (size_t i = 0; i < m->n_keys; i++)
        if (dht_id_parse(&r->keys[i], m->keys[i].data, m->keys[i].len))
            return pl_fail(err, PL_EPROTO, "find: a key of %zu bytes", m->keys[i].len);
    r->count = m->n_keys;
    return PL_OK;
}

/* A ping without an id cannot be validated: there would be no node to call back. */
static int read_ping(struct dht_request *r, struct pl_err *err)
{
    const Hivemind__PingRequest *m = r->message;
    r->validate = m->validate;
    return read_node(&r->has_id, &r->id, m->peer, err);
}

/* The stream's protocol name says which of the three calls it is; the bytes alone do not, since
 * protobuf has no type in its messages. */
int dht_read_request(struct dht_request *r, enum dht_call call, const uint8_t *data, size_t n,
                     struct pl_err *err)
{
    static const ProtobufCMessageDescriptor *const types[DHT_CALLS] = {
        &hivemind__ping_request__descriptor, &hivemind__store_request__descriptor,
        &hivemind__find_request__descriptor
    };
    int rc;
    memset(r, 0, sizeof *r);
    r->call = call;
    if (!(r->message = message_unpack(types[call], data, n, err))) return PL_EPROTO;
    rc = call == DHT_PING    ? read_ping(r, err)
         : call == DHT_STORE ? read_store(r, err)
                             : read_find(r, err);
    if (rc) dht_request_clear(r);
    return rc;
}

/* Records and keys are views into the message, which is freed last. */
void dht_request_clear(struct dht_request *r)
{
    free(r->records);
    free(r->keys);
    message_free(r->message);
    memset(r, 0, sizeof *r);
}

/* --- reading answers -------------------------------------------------------------------------- */

/* Unknown types count as "not found", and neighbours with malformed ids are skipped: one bad
 * entry must not void an answer. */
static int read_result(struct dht_found *f, const Hivemind__FindResult *m)
{
    size_t n = m->n_nearest_node_ids;
    /* A proto3 enum is open: a later version's number must not index anything. */
    f->type = m->type == DHT_FOUND_REGULAR || m->type == DHT_FOUND_DICTIONARY
                  ? (enum dht_found_type)m->type
                  : DHT_NOT_FOUND;
    f->value = m->value.data;
    f->n = m->value.len;
    f->expiration = m->expiration_time;
    /* Lists of different lengths: the pairs that there are. */
    if (m->n_nearest_peer_ids < n) n = m->n_nearest_peer_ids;
    if (n > DHT_NEAREST_MAX) n = DHT_NEAREST_MAX;
    if (!(f->nearest = calloc(n + 1, sizeof *f->nearest))) return PL_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        struct dht_contact *c = &f->nearest[f->nearest_count];
        if (!dht_id_parse(&c->id, m->nearest_node_ids[i].data, m->nearest_node_ids[i].len) &&
            !peer_id_parse(&c->peer, m->nearest_peer_ids[i].data, m->nearest_peer_ids[i].len))
            f->nearest_count++;
    }
    return PL_OK;
}

/* An answer must have one result for each key that we asked for: dht_calls.c gives result i to the
 * i-th of the waiting requests without another check. */
static int read_find_answer(struct dht_answer *a, size_t count, struct pl_err *err)
{
    const Hivemind__FindResponse *m = a->message;
    if (m->n_results != count)
        return pl_fail(err, PL_EPROTO, "find: %zu results for %zu keys", m->n_results, count);
    if (!(a->found = calloc(count + 1, sizeof *a->found)))
        return pl_fail(err, PL_ENOMEM, "no memory");
    a->count = count;
    for (size_t i = 0; i < count; i++)
        if (read_result(&a->found[i], m->results[i])) return pl_fail(err, PL_ENOMEM, "no memory");
    return read_node(&a->has_id, &a->id, m->peer, err);
}

/* true or false for each record, in the order of the request. */
static int read_store_answer(struct dht_answer *a, size_t count, struct pl_err *err)
{
    const Hivemind__StoreResponse *m = a->message;
    if (m->n_store_ok != count)
        return pl_fail(err, PL_EPROTO, "store: %zu answers for %zu records", m->n_store_ok, count);
    a->ok = m->store_ok;
    a->count = count;
    return read_node(&a->has_id, &a->id, m->peer, err);
}

/* dht_time is the sender's clock (0: not sent); `available` is meaningful after a ping with
 * `validate`. */
static int read_ping_answer(struct dht_answer *a, struct pl_err *err)
{
    const Hivemind__PingResponse *m = a->message;
    a->dht_time = m->dht_time;
    a->available = m->available;
    return read_node(&a->has_id, &a->id, m->peer, err);
}

/* An answer that does not fit the request counts as a failed call: the node is removed from the
 * table and left alone for a while (dht_calls.c). */
int dht_read_answer(struct dht_answer *a, enum dht_call call, size_t count, const uint8_t *data,
                    size_t n, struct pl_err *err)
{
    static const ProtobufCMessageDescriptor *const types[DHT_CALLS] = {
        &hivemind__ping_response__descriptor, &hivemind__store_response__descriptor,
        &hivemind__find_response__descriptor
    };
    int rc;
    memset(a, 0, sizeof *a);
    a->call = call;
    if (!(a->message = message_unpack(types[call], data, n, err))) return PL_EPROTO;
    rc = call == DHT_PING    ? read_ping_answer(a, err)
         : call == DHT_STORE ? read_store_answer(a, count, err)
                             : read_find_answer(a, count, err);
    if (rc) dht_answer_clear(a);
    return rc;
}

/* `found` may be half filled when memory ran out: calloc made the rest NULL. */
void dht_answer_clear(struct dht_answer *a)
{
    for (size_t i = 0; a->found && i < a->count; i++) free(a->found[i].nearest);
    free(a->found);
    message_free(a->message);
    memset(a, 0, sizeof *a);
}
