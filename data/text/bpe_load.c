/* bpe_load.c - builds a tokenizer's tables from the published files: CLIP's list of merges, or
 * GPT-2's vocab.json and merges.txt. */
#include "bpe.h"
#include "data/files/json.h"
#include "bpe_table.h"
#include "data/files/file.h"
#include "code_points.h"
#include "ref/small.h"

#include <errno.h>
#include <jansson.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>
#include <zlib.h>

#define FILE_BYTES_MAX (64 << 20) /* the published ones are smaller than 4 MB */
#define IDS_MAX (1 << 20)
#define SYMBOL_BYTES_MAX 4096
#define WORD_END "</w>"

/* Byte letters: each byte is represented by a printable character. [spec images-and-text 3] */
static int is_plain(int byte)
{
    return (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
}

static void byte_letters(int32_t letter[256], int order[256])
{
    int n = 0, other = 0;
    for (int b = 0; b < 256; b++)
        if (is_plain(b)) {
            letter[b] = b;
            order[n++] = b;
        }
    for (int b = 0; b < 256; b++)
        if (!is_plain(b)) {
            letter[b] = 256 + other++;
            order[n++] = b;
        }
}

struct loader {
    struct bpe *b;
    const char *path;
    struct hsearch_data by_name;
    char **names; /* (count) the symbols' spellings, owned */
    size_t count, capacity;
    struct pl_err *err;
};

static int no_memory(struct loader *l)
{
    return pl_fail(l->err, PL_ENOMEM, "%s: no memory", l->path);
}

/* Adds id's name to the table. Of equal names the later one is found, as in Python's dict. */
static int add_name(struct loader *l, const char *name, size_t n, int32_t id)
{
    ENTRY *found, entry = { .key = NULL };
    char *copy;
    if (pl_grow(&l->names, l->count, &l->capacity, 1024)) return no_memory(l);
    if (!(copy = malloc(n + 1))) return no_memory(l);
    memcpy(copy, name, n);
    copy[n] = 0;
    l->names[l->count++] = copy;
    entry.key = copy;
    if (!hsearch_r(entry, ENTER, &found, &l->by_name)) return no_memory(l);
    found->data = (void *)(intptr_t)id;
    return PL_OK;
}

/* The id of a name, or -1. */
static int32_t find_name(struct loader *l, const char *name)
{
    ENTRY *found, entry = { .key = (char *)(uintptr_t)name };
    return hsearch_r(entry, FIND, &found, &l->by_name) ? (int32_t)(intptr_t)found->data : -1;
}

static void add_pair(struct bpe *b, struct bpe_pair p)
{
    size_t i = bpe_slot(b, p.left, p.right);
    if (bpe_find_pair(b, p.left, p.right)) return; /* listed twice: the first has the lower rank */
    while (b->pairs[i].left >= 0) i = (i + 1) & (b->pair_slots - 1);
    b->pairs[i] = p;
}

static int make_pairs(struct loader *l, size_t merges)
{
    struct bpe *b = l->b;
    b->pair_slots = 16;
    while (b->pair_slots < 2 * merges) b->pair_slots *= 2;
    if (!(b->pairs = malloc(b->pair_slots * sizeof *b->pairs))) return no_memory(l);
    for (size_t i = 0; i < b->pair_slots; i++) b->pairs[i].left = -1;
    return PL_OK;
}

static int read_text(char **text, const char *path, struct pl_err *err)
{
    void *data;
    size_t n, m = strlen(path);
    gzFile z;
    int got;
    if (m < 3 || strcmp(path + m - 3, ".gz")) {
        int rc = pl_file_read(&data, &n, path, FILE_BYTES_MAX, err);
        *text = data;
        return rc;
    }
    *text = NULL;
    if (!(z = gzopen(path, "rb"))) return pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno));
    if (!(data = malloc(FILE_BYTES_MAX + 1))) {
        gzclose(z);
        return pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    }
    got = gzread(z, data, FILE_BYTES_MAX + 1);
    int bad = gzclose(z) != Z_OK || got < 0;
    if (bad || got > FILE_BYTES_MAX) {
        free(data);
        return bad ? pl_fail(err, PL_EFORMAT, "%s: no gzip file, or a damaged one", path)
                   : pl_fail(err, PL_ELIMIT, "%s: more than %d bytes", path, FILE_BYTES_MAX);
    }
    ((char *)data)[got] = 0;
    *text = realloc(data, (size_t)got + 1);
    if (!*text) *text = data;
    return PL_OK;
}

/* Splits a line "A B" at its space. */
static int split_merge(struct loader *l, char *line, size_t number, char **right)
{
    char *space = strchr(line, ' ');
    if (!space || space == line || !space[1] || strchr(space + 1, ' ') ||
        strlen(line) > SYMBOL_BYTES_MAX)
        return pl_fail(l->err, PL_EFORMAT, "%s: line %zu: '%.40s' is not a merge 'A B'", l->path,
                       number, line);
    *space = 0;
    *right = space + 1;
    return PL_OK;
}

