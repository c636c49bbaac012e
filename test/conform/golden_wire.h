/* golden_wire.h - the kinds of recorded bytes of the wire, shared between their files. */
#ifndef PL_GOLDEN_WIRE_H
#define PL_GOLDEN_WIRE_H

#include "golden.h"
#include "../../net/bytes.h"

/* Hex text to bytes, appended; PL_EFORMAT for anything else. */
int wire_hex(struct bytes *out, const char *hex);
/* The member's hex text as bytes; a golden_fail line and 0 if there is none. */
int wire_member(struct golden *g, const json_t *object, const char *key, struct bytes *out);
/* One check: the bytes equal what the member says. */
void wire_same(struct golden *g, const char *what, const struct bytes *got, const struct bytes *want);

void golden_wire_keys(struct golden *g, const json_t *root);
void golden_wire_multiaddr(struct golden *g, const json_t *root);
void golden_wire_multistream(struct golden *g, const json_t *root);
void golden_wire_noise(struct golden *g, const json_t *root);
void golden_wire_noise_session(struct golden *g, const json_t *root);
void golden_wire_certificates(struct golden *g, const json_t *root);
void golden_wire_yamux(struct golden *g, const json_t *root);

#endif
