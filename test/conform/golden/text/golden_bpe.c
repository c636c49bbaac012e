/* golden_bpe.c - byte-level BPE against CLIP's and GPT-2's own. The vocabulary of XX.safetensors
 * and of XX.json.gz, which hold the same rows, is XX/vocab.json with XX/merges.txt (GPT-2), or the
 * merge list that the configuration of XX.safetensors names (CLIP). Texts that need the repair of
 * wrongly decoded text, which the specification leaves optional, are passed over: bit 0 of their
 * flags. */
#include "golden_tokenizer.h"
#include "data/text/bpe.h"
#include "data/text/clean.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLIP_VOCAB "bpe_simple_vocab_16e6.txt.gz"
#define NEEDS_REPAIR 1

static void compare_ids(struct token_replay *r, size_t row, const int32_t *got, size_t n,
                        const int32_t *want, size_t count)
{
    size_t i = 0;
    while (i < count && i < n && got[i] == want[i]) i++;
    if (n != count || i < count)
        token_differs(r, "row %zu, position %zu: %d of %zu ids, want %d of %zu", row, i,
                      i < n ? got[i] : -1, n, i < count ? want[i] : -1, count);
}

static void compare_text(struct token_replay *r, size_t row, const char *got, size_t n,
                         const char *want, size_t bytes)
{
    if (n != bytes || memcmp(got, want, bytes))
        token_differs(r, "row %zu: %zu bytes \"%.60s\", want %zu \"%.*s\"", row, n, got, bytes,
                      bytes < 60 ? (int)bytes : 60, want);
}

/* One text against its ids, and back again if the tokenizer forgets nothing. */
static void ids_row(struct token_replay *r, size_t row, const char *text, size_t n,
                    const int32_t *want, size_t count)
{
    size_t capacity = count + 1, got_count;
    int32_t *got = pl_alloc(capacity, sizeof *got);
    char *back;
    size_t bytes;
    if (!got || pl_bpe_encode(got, capacity, &got_count, r->b, text, n))
        token_differs(r, "row %zu: an error", row);
    else {
        if (got_count <= capacity) compare_ids(r, row, got, got_count, want, count);
        else token_differs(r, "row %zu: %zu ids, want %zu", row, got_count, count);
    }
    pl_free(got);
    if (!pl_bpe_is_clip(r->b) && !pl_bpe_decode(&back, &bytes, r->b, want, count)) {
        compare_text(r, row, back, bytes, text, n);
        free(back);
    }
    r->rows++;
}

static void cleaned_row(struct token_replay *r, size_t row, const char *text, size_t n,
                        const char *want, size_t bytes)
{
    char *got;
    size_t got_bytes;
    int rc = pl_clean_text(&got, &got_bytes, text, n);
    if (rc) token_differs(r, "row %zu: %s", row, pl_status_name(rc));
    else compare_text(r, row, got, got_bytes, want, bytes);
    free(got);
    r->rows++;
}

/* --- rows in tensors -------------------------------------------------------------------------- */

static size_t row_bytes(const struct rows *rows, size_t i)
{
    return (size_t)(rows->offset[i + 1] - rows->offset[i]);
}

static void context_rows(struct token_replay *r, const struct st_file *f, const struct rows *text,
                         const uint8_t *flags)
{
    for (size_t k = 0; k < f->count; k++) {
        const struct st_tensor *t = &f->tensors[k];
        int32_t *want, *got;
        if (strncmp(t->name, "context", 7) || t->dims != 2) continue;
        token_begin(r, t->name);
        want = golden_ints(r->g, f, t->name, NULL);
        got = pl_alloc((size_t)t->shape[1] + 1, sizeof *got);
        if ((size_t)t->shape[0] != text->count)
            token_differs(r, "%lld rows", (long long)t->shape[0]);
        for (size_t i = 0; want && got && i < text->count && i < (size_t)t->shape[0]; i++) {
            size_t width = (size_t)t->shape[1];
            if (flags && flags[i] & NEEDS_REPAIR) continue;
            if (pl_bpe_clip_row(got, (int)width, NULL, r->b, text->bytes + text->offset[i],
                                row_bytes(text, i)))
                token_differs(r, "row %zu: an error", i);
            else compare_ids(r, i, got, width, want + i * width, width);
            r->rows++;
        }
        token_end(r);
        pl_free(want);
        pl_free(got);
    }
}

