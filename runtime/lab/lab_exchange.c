/* lab_exchange.c - messages between the peers, by enum pl_outer_exchange.
 *
 *   MEAN     a butterfly all-reduce: every member sends part b of its message to member b, which
 *            sends the mean of part b to every other member once it has all of them
 *   GATHER   every member sends its whole message to every other one; also of a mean that is not
 *            is_reduced, as `potluck train` does, unless the run asks for an all-reduce
 *   GROUP    the same within the groups of pl_noloco_group; also a mean of a run with `groups`
 *   ONE      each message goes to every peer by itself; all apply them in the order of their
 *            numbers
 *
 * An exchange begins when every peer present has its message ready, as a group does that hivemind's
 * matchmaking has assembled; ONE begins at once. If a member leaves, those that remain begin again
 * without it. Its message is left out, too, unless somebody has the whole mean already: a peer that
 * trains on must agree with one that still waits. */
#include "lab_swarm_internal.h"

#include "ref/outer/pairing.h"
#include "ref/rng.h"
#include "ref/small.h"

#include <string.h>

#define PHASE_SCATTER 0
#define PHASE_REST 1 /* a reduced part, or a whole message */

static int is_grid(const struct lab_swarm *s) { return s->setup->groups > 1; }

static enum pl_outer_exchange kind_of(const struct lab_swarm *s)
{
    const struct pl_outer_algorithm *a = s->setup->algorithm;
    if (is_grid(s)) return PL_OUTER_GROUP;
    const int is_gathered = a->exchange == PL_OUTER_MEAN && !a->is_reduced && !s->setup->all_reduce;
    return is_gathered ? PL_OUTER_GATHER : a->exchange;
}

/* --- shared by the swarm's files -------------------------------------------------------------- */

int lab_swarm_report(struct lab_swarm *s, const struct lab_event *e, struct pl_err *err)
{
    return s->event ? s->event(s->context, e, err) : PL_OK;
}

int lab_is_active(const struct lab_swarm *s, int k)
{
    enum lab_activity a = s->peer[k].clock.activity;
    return a == LAB_COMPUTES || a == LAB_WAITS;
}

/* A number in [0,1) that belongs to (what, a, b) alone, so that nothing depends on the order of
 * events. */
double lab_draw(const struct lab_swarm *s, int what, uint64_t a, uint64_t b)
{
    struct pl_rng rng;
    pl_rng_init(&rng, s->setup->seed ^ (a * 0x9e3779b97f4a7c15u), (b << 8) | (uint64_t)what);
    return pl_rng_uniform(&rng);
}

/* --- the list --------------------------------------------------------------------------------- */

static struct exchange *find(const struct lab_swarm *s, uint64_t number)
{
    for (size_t i = 0; i < s->exchanges; i++)
        if (s->exchange[i]->plain.number == number) return s->exchange[i];
    return NULL;
}

struct exchange *lab_exchange_new(struct lab_swarm *s, uint64_t number)
{
    struct exchange *e = pl_alloc(1, sizeof *e);
    size_t at = s->exchanges;
    if (!e || pl_grow(&s->exchange, at, &s->capacity, 16)) {
        pl_free(e);
        return NULL;
    }
    e->plain.number = number;
    for (; at > 0 && s->exchange[at - 1]->plain.number > number; at--)
        s->exchange[at] = s->exchange[at - 1];
    s->exchange[at] = e;
    s->exchanges++;
    return e;
}

static void drop_message(struct exchange *e, int k)
{
    pl_free(e->message[k].data);
    e->message[k] = (struct pl_outer_message){ .data = NULL };
}

static void free_exchange(struct exchange *e)
{
    for (int k = 0; k < LAB_PEERS_MAX; k++) drop_message(e, k);
    pl_free(e);
}

void lab_exchange_clear(struct lab_swarm *s)
{
    for (size_t i = 0; i < s->exchanges; i++) free_exchange(s->exchange[i]);
    pl_free(s->exchange);
    s->exchange = NULL;
    s->exchanges = s->capacity = 0;
}

/* Frees messages that all peers present have applied. */
static void release(struct lab_swarm *s)
{
    uint64_t least = UINT64_MAX;
    size_t kept = 0;
    for (int k = 0; k < s->setup->peers; k++)
        if (lab_is_active(s, k) && s->peer[k].clock.applied < least)
            least = s->peer[k].clock.applied;
    for (size_t i = 0; i < s->exchanges; i++) {
        struct exchange *e = s->exchange[i];
        if (e->plain.number < least && e->plain.has_begun && !e->plain.under_way) free_exchange(e);
        else s->exchange[kept++] = e;
    }
    s->exchanges = kept;
}

