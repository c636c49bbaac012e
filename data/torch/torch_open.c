/* torch_open.c - opens PyTorch checkpoints: recognizes the kind of file, finds its pickle and its
 * storages, and selects the weights among everything the pickle contains. */
#include "torch_reader.h"
#include "data/files/json.h"
#include "ref/small.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PICKLE_BYTES_MAX \
    (64 << 20) /* names and numbers only, storages are separate; known ones are below 1 MB */
#define METADATA_BYTES_MAX (1 << 20)
#define VISITS_MAX (1 << 22) /* values visited: shared ones are visited repeatedly */

static const uint8_t zip_magic[] = { 'P', 'K' };

/* The older format begins with a pickle of a ten-byte number: PROTO (optional), perhaps FRAME, then
 * LONG1; in protocol 1 LONG in digits. A safetensors file would need a header of 100 MB or more to
 * look like this. */
static int is_stream(const uint8_t *p, size_t bytes)
{
    if (bytes >= 8 && !memcmp(p, "L1195470", 8))
        return 1; /* the first digits of 0x1950a86a20f9... */
    return bytes >= 4 && p[0] == 0x80 && p[1] >= 2 && p[1] <= 5 &&
           ((p[2] == 0x8A && p[3] == 0x0A) || p[2] == 0x95);
}

int pl_torch_begins(const void *head, size_t bytes)
{
    return (bytes >= sizeof zip_magic && !memcmp(head, zip_magic, sizeof zip_magic)) ||
           is_stream(head, bytes);
}

static void drop(void *owner)
{
    struct torch_owner *o = owner;
    for (size_t i = 0; i < o->owned_count; i++) free(o->owned[i]);
    free(o->owned);
    pl_mapping_close(&o->map);
    free(o);
}

/* -- which values are the weights -------------------------------------------------------------- */

static int holds_tensors(const struct pickle_value *v)
{
    if (!v || v->kind != PICKLE_DICT) return 0;
    for (size_t i = 0; i + 1 < v->count; i += 2)
        if (pl_torch_tensor_arguments(v->item[i + 1])) return 1;
    return 0;
}

static int add_dict(struct torch_reader *r, const struct pickle_value *dict)
{
    int rc = PL_OK;
    for (size_t i = 0; !rc && i + 1 < dict->count; i += 2) {
        const struct pickle_value *args = pl_torch_tensor_arguments(dict->item[i + 1]);
        if (args && dict->item[i]->kind == PICKLE_TEXT)
            rc = pl_torch_add(r, "", dict->item[i], args);
    }
    return rc;
}

static int is_module(const struct pickle_value *v)
{
    return v && v->kind == PICKLE_OBJECT && v->item[0]->bytes > 9 &&
           !memcmp(v->item[0]->text, "__torch__", 9);
}

/* A TorchScript module: its attributes are tensors, modules, and other things, which are
 * ignored. */
static int add_module(struct torch_reader *r, const struct pickle_value *module, const char *prefix,
                      int depth)
{
    const struct pickle_value *state = module->item[2];
    int rc = PL_OK;
    if (depth > PICKLE_DEPTH_MAX)
        return pl_fail(r->err, PL_ELIMIT, "%s: modules inside modules, more than %d deep",
                       r->f->path, PICKLE_DEPTH_MAX);
    if (!state || state->kind != PICKLE_DICT) return PL_OK;
    for (size_t i = 0; !rc && i + 1 < state->count; i += 2) {
        const struct pickle_value *key = state->item[i], *value = state->item[i + 1];
        const struct pickle_value *args = pl_torch_tensor_arguments(value);
        if (++r->visits > VISITS_MAX)
            return pl_fail(r->err, PL_ELIMIT, "%s: more than %d attributes", r->f->path,
                           VISITS_MAX);
        if (key->kind != PICKLE_TEXT) continue;
        if (args) rc = pl_torch_add(r, prefix, key, args);
        else if (is_module(value)) {
            char name[TORCH_NAME_MAX + 1];
            int n = snprintf(name, sizeof name, "%s%.*s.", prefix,
                             (int)(key->bytes < TORCH_NAME_MAX ? key->bytes : TORCH_NAME_MAX),
                             key->text);
            if (n > TORCH_NAME_MAX)
                return pl_fail(r->err, PL_ELIMIT, "%s: a module's name of more than %d bytes",
                               r->f->path, TORCH_NAME_MAX);
            rc = add_module(r, value, name, depth + 1);
        }
    }
    return rc;
}