static void tensors(struct token_replay *r, const struct st_file *f)
{
    const struct st_tensor *flag = pl_safetensors_find(f, "flags");
    const uint8_t *flags = NULL;
    struct rows text, want;
    if (rows_strings(&text, r->g, f, "text")) return;
    if (flag && flag->dtype == PL_U8 && flag->n == text.count) flags = flag->data;
    if (pl_safetensors_find(f, "cleaned.bytes") && !rows_strings(&want, r->g, f, "cleaned")) {
        token_begin(r, "cleaned");
        for (size_t i = 0; i < text.count && i < want.count; i++)
            if (!flags || !(flags[i] & NEEDS_REPAIR))
                cleaned_row(r, i, text.bytes + text.offset[i], row_bytes(&text, i),
                            want.bytes + want.offset[i], row_bytes(&want, i));
        if (text.count != want.count)
            token_differs(r, "%zu texts, %zu rows", text.count, want.count);
        token_end(r);
        rows_clear(&want);
    }
    if (!rows_ids(&want, r->g, f, "ids")) {
        token_begin(r, "ids");
        for (size_t i = 0; i < text.count && i < want.count; i++)
            if (!flags || !(flags[i] & NEEDS_REPAIR))
                ids_row(r, i, text.bytes + text.offset[i], row_bytes(&text, i),
                        want.ids + want.offset[i], row_bytes(&want, i));
        if (text.count != want.count)
            token_differs(r, "%zu texts, %zu rows", text.count, want.count);
        token_end(r);
        rows_clear(&want);
    }
    if (pl_bpe_is_clip(r->b)) context_rows(r, f, &text, flags);
    rows_clear(&text);
}

/* --- the same rows in JSON -------------------------------------------------------------------- */

/* The text of token IDs: CLIP's Python tokenizer shows invalid UTF-8 as U+FFFD, so such rows are
 * left out. */
static void decoded_row(struct token_replay *r, size_t row, const int32_t *ids, size_t n,
                        const json_t *want)
{
    char *got;
    size_t bytes;
    if (pl_bpe_decode(&got, &bytes, r->b, ids, n)) token_differs(r, "row %zu: an error", row);
    else if (!strstr(json_string_value(want), "\xef\xbf\xbd"))
        compare_text(r, row, got, bytes, json_string_value(want), json_string_length(want));
    free(got);
    r->rows++;
}

enum column { CLEANED, IDS, DECODED };

static void json_column(struct token_replay *r, const json_t *doc, enum column column)
{
    static const char *const names[] = { "json cleaned", "json ids", "json decoded" };
    size_t i, k;
    json_t *row;
    token_begin(r, names[column]);
    json_array_foreach(doc, i, row)
    {
        const json_t *text = json_object_get(row, "text"), *ids = json_object_get(row, "ids");
        const json_t *cleaned = json_object_get(row, "cleaned"),
                     *decoded = json_object_get(row, "decoded");
        size_t count = json_array_size(ids);
        int32_t *want = pl_alloc(count + 1, sizeof *want);
        if (json_integer_value(json_object_get(row, "flags")) & NEEDS_REPAIR && column != DECODED) {
            pl_free(want);
            continue;
        }
        for (k = 0; want && k < count; k++)
            want[k] = (int32_t)json_integer_value(json_array_get(ids, k));
        if (!want || !json_is_string(text) || !json_is_array(ids))
            token_differs(r, "row %zu: no text or ids", i);
        else if (column == CLEANED)
            cleaned_row(r, i, json_string_value(text), json_string_length(text),
                        json_string_value(cleaned), json_string_length(cleaned));
        else if (column == IDS)
            ids_row(r, i, json_string_value(text), json_string_length(text), want, count);
        else decoded_row(r, i, want, count, decoded);
        pl_free(want);
    }
    token_end(r);
}

