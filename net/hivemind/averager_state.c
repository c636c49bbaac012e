/* averager_state.c - the state that we hand to newcomers, and the one that we take over. */
#include "averager_inside.h"
#include "msgpack.h"

#include <math.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

#define ANNOUNCE_EVERY 25.0 /* s; the records live for 30 */
#define DONORS_MAX 1024

/* --- snapshots -------------------------------------------------------------------------------- */

static void drop_snapshot(struct state_snapshot *s)
{
    if (s && !--s->users) s->release(s);
}

/* --- announcing ------------------------------------------------------------------------------- */

static void on_stored(void *context, int status) { (void)context, (void)status; }

static void announce(void *context)
{
    struct averager *a = context;
    struct bytes value = { 0 };
    if (a->sharing) mp_float(&value, a->priority);
    else mp_nil(&value);
    if (!value.failed)
        dht_node_store(a->node, &a->state_id, bytes_at(&a->subkey), bytes_length(&a->subkey),
                       bytes_at(&value), bytes_length(&value),
                       averager_now(a) + STATE_PRIORITY_LIFE, on_stored, NULL);
    bytes_clear(&value);
    if (a->sharing) timer_start(a->loop, &a->announce_timer, ANNOUNCE_EVERY, announce, a);
}

void averager_share(struct averager *a, struct state_snapshot *s, double priority)
{
    int was = a->sharing, changed = a->priority != priority;
    drop_snapshot(a->snapshot);
    a->snapshot = s;
    if (s) s->users = 1;
    a->priority = priority;
    a->sharing = s && !a->o.client_mode && !a->o.auxiliary;
    if (a->sharing ? !was || changed : was) announce(a);
    if (!a->sharing) timer_stop(&a->announce_timer);
}

/* --- giving ----------------------------------------------------------------------------------- */

size_t averager_downloads(const struct averager *a)
{
    return a->giving_count;
}

static void give_next(struct averager *a);

static void free_giving(struct giving *g)
{
    struct averager *a = g->a;
    struct giving **at = &a->givings;
    while (*at != g) at = &(*at)->next;
    *at = g->next;
    a->giving_count--;
    state_source_clear(&g->source);
    drop_snapshot(g->snapshot);
    rpc_close(g->stream);
    free(g);
}

/* The next messages, as many as the connection takes at once. */
static void give(struct giving *g)
{
    struct averager *a = g->a;
    int rc = PL_OK;
    while (!rc && !rpc_queued(g->stream)) {
        struct bytes out = { 0 };
        rc = state_source_next(&g->source, &out, a->o.be, NULL);
        if (!rc) rc = rpc_send(g->stream, bytes_at(&out), bytes_length(&out));
        bytes_clear(&out);
    }
    if (!rc) return;
    if (rc == PL_ENOTFOUND) rpc_end(g->stream);
    else rpc_fail(g->stream, "RuntimeError('the state could not be read')");
    free_giving(g);
    give_next(a);
}

static void giving_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    (void)context, (void)s, (void)data, (void)n; /* the request is empty */
}
static void giving_drained(void *context, struct rpc_stream *s)
{
    struct giving *g = context;
    (void)s;
    if (g->snapshot) give(g);
}
static void giving_failed(void *context, struct rpc_stream *s, int status, const char *why)
{
    struct giving *g = context;
    struct averager *a = g->a;
    (void)s, (void)status, (void)why;
    free_giving(g);
    give_next(a);
}

static void begin_giving(struct giving *g)
{
    struct state_snapshot *s = g->a->snapshot;
    g->snapshot = s;
    s->users++;
    g->source = (struct state_source){ .metadata = s->metadata, .metadata_n = s->metadata_n,
                                       .tensors = s->tensors, .count = s->count };
    give(g);
}

/* Whoever has waited longest; the newest stand in front. */
static void give_next(struct averager *a)
{
    struct giving *first = NULL;
    size_t running = 0;
    for (struct giving *g = a->givings; g; g = g->next) {
        if (g->snapshot) running++;
        else first = g;
    }
    if (first && a->snapshot && running < AVERAGER_DOWNLOADS_MAX) begin_giving(first);
}

static void on_giving(void *context, struct rpc_stream *s)
{
    static const struct rpc_stream_events events = { giving_message, NULL, giving_failed,
                                                     giving_drained };
    struct averager *a = context;
    struct giving *g;
    if (!a->sharing || a->giving_count == AVERAGER_QUEUE_MAX || !(g = calloc(1, sizeof *g))) {
        rpc_end(s); /* without a message: nothing to be had here */
        rpc_close(s);
        return;
    }
    g->a = a;
    g->stream = s;
    g->next = a->givings;
    a->givings = g;
    a->giving_count++;
    rpc_listen(s, &events, g);
    give_next(a);
}

/* --- taking ----------------------------------------------------------------------------------- */

static void try_donor(struct averager *a);

static void end_load(struct averager *a, int status)
{
    averager_loaded *loaded = a->load.loaded;
    struct state_load state = a->load.load;
    const struct peer_id donor = a->load.at ? a->load.donors[a->load.at - 1].peer
                                            : (struct peer_id){ 0 };
    struct pl_err why = a->load.why;
    memset(&a->load.load, 0, sizeof a->load.load);
    free(a->load.donors);
    a->load.donors = NULL;
    a->load.count = a->load.at = 0;
    a->load.busy = 0;
    loaded(a->load.context, status, &donor, &state, &why);
    state_load_clear(&state);
}

static void next_donor(struct averager *a)
{
    if (a->o.donor_failed)
        a->o.donor_failed(a->o.donor_context, &a->load.donors[a->load.at - 1].peer, &a->load.why);
    rpc_close(a->load.stream);
    a->load.stream = NULL;
    state_load_clear(&a->load.load);
    try_donor(a);
}

