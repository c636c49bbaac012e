/* dht_search.c - the iterative search as an engine: events in (answers, failures, time), nodes to
 * ask out [Kademlia 2.3, spec hivemind-protocol 1.6]. All nodes that answers have named stand in
 * one list, nearest to the key first; each is a candidate, asked, late, answered or failed. The
 * search always asks the nearest candidate among the first `beam` nodes that have not failed
 * (hivemind's beam search, beam = 20).
 *
 * It converges because every answer brings the nodes nearest to the key that the answering node
 * knows: that node's table is fine around itself, and it is already near the key, so each step
 * shares at least one more leading bit with the key. It ends because the beam only fills up with
 * nearer nodes, and each node is asked once. */
#include "dht_search.h"
#include "ref/small.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void dht_search_init(struct dht_search *s, const struct dht_id *key, const struct dht_id *self,
                     double sufficient, const struct validators *validators)
{
    memset(s, 0, sizeof *s);
    s->key = *key;
    s->self = *self;
    /* Kademlia's k: a record lies on the nodes nearest to its key, so the k nearest of them have to
     * answer before "not found" is certain. */
    s->beam = DHT_BUCKET_SIZE;
    s->workers = DHT_SEARCH_WORKERS;
    s->sufficient = sufficient;
    s->patience = s->time = INFINITY;
    s->validators = validators;
    dht_result_init(&s->best);
}

void dht_search_clear(struct dht_search *s)
{
    dht_result_clear(&s->best);
    free(s->nodes);
    s->nodes = NULL;
    s->count = s->capacity = s->asked = s->late = s->vain = s->reported = 0;
    s->late_reported = 0;
}

/* Asked, and neither answer nor failure has come. */
static int is_awaited(const struct dht_search_node *node)
{
    return node->state == SEARCH_ASKED || node->state == SEARCH_LATE;
}

static int is_known(const struct dht_search_node *node) { return !node->reporter.length; }

/* Inserts by distance. Beyond DHT_SEARCH_NODES_MAX the farthest is forgotten: it would never be
 * asked. */
static int add_node(struct dht_search *s, const struct dht_contact *c,
                    const struct peer_id *reporter)
{
    struct dht_search_node node = { .who = *c, .found_expiration = -INFINITY };
    if (reporter) node.reporter = *reporter;
    size_t at = s->count;
    if (dht_id_equal(&c->id, &s->self)) return PL_OK; /* our own record was merged before */
    /* From the far end: most nodes of an answer are about as near as those that are known. */
    while (at && dht_id_nearer(&c->id, &s->nodes[at - 1].who.id, &s->key) < 0) at--;
    /* Equal distance means equal id: known already, under whatever peer ID it came first. A node
     * that reports a false peer ID for a known id thus changes nothing. */
    if (at && dht_id_equal(&c->id, &s->nodes[at - 1].who.id)) return PL_OK;
    if (s->count == DHT_SEARCH_NODES_MAX) { /* the last gives way, unless its answer is awaited */
        const struct dht_search_node *last = &s->nodes[s->count - 1];
        if (at == s->count || is_awaited(last) || last->is_trusted) return PL_OK;
        s->count--;
    }
    if (pl_grow(&s->nodes, s->count, &s->capacity, 32)) return PL_ENOMEM;
    memmove(s->nodes + at + 1, s->nodes + at, (s->count++ - at) * sizeof *s->nodes);
    s->nodes[at] = node;
    return PL_OK;
}

int dht_search_add(struct dht_search *s, const struct dht_contact *known, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (add_node(s, &known[i], NULL)) return PL_ENOMEM;
    return PL_OK;
}

int dht_search_trust(struct dht_search *s, const struct dht_contact *initial, size_t n)
{
    int rc = dht_search_add(s, initial, n);
    for (size_t i = 0; i < s->count; i++)
        for (size_t k = 0; k < n; k++)
            s->nodes[i].is_trusted |= dht_id_equal(&s->nodes[i].who.id, &initial[k].id);
    return rc;
}

