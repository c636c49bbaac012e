/* unigram.c - T5's tokenizer. The best segmentation is found by Viterbi's algorithm: from left to
 * right, the best score at each byte is the maximum, over all pieces that end there, of the best
 * score at the piece's start plus the piece's score. A trie of pieces is walked once from every
 * position, so a position costs at most the longest piece's length. */
#include "unigram.h"

#include "charsmap.h"
#include "data/files/file.h"
#include "spiece.h"
#include "ref/small.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SPACE_MARK "\xE2\x96\x81" /* U+2581, which marks the start of a word */
/* the score of an unknown character is this much below the lowest piece's */
#define UNKNOWN_PENALTY 10.0
#define SPECIALS (3 + UNIGRAM_EXTRA_IDS)

/* The trie is a hash table of its edges: (node, byte) -> node. A node is the slot of the edge to
 * it; the root is 0. At least half of the slots are free, so a lookup takes a probe or two. */
struct edge {
    uint64_t key; /* node << 8 | byte, plus one; 0: free slot; ROOT_KEY: the root */
    int32_t id;   /* of the piece that ends here, or -1 */
    float score;
};
#define ROOT_KEY UINT64_MAX

struct unigram {
    void *file; /* the model's bytes, to which pieces and map point */
    struct spiece_model model;
    struct charsmap map;
    struct edge *edges;
    uint32_t mask;           /* slots - 1 */
    double unknown_score[2]; /* by rules */
    /* ids of special tokens that a text may spell out; -1: not in this vocabulary */
    int special[SPECIALS];
    char extra[UNIGRAM_EXTRA_IDS][24]; /* "<extra_id_%d>", whatever the number */
};

static const char *const named[3] = { "<pad>", "</s>", "<unk>" };

static struct spiece piece(const struct unigram *u, int id)
{
    const char *text;
    if ((size_t)id < u->model.count) return u->model.pieces[id];
    text = u->extra[(size_t)id - u->model.count];
    return (struct spiece){ .text = text, .n = (uint32_t)strlen(text), .type = SPIECE_NORMAL };
}

/* --- trie ------------------------------------------------------------------------------------- */

static uint32_t slot_of(const struct unigram *u, uint32_t node, uint8_t byte)
{
    uint64_t key = ((uint64_t)node << 8 | byte) + 1;
    uint32_t slot = (uint32_t)(key * 0x9E3779B97F4A7C15u >> 32) & u->mask;
    while (u->edges[slot].key && u->edges[slot].key != key) slot = (slot + 1) & u->mask;
    return slot;
}

static int insert(struct unigram *u, int id, const char *file, struct pl_err *err)
{
    struct spiece p = piece(u, id);
    uint32_t node = 0;
    for (uint32_t i = 0; i < p.n; i++) {
        uint32_t slot = slot_of(u, node, (uint8_t)p.text[i]);
        if (!u->edges[slot].key)
            u->edges[slot] = (struct edge){ ((uint64_t)node << 8 | (uint8_t)p.text[i]) + 1, -1, 0 };
        node = slot;
    }
    if (u->edges[node].id >= 0)
        return pl_fail(err, PL_EFORMAT, "%s: pieces %d and %d are the same", file,
                       u->edges[node].id, id);
    u->edges[node].id = id;
    u->edges[node].score = p.score;
    return PL_OK;
}

int pl_unigram_find(const struct unigram *u, const char *text, size_t n)
{
    uint32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        node = slot_of(u, node, (uint8_t)text[i]);
        if (!u->edges[node].key) return -1;
    }
    return n ? u->edges[node].id : -1;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* Whether the rules allow this piece in a segmentation. sentencepiece allows normal pieces only. */
static int takes_part(const struct unigram *u, int id, enum unigram_rules rules)
{
    if (rules == UNIGRAM_TRANSFORMERS) return 1;
    return (size_t)id < u->model.count && u->model.pieces[id].type == SPIECE_NORMAL;
}

