/* latency.c - a table of peers, pinged in turn, a few at a time.
 *
 * An entry stays while its ping is under way, also when the peer is no longer wanted. All but
 * open and close runs on the loop's thread. */
#include "latency.h"
#include "ping.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct latency *owner;
    struct distance at;
    int known;   /* an answer, or none in time, has been seen */
    int pinging; /* stays where it is until that has ended */
    int wanted;
    double due; /* s, monotonic */
};

struct latency {
    struct host *host;
    int under_way;
    struct entry list[LATENCY_MAX]; /* free: neither wanted nor pinging */
};

int latency_open(struct latency **d, struct host *h)
{
    if (!(*d = calloc(1, sizeof **d))) return PL_ENOMEM;
    (*d)->host = h;
    return PL_OK;
}

void latency_stop(struct latency *d)
{
    if (d) latency_update(d, NULL, NULL, 0);
}

void latency_close(struct latency *d) { free(d); }

/* At most LATENCY_AT_ONCE under way; each end of one begins the next. */
static void ping_those_due(struct latency *d);

static int is_relayed(const struct host *h, const struct peer_id *peer)
{
    struct multiaddr a;
    char text[MULTIADDR_TEXT_MAX];
    if (host_remote_address(h, peer, &a)) return 0;
    multiaddr_text(text, &a);
    return strstr(text, "/p2p-circuit") != NULL;
}

static void on_ping(void *context, int status, double rtt_s, const char *why)
{
    struct entry *e = context;
    struct latency *d = e->owner;
    d->under_way--;
    e->pinging = 0;
    e->known = 1;
    e->at.rtt_s = status ? (double)NAN : rtt_s;
    e->at.relayed = !status && is_relayed(d->host, &e->at.peer);
    e->due = pl_seconds() + LATENCY_EVERY;
    ping_those_due(d);
}

static void ping_those_due(struct latency *d)
{
    double now = pl_seconds();
    for (int i = 0; i < LATENCY_MAX && d->under_way < LATENCY_AT_ONCE; i++) {
        struct entry *e = &d->list[i];
        if (!e->wanted || e->pinging || e->due > now) continue;
        e->due = now + LATENCY_EVERY; /* also where there is no memory to try */
        if (ping_peer(d->host, &e->at.peer, LATENCY_TIMEOUT, on_ping, e)) continue;
        e->pinging = 1;
        d->under_way++;
    }
}

struct update {
    struct latency *d;
    struct distance *out;
    const struct peer_id *peers;
    size_t count, found;
};

/* Its entry, also if it was dropped and the entry has not been reused since. */
static struct entry *find(struct latency *d, const struct peer_id *peer)
{
    for (int i = 0; i < LATENCY_MAX; i++)
        if (d->list[i].owner && peer_id_equal(&d->list[i].at.peer, peer)) return &d->list[i];
    return NULL;
}

static void update(void *context)
{
    struct update *l = context;
    struct latency *d = l->d;
    struct entry *e;
    for (int i = 0; i < LATENCY_MAX; i++) d->list[i].wanted = 0;
    for (size_t k = 0; k < l->count;
         k++) /* first the peers that have an entry, so that it is not reused */
        if ((e = find(d, &l->peers[k]))) e->wanted = 1;
    for (size_t k = 0; k < l->count; k++) {
        if (find(d, &l->peers[k])) continue;
        for (e = d->list; e < d->list + LATENCY_MAX && (e->wanted || e->pinging); e++) {}
        if (e == d->list + LATENCY_MAX) break;
        *e = (struct entry){ .owner = d, .at.peer = l->peers[k], .wanted = 1 };
    }
    ping_those_due(d);
    for (int i = 0; i < LATENCY_MAX; i++)
        if (d->list[i].wanted && d->list[i].known) l->out[l->found++] = d->list[i].at;
}

size_t latency_update(struct latency *d, struct distance *out, const struct peer_id *peers,
                      size_t count)
{
    struct update l = { d, out, peers, count < LATENCY_MAX ? count : LATENCY_MAX, 0 };
    loop_call(host_loop(d->host), update, &l);
    return l.found;
}
