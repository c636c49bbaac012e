/* identify.c - answers who we are, asks it of every new connection, pushes what changes. An
 * unanswered identify keeps the original from calling us for a minute: answering comes first. */
#include "identify.h"
#include "net/libp2p/host/host_internal.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ID "/ipfs/id/1.0.0"
#define PUSH "/ipfs/id/push/1.0.0"
#define PUSH_AFTER 0.05 /* s; handlers are registered one by one, one push tells of all */

/* One exchange under way: ours that asks or pushes, or a push that we receive. */
struct allreduce {
    struct host *host;
    struct stream *channel;
    int pushing;
    struct timer timer;
    struct allreduce *next, *prev;
};

struct identify {
    struct timer push;
    struct allreduce *exchanges;
    struct identify_message scratch; /* too large for the stack */
    struct record record;
};

static void finish(struct allreduce *x)
{
    struct identify *id = x->host->identify;
    if (x->prev) x->prev->next = x->next;
    else id->exchanges = x->next;
    if (x->next) x->next->prev = x->prev;
    timer_stop(&x->timer);
    stream_close(x->channel);
    free(x);
}

static void on_late(void *context) { finish(context); }

static struct allreduce *begin(struct host *h)
{
    struct allreduce *x = calloc(1, sizeof *x);
    if (!x) return NULL;
    x->host = h;
    x->next = h->identify->exchanges;
    if (x->next) x->next->prev = x;
    h->identify->exchanges = x;
    timer_start(h->loop, &x->timer, IDENTIFY_LIMIT, on_late, x);
    return x;
}

/* --- what we say ------------------------------------------------------------------------------ */

static uint64_t wall_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int write_message(struct host *h, const struct multiaddr *seen_as, struct bytes *out)
{
    struct identify_message *m = &h->identify->scratch;
    struct bytes record = { 0 };
    int rc = PL_OK;
    memset(m, 0, sizeof *m);
    m->public_key = bytes_at(&h->me->public_key);
    m->public_key_bytes = bytes_length(&h->me->public_key);
    m->address_count = host_own_addresses(h, m->addresses, IDENTIFY_ADDRESSES_MAX);
    for (size_t i = 0; i < h->service_count && i < IDENTIFY_PROTOCOLS_MAX; i++)
        m->protocols[m->protocol_count++] = h->services[i].protocol;
    m->observed = *seen_as;
    m->protocol_version = "";
    m->agent = h->agent;
    if (m->address_count) {
        rc = record_put(&record, h->me, wall_ns(), m->addresses, m->address_count);
        m->record = bytes_at(&record);
        m->record_bytes = bytes_length(&record);
    }
    if (!rc) rc = identify_put(out, m);
    bytes_clear(&record);
    return rc;
}

static void tell(struct stream *c)
{
    const struct connection *l = stream_link(c);
    struct bytes out = { 0 };
    if (l && !write_message(stream_host(c), &l->remote, &out))
        stream_write(c, bytes_at(&out), bytes_length(&out));
    bytes_clear(&out);
    stream_finish(c);
}

static void on_asked(void *context, struct stream *c)
{
    (void)context;
    tell(c);
    stream_close(c); /* lingers until it is out */
}

/* --- what we hear ----------------------------------------------------------------------------- */

static void set_protocols(struct peer *p, const struct identify_message *m)
{
    struct bytes texts = { .limit = PEER_PROTOCOL_TEXT_MAX };
    for (size_t i = 0; i < m->protocol_count; i++)
        bytes_add(&texts, m->protocols[i], strlen(m->protocols[i]) + 1);
    if (!texts.failed) peer_set_protocols(p, (const char *)bytes_at(&texts), bytes_length(&texts));
    bytes_clear(&texts);
}