static int build(struct unigram *u, const char *file, struct pl_err *err)
{
    size_t bytes = 0, slots = 64;
    int size = pl_unigram_size(u), rc = PL_OK;
    for (int id = 0; id < size; id++) bytes += piece(u, id).n;
    while (slots < 2 * bytes) slots *= 2; /* at most 2^25, because the file's size is limited */
    u->mask = (uint32_t)(slots - 1);
    if (!(u->edges = calloc(slots, sizeof *u->edges)))
        return pl_fail(err, PL_ENOMEM, "%s: out of memory", file);
    u->edges[0] = (struct edge){ ROOT_KEY, -1, 0 };
    for (int id = 0; id < size && !rc; id++) rc = insert(u, id, file, err);
    for (int rules = 0; rules < 2; rules++) {
        double least = INFINITY;
        for (int id = 0; id < size; id++)
            if (takes_part(u, id, rules)) least = fmin(least, piece(u, id).score);
        u->unknown_score[rules] = (least < INFINITY ? least : 0) - UNKNOWN_PENALTY;
    }
    u->unknown_score[UNIGRAM_SENTENCEPIECE] = (float)u->unknown_score[UNIGRAM_SENTENCEPIECE];
    for (int i = 0; i < 3; i++) u->special[i] = pl_unigram_find(u, named[i], strlen(named[i]));
    for (int i = 0; i < UNIGRAM_EXTRA_IDS; i++) u->special[3 + i] = (int)u->model.count + i;
    return rc;
}

/* Owns `file`, the model's bytes, from here on. */
static int take(struct unigram **out, void *file, size_t bytes, const char *name,
                struct pl_err *err)
{
    struct unigram *u = calloc(1, sizeof *u);
    int rc;
    *out = NULL;
    if (!u) {
        free(file);
        return pl_fail(err, PL_ENOMEM, "%s: out of memory", name);
    }
    u->file = file;
    for (int i = 0; i < UNIGRAM_EXTRA_IDS; i++)
        snprintf(u->extra[i], sizeof u->extra[i], "<extra_id_%d>", UNIGRAM_EXTRA_IDS - 1 - i);
    rc = pl_spiece_read(&u->model, file, bytes, name, err);
    if (!rc) rc = pl_charsmap_init(&u->map, u->model.map, u->model.map_bytes, name, err);
    if (!rc) rc = build(u, name, err);
    if (rc) pl_unigram_close(u);
    else *out = u;
    return rc;
}

int pl_unigram_open(struct unigram **u, const char *path, struct pl_err *err)
{
    void *data;
    size_t bytes;
    int rc = pl_file_read(&data, &bytes, path, SPIECE_FILE_MAX, err);
    *u = NULL;
    return rc ? rc : take(u, data, bytes, path, err);
}

int pl_unigram_read(struct unigram **u, const void *data, size_t bytes, const char *name,
                    struct pl_err *err)
{
    void *copy = malloc(bytes + 1);
    *u = NULL;
    if (!copy) return pl_fail(err, PL_ENOMEM, "%s: out of memory", name);
    if (bytes) memcpy(copy, data, bytes);
    return take(u, copy, bytes, name, err);
}

void pl_unigram_close(struct unigram *u)
{
    if (!u) return;
    pl_spiece_clear(&u->model);
    free(u->edges);
    free(u->file);
    free(u);
}

int pl_unigram_size(const struct unigram *u) { return (int)u->model.count + UNIGRAM_EXTRA_IDS; }

/* --- one segmentation ------------------------------------------------------------------------- */

/* The best way to reach a position: score, previous position, piece. */
struct lattice_node {
    double score;
    uint32_t from;
    int32_t id;
};

struct output {
    int32_t *ids;
    size_t capacity, count;
};

/* Buffers of one call of encode. */
struct work {
    struct charsmap_text text, marked;
    struct lattice_node *nodes;
    size_t capacity;
};

static void put(struct output *out, int32_t id)
{
    if (out->count < out->capacity) out->ids[out->count] = id;
    out->count++;
}

