/* dht_outgoing.c - calls to other nodes. What one turn of the loop wants from one peer goes out in
 * one message: 32 stores at once cost about as many calls as one. */
#include "dht_node_internal.h"

#include <stdlib.h>
#include <string.h>

#define FIND_KEYS 16 /* of one call, as the original */
#define STORE_RECORDS 256
#define STORE_BYTES (1u << 20) /* of one call, or one record that is longer */

struct part {
    struct dht_record record; /* store: copies behind the struct; find: its key */
    dht_replied *replied;
    void *context;
    struct part *next;
};

struct outgoing {
    struct dht_node *node;
    enum dht_call call;
    struct dht_contact who;
    int knows_id, validate;
    struct part *first, **last;
    size_t count, bytes;
    struct rpc_request *request; /* NULL: not sent yet */
    uint8_t nonce[AUTH_NONCE];
    double sent; /* loop time */
    struct outgoing *next;
};

/* --- putting calls together ------------------------------------------------------------------- */

static int takes(const struct outgoing *o, enum dht_call call, const struct dht_contact *who,
                 size_t bytes)
{
    if (o->request || o->call != call || call == DHT_PING || !dht_id_equal(&o->who.id, &who->id) ||
        !peer_id_equal(&o->who.peer, &who->peer))
        return 0;
    return call == DHT_FIND ? o->count < FIND_KEYS
                            : o->count < STORE_RECORDS && o->bytes + bytes <= STORE_BYTES;
}

static struct outgoing *outgoing_for(struct dht_node *n, enum dht_call call,
                                     const struct dht_contact *who, size_t bytes)
{
    struct outgoing *o;
    for (o = n->outgoing; o; o = o->next)
        if (takes(o, call, who, bytes)) return o;
    if (!(o = calloc(1, sizeof *o))) return NULL;
    o->node = n;
    o->call = call;
    o->who = *who;
    o->last = &o->first;
    o->next = n->outgoing;
    n->outgoing = o;
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

static void unlink_outgoing(struct outgoing *o)
{
    struct outgoing **at = &o->node->outgoing;
    while (*at != o) at = &(*at)->next;
    *at = o->next;
}

static int add_part(struct outgoing *o, struct part *p)
{
    *o->last = p;
    o->last = &p->next;
    o->count++;
    dht_node_wake(o->node);
    return PL_OK;
}

static struct part *new_part(size_t bytes, dht_replied *replied, void *context)
{
    struct part *p = calloc(1, sizeof *p + bytes);
    if (p) {
        p->replied = replied;
        p->context = context;
    }
    return p;
}

static int ask(struct dht_node *n, enum dht_call call, const struct dht_contact *who, int knows_id,
               int validate, size_t bytes, struct part *p)
{
    struct outgoing *o = p ? outgoing_for(n, call, who, bytes) : NULL;
    if (!o) {
        free(p);
        return PL_ENOMEM;
    }
    o->knows_id = knows_id;
    o->validate = validate;
    o->bytes += bytes;
    return add_part(o, p);
}

int dht_ask_find(struct dht_node *n, const struct dht_contact *who, const struct dht_id *key,
                 dht_replied *replied, void *context)
{
    struct part *p = new_part(0, replied, context);
    if (p) p->record.key = *key;
    return ask(n, DHT_FIND, who, 1, 0, 0, p);
}

int dht_ask_store(struct dht_node *n, const struct dht_contact *who, const struct dht_record *r,
                  dht_replied *replied, void *context)
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
    return ask(n, DHT_STORE, who, 1, 0, r->subkey_n + r->n + DHT_RECORD_COST, p);
}

int dht_ask_ping(struct dht_node *n, const struct peer_id *peer, int validate, dht_replied *replied,
                 void *context)
{
    struct dht_contact who = { .peer = *peer };
    return ask(n, DHT_PING, &who, 0, validate, 0, new_part(0, replied, context));
}

/* --- answers ---------------------------------------------------------------------------------- */

