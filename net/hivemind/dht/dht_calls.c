/* dht_calls.c - the three calls of hivemind's DHT as requests [spec hivemind-protocol 1.3]. A
 * search asks a node for one key, a hand-over stores hundreds of records at one node: all that one
 * iteration of the loop wants from one peer is sent as one message, and its answer is distributed
 * to the callers.
 *
 *   dht_ask_*  -->  collected by (peer, call)  --dht_calls_send-->  sent
 *                      answer: each part's callback with its own result
 *                      failure or silence: the node is removed and blacklisted */
#include "dht_calls.h"
#include "net/libp2p/rpc/rpc.h"
#include "net/list.h"

#include <stdlib.h>
#include <string.h>

#define FIND_KEYS 16           /* of one call, as hivemind (chunk_size) */
#define STORE_RECORDS 256      /* of one call: a progress dictionary of 100 peers and more */
#define STORE_BYTES (1u << 20) /* of one call, unless one record is longer: 1/4 of a message */

/* One question or record of one user of this file; a call carries one or more. */
struct part {
    struct dht_record record; /* store: copies behind the struct; find: its key */
    dht_replied *replied;
    void *context;
    struct part *next;
};

struct dht_call_out {
    struct dht_calls *calls;
    enum dht_call call;
    struct dht_contact who;
    int knows_id, validate;
    struct part *first, **last; /* in order: the answer's results are matched by place */
    size_t count, bytes;
    struct rpc_request *request; /* NULL: not sent yet */
    uint8_t nonce[AUTH_NONCE];   /* the response has to sign it: a replayed one is refused */
    double sent;                 /* loop time */
    struct dht_call_out *next, *prev;
};

/* --- putting calls together ------------------------------------------------------------------- */

/* May this message take one more part? It is for the same node under the same id, has not been
 * sent, and stays within hivemind's number of keys or a quarter of what a message may hold. A ping
 * is always alone: its answer is about the peer itself. */
static int can_join(const struct dht_call_out *o, enum dht_call call, const struct dht_contact *who,
                    size_t bytes)
{
    if (o->request || o->call != call || call == DHT_PING || !dht_id_equal(&o->who.id, &who->id) ||
        !peer_id_equal(&o->who.peer, &who->peer))
        return 0;
    return call == DHT_FIND ? o->count < FIND_KEYS
                            : o->count < STORE_RECORDS && o->bytes + bytes <= STORE_BYTES;
}

/* Linear in the calls under way, of which a node has some dozens. */
static struct dht_call_out *find_or_add_call(struct dht_calls *calls, enum dht_call call,
                                             const struct dht_contact *who, size_t bytes)
{
    struct dht_call_out *o;
    for (o = calls->list; o; o = o->next)
        if (can_join(o, call, who, bytes)) return o;
    if (!(o = calloc(1, sizeof *o))) return NULL;
    o->calls = calls;
    o->call = call;
    o->who = *who;
    o->last = &o->first;
    list_add(&calls->list, o);
    return o;
}

static void free_parts(struct part *p)
{
    while (p) {
        struct part *next = p->next;
        free(p);
        p = next;
    }
}

/* Records are copied behind the part: the caller's may change before the message is sent. */
static struct part *new_part(size_t bytes, dht_replied *replied, void *context)
{
    struct part *p = calloc(1, sizeof *p + bytes);
    if (p) {
        p->replied = replied;
        p->context = context;
    }
    return p;
}

/* Puts a part into a message that still waits, or into a new one. */
static int ask(struct dht_calls *calls, enum dht_call call, const struct dht_contact *who,
               int knows_id, int validate, size_t bytes, struct part *p)
{
    struct dht_call_out *o = p ? find_or_add_call(calls, call, who, bytes) : NULL;
    if (!o) {
        free(p);
        return PL_ENOMEM;
    }
    o->knows_id = knows_id;
    o->validate = validate;
    o->bytes += bytes;
    /* The message is sent later in this iteration of the loop, so other parts may join it. */
    *o->last = p;
    o->last = &p->next;
    o->count++;
    dht_core_wake(calls->core);
    return PL_OK;
}

