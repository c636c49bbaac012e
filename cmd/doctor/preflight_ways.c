/* preflight_ways.c - which way each connection goes: directly, or through a relay, which carries
 * too little for averaging. Asked are the bootstrap peers and those that train the run. */
#include "preflight_internal.h"

#include "net/libp2p/host/host.h"

#include <stdio.h>
#include <unistd.h>

#define WAYS_LIMIT 5.0  /* s to connect to all of them */
#define WAYS_SETTLE 2.0 /* s in which a relayed connection may become a direct one */
#define WAYS_POLL 50000 /* us between polls */
#define WAYS_NAMED 4    /* peers that the finding names */

struct way {
    struct ways *of;
    struct peer_id peer;
    struct host_wait *wait;
};

struct ways {
    struct swarm *s;
    struct way list[PREFLIGHT_WAYS_MAX];
    size_t count;
    size_t pending; /* of the loop's thread alone */
    size_t left, direct, relayed;
    char names[WAYS_NAMED * (PEER_ID_TEXT_MAX + 2)]; /* of peers that are not reached directly */
};

/* --- on the loop's thread --------------------------------------------------------------------- */

static void on_connected(void *context, int status, const struct peer_id *peer,
                         const struct pl_err *err)
{
    struct way *w = context;
    w->wait = NULL;
    w->of->pending--;
}

static void connect_all(void *context)
{
    struct ways *ways = context;
    for (size_t i = 0; i < ways->count; i++) {
        struct way *w = &ways->list[i];
        w->wait = host_connect(ways->s->host, &w->peer, WAYS_LIMIT, on_connected, w);
        ways->pending += w->wait != NULL;
    }
}

static void count_all(void *context)
{
    struct ways *ways = context;
    size_t named = 0, n = 0;
    ways->left = ways->pending;
    ways->direct = ways->relayed = 0;
    for (size_t i = 0; i < ways->count; i++) {
        const struct peer_id *peer = &ways->list[i].peer;
        int is_direct = host_is_direct(ways->s->host, peer);
        char text[PEER_ID_TEXT_MAX];
        ways->direct += (size_t)is_direct;
        ways->relayed += (size_t)(!is_direct && host_is_connected(ways->s->host, peer));
        if (is_direct || named == WAYS_NAMED) continue;
        named++;
        peer_id_text(text, peer);
        n += (size_t)snprintf(ways->names + n, sizeof ways->names - n, "%s%s", n ? ", " : "", text);
    }
}

static void cancel_all(void *context)
{
    struct ways *ways = context;
    for (size_t i = 0; i < ways->count; i++) host_wait_cancel(ways->list[i].wait);
}

/* --- on the caller's -------------------------------------------------------------------------- */

static void add(struct ways *ways, const struct peer_id *peer)
{
    for (size_t i = 0; i < ways->count; i++)
        if (peer_id_equal(&ways->list[i].peer, peer)) return;
    if (ways->count < PREFLIGHT_WAYS_MAX)
        ways->list[ways->count++] = (struct way){ .of = ways, .peer = *peer };
}

void preflight_ways(struct preflight *c)
{
    struct ways ways = { .s = c->s };
    double until;
    size_t lost;
    if (!c->plan->ways) return;
    for (size_t i = 0; i < c->good_count; i++) add(&ways, &c->good[i]->peer);
    for (size_t i = 0; i < c->trainer_count; i++) add(&ways, &c->trainers[i]);
    loop_call(c->s->loop, connect_all, &ways);
    until = pl_seconds() + WAYS_LIMIT + WAYS_SETTLE;
    do {
        usleep(WAYS_POLL);
        loop_call(c->s->loop, count_all, &ways);
    } while ((ways.left || ways.relayed) && pl_seconds() < until &&
             !probe_is_stopped(c->s, c->stop));
    loop_call(c->s->loop, cancel_all, &ways);
    lost = ways.count - ways.direct - ways.relayed;
    preflight_say(c, ways.direct ? FINDING_GOOD : FINDING_WARNING, "ways",
                  "%zu of %zu connections are direct, %zu go through a relay, %zu fail%s%.300s%s",
                  ways.direct, ways.count, ways.relayed, lost, *ways.names ? ": " : "", ways.names,
                  ways.direct ? ""
                              : "\nyour side: no round succeeds through a relay alone; forward "
                                "the listening port");
}
