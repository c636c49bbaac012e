/* safetensors.c - reads and writes safetensors: 8 bytes with the header's length, a JSON header
 * with type, shape and byte range of each tensor, then the data. jansson parses the JSON; every
 * number in it is checked before it is used as an address. */
#include "safetensors.h"
#include "data/files/json.h"
#include "file.h"
#include "ref/byte_order.h"
#include "ref/small.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_MAX (100u << 20) /* the format's own limit: 100 MB of names and shapes */

static const char *const types[PL_DTYPES] = {
    [PL_F64] = "F64", [PL_F32] = "F32", [PL_F16] = "F16", [PL_BF16_T] = "BF16", [PL_I64] = "I64",
    [PL_I32] = "I32", [PL_I16] = "I16", [PL_I8] = "I8",   [PL_U8] = "U8",       [PL_BOOL] = "BOOL",
};

const char *pl_dtype_name(enum pl_dtype t) { return types[t]; }

/* -1: none has this name. */
static int dtype_of(const char *name)
{
    for (int i = 0; i < PL_DTYPES; i++)
        if (!strcmp(types[i], name)) return i;
    return -1;
}

static int parse_meta(struct st_file *f, json_t *meta, struct pl_err *err)
{
    const char *key;
    json_t *value;
    size_t n;
    if (!json_is_object(meta))
        return pl_fail(err, PL_EFORMAT, "%s: __metadata__ is not an object", f->path);
    n = json_object_size(meta);
    f->meta_key = calloc(n + 1, sizeof *f->meta_key);
    f->meta_value = calloc(n + 1, sizeof *f->meta_value);
    if (!f->meta_key || !f->meta_value) return pl_fail(err, PL_ENOMEM, "%s: no memory", f->path);
    json_object_foreach(meta, key, value)
    {
        if (!json_is_string(value))
            return pl_fail(err, PL_EFORMAT, "%s: __metadata__.%.80s is not a string", f->path, key);
        f->meta_key[f->metas] = (char *)(uintptr_t)key; /* owned by the JSON tree */
        f->meta_value[f->metas++] = (char *)(uintptr_t)json_string_value(value);
    }
    return PL_OK;
}

static int parse_tensor(struct st_file *f, struct st_tensor *t, const char *name, json_t *entry,
                        const uint8_t *data, uint64_t data_bytes, struct pl_err *err)
{
    json_t *shape = json_object_get(entry, "shape"),
           *range = json_object_get(entry, "data_offsets");
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    json_int_t begin, end;
    int type = dtype ? dtype_of(dtype) : -1;
    if (type < 0)
        return pl_fail(err, PL_EFORMAT, "%s: tensor %.100s: dtype %.20s is not a known one",
                       f->path, name, dtype ? dtype : "(none)");
    if (!json_is_array(shape) || json_array_size(shape) > PL_COUNT(t->shape))
        return pl_fail(err, PL_EFORMAT, "%s: tensor %.100s: shape is not an array of at most %zu",
                       f->path, name, PL_COUNT(t->shape));
    t->name = name;
    t->dtype = (enum pl_dtype)type;
    t->dims = (int)json_array_size(shape);
    t->n = 1;
    for (int i = 0; i < t->dims; i++) {
        json_t *d = json_array_get(shape, (size_t)i);
        if (!json_is_integer(d) || json_integer_value(d) < 0 ||
            pl_size_mul(&t->n, t->n, (size_t)json_integer_value(d)))
            return pl_fail(err, PL_EFORMAT, "%s: tensor %.100s: shape[%d] is not a usable size",
                           f->path, name, i);
        t->shape[i] = json_integer_value(d);
    }
    if (pl_size_mul(&t->bytes, t->n, pl_dtype_size((enum pl_dtype)type)))
        return pl_fail(err, PL_ELIMIT, "%s: tensor %.100s: too large", f->path, name);
    if (!json_is_array(range) || json_array_size(range) != 2 ||
        !json_is_integer(json_array_get(range, 0)) || !json_is_integer(json_array_get(range, 1)))
        return pl_fail(err, PL_EFORMAT, "%s: tensor %.100s: data_offsets is not [begin, end]",
                       f->path, name);
    begin = json_integer_value(json_array_get(range, 0));
    end = json_integer_value(json_array_get(range, 1));
    if (begin < 0 || end < begin || (uint64_t)end > data_bytes)
        return pl_fail(err, PL_EFORMAT,
                       "%s: tensor %.100s: bytes %lld to %lld are outside the file's %llu", f->path,
                       name, (long long)begin, (long long)end, (unsigned long long)data_bytes);
    if ((uint64_t)(end - begin) != t->bytes)
        return pl_fail(err, PL_EFORMAT, "%s: tensor %.100s: %lld bytes stored, %zu expected",
                       f->path, name, (long long)(end - begin), t->bytes);
    t->data = data + begin;
    return PL_OK;
}

