/* golden_container.c - opens every kind of checkpoint container and compares its tensors with the
 * same ones in a safetensors file. */
#include "golden_container.h"
#include "data/models/weights.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Finds the file with the expected tensors; 0 after a failure line if there is none. */
static int find_expected(struct golden *g, char *path, size_t capacity, const char *stem)
{
    for (size_t n = strlen(stem); n; n--) {
        if (stem[n] && stem[n] != '_' && stem[n] != '.') continue;
        snprintf(path, capacity, "%s/%.*s.safetensors", g->folder, (int)n, stem);
        if (!access(path, R_OK)) return 1;
    }
    golden_fail(g, "expected", "no safetensors file in its folder says what it should contain");
    return 0;
}

static int same(const struct st_tensor *a, const struct st_tensor *b)
{
    return a->dtype == b->dtype && a->dims == b->dims && a->bytes == b->bytes &&
           !memcmp(a->shape, b->shape, (size_t)a->dims * sizeof *a->shape) &&
           (!a->bytes || !memcmp(a->data, b->data, a->bytes));
}

void golden_container(struct golden *g, const char *path, const char *stem)
{
    char expected[4096];
    struct st_file *f, *want;
    struct pl_err err;
    int rc = pl_weights_open(&f, path, &err);
    golden_check(g, "opens", !rc, "%s", rc ? err.text : "");
    if (rc) return;
    if (strcmp(f->kind, "safetensors") && find_expected(g, expected, sizeof expected, stem)) {
        if (pl_safetensors_open(&want, expected, &err)) golden_fail(g, "expected", "%s", err.text);
        else {
            for (size_t i = 0; i < want->count; i++) {
                const struct st_tensor *w = &want->tensors[i], *t = pl_safetensors_find(f, w->name);
                golden_check(g, w->name, t && same(t, w), "%s",
                             t ? "another type, shape or content" : "not there");
            }
            pl_safetensors_close(want);
        }
    }
    pl_safetensors_close(f);
}
