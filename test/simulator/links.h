/* links.h - strangers' connections to the internet, and what they average. */
#ifndef PL_SIMULATOR_LINKS_H
#define PL_SIMULATOR_LINKS_H

#include "net/libp2p/peer/peer_id.h"
#include "../../ref/partition.h"
#include "../../ref/rng.h"

#define LINK_DELAY 0.02 /* s, one way to the middle of the net: a typical peer's */

struct link {
    double up, down; /* bytes a second */
    double delay;    /* s, one way to the middle of the net */
    int client;      /* behind NAT */
};
/* Made up to look like a volunteers' swarm: rented machines, fibre, cable. */
void link_draw(struct link *l, struct pl_rng *rng);
/* The uplink of one that others can call. */
double link_draw_public(struct pl_rng *rng);

/* A peer's id from its number and life, and these back. */
void link_name(struct peer_id *id, size_t number, uint32_t life);
size_t link_peer_of(const struct peer_id *id);
uint32_t link_life_of(const struct peer_id *id);

/* Rounds of questions until the nodes nearest to a key are found, each of which knows 20 others. */
int link_hops(size_t peers);

/* Tensors as a transformer has them, `values` in all, in the run's compression. NULL: no memory. */
void link_tensors(size_t **elements, enum pl_compression **method, size_t *count, size_t values);

/* Tensors of these sizes, each too small for 8 bits. NULL: no memory. */
void link_small_tensors(size_t **elements, enum pl_compression **method, const size_t *sizes,
                        size_t count);

/* Bytes of all of them, compressed. */
double link_bytes(const size_t *elements, const enum pl_compression *method, size_t count);

#endif
