/* dalle_config.c - reads a transformer's configuration from JSON and checks every key, so that a
 * misspelled one is reported instead of ignored. */
#include "dalle_config.h"
#include "data/files/json.h"
#include "data/files/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CONFIG_BYTES (1u << 20) /* a configuration is a page */
#define INTEGER_MAX (1 << 24)   /* pl_dalle_config_check knows the ranges; this only fits an int */

static const struct {
    const char *key;
    size_t member;
} sizes[] = {
#define MEMBER(name) offsetof(struct pl_dalle_config, name)
    { "T", MEMBER(T) },           { "F", MEMBER(F) },
    { "dim", MEMBER(D) },         { "depth", MEMBER(L) },
    { "heads", MEMBER(H) },       { "dim_head", MEMBER(d) },
    { "text_tokens", MEMBER(V) }, { "image_tokens", MEMBER(Vi) },
#undef MEMBER
};

static const char *const other_keys[] = {
    "base",        "name",          "pad",          "loss_img_weight", "attn_types",
    "conv_kernel", "conv_dilation", "shared_ids",   "untied",          "share_input_output_emb",
    "reversible",  "rotary_emb",    "shift_tokens",
};

/* Parsing state; the first error is kept. */
struct reading {
    const json_t *root;
    const char *source;
    struct pl_err *err;
    int rc;
};

static int refuse(struct reading *r, const char *key, const char *expected)
{
    char shown[61]; /* keys come from outside: shown on one line */
    snprintf(shown, sizeof shown, "%s", key);
    for (char *c = shown; *c; c++)
        if ((unsigned char)*c < ' ' || *c == 127) *c = '?';
    if (r->rc == PL_OK)
        r->rc = pl_fail(r->err, PL_EFORMAT, "%.200s: \"%s\": expected %s", r->source, shown,
                        expected);
    return r->rc;
}

static void integer(struct reading *r, const char *key, int *value)
{
    const json_t *j = json_object_get(r->root, key);
    if (!j) return;
    if (!json_is_integer(j) || json_integer_value(j) < 0 || json_integer_value(j) > INTEGER_MAX)
        refuse(r, key, "a whole number from 0 to 16777216");
    else *value = (int)json_integer_value(j);
}

static void boolean(struct reading *r, const char *key, int *value)
{
    const json_t *j = json_object_get(r->root, key);
    if (!j) return;
    if (!json_is_boolean(j)) refuse(r, key, "true or false");
    else *value = json_is_true(j);
}

/* Features that every model here has; they must not be false. */
static void always(struct reading *r, const char *key)
{
    int value = 1;
    boolean(r, key, &value);
    if (!value) refuse(r, key, "true: there is no model without it here");
}

static int is_known(const char *key)
{
    for (size_t i = 0; i < PL_COUNT(sizes); i++)
        if (!strcmp(key, sizes[i].key)) return 1;
    for (size_t i = 0; i < PL_COUNT(other_keys); i++)
        if (!strcmp(key, other_keys[i])) return 1;
    return 0;
}

/* The list under `key` if it has one string per block; NULL if it is absent or refused. */
static const json_t *strings(struct reading *r, const char *key, int L)
{
    const json_t *list = json_object_get(r->root, key);
    char expected[64];
    if (!list) return NULL;
    snprintf(expected, sizeof expected, "a list of %d strings, one a block", L);
    if (!json_is_array(list) || json_array_size(list) != (size_t)L) {
        refuse(r, key, expected);
        return NULL;
    }
    for (int l = 0; l < L; l++)
        if (!json_is_string(json_array_get(list, (size_t)l))) {
            refuse(r, key, expected);
            return NULL;
        }
    return list;
}

static void read_kinds(struct reading *r, struct pl_dalle_config *c, int kernel, int dilation)
{
    const json_t *list = strings(r, "attn_types", c->L);
    for (int l = 0; list && l < c->L; l++) {
        const char *name = json_string_value(json_array_get(list, (size_t)l));
        struct pl_mask mask = { .kind = PL_MASK_CONV, .kernel = kernel, .dilation = dilation };
        if (strcmp(name, "conv_like") && pl_mask_parse(&mask, name, NULL)) {
            refuse(r, "attn_types",
                   "full, axial_row, axial_col, conv_like or conv with an odd kernel, "
                   "as in conv5, conv3d2, conv5@1.6.6");
            return;
        }
        c->block[l].kind = mask.kind;
        c->block[l].kernel = mask.kernel;
        c->block[l].dilation = mask.dilation;
    }
}

/* Numbers equal strings equally, in order of first appearance. */
static void read_groups(struct reading *r, struct pl_dalle_config *c)
{
    const json_t *list = strings(r, "shared_ids", c->L);
    int groups = 0;
    for (int l = 0; list && l < c->L; l++) {
        const char *id = json_string_value(json_array_get(list, (size_t)l));
        int earlier = 0;
        while (strcmp(json_string_value(json_array_get(list, (size_t)earlier)), id)) earlier++;
        c->block[l].group = earlier < l ? c->block[earlier].group : groups++;
    }
}

static void read_base(struct reading *r, struct pl_dalle_config *c)
{
    const json_t *base = json_object_get(r->root, "base");
    if (base) {
        if (!json_is_string(base) ||
            pl_dalle_config_named(c, json_string_value(base), NULL) != PL_OK)
            refuse(r, "base", "\"run\", \"middle\", \"small\" or \"demo\"");
        return;
    }
    *c = (struct pl_dalle_config){
        .pad = 1, .image_weight = 7, .V = 2, .Vi = 1, .name = "unnamed"
    };
}

