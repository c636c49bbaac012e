/* packed_weights.h - weights in the panels that bfloat16 GEMMs read, kept for the next GEMM.
 * Packing costs as much as multiplying some 50 rows. It pays where few rows meet large weights, as
 * in CLIP (50 image tokens) and in generation (a token of each of 128 images). */
#ifndef PL_FAST_PACKED_WEIGHTS_H
#define PL_FAST_PACKED_WEIGHTS_H

#include "fast.h"

/* Which panels: those of op(W) (k,n), slab by slab of k. */
struct fast_packing {
    const float *W;
    int ld, tb;     /* as for a GEMM's operand B */
    int n, k, slab; /* slab: k that are packed together */
    int apart;      /* a gate's C, or 0 */
};

/* The panels of W's current values, packed by pack(to, context) if they are not here already. The
 * buffer holds `count` words and lives as long as W's parameters. NULL: W is not in registered
 * parameters, or there is no room: the caller packs for itself. */
const uint32_t *fast_packed_weights(const struct fast_packing *packing, size_t count,
                                    void (*pack)(uint32_t *to, const void *context),
                                    const void *context);

/* The backend's entries. fast_free forgets parameters, and fast_put reports what it writes. */
int fast_weights(const float *value, size_t n);
void fast_free(void *p);
int fast_put(void *device, const void *host, size_t bytes);

#endif
