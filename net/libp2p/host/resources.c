/* resources.c - see resources.h. */
#include "resources.h"
#include "net/libp2p/peer/peerstore.h"

#include <stdlib.h>
#include <string.h>

#define MIB (1u << 20)

/* Every limit, 0 where there is none. An honest peer uses one or two connections, a dozen streams,
 * and for moments a message of at most 65 MiB; a NAT may hide a whole swarm. Rows:
 *
 * system     1,024 connections, twice what hivemind's daemon trims at; 256 MiB half-sent, four of the
 *            largest messages; as much on its way out, 64 of the largest answers. Reservations and
 *            circuits as go-libp2p's relay. A dial-back costs one TCP connection
 * reserved   groupmates' messages are the large ones: 1 GiB is the gradients of the reference run,
 *            uncompressed, twice over
 * transient  a handshake takes two round trips: 128 at once are hundreds a second
 * subnet     a quarter of all connections, half or three quarters of all bytes: one owner fills none
 * machine    the same, and dial-backs for a swarm that begins on one machine
 * peer       eight connections; one large message and a half; 16 of the largest answers
 * protocol   half of all streams, so that others can still be asked for */
static const size_t table[SCOPES][RESOURCES] = {
    /*                    connections streams  held       unsent  reservations circuits dial-backs */
    [SCOPE_SYSTEM] = { 1024, 16384, 256 * MIB, 256 * MIB, 128, 128, 240 },
    [SCOPE_RESERVED] = { 512, 16384, 512 * MIB, 1024 * MIB, 128, 128, 240 },
    [SCOPE_TRANSIENT] = { 128, 0, 0, 0, 0, 0, 0 },
    [SCOPE_SUBNET] = { 256, 8192, 192 * MIB, 128 * MIB, 32, 32, 20 },
    [SCOPE_MACHINE] = { 256, 8192, 192 * MIB, 128 * MIB, 32, 32, 40 },
    [SCOPE_PEER] = { 8, 2048, 96 * MIB, 64 * MIB, 1, 16, 3 },
    [SCOPE_PROTOCOL] = { 0, 8192, 0, 0, 0, 0, 0 },
};

void resources_init(struct resources *r, size_t descriptors)
{
    size_t most = descriptors / 2; /* the others are for whom we dial, and for files */
    memset(r, 0, sizeof *r);
    memcpy(r->limits, table, sizeof table);
    r->system.kind = SCOPE_SYSTEM;
    r->reserved.kind = SCOPE_RESERVED;
    r->transient.kind = SCOPE_TRANSIENT;
    if (most >= table[SCOPE_SYSTEM][RESOURCE_CONNECTIONS]) return;
    if (most < 8) most = 8;
    for (enum scope_kind k = SCOPE_SYSTEM; k <= SCOPE_MACHINE; k++)
        r->limits[k][RESOURCE_CONNECTIONS] = table[k][RESOURCE_CONNECTIONS] * most /
                                             table[SCOPE_SYSTEM][RESOURCE_CONNECTIONS];
    for (enum scope_kind k = SCOPE_RESERVED; k <= SCOPE_MACHINE; k++)
        if (!r->limits[k][RESOURCE_CONNECTIONS]) r->limits[k][RESOURCE_CONNECTIONS] = 1;
}

void resources_clear(struct resources *r)
{
    while (r->scopes) {
        struct scope *next = r->scopes->next;
        free(r->scopes);
        r->scopes = next;
    }
}

size_t resources_limit(const struct resources *r, enum scope_kind scope, enum resource kind)
{
    size_t limit = r->limits[scope][kind];
    return limit ? limit : SIZE_MAX;
}

/* --- scopes ----------------------------------------------------------------------------------- */

/* One by one: connections come a thousand times more seldom than what they use. */
static struct scope *find(const struct resources *r, const struct scope *wanted)
{
    struct scope *s = r->scopes;
    while (s && (s->kind != wanted->kind || memcmp(s->key, wanted->key, sizeof s->key)))
        s = s->next;
    return s;
}