/* Its addresses: the signed record's if there is a valid one, else what it says. */
static void set_addresses(struct host *h, struct connection *l, const struct identify_message *m)
{
    struct record *r = &h->identify->record;
    struct peer *p = l->peer;
    const struct multiaddr *list = m->addresses;
    size_t count = m->address_count;
    double until = loop_now(h->loop) + HOST_ADDRESS_TTL;
    if (m->record_bytes && !record_get(r, m->record, m->record_bytes)) {
        if (!peer_id_equal(&r->peer, &p->id)) return; /* somebody else's: none of it is believed */
        if (r->seq < p->record_seq) return;
        p->record_seq = r->seq;
        list = r->addresses;
        count = r->address_count;
    }
    for (size_t i = 0; i < count; i++)
        if (multiaddr_believable(&list[i], &l->remote)) peer_learn(p, &list[i], until);
    peer_routing_news(p); /* it may have come to us through a relay only */
}

static void understand(struct allreduce *x, const uint8_t *data, size_t n)
{
    struct host *h = x->host;
    struct identify_message *m = &h->identify->scratch;
    struct connection *l = stream_link(x->channel);
    struct peer *p = l ? l->peer : NULL;
    if (p && !identify_get(m, data, n)) {
        struct peer_id id = p->id;
        set_protocols(p, m);
        set_addresses(h, l, m);
        if (m->observed.length) p->observed = m->observed;
        for (struct host_watch *w = h->watches, *next; w; w = next) {
            next = w->next;
            if (w->events.identified) w->events.identified(w->context, &id);
        }
    }
    identify_clear(m);
}

static void on_readable(void *context, struct stream *c)
{
    struct allreduce *x = context;
    size_t n;
    int ended;
    const uint8_t *data = stream_data(c, &n, &ended);
    if (ended && !x->pushing) understand(x, data, n);
    if (ended) stream_finish(c);
    if (ended || n > IDENTIFY_PARTS_MAX * (IDENTIFY_PART_MAX + 2)) finish(x);
}

static void on_failed(void *context, struct stream *c, int status, const char *why)
{
    (void)c;
    (void)status;
    (void)why;
    finish(context);
}

static const struct stream_events events = { .readable = on_readable, .failed = on_failed };

static void on_pushed(void *context, struct stream *c)
{
    struct host *h = context;
    struct allreduce *x = begin(h);
    if (!x) {
        stream_close(c);
        return;
    }
    x->channel = c;
    stream_listen(c, &events, x);
}

void identify_link_open(struct connection *l)
{
    struct allreduce *x = begin(l->host);
    if (x && !(x->channel = stream_open_on(l, ID, IDENTIFY_LIMIT, &events, x))) finish(x);
}

/* --- what has changed ------------------------------------------------------------------------- */

static void push_to(struct host *h, struct connection *l)
{
    struct allreduce *x = begin(h);
    if (!x) return;
    x->pushing = 1;
    if ((x->channel = stream_open_on(l, PUSH, IDENTIFY_LIMIT, &events, x))) tell(x->channel);
    else finish(x);
}

static void push_to_peer(void *context, struct peer *p)
{
    struct connection *l = connection_best(p);
    if (l && peer_serves(p, PUSH)) push_to(context, l);
}

static void on_push(void *context)
{
    struct host *h = context;
    peers_each(&h->peers, push_to_peer, h);
}

void host_changed(struct host *h)
{
    if (h->identify && !h->closing)
        timer_start(h->loop, &h->identify->push, PUSH_AFTER, on_push, h);
}

int identify_start(struct host *h)
{
    int rc;
    if (!(h->identify = calloc(1, sizeof *h->identify))) return PL_ENOMEM;
    rc = host_serve(h, ID, on_asked, h);
    return rc ? rc : host_serve(h, PUSH, on_pushed, h);
}

void identify_stop(struct host *h)
{
    if (!h->identify) return;
    timer_stop(&h->identify->push);
    while (h->identify->exchanges) finish(h->identify->exchanges);
    free(h->identify);
    h->identify = NULL;
}
