/* dht_search.c - see dht_search.h. */
#include "dht_search.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void dht_search_init(struct dht_search *s, const struct dht_id *key, const struct dht_id *self,
                     double sufficient, const struct validators *validators)
{
    memset(s, 0, sizeof *s);
    s->key = *key;
    s->self = *self;
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
    s->count = s->capacity = s->asked = s->late = 0;
}

/* Asked, and neither answer nor failure has come. */
static int is_awaited(const struct dht_search_node *node)
{
    return node->state == SEARCH_ASKED || node->state == SEARCH_LATE;
}

static int add(struct dht_search *s, const struct dht_contact *c)
{
    struct dht_search_node node = { .who = *c, .gave = -INFINITY };
    size_t at = s->count;
    if (dht_id_equal(&c->id, &s->self)) return PL_OK;
    while (at && dht_id_nearer(&c->id, &s->nodes[at - 1].who.id, &s->key) < 0) at--;
    if (at && dht_id_equal(&c->id, &s->nodes[at - 1].who.id)) return PL_OK;
    if (s->count == DHT_SEARCH_NODES_MAX) { /* the last gives way, unless its answer is awaited */
        if (at == s->count || is_awaited(&s->nodes[s->count - 1])) return PL_OK;
        s->count--;
    }
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 32;
        struct dht_search_node *more = realloc(s->nodes, capacity * sizeof *more);
        if (!more) return PL_ENOMEM;
        s->nodes = more;
        s->capacity = capacity;
    }
    memmove(s->nodes + at + 1, s->nodes + at, (s->count++ - at) * sizeof *s->nodes);
    s->nodes[at] = node;
    return PL_OK;
}

int dht_search_add(struct dht_search *s, const struct dht_contact *known, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (add(s, &known[i])) return PL_ENOMEM;
    return PL_OK;
}

/* The nearest candidate within the beam, or NULL. */
static struct dht_search_node *candidate(const struct dht_search *s)
{
    size_t ahead = 0;
    for (size_t i = 0; i < s->count && ahead < s->beam; i++) {
        if (s->nodes[i].state == SEARCH_CANDIDATE) return &s->nodes[i];
        if (s->nodes[i].state == SEARCH_ASKED || s->nodes[i].state == SEARCH_ANSWERED) ahead++;
    }
    return NULL;
}

static int has_enough(const struct dht_search *s)
{
    return s->best.type != DHT_NOT_FOUND && s->best.expiration >= s->sufficient;
}

int dht_search_next(struct dht_search *s, struct dht_contact *who)
{
    struct dht_search_node *node;
    if (s->asked >= s->workers || has_enough(s) || !(node = candidate(s))) return 0;
    node->state = SEARCH_ASKED;
    node->asked_at = s->now;
    s->asked++;
    *who = node->who;
    return 1;
}

static struct dht_search_node *awaited(struct dht_search *s, const struct dht_id *who)
{
    for (size_t i = 0; i < s->count; i++)
        if (is_awaited(&s->nodes[i]) && dht_id_equal(&s->nodes[i].who.id, who)) return &s->nodes[i];
    return NULL;
}

static void settle(struct dht_search *s, struct dht_search_node *node, enum dht_search_state state)
{
    if (node->state == SEARCH_LATE) s->late--;
    else s->asked--;
    node->state = state;
}

int dht_search_answered(struct dht_search *s, const struct dht_id *who,
                        const struct dht_found *found)
{
    struct dht_search_node *node = awaited(s, who);
    int rc = PL_OK;
    if (!node) return PL_OK;
    settle(s, node, SEARCH_ANSWERED);
    s->answered++;
    if (found->type != DHT_NOT_FOUND && !isnan(found->expiration)) node->gave = found->expiration;
    if (!s->nodes_only)
        rc = dht_result_merge(&s->best, s->validators, &s->key,
                              &(struct dht_reporter){ &node->who.peer, s->time }, found->type,
                              found->value, found->n, found->expiration);
    return rc == PL_ENOMEM ? rc : dht_search_add(s, found->nearest, found->nearest_count);
}

void dht_search_failed(struct dht_search *s, const struct dht_id *who)
{
    struct dht_search_node *node = awaited(s, who);
    if (node) settle(s, node, SEARCH_FAILED);
}

double dht_search_pass(struct dht_search *s)
{
    double next = INFINITY;
    for (size_t i = 0; i < s->count; i++) {
        struct dht_search_node *node = &s->nodes[i];
        if (node->state != SEARCH_ASKED) continue;
        if (s->now >= node->asked_at + s->patience) { /* as below: rounded alike */
            node->state = SEARCH_LATE;
            s->asked--;
            s->late++;
        } else {
            next = fmin(next, node->asked_at + s->patience);
        }
    }
    return next;
}

int dht_search_is_over(const struct dht_search *s)
{
    size_t enough = s->one_will_do && s->late ? 1 : s->late;
    return has_enough(s) || (!s->asked && !candidate(s) && s->answered >= enough);
}

size_t dht_search_nearest(const struct dht_search *s, struct dht_contact *out, size_t n)
{
    size_t got = 0;
    for (size_t i = 0; i < s->count && got < n; i++)
        if (s->nodes[i].state == SEARCH_ANSWERED) out[got++] = s->nodes[i].who;
    return got;
}

const struct dht_contact *dht_search_without(const struct dht_search *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->nodes[i].state == SEARCH_ANSWERED && !(s->nodes[i].gave >= s->best.expiration))
            return &s->nodes[i].who;
    return NULL;
}
