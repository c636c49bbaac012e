/* golden_quant.c - codebooks and block-wise codes; messages are golden_messages.c. See
 * test/golden/quant/README.md. */
#include "golden_quant.h"
#include "test/conform/golden/areas.h"
#include "test/conform/golden/golden.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- code books and block-wise codes ---------------------------------------------------------- */

static void run_codebooks(struct golden *g, const char *path)
{
    struct st_file *f = golden_open(g, path);
    for (size_t i = 0; f && i < f->count; i++) {
        const struct st_tensor *t = &f->tensors[i];
        float book[PL_CODES];
        pl_codebook(book, strncmp(t->name, "unsigned", 8) ? PL_MAP_SIGNED : PL_MAP_UNSIGNED,
                    strstr(t->name, "run") ? PL_RULE_RUN : PL_RULE_LUT);
        golden_check(g, t->name, t->bytes == sizeof book && !memcmp(t->data, book, sizeof book),
                     "not bit for bit");
    }
    pl_safetensors_close(f);
}

struct blockwise {
    struct golden *g;
    const char *what;
    enum pl_map map;
    enum pl_rule rule;
    size_t block, n, blocks;
    const float *x;
    const struct st_tensor *codes, *absmax, *deq;
};

static size_t first_difference(const void *a, const void *b, size_t bytes)
{
    size_t i = 0;
    while (i < bytes && ((const char *)a)[i] == ((const char *)b)[i]) i++;
    return i;
}

static void compare_blockwise(const struct blockwise *c)
{
    struct golden *g = c->g;
    const struct pl_backend *be = g->be;
    uint8_t *codes = pl_alloc(c->n, 1), *d_codes = be->alloc(c->n);
    float *absmax = pl_alloc(c->blocks, sizeof *absmax), *y = pl_alloc(c->n, sizeof *y);
    float *want = pl_alloc(c->n, sizeof *want), *d_y = be->alloc(c->n * sizeof *d_y);
    float *d_x = golden_up(g, c->x, c->n), *d_absmax = be->alloc(c->blocks * sizeof *d_absmax);
    float book[PL_CODES];
    int good = codes && d_codes && absmax && y && want && d_y && d_x && d_absmax;
    pl_codebook(book, c->map, c->rule);
    if (good)
        good = !be->quantize(d_codes, d_absmax, d_x, c->n, c->block, c->map, c->rule) &&
               !be->dequantize(d_y, d_codes, d_absmax, c->n, c->block, book) &&
               !be->get(codes, d_codes, c->n) && !golden_down(g, absmax, d_absmax, c->blocks) &&
               !golden_down(g, y, d_y, c->n);
    if (!good) golden_fail(g, c->what, "the operation failed");
    else {
        size_t at = first_difference(codes, c->codes->data, c->n), same = 0;
        golden_check(g, c->what, at == c->n, "code %zu differs", at);
        at = first_difference(absmax, c->absmax->data, c->blocks * sizeof *absmax) / sizeof *absmax;
        if (at < c->blocks) golden_fail(g, c->what, "absmax %zu differs", at);
        if (c->deq) {
            pl_safetensors_to_float(want, c->deq);
            while (same < c->n && (y[same] == want[same] || (isnan(y[same]) && isnan(want[same]))))
                same++;
            if (same < c->n) golden_fail(g, c->what, "decoded %zu differs", same);
        }
    }
    pl_free(codes);
    pl_free(absmax);
    pl_free(y);
    pl_free(want);
    be->free(d_codes);
    be->free(d_absmax);
    be->free(d_x);
    be->free(d_y);
}

const struct st_tensor *quant_sibling(const struct st_file *f, const char *stem, const char *what)
{
    char name[256];
    snprintf(name, sizeof name, "%s.%s", stem, what);
    return pl_safetensors_find(f, name);
}

/* stem is "<case>.<signed|unsigned>.<rule>.<block>", or the case alone for the reference run's
 * rule. */
static void one_blockwise(struct golden *g, const struct st_file *f, const char *stem)
{
    struct blockwise c = {
        .g = g, .what = stem, .map = PL_MAP_SIGNED, .rule = PL_RULE_RUN, .block = 4096
    };
    char name[200], *kind = NULL, *rule = NULL, *block = NULL;
    float *x;
    snprintf(name, sizeof name, "%s", stem);
    if ((block = strrchr(name, '.'))) {
        *block++ = 0;
        if ((rule = strrchr(name, '.'))) *rule++ = 0;
        if (rule && (kind = strrchr(name, '.'))) *kind++ = 0;
        if (!kind) {
            golden_fail(g, stem, "expected case.map.rule.block");
            return;
        }
        c.block = strtoul(block, NULL, 10);
        c.map = strcmp(kind, "unsigned") ? PL_MAP_SIGNED : PL_MAP_UNSIGNED;
        if (!strcmp(rule, "lut")) c.rule = PL_RULE_LUT;
        else if (!strcmp(rule, "cuda")) c.rule = PL_RULE_CUDA;
        else if (strcmp(rule, "run")) {
            golden_fail(g, stem, "expected the rule run, lut or cuda");
            return;
        }
    }
    c.codes = quant_sibling(f, stem, "codes");
    c.absmax = quant_sibling(f, stem, "absmax");
    c.deq = quant_sibling(f, stem, "deq");
    snprintf(name + strlen(name), sizeof name - strlen(name), ".x");
    x = golden_floats(g, f, name, &c.n);
    c.x = x;
    for (size_t i = 0; x && c.map == PL_MAP_UNSIGNED && i < c.n; i++) x[i] = fabsf(x[i]);
    if (c.block) c.blocks = pl_blocks(c.n, c.block);
    if (x && (!c.block || !c.absmax || c.codes->bytes != c.n || (c.deq && c.deq->n != c.n) ||
              c.absmax->bytes != c.blocks * sizeof(float)))
        golden_fail(g, stem, "codes, absmax, deq and block do not belong together");
    else if (x) compare_blockwise(&c);
    pl_free(x);
}

static void run_blockwise(struct golden *g, const char *path)
{
    struct st_file *f = golden_open(g, path);
    for (size_t i = 0; f && i < f->count; i++) {
        char stem[200];
        const char *name = f->tensors[i].name;
        if (!pl_ends_with(name, ".codes")) continue;
        snprintf(stem, sizeof stem, "%.*s", (int)(strlen(name) - strlen(".codes")), name);
        one_blockwise(g, f, stem);
    }
    pl_safetensors_close(f);
}

int golden_area_quant(struct golden *g, const char *path, const char *stem)
{
    if (pl_ends_with(path, ".json")) {
        if (strcmp(stem, "size_adaptive")) return 0;
        quant_adaptive(g);
    } else if (!strncmp(stem, "codebooks", 9)) run_codebooks(g, path);
    else if (!strncmp(stem, "blockwise", 9)) run_blockwise(g, path);
    else if (!strncmp(stem, "streaming", 9)) quant_streaming(g, path);
    else if (!strcmp(stem, "compress_inputs")) quant_inputs(g, path);
    else if (!strncmp(stem, "compress_", 9)) return quant_compress(g, path, stem);
    else return 0;
    return 1;
}
