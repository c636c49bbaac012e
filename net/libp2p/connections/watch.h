/* watch.h - subscriptions to connections and changes of a host. */
#ifndef PL_HOST_WATCH_H
#define PL_HOST_WATCH_H

#include "net/libp2p/peer/peer_id.h"

struct connection;

/* The result of waiting for a connection: status PL_OK, or an error with a sentence that names the
 * side at fault. */
typedef void host_done(void *context, int status, const struct peer_id *peer,
                       const struct pl_err *err);
struct host_wait; /* gone once done was called */
/* Afterwards done is not called. NULL may be canceled. */
void host_wait_cancel(struct host_wait *w);

/* `context` is the watcher's. Any may be NULL. */
struct host_events {
    void (*connected)(void *context, const struct peer_id *peer);    /* its first connection */
    void (*disconnected)(void *context, const struct peer_id *peer); /* its last one is gone */
    /* identify has brought its protocols and addresses */
    void (*identified)(void *context, const struct peer_id *peer);
    /* For protocols: each new connection; our addresses or protocols have changed. */
    void (*connection)(void *context, struct connection *c);
    void (*changed)(void *context);
};

/* Lies in the watcher's struct, from host_watch to host_unwatch. */
struct host_watch {
    struct host_events events;
    void *context;
    struct host_watch *next;
};

void watches_add(struct host_watch **list, struct host_watch *w);
void watches_remove(struct host_watch **list, struct host_watch *w);
/* Tell all; a watcher may remove itself meanwhile. */
void watches_connected(struct host_watch *list, const struct peer_id *peer);
void watches_disconnected(struct host_watch *list, const struct peer_id *peer);
void watches_identified(struct host_watch *list, const struct peer_id *peer);
void watches_connection(struct host_watch *list, struct connection *c);
void watches_changed(struct host_watch *list);

#endif