static struct dht_search_node *next_trusted(const struct dht_search *s)
{
    for (size_t i = 0; i < s->count && !s->nodes_only; i++)
        if (s->nodes[i].is_trusted && s->nodes[i].state == SEARCH_CANDIDATE) return &s->nodes[i];
    return NULL;
}

/* The nearest candidate within the beam, or NULL. Failed and late nodes take no place in the
 * beam. Nodes that others have reported are asked no longer if most of them do not answer: who
 * invents hundreds of them delays a search by one patience. */
static struct dht_search_node *next_candidate(const struct dht_search *s)
{
    const int are_vain = s->vain >= DHT_SEARCH_VAIN + 2 * s->reported;
    struct dht_search_node *trusted = next_trusted(s);
    size_t ahead = 0;
    if (trusted) return trusted;
    for (size_t i = 0; i < s->count && ahead < s->beam; i++) {
        if (s->nodes[i].state == SEARCH_CANDIDATE && (is_known(&s->nodes[i]) || !are_vain))
            return &s->nodes[i];
        if (s->nodes[i].state == SEARCH_ASKED || s->nodes[i].state == SEARCH_ANSWERED) ahead++;
    }
    return NULL;
}

/* A get without `latest` is content with any record that is alive: the first answer may end it. */
static int found_enough(const struct dht_search *s)
{
    return s->best.type != DHT_NOT_FOUND && s->best.expiration >= s->sufficient;
}

/* At most `workers` questions at once (Kademlia's alpha, which is 3 there): each costs a round
 * trip, so more at once mean fewer rounds; but those that are asked too early ask farther nodes
 * than the answers under way will bring. */
int dht_search_next(struct dht_search *s, struct dht_contact *who)
{
    struct dht_search_node *node;
    if (s->asked >= s->workers || found_enough(s) || !(node = next_candidate(s))) return 0;
    node->state = SEARCH_ASKED;
    node->asked_at = s->now;
    s->asked++;
    *who = node->who;
    return 1;
}

static struct dht_search_node *find_awaited(struct dht_search *s, const struct dht_id *who)
{
    for (size_t i = 0; i < s->count; i++)
        if (is_awaited(&s->nodes[i]) && dht_id_equal(&s->nodes[i].who.id, who)) return &s->nodes[i];
    return NULL;
}

static void end_waiting(struct dht_search *s, struct dht_search_node *node,
                        enum dht_search_state state)
{
    if (node->state == SEARCH_LATE) {
        s->late--;
        s->late_reported -= !is_known(node);
    } else {
        s->asked--;
    }
    node->state = state;
}

/* The record is merged into the best so far; the neighbours become candidates. */
int dht_search_answered(struct dht_search *s, const struct dht_id *who,
                        const struct dht_found *found)
{
    struct dht_search_node *node = find_awaited(s, who);
    struct peer_id reporter;
    int rc = PL_OK;
    if (!node) return PL_OK; /* forgotten, or answered twice */
    s->slowest = fmax(s->slowest, s->now - node->asked_at);
    end_waiting(s, node, SEARCH_ANSWERED);
    s->answered++;
    s->reported += !is_known(node);
    if (found->type != DHT_NOT_FOUND && !isnan(found->expiration))
        node->found_expiration = found->expiration;
    /* The record is checked and merged before the search continues: it may be sufficient. */
    if (!s->nodes_only)
        rc = dht_result_merge(&s->best, s->validators, &s->key,
                              &(struct dht_reporter){ &node->who.peer, s->time, s->subnet,
                                                      s->checks },
                              found->type, found->value, found->n, found->expiration);
    reporter = node->who.peer; /* node moves when others are added */
    for (size_t i = 0; rc != PL_ENOMEM && i < found->nearest_count; i++)
        if (add_node(s, &found->nearest[i], &reporter)) rc = PL_ENOMEM;
    return rc == PL_ENOMEM ? rc : PL_OK;
}

