/* rpc_frame.h - the bytes of hivemind's calls, without sockets. [spec libp2p-wire 12, 13] */
#ifndef PL_RPC_FRAME_H
#define PL_RPC_FRAME_H

#include "net/bytes.h"

#define RPC_CALL_ID 16
#define RPC_HEADER 9 /* marker and length in front of a streamed message */

/* A unary message: one length-delimited PersistentConnectionRequest. */
enum rpc_unary_kind { RPC_REQUEST, RPC_RESPONSE, RPC_ERROR };
struct rpc_unary {
    enum rpc_unary_kind kind;
    uint8_t call_id[RPC_CALL_ID];
    const uint8_t *data; /* the request's or response's protobuf message, or the error's text */
    size_t n;
    const char *proto; /* a request's: the RPC's name, not zero-terminated */
    size_t proto_bytes;
    const uint8_t *peer; /* a request's: the callee, or anything; never to be trusted */
    size_t peer_bytes;
};
int rpc_unary_put(struct bytes *out, const struct rpc_unary *m);
/* The next whole message: views into the cursor's bytes. PL_EAGAIN: *want is the total number of
 * bytes needed, as far as it is known. PL_ELIMIT: longer than `max`. PL_EPROTO: malformed, or
 * refused by go-libp2p-daemon: a call id that is not 16 bytes, a required field that is absent,
 * neither call nor response. */
int rpc_unary_get(struct cursor *c, struct rpc_unary *m, size_t max, size_t *want);

/* A streamed frame. */
enum rpc_marker { RPC_MESSAGE = 0, RPC_END = 1 };
/* The header alone; n bytes of message follow. */
void rpc_header_write(uint8_t out[RPC_HEADER], enum rpc_marker marker, uint64_t n);
int rpc_header_put(struct bytes *out, enum rpc_marker marker, uint64_t n);
int rpc_error_put(struct bytes *out, const char *text); /* a whole frame: the handler failed */
struct rpc_frame {
    enum rpc_marker marker;
    const uint8_t *data; /* the message's protobuf, or an RPCError's */
    size_t n;
};
/* As rpc_unary_get. PL_EPROTO: an unknown marker. */
int rpc_frame_get(struct cursor *c, struct rpc_frame *f, size_t max, size_t *want);
/* The text of an RPC_END frame, cut to fit and with unprintable bytes replaced; "" for the plain
 * end mark. PL_EPROTO: not an RPCError. */
int rpc_error_text(char *text, size_t capacity, const struct rpc_frame *f);
/* The same for bytes that are the text. */
void rpc_printable(char *text, size_t capacity, const uint8_t *data, size_t n);

#endif
