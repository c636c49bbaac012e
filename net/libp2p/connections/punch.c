/* punch.c - the dials of one attempt, and which accepted connections belong to one.
 *
 * An ordinary dial leaves from a free port: from the listening one its packet would open our router
 * before the time, and the other side's could then reach our listener, whose answer does not belong
 * to the connection that our router remembers.
 *
 * A refusal (RST) means that the packet came before the other router's way was open: that address
 * is dialed again until PUNCH_LIMIT is over. */
#include "punch.h"
#include "net/list.h"

#include <stdio.h>
#include <stdlib.h>

struct punch_dial {
    struct punch *punch;
    struct multiaddr to;
    struct dial *dial;
    int is_over; /* this address does not lead to the peer */
    struct timer again;
};

struct punch {
    struct dialing *of;
    struct punch_expected expected; /* the accepted connection that counts as this one */
    enum punch_role role;
    struct punch_dial dials[PUNCH_ADDRESSES_MAX];
    size_t count;
    int is_late; /* PUNCH_LIMIT is over: handshakes may end, nothing is dialed */
    struct timer timer;
    punch_done *done;
    void *context;
    char why[200]; /* the last failure */
};

static struct loop *loop_of(const struct punch *p) { return p->of->core->loop; }

/* The other side may have chosen the connection that has not opened here yet: it goes on. */
void punch_cancel(struct punch *p)
{
    if (!p) return;
    if (p->role == PUNCH_DIALER) list_remove(&p->of->connections->expected, &p->expected);
    timer_stop(&p->timer);
    for (size_t i = 0; i < p->count; i++) {
        timer_stop(&p->dials[i].again);
        if (p->dials[i].dial) dial_release(p->dials[i].dial);
    }
    free(p);
}

static void finish(struct punch *p, int status)
{
    punch_done *done = p->done;
    void *context = p->context;
    struct pl_err why;
    pl_fail(&why, status, "%s", p->why);
    done(context, p, status, why.text);
    punch_cancel(p);
}

/* 1: nothing is under way, nor will be. With both sides dialing, the other side's packet may still
 * come in until the time is over. */
static int has_failed(const struct punch *p)
{
    for (size_t i = 0; i < p->count; i++) {
        const struct punch_dial *d = &p->dials[i];
        if (d->dial) return 0;
        if (!p->is_late && (p->role != PUNCH_CALL || !d->is_over)) return 0;
    }
    return 1;
}

static void dial_one(void *context);

/* A refused address again, later; one that is not the peer's, never. */
static void on_dialed(void *context, struct dial *dial, int status, const struct peer_id *peer,
                      const char *why)
{
    struct punch_dial *d = context;
    struct punch *p = d->punch;
    d->dial = NULL;
    if (!status) {
        finish(p, PL_OK);
        return;
    }
    snprintf(p->why, sizeof p->why, "%s", why);
    d->is_over = p->role == PUNCH_CALL || status != PL_EIO;
    if (!d->is_over && !p->is_late) timer_start(loop_of(p), &d->again, PUNCH_REDIAL, dial_one, d);
    if (has_failed(p)) finish(p, PL_EIO);
}

static void dial_one(void *context)
{
    struct punch_dial *d = context;
    struct punch *p = d->punch;
    enum dial_port port = p->role == PUNCH_CALL ? DIAL_FREE_PORT : DIAL_LISTENING_PORT;
    d->dial = dial_new(p->of, &d->to, &p->expected.peer, port, on_dialed, d);
    if (d->dial) dial_invited(d->dial, p->role == PUNCH_LISTENER, p->role != PUNCH_CALL);
}

static void on_over(void *context)
{
    struct punch *p = context;
    snprintf(p->why, sizeof p->why, "no connection within %.0f s", PUNCH_LIMIT);
    finish(p, PL_EAGAIN);
}

/* Established connections may complete their handshakes; the other dials are dropped. */
static void on_late(void *context)
{
    struct punch *p = context;
    p->is_late = 1;
    for (size_t i = 0; i < p->count; i++) {
        struct punch_dial *d = &p->dials[i];
        timer_stop(&d->again);
        if (!d->dial || dial_in_handshake(d->dial)) continue;
        dial_abandon(d->dial);
        d->dial = NULL;
    }
    if (has_failed(p)) on_over(p);
    else timer_start(loop_of(p), &p->timer, PUNCH_LIMIT, on_over, p);
}

struct punch *punch_start(struct dialing *of, const struct peer_id *peer,
                          const struct multiaddr *to, size_t count, enum punch_role role,
                          punch_done *done, void *context)
{
    struct punch *p = count ? calloc(1, sizeof *p) : NULL;
    if (!p) return NULL;
    p->of = of;
    p->role = role;
    p->done = done;
    p->context = context;
    p->expected.peer = *peer;
    p->count = count < PUNCH_ADDRESSES_MAX ? count : PUNCH_ADDRESSES_MAX;
    snprintf(p->why, sizeof p->why, "not dialed");
    for (size_t i = 0; i < p->count; i++) {
        p->dials[i].punch = p;
        p->dials[i].to = p->expected.from[i] = to[i];
        multiaddr_strip_peer(&p->dials[i].to, peer);
        dial_one(&p->dials[i]);
    }
    p->expected.count = p->count;
    if (role == PUNCH_DIALER) list_add(&of->connections->expected, &p->expected);
    timer_start(loop_of(p), &p->timer, PUNCH_LIMIT, on_late, p);
    return p;
}

/* --- which addresses -------------------------------------------------------------------------- */

/* 1: the first bits of both are equal, as many as the mask has. */
static int same_network(const uint8_t *a, const uint8_t *b, const uint8_t *mask, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((a[i] ^ b[i]) & mask[i]) return 0;
    return 1;
}

static int is_near(const struct multiaddr_target *t)
{
    uv_interface_address_t *list;
    int count, near = 0;
    if (uv_interface_addresses(&list, &count)) return 0;
    for (int i = 0; i < count; i++) {
        const uv_interface_address_t *a = &list[i];
        if (a->is_internal) continue;
        if (t->family == 4 && a->address.address4.sin_family == AF_INET)
            near |= same_network(t->ip, (const uint8_t *)&a->address.address4.sin_addr,
                                 (const uint8_t *)&a->netmask.netmask4.sin_addr, 4);
        if (t->family == 6 && a->address.address6.sin6_family == AF_INET6)
            near |= same_network(t->ip, (const uint8_t *)&a->address.address6.sin6_addr,
                                 (const uint8_t *)&a->netmask.netmask6.sin6_addr, 16);
    }
    uv_free_interface_addresses(list, count);
    return near;
}

int punch_may_dial(const struct multiaddr *a, const struct multiaddr *over)
{
    struct multiaddr_target t;
    if (multiaddr_target(&t, a) || !t.family || t.relay.length || !t.port) return 0;
    switch (multiaddr_scope(a)) {
    case SCOPE_PUBLIC: return 1;
    case SCOPE_PRIVATE: return is_near(&t);
    case SCOPE_LOOPBACK: break;
    }
    return multiaddr_scope(over) == SCOPE_LOOPBACK;
}
