/* peer_served.h - the calls of peer_served.c, and their messages: one number, field 1, a varint. */
#ifndef PL_TEST_PEER_SERVED_H
#define PL_TEST_PEER_SERVED_H

#include "net/libp2p/rpc/rpc.h"

#define PEER_MESSAGE_MAX (8u << 20)

int64_t peer_number_read(const uint8_t *data, size_t n); /* -1: no such message */
size_t peer_number_write(uint8_t out[16], int64_t x);
void peer_number_send(struct rpc_stream *s, int64_t x);

/* On the loop's thread; context: the host. */
void peer_serve(void *host);

#endif
