/* dht_search.h - an iterative search: which node to ask next, and when to stop. An engine: answers
 * and failures come in, nodes to ask go out. [spec hivemind-protocol 1.6] [Kademlia 2.3]
 *
 *   nodes known to us
 *        |            next: the nearest not yet asked, among the `beam` nearest that did not fail
 *        v           +--------------------------------------------+
 *    candidates ---> asked (at most `workers` at once) --answer---+--> answered
 *        ^               |   \ \------failure---> failed          |      ^
 *        |               |    \---silence---> late ---answer------|------+
 *        +---------------+----- the answer's nearest nodes -------+
 *
 * Over when the result is sufficient, or when no node of the beam is left to ask and at most as
 * many are late as have answered. A late node is only passed over: its place in the beam is
 * another's meanwhile, and what it says while the search lasts counts.
 *
 * Ids are chosen freely, so the nodes near a key may all be one stranger's. A few initial peers are
 * asked besides the beam: records that they have cannot be hidden. Nodes that others report may not
 * exist: once most of them are silent, only those that we know are asked. */
#ifndef PL_DHT_SEARCH_H
#define PL_DHT_SEARCH_H

#include "dht_result.h"

#define DHT_SEARCH_WORKERS 8     /* hivemind's 4 need five rounds for the beam, these three */
#define DHT_SEARCH_PATIENCE 1.0  /* s of silence beyond the usual response time */
#define DHT_SEARCH_NODES_MAX 512 /* the farthest are forgotten first; the beam is 20 */
#define DHT_SEARCH_TRUSTED 2     /* initial peers that are asked whatever their distance */
/* Nodes that others report, and that do not answer: this many, and two more for each that does, are
 * enough. */
#define DHT_SEARCH_VAIN 8
#define DHT_SEARCH_VAIN_OF_ONE 3
/* And they are late after ten times as long as the slowest answer of the search has taken: looking
 * for an address, a connection, two handshakes, the question; but not before: */
#define DHT_SEARCH_REPORTED_TIMES 10
#define DHT_SEARCH_REPORTED_MIN 0.2 /* s */

enum dht_search_state {
    SEARCH_CANDIDATE,
    SEARCH_ASKED,
    SEARCH_LATE,
    SEARCH_ANSWERED,
    SEARCH_FAILED
};

struct dht_search_node {
    struct dht_contact who;
    enum dht_search_state state;
    struct peer_id reporter; /* whose word it is that the node exists; length 0: we know it */
    int is_trusted;          /* an initial peer: asked first, and in any case */
    double asked_at;
    double found_expiration; /* of the record in its answer; -INFINITY: none */
};

struct dht_search {
    struct dht_id key, self;
    size_t beam, workers;
    double sufficient;     /* an expiration; INFINITY: ask all of the beam */
    double now;            /* s on the caller's clock; the caller keeps it up to date */
    double time;           /* DHT time, likewise; INFINITY: not known, no record lives too long */
    double patience;       /* s of silence until a node is late; INFINITY: never */
    int first_answer_ends; /* 1: one answer is enough to end without the late nodes */
    int nodes_only;        /* 1: only the nearest nodes are wanted, not the record */
    const struct validators *validators;
    struct dht_checks *checks; /* borrowed; allowances of those that answer; NULL: no limit */
    uint64_t subnet;           /* of the node that answers; the caller keeps it up to date */
    struct dht_result best;
    struct dht_search_node *nodes; /* by distance to the key, all states */
    size_t count, capacity, asked, late, answered;
    double slowest;        /* s that an answer has taken */
    size_t late_reported;  /* late ones that only others knew: the search does not wait for them */
    size_t vain, reported; /* of those that only others knew: silent or failed; answered */
};

/* sufficient: see above. The caller adds the nodes that it knows, and its own records (by
 * dht_result_merge into best). */
void dht_search_init(struct dht_search *s, const struct dht_id *key, const struct dht_id *self,
                     double sufficient, const struct validators *validators);
void dht_search_clear(struct dht_search *s);
int dht_search_add(struct dht_search *s, const struct dht_contact *known, size_t n);

/* The user's word stands for these: nodes near a key may all be one stranger's, since ids are
 * chosen freely. They are asked unless the search is about nodes alone. */
int dht_search_trust(struct dht_search *s, const struct dht_contact *initial, size_t n);

/* 1: ask *who; 0: no node now. */
int dht_search_next(struct dht_search *s, struct dht_contact *who);
/* Nodes that the caller does not want to meet (blacklisted) it takes out of `found` before. */
int dht_search_answered(struct dht_search *s, const struct dht_id *who,
                        const struct dht_found *found);
void dht_search_failed(struct dht_search *s, const struct dht_id *who);
/* Nodes that have been silent for too long become late. Returns when the next one will be;
 * INFINITY: none. */
double dht_search_pass(struct dht_search *s);
/* After a search: what one node has reported came to nothing. `judge` is called for each node that
 * reported others: is_vain 1 if DHT_SEARCH_VAIN_OF_ONE of them were asked and none has answered, 0
 * if one has. */
void dht_search_judge(const struct dht_search *s,
                      void (*judge)(void *context, const struct peer_id *reporter, int is_vain),
                      void *context);
/* 1: nothing that can still come is worth waiting for. */
int dht_search_is_over(const struct dht_search *s);

/* The nodes that have answered, nearest first; returns how many, at most n. */
size_t dht_search_nearest(const struct dht_search *s, struct dht_contact *out, size_t n);
/* The nearest node that answered without the best record. NULL: none. */
const struct dht_contact *dht_search_without(const struct dht_search *s);

#endif
