/* golden_tokenizer.c - which tokenizer a file of the area belongs to, and reading its rows. */
#include "golden_tokenizer.h"
#include "test/conform/golden/areas.h"
#include "test/conform/golden/golden.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Files that other files refer to, or that are meant for readers. */
static const char *const companions[] = { "unicode_facts", "strings_handwritten" };

static golden_area_fn *const kinds[] = { golden_t5, golden_bpe };

void token_begin(struct token_replay *r, const char *what)
{
    snprintf(r->what, sizeof r->what, "%s", what);
    r->rows = r->wrong = 0;
}

void token_end(struct token_replay *r)
{
    char line[128];
    snprintf(line, sizeof line, "%s, %zu rows", r->what, r->rows);
    golden_check(r->g, line, r->rows && !r->wrong, "%zu of %zu rows differ; %s", r->wrong, r->rows,
                 r->rows ? r->first : "none there");
}

void token_differs(struct token_replay *r, const char *format, ...)
{
    va_list args;
    if (r->wrong++) return;
    va_start(args, format);
    vsnprintf(r->first, sizeof r->first, format, args);
    va_end(args);
}

static int read_offsets(struct rows *rows, struct golden *g, const struct st_file *f,
                        const char *name, size_t n)
{
    char key[128];
    size_t count;
    snprintf(key, sizeof key, "%s.offsets", name);
    rows->offset = golden_ints(g, f, key, &count);
    if (!rows->offset) return PL_EFORMAT;
    for (size_t i = 0; i < count; i++)
        if (rows->offset[i] < (i ? rows->offset[i - 1] : 0) || (size_t)rows->offset[i] > n)
            count = 0;
    if (!count) {
        golden_fail(g, key, "offsets do not ascend inside the data");
        rows_clear(rows);
        return PL_EFORMAT;
    }
    rows->count = count - 1;
    return PL_OK;
}

int rows_strings(struct rows *rows, struct golden *g, const struct st_file *f, const char *name)
{
    char key[128];
    const struct st_tensor *t;
    *rows = (struct rows){ 0 };
    snprintf(key, sizeof key, "%s.bytes", name);
    t = pl_safetensors_find(f, key);
    if (!t || t->dtype != PL_U8) {
        golden_fail(g, key, "no such tensor of U8 in the file");
        return PL_EFORMAT;
    }
    rows->bytes = t->data;
    return read_offsets(rows, g, f, name, t->n);
}

int rows_ids(struct rows *rows, struct golden *g, const struct st_file *f, const char *name)
{
    size_t n;
    *rows = (struct rows){ 0 };
    rows->ids = golden_ints(g, f, name, &n);
    return rows->ids ? read_offsets(rows, g, f, name, n) : PL_EFORMAT;
}

void rows_clear(struct rows *rows)
{
    pl_free(rows->ids);
    pl_free(rows->offset);
    *rows = (struct rows){ 0 };
}

int golden_has(const struct golden *g, const char *stem, const char *name)
{
    char *folder = pl_path_join(g->folder, stem),
         *path = folder ? pl_path_join(folder, name) : NULL;
    int there = path && !access(path, F_OK);
    free(folder);
    free(path);
    return there;
}

/* 1: the file is a list of texts and nothing else, from which goldens were made. */
static int is_list_of_texts(const char *path)
{
    size_t n = strlen(path);
    json_t *doc = n > 5 && !strcmp(path + n - 5, ".json") ? json_load_file(path, 0, NULL) : NULL;
    int is = json_is_string(json_array_get(doc, 0));
    json_decref(doc);
    return is;
}

int golden_area_tokenizer(struct golden *g, const char *path, const char *stem)
{
    for (size_t i = 0; i < PL_COUNT(companions); i++)
        if (!strcmp(stem, companions[i])) return 1;
    for (size_t i = 0; i < PL_COUNT(kinds); i++)
        if (kinds[i](g, path, stem)) return 1;
    return is_list_of_texts(path);
}