/* rpc_find: the record under a key, and the nodes nearest to it that the other one knows. */
int dht_ask_find(struct dht_calls *calls, const struct dht_contact *who, const struct dht_id *key,
                 dht_replied *replied, void *context)
{
    struct part *p = new_part(0, replied, context);
    if (p) p->record.key = *key;
    return ask(calls, DHT_FIND, who, 1, 0, 0, p);
}

/* rpc_store. Subkey and value go into one block behind the part; the bound of a message counts what
 * protobuf adds to each record, too. */
int dht_ask_store(struct dht_calls *calls, const struct dht_contact *who,
                  const struct dht_record *r, dht_replied *replied, void *context)
{
    struct part *p = new_part(r->subkey_n + r->n, replied, context);
    if (p) {
        uint8_t *copy = (uint8_t *)(p + 1);
        p->record = *r;
        p->record.subkey = copy;
        p->record.value = copy + r->subkey_n;
        if (r->subkey_n) memcpy(copy, r->subkey, r->subkey_n);
        if (r->n) memcpy(copy + r->subkey_n, r->value, r->n);
    }
    return ask(calls, DHT_STORE, who, 1, 0, r->subkey_n + r->n + DHT_RECORD_COST, p);
}

/* A ping is addressed to a peer whose node id may be unknown; the answer has it. */
int dht_ask_ping(struct dht_calls *calls, const struct peer_id *peer, int validate,
                 dht_replied *replied, void *context)
{
    struct dht_contact who = { .peer = *peer };
    return ask(calls, DHT_PING, &who, 0, validate, 0, new_part(0, replied, context));
}

/* --- answers ---------------------------------------------------------------------------------- */

/* The i-th result belongs to the i-th part, as the protocol demands of every answer. */
static void report(struct dht_call_out *o, int status, const char *error,
                   const struct dht_answer *a, double seconds)
{
    size_t i = 0;
    for (struct part *p = o->first; p; p = p->next, i++) {
        struct dht_reply r = { .status = status, .error = error, .seconds = seconds };
        if (a && o->call == DHT_FIND) r.found = &a->found[i];
        if (a && o->call == DHT_STORE) r.stored = a->ok[i];
        if (a && o->call == DHT_PING) r.pong = a;
        if (p->replied) p->replied(p->context, &o->who, &r);
    }
    free_parts(o->first);
    free(o);
}

/* Kademlia drops a contact that does not respond [Kademlia 2.2]; its bucket's latest replacement
 * takes its place. Other nodes still report it, so it is also blacklisted for a while. A node whose
 * answers are invalid is treated in the same way: it is as useless as a dead one. */
static void fail(struct dht_call_out *o, int status, const char *error)
{
    struct dht_core *n = o->calls->core;
    n->calls_failed++;
    /* A ping to a peer whose id we do not know says nothing about an entry of the table. */
    if (o->knows_id) dht_routing_remove(&n->state.routing, &o->who.id);
    dht_blacklist_failed(&n->blacklist, &o->who.peer, loop_now(n->loop));
    report(o, status, error, NULL, loop_now(n->loop) - o->sent);
}

/* A report is a claim: that a node exists costs its reporter nothing. Blacklisted nodes and
 * ourselves are dropped from the neighbours in an answer: a search would only wait for them. */
static void filter(const struct dht_core *n, struct dht_found *f)
{
    size_t kept = 0;
    for (size_t i = 0; i < f->nearest_count; i++)
        if (!dht_core_avoids(n, &f->nearest[i].peer) &&
            !peer_id_equal(&f->nearest[i].peer, host_id(n->host)))
            f->nearest[kept++] = f->nearest[i];
    f->nearest_count = kept;
}