/* --- transfers -------------------------------------------------------------------------------- */

static int send(struct lab_swarm *s, struct exchange *e, int from, int to, double bytes, int phase)
{
    uint64_t tag = e->plain.number << 1 | (uint64_t)phase;
    e->plain.under_way++;
    return lab_net_send(&s->net, from, to, bytes, tag);
}

/* Bytes of part i of R: whole bytes, and together the message. */
static double part_bytes(size_t bytes, int i, int R)
{
    size_t r = (size_t)R, k = (size_t)i;
    return (double)(bytes * (k + 1) / r - bytes * k / r);
}

/* The place of member k among the members, so that parts have owners. */
static int place_of(const struct exchange *e, int k)
{
    int place = 0;
    for (int i = 0; i < k; i++) place += e->plain.member[i];
    return place;
}

size_t lab_exchange_bytes(const struct lab_swarm *s, const struct pl_outer_message *m)
{
    return m->bytes + (is_grid(s) ? s->model->n * sizeof(float) : 0);
}

static size_t bytes_of(const struct lab_swarm *s, const struct exchange *e, int k)
{
    return e->message[k].data ? lab_exchange_bytes(s, &e->message[k]) : 0;
}

static int scatter(struct lab_swarm *s, struct exchange *e)
{
    int R = e->plain.members, rc = PL_OK;
    for (int b = 0; b < s->setup->peers; b++) {
        int place = place_of(e, b);
        if (!e->plain.member[b]) continue;
        e->plain.parts[b] = e->plain.messages[b] = R - 1;
        for (int a = 0; a < s->setup->peers && !rc; a++)
            if (a != b && e->plain.member[a])
                rc = send(s, e, a, b, part_bytes(bytes_of(s, e, a), place, R), PHASE_SCATTER);
    }
    return rc;
}

/* Member b has every part that it reduces: the mean of them goes out. */
static int gather_part(struct lab_swarm *s, struct exchange *e, int b)
{
    double bytes = part_bytes(bytes_of(s, e, b), place_of(e, b), e->plain.members);
    int rc = PL_OK;
    for (int k = 0; k < s->setup->peers && !rc; k++)
        if (k != b && e->plain.member[k]) rc = send(s, e, b, k, bytes, PHASE_REST);
    return rc;
}

/* Whole messages among some peers. */
static int gather(struct lab_swarm *s, struct exchange *e, const int *member, int count)
{
    int rc = PL_OK;
    for (int i = 0; i < count; i++) {
        int a = member[i];
        if (!e->plain.member[a]) continue;
        for (int j = 0; j < count && !rc; j++) {
            int b = member[j];
            if (a == b || !e->plain.member[b] || e->plain.done[b]) continue;
            e->plain.messages[b]++;
            rc = send(s, e, a, b, (double)bytes_of(s, e, a), PHASE_REST);
        }
    }
    return rc;
}

/* The group of peer k, in one order for all its members. Returns their number, or a status. */
static int group_of(const struct lab_swarm *s, const struct exchange *e, int k, int *member)
{
    const struct pl_outer *o = s->peer[k].outer;
    const int peers = s->setup->peers;
    return is_grid(s)
               ? pl_noloco_group(member, k, peers, peers / s->setup->groups,
                                 s->setup->seed * 0x9e3779b97f4a7c15u + e->plain.number)
               : pl_noloco_group(member, k, peers, o->setup.group, o->counter[PL_OUTER_STEPS]);
}

static int gather_groups(struct lab_swarm *s, struct exchange *e)
{
    int peers = s->setup->peers, rc = PL_OK, member[LAB_PEERS_MAX + 1];
    uint8_t seen[LAB_PEERS_MAX] = { 0 };
    for (int k = 0; k < peers && !rc; k++) {
        int count;
        if (!e->plain.member[k] || seen[k]) continue;
        count = group_of(s, e, k, member);
        if (count < 0) return count;
        for (int i = 0; i < count; i++) seen[member[i]] = 1;
        rc = gather(s, e, member, count);
    }
    return rc;
}

/* The one message, from its sender, or from the first peer that has it if the sender has left. */
static int send_to_all(struct lab_swarm *s, struct exchange *e)
{
    int source = -1, rc = PL_OK;
    for (int k = 0; k < s->setup->peers; k++)
        if (e->plain.member[k] && (e->message[k].data || (source < 0 && e->plain.done[k])))
            source = k;
    if (source < 0) e->plain.has_failed = 1; /* lost for good */
    for (int k = 0; k < s->setup->peers && !rc; k++) {
        if (source < 0 || k == source || !e->plain.member[k] || e->plain.done[k]) continue;
        for (int i = 0; i < s->setup->peers; i++)
            if (e->message[i].data) {
                e->plain.messages[k] = 1;
                rc = send(s, e, source, k, (double)e->message[i].bytes, PHASE_REST);
            }
    }
    return rc;
}