/* Text and image vocabularies may be absent if strict is 0: then only the stack is described. */
static void read_sizes(struct reading *r, struct pl_dalle_config *c, int strict)
{
    for (size_t i = 0; i < PL_COUNT(sizes); i++) {
        const char *key = sizes[i].key;
        int optional = !strict && strstr(key, "_tokens");
        if (!json_object_get(r->root, key) && !json_object_get(r->root, "base") && !optional)
            refuse(r, key, "a whole number (or a \"base\" that has one)");
        integer(r, key, (int *)((char *)c + sizes[i].member));
    }
    integer(r, "pad", &c->pad);
    if (r->rc == PL_OK && (c->L < 1 || c->L > PL_DALLE_BLOCKS_MAX))
        refuse(r, "depth", "1 to 256 blocks");
}

int pl_dalle_config_from_json(struct pl_dalle_config *c, const json_t *root, int strict,
                              const char *source, struct pl_err *err)
{
    struct reading r = { root, source, err, PL_OK };
    const json_t *name = json_object_get(root, "name");
    const json_t *weight = json_object_get(root, "loss_img_weight");
    int kernel = 5, dilation = 1, shared = 1, untied = 0;
    struct pl_err why;
    const char *key;
    json_t *value;
    if (!json_is_object(root))
        return pl_fail(err, PL_EFORMAT, "%.200s: expected a JSON object", source);
    json_object_foreach((json_t *)root, key, value) if (strict && !is_known(key)) return refuse(
        &r, key, "one of the keys there are");
    read_base(&r, c);
    read_sizes(&r, c, strict);
    integer(&r, "conv_kernel", &kernel);
    integer(&r, "conv_dilation", &dilation);
    if (r.rc) return r.rc;
    pl_dalle_config_pattern(c, kernel, dilation);
    read_kinds(&r, c, kernel, dilation);
    read_groups(&r, c);
    boolean(&r, "untied", &untied);
    if (untied) pl_dalle_config_untie(c);
    shared = !c->separate_embedding;
    boolean(&r, "share_input_output_emb", &shared);
    c->separate_embedding = !shared;
    always(&r, "reversible");
    always(&r, "rotary_emb");
    always(&r, "shift_tokens");
    if (weight && !json_is_number(weight)) refuse(&r, "loss_img_weight", "a number");
    else if (weight) c->image_weight = json_number_value(weight);
    if (name && (!json_is_string(name) || (strict && json_string_length(name) >= sizeof c->name)))
        refuse(&r, "name", "a string of at most 31 characters");
    else if (name) snprintf(c->name, sizeof c->name, "%s", json_string_value(name));
    if (r.rc) return r.rc;
    if ((r.rc = pl_dalle_config_check(c, &why)))
        pl_fail(err, r.rc, "%.200s: %.280s", source, why.text);
    return r.rc;
}

int pl_dalle_config_read(struct pl_dalle_config *c, const char *path, struct pl_err *err)
{
    json_error_t why;
    json_t *root;
    size_t bytes;
    void *text;
    int rc = pl_file_read(&text, &bytes, path, CONFIG_BYTES, err);
    if (rc) return rc;
    root = pl_json_load(text, bytes, JSON_REJECT_DUPLICATES, &why);
    free(text);
    if (!root)
        return pl_fail(err, pl_json_status(), "%.200s: line %d: %.120s", path, why.line, why.text);
    rc = pl_dalle_config_from_json(c, root, 1, path, err);
    json_decref(root);
    return rc;
}

int pl_dalle_config_find(struct pl_dalle_config *c, const char *name_or_path, struct pl_err *err)
{
    if (strpbrk(name_or_path, "./")) return pl_dalle_config_read(c, name_or_path, err);
    return pl_dalle_config_named(c, name_or_path, err);
}

static void kind_name(char *name, size_t size, const struct pl_dalle_block *b)
{
    const char *version = b->kind == PL_MASK_CONV_CORNER ? "@1.6.6" : "";
    switch (b->kind) {
    case PL_MASK_FULL:
    case PL_MASK_NONE: snprintf(name, size, "full"); break;
    case PL_MASK_ROW: snprintf(name, size, "axial_row"); break;
    case PL_MASK_COL: snprintf(name, size, "axial_col"); break;
    case PL_MASK_CONV:
    case PL_MASK_CONV_CORNER:
        if (b->dilation == 1) snprintf(name, size, "conv%d%s", b->kernel, version);
        else snprintf(name, size, "conv%dd%d%s", b->kernel, b->dilation, version);
    }
}

json_t *pl_dalle_config_to_json(const struct pl_dalle_config *c)
{
    json_t *root = json_object(), *kinds = json_array(), *groups = json_array();
    json_object_set_new(root, "name", json_string(c->name));
    for (size_t i = 0; i < PL_COUNT(sizes); i++)
        json_object_set_new(root, sizes[i].key,
                            json_integer(*(const int *)((const char *)c + sizes[i].member)));
    for (int l = 0; l < c->L; l++) {
        char name[48], group[16];
        kind_name(name, sizeof name, &c->block[l]);
        snprintf(group, sizeof group, "%d", c->block[l].group);
        json_array_append_new(kinds, json_string(name));
        json_array_append_new(groups, json_string(group));
    }
    json_object_set_new(root, "pad", json_integer(c->pad));
    json_object_set_new(root, "loss_img_weight", json_real(c->image_weight));
    json_object_set_new(root, "share_input_output_emb", json_boolean(!c->separate_embedding));
    json_object_set_new(root, "attn_types", kinds);
    json_object_set_new(root, "shared_ids", groups);
    return root;
}