static void on_reply(void *context, const struct rpc_result *r)
{
    struct dht_call_out *o = context;
    struct dht_core *n = o->calls->core;
    struct dht_answer a;
    struct pl_err err = { "no memory" };
    const uint8_t *data = r->data;
    size_t length = r->n;
    int rc = r->status;
    list_remove(&o->calls->list, o); /* first: the callbacks below may ask again at once */
    if (rc) {
        fail(o, rc, r->error);
        return;
    }
    /* In a moderated swarm field 1 has token and signature; behind it comes the plain answer. */
    if (n->auth)
        rc = auth_check_response(&data, &length, n->auth, o->nonce, dht_core_time(n), data, length,
                                 &err);
    if (!rc)
        rc = dht_read_answer(&a, o->call, o->call == DHT_PING ? 0 : o->count, data, length, &err);
    if (rc) {
        fail(o, rc == PL_ENOMEM ? rc : PL_EPROTO, err.text);
        return;
    }
    /* From here on the answer counts: as a proof of membership, as a sample of the round-trip time,
     * and as a sign of life for the routing table. */
    if (n->auth) dht_members_add(&n->members, &o->who.peer, n->auth->until);
    dht_core_answered(n, &o->who.peer, loop_now(n->loop) - o->sent);
    if (a.has_id) o->calls->seen(o->calls->context, &a.id, &o->who.peer);
    for (size_t i = 0; o->call == DHT_FIND && i < a.count; i++) filter(n, &a.found[i]);
    report(o, PL_OK, NULL, &a, loop_now(n->loop) - o->sent);
    dht_answer_clear(&a);
}

/* --- sending ---------------------------------------------------------------------------------- */

/* The plain message of the call. All parts are in it, in their order. */
static int write_request(struct bytes *out, const struct dht_call_out *o)
{
    /* A client leaves its id out. A ping that asks whether others can open connections to us has
     * to name it, though we count as a client until that is known. */
    const struct dht_core *n = o->calls->core;
    const struct dht_id *self = o->validate && !n->wants_client_mode ? &n->state.self
                                                                     : dht_state_self(&n->state);
    struct dht_record *records;
    struct dht_id keys[FIND_KEYS];
    size_t i = 0;
    if (o->call == DHT_PING) return dht_write_ping(out, self, o->validate);
    if (o->call == DHT_FIND) {
        for (const struct part *p = o->first; p; p = p->next) keys[i++] = p->record.key;
        return dht_write_find(out, self, keys, i);
    }
    if (!(records = malloc((o->count + 1) * sizeof *records))) return PL_ENOMEM;
    for (const struct part *p = o->first; p; p = p->next) records[i++] = p->record;
    dht_write_store(out, self, records, i);
    free(records);
    return out->failed;
}

/* Signing comes last: the signature covers the whole message. */
static int send(struct dht_call_out *o)
{
    struct dht_core *n = o->calls->core;
    struct bytes plain = { 0 }, signed_ = { 0 };
    const struct bytes *message = &plain;
    int rc = write_request(&plain, o);
    if (!rc && n->auth) {
        rc = auth_sign_request(&signed_, o->nonce, n->auth, dht_core_time(n), bytes_at(&plain),
                               bytes_length(&plain));
        message = &signed_;
    }
    o->sent = loop_now(n->loop); /* the round trip begins: clocks are compared by it */
    n->calls_made++;
    if (!rc && !(o->request = rpc_call_unary(n->host, &o->who.peer, dht_call_name(o->call),
                                             bytes_at(message), bytes_length(message),
                                             n->call_limit, on_reply, o)))
        rc = PL_ENOMEM;
    bytes_clear(&plain);
    bytes_clear(&signed_);
    return rc;
}

/* The end of an iteration of the loop: everything that was asked for leaves. */
void dht_calls_send(struct dht_calls *calls)
{
    struct dht_call_out *o;
    do { /* from the start after a failure: its callbacks may have changed the list */
        for (o = calls->list; o; o = o->next) {
            if (o->request || !send(o)) continue;
            list_remove(&calls->list, o);
            report(o, PL_ENOMEM, "no memory", NULL, 0);
            break;
        }
    } while (o);
}

/* The parts' owners are closed after us and report to their users; here nothing is called. */
void dht_calls_close(struct dht_calls *calls)
{
    while (calls->list) {
        struct dht_call_out *o = calls->list;
        list_remove(&calls->list, o);
        if (o->request) rpc_cancel(o->request);
        free_parts(o->first);
        free(o);
    }
}
