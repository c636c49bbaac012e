/* resources.c - counts in scopes, and one table of limits.
 *
 * A charge is allowed where every scope of the account has space for it, from the nearest (the
 * peer) to the farthest (all strangers). So a greedy peer meets its own limit before it can
 * touch others', and an owner of many identities meets its subnet's. Only the reserved scope
 * stands alone: peers of our own choice may use all of it, whatever strangers do. */
#include "resources.h"
#include "net/libp2p/peer/peerstore.h"
#include "net/list.h"

#include <stdlib.h>
#include <string.h>

#define MIB (1u << 20)

/* Every limit; 0: none. An honest peer uses one or two connections, a dozen streams, and for
 * moments a message of at most 65 MiB; a NAT may hide a whole swarm. By row:
 *
 * system     1,024 connections, twice the number at which hivemind's daemon trims; 256 MiB
 *            half-sent, four of the largest messages; as much on its way out, 64 of the largest
 *            responses. Reservations and circuits as go-libp2p's relay. A dial-back costs one TCP
 *            connection. 64 MiB of records and 16 MiB of cached ones: a run of 1,000 peers needs 2.
 *            Half of the loop: the other half is for training peers
 * reserved   groupmates send the large messages: 1 GiB is the gradients of the reference run,
 *            uncompressed, twice over. The time of protected peers is not bounded: without it there
 *            is no averaging. Their records are bounded as everybody's. Of others that we have
 *            dialed, the connections alone are charged here
 * transient  a handshake takes two round trips: 128 at once are hundreds a second
 * subnet     a quarter of all connections, half or three quarters of all bytes, half of the time:
 *            one owner fills none
 * machine    the same, but more dial-backs and time, for a swarm that begins on one machine
 * peer       eight connections; one large message and a half; 16 of the largest responses; 12 MiB
 *            of records: half as much again as a node hands over at once, and less than any kind
 *            of them may take together; a fifth of a second: 2,000 look-ups. Decryption and
 *            handshakes count, too; a handshake is its subnet's
 * protocol   half of all streams, so that other protocols can still be asked for */
static const size_t table[SCOPES][RESOURCES] = {
    /* connections, streams, held, unsent, reservations, circuits, dial-backs, records, us of
     * handlers */
    [SCOPE_SYSTEM] = { 1024, 16384, 256 * MIB, 256 * MIB, 128, 128, 240, 80 * MIB, 500000 },
    [SCOPE_RESERVED] = { 512, 16384, 512 * MIB, 1024 * MIB, 128, 128, 240, 0, 0 },
    [SCOPE_TRANSIENT] = { 128, 0, 0, 0, 0, 0, 0, 0, 0 },
    [SCOPE_SUBNET] = { 256, 8192, 192 * MIB, 128 * MIB, 32, 32, 20, 32 * MIB, 250000 },
    [SCOPE_MACHINE] = { 256, 8192, 192 * MIB, 128 * MIB, 32, 32, 40, 32 * MIB, 500000 },
    [SCOPE_PEER] = { 8, 2048, 96 * MIB, 64 * MIB, 1, 16, 3, 12 * MIB, 200000 },
    [SCOPE_PROTOCOL] = { 0, 8192, 0, 0, 0, 0, 0, 0, 0 },
};

const char *resource_name(enum resource kind)
{
    static const char *const names[RESOURCES] = {
        [RESOURCE_CONNECTIONS] = "connections",   [RESOURCE_STREAMS] = "streams",
        [RESOURCE_HELD] = "held_bytes",           [RESOURCE_UNSENT] = "unsent_bytes",
        [RESOURCE_RESERVATIONS] = "reservations", [RESOURCE_CIRCUITS] = "circuits",
        [RESOURCE_DIAL_BACKS] = "dial_backs",     [RESOURCE_RECORDS] = "record_bytes",
        [RESOURCE_HANDLER_US] = "handler_us"
    };
    return names[kind];
}

