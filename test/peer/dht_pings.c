/* dht_pings.c - the DHT's part of a walk: a node that answers a ping back is added to the peer's
 * routing table, and is named to others. */
#include "dht_walk.h"
#include "net/hivemind/swarm/swarm.h"

#include <stdlib.h>
#include <string.h>

#define CLOCK_REFUSED 3.0 /* s; beyond, joining fails */

/* --- being called back ------------------------------------------------------------------------ */

struct answering {
    struct walk *w;
    struct dht_id id; /* our node ID when we are called back */
};

/* The call that we receive, without its signature, and our answer, with one. 0: not an honest
 * call. */
static int understand(const struct answering *self, const uint8_t **data, size_t *n,
                      uint8_t nonce[AUTH_NONCE])
{
    struct walk *w = self->w;
    return !w->auth || !auth_check_request(data, n, nonce, w->auth, dht_node_time(w->swarm->node),
                                           *data, *n, NULL);
}

static void answer(const struct answering *self, struct rpc_call *c, const struct bytes *plain,
                   const uint8_t nonce[AUTH_NONCE])
{
    struct bytes out = { 0 };
    if (self->w->auth)
        auth_sign_response(&out, self->w->auth, nonce, bytes_at(plain), bytes_length(plain));
    else bytes_add(&out, bytes_at(plain), bytes_length(plain));
    rpc_reply(c, bytes_at(&out), bytes_length(&out));
    bytes_clear(&out);
}

static void on_called_back(void *context, struct rpc_call *c, const uint8_t *data, size_t n)
{
    struct answering *self = context;
    struct bytes out = { 0 };
    uint8_t nonce[AUTH_NONCE] = { 0 };
    if (understand(self, &data, &n, nonce))
        dht_write_ping_answer(&out, &self->id, dht_node_time(self->w->swarm->node), 0);
    answer(self, c, &out, nonce);
    bytes_clear(&out);
}

/* The peer hands records to a node that it meets, and asks it; a node that does not answer is
 * forgotten again. */
static void on_handed_over(void *context, struct rpc_call *c, const uint8_t *data, size_t n)
{
    struct answering *self = context;
    struct dht_request r;
    struct bytes out = { 0 };
    uint8_t nonce[AUTH_NONCE] = { 0 };
    int *yes = NULL;
    memset(&r, 0, sizeof r);
    if (understand(self, &data, &n, nonce) && !dht_read_request(&r, DHT_STORE, data, n, NULL) &&
        (yes = malloc((r.count + 1) * sizeof *yes))) {
        for (size_t i = 0; i < r.count; i++) yes[i] = 1;
        dht_write_store_answer(&out, &self->id, yes, r.count);
    }
    answer(self, c, &out, nonce);
    dht_request_clear(&r);
    bytes_clear(&out);
    free(yes);
}

static void on_asked(void *context, struct rpc_call *c, const uint8_t *data, size_t n)
{
    struct answering *self = context;
    struct dht_request r;
    struct bytes out = { 0 };
    struct dht_found *nothing = NULL;
    uint8_t nonce[AUTH_NONCE] = { 0 };
    memset(&r, 0, sizeof r);
    if (understand(self, &data, &n, nonce) && !dht_read_request(&r, DHT_FIND, data, n, NULL) &&
        (nothing = calloc(r.count + 1, sizeof *nothing)))
        dht_write_find_answer(&out, &self->id, nothing, r.count);
    answer(self, c, &out, nonce);
    dht_request_clear(&r);
    bytes_clear(&out);
    free(nothing);
}

static rpc_unary_handler *const answers[DHT_CALLS] = { on_called_back, on_handed_over, on_asked };

static void serve(void *context)
{
    struct answering *a = context;
    for (int i = 0; i < DHT_CALLS; i++)
        rpc_serve_unary(a->w->talk.host, dht_call_name((enum dht_call)i), answers[i], a);
}

static void unserve(void *context)
{
    struct answering *a = context;
    for (int i = 0; i < DHT_CALLS; i++)
        rpc_unserve(a->w->talk.host, dht_call_name((enum dht_call)i));
}

/* --- 1.3: ping and find ----------------------------------------------------------------------- */

