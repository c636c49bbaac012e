/* noise.h - the part of the Noise engine that only tests need: fixed keys, and the state after each
 * step. [spec libp2p-wire 5] [Noise protocol framework, revision 34] */
#ifndef PL_NOISE_H
#define PL_NOISE_H

#include "secure_channel.h"

/* A symmetric state after a step of the handshake. */
struct noise_trace {
    const char *step; /* "start", "e", "ee", ... */
    uint8_t h[32], ck[32], k[32];
    int has_key;
    uint64_t n;
};
typedef void noise_trace_fn(void *context, const struct noise_trace *now);

struct noise_fixed {
    const uint8_t *static_private, *ephemeral_private; /* 32 bytes each; NULL: drawn */
    const uint8_t *payload;                            /* as recorded; NULL: made */
    size_t payload_bytes;
    noise_trace_fn *trace; /* may be NULL */
    void *context;
};
int noise_open_fixed(struct secure **s, const struct identity *me, int initiator,
                     const struct peer_id *expected, struct bytes *wire,
                     const struct noise_fixed *fixed);
/* The two transport keys, initiator to responder first. Only once established. */
void noise_keys(const struct secure *s, uint8_t first[32], uint8_t second[32]);

#endif
