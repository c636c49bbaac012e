/* dht_calls.h - calls to other nodes. All calls to one peer in one iteration of the loop travel in
 * one message. */
#ifndef PL_DHT_CALLS_H
#define PL_DHT_CALLS_H

#include "net/hivemind/dht_core/dht_core.h"

struct dht_calls {
    struct dht_core *core;
    struct dht_call_out *list; /* waiting to be sent, or for an answer */
    /* A node has answered: see dht_table.h, which sets it. */
    void (*seen)(void *context, const struct dht_id *id, const struct peer_id *peer);
    void *context;
};

struct dht_reply {
    /* as rpc_result's; PL_EPROTO also for an answer that cannot be parsed */
    int status;
    const char *error;
    const struct dht_found *found; /* find */
    int stored;                    /* store */
    const struct dht_answer *pong; /* ping */
    double seconds;                /* round trip */
};
typedef void dht_replied(void *context, const struct dht_contact *who, const struct dht_reply *r);
/* replied may be NULL. PL_OK or PL_ENOMEM; replied will be called after PL_OK only, and never from
 * inside of these functions. */
int dht_ask_find(struct dht_calls *calls, const struct dht_contact *who, const struct dht_id *key,
                 dht_replied *replied, void *context);
int dht_ask_store(struct dht_calls *calls, const struct dht_contact *who,
                  const struct dht_record *r, dht_replied *replied, void *context);
int dht_ask_ping(struct dht_calls *calls, const struct peer_id *peer, int validate,
                 dht_replied *replied, void *context);

void dht_calls_send(struct dht_calls *calls);  /* all that wait */
void dht_calls_close(struct dht_calls *calls); /* nothing is called back */

#endif