int walk_dht_ping(struct walk *w, const struct dht_id *id, struct dht_answer *a, struct reply *s)
{
    struct bytes request = { 0 };
    int rc = dht_write_ping(&request, id, id != NULL);
    if (!rc) rc = walk_dht_call(w, DHT_PING, &request, 0, a, s);
    bytes_clear(&request);
    return rc;
}

static int nearest_first(const struct dht_found *f, const struct dht_id *key)
{
    for (size_t i = 1; i < f->nearest_count; i++)
        if (dht_id_nearer(&f->nearest[i - 1].id, &f->nearest[i].id, key) > 0) return 0;
    return 1;
}

static int knows(const struct dht_found *f, const struct dht_id *id)
{
    for (size_t i = 0; i < f->nearest_count; i++)
        if (dht_id_equal(&f->nearest[i].id, id)) return 1;
    return 0;
}

/* Its neighbours of `key`, asked as `self`. */
static int neighbours(struct walk *w, const struct dht_id *self, const struct dht_id *key,
                      struct dht_answer *a, struct reply *s)
{
    struct bytes request = { 0 };
    int rc;
    dht_write_find(&request, self, key, 1);
    rc = walk_dht_call(w, DHT_FIND, &request, 1, a, s);
    bytes_clear(&request);
    return rc;
}

void walk_dht_pings(struct walk *w)
{
    struct answering self = { .w = w };
    struct dht_answer a;
    struct dht_id other, key;
    struct reply s;
    double asked = swarm_time(w->swarm);
    int rc = walk_dht_ping(w, NULL, &a, &s);
    walk_clause(w, "hivemind 1.3", "a client's ping is answered with the node's id",
                !rc && a.has_id, "%s", rc ? s.why : "no id of 20 bytes");
    if (!rc && a.dht_time == 0)
        walk_skip(w, "hivemind 1.6", "its clock is within 3 s of ours",
                  "it does not tell the time");
    else if (!rc)
        walk_clause(w, "hivemind 1.6", "its clock is within 3 s of ours",
                    a.dht_time > asked - CLOCK_REFUSED &&
                        a.dht_time < swarm_time(w->swarm) + CLOCK_REFUSED,
                    "it is %.1f s off", a.dht_time - swarm_time(w->swarm));
    dht_answer_clear(&a);
    reply_clear(&s);
    if (rc || dht_id_random(&self.id) || dht_id_random(&other) || dht_id_random(&key)) return;

    loop_call(host_loop(w->talk.host), serve, &self);
    rc = walk_dht_ping(w, &other, &a, &s);
    walk_clause(w, "hivemind 1.3", "a ping to be validated: called back, another id is noticed",
                !rc && !a.available, "%s",
                rc ? s.why : "available, though the id that came back is not the one we sent");
    dht_answer_clear(&a);
    reply_clear(&s);
    rc = walk_dht_ping(w, &self.id, &a, &s);
    walk_clause(w, "hivemind 1.3",
                "a ping to be validated: called back, the right id makes it available",
                !rc && a.available, "%s", rc ? s.why : "not available");
    dht_answer_clear(&a);
    reply_clear(&s);
    talk_sleep(0.3); /* into its table: behind the answer */
    rc = neighbours(w, NULL, &self.id, &a, &s);
    walk_clause(
        w, "hivemind 1.4",
        "a validated peer is in its routing table, and is the first result of a lookup for it",
        !rc && a.found[0].nearest_count && dht_id_equal(&a.found[0].nearest[0].id, &self.id), "%s",
        rc ? s.why : "it is not");
    dht_answer_clear(&a);
    reply_clear(&s);
    rc = neighbours(w, &self.id, &self.id, &a, &s);
    walk_clause(w, "hivemind 1.3", "the asker is not named to itself",
                !rc && !knows(&a.found[0], &self.id), "%s", rc ? s.why : "it is");
    dht_answer_clear(&a);
    reply_clear(&s);
    rc = neighbours(w, NULL, &key, &a, &s);
    walk_clause(w, "hivemind 1.3",
                "an unknown key: not found, and at most 20 neighbours, nearest first",
                !rc && a.found[0].type == DHT_NOT_FOUND &&
                    a.found[0].nearest_count <= DHT_BUCKET_SIZE && nearest_first(&a.found[0], &key),
                "%s", rc ? s.why : "found, too many, or not in order");
    dht_answer_clear(&a);
    reply_clear(&s);
    loop_call(host_loop(w->talk.host), unserve, &self);
}