static void json(struct token_replay *r, const char *path)
{
    json_t *doc = golden_json(r->g, strrchr(path, '/') + 1);
    const json_t *first = json_array_get(doc, 0);
    if (json_object_get(first, "cleaned")) json_column(r, doc, CLEANED);
    if (doc) json_column(r, doc, IDS);
    if (json_object_get(first, "decoded")) json_column(r, doc, DECODED);
    json_decref(doc);
}

/* --- which vocabulary ------------------------------------------------------------------------- */

/* The tokenizer's golden values in the source tree of this build, one folder above it. */
static void own_folder(char *folder, size_t capacity)
{
    static const char below[] = "/../test/golden/tokenizer";
    ssize_t n = readlink("/proc/self/exe", folder, capacity - sizeof below);
    char *slash;
    folder[n > 0 ? n : 0] = 0;
    slash = strrchr(folder, '/');
    strcpy(slash ? slash : folder, slash ? below : ".");
}

/* CLIP's merge list is the same for all: in the area's folder, or in our own. */
static int open_clip(struct token_replay *r, const char *name, struct pl_err *err)
{
    char own[4096];
    const char *const folders[] = { r->g->folder, own };
    own_folder(own, sizeof own);
    for (size_t i = 0; i < PL_COUNT(folders); i++) {
        char *path = pl_path_join(folders[i], name);
        int there = path && !access(path, R_OK);
        int rc = there ? pl_bpe_open_clip(&r->b, path, err) : 0;
        free(path);
        if (there) return rc;
    }
    return pl_fail(err, PL_ENOTFOUND, "no %s in the folder", name);
}

static int open_gpt2(struct token_replay *r, const char *stem, struct pl_err *err)
{
    char *folder = pl_path_join(r->g->folder, stem);
    char *vocab = folder ? pl_path_join(folder, "vocab.json") : NULL;
    char *merges = folder ? pl_path_join(folder, "merges.txt") : NULL;
    int rc = vocab && merges ? pl_bpe_open_gpt2(&r->b, vocab, merges, err)
                             : pl_fail(err, PL_ENOMEM, "no memory");
    free(folder);
    free(vocab);
    free(merges);
    return rc;
}

/* The merge list that STEM.safetensors names, or the usual name; 0 if there is no such file. */
static int clip_vocab(char *name, size_t capacity, struct golden *g, const char *stem)
{
    char path[4096];
    struct st_file *f;
    const char *text;
    snprintf(path, sizeof path, "%s/%s.safetensors", g->folder, stem);
    if (pl_safetensors_open(&f, path, NULL)) return 0;
    text = pl_safetensors_meta(f, "config");
    json_t *config = text ? json_loads(text, 0, NULL) : NULL;
    const char *vocab = json_string_value(json_object_get(config, "vocab"));
    int is_clip = vocab || pl_safetensors_find(f, "cleaned.bytes");
    snprintf(name, capacity, "%s", vocab && !strchr(vocab, '/') ? vocab : CLIP_VOCAB);
    json_decref(config);
    pl_safetensors_close(f);
    return is_clip;
}

int golden_bpe(struct golden *g, const char *path, const char *stem)
{
    struct token_replay r = { .g = g };
    struct pl_err err;
    char name[200];
    size_t n = strlen(path);
    int rc;
    if (n > 7 && (!strcmp(path + n - 7, ".txt.gz") || !strcmp(path + n - 4, ".txt"))) {
        rc = pl_bpe_open_clip(&r.b, path, &err); /* a merge list */
        golden_check(g, "opens", !rc, "%s", rc ? err.text : "");
        pl_bpe_close(r.b);
        return 1;
    }
    if (golden_has(g, stem, "merges.txt")) rc = open_gpt2(&r, stem, &err);
    else if (clip_vocab(name, sizeof name, g, stem)) rc = open_clip(&r, name, &err);
    else return 0;
    if (rc) golden_fail(g, "vocabulary", "%s", err.text);
    else if (strstr(strrchr(path, '/'), ".json")) json(&r, path);
    else {
        struct st_file *f;
        if (pl_safetensors_open(&f, path, &err)) golden_fail(g, "opens", "%s", err.text);
        else {
            tensors(&r, f);
            pl_safetensors_close(f);
        }
    }
    pl_bpe_close(r.b);
    return 1;
}