static void tell(struct outgoing *o, int status, const char *error, const struct dht_answer *a,
                 double seconds)
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

static void fail(struct outgoing *o, int status, const char *error)
{
    struct dht_node *n = o->node;
    n->calls_failed++;
    dht_node_lost(n, o->knows_id ? &o->who.id : NULL, &o->who.peer);
    tell(o, status, error, NULL, loop_now(n->loop) - o->sent);
}

/* Blacklisted nodes are not taken over from others' answers, nor are we. */
static void filter(const struct dht_node *n, struct dht_found *f)
{
    size_t kept = 0;
    for (size_t i = 0; i < f->nearest_count; i++)
        if (!dht_node_avoids(n, &f->nearest[i].peer) &&
            !peer_id_equal(&f->nearest[i].peer, host_id(n->host)))
            f->nearest[kept++] = f->nearest[i];
    f->nearest_count = kept;
}

static void on_reply(void *context, const struct rpc_result *r)
{
    struct outgoing *o = context;
    struct dht_node *n = o->node;
    struct dht_answer a;
    struct pl_err err;
    const uint8_t *data = r->data;
    size_t length = r->n;
    int rc = r->status;
    unlink_outgoing(o);
    if (rc) {
        fail(o, rc, r->error);
        return;
    }
    if (n->auth)
        rc = auth_check_response(&data, &length, n->auth, o->nonce, dht_node_time(n), data, length,
                                 &err);
    if (!rc)
        rc = dht_read_answer(&a, o->call, o->call == DHT_PING ? 0 : o->count, data, length, &err);
    if (rc) {
        fail(o, PL_EPROTO, err.text);
        return;
    }
    if (n->auth) dht_members_add(n, &o->who.peer, n->auth->until);
    dht_node_answered(n, &o->who.peer, loop_now(n->loop) - o->sent);
    if (a.has_id) dht_node_seen(n, &a.id, &o->who.peer);
    for (size_t i = 0; o->call == DHT_FIND && i < a.count; i++) filter(n, &a.found[i]);
    tell(o, PL_OK, NULL, &a, loop_now(n->loop) - o->sent);
    dht_answer_clear(&a);
}

/* --- sending ---------------------------------------------------------------------------------- */

static int write_request(struct bytes *out, const struct outgoing *o)
{
    /* When we ask whether we can be reached, we have to say who we are. */
    const struct dht_id *self = o->validate && !o->node->wants_client_mode
                                    ? &o->node->state.self
                                    : dht_state_self(&o->node->state);
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

static int send(struct outgoing *o)
{
    struct dht_node *n = o->node;
    struct bytes plain = { 0 }, signed_ = { 0 };
    const struct bytes *message = &plain;
    int rc = write_request(&plain, o);
    if (!rc && n->auth) {
        rc = auth_sign_request(&signed_, o->nonce, n->auth, dht_node_time(n), bytes_at(&plain),
                               bytes_length(&plain));
        message = &signed_;
    }
    o->sent = loop_now(n->loop);
    n->calls_made++;
    if (!rc && !(o->request = rpc_call_unary(n->host, &o->who.peer, dht_call_name(o->call),
                                             bytes_at(message), bytes_length(message),
                                             n->call_limit, on_reply, o)))
        rc = PL_ENOMEM;
    bytes_clear(&plain);
    bytes_clear(&signed_);
    return rc;
}

void dht_outgoing_turn(struct dht_node *n)
{
    struct outgoing *o;
    do { /* from the start after a failure: its callbacks may have changed the list */
        for (o = n->outgoing; o; o = o->next) {
            if (o->request || !send(o)) continue;
            unlink_outgoing(o);
            tell(o, PL_ENOMEM, "no memory", NULL, 0);
            break;
        }
    } while (o);
}

void dht_outgoing_close(struct dht_node *n)
{
    while (n->outgoing) {
        struct outgoing *o = n->outgoing;
        n->outgoing = o->next;
        if (o->request) rpc_cancel(o->request);
        free_parts(o->first);
        free(o);
    }
}