static int add_weights(struct torch_reader *r, const struct pickle_value *root)
{
    /* Lightning; transformers and the reference run; DALLE-pytorch; others. */
    static const char *const keys[] = { "state_dict", "model", "weights", "model_state_dict",
                                        "module" };
    if (is_module(root)) {
        r->f->kind = "TorchScript";
        return add_module(r, root, "", 0);
    }
    if (holds_tensors(root)) return add_dict(r, root);
    for (size_t i = 0; i < PL_COUNT(keys); i++)
        if (holds_tensors(pl_pickle_get(root, keys[i])))
            return add_dict(r, pl_pickle_get(root, keys[i]));
    if (root->kind == PICKLE_DICT && !root->count) return PL_OK;
    return pl_fail(r->err, PL_EFORMAT,
                   "%s: no tensors in it: neither a dict of tensors nor one under "
                   "'state_dict', 'model' or 'weights'",
                   r->f->path);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Refuses repeated names: readers would take the first, Python takes the last. */
static int check_names(struct torch_reader *r)
{
    const char **names = calloc(r->f->count + 1, sizeof *names);
    int rc = names ? PL_OK : pl_torch_no_memory(r);
    for (size_t i = 0; !rc && i < r->f->count; i++) names[i] = r->f->tensors[i].name;
    if (!rc) qsort(names, r->f->count, sizeof *names, by_name);
    for (size_t i = 1; !rc && i < r->f->count; i++)
        if (!strcmp(names[i - 1], names[i]))
            rc = pl_fail(r->err, PL_EFORMAT, "%s: two tensors of the name %.100s", r->f->path,
                         names[i]);
    free(names);
    return rc;
}

/* -- the zip ---------------------------------------------------------------------------------- */

/* The member data.pkl with the shortest path. */
static long find_pickle(const struct archive *a)
{
    long found = -1;
    size_t shortest = SIZE_MAX;
    for (size_t i = 0; i < pl_zip_archive_count(a); i++) {
        const char *name = pl_zip_archive_name(a, i);
        if (!name || !pl_ends_with(name, "data.pkl") || strlen(name) >= shortest) continue;
        if (strlen(name) > 8 && name[strlen(name) - 9] != '/') continue;
        found = (long)i;
        shortest = strlen(name);
    }
    return found;
}

/* Little-endian unless the member byteorder says otherwise. */
static int check_order(struct torch_reader *r)
{
    char name[TORCH_NAME_MAX];
    void *order;
    size_t n;
    long index;
    int rc = PL_OK;
    snprintf(name, sizeof name, "%sbyteorder", r->top);
    if ((index = pl_zip_archive_find(r->archive, name)) < 0) return PL_OK;
    if ((rc = pl_zip_archive_read(r->archive, (size_t)index, &order, &n, 100, r->err))) return rc;
    if (strcmp(order, "little"))
        rc = pl_fail(r->err, PL_EFORMAT, "%s: %s says '%.20s', expected little", r->f->path, name,
                     (char *)order);
    free(order);
    return rc;
}

static int read_metadata(struct torch_reader *r)
{
    struct st_file *f = r->f;
    char name[TORCH_NAME_MAX];
    const char *key;
    void *text;
    size_t n;
    json_t *root, *value;
    long index;
    int rc;
    snprintf(name, sizeof name, "%s" TORCH_METADATA, r->top);
    if ((index = pl_zip_archive_find(r->archive, name)) < 0) return PL_OK;
    if ((rc = pl_zip_archive_read(r->archive, (size_t)index, &text, &n, METADATA_BYTES_MAX,
                                  r->err)))
        return rc;
    root = pl_json_load(text, n, 0, NULL);
    free(text);
    f->meta_key = calloc(json_object_size(root) + 1, sizeof *f->meta_key);
    f->meta_value = calloc(json_object_size(root) + 1, sizeof *f->meta_value);
    if (!f->meta_key || !f->meta_value || (!root && pl_json_status() == PL_ENOMEM))
        rc = pl_torch_no_memory(r);
    else if (!json_is_object(root))
        rc = pl_fail(r->err, PL_EFORMAT, "%s: %s is not a JSON object", f->path, name);
    else json_object_foreach(root, key, value)
        {
            const char *string = json_string_value(value);
            char *k = pl_torch_keep(r->o, strlen(key) + 1),
                 *v = string ? pl_torch_keep(r->o, strlen(string) + 1) : NULL;
            if (!string)
                rc = pl_fail(r->err, PL_EFORMAT, "%s: %s: %.80s is not text", f->path, name, key);
            else if (!k || !v) rc = pl_torch_no_memory(r);
            if (rc) break;
            f->meta_key[f->metas] = memcpy(k, key, strlen(key) + 1);
            f->meta_value[f->metas++] = memcpy(v, string, strlen(string) + 1);
        }
    json_decref(root);
    return rc;
}

static int read_zip(struct torch_reader *r)
{
    const struct pickle_value *root;
    const char *name;
    void *text = NULL;
    size_t n;
    long index;
    int rc = pl_zip_archive_open(&r->archive, r->f->path, r->o->map.at, r->o->map.bytes, r->err);
    if (rc) return rc;
    r->f->kind = "PyTorch zip";
    if ((index = find_pickle(r->archive)) < 0)
        return pl_fail(r->err, PL_EFORMAT,
                       "%s: a ZIP archive without data.pkl: no PyTorch checkpoint", r->f->path);
    name = pl_zip_archive_name(r->archive, (size_t)index);
    n = strlen(name) - strlen("data.pkl");
    if (n > 300)
        return pl_fail(r->err, PL_ELIMIT, "%s: a member's name of %zu bytes", r->f->path, n);
    if (!(r->top = pl_torch_keep(r->o, n + 1))) return pl_torch_no_memory(r);
    memcpy(r->top, name, n);
    r->top[n] = 0;
    rc = check_order(r);
    if (!rc)
        rc = pl_zip_archive_read(r->archive, (size_t)index, &text, &n, PICKLE_BYTES_MAX, r->err);
    if (!rc) rc = pl_pickle_read(r->pickle, &root, NULL, text, n, r->f->path, r->err);
    if (!rc) rc = add_weights(r, root);
    if (!rc) rc = read_metadata(r);
    free(text);
    return rc;
}

/* -- the older stream ------------------------------------------------------------------------- */

/* The size of a storage's elements is recorded in the pickle only. */
static int list_storages(struct torch_reader *r)
{
    struct pickle_value *const *list;
    size_t n = pl_pickle_persistents(r->pickle, &list), owned = 0;
    if (!(r->locations = calloc(n + 1, sizeof *r->locations))) return pl_torch_no_memory(r);
    for (size_t i = 0; i < n; i++) {
        struct torch_storage s;
        int rc = pl_torch_read_storage(&s, list[i], r->f->path, r->err);
        if (rc) return rc;
        r->locations[i] = (struct storage_location){ s.key->text, s.key->bytes, NULL, 0,
                                                     pl_dtype_size(s.dtype) };
    }
    qsort(r->locations, n, sizeof *r->locations, pl_torch_by_key);
    for (size_t i = 0; i < n; i++) {
        if (owned && !pl_torch_by_key(&r->locations[owned - 1], &r->locations[i])) {
            if (r->locations[owned - 1].element == r->locations[i].element) continue;
            return pl_fail(r->err, PL_EFORMAT, "%s: storage %.*s has two types", r->f->path,
                           (int)(r->locations[i].key_bytes < 60 ? r->locations[i].key_bytes : 60),
                           r->locations[i].key);
        }
        r->locations[owned++] = r->locations[i];
    }
    r->location_count = owned;
    return PL_OK;
}

/* For each key in the order of the last pickle: a count, then this many elements. */
static int locate(struct torch_reader *r, const struct pickle_value *keys, size_t at)
{
    const struct pl_mapping *map = &r->o->map;
    if (keys->kind != PICKLE_LIST)
        return pl_fail(r->err, PL_EFORMAT, "%s: the list of storages is malformed", r->f->path);
    for (size_t i = 0; i < keys->count; i++) {
        const struct pickle_value *key = keys->item[i];
        struct storage_location wanted = { .key = key->text, .key_bytes = key->bytes }, *p = NULL;
        uint64_t count;
        if (key->kind == PICKLE_TEXT && r->location_count)
            p = bsearch(&wanted, r->locations, r->location_count, sizeof *p, pl_torch_by_key);
        if (!p || p->data)
            return pl_fail(r->err, PL_EFORMAT,
                           "%s: storage %zu of the list is not one of the pickle's, or there twice",
                           r->f->path, i);
        count = map->bytes - at >= 8 ? pl_le64(map->at + at) : 0;
        if (map->bytes - at < 8 || count > (map->bytes - at - 8) / p->element)
            return pl_fail(r->err, PL_EFORMAT, "%s: storage %zu: %llu elements at byte %zu of %zu",
                           r->f->path, i, (unsigned long long)count, at, map->bytes);
        p->data = map->at + at + 8;
        p->bytes = (size_t)count * p->element;
        at += 8 + p->bytes;
    }
    return PL_OK;
}

static int read_stream(struct torch_reader *r)
{
    static const char *const parts[] = { "magic number", "protocol", "system", "object",
                                         "storages" };
    const struct pl_mapping *map = &r->o->map;
    const struct pickle_value *value[PL_COUNT(parts)];
    size_t at = 0, limit = map->bytes, used;
    int rc = PL_OK;
    r->f->kind = "PyTorch stream";
    for (size_t i = 0; !rc && i < PL_COUNT(parts); i++) {
        size_t left = limit - at < PICKLE_BYTES_MAX ? limit - at : PICKLE_BYTES_MAX;
        rc = pl_pickle_read(r->pickle, &value[i], &used, map->at + at, left, r->f->path, r->err);
        at += used;
    }
    if (rc) return rc;
    if (value[1]->kind != PICKLE_INT || value[1]->integer != 1001)
        return pl_fail(r->err, PL_EFORMAT, "%s: PyTorch stream of protocol %lld, expected 1001",
                       r->f->path,
                       value[1]->kind == PICKLE_INT ? (long long)value[1]->integer : -1);
    const struct pickle_value *little = pl_pickle_get(value[2], "little_endian");
    if (little && little->kind == PICKLE_BOOL && !little->integer)
        return pl_fail(r->err, PL_EFORMAT, "%s: written on a big-endian machine", r->f->path);
    rc = list_storages(r);
    if (!rc) rc = locate(r, value[4], at);
    return rc ? rc : add_weights(r, value[3]);
}

int pl_torch_open(struct st_file **out, const char *path, struct pl_err *err)
{
    struct torch_reader r = { .err = err };
    int rc;
    *out = NULL;
    r.f = calloc(1, sizeof *r.f);
    r.o = calloc(1, sizeof *r.o);
    r.pickle = pl_pickle_new();
    if (!r.f || !r.o || !r.pickle || !(r.f->path = strdup(path))) {
        free(r.f);
        free(r.o);
        pl_pickle_free(r.pickle);
        return pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    }
    r.f->owner = r.o;
    r.f->drop = drop;
    r.f->map = &r.o->map;
    rc = pl_mapping_open(&r.o->map, path, err);
    if (!rc && !pl_torch_begins(r.o->map.at, r.o->map.bytes))
        rc = pl_fail(err, PL_EFORMAT, "%s: no PyTorch checkpoint", path);
    if (!rc) rc = r.o->map.at[0] == zip_magic[0] ? read_zip(&r) : read_stream(&r);
    if (!rc) rc = check_names(&r);
    pl_zip_archive_close(r.archive);
    pl_pickle_free(r.pickle);
    free(r.locations);
    if (rc) pl_safetensors_close(r.f);
    else *out = r.f;
    return rc;
}