/* A failed node leaves the beam, and the next candidate moves up into it. */
void dht_search_failed(struct dht_search *s, const struct dht_id *who)
{
    struct dht_search_node *node = find_awaited(s, who);
    if (!node) return;
    s->vain += !is_known(node) && node->state == SEARCH_ASKED; /* else it was late: counted */
    end_waiting(s, node, SEARCH_FAILED);
}

/* How long a node may be silent. One that others have reported may not exist. */
static double patience_with(const struct dht_search *s, const struct dht_search_node *node)
{
    const double usual = DHT_SEARCH_REPORTED_TIMES * s->slowest;
    if (is_known(node) || !s->answered) return s->patience;
    return fmin(s->patience, fmax(usual, DHT_SEARCH_REPORTED_MIN));
}

/* Nodes that have been silent for too long become late: others may take their place meanwhile. */
double dht_search_pass(struct dht_search *s)
{
    double next = INFINITY;
    for (size_t i = 0; i < s->count; i++) {
        struct dht_search_node *node = &s->nodes[i];
        if (node->state != SEARCH_ASKED) continue;
        if (s->now >= node->asked_at + patience_with(s, node)) { /* as below: rounded alike */
            node->state = SEARCH_LATE;
            s->asked--;
            s->late++;
            s->late_reported += !is_known(node);
            s->vain += !is_known(node);
        } else {
            next = fmin(next, node->asked_at + patience_with(s, node));
        }
    }
    return next;
}

static int was_asked_in_vain(const struct dht_search_node *node)
{
    return node->state == SEARCH_LATE || node->state == SEARCH_FAILED;
}

/* Only nodes that were asked are looked at: a few dozen. */
void dht_search_judge(const struct dht_search *s,
                      void (*judge)(void *context, const struct peer_id *reporter, int is_vain),
                      void *context)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct peer_id *reporter = &s->nodes[i].reporter;
        size_t vain = 0, answered = 0, before = 0;
        if (is_known(&s->nodes[i]) || s->nodes[i].state == SEARCH_CANDIDATE) continue;
        for (size_t k = 0; k < s->count; k++) {
            const struct dht_search_node *other = &s->nodes[k];
            if (other->state == SEARCH_CANDIDATE || !peer_id_equal(&other->reporter, reporter))
                continue;
            before += k < i; /* judged already */
            vain += (size_t)was_asked_in_vain(other);
            answered += other->state == SEARCH_ANSWERED;
        }
        if (!before && (answered || vain >= DHT_SEARCH_VAIN_OF_ONE))
            judge(context, reporter, !answered);
    }
}

/* Nothing more is worth waiting for: the record is good enough, or no candidate is left and
 * those that are late do not outnumber those that have answered. One dead node thus costs a
 * second, not the call's time limit. */
int dht_search_is_over(const struct dht_search *s)
{
    const size_t late = s->late - s->late_reported;
    const size_t enough = s->first_answer_ends && late ? 1 : late;
    return found_enough(s) || (!s->asked && !next_candidate(s) && s->answered >= enough);
}

/* Only nodes that answered: a store must not go to a node that others only report. */
size_t dht_search_nearest(const struct dht_search *s, struct dht_contact *out, size_t n)
{
    size_t got = 0;
    for (size_t i = 0; i < s->count && got < n; i++)
        if (s->nodes[i].state == SEARCH_ANSWERED) out[got++] = s->nodes[i].who;
    return got;
}

/* The target of caching [Kademlia 2.3]: the nearest node that answered without the record, or with
 * an older one. Searches for a key end among its nearest nodes, so that is where the next reader
 * asks. Written with !(>=) because it is -INFINITY for nothing. */
const struct dht_contact *dht_search_without(const struct dht_search *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->nodes[i].state == SEARCH_ANSWERED &&
            !(s->nodes[i].found_expiration >= s->best.expiration))
            return &s->nodes[i].who;
    return NULL;
}