static int report_end(struct lab_swarm *s, const struct exchange *e, struct pl_err *err)
{
    struct lab_event event = { .kind = LAB_EXCHANGED,
                               .from = e->plain.began,
                               .time = s->net.now,
                               .number = e->plain.number,
                               .members = e->plain.members,
                               .has_failed = e->plain.has_failed };
    return lab_swarm_report(s, &event, err);
}

static int fails(const struct lab_swarm *s, uint64_t number)
{
    return lab_draw(s, LAB_RNG_FAIL, number, 0) < s->setup->fail_share;
}

static int begin(struct lab_swarm *s, struct exchange *e, struct pl_err *err)
{
    int all[LAB_PEERS_MAX], rc = PL_OK;
    if (!e->plain.has_begun) e->plain.began = s->net.now;
    e->plain.has_begun = 1;
    e->plain.members = 0;
    memset(e->plain.parts, 0, sizeof e->plain.parts);
    memset(e->plain.messages, 0, sizeof e->plain.messages);
    for (int k = 0; k < s->setup->peers; k++) {
        e->plain.members += e->plain.member[k];
        all[k] = k;
    }
    switch (kind_of(s)) {
    case PL_OUTER_MEAN: rc = scatter(s, e); break;
    case PL_OUTER_GATHER: rc = gather(s, e, all, s->setup->peers); break;
    case PL_OUTER_GROUP: rc = gather_groups(s, e); break;
    case PL_OUTER_ONE: rc = send_to_all(s, e); break;
    }
    return rc || e->plain.under_way ? rc : report_end(s, e, err);
}

/* Begins an exchange for which every peer present has made its message. */
static int begin_if_ready(struct lab_swarm *s, struct exchange *e, struct pl_err *err)
{
    if (e->plain.has_begun) return PL_OK;
    for (int k = 0; k < s->setup->peers; k++) {
        if (lab_is_active(s, k) && s->peer[k].clock.sent <= e->plain.number) return PL_OK;
        e->plain.member[k] = e->message[k].data != NULL;
    }
    e->plain.has_failed = fails(s, e->plain.number);
    return begin(s, e, err);
}

int lab_exchange_arrived(struct lab_swarm *s, const struct lab_transfer *t, struct pl_err *err)
{
    struct exchange *e = find(s, t->tag >> 1);
    int rc = PL_OK;
    if (!e) return PL_OK;
    if (t->tag & 1) e->plain.messages[t->to]--;
    else if (--e->plain.parts[t->to] == 0) rc = gather_part(s, e, t->to);
    if (--e->plain.under_way || rc) return rc;
    return report_end(s, e, err);
}

/* --- the peers' side -------------------------------------------------------------------------- */

int lab_exchange_send(struct lab_swarm *s, int k, struct pl_err *err)
{
    struct peer *p = &s->peer[k];
    uint64_t number = kind_of(s) == PL_OUTER_ONE ? s->count.numbers++ : p->clock.sent;
    struct exchange *e = find(s, number);
    struct pl_outer_message m;
    int next = pl_outer_message(p->outer, &m, p->x, p->g), rc;
    uint8_t *copy;
    if (next < 0) return next;
    if (!e && !(e = lab_exchange_new(s, number))) return PL_ENOMEM;
    if (!(copy = pl_alloc_unset(lab_exchange_bytes(s, &m) + 1, 1))) return PL_ENOMEM;
    if (m.bytes) memcpy(copy, m.data, m.bytes);
    m.data = copy;
    e->message[k] = m;
    if (is_grid(s) && (rc = s->model->be->get(copy + m.bytes, p->x, s->model->n * sizeof(float))))
        return rc;
    p->clock.sent++;
    p->clock.own = number;
    if (kind_of(s) != PL_OUTER_ONE) rc = begin_if_ready(s, e, err);
    else {
        for (int i = 0; i < s->setup->peers; i++) e->plain.member[i] = lab_is_active(s, i) != 0;
        e->plain.has_failed = fails(s, number);
        rc = begin(s, e, err);
    }
    return rc ? rc : next;
}

