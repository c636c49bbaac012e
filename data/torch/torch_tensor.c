/* torch_tensor.c - builds tensors from a pickle's description: checks shape, strides and storage
 * against the file, and copies only tensors that are not contiguous. */
#include "torch_reader.h"
#include "ref/byte_order.h"
#include "ref/small.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TENSORS_MAX (1 << 20)
#define COPIES_SPARE \
    (64u << 20) /* views may need more bytes than the file has, but not many more */

static const struct {
    const char *name;
    enum pl_dtype dtype;
} storage_types[] = {
    { "torch FloatStorage", PL_F32 }, { "torch DoubleStorage", PL_F64 },
    { "torch HalfStorage", PL_F16 },  { "torch BFloat16Storage", PL_BF16_T },
    { "torch LongStorage", PL_I64 },  { "torch IntStorage", PL_I32 },
    { "torch ShortStorage", PL_I16 }, { "torch CharStorage", PL_I8 },
    { "torch ByteStorage", PL_U8 },   { "torch BoolStorage", PL_BOOL },
};

void *pl_torch_keep(struct torch_owner *o, size_t bytes)
{
    void *at;
    if (pl_grow(&o->owned, o->owned_count, &o->owned_capacity, 64) ||
        !(at = malloc(bytes ? bytes : 1)))
        return NULL;
    return o->owned[o->owned_count++] = at;
}

int pl_torch_no_memory(struct torch_reader *r)
{
    return pl_fail(r->err, PL_ENOMEM, "%s: no memory", r->f->path);
}

/* -- storages --------------------------------------------------------------------------------- */

int pl_torch_read_storage(struct torch_storage *s, const struct pickle_value *v, const char *path,
                          struct pl_err *err)
{
    const struct pickle_value *id = v->kind == PICKLE_PERSISTENT ? v->item[0] : NULL, *view = NULL;
    size_t i = 0;
    if (!id || id->kind != PICKLE_TUPLE || id->count < 5 || !pl_pickle_is(id->item[0], "storage") ||
        id->item[1]->kind != PICKLE_GLOBAL || id->item[2]->kind != PICKLE_TEXT ||
        id->item[4]->kind != PICKLE_INT || id->item[4]->integer < 0 || id->item[4]->wide)
        return pl_fail(err, PL_EFORMAT,
                       "%s: a tensor's storage is not described as (\"storage\", type, "
                       "key, device, count)",
                       path);
    while (i < PL_COUNT(storage_types) && !pl_pickle_is(id->item[1], storage_types[i].name)) i++;
    if (i == PL_COUNT(storage_types))
        return pl_fail(err, PL_EFORMAT, "%s: storages of type %.60s are not known", path,
                       id->item[1]->text);
    *s = (struct torch_storage){ storage_types[i].dtype, id->item[2], id->item[4]->integer, 0 };
    if (id->count > 5 && id->item[5]->kind == PICKLE_TUPLE) view = id->item[5];
    if (view) {
        if (view->count != 3 || view->item[1]->kind != PICKLE_INT || view->item[1]->integer < 0)
            return pl_fail(err, PL_EFORMAT, "%s: a storage's view is not (key, offset, count)",
                           path);
        s->view = view->item[1]->integer;
    }
    return PL_OK;
}

int pl_torch_by_key(const void *a, const void *b)
{
    const struct storage_location *x = a, *y = b;
    size_t n = x->key_bytes < y->key_bytes ? x->key_bytes : y->key_bytes;
    int c = n ? memcmp(x->key, y->key, n) : 0;
    return c ? c : (x->key_bytes > y->key_bytes) - (x->key_bytes < y->key_bytes);
}

