/* state_peer.h - the data of this peer that both sides of state sharing need: the donor
 * (state_share.h) and the newcomer (state_download.h). Borrowed pointers outlive both. */
#ifndef PL_STATE_PEER_H
#define PL_STATE_PEER_H

#include "net/hivemind/dht/dht_node.h"
#include "net/hivemind/matchmaking/group.h"
#include "net/hivemind/messages/state_message.h"

struct state_peer {
    struct host *host;
    struct dht_node *node;
    struct loop *loop; /* the host's */
    const struct pl_backend *be;
    char key[GROUP_KEY_MAX];        /* PREFIX.all_averagers: donors announce themselves under it */
    struct dht_id id;               /* of that key */
    struct bytes subkey;            /* our peer ID, as it stands in the DHT; the owner clears it */
    const char *download, *samples; /* the names of the two calls */
    size_t tensors; /* that are averaged; a state begins with them. 0: it has any tensors, and no
                     * other donor can confirm them */
    size_t any_bytes, any_tensors;      /* then: the most of them */
    const size_t *elements;             /* (tensors) */
    const struct schema_tensor *schema; /* (tensors) */
    int client_mode, auxiliary;
    double silence_max; /* s that a donor may be silent between messages */
    /* Called for each donor that could not give a state, or whose state was refused; NULL: no
     * callback. */
    void (*donor_failed)(void *context, const struct peer_id *donor, int status,
                         const struct pl_err *why);
    void *donor_context;
};

#endif
