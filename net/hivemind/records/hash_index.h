/* hash_index.h - finds elements of an array by a 64-bit hash: open addressing with linear probing,
 * at most half full. The array stays the caller's; the index holds positions in it.
 *
 * Keys come from strangers, so hash_bytes is SipHash-2-4 under a random key of this process
 * [SipHash: a fast short-input PRF]: a stranger cannot choose keys that collide. */
#ifndef PL_HASH_INDEX_H
#define PL_HASH_INDEX_H

#include "ref/base.h"

#define HASH_INDEX_END SIZE_MAX

/* Zero-initialise to begin. */
struct hash_index {
    struct hash_slot {
        uint64_t hash;
        size_t next_to;
    } * slots;              /* position + 1; 0: free */
    size_t capacity, count; /* capacity: a power of two, or 0 */
};

uint64_t hash_bytes(const void *data, size_t n);

/* Space for one more position. PL_ENOMEM: nothing has changed. */
int hash_index_reserve(struct hash_index *x);
/* After hash_index_reserve. */
void hash_index_add(struct hash_index *x, uint64_t hash, size_t at);
/* One position after the other that was added under this hash, then HASH_INDEX_END. *probe begins
 * with 0. Equal hashes of different keys are possible: compare the keys. */
size_t hash_index_next(const struct hash_index *x, uint64_t hash, size_t *probe);
void hash_index_remove(struct hash_index *x, uint64_t hash, size_t at);
/* The element has moved in the array. */
void hash_index_move(struct hash_index *x, uint64_t hash, size_t from, size_t to);
/* Forgets all positions, keeps the memory. */
void hash_index_empty(struct hash_index *x);
void hash_index_clear(struct hash_index *x);

#endif