static int by_address(const void *a, const void *b)
{
    const struct st_tensor *x = a, *y = b;
    const char *p = x->data, *q = y->data;
    if (p != q) return p < q ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes; /* empty tensors first */
}

/* Memory of an open file. */
struct owner {
    struct pl_mapping map;
    json_t *header;
    uint8_t *copy; /* the data in the machine's order; NULL on a little-endian machine */
};

static void drop(void *owner)
{
    struct owner *o = owner;
    pl_mapping_close(&o->map);
    json_decref(o->header);
    pl_free(o->copy);
    free(o);
}

/* On a big-endian machine tensors are copied out of the mapping, in the machine's order. */
static int copy_data(struct st_file *f, struct owner *o, struct pl_err *err)
{
    if (!PL_BIG_ENDIAN) return PL_OK;
    if (!(o->copy = pl_alloc_unset(o->map.bytes, 1)))
        return pl_fail(err, PL_ENOMEM, "%s: no memory", f->path);
    for (size_t i = 0; i < f->count; i++) {
        struct st_tensor *t = &f->tensors[i];
        uint8_t *to = o->copy + ((const uint8_t *)t->data - (const uint8_t *)o->map.at);
        pl_copy_little(to, t->data, pl_dtype_size(t->dtype), t->n);
        t->data = to;
    }
    f->map = NULL;
    return PL_OK;
}

static int parse(struct st_file *f, struct owner *o, struct pl_err *err)
{
    const uint8_t *bytes = o->map.at;
    uint64_t header;
    json_error_t why;
    const char *name;
    json_t *entry;
    int rc;
    if (o->map.bytes < 8)
        return pl_fail(err, PL_EFORMAT, "%s: %zu bytes, a safetensors file has at least 8", f->path,
                       o->map.bytes);
    header = pl_le64(bytes);
    if (header > HEADER_MAX || header > o->map.bytes - 8)
        return pl_fail(err, PL_ELIMIT,
                       "%s: not a safetensors file: it states a header of %llu bytes, and has %zu",
                       f->path, (unsigned long long)header, o->map.bytes);
    o->header = pl_json_load((const char *)bytes + 8, (size_t)header, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(o->header))
        return pl_fail(err, o->header ? PL_EFORMAT : pl_json_status(),
                       "%s: header is not a JSON object: %s", f->path,
                       o->header ? "another type" : why.text);
    f->tensors = calloc(json_object_size(o->header) + 1, sizeof *f->tensors);
    if (!f->tensors) return pl_fail(err, PL_ENOMEM, "%s: no memory", f->path);
    json_object_foreach(o->header, name, entry)
    {
        if (!strcmp(name, "__metadata__")) rc = parse_meta(f, entry, err);
        else
            rc = parse_tensor(f, &f->tensors[f->count++], name, entry, bytes + 8 + header,
                              o->map.bytes - 8 - header, err);
        if (rc) return rc;
    }
    qsort(f->tensors, f->count, sizeof *f->tensors, by_address);
    for (size_t i = 1; i < f->count; i++) {
        const struct st_tensor *a = &f->tensors[i - 1], *b = &f->tensors[i];
        if ((const char *)a->data + a->bytes > (const char *)b->data)
            return pl_fail(err, PL_EFORMAT, "%s: tensors %.100s and %.100s overlap", f->path,
                           a->name, b->name);
    }
    return PL_OK;
}

int pl_safetensors_open(struct st_file **out, const char *path, struct pl_err *err)
{
    struct st_file *f = calloc(1, sizeof *f);
    struct owner *o = calloc(1, sizeof *o);
    int rc;
    *out = NULL;
    if (!f || !o || !(f->path = strdup(path))) {
        free(f);
        free(o);
        return pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    }
    f->kind = "safetensors";
    f->owner = o;
    f->drop = drop;
    f->map = &o->map;
    rc = pl_mapping_open(&o->map, path, err);
    if (!rc) rc = parse(f, o, err);
    if (!rc) rc = copy_data(f, o, err);
    if (rc) pl_safetensors_close(f);
    else *out = f;
    return rc;
}

void pl_safetensors_close(struct st_file *f)
{
    if (!f) return;
    if (f->drop) f->drop(f->owner);
    free(f->tensors);
    free(f->meta_key);
    free(f->meta_value);
    free(f->path);
    free(f);
}

const struct st_tensor *pl_safetensors_find(const struct st_file *f, const char *name)
{
    for (size_t i = 0; i < f->count; i++)
        if (!strcmp(f->tensors[i].name, name)) return &f->tensors[i];
    return NULL;
}

const char *pl_safetensors_meta(const struct st_file *f, const char *key)
{
    for (size_t i = 0; i < f->metas; i++)
        if (!strcmp(f->meta_key[i], key)) return f->meta_value[i];
    return NULL;
}

void pl_safetensors_to_float(float *out, const struct st_tensor *t)
{
    pl_to_float(out, t->dtype, t->data, t->n);
}