static int is_complete(const struct exchange *e, int k)
{
    if (!e->plain.has_begun) return 0;
    if (!e->plain.member[k]) return !e->plain.under_way;
    return e->plain.done[k] || (!e->plain.parts[k] && !e->plain.messages[k]);
}

int lab_exchange_is_here(const struct lab_swarm *s, int k)
{
    const struct peer_clock *p = &s->peer[k].clock;
    uint64_t last = kind_of(s) == PL_OUTER_ONE ? p->own : p->applied;
    for (uint64_t number = p->applied; number <= last; number++) {
        const struct exchange *e = find(s, number);
        if (!e || !is_complete(e, k)) return 0;
    }
    return 1;
}

/* This peer's received messages, in the order that the algorithm requires. */
static int collect(const struct lab_swarm *s, const struct exchange *e, int k,
                   struct pl_outer_message *in)
{
    int order[LAB_PEERS_MAX + 1], n = s->setup->peers, count = 0;
    for (int i = 0; i < n; i++) order[i] = i;
    if (kind_of(s) == PL_OUTER_GROUP) n = group_of(s, e, k, order);
    if (n < 0) return n;
    for (int i = 0; i < n && !e->plain.has_failed; i++)
        if (e->message[order[i]].data) in[count++] = e->message[order[i]];
    return count;
}

/* A grid's groups differ, and so do their means: without more, the peers' parameters would drift
 * apart. Each group averages them, too: x_k += mean of the group's x - x_k, as they were sent. */
static int mix_parameters(struct lab_swarm *s, const struct exchange *e, int k,
                          const struct pl_outer_message *in, int count)
{
    const struct lab_model *m = s->model;
    const struct pl_outer_message *own = &e->message[k];
    const size_t bytes = m->n * sizeof(float);
    float *x = pl_alloc(m->n, sizeof *x), *sent = pl_alloc(m->n, sizeof *sent);
    int rc = x && sent ? m->be->get(x, s->peer[k].x, bytes) : PL_ENOMEM;
    for (int i = 0; !rc && i < count; i++) {
        memcpy(sent, in[i].data + in[i].bytes, bytes);
        for (size_t j = 0; j < m->n; j++) x[j] += sent[j] / (float)count;
    }
    if (!rc) memcpy(sent, own->data + own->bytes, bytes);
    for (size_t j = 0; !rc && j < m->n; j++) x[j] -= sent[j];
    if (!rc) rc = m->be->put(s->peer[k].x, x, bytes);
    pl_free(x);
    pl_free(sent);
    return rc;
}

int lab_exchange_apply(struct lab_swarm *s, int k)
{
    struct peer *p = &s->peer[k];
    uint64_t last = kind_of(s) == PL_OUTER_ONE ? p->clock.own : p->clock.applied;
    struct pl_outer_message in[LAB_PEERS_MAX];
    int next = PL_EUSE;
    while (p->clock.applied <= last) {
        struct exchange *e = find(s, p->clock.applied);
        int count = collect(s, e, k, in);
        if (count < 0) return count;
        if (is_grid(s) && count && e->message[k].data &&
            (next = mix_parameters(s, e, k, in, count)))
            return next;
        next = pl_outer_apply(p->outer, p->x, p->g, in, count);
        if (next < 0) return next;
        e->plain.is_used = 1;
        p->clock.applied++;
    }
    release(s);
    return next;
}

/* --- a member that leaves --------------------------------------------------------------------- */

static int begin_again_without(struct lab_swarm *s, struct exchange *e, int k, struct pl_err *err)
{
    int has_result = e->plain.is_used;
    for (int i = 0; i < s->setup->peers; i++) {
        e->plain.done[i] = e->plain.member[i] && is_complete(e, i);
        has_result |= i != k && e->plain.done[i] && kind_of(s) != PL_OUTER_ONE;
    }
    lab_net_cut_tag(&s->net, e->plain.number << 1, ~(uint64_t)1);
    e->plain.member[k] = e->plain.done[k] = 0;
    e->plain.under_way = 0;
    if (!has_result && kind_of(s) != PL_OUTER_ONE) drop_message(e, k);
    return begin(s, e, err);
}

int lab_exchange_without(struct lab_swarm *s, int k, struct pl_err *err)
{
    int rc = PL_OK;
    for (size_t i = 0; i < s->exchanges && !rc; i++) {
        struct exchange *e = s->exchange[i];
        if (!e->plain.has_begun) {
            drop_message(e, k);
            rc = begin_if_ready(s, e, err);
        } else if (e->plain.under_way && e->plain.member[k]) rc = begin_again_without(s, e, k, err);
        else e->plain.member[k] = 0;
    }
    return rc;
}