static int find_storage(struct torch_reader *r, const struct torch_storage *s, const uint8_t **data,
                        size_t *bytes)
{
    const char *key = s->key->text;
    size_t n = s->key->bytes;
    if (r->archive) {
        char name[TORCH_NAME_MAX];
        const void *at;
        long index;
        if (n > 200 || memchr(key, 0, n))
            return pl_fail(r->err, PL_EFORMAT, "%s: a storage's key has %zu bytes or a zero in it",
                           r->f->path, n);
        snprintf(name, sizeof name, "%sdata/%.*s", r->top, (int)n, key);
        index = pl_zip_archive_find(r->archive, name);
        if (index < 0) return pl_fail(r->err, PL_EFORMAT, "%s: no member %.300s", r->f->path, name);
        int rc = pl_zip_archive_stored(r->archive, (size_t)index, &at, bytes, r->err);
        *data = at;
        return rc;
    }
    struct storage_location wanted = { .key = key, .key_bytes = n };
    const struct storage_location *p = r->location_count
                                           ? bsearch(&wanted, r->locations, r->location_count,
                                                     sizeof *p, pl_torch_by_key)
                                           : NULL;
    if (!p)
        return pl_fail(r->err, PL_EFORMAT, "%s: no storage of key %.*s", r->f->path,
                       (int)(n < 60 ? n : 60), key);
    *data = p->data;
    *bytes = p->bytes;
    return PL_OK;
}

/* -- tensors ---------------------------------------------------------------------------------- */

/* The arguments of the call that builds a tensor, or NULL if `v` is something else. */
const struct pickle_value *pl_torch_tensor_arguments(const struct pickle_value *v)
{
    for (int wrapped = 0; wrapped < 3 && v && v->kind == PICKLE_OBJECT; wrapped++) {
        const struct pickle_value *call = v->item[0], *args = v->item[1];
        if (pl_pickle_is(call, "torch._utils _rebuild_tensor_v2") ||
            pl_pickle_is(call, "torch._utils _rebuild_tensor"))
            return args;
        if (!pl_pickle_is(call, "torch._utils _rebuild_parameter") &&
            !pl_pickle_is(call, "torch._utils _rebuild_parameter_with_state"))
            return NULL;
        v = args->count ? args->item[0] : NULL;
    }
    return NULL;
}

static int is_size(const struct pickle_value *v)
{
    return v->kind == PICKLE_INT && !v->wide && v->integer >= 0;
}

/* Reads shape and strides; *reach is the number of elements from the first to the last. */
static int read_shape(struct st_tensor *t, int64_t *stride, size_t *reach,
                      const struct pickle_value *size, const struct pickle_value *steps,
                      const char *path, struct pl_err *err)
{
    size_t last = 0;
    if (size->kind != PICKLE_TUPLE || steps->kind != PICKLE_TUPLE || size->count != steps->count ||
        size->count > PL_COUNT(t->shape))
        return pl_fail(err, PL_EFORMAT,
                       "%s: tensor %.100s: size and strides are not tuples of the same, "
                       "at most %zu, numbers",
                       path, t->name, PL_COUNT(t->shape));
    t->dims = (int)size->count;
    t->n = 1;
    for (int i = 0; i < t->dims; i++) {
        const struct pickle_value *n = size->item[i], *step = steps->item[i];
        size_t way;
        if (!is_size(n) || !is_size(step) || pl_size_mul(&t->n, t->n, (size_t)n->integer))
            return pl_fail(err, PL_EFORMAT,
                           "%s: tensor %.100s: size or stride %d is not a usable number", path,
                           t->name, i);
        t->shape[i] = n->integer;
        stride[i] = step->integer;
        if (n->integer > 1 && (pl_size_mul(&way, (size_t)(n->integer - 1), (size_t)step->integer) ||
                               way > PTRDIFF_MAX - last - 1))
            return pl_fail(err, PL_EFORMAT, "%s: tensor %.100s: stride %d is too large", path,
                           t->name, i);
        if (n->integer > 1) last += way;
    }
    *reach = t->n ? last + 1 : 0;
    return PL_OK;
}

static int is_contiguous(const struct st_tensor *t, const int64_t *stride)
{
    int64_t expected = 1;
    for (int i = t->dims - 1; i >= 0; i--) {
        if (t->shape[i] != 1 && stride[i] != expected) return 0;
        expected *= t->shape[i];
    }
    return 1;
}