void pl_safetensors_release(const struct st_file *f, const struct st_tensor *t)
{
    if (f->map) pl_mapping_let_go(f->map, t->data, t->bytes);
}

struct st_writer {
    struct st_tensor *list; /* owns the names */
    size_t count, capacity;
    json_t *meta;
};

struct st_writer *pl_safetensors_writer_new(void)
{
    struct st_writer *w = calloc(1, sizeof *w);
    if (w && !(w->meta = json_object())) {
        free(w);
        w = NULL;
    }
    return w;
}

int pl_safetensors_writer_meta(struct st_writer *w, const char *key, const char *value)
{
    return json_object_set_new(w->meta, key, json_string(value)) ? PL_ENOMEM : PL_OK;
}

int pl_safetensors_writer_add(struct st_writer *w, const char *name, enum pl_dtype dtype, int dims,
                              const int64_t *shape, const void *data)
{
    struct st_tensor t = { .dtype = dtype, .dims = dims, .n = 1, .data = data };
    if (pl_grow(&w->list, w->count, &w->capacity, 64)) return PL_ENOMEM;
    for (int i = 0; i < dims; i++) {
        t.shape[i] = shape[i];
        if (pl_size_mul(&t.n, t.n, (size_t)shape[i])) return PL_ELIMIT;
    }
    if (pl_size_mul(&t.bytes, t.n, pl_dtype_size(dtype))) return PL_ELIMIT;
    if (!(t.name = strdup(name))) return PL_ENOMEM;
    w->list[w->count++] = t;
    return PL_OK;
}

/* Sorted by name, so that the same content always gives the same bytes. */
static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct st_tensor *)a)->name, ((const struct st_tensor *)b)->name);
}

/* The header, padded with spaces so that the data begins at a multiple of 8. */
static char *header_text(struct st_writer *w, size_t *bytes)
{
    json_t *root;
    char *text = NULL, *padded;
    json_int_t at = 0;
    size_t n;
    int failed = 0;
    pl_json_begin();
    root = json_object();
    if (json_object_size(w->meta)) json_object_set(root, "__metadata__", w->meta);
    for (size_t i = 0; i < w->count; i++) {
        const struct st_tensor *t = &w->list[i];
        json_t *shape = json_array(), *entry;
        for (int k = 0; k < t->dims; k++) json_array_append_new(shape, json_integer(t->shape[k]));
        entry = json_pack("{s:s, s:o, s:[I,I]}", "dtype", types[t->dtype], "shape", shape,
                          "data_offsets", at, at + (json_int_t)t->bytes);
        failed |= json_object_set_new(root, t->name, entry); /* a name that is not UTF-8 */
        at += (json_int_t)t->bytes;
    }
    if (!failed) text = pl_json_text(root, JSON_COMPACT);
    json_decref(root);
    if (!text) return NULL;
    n = strlen(text);
    *bytes = (n + 7) / 8 * 8;
    padded = realloc(text, *bytes + 1);
    if (!padded) {
        free(text);
        return NULL;
    }
    memset(padded + n, ' ', *bytes - n);
    return padded;
}

static int append_tensor(struct pl_file_out *out, const struct st_tensor *t, struct pl_err *err)
{
    size_t size = pl_dtype_size(t->dtype);
    uint8_t *copy;
    int rc;
    if (!PL_BIG_ENDIAN) return pl_file_append(out, t->data, t->bytes, err);
    if (!(copy = pl_alloc_unset(t->bytes, 1)))
        return pl_fail(err, PL_ENOMEM, "%s: no memory", t->name);
    pl_copy_little(copy, t->data, size, t->bytes / size);
    rc = pl_file_append(out, copy, t->bytes, err);
    pl_free(copy);
    return rc;
}

int pl_safetensors_write(struct st_writer *w, const char *path, struct pl_err *err)
{
    struct pl_file_out out;
    uint8_t length[8];
    size_t bytes;
    char *text;
    int rc;
    qsort(w->list, w->count, sizeof *w->list, by_name);
    text = header_text(w, &bytes);
    if (!text) return pl_fail(err, PL_ENOMEM, "%s: no memory, or a name that is not UTF-8", path);
    for (int i = 0; i < 8; i++) length[i] = (uint8_t)((uint64_t)bytes >> 8 * i);
    rc = pl_file_create(&out, path, err);
    if (!rc) rc = pl_file_append(&out, length, 8, err);
    if (!rc) rc = pl_file_append(&out, text, bytes, err);
    for (size_t i = 0; !rc && i < w->count; i++) rc = append_tensor(&out, &w->list[i], err);
    if (!rc) rc = pl_file_commit(&out, err);
    else pl_file_discard(&out);
    free(text);
    return rc;
}

void pl_safetensors_writer_free(struct st_writer *w)
{
    if (!w) return;
    for (size_t i = 0; i < w->count; i++) free((char *)(uintptr_t)w->list[i].name);
    free(w->list);
    json_decref(w->meta);
    free(w);
}