static void load_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    struct averager *a = context;
    (void)s;
    if (state_load_add(&a->load.load, data, n, &a->load.why)) next_donor(a);
}

static void load_end(void *context, struct rpc_stream *s)
{
    struct averager *a = context;
    int rc = state_load_finish(&a->load.load, &a->load.why);
    (void)s;
    if (!rc && a->load.check) rc = a->load.check(a->load.context, &a->load.load, &a->load.why);
    if (rc) {
        next_donor(a);
        return;
    }
    rpc_close(a->load.stream);
    a->load.stream = NULL;
    end_load(a, PL_OK);
}

static void load_failed(void *context, struct rpc_stream *s, int status, const char *why)
{
    struct averager *a = context;
    (void)s;
    pl_fail(&a->load.why, status, "state: %.400s", why);
    next_donor(a);
}

static void ask_donor(void *context)
{
    static const struct rpc_stream_events events = { load_message, load_end, load_failed, NULL };
    struct averager *a = context;
    double limit = a->o.sender_timeout > 0 ? a->o.sender_timeout : a->o.request_timeout;
    if (a->load.at == a->load.count) {
        end_load(a, a->load.count ? PL_EIO : PL_ENOTFOUND);
        return;
    }
    a->load.load = (struct state_load){ .limit = a->load.limit };
    a->load.stream = rpc_open(a->host, &a->load.donors[a->load.at++].peer,
                              a->rpc[AVERAGER_DOWNLOAD], STATE_MESSAGE_MAX, limit, &events, a);
    if (!a->load.stream) {
        pl_fail(&a->load.why, PL_ENOMEM, "state: no memory");
        try_donor(a);
        return;
    }
    rpc_deadline(a->load.stream, limit);
    rpc_send(a->load.stream, "", 0);
    rpc_end(a->load.stream);
}

static void try_donor(struct averager *a)
{
    timer_start(a->loop, &a->load.next, 0, ask_donor, a);
}

static int by_priority(const void *a_, const void *b_)
{
    const struct donor *a = a_, *b = b_;
    return (a->priority < b->priority) - (a->priority > b->priority);
}

/* Among equals by chance: all newcomers would ask the same one. */
static void shuffle(struct donor *d, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        uint32_t x = 0;
        struct donor swap = d[i - 1];
        RAND_bytes((uint8_t *)&x, sizeof x);
        d[i - 1] = d[x % i];
        d[x % i] = swap;
    }
}

static int read_donor(struct donor *d, const struct dht_item *item, const struct peer_id *self)
{
    struct mp_value *subkey = NULL, *value = NULL;
    int good = !mp_read(&subkey, item->subkey, item->subkey_n, NULL) &&
               !mp_read(&value, item->value, item->n, NULL) && subkey->kind == MP_BIN &&
               !peer_id_parse(&d->peer, subkey->bytes, subkey->n) &&
               !peer_id_equal(&d->peer, self) && (value->kind == MP_FLOAT || value->kind == MP_INT);
    if (good)
        d->priority = value->kind == MP_FLOAT ? value->real
                      : value->negative       ? -1
                                              : (double)value->number;
    if (good && isnan(d->priority)) good = 0;
    if (subkey) mp_free(subkey);
    if (value) mp_free(value);
    return good;
}

static void on_donors(void *context, int status, const struct dht_result *r)
{
    struct averager *a = context;
    a->load.task = NULL;
    pl_fail(&a->load.why, PL_ENOTFOUND, "state: nobody shares one under %.100s", a->state_key);
    if (!status && r->type == DHT_FOUND_DICTIONARY && r->dictionary.count) {
        size_t most = r->dictionary.count < DONORS_MAX ? r->dictionary.count : DONORS_MAX;
        a->load.donors = malloc(most * sizeof *a->load.donors);
        for (size_t i = 0; a->load.donors && i < most; i++)
            a->load.count += (size_t)read_donor(&a->load.donors[a->load.count],
                                                &r->dictionary.items[i], host_id(a->host));
        shuffle(a->load.donors, a->load.count);
        if (a->load.count)
            qsort(a->load.donors, a->load.count, sizeof *a->load.donors, by_priority);
    }
    try_donor(a);
}

int averager_load(struct averager *a, size_t limit, averager_check *check, averager_loaded *loaded,
                  void *context)
{
    if (a->load.busy || a->closing) return PL_EUSE;
    a->load.task = dht_node_get(a->node, &a->state_id, 1, on_donors, a);
    if (!a->load.task) return PL_ENOMEM;
    a->load.busy = 1;
    a->load.limit = limit;
    a->load.check = check;
    a->load.loaded = loaded;
    a->load.context = context;
    return PL_OK;
}

/* --- life ------------------------------------------------------------------------------------- */

int averager_state_open(struct averager *a, struct pl_err *err)
{
    if (a->o.client_mode) return PL_OK;
    if (rpc_serve_stream(a->host, a->rpc[AVERAGER_DOWNLOAD], JOIN_MESSAGE_MAX, on_giving, a))
        return pl_fail(err, PL_EUSE, "averaging: %s is already served", a->rpc[AVERAGER_DOWNLOAD]);
    return PL_OK;
}

void averager_state_close(struct averager *a)
{
    averager_share(a, NULL, a->priority);
    if (!a->o.client_mode) rpc_unserve(a->host, a->rpc[AVERAGER_DOWNLOAD]);
    while (a->givings) free_giving(a->givings);
    if (a->load.task) dht_node_cancel(a->load.task);
    rpc_close(a->load.stream);
    state_load_clear(&a->load.load);
    free(a->load.donors);
    timer_stop(&a->load.next);
    memset(&a->load, 0, sizeof a->load);
}