static struct scope *enter(struct resources *r, enum scope_kind kind, const void *key, size_t n)
{
    struct scope wanted = { .kind = kind }, *s;
    memcpy(wanted.key, key, n < sizeof wanted.key ? n : sizeof wanted.key);
    s = find(r, &wanted);
    if (!s && (s = malloc(sizeof *s))) {
        *s = wanted;
        s->next = r->scopes;
        r->scopes = s;
    }
    if (s) s->accounts++;
    return s;
}

static void leave(struct resources *r, struct scope *s)
{
    struct scope **at = &r->scopes;
    if (!s || --s->accounts) return;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    free(s);
}

static struct scope *enter_subnet(struct resources *r, const struct multiaddr *remote)
{
    struct multiaddr_target t = { 0 };
    uint8_t key[17] = { 0 };
    int machine = multiaddr_reach(remote) == REACH_LOOPBACK;
    if (multiaddr_target(&t, remote)) t.family = 0;
    key[0] = (uint8_t)t.family;
    memcpy(key + 1, t.ip,
           t.family == 4   ? (machine ? 4 : 3)
           : t.family == 6 ? (machine ? 16 : 8)
                           : 0);
    return enter(r, machine ? SCOPE_MACHINE : SCOPE_SUBNET, key, sizeof key);
}

static struct scope *enter_peer(struct resources *r, const struct peer_id *peer)
{
    return enter(r, SCOPE_PEER, peer->bytes, peer->length);
}

struct scope *resources_enter_protocol(struct resources *r, const char *name)
{
    size_t n = strlen(name), most = sizeof r->system.key;
    const char *end = n > most ? name + n - most : name; /* names differ in what comes last */
    struct scope *s = enter(r, SCOPE_PROTOCOL, end, strlen(end));
    if (!s) return NULL;
    if (s->used[RESOURCE_STREAMS] < resources_limit(r, SCOPE_PROTOCOL, RESOURCE_STREAMS)) {
        s->used[RESOURCE_STREAMS]++;
        return s;
    }
    leave(r, s);
    return NULL;
}

void resources_leave_protocol(struct resources *r, struct scope *protocol)
{
    if (!protocol) return;
    protocol->used[RESOURCE_STREAMS]--;
    leave(r, protocol);
}

/* --- accounts --------------------------------------------------------------------------------- */

static int is_protected(const struct account *a) { return a->peer && a->peer->protectors; }

static struct scope *root(const struct account *a)
{
    return a->dialled || is_protected(a) ? &a->of->reserved : &a->of->system;
}

/* Everything that is charged to it: to one more scope, or from it. */
static void move(const struct account *a, struct scope *s, int on)
{
    for (int k = 0; k < RESOURCES; k++)
        s->used[k] = on ? s->used[k] + a->used[k] : s->used[k] - a->used[k];
}

int resources_open(struct resources *r, struct account *a, const struct multiaddr *remote,
                   int dialled, double now)
{
    if (!(a->subnet = enter_subnet(r, remote))) return PL_ENOMEM;
    a->of = r;
    a->dialled = dialled;
    a->active_at = now;
    a->prev = NULL;
    a->next = r->accounts;
    if (a->next) a->next->prev = a;
    r->accounts = a;
    return PL_OK;
}

int resources_authenticate(struct account *a, const struct peer_id *peer)
{
    struct scope *p = a->of ? enter_peer(a->of, peer) : NULL;
    if (!p) return PL_ENOMEM;
    move(a, root(a), 0);
    move(a, &a->of->transient, 0);
    a->peer = p;
    move(a, root(a), 1);
    move(a, p, 1);
    return PL_OK;
}

void resources_close(struct account *a)
{
    struct resources *r = a->of;
    if (!r) return;
    move(a, root(a), 0);
    move(a, a->subnet, 0);
    move(a, a->peer ? a->peer : &r->transient, 0);
    if (a->prev) a->prev->next = a->next;
    else r->accounts = a->next;
    if (a->next) a->next->prev = a->prev;
    leave(r, a->subnet);
    leave(r, a->peer);
    memset(a->used, 0, sizeof a->used);
    a->subnet = a->peer = NULL;
    a->of = NULL;
}

/* The first scope in which n more are too many. In the reserved one no other limit counts: whom we
 * have asked for may use all of it. */
