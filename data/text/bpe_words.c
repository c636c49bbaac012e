/* bpe_words.c - splits text into words as the regular expressions of CLIP and GPT-2 do, written as
 * code over Unicode categories. */
#include "bpe_words.h"
#include "code_points.h"

#include <string.h>
#include <utf8proc.h>

enum kind { LETTER, NUMBER, SPACE, OTHER };

/* Unicode 16's letters: known to CLIP's and GPT-2's tokenizers, but not to utf8proc with Unicode
 * 15, */
static const int32_t letters_16[][2] = {
    { 0x1C89, 0x1C8A },   { 0xA7CB, 0xA7CD },   { 0xA7DA, 0xA7DC },   { 0x105C0, 0x105F3 },
    { 0x10D4A, 0x10D65 }, { 0x10D6F, 0x10D85 }, { 0x10EC2, 0x10EC4 }, { 0x11380, 0x11389 },
    { 0x1138B, 0x1138B }, { 0x1138E, 0x1138E }, { 0x11390, 0x113B5 }, { 0x113B7, 0x113B7 },
    { 0x113D1, 0x113D1 }, { 0x113D3, 0x113D3 }, { 0x11BC0, 0x11BE0 }, { 0x13460, 0x143FA },
    { 0x16100, 0x1611D }, { 0x16D40, 0x16D6C }, { 0x18CFF, 0x18CFF }, { 0x1E5D0, 0x1E5ED },
    { 0x1E5F0, 0x1E5F0 }, { 0x2EBF0, 0x2EE5D },
};
static const int32_t numbers_16[][2] = {
    { 0x10D40, 0x10D49 }, { 0x116D0, 0x116E3 }, { 0x11BF0, 0x11BF9 }, { 0x16130, 0x16139 },
    { 0x16D70, 0x16D79 }, { 0x1CCF0, 0x1CCF9 }, { 0x1E5F1, 0x1E5FA },
};
/* and later ones: known to Python's regex (CLIP), but not to Oniguruma (GPT-2), where they are
 * neither letters nor numbers. */
static const int32_t letters_18[][2] = {
    { 0x558, 0x558 },     { 0x58B, 0x58C },     { 0x88F, 0x88F },     { 0xC5C, 0xC5C },
    { 0xCDC, 0xCDC },     { 0x208F, 0x208F },   { 0x209D, 0x209F },   { 0xA7CE, 0xA7CF },
    { 0xA7D2, 0xA7D2 },   { 0xA7D4, 0xA7D4 },   { 0xA7DD, 0xA7DD },   { 0xA7E2, 0xA7E2 },
    { 0xA7F1, 0xA7F1 },   { 0xAB6C, 0xAB6D },   { 0x107BB, 0x107BF }, { 0x10940, 0x10959 },
    { 0x10EC5, 0x10EC7 }, { 0x10ED9, 0x10EEE }, { 0x11B0A, 0x11B0A }, { 0x11DB0, 0x11DDB },
    { 0x11DF1, 0x11DF1 }, { 0x16EA0, 0x16EB8 }, { 0x16EBB, 0x16ED3 }, { 0x16FF2, 0x16FF3 },
    { 0x187F8, 0x187FF }, { 0x18CD6, 0x18CDA }, { 0x18D09, 0x18D20 }, { 0x18D80, 0x18DF2 },
    { 0x18E00, 0x19191 }, { 0x191A0, 0x191D2 }, { 0x1B123, 0x1B128 }, { 0x1B168, 0x1B168 },
    { 0x1D6A6, 0x1D6A6 }, { 0x1DF1F, 0x1DF24 }, { 0x1DF2B, 0x1DF81 }, { 0x1DF90, 0x1DF96 },
    { 0x1DFCD, 0x1DFFF }, { 0x1E6C0, 0x1E6DE }, { 0x1E6E0, 0x1E6E2 }, { 0x1E6E4, 0x1E6E5 },
    { 0x1E6E7, 0x1E6ED }, { 0x1E6F0, 0x1E6F4 }, { 0x1E6FE, 0x1E6FF }, { 0x2B73A, 0x2B73F },
    { 0x2B81E, 0x2B81E }, { 0x2CEA2, 0x2CEAD }, { 0x323B0, 0x33479 }, { 0x3D000, 0x3FC3F },
};
static const int32_t numbers_18[][2] = {
    { 0x11DE0, 0x11DE9 }, { 0x1246F, 0x1246F }, { 0x12475, 0x1247F },
    { 0x12550, 0x12686 }, { 0x16FF4, 0x16FF6 },
};

#define INSIDE(list, c) inside(list, PL_COUNT(list), c)

/* The ranges are in order. */
static int inside(const int32_t (*list)[2], size_t n, int32_t c)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (c <= list[middle][1]) high = middle;
        else low = middle + 1;
    }
    return low < n && c >= list[low][0];
}

