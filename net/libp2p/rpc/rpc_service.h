/* rpc_service.h - the RPCs that a host serves. */
#ifndef PL_RPC_SERVICE_H
#define PL_RPC_SERVICE_H

#include "net/libp2p/host/host_protocol.h"
#include "rpc.h"

/* One RPC, unary or streaming. */
struct rpc_service {
    struct host *host;
    char *name;
    rpc_unary_handler *unary;
    rpc_opened *opened;
    size_t message_max;
    void *context;
    int retired;    /* 1: no longer served; freed with the last of ... */
    size_t waiting; /* ... its calls whose request has not arrived completely */
    struct rpc_service *next;
};

/* Serves a copy of it; `opened` gets the copy as its context. Statuses as rpc_serve_unary. */
int rpc_service_add(const struct rpc_service *service, stream_opened *opened);
/* A call's request is awaited; then the handler has it, or the call is gone. */
void rpc_service_enter(struct rpc_service *s);
void rpc_service_leave(struct rpc_service *s); /* NULL may be left */

#endif