static char *next_line(char **text)
{
    char *line = *text, *end;
    if (!*line) return NULL;
    end = line + strcspn(line, "\n");
    *text = end + (*end != 0);
    *end = 0;
    if (end > line && end[-1] == '\r') end[-1] = 0;
    return line;
}

/* Reads the merges of `text`, whose first line is a header. CLIP's symbols get their ids in this
 * order. */
static int read_merges(struct loader *l, char *text)
{
    size_t lines = 0, number = 1, rank = 0;
    int rc;
    char *line;
    for (const char *p = text; (p = strchr(p, '\n')); p++) lines++;
    if ((rc = make_pairs(l, lines + 1))) return rc;
    if (!next_line(&text)) return pl_fail(l->err, PL_EFORMAT, "%s: empty", l->path);
    while ((line = next_line(&text))) {
        char *right = NULL, joined[2 * SYMBOL_BYTES_MAX];
        struct bpe_pair p;
        number++;
        if (!*line) continue;
        if ((rc = split_merge(l, line, number, &right))) return rc;
        p.left = find_name(l, line);
        p.right = find_name(l, right);
        p.rank = (int32_t)rank++;
        snprintf(joined, sizeof joined, "%s%s", line, right);
        p.joined = l->b->clip ? 512 + p.rank : find_name(l, joined);
        if (p.left < 0 || p.right < 0 || p.joined < 0)
            return pl_fail(l->err, PL_EFORMAT,
                           "%s: line %zu: '%.40s %.40s' merges symbols that are not in the "
                           "vocabulary",
                           l->path, number, line, right);
        if (l->b->clip && (rc = add_name(l, joined, strlen(joined), p.joined))) return rc;
        add_pair(l->b, p);
        if (l->b->clip && rank == CLIP_MERGES) break;
    }
    if (l->b->clip && rank < CLIP_MERGES)
        return pl_fail(l->err, PL_EFORMAT, "%s: %zu merges, expected %d", l->path, rank,
                       CLIP_MERGES);
    return PL_OK;
}

/* Converts a name in byte letters to bytes; other characters stay UTF-8, as in special tokens.
 * Returns the number of bytes. */
static size_t plain_bytes(char *out, const char *name, size_t n, const int16_t byte_of[512])
{
    size_t used = 0, at = 0;
    while (at < n) {
        int32_t c;
        size_t k = pl_code_points_first(&c, name + at, n - at);
        if (c >= 0 && c < 512 && byte_of[c] >= 0) out[used++] = (char)byte_of[c];
        else {
            memcpy(out + used, name + at, k);
            used += k;
        }
        at += k;
    }
    return used;
}

/* Stores the bytes of all names (size), in the order of ids, for decoding. */
static int make_pool(struct loader *l, const char *const *spelling)
{
    struct bpe *b = l->b;
    int32_t letter[256];
    int16_t byte_of[512];
    int order[256];
    size_t total = 0, at = 0;
    byte_letters(letter, order);
    for (size_t i = 0; i < PL_COUNT(byte_of); i++) byte_of[i] = -1;
    for (int k = 0; k < 256; k++) byte_of[letter[k]] = (int16_t)k;
    for (int i = 0; i < b->size; i++) total += strlen(spelling[i]);
    b->pool = malloc(total + 1);
    b->offset = malloc(((size_t)b->size + 1) * sizeof *b->offset);
    b->ends_word = calloc((size_t)(b->size > 0 ? b->size : 0), 1);
    if (!b->pool || !b->offset || !b->ends_word) return no_memory(l);
    for (int i = 0; i < b->size; i++) {
        size_t n = strlen(spelling[i]), end = strlen(WORD_END);
        b->ends_word[i] = b->clip && n > end && !strcmp(spelling[i] + n - end, WORD_END);
        if (b->ends_word[i]) n -= end;
        b->offset[i] = (uint32_t)at;
        at += plain_bytes(b->pool + at, spelling[i], n, byte_of);
    }
    b->offset[b->size] = (uint32_t)at;
    return PL_OK;
}

static int loader_open(struct loader *l, size_t names, int clip, const char *path,
                       struct pl_err *err)
{
    *l = (struct loader){ .path = path, .err = err, .b = calloc(1, sizeof(struct bpe)) };
    if (!l->b || !hcreate_r(2 * names, &l->by_name)) return no_memory(l);
    l->b->clip = clip;
    return PL_OK;
}

/* The finished tokenizer, or NULL after an error. */
static struct bpe *loader_close(struct loader *l, int rc)
{
    struct bpe *b = l->b;
    for (size_t i = 0; i < l->count; i++) free(l->names[i]);
    free(l->names);
    hdestroy_r(&l->by_name);
    if (rc) {
        pl_bpe_close(b);
        b = NULL;
    }
    return b;
}