static enum kind kind_of(int32_t c)
{
    if (c < 128) {
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) return LETTER;
        if (c >= '0' && c <= '9') return NUMBER;
        return c == ' ' || (c >= 9 && c <= 13) ? SPACE : OTHER;
    }
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return LETTER;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return NUMBER;
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return SPACE;
    case UTF8PROC_CATEGORY_CN:
        if (INSIDE(letters_16, c) || INSIDE(letters_18, c)) return LETTER;
        if (INSIDE(numbers_16, c) || INSIDE(numbers_18, c)) return NUMBER;
        return OTHER;
    default: return c == 0x85 ? SPACE : OTHER;
    }
}

/* Category and length of the character at `text`; an invalid byte has no category. */
static enum kind kind_at_start(size_t *used, const char *text, size_t n)
{
    int32_t c;
    *used = pl_code_points_first(&c, text, n);
    return c < 0 ? OTHER : kind_of(c);
}

static enum kind kind_gpt2(size_t *used, const char *text, size_t n)
{
    int32_t c;
    enum kind kind;
    *used = pl_code_points_first(&c, text, n);
    if (c < 0) return OTHER;
    kind = kind_of(c);
    if (kind == LETTER && INSIDE(letters_18, c)) return OTHER;
    return kind == NUMBER && INSIDE(numbers_18, c) ? OTHER : kind;
}

/* CLIP ignores case. U+0345 is not a letter but its upper case is: neither class matches it, so it
 * is dropped like white space. */
static enum kind kind_clip(size_t *used, const char *text, size_t n)
{
    return n >= 2 && !memcmp(text, "\xcd\x85", 2) ? (*used = 2, SPACE)
                                                  : kind_at_start(used, text, n);
}

typedef enum kind kind_fn(size_t *used, const char *text, size_t n);

/* The end of the run of characters of one kind around `at`. */
static size_t run(kind_fn *kind_at, enum kind kind, size_t at, const char *text, size_t n)
{
    size_t used;
    while (at < n && kind_at(&used, text + at, n - at) == kind) at += used;
    return at;
}

static int has(const char *text, size_t n, const char *what)
{
    size_t k = strlen(what);
    return n >= k && !memcmp(text, what, k);
}

/* The length of 's 't 're 've 'm 'll 'd at `text`, or 0. */
static size_t contraction(const char *text, size_t n)
{
    static const char *const ends[] = { "'s", "'t", "'re", "'ve", "'m", "'ll", "'d" };
    if (*text != '\'') return 0;
    for (size_t i = 0; i < PL_COUNT(ends); i++)
        if (has(text, n, ends[i])) return strlen(ends[i]);
    return 0;
}

size_t pl_bpe_word_clip(size_t *begin, size_t *at, const char *text, size_t n)
{
    static const char *const whole[] = { "<|startoftext|>", "<|endoftext|>" };
    size_t used, end = 0;
    const char *p;
    *at = run(kind_clip, SPACE, *at, text, n);
    if (*at >= n) return 0;
    *begin = *at;
    p = text + *at;
    for (size_t i = 0; i < PL_COUNT(whole); i++)
        if (has(p, n - *at, whole[i])) end = *at + strlen(whole[i]);
    if (!end && (used = contraction(p, n - *at))) end = *at + used;
    /* case-insensitive: the long s folds to s; everything else is lower case already */
    if (!end && has(p, n - *at, "'\xc5\xbf")) end = *at + 3;
    if (!end) {
        enum kind kind = kind_clip(&used, p, n - *at);
        end = kind == NUMBER ? *at + used : run(kind_clip, kind, *at, text, n);
    }
    *at = end;
    return end - *begin;
}

size_t pl_bpe_word_gpt2(size_t *begin, size_t *at, const char *text, size_t n)
{
    size_t used, end, last = *at;
    enum kind kind;
    if (*at >= n) return 0;
    *begin = *at;
    if ((used = contraction(text + *at, n - *at))) {
        *at += used;
        return used;
    }
    kind = kind_gpt2(&used, text + *at, n - *at);
    if (text[*at] == ' ' && *at + 1 < n) { /* one space belongs to the word that follows */
        enum kind next = kind_gpt2(&used, text + *at + 1, n - *at - 1);
        if (next != SPACE) {
            *at = run(kind_gpt2, next, *at + 1, text, n);
            return *at - *begin;
        }
    }
    if (kind != SPACE) {
        *at = run(kind_gpt2, kind, *at, text, n);
        return *at - *begin;
    }
    /* White space: at the end of the text all of it; elsewhere its last character belongs to the
     * following word, unless it is the only one. */
    for (end = *at; end < n && kind_gpt2(&used, text + end, n - end) == SPACE; end += used)
        last = end;
    *at = end < n && last > *begin ? last : end;
    return *at - *begin;
}