static size_t character_bytes(uint8_t lead)
{
    return lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

static void reach(struct lattice_node *to, double score, size_t from, int32_t id)
{
    if (score > to->score) *to = (struct lattice_node){ score, (uint32_t)from, id };
}

/* Segments n > 0 bytes of valid UTF-8. Consecutive unknown characters become one id. */
static int split(struct output *out, struct work *w, const struct unigram *u, const char *s,
                 size_t n, enum unigram_rules rules)
{
    struct lattice_node *at;
    int32_t unknown = u->model.unknown;
    uint32_t first = 0;
    if (n >= UINT32_MAX || pl_grow_by(&w->nodes, 0, n + 1, &w->capacity, 64)) return PL_ENOMEM;
    at = w->nodes;
    /* best[0] = 0; best[j + 1] = max over pieces s[i..j] of best[i] + score(piece) */
    for (size_t i = 0; i <= n; i++) at[i].score = -INFINITY;
    at[0].score = 0;
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t node = 0;
        int single = 0; /* whether there is a piece for this single character */
        len = character_bytes((uint8_t)s[i]);
        for (size_t j = i; j < n; j++) { /* one step down the trie for each byte */
            const struct edge *e;
            double score;
            node = slot_of(u, node, (uint8_t)s[j]);
            e = &u->edges[node];
            if (!e->key) break;
            if (e->id < 0 || !takes_part(u, e->id, rules)) continue;
            score = at[i].score + (double)e->score;
            reach(&at[j + 1], rules == UNIGRAM_SENTENCEPIECE ? (float)score : score, i, e->id);
            single |= j + 1 == i + len;
        }
        if (!single) { /* so that every text has a segmentation */
            double score = at[i].score + u->unknown_score[rules];
            reach(&at[i + len], rules == UNIGRAM_SENTENCEPIECE ? (float)score : score, i, unknown);
        }
    }
    /* the links lead backwards from the end: reverse them, then follow them */
    for (uint32_t i = (uint32_t)n, to = 0, from; i; to = i, i = from) {
        from = at[i].from;
        at[i].from = to;
        if (!from) first = i;
    }
    for (uint32_t i = first, before = 0; i; before = i, i = at[i].from) {
        int both = before && at[before].id == unknown && at[i].id == unknown;
        if (!both) put(out, at[i].id);
    }
    return PL_OK;
}

/* --- as transformers does it [spec images-and-text 5.3] --------------------------------------- */

/* The length of a white-space character at s (Unicode's White_Space), or 0. */
static size_t white(const uint8_t *s, size_t n)
{
    if (s[0] < 0x80) return s[0] == ' ' || (s[0] >= '\t' && s[0] <= '\r');
    if (n >= 2 && s[0] == 0xC2) return s[1] == 0x85 || s[1] == 0xA0 ? 2 : 0;
    if (n < 3 || s[0] < 0xE1 || s[0] > 0xE3) return 0;
    switch (s[0] << 16 | s[1] << 8 | s[2]) {
    case 0xE19A80: /* U+1680 */
    case 0xE280A8:
    case 0xE280A9:
    case 0xE280AF: /* U+2028, U+2029, U+202F */
    case 0xE2819F:
    case 0xE38080: /* U+205F, U+3000 */ return 3;
    }
    return s[0] == 0xE2 && s[1] == 0x80 && s[2] <= 0x8A ? 3 : 0; /* U+2000 .. U+200A */
}

static int marked(const char *s, size_t n) { return n >= 3 && !memcmp(s, SPACE_MARK, 3); }

/* One word, with a mark in front; a mark inside it starts another part. */
static int word(struct output *out, struct work *w, const struct unigram *u, const char *s,
                size_t n)
{
    w->marked.n = 0;
    if (!marked(s, n) && pl_charsmap_append(&w->marked, SPACE_MARK, 3)) return PL_ENOMEM;
    if (pl_charsmap_append(&w->marked, s, n)) return PL_ENOMEM;
    s = w->marked.at;
    n = w->marked.n;
    for (size_t from = 0, to; from < n; from = to) {
        int rc;
        for (to = from + 3; to < n && !marked(s + to, n - to); to++) {}
        if ((rc = split(out, w, u, s + from, to - from, UNIGRAM_TRANSFORMERS))) return rc;
    }
    return PL_OK;
}

/* Text between special tokens. */
static int stretch(struct output *out, struct work *w, const struct unigram *u, const char *s,
                   size_t n)
{
    int rc;
    w->text.n = 0;
    if ((rc = pl_charsmap_by_cluster(&u->map, s, n, &w->text))) return rc;
    s = w->text.at;
    n = w->text.n;
    for (size_t at = 0, end; at < n && !rc; at = end) {
        size_t skip = white((const uint8_t *)s + at, n - at);
        end = at + skip;
        if (skip) continue;
        while (end < n && !white((const uint8_t *)s + end, n - end)) end++;
        rc = word(out, w, u, s + at, end - at);
    }
    return rc;
}

/* The special token spelled out at s, or -1. None is a prefix of another. */
static int special(const struct unigram *u, const char *s, size_t n, size_t *bytes)
{
    for (int i = 0; i < SPECIALS; i++) {
        struct spiece p;
        if (u->special[i] < 0) continue;
        p = piece(u, u->special[i]);
        if (p.n <= n && !memcmp(p.text, s, p.n)) {
            *bytes = p.n;
            return u->special[i];
        }
    }
    return -1;
}

