/* dht_server.h - serves the three calls of the DHT to other nodes. */
#ifndef PL_DHT_SERVER_H
#define PL_DHT_SERVER_H

#include "dht_table.h"

#define VALIDATIONS_MAX 128 /* callers that wait until we have called them back; others are not */
#define VALIDATIONS_PEER_MAX 2 /* of one peer: it may have begun anew */

struct dht_server {
    struct dht_core *core;
    struct dht_calls *calls;
    struct dht_table *table;
    int is_registered;                  /* 1: the handlers are */
    struct dht_validation *validations; /* pings that we answer after calling back, newest first */
};
int dht_server_open(struct dht_server *s, struct pl_err *err); /* PL_EUSE, PL_ENOMEM */
void dht_server_close(struct dht_server *s);

#endif
