/* hash_index.c - a hash table of positions, with linear probing: an element with hash h is in
 * slot h mod capacity or in the next free one after it. The table is at most half full, so a
 * look-up meets 1.5 slots on average. Hashes come from SipHash under a secret key: a stranger
 * who could choose colliding keys would make every look-up visit all elements. */
#include "hash_index.h"

#include <openssl/rand.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* --- SipHash-2-4 ------------------------------------------------------------------------------ */

/* One key for the whole process: hashes are never stored or sent. */
static uint64_t key[2];

/* Without entropy the key stays 0: look-ups remain right, only their cost can be chosen. */
static void draw_key(void)
{
    uint8_t raw[sizeof key];
    if (RAND_bytes(raw, sizeof raw) == 1) memcpy(key, raw, sizeof key);
}

static uint64_t rotate(uint64_t x, int by) { return x << by | x >> (64 - by); }

/* One round mixes four 64-bit words by add, rotate, xor: cheap on every CPU, and no table that
 * caches reveal. */
static void sip_round(uint64_t v[4])
{
    v[0] += v[1], v[1] = rotate(v[1], 13) ^ v[0], v[0] = rotate(v[0], 32);
    v[2] += v[3], v[3] = rotate(v[3], 16) ^ v[2];
    v[0] += v[3], v[3] = rotate(v[3], 21) ^ v[0];
    v[2] += v[1], v[1] = rotate(v[1], 17) ^ v[2], v[2] = rotate(v[2], 32);
}

/* Two rounds for each word of the message (the 2 of SipHash-2-4). */
static void absorb(uint64_t v[4], uint64_t word)
{
    v[3] ^= word;
    sip_round(v), sip_round(v);
    v[0] ^= word;
}

uint64_t hash_bytes(const void *data, size_t n)
{
    static pthread_once_t drawn = PTHREAD_ONCE_INIT;
    const uint8_t *at = data;
    /* The initial words are the ASCII text "somepseudorandomlygeneratedbytes", XORed with the
     * key. */
    uint64_t v[4] = { 0x736f6d6570736575, 0x646f72616e646f6d, 0x6c7967656e657261,
                      0x7465646279746573 };
    /* 8 bytes at a time, in the machine's byte order: only this process sees the hashes. */
    uint64_t last = (uint64_t)n << 56, word = 0;
    pthread_once(&drawn, draw_key);
    for (int i = 0; i < 4; i++) v[i] ^= key[i % 2];
    for (size_t left = n; left >= 8; left -= 8, at += 8) {
        memcpy(&word, at, 8);
        absorb(v, word);
    }
    /* The last word: the remaining 0 to 7 bytes, and the length in the top byte, so that "a" and
     * "a\0" differ. */
    for (size_t i = 0; i < n % 8; i++) last |= (uint64_t)at[i] << 8 * i;
    absorb(v, last);
    /* Four final rounds (the 4 of SipHash-2-4) after a constant that no message word can
     * imitate. */
    v[2] ^= 0xff;
    for (int i = 0; i < 4; i++) sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* --- the table -------------------------------------------------------------------------------- */

/* Doubles the capacity so that at most half of the slots are used, and inserts all positions
 * again. */
int hash_index_reserve(struct hash_index *x)
{
    struct hash_slot *old = x->slots;
    size_t old_capacity = x->capacity, capacity = old_capacity ? old_capacity : 16;
    if (capacity < 2 * (x->count + 1)) capacity *= 2;
    if (capacity == old_capacity) return PL_OK;
    if (!(x->slots = calloc(capacity, sizeof *x->slots))) {
        x->slots = old;
        return PL_ENOMEM;
    }
    x->capacity = capacity;
    x->count = 0;
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i].next_to) hash_index_add(x, old[i].hash, old[i].next_to - 1);
    free(old);
    return PL_OK;
}

/* The capacity is a power of two, so a mask replaces the division. */
void hash_index_add(struct hash_index *x, uint64_t hash, size_t at)
{
    size_t i = hash & (x->capacity - 1);
    while (x->slots[i].next_to) i = (i + 1) & (x->capacity - 1);
    x->slots[i] = (struct hash_slot){ hash, at + 1 };
    x->count++;
}

/* A free slot ends the search: an insertion would have taken it. *probe counts the slots that were
 * visited, so that the next call goes on behind the last match. */
size_t hash_index_next(const struct hash_index *x, uint64_t hash, size_t *probe)
{
    while (x->capacity) {
        const struct hash_slot *slot = &x->slots[(hash + (*probe)++) & (x->capacity - 1)];
        if (!slot->next_to) break;
        if (slot->hash == hash) return slot->next_to - 1;
    }
    return HASH_INDEX_END;
}

/* The caller knows that the position is there, so the loop ends. */
static size_t slot_of(const struct hash_index *x, uint64_t hash, size_t at)
{
    size_t i = hash & (x->capacity - 1);
    while (x->slots[i].hash != hash || x->slots[i].next_to != at + 1)
        i = (i + 1) & (x->capacity - 1);
    return i;
}

/* Removal without tombstones: elements after the hole move into it, unless their home slot lies
 * between hole and element, where a search would no longer find them. */
void hash_index_remove(struct hash_index *x, uint64_t hash, size_t at)
{
    size_t mask = x->capacity - 1, hole = slot_of(x, hash, at);
    for (size_t i = (hole + 1) & mask; x->slots[i].next_to; i = (i + 1) & mask) {
        size_t home = x->slots[i].hash & mask;
        if (((i - home) & mask) < ((i - hole) & mask)) continue;
        x->slots[hole] = x->slots[i];
        hole = i;
    }
    x->slots[hole].next_to = 0;
    x->count--;
}

/* The hash is the element's own, so its slot stays; only the position in it changes. */
void hash_index_move(struct hash_index *x, uint64_t hash, size_t from, size_t to)
{
    x->slots[slot_of(x, hash, from)].next_to = to + 1;
}

void hash_index_empty(struct hash_index *x)
{
    if (x->slots) memset(x->slots, 0, x->capacity * sizeof *x->slots);
    x->count = 0;
}

void hash_index_clear(struct hash_index *x)
{
    free(x->slots);
    memset(x, 0, sizeof *x);
}