void resources_init(struct resources *r, size_t descriptors)
{
    size_t most = descriptors / 2; /* the others are for peers that we dial, and for files */
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

/* A linear search: connections come a thousand times less often than charges to their scopes. */
static struct scope *find_scope(const struct resources *r, const struct scope *wanted)
{
    struct scope *s = r->scopes;
    while (s && (s->kind != wanted->kind || memcmp(s->key, wanted->key, sizeof s->key)))
        s = s->next;
    return s;
}

static int is_subnet(const struct scope *s)
{
    return s->kind == SCOPE_SUBNET || s->kind == SCOPE_MACHINE;
}

static struct scope *enter_scope(struct resources *r, enum scope_kind kind, const void *key,
                                 size_t n)
{
    struct scope wanted = { .kind = kind }, *s;
    memcpy(wanted.key, key, n < sizeof wanted.key ? n : sizeof wanted.key);
    s = find_scope(r, &wanted);
    if (!s && (s = malloc(sizeof *s))) {
        *s = wanted;
        s->next = r->scopes;
        r->scopes = s;
        r->subnets += is_subnet(s);
    }
    if (s) s->accounts++;
    return s;
}

/* A scope without an account is kept until resources_renew if it has used time on the loop. */
static int is_unused(const struct scope *s)
{
    return !s->accounts && !s->used[RESOURCE_HANDLER_US];
}

static void free_scope(struct resources *r, struct scope **at)
{
    struct scope *s = *at;
    *at = s->next;
    r->subnets -= is_subnet(s);
    free(s);
}

static void leave_scope(struct resources *r, struct scope *s)
{
    struct scope **at = &r->scopes;
    if (!s) return;
    s->accounts--;
    if (!is_unused(s)) return;
    while (*at != s) at = &(*at)->next;
    free_scope(r, at);
}

static struct scope *enter_subnet(struct resources *r, const struct multiaddr *remote)
{
    struct multiaddr_target t = { 0 };
    uint8_t key[17] = { 0 };
    int machine = multiaddr_scope(remote) == SCOPE_LOOPBACK;
    if (multiaddr_target(&t, remote)) t.family = 0;
    key[0] = (uint8_t)t.family;
    memcpy(key + 1, t.ip,
           t.family == 4   ? (machine ? 4 : 3)
           : t.family == 6 ? (machine ? 16 : 8)
                           : 0);
    return enter_scope(r, machine ? SCOPE_MACHINE : SCOPE_SUBNET, key, sizeof key);
}

static struct scope *enter_peer(struct resources *r, const struct peer_id *peer)
{
    return enter_scope(r, SCOPE_PEER, peer->bytes, peer->length);
}

struct scope *resources_enter_protocol(struct resources *r, const char *name)
{
    size_t n = strlen(name), most = sizeof r->system.key;
    const char *end = n > most ? name + n - most : name; /* names differ at their ends */
    struct scope *s = enter_scope(r, SCOPE_PROTOCOL, end, strlen(end));
    if (!s) return NULL;
    if (s->used[RESOURCE_STREAMS] < resources_limit(r, SCOPE_PROTOCOL, RESOURCE_STREAMS)) {
        s->used[RESOURCE_STREAMS]++;
        return s;
    }
    leave_scope(r, s);
    return NULL;
}

void resources_leave_protocol(struct resources *r, struct scope *protocol)
{
    if (!protocol) return;
    protocol->used[RESOURCE_STREAMS]--;
    leave_scope(r, protocol);
}

/* --- accounts --------------------------------------------------------------------------------- */

static int is_protected(const struct account *a) { return a->peer && a->peer->protectors; }

/* A peer that we have dialed may be any node of the DHT. The connection itself is our choice; what
 * it then sends is that of a stranger, unless the peer is protected. */
static struct scope *root(const struct account *a, enum resource kind)
{
    int is_ours = is_protected(a) || (a->dialed && kind == RESOURCE_CONNECTIONS);
    return is_ours ? &a->of->reserved : &a->of->system;
}

/* Adds all that the account holds to a scope, or takes it away; NULL: its root. Time stays where it
 * was used. */
static void move(const struct account *a, struct scope *to, int on)
{
    for (int k = 0; k < RESOURCE_HANDLER_US; k++) {
        struct scope *s = to ? to : root(a, k);
        s->used[k] = on ? s->used[k] + a->used[k] : s->used[k] - a->used[k];
    }
}

int resources_open(struct resources *r, struct account *a, const struct multiaddr *remote,
                   int dialed, double now)
{
    if (!(a->subnet = enter_subnet(r, remote))) return PL_ENOMEM;
    a->of = r;
    a->dialed = dialed;
    a->active_at = now;
    a->prev = NULL;
    list_add(&r->accounts, a);
    return PL_OK;
}

int resources_authenticate(struct account *a, const struct peer_id *peer)
{
    struct scope *p = a->of ? enter_peer(a->of, peer) : NULL;
    if (!p) return PL_ENOMEM;
    move(a, NULL, 0);
    move(a, &a->of->transient, 0);
    a->peer = p;
    move(a, NULL, 1);
    move(a, p, 1);
    return PL_OK;
}

void resources_close(struct account *a)
{
    struct resources *r = a->of;
    if (!r) return;
    move(a, NULL, 0);
    move(a, a->subnet, 0);
    move(a, a->peer ? a->peer : &r->transient, 0);
    list_remove(&r->accounts, a);
    leave_scope(r, a->subnet);
    leave_scope(r, a->peer);
    memset(a->used, 0, sizeof a->used);
    a->subnet = a->peer = NULL;
    a->of = NULL;
}

/* The first scope in which n more are too many. In the reserved one no other limit counts: peers of
 * our own choice may use all of it. */
static const struct scope *find_full(const struct account *a, enum resource kind, size_t n)
{
    const struct scope *all[] = { a->peer ? a->peer : &a->of->transient, a->subnet, root(a, kind) };
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
    root(a, kind)->used[kind] += n;
}

const struct scope *resources_charge(struct account *a, enum resource kind, size_t n)
{
    const struct scope *full = a->of ? find_full(a, kind, n) : NULL;
    if (a->of && !full) add(a, kind, n);
    return full;
}

void resources_release(struct account *a, enum resource kind, size_t n)
{
    if (a->of) add(a, kind, -n);
}

void resources_report(struct resources *r, enum resource kind, size_t n)
{
    r->system.used[kind] = n;
}

const struct scope *resources_count(struct account *a, enum resource kind, size_t n)
{
    size_t before = a->used[kind];
    if (!a->of) return NULL;
    add(a, kind, n - before);
    return n ? find_full(a, kind, 0) : NULL;
}

/* --- time on the loop ------------------------------------------------------------------------- */

void resources_begin_handler(struct handler_charge *h, struct account *a)
{
    *h = (struct handler_charge){ 0 };
    if (!a->of) return;
    *h = (struct handler_charge){ a->peer, a->subnet, root(a, RESOURCE_HANDLER_US) };
    if (h->peer) h->peer->accounts++; /* the handler may close the account */
    h->subnet->accounts++;
}

void resources_end_handler(struct resources *r, struct handler_charge *h, size_t us)
{
    if (!h->subnet) return;
    if (h->peer) h->peer->used[RESOURCE_HANDLER_US] += us;
    h->subnet->used[RESOURCE_HANDLER_US] += us;
    h->root->used[RESOURCE_HANDLER_US] += us;
    leave_scope(r, h->peer);
    leave_scope(r, h->subnet);
}

static int used_up(const struct resources *r, const struct scope *s)
{
    return s->used[RESOURCE_HANDLER_US] >= resources_limit(r, s->kind, RESOURCE_HANDLER_US);
}

int resources_must_wait(const struct account *a)
{
    const struct resources *r = a->of;
    const struct scope *all = root(a, RESOURCE_HANDLER_US);
    if (all->kind == SCOPE_RESERVED) return 0;
    if ((a->peer && used_up(r, a->peer)) || used_up(r, a->subnet)) return 1;
    return used_up(r, all) && a->subnet->used[RESOURCE_HANDLER_US] >= HANDLER_EQUAL_US / r->subnets;
}

void resources_renew(struct resources *r, double now)
{
    size_t share = r->limits[SCOPE_PEER][RESOURCE_HANDLER_US];
    size_t most = (HANDLER_DEBT_WINDOWS + 1) * share;
    double windows = (now - r->window_at) / HANDLER_WINDOW;
    size_t paid;
    if (windows < 1) return;
    paid = share * (windows < HANDLER_DEBT_WINDOWS ? (size_t)windows : HANDLER_DEBT_WINDOWS + 1);
    r->window_at = now;
    r->system.used[RESOURCE_HANDLER_US] = r->reserved.used[RESOURCE_HANDLER_US] = 0;
    for (struct scope **at = &r->scopes; *at;) {
        size_t *used = &(*at)->used[RESOURCE_HANDLER_US];
        /* A peer pays its share each second. Its subnet owes nothing: its neighbours are
         * innocent. */
        if (*used > most) *used = most;
        *used = (*at)->kind == SCOPE_PEER && *used > paid ? *used - paid : 0;
        if (is_unused(*at)) free_scope(r, at);
        else at = &(*at)->next;
    }
}

/* --- the largest holder ----------------------------------------------------------------------- */

/* A connection of our own choice does not end for a stranger's, and a protected one for none. */
static int may_go(const struct account *a, const struct scope *within, enum resource kind)
{
    if (!a->used[kind]) return 0;
    if (kind == RESOURCE_CONNECTIONS &&
        (is_protected(a) || (a->dialed && within->kind != SCOPE_RESERVED)))
        return 0;
    return within == a->subnet || within == a->peer || within == root(a, kind) ||
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
        if (a->peer == peer) move(a, NULL, 0);
    peer->protectors = n;
    for (a = r->accounts; a; a = a->next)
        if (a->peer == peer) move(a, NULL, 1);
}

int resources_protect(struct resources *r, const struct peer_id *id)
{
    struct scope *peer = enter_peer(r, id); /* stays, whether connected or not */
    if (!peer) return PL_ENOMEM;
    set_protectors(r, peer, peer->protectors + 1);
    return PL_OK;
}

static struct scope *find_peer(const struct resources *r, const struct peer_id *id)
{
    struct scope wanted = { .kind = SCOPE_PEER };
    memcpy(wanted.key, id->bytes, id->length);
    return find_scope(r, &wanted);
}

int resources_protects(const struct resources *r, const struct peer_id *id)
{
    const struct scope *peer = find_peer(r, id);
    return peer && peer->protectors;
}

void resources_unprotect(struct resources *r, const struct peer_id *id)
{
    struct scope *peer = find_peer(r, id);
    if (!peer || !peer->protectors) return;
    set_protectors(r, peer, peer->protectors - 1);
    leave_scope(r, peer);
}