static const struct scope *full(const struct account *a, enum resource kind, size_t n)
{
    const struct scope *all[] = { a->peer ? a->peer : &a->of->transient, a->subnet, root(a) };
    for (size_t i = all[2]->kind == SCOPE_RESERVED ? 2 : 0; i < PL_COUNT(all); i++) {
        size_t limit = resources_limit(a->of, all[i]->kind, kind);
        if (all[i]->used[kind] > limit || n > limit - all[i]->used[kind]) {
            a->of->limited++;
            return all[i];
        }
    }
    return NULL;
}

static void add(struct account *a, enum resource kind, size_t n)
{
    a->used[kind] += n;
    (a->peer ? a->peer : &a->of->transient)->used[kind] += n;
    a->subnet->used[kind] += n;
    root(a)->used[kind] += n;
}

const struct scope *resources_charge(struct account *a, enum resource kind, size_t n)
{
    const struct scope *no = a->of ? full(a, kind, n) : NULL;
    if (a->of && !no) add(a, kind, n);
    return no;
}

void resources_release(struct account *a, enum resource kind, size_t n)
{
    if (a->of) add(a, kind, -n);
}

const struct scope *resources_count(struct account *a, enum resource kind, size_t n)
{
    size_t before = a->used[kind];
    if (!a->of) return NULL;
    add(a, kind, n - before);
    return n ? full(a, kind, 0) : NULL;
}

/* --- the largest holder ----------------------------------------------------------------------- */

/* A connection of our own choice does not end for a stranger's, and a protected one for none. */
static int may_go(const struct account *a, const struct scope *within, enum resource kind)
{
    if (!a->used[kind]) return 0;
    if (kind == RESOURCE_CONNECTIONS &&
        (is_protected(a) || (a->dialled && within->kind != SCOPE_RESERVED)))
        return 0;
    return within == a->subnet || within == a->peer || within == root(a) ||
           (within == &a->of->transient && !a->peer);
}

static int is_larger(const struct account *a, const struct account *b, enum resource kind)
{
    if (is_protected(a) != is_protected(b)) return is_protected(b);
    if (a->subnet->sum != b->subnet->sum) return a->subnet->sum > b->subnet->sum;
    if (kind == RESOURCE_CONNECTIONS) return a->active_at < b->active_at;
    if (a->peer && b->peer && a->peer->sum != b->peer->sum) return a->peer->sum > b->peer->sum;
    return a->used[kind] > b->used[kind];
}

struct account *resources_largest(struct resources *r, const struct scope *within,
                                  enum resource kind)
{
    struct account *largest = NULL;
    for (struct scope *s = r->scopes; s; s = s->next) s->sum = 0;
    for (struct account *a = r->accounts; a; a = a->next)
        if (may_go(a, within, kind) && !is_protected(a)) {
            a->subnet->sum += a->used[kind];
            if (a->peer) a->peer->sum += a->used[kind];
        }
    for (struct account *a = r->accounts; a; a = a->next)
        if (may_go(a, within, kind) && (!largest || is_larger(a, largest, kind))) largest = a;
    return largest;
}

/* --- protection ------------------------------------------------------------------------------- */

/* Its accounts change from one root to the other. */
static void set_protectors(struct resources *r, struct scope *peer, size_t n)
{
    struct account *a;
    for (a = r->accounts; a; a = a->next)
        if (a->peer == peer) move(a, root(a), 0);
    peer->protectors = n;
    for (a = r->accounts; a; a = a->next)
        if (a->peer == peer) move(a, root(a), 1);
}

int resources_protect(struct resources *r, const struct peer_id *id)
{
    struct scope *peer = enter_peer(r, id); /* stays, whether connected or not */
    if (!peer) return PL_ENOMEM;
    set_protectors(r, peer, peer->protectors + 1);
    return PL_OK;
}

void resources_unprotect(struct resources *r, const struct peer_id *id)
{
    struct scope wanted = { .kind = SCOPE_PEER }, *peer;
    memcpy(wanted.key, id->bytes, id->length);
    if (!(peer = find(r, &wanted)) || !peer->protectors) return;
    set_protectors(r, peer, peer->protectors - 1);
    leave(r, peer);
}
