/* spiece_bytes.h - a spiece.model written by hand: pieces, their scores, a character map. */
#ifndef TEST_SPIECE_BYTES_H
#define TEST_SPIECE_BYTES_H

#include "data/text/unigram.h"
#include "test/unit/unit.h"

struct bytes {
    uint8_t at[4096];
    size_t n;
};

static inline void add(struct bytes *b, const void *p, size_t n)
{
    assert_true(n <= sizeof b->at - b->n);
    memcpy(b->at + b->n, p, n);
    b->n += n;
}

static inline void add_varint(struct bytes *b, uint64_t x)
{
    for (; x > 127; x >>= 7) add(b, &(uint8_t){ (uint8_t)(x | 128) }, 1);
    add(b, &(uint8_t){ (uint8_t)x }, 1);
}

static inline void add_field(struct bytes *b, unsigned number, const void *p, size_t n)
{
    add_varint(b, number << 3 | 2);
    add_varint(b, n);
    add(b, p, n);
}

static inline void add_piece(struct bytes *b, const char *text, float score, int type)
{
    struct bytes p = { .n = 0 };
    add_field(&p, 1, text, strlen(text));
    add(&p, "\x15", 1);
    add(&p, &score, 4);
    add(&p, "\x18", 1);
    add(&p, &(uint8_t){ (uint8_t)type }, 1);
    add_field(b, 1, p.at, p.n);
}

enum { PAD, END, UNK, MARK, A, MARK_A, AB, B, ABC, SIZE };

static inline void add_pieces(struct bytes *b)
{
    add_piece(b, "<pad>", 0, 3);
    add_piece(b, "</s>", 0, 3);
    add_piece(b, "<unk>", 0, 2);
    add_piece(b, "\xE2\x96\x81", -2, 1);
    add_piece(b, "a", -1.5, 1);
    add_piece(b,
              "\xE2\x96\x81"
              "a",
              -3, 1);
    add_piece(b, "ab", -2.5, 1);
    add_piece(b, "b", -1, 1);
    add_piece(b, "abc", -3, 1);
}

/* The map "A" -> "a", U+2460 -> "b". The trie: root jump 0x200; children at 0x200 ^ byte. */
static inline void add_map(struct bytes *b)
{
    static uint32_t units[0x400];
    struct bytes map = { .n = 0 }, section = { .n = 0 };
    uint32_t bytes = 0x300 * 4, e2 = 0x200 ^ 0xE2, x91, xa0;
    memset(units, 0, sizeof units);
    units[0] = 2u << 10 | 512; /* 2 << 8 */
    units[0x200 ^ 'A'] = 'A' | 256 | 1u << 10;
    units[0x200 ^ 'A' ^ 1] = 0x80000000u | 0;
    units[e2] = 0xE2 | (e2 ^ 0x100u) << 10; /* so that its children are at 0x100 ^ byte */
    x91 = 0x100 ^ 0x91;
    units[x91] = 0x91 | (x91 ^ 0u) << 10; /* children at byte */
    xa0 = 0xA0;
    units[xa0] = 0xA0 | 256 | 2u << 10;
    units[xa0 ^ 2] = 0x80000000u | 2;
    add(&map, &bytes, 4);
    add(&map, units, bytes);
    add(&map, "a\0b\0", 4);
    add_field(&section, 2, map.at, map.n);
    add_field(b, 3, section.at, section.n);
}

static inline struct unigram *model(int with_map)
{
    static struct bytes b;
    struct unigram *u;
    struct pl_err err = { "" };
    b.n = 0;
    add_pieces(&b);
    if (with_map) add_map(&b);
    assert_int_equal(pl_unigram_read(&u, b.at, b.n, "model", &err), PL_OK);
    assert_int_equal(pl_unigram_size(u), SIZE + UNIGRAM_EXTRA_IDS);
    return u;
}

#endif