int pl_bpe_open_clip(struct bpe **b, const char *merges, struct pl_err *err)
{
    struct loader l;
    int32_t letter[256];
    int order[256];
    char *text = NULL;
    int rc = loader_open(&l, CLIP_START + 2, 1, merges, err);
    byte_letters(letter, order);
    for (int ends = 0; ends < 2 && !rc; ends++)
        for (int i = 0; i < 256 && !rc; i++) {
            char name[16];
            size_t n = (size_t)utf8proc_encode_char(letter[order[i]], (uint8_t *)name);
            if (ends) {
                memcpy(name + n, WORD_END, strlen(WORD_END));
                n += strlen(WORD_END);
            }
            (ends ? l.b->last : l.b->letter)[order[i]] = 256 * ends + i;
            rc = add_name(&l, name, n, 256 * ends + i);
        }
    if (!rc) rc = read_text(&text, merges, err);
    if (!rc) rc = read_merges(&l, text);
    free(text);
    if (!rc) rc = add_name(&l, "<|startoftext|>", 15, CLIP_START);
    if (!rc) rc = add_name(&l, "<|endoftext|>", 13, CLIP_START + 1);
    if (!rc) {
        l.b->size = CLIP_START + 2;
        l.b->end = CLIP_START + 1;
        rc = make_pool(&l, (const char *const *)l.names); /* ids were given in order */
    }
    *b = loader_close(&l, rc);
    return rc;
}

/* Reads vocab.json: each id from 0 to size - 1 must occur once. */
static int read_vocab(struct loader *l, const json_t *root, const char **spelling)
{
    const char *name;
    json_t *value;
    json_int_t size = (json_int_t)json_object_size(root);
    int rc = PL_OK;
    json_object_foreach((json_t *)(uintptr_t)root, name, value)
    {
        json_int_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id >= size || spelling[id])
            return pl_fail(l->err, PL_EFORMAT, "%s: '%.40s' has no id of its own from 0 to %lld",
                           l->path, name, (long long)size - 1);
        if (strlen(name) > SYMBOL_BYTES_MAX)
            return pl_fail(l->err, PL_ELIMIT, "%s: a symbol of %zu bytes", l->path, strlen(name));
        spelling[id] = name;
        if ((rc = add_name(l, name, strlen(name), (int32_t)id))) return rc;
    }
    l->b->size = (int)size;
    return rc;
}

static int find_letters(struct loader *l)
{
    int32_t letter[256];
    int order[256];
    byte_letters(letter, order);
    for (int i = 0; i < 256; i++) {
        char name[8] = { 0 };
        utf8proc_encode_char(letter[i], (uint8_t *)name);
        if ((l->b->letter[i] = find_name(l, name)) < 0)
            return pl_fail(l->err, PL_EFORMAT, "%s: no symbol '%s', which stands for byte %d",
                           l->path, name, i);
    }
    return PL_OK;
}

int pl_bpe_open_gpt2(struct bpe **b, const char *vocab, const char *merges, struct pl_err *err)
{
    struct loader l;
    json_error_t why;
    void *text = NULL;
    char *lines = NULL;
    const char **spelling = NULL;
    json_t *root = NULL;
    size_t n;
    int rc = pl_file_read(&text, &n, vocab, FILE_BYTES_MAX, err);
    *b = NULL;
    if (rc) return rc;
    root = pl_json_load(text, n, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (!json_is_object(root) || !json_object_size(root) || json_object_size(root) > IDS_MAX) {
        rc = pl_fail(err, root ? PL_EFORMAT : pl_json_status(),
                     "%s: not a JSON object of 1 to %d symbols%s%s", vocab, IDS_MAX,
                     root ? "" : ": ", root ? "" : why.text);
        json_decref(root);
        return rc;
    }
    rc = loader_open(&l, json_object_size(root), 0, vocab, err);
    spelling = calloc(json_object_size(root), sizeof *spelling);
    if (!rc && !spelling) rc = no_memory(&l);
    if (!rc) rc = read_vocab(&l, root, spelling);
    if (!rc) rc = find_letters(&l);
    if (!rc) rc = make_pool(&l, spelling);
    if (!rc) l.b->end = find_name(&l, GPT2_END);
    l.path = merges;
    if (!rc) rc = read_text(&lines, merges, err);
    if (!rc) rc = read_merges(&l, lines);
    free(lines);
    free(spelling);
    json_decref(root);
    *b = loader_close(&l, rc);
    return rc;
}

void pl_bpe_close(struct bpe *b)
{
    if (!b) return;
    free(b->pairs);
    free(b->pool);
    free(b->offset);
    free(b->ends_word);
    free(b);
}
