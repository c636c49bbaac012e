/* bpe.c - byte-pair encoding. Symbols are numbers; a hash table maps two neighbours to their merged
 * symbol and its rank, and a heap yields the merge with the lowest rank. So a word of n bytes takes
 * O(n log n). */
#include "bpe.h"
#include "bpe_table.h"
#include "bpe_words.h"
#include "clean.h"

#include <stdlib.h>
#include <string.h>

int pl_bpe_size(const struct bpe *b) { return b->size; }
int pl_bpe_is_clip(const struct bpe *b) { return b->clip; }
int pl_bpe_end(const struct bpe *b) { return b->end; }

/* -- merging ---------------------------------------------------------------------------------- */

/* A possible merge of two neighbours, ordered by rank, then by position. */
struct candidate {
    int32_t rank, at, left, right, joined;
};

struct work {
    int32_t *id, *next, *before; /* a word's symbols as a linked list; -1 at its ends */
    struct candidate *heap;
    size_t count, capacity; /* bytes of the longest word so far */
};

static int reserve(struct work *w, size_t n)
{
    int32_t *id;
    struct candidate *heap;
    if (n <= w->capacity) return PL_OK;
    n = n < 32 ? 64 : 2 * n;
    if (n > INT32_MAX / 4) return PL_ELIMIT;
    if (!(id = realloc(w->id, 3 * n * sizeof *id))) return PL_ENOMEM;
    w->id = id;
    w->next = id + n;
    w->before = id + 2 * n;
    /* n at first, and 2 per merge */
    if (!(heap = realloc(w->heap, 3 * n * sizeof *heap))) return PL_ENOMEM;
    w->heap = heap;
    w->capacity = n;
    return PL_OK;
}

static int earlier(const struct candidate *a, const struct candidate *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->at < b->at);
}

static void push(struct work *w, const struct bpe *b, int32_t at)
{
    const struct bpe_pair *p = w->next[at] < 0 ? NULL
                                               : bpe_find_pair(b, w->id[at], w->id[w->next[at]]);
    size_t i = w->count;
    if (!p) return;
    struct candidate candidate = { p->rank, at, p->left, p->right, p->joined };
    w->count++;
    for (; i && earlier(&candidate, &w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        w->heap[i] = w->heap[(i - 1) / 2];
    w->heap[i] = candidate;
}

static struct candidate pop(struct work *w)
{
    struct candidate first = w->heap[0], last = w->heap[--w->count];
    size_t i = 0, child;
    while ((child = 2 * i + 1) < w->count) {
        if (child + 1 < w->count && earlier(&w->heap[child + 1], &w->heap[child])) child++;
        if (!earlier(&w->heap[child], &last)) break;
        w->heap[i] = w->heap[child];
        i = child;
    }
    w->heap[i] = last;
    return first;
}

static void join(struct work *w, const struct bpe *b)
{
    while (w->count) {
        struct candidate p = pop(w);
        int32_t right = w->next[p.at];
        /* outdated: merged since, or with another neighbour now */
        if (w->id[p.at] != p.left || right < 0 || w->id[right] != p.right) continue;
        /* the merged symbol replaces both in the list, and has two new neighbours to merge with */
        w->id[p.at] = p.joined;
        w->id[right] = -1;
        w->next[p.at] = w->next[right];
        if (w->next[p.at] >= 0) w->before[w->next[p.at]] = p.at;
        push(w, b, p.at);
        if (w->before[p.at] >= 0) push(w, b, w->before[p.at]);
    }
}

struct output {
    int32_t *ids;
    size_t capacity, count;
};

static void give(struct output *o, int32_t id)
{
    if (o->count < o->capacity) o->ids[o->count] = id;
    o->count++;
}

static int word(struct output *o, struct work *w, const struct bpe *b, const char *text, size_t n)
{
    int rc = reserve(w, n);
    if (rc) return rc;
    w->count = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)text[i];
        w->id[i] = b->clip && i + 1 == n ? b->last[byte] : b->letter[byte];
        w->next[i] = i + 1 < n ? (int32_t)i + 1 : -1;
        w->before[i] = (int32_t)i - 1;
    }
    for (size_t i = 0; i < n; i++) push(w, b, (int32_t)i);
    join(w, b);
    for (int32_t i = 0; i >= 0; i = w->next[i]) give(o, w->id[i]);
    return PL_OK;
}

static int clip_words(struct output *o, struct work *w, const struct bpe *b, const char *text,
                      size_t n)
{
    size_t at = 0, begin, length;
    int rc = PL_OK;
    while (!rc && (length = pl_bpe_word_clip(&begin, &at, text, n))) {
        if (length == 15 && !memcmp(text + begin, "<|startoftext|>", 15)) give(o, CLIP_START);
        else if (length == 13 && !memcmp(text + begin, "<|endoftext|>", 13))
            give(o, CLIP_START + 1);
        else rc = word(o, w, b, text + begin, length);
    }
    return rc;
}

/* The end token may be spelled out anywhere; the text in between is encoded separately. */
static int gpt2_words(struct output *o, struct work *w, const struct bpe *b, const char *text,
                      size_t n)
{
    size_t special = strlen(GPT2_END), at = 0;
    int rc = PL_OK;
    while (!rc && at <= n) {
        const char *found = b->end < 0 ? NULL : memmem(text + at, n - at, GPT2_END, special);
        size_t end = found ? (size_t)(found - text) : n, begin, length, from = 0;
        while (!rc && (length = pl_bpe_word_gpt2(&begin, &from, text + at, end - at)))
            rc = word(o, w, b, text + at + begin, length);
        if (!found) break;
        give(o, b->end);
        at = end + special;
    }
    return rc;
}

int pl_bpe_encode(int32_t *ids, size_t capacity, size_t *count, const struct bpe *b,
                  const char *text, size_t n)
{
    struct output o = { ids, capacity, 0 };
    struct work w = { 0 };
    char *clean = NULL;
    int rc = b->clip ? pl_clean_text(&clean, &n, text, n) : PL_OK;
    if (!rc) rc = b->clip ? clip_words(&o, &w, b, clean, n) : gpt2_words(&o, &w, b, text, n);
    free(clean);
    free(w.id);
    free(w.heap);
    *count = o.count;
    return rc;
}

int pl_bpe_clip_row(int32_t *row, int length, int *cut, const struct bpe *b, const char *text,
                    size_t n)
{
    size_t count, capacity = (size_t)length;
    int rc = length < 2 ? PL_EUSE : pl_bpe_encode(row + 1, capacity - 1, &count, b, text, n);
    if (rc) return rc;
    if (cut) *cut = count > capacity - 2;
    if (count > capacity - 2) count = capacity - 2;
    row[0] = CLIP_START;
    row[count + 1] = pl_bpe_end(b);
    for (size_t i = count + 2; i < capacity; i++) row[i] = 0;
    return PL_OK;
}

int pl_bpe_decode(char **out, size_t *bytes, const struct bpe *b, const int32_t *ids, size_t n)
{
    size_t total = 0, at = 0;
    *out = NULL;
    *bytes = 0;
    for (size_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= b->size) return PL_EUSE;
        total += b->offset[ids[i] + 1] - b->offset[ids[i]] + b->ends_word[ids[i]];
    }
    if (!(*out = malloc(total + 1))) return PL_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        size_t length = b->offset[ids[i] + 1] - b->offset[ids[i]];
        memcpy(*out + at, b->pool + b->offset[ids[i]], length);
        at += length;
        if (b->ends_word[ids[i]]) (*out)[at++] = ' ';
    }
    (*out)[at] = 0;
    *bytes = at;
    return PL_OK;
}