static void copy_strided(uint8_t *to, const struct st_tensor *t, const int64_t *stride,
                         const uint8_t *from)
{
    size_t element = pl_dtype_size(t->dtype);
    int64_t at[PL_COUNT(t->shape)] = { 0 }, offset = 0;
    for (size_t i = 0; i < t->n; i++) {
        memcpy(to + i * element, from + (size_t)offset * element, element);
        for (int d = t->dims - 1; d >= 0; d--) {
            offset += stride[d];
            if (++at[d] < t->shape[d]) break;
            offset -= stride[d] * t->shape[d];
            at[d] = 0;
        }
    }
}

/* t->name is set. */
static int read_tensor(struct torch_reader *r, struct st_tensor *t, const struct pickle_value *args)
{
    const char *path = r->f->path;
    struct torch_storage s;
    const uint8_t *data = NULL;
    int64_t stride[PL_COUNT(t->shape)];
    size_t bytes = 0, reach = 0, element, begin;
    int rc;
    if (args->count < 4 || !is_size(args->item[1]))
        return pl_fail(r->err, PL_EFORMAT,
                       "%s: tensor %.100s is not made of (storage, offset, size, strides)", path,
                       t->name);
    rc = pl_torch_read_storage(&s, args->item[0], path, r->err);
    if (!rc) rc = read_shape(t, stride, &reach, args->item[2], args->item[3], path, r->err);
    if (!rc) rc = find_storage(r, &s, &data, &bytes);
    if (rc) return rc;
    t->dtype = s.dtype;
    element = pl_dtype_size(t->dtype);
    if (pl_size_mul(&t->bytes, t->n, element))
        return pl_fail(r->err, PL_ELIMIT, "%s: tensor %.100s: too large", path, t->name);
    begin = (size_t)args->item[1]->integer + (size_t)s.view; /* both below 2^63 */
    if (begin > bytes / element || reach > bytes / element - begin)
        return pl_fail(r->err, PL_EFORMAT,
                       "%s: tensor %.100s: elements %zu to %zu of a storage of %zu", path, t->name,
                       begin, begin + reach, bytes / element);
    data += begin * element;
    if (!t->n || (is_contiguous(t, stride) && !PL_BIG_ENDIAN)) {
        t->data = data;
        return PL_OK;
    }
    r->o->copied += t->bytes;
    if (t->bytes > r->o->map.bytes + COPIES_SPARE || r->o->copied > r->o->map.bytes + COPIES_SPARE)
        return pl_fail(r->err, PL_ELIMIT,
                       "%s: tensor %.100s: views need more memory than the file has bytes", path,
                       t->name);
    uint8_t *copy = pl_torch_keep(r->o, t->bytes);
    if (!copy) return pl_torch_no_memory(r);
    copy_strided(copy, t, stride, data);
    pl_little_endian(copy, element, t->n);
    t->data = copy;
    return PL_OK;
}

int pl_torch_add(struct torch_reader *r, const char *prefix, const struct pickle_value *key,
                 const struct pickle_value *args)
{
    struct st_file *f = r->f;
    size_t n = strlen(prefix) + key->bytes;
    char *name;
    if (n > TORCH_NAME_MAX || memchr(key->text, 0, key->bytes))
        return pl_fail(r->err, PL_EFORMAT,
                       "%s: a tensor's name of %zu bytes, expected at most %d without a zero byte",
                       f->path, n, TORCH_NAME_MAX);
    if (f->count == r->capacity && f->count >= TENSORS_MAX)
        return pl_fail(r->err, PL_ELIMIT, "%s: more than %d tensors", f->path, TENSORS_MAX);
    if (pl_grow(&f->tensors, f->count, &r->capacity, 64) || !(name = pl_torch_keep(r->o, n + 1)))
        return pl_torch_no_memory(r);
    snprintf(name, n + 1, "%s%.*s", prefix, (int)key->bytes, key->text);
    struct st_tensor *t = &f->tensors[f->count];
    memset(t, 0, sizeof *t);
    t->name = name;
    int rc = read_tensor(r, t, args);
    f->count += !rc;
    return rc;
}
