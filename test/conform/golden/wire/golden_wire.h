/* golden_wire.h - the kinds of recorded bytes of the wire, shared between their files. */
#ifndef PL_GOLDEN_WIRE_H
#define PL_GOLDEN_WIRE_H

#include "test/conform/golden/golden.h"
#include "net/bytes.h"
#include "net/libp2p/protocols/kad.h"
#include "net/libp2p/rpc/rpc_frame.h"
#include "net/libp2p/muxing/yamux.h"

/* Hex text to bytes, appended; PL_EFORMAT for anything else. */
int wire_hex(struct bytes *out, const char *hex);
/* 1 if the member is absent, or the hex text of these bytes. */
int wire_says(const json_t *object, const char *key, const void *data, size_t n);
/* The member's hex text as bytes; a golden_fail line and 0 if there is none. */
int wire_member(struct golden *g, const json_t *object, const char *key, struct bytes *out);
/* One check: the bytes equal what the member says. */
void wire_same(struct golden *g, const char *what, const struct bytes *got,
               const struct bytes *want);

/* One check: raw is a varint length and then the member "message", if there is one. */
void wire_check_body(struct golden *g, const char *name, const json_t *entry,
                     const struct bytes *raw);

void golden_wire_keys(struct golden *g, const json_t *root);
void golden_wire_multiaddr(struct golden *g, const json_t *root);
void golden_wire_multistream(struct golden *g, const json_t *root);
void golden_wire_noise(struct golden *g, const json_t *root);
void golden_wire_noise_session(struct golden *g, const json_t *root);
void golden_wire_certificates(struct golden *g, const json_t *root);
void golden_wire_yamux(struct golden *g, const json_t *root);
void golden_wire_identify(struct golden *g, const json_t *root);
void golden_wire_kad(struct golden *g, const json_t *root);
void golden_wire_relay(struct golden *g, const json_t *root);
void golden_wire_unary(struct golden *g, const json_t *root);
void golden_wire_streaming(struct golden *g, const json_t *root);
void golden_wire_dht_session(struct golden *g, const json_t *root);

/* A recorded frame, its body filled with zeros where the recording leaves it out. */
int golden_wire_frame_bytes(struct golden *g, const json_t *entry, struct bytes *raw);
/* Every frame of the entry's "frames" is parsed and written again, and the received ones are given
 * to our engine. */
void golden_wire_replay(struct golden *g, const char *what, const json_t *entry);
/* Parses a message, with or without a length in front, and writes it again. Returns the status of
 * parsing. */
int golden_wire_kad_message(struct golden *g, const char *what, const struct bytes *raw,
                            struct kad_message *m);
int golden_wire_unary_message(struct golden *g, const char *what, const struct bytes *raw,
                              struct rpc_unary *m);

#endif
