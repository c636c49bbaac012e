/* dht_task.h - requests to a node, and how their results come back: each callback is called
 * once, on the loop's thread, and never from inside of the function that accepted the request. */
#ifndef PL_DHT_TASK_H
#define PL_DHT_TASK_H

#include "net/libp2p/host/host.h"
#include "net/hivemind/kademlia/dht_clock.h"
#include "net/hivemind/kademlia/dht_result.h"
#include "net/hivemind/moderation/auth.h"
#include "net/list.h"

#define DHT_CALL_LIMIT 3.0  /* s for one call, as hivemind */
#define DHT_DIAL_LIMIT 10.0 /* s to reach an initial peer */
#define DHT_JOIN_LIMIT 3.0  /* s for the other initial peers once one has answered */
#define DHT_INITIAL_MAX 64  /* initial peers */

/* PL_OK: joined. Otherwise err has a sentence for each initial peer: the fault, and on which side
 * it is. The node keeps trying, and joined is called again when it has succeeded. */
typedef void dht_joined(void *context, int status, const struct pl_err *err);

/* PL_OK and a result (borrowed; signatures removed, nothing expired in it); PL_ENOTFOUND: no
 * node has it, or none answered. */
typedef void dht_got(void *context, int status, const struct dht_result *r);

/* PL_OK: most of the replicas that answered have taken it; PL_EAGAIN: they have refused (expired,
 * not newer, not valid); PL_EIO: no node answered; PL_EPROTO: our own validators refuse it. */
typedef void dht_stored(void *context, int status);

struct dht_pong {
    double seconds;     /* there and back */
    double clock_error; /* its clock minus our DHT time; NAN: it did not say */
    int has_id, available;
    struct dht_id id;
    const char *error; /* a sentence when status is not PL_OK */
};
typedef void dht_pinged(void *context, int status, const struct dht_pong *pong);

/* PL_OK: a member. Anything else: it has shown no valid token. */
typedef void dht_admitted(void *context, int status);

/* A pending request of the user's; each part keeps a list of its own. */
struct dht_task {
    union {
        dht_got *got;
        dht_stored *stored;
        dht_pinged *pinged;
        dht_admitted *admitted;
    };
    void *context;
    void *part; /* that keeps it */
    int cancelled;
    struct dht_task *next, *prev;
};

static inline void dht_task_push(struct dht_task **list, struct dht_task *t, void *part,
                                 void *context)
{
    t->part = part;
    t->context = context;
    list_add(list, t);
}

#endif
