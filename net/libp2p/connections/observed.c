/* observed.c - one vote for each observer's subnet, and the address of the majority. */
#include "observed.h"
#include "net/libp2p/peer/peerstore.h"

#include <string.h>

/* The subnet that an observer's vote belongs to. PL_ENOTFOUND: it is not a public IP address. */
static int read_public(struct multiaddr_target *t, const struct multiaddr *a)
{
    if (multiaddr_target(t, a) || !t->family || t->relay.length) return PL_ENOTFOUND;
    return multiaddr_scope(a) == SCOPE_PUBLIC ? PL_OK : PL_ENOTFOUND;
}

static void read_subnet(uint8_t subnet[16], const struct multiaddr_target *t)
{
    memset(subnet, 0, 16);
    memcpy(subnet, t->ip, t->family == 4 ? 3 : 8);
}

static struct observer_list *list_of(struct observed *o, int family) { return &o->of[family == 6]; }

static struct observation *find_observer(struct observer_list *list, const uint8_t subnet[16])
{
    for (size_t i = 0; i < list->count; i++)
        if (!memcmp(list->list[i].observer, subnet, 16)) return &list->list[i];
    return NULL;
}

/* The observer's earlier entry, a free one, or the one with the oldest report. */
static struct observation *place_for(struct observer_list *list, const uint8_t subnet[16])
{
    struct observation *v = find_observer(list, subnet);
    if (v) return v;
    if (list->count < OBSERVERS_MAX) return &list->list[list->count++];
    v = list->list;
    for (size_t i = 1; i < list->count; i++)
        if (list->list[i].at < v->at) v = &list->list[i];
    return v;
}

int observed_add(struct observed *o, const struct multiaddr *seen, const struct multiaddr *observer,
                 double now)
{
    struct multiaddr_target us, they;
    struct multiaddr was, is;
    struct observation vote = { .at = now }, *place;
    int rc_was, rc_is;
    if (read_public(&us, seen) || read_public(&they, observer) || us.family != they.family)
        return 0;
    rc_was = observed_address(o, us.family, now, &was);
    read_subnet(vote.observer, &they);
    memcpy(vote.ip, us.ip, sizeof vote.ip);
    vote.port = us.port;
    place = place_for(list_of(o, us.family), vote.observer);
    *place = vote;
    rc_is = observed_address(o, us.family, now, &is);
    return rc_was != rc_is || (!rc_is && !multiaddr_equal(&was, &is));
}

void observed_renew(struct observed *o, const struct multiaddr *observer, double now)
{
    struct multiaddr_target they;
    struct observation *v;
    uint8_t subnet[16];
    if (read_public(&they, observer)) return;
    read_subnet(subnet, &they);
    if ((v = find_observer(list_of(o, they.family), subnet))) v->at = now;
}

static int is_current(const struct observation *v, double now)
{
    return v->at + OBSERVED_TTL >= now;
}

/* Votes are few, so each one's address is counted by comparing it with all the others. */
int observed_address(const struct observed *o, int family, double now, struct multiaddr *out)
{
    const struct observer_list *list = &o->of[family == 6];
    const struct observation *best = NULL;
    size_t voters = 0, most = 0;
    for (size_t i = 0; i < list->count; i++) {
        const struct observation *v = &list->list[i];
        size_t votes = 0;
        if (!is_current(v, now)) continue;
        voters++;
        for (size_t k = 0; k < list->count; k++)
            votes += is_current(&list->list[k], now) && list->list[k].port == v->port &&
                     !memcmp(list->list[k].ip, v->ip, sizeof v->ip);
        if (votes <= most) continue;
        most = votes;
        best = v;
    }
    out->length = 0;
    if (most < OBSERVERS_AGREE || 2 * most <= voters) return PL_ENOTFOUND;
    multiaddr_add_ip(out, family, best->ip);
    return multiaddr_add_tcp(out, best->port);
}

int observed_latest(const struct observed *o, int family, double now, struct multiaddr *out)
{
    const struct observer_list *list = &o->of[family == 6];
    const struct observation *last = NULL;
    for (size_t i = 0; i < list->count; i++) {
        const struct observation *v = &list->list[i];
        if (is_current(v, now) && (!last || v->at >= last->at)) last = v;
    }
    out->length = 0;
    if (!last) return PL_ENOTFOUND;
    multiaddr_add_ip(out, family, last->ip);
    return multiaddr_add_tcp(out, last->port);
}
