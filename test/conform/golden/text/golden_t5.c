/* golden_t5.c - T5's tokenizer against transformers and sentencepiece. t5_XX.safetensors and
 * t5_XX.json.gz hold the same rows for the model t5_XX/spiece.model. */
#include "golden_tokenizer.h"
#include "data/text/unigram.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MODEL "spiece.model"

static void ids_row(struct token_replay *r, const char *text, size_t n, const int32_t *want,
                    size_t count, size_t max, enum unigram_rules rules)
{
    size_t capacity = count + 1, got_count, i = 0;
    int32_t *got = pl_alloc(capacity, sizeof *got);
    if (!got || pl_unigram_encode(got, capacity, &got_count, r->u, text, n, rules)) {
        token_differs(r, "row %zu: out of memory", r->rows);
    } else {
        if (got_count > max) got_count = max;
        while (i < count && i < got_count && got[i] == want[i]) i++;
        if (got_count != count || i < count)
            token_differs(r, "row %zu, position %zu: %d of %zu ids, want %d of %zu", r->rows, i,
                          i < got_count && i < capacity ? got[i] : -1, got_count,
                          i < count ? want[i] : -1, count);
    }
    pl_free(got);
    r->rows++;
}

static void text_row(struct token_replay *r, const char *text, size_t n, const char *want,
                     size_t bytes, enum unigram_rules rules)
{
    char *got;
    size_t got_bytes;
    if (pl_unigram_normalize(&got, &got_bytes, r->u, text, n, rules))
        token_differs(r, "row %zu: out of memory", r->rows);
    else if (got_bytes != bytes || memcmp(got, want, bytes))
        token_differs(r, "row %zu: %zu bytes \"%.40s\", want %zu \"%.*s\"", r->rows, got_bytes, got,
                      bytes, bytes < 40 ? (int)bytes : 40, want);
    free(got);
    r->rows++;
}

/* --- rows in tensors -------------------------------------------------------------------------- */

static void tensor_ids(struct token_replay *r, const struct st_file *f, const struct rows *text,
                       const char *name, size_t max, enum unigram_rules rules)
{
    struct rows want;
    if (rows_ids(&want, r->g, f, name)) return;
    token_begin(r, name);
    for (size_t i = 0; i < text->count && i < want.count; i++)
        ids_row(r, text->bytes + text->offset[i], (size_t)(text->offset[i + 1] - text->offset[i]),
                want.ids + want.offset[i], (size_t)(want.offset[i + 1] - want.offset[i]), max,
                rules);
    if (text->count != want.count) token_differs(r, "%zu texts, %zu rows", text->count, want.count);
    token_end(r);
    rows_clear(&want);
}

static void tensor_texts(struct token_replay *r, const struct st_file *f, const struct rows *text,
                         const char *name, enum unigram_rules rules)
{
    struct rows want;
    if (rows_strings(&want, r->g, f, name)) return;
    token_begin(r, name);
    for (size_t i = 0; i < text->count && i < want.count; i++)
        text_row(r, text->bytes + text->offset[i], (size_t)(text->offset[i + 1] - text->offset[i]),
                 want.bytes + want.offset[i], (size_t)(want.offset[i + 1] - want.offset[i]), rules);
    if (text->count != want.count) token_differs(r, "%zu texts, %zu rows", text->count, want.count);
    token_end(r);
    rows_clear(&want);
}

static void tensors(struct token_replay *r, const char *path)
{
    struct st_file *f;
    struct rows text;
    struct pl_err err;
    json_t *config;
    if (pl_safetensors_open(&f, path, &err)) {
        golden_fail(r->g, "", "%s", err.text);
        return;
    }
    if ((config = golden_meta(r->g, f, "config"))) {
        long size = golden_int(r->g, config, "ids");
        golden_check(r->g, "vocabulary", size == pl_unigram_size(r->u), "%d ids, want %ld",
                     pl_unigram_size(r->u), size);
    }
    json_decref(config);
    if (!rows_strings(&text, r->g, f, "text")) {
        tensor_texts(r, f, &text, "normalized", UNIGRAM_TRANSFORMERS);
        tensor_texts(r, f, &text, "normalized_sentencepiece", UNIGRAM_SENTENCEPIECE);
        tensor_ids(r, f, &text, "ids", SIZE_MAX, UNIGRAM_TRANSFORMERS);
        tensor_ids(r, f, &text, "ids_max16", 16, UNIGRAM_TRANSFORMERS);
        tensor_ids(r, f, &text, "ids_sentencepiece", SIZE_MAX, UNIGRAM_SENTENCEPIECE);
        rows_clear(&text);
    }
    pl_safetensors_close(f);
}

/* --- the same rows in JSON -------------------------------------------------------------------- */

static void json_rows(struct token_replay *r, const json_t *doc, const char *name,
                      enum unigram_rules rules)
{
    size_t index;
    json_t *row;
    char what[64];
    snprintf(what, sizeof what, "json %s", name);
    token_begin(r, what);
    json_array_foreach(doc, index, row)
    {
        const json_t *text = json_object_get(row, "text"), *want = json_object_get(row, name);
        const char *s = json_string_value(text);
        size_t n = json_string_length(text);
        if (s && json_is_string(want))
            text_row(r, s, n, json_string_value(want), json_string_length(want), rules);
        else if (s && json_is_array(want)) {
            size_t count = json_array_size(want);
            int32_t *ids = pl_alloc(count, sizeof *ids);
            for (size_t i = 0; ids && i < count; i++)
                ids[i] = (int32_t)json_integer_value(json_array_get(want, i));
            if (ids) ids_row(r, s, n, ids, count, SIZE_MAX, rules);
            pl_free(ids);
        } else token_differs(r, "row %zu has no text or no %s", index, name);
    }
    token_end(r);
}

static void json(struct token_replay *r, const char *path)
{
    json_t *doc = golden_json(r->g, strrchr(path, '/') + 1);
    if (!doc) return;
    json_rows(r, doc, "normalized", UNIGRAM_TRANSFORMERS);
    json_rows(r, doc, "normalized_sentencepiece", UNIGRAM_SENTENCEPIECE);
    json_rows(r, doc, "ids", UNIGRAM_TRANSFORMERS);
    json_rows(r, doc, "ids_sentencepiece", UNIGRAM_SENTENCEPIECE);
    json_decref(doc);
}

int golden_t5(struct golden *g, const char *path, const char *stem)
{
    struct token_replay r = { .g = g };
    char *folder, *model;
    struct pl_err err = { "out of memory" };
    if (!golden_has(g, stem, MODEL)) return 0;
    folder = pl_path_join(g->folder, stem);
    model = folder ? pl_path_join(folder, MODEL) : NULL;
    if (!model || pl_unigram_open(&r.u, model, &err)) golden_fail(g, MODEL, "%s", err.text);
    else if (strstr(strrchr(path, '/'), ".json")) json(&r, path);
    else tensors(&r, path);
    pl_unigram_close(r.u);
    free(model);
    free(folder);
    return 1;
}
