/* bpe_table.h - the tables of a BPE tokenizer: built by bpe_load.c, used by bpe.c. */
#ifndef PL_BPE_TABLE_H
#define PL_BPE_TABLE_H

#include "ref/base.h"

#define CLIP_MERGES 48894 /* the file lists more */
#define CLIP_START (512 + CLIP_MERGES)
#define GPT2_END "<|endoftext|>"

struct bpe_pair {
    int32_t left, right; /* left -1: empty */
    int32_t rank, joined;
};

struct bpe {
    int clip, size, end;
    int32_t letter[256], last[256]; /* a byte's symbol; the same at the end of a word (CLIP) */
    /* hash table with open addressing; the size is a power of two */
    struct bpe_pair *pairs;
    size_t pair_slots;
    char *pool;         /* the bytes of all symbols, one after the other */
    uint32_t *offset;   /* (size + 1) */
    uint8_t *ends_word; /* (size) */
};

static inline size_t bpe_slot(const struct bpe *b, int32_t left, int32_t right)
{
    uint64_t key = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    return (size_t)(key >> 32) & (b->pair_slots - 1);
}

static inline const struct bpe_pair *bpe_find_pair(const struct bpe *b, int32_t left, int32_t right)
{
    for (size_t i = bpe_slot(b, left, right); b->pairs[i].left >= 0;
         i = (i + 1) & (b->pair_slots - 1))
        if (b->pairs[i].left == left && b->pairs[i].right == right) return &b->pairs[i];
    return NULL;
}

#endif