static int encode_transformers(struct output *out, struct work *w, const struct unigram *u,
                               const char *s, size_t n)
{
    size_t done = 0, at = 0, bytes;
    int rc, id;
    while (at < n) {
        const char *open = memchr(s + at, '<', n - at);
        if (!open) break;
        at = (size_t)(open - s);
        id = special(u, open, n - at, &bytes);
        if (id < 0) {
            at++;
            continue;
        }
        if ((rc = stretch(out, w, u, s + done, at - done))) return rc;
        put(out, id);
        done = at += bytes;
    }
    return stretch(out, w, u, s + done, n - done);
}

/* --- as sentencepiece does it [spec images-and-text 5.4] -------------------------------------- */

/* Normalizes, then joins and marks spaces, into w->marked. */
static int mark_spaces(struct work *w, const struct unigram *u, const char *s, size_t n)
{
    const struct spiece_model *m = &u->model;
    const char *mark = m->escape_spaces ? SPACE_MARK : " ";
    size_t mark_bytes = strlen(mark), end;
    int space; /* whether the previous character was a space */
    w->text.n = w->marked.n = 0;
    if (pl_charsmap_by_longest(&u->map, s, n, &w->text)) return PL_ENOMEM;
    end = w->text.n;
    if (m->collapse_spaces)
        while (end && w->text.at[end - 1] == ' ') end--;
    if (!end) return PL_OK;
    space = m->collapse_spaces; /* leading spaces are removed */
    if (m->dummy_prefix && pl_charsmap_append(&w->marked, mark, mark_bytes)) return PL_ENOMEM;
    for (size_t at = 0; at < end; at++) {
        int here = w->text.at[at] == ' ';
        if (!here ? pl_charsmap_append(&w->marked, w->text.at + at, 1)
                  : !(space && m->collapse_spaces) &&
                        pl_charsmap_append(&w->marked, mark, mark_bytes))
            return PL_ENOMEM;
        space = here;
    }
    return PL_OK;
}

static int encode_sentencepiece(struct output *out, struct work *w, const struct unigram *u,
                                const char *s, size_t n)
{
    int rc = mark_spaces(w, u, s, n);
    return rc || !w->marked.n ? rc
                              : split(out, w, u, w->marked.at, w->marked.n, UNIGRAM_SENTENCEPIECE);
}

/* --- the public rest -------------------------------------------------------------------------- */

static void clear(struct work *w)
{
    free(w->text.at);
    free(w->marked.at);
    free(w->nodes);
}

int pl_unigram_encode(int32_t *ids, size_t capacity, size_t *count, const struct unigram *u,
                      const char *text, size_t n, enum unigram_rules rules)
{
    struct output out = { ids, capacity, 0 };
    struct work w = { 0 };
    int rc = rules == UNIGRAM_TRANSFORMERS ? encode_transformers(&out, &w, u, text, n)
                                           : encode_sentencepiece(&out, &w, u, text, n);
    clear(&w);
    *count = rc ? 0 : out.count;
    return rc;
}

/* Zero-terminates the text and passes it to the caller. */
static int hand_over(char **out, size_t *bytes, struct charsmap_text *t)
{
    int rc = pl_charsmap_append(t, "", 1);
    *out = rc ? NULL : t->at;
    *bytes = rc ? 0 : t->n - 1;
    if (rc) free(t->at);
    *t = (struct charsmap_text){ 0 };
    return rc;
}

int pl_unigram_normalize(char **out, size_t *bytes, const struct unigram *u, const char *text,
                         size_t n, enum unigram_rules rules)
{
    struct work w = { 0 };
    int rc = rules == UNIGRAM_TRANSFORMERS ? pl_charsmap_by_cluster(&u->map, text, n, &w.marked)
                                           : mark_spaces(&w, u, text, n);
    *out = NULL;
    *bytes = 0;
    if (!rc) rc = hand_over(out, bytes, &w.marked);
    clear(&w);
    return rc;
}

int pl_unigram_decode(char **out, size_t *bytes, const struct unigram *u, const int32_t *ids,
                      size_t n)
{
    struct charsmap_text text = { 0 };
    int rc = PL_OK;
    *out = NULL;
    *bytes = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        struct spiece p;
        if (ids[i] < 0 || ids[i] >= pl_unigram_size(u)) rc = PL_EUSE;
        else p = piece(u, ids[i]);
        for (uint32_t k = 0; !rc && k < p.n;) {
            int mark = marked(p.text + k, p.n - k);
            if (!mark) rc = pl_charsmap_append(&text, p.text + k, 1);
            else if (i)
                rc = pl_charsmap_append(&text, " ", 1); /* the first piece's mark is not a space */
            k += mark ? 3 : 1;
        }
    }
    if (rc) free(text.at);
    else rc = hand_over(out, bytes, &text);
    return rc;
}
