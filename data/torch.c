/* torch.c - see torch.h. A pickle says which tensors there are; this file finds their bytes. */
#include "torch.h"
#include "archive.h"
#include "mapping.h"
#include "pickle.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PICKLE_BYTES_MAX (64 << 20)  /* names and numbers; storages are elsewhere. Known: below 1 MB */
#define REMARKS_BYTES_MAX (1 << 20)
#define NAME_BYTES_MAX 1000
#define VISITS_MAX (1 << 22)         /* values looked at: shared ones could be met again and again */
#define TENSORS_MAX (1 << 20)
#define COPIES_SPARE (64u << 20)     /* views may need more bytes than the file has, but not much more */

static const uint8_t zip_magic[] = { 'P', 'K' };
static const uint8_t stream_magic[] = { 0x80, 0x02, 0x8A, 0x0A };

int torch_begins(const void *head, size_t bytes)
{
    return (bytes >= sizeof zip_magic && !memcmp(head, zip_magic, sizeof zip_magic)) ||
           (bytes >= sizeof stream_magic && !memcmp(head, stream_magic, sizeof stream_magic));
}

static const struct { const char *name; enum pl_dtype dtype; } storage_types[] = {
    { "torch FloatStorage", PL_F32 },  { "torch DoubleStorage", PL_F64 },
    { "torch HalfStorage", PL_F16 },   { "torch BFloat16Storage", PL_BF16_T },
    { "torch LongStorage", PL_I64 },   { "torch IntStorage", PL_I32 },
    { "torch ShortStorage", PL_I16 },  { "torch CharStorage", PL_I8 },
    { "torch ByteStorage", PL_U8 },    { "torch BoolStorage", PL_BOOL },
};

/* What an open file holds on to: its bytes, and memory for names, copies and remarks. */
struct owner {
    struct pl_mapping map;
    void **kept;
    size_t kept_count, kept_room;
    uint64_t copied;
};

/* Where a storage of the older stream lies. */
struct place {
    const char *key;
    size_t key_bytes;
    const uint8_t *data;
    size_t bytes;
    size_t element; /* bytes of one, as the pickle says */
};

struct reader {
    struct st_file *f;
    struct owner *o;
    struct archive *archive; /* NULL: the older stream */
    char *top;               /* "archive/" before the members' names */
    struct place *places;    /* of the older stream, by key */
    size_t place_count;
    struct pickle *pickle;
    size_t room, visits;
    struct pl_err *err;
};

static void drop(void *owner)
{
    struct owner *o = owner;
    for (size_t i = 0; i < o->kept_count; i++) free(o->kept[i]);
    free(o->kept);
    pl_mapping_close(&o->map);
    free(o);
}

static void *keep(struct owner *o, size_t bytes)
{
    void *at;
    if (o->kept_count == o->kept_room) {
        size_t room = o->kept_room ? 2 * o->kept_room : 64;
        void **more = realloc(o->kept, room * sizeof *more);
        if (!more) return NULL;
        o->kept = more;
        o->kept_room = room;
    }
    if (!(at = malloc(bytes ? bytes : 1))) return NULL;
    return o->kept[o->kept_count++] = at;
}

static int no_memory(struct reader *r)
{
    return pl_fail(r->err, PL_ENOMEM, "%s: no memory", r->f->path);
}

/* -- storages ------------------------------------------------------------------------------------- */

/* ("storage", type, key, device, count[, (key, offset, count) of a view]) */
struct storage {
    enum pl_dtype dtype;
    const struct pickle_value *key;
    int64_t count, view; /* elements; where a view begins */
};

static int read_storage(struct storage *s, const struct pickle_value *v, const char *path,
                        struct pl_err *err)
{
    const struct pickle_value *id = v->kind == PICKLE_PERSISTENT ? v->item[0] : NULL, *view = NULL;
    size_t i = 0;
    if (!id || id->kind != PICKLE_TUPLE || id->count < 5 || !pickle_is(id->item[0], "storage") ||
        id->item[1]->kind != PICKLE_GLOBAL || id->item[2]->kind != PICKLE_TEXT ||
        id->item[4]->kind != PICKLE_INT || id->item[4]->integer < 0 || id->item[4]->wide)
        return pl_fail(err, PL_EFORMAT, "%s: a tensor's storage is not described as (\"storage\", type, "
                       "key, device, count)", path);
    while (i < PL_COUNT(storage_types) && !pickle_is(id->item[1], storage_types[i].name)) i++;
    if (i == PL_COUNT(storage_types))
        return pl_fail(err, PL_EFORMAT, "%s: storages of type %.60s are not known", path,
                       id->item[1]->text);
    *s = (struct storage){ storage_types[i].dtype, id->item[2], id->item[4]->integer, 0 };
    if (id->count > 5 && id->item[5]->kind == PICKLE_TUPLE) view = id->item[5];
    if (view) {
        if (view->count != 3 || view->item[1]->kind != PICKLE_INT || view->item[1]->integer < 0)
            return pl_fail(err, PL_EFORMAT, "%s: a storage's view is not (key, offset, count)", path);
        s->view = view->item[1]->integer;
    }
    return PL_OK;
}

static int by_key(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    size_t n = x->key_bytes < y->key_bytes ? x->key_bytes : y->key_bytes;
    int c = n ? memcmp(x->key, y->key, n) : 0;
    return c ? c : (x->key_bytes > y->key_bytes) - (x->key_bytes < y->key_bytes);
}

static int find_storage(struct reader *r, const struct storage *s, const uint8_t **data, size_t *bytes)
{
    const char *key = s->key->text;
    size_t n = s->key->bytes;
    if (r->archive) {
        char name[NAME_BYTES_MAX];
        const void *at;
        long index;
        if (n > 200 || memchr(key, 0, n))
            return pl_fail(r->err, PL_EFORMAT, "%s: a storage's key has %zu bytes or a zero in it",
                           r->f->path, n);
        snprintf(name, sizeof name, "%sdata/%.*s", r->top, (int)n, key);
        index = archive_find(r->archive, name);
        if (index < 0) return pl_fail(r->err, PL_EFORMAT, "%s: no member %.300s", r->f->path, name);
        int rc = archive_stored(r->archive, (size_t)index, &at, bytes, r->err);
        *data = at;
        return rc;
    }
    struct place wanted = { .key = key, .key_bytes = n };
    const struct place *p = r->place_count ? bsearch(&wanted, r->places, r->place_count, sizeof *p, by_key)
                                           : NULL;
    if (!p)
        return pl_fail(r->err, PL_EFORMAT, "%s: no storage of key %.*s", r->f->path,
                       (int)(n < 60 ? n : 60), key);
    *data = p->data;
    *bytes = p->bytes;
    return PL_OK;
}

/* -- tensors -------------------------------------------------------------------------------------- */

/* The arguments of the call that makes a tensor, or NULL if `v` is none. */
static const struct pickle_value *tensor_arguments(const struct pickle_value *v)
{
    for (int wrapped = 0; wrapped < 3 && v && v->kind == PICKLE_OBJECT; wrapped++) {
        const struct pickle_value *call = v->item[0], *args = v->item[1];
        if (pickle_is(call, "torch._utils _rebuild_tensor_v2") ||
            pickle_is(call, "torch._utils _rebuild_tensor"))
            return args;
        if (!pickle_is(call, "torch._utils _rebuild_parameter") &&
            !pickle_is(call, "torch._utils _rebuild_parameter_with_state"))
            return NULL;
        v = args->count ? args->item[0] : NULL;
    }
    return NULL;
}

static int is_size(const struct pickle_value *v)
{
    return v->kind == PICKLE_INT && !v->wide && v->integer >= 0;
}

/* Shape and strides, with what they reach: *reach elements from the first on. */
static int read_shape(struct st_tensor *t, int64_t *stride, size_t *reach, const struct pickle_value *size,
                      const struct pickle_value *steps, const char *path, struct pl_err *err)
{
    size_t last = 0;
    if (size->kind != PICKLE_TUPLE || steps->kind != PICKLE_TUPLE || size->count != steps->count ||
        size->count > PL_COUNT(t->shape))
        return pl_fail(err, PL_EFORMAT, "%s: tensor %.100s: size and strides are not tuples of the same, "
                       "at most %zu, numbers", path, t->name, PL_COUNT(t->shape));
    t->dims = (int)size->count;
    t->n = 1;
    for (int i = 0; i < t->dims; i++) {
        const struct pickle_value *n = size->item[i], *step = steps->item[i];
        size_t way;
        if (!is_size(n) || !is_size(step) || pl_size_mul(&t->n, t->n, (size_t)n->integer))
            return pl_fail(err, PL_EFORMAT, "%s: tensor %.100s: size or stride %d is no usable number",
                           path, t->name, i);
        t->shape[i] = n->integer;
        stride[i] = step->integer;
        if (n->integer > 1 && (pl_size_mul(&way, (size_t)(n->integer - 1), (size_t)step->integer) ||
                               way > PTRDIFF_MAX - last - 1))
            return pl_fail(err, PL_EFORMAT, "%s: tensor %.100s: stride %d is too large", path, t->name, i);
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
static int read_tensor(struct reader *r, struct st_tensor *t, const struct pickle_value *args)
{
    const char *path = r->f->path;
    struct storage s;
    const uint8_t *data = NULL;
    int64_t stride[PL_COUNT(t->shape)];
    size_t bytes = 0, reach = 0, element, begin;
    int rc;
    if (args->count < 4 || !is_size(args->item[1]))
        return pl_fail(r->err, PL_EFORMAT, "%s: tensor %.100s is not made of (storage, offset, size, "
                       "strides)", path, t->name);
    rc = read_storage(&s, args->item[0], path, r->err);
    if (!rc) rc = read_shape(t, stride, &reach, args->item[2], args->item[3], path, r->err);
    if (!rc) rc = find_storage(r, &s, &data, &bytes);
    if (rc) return rc;
    t->dtype = s.dtype;
    element = pl_dtype_size(t->dtype);
    if (pl_size_mul(&t->bytes, t->n, element))
        return pl_fail(r->err, PL_ELIMIT, "%s: tensor %.100s: too large", path, t->name);
    begin = (size_t)args->item[1]->integer + (size_t)s.view; /* both below 2^63 */
    if (begin > bytes / element || reach > bytes / element - begin)
        return pl_fail(r->err, PL_EFORMAT, "%s: tensor %.100s: elements %zu to %zu of a storage of %zu",
                       path, t->name, begin, begin + reach, bytes / element);
    data += begin * element;
    if (!t->n || is_contiguous(t, stride)) {
        t->data = data;
        return PL_OK;
    }
    r->o->copied += t->bytes;
    if (t->bytes > r->o->map.bytes + COPIES_SPARE || r->o->copied > r->o->map.bytes + COPIES_SPARE)
        return pl_fail(r->err, PL_ELIMIT, "%s: tensor %.100s: views need more memory than the file has "
                       "bytes", path, t->name);
    uint8_t *copy = keep(r->o, t->bytes);
    if (!copy) return no_memory(r);
    copy_strided(copy, t, stride, data);
    t->data = copy;
    return PL_OK;
}

static int add(struct reader *r, const char *prefix, const struct pickle_value *key,
               const struct pickle_value *args)
{
    struct st_file *f = r->f;
    size_t n = strlen(prefix) + key->bytes;
    char *name;
    if (n > NAME_BYTES_MAX || memchr(key->text, 0, key->bytes))
        return pl_fail(r->err, PL_EFORMAT, "%s: a tensor's name of %zu bytes, at most %d and no zero "
                       "expected", f->path, n, NAME_BYTES_MAX);
    if (f->count == r->room) {
        size_t room = r->room ? 2 * r->room : 64;
        struct st_tensor *more;
        if (f->count >= TENSORS_MAX)
            return pl_fail(r->err, PL_ELIMIT, "%s: more than %d tensors", f->path, TENSORS_MAX);
        if (!(more = realloc(f->tensors, room * sizeof *more))) return no_memory(r);
        f->tensors = more;
        r->room = room;
    }
    if (!(name = keep(r->o, n + 1))) return no_memory(r);
    snprintf(name, n + 1, "%s%.*s", prefix, (int)key->bytes, key->text);
    struct st_tensor *t = &f->tensors[f->count];
    memset(t, 0, sizeof *t);
    t->name = name;
    int rc = read_tensor(r, t, args);
    f->count += !rc;
    return rc;
}

/* -- which of all values are the weights ------------------------------------------------------------ */

static int holds_tensors(const struct pickle_value *v)
{
    if (!v || v->kind != PICKLE_DICT) return 0;
    for (size_t i = 0; i + 1 < v->count; i += 2)
        if (tensor_arguments(v->item[i + 1])) return 1;
    return 0;
}

static int add_dict(struct reader *r, const struct pickle_value *dict)
{
    int rc = PL_OK;
    for (size_t i = 0; !rc && i + 1 < dict->count; i += 2) {
        const struct pickle_value *args = tensor_arguments(dict->item[i + 1]);
        if (args && dict->item[i]->kind == PICKLE_TEXT) rc = add(r, "", dict->item[i], args);
    }
    return rc;
}

static int is_module(const struct pickle_value *v)
{
    return v && v->kind == PICKLE_OBJECT && v->item[0]->bytes > 9 &&
           !memcmp(v->item[0]->text, "__torch__", 9);
}

/* A TorchScript module: its attributes are tensors, modules, and what is no weight. */
static int add_module(struct reader *r, const struct pickle_value *module, const char *prefix, int depth)
{
    const struct pickle_value *state = module->item[2];
    int rc = PL_OK;
    if (depth > PICKLE_DEPTH_MAX)
        return pl_fail(r->err, PL_ELIMIT, "%s: modules inside modules, more than %d deep", r->f->path,
                       PICKLE_DEPTH_MAX);
    if (!state || state->kind != PICKLE_DICT) return PL_OK;
    for (size_t i = 0; !rc && i + 1 < state->count; i += 2) {
        const struct pickle_value *key = state->item[i], *value = state->item[i + 1];
        const struct pickle_value *args = tensor_arguments(value);
        if (++r->visits > VISITS_MAX)
            return pl_fail(r->err, PL_ELIMIT, "%s: more than %d attributes", r->f->path, VISITS_MAX);
        if (key->kind != PICKLE_TEXT) continue;
        if (args) rc = add(r, prefix, key, args);
        else if (is_module(value)) {
            char name[NAME_BYTES_MAX + 1];
            int n = snprintf(name, sizeof name, "%s%.*s.", prefix,
                             (int)(key->bytes < NAME_BYTES_MAX ? key->bytes : NAME_BYTES_MAX), key->text);
            if (n > NAME_BYTES_MAX)
                return pl_fail(r->err, PL_ELIMIT, "%s: a module's name of more than %d bytes", r->f->path,
                               NAME_BYTES_MAX);
            rc = add_module(r, value, name, depth + 1);
        }
    }
    return rc;
}

static int add_weights(struct reader *r, const struct pickle_value *root)
{
    /* Lightning; transformers and the run; DALLE-pytorch; others. */
    static const char *const keys[] = { "state_dict", "model", "weights", "model_state_dict", "module" };
    if (is_module(root)) {
        r->f->kind = "TorchScript";
        return add_module(r, root, "", 0);
    }
    if (holds_tensors(root)) return add_dict(r, root);
    for (size_t i = 0; i < PL_COUNT(keys); i++)
        if (holds_tensors(pickle_get(root, keys[i]))) return add_dict(r, pickle_get(root, keys[i]));
    if (root->kind == PICKLE_DICT && !root->count) return PL_OK;
    return pl_fail(r->err, PL_EFORMAT, "%s: no tensors in it: neither a dict of tensors nor one under "
                   "'state_dict', 'model' or 'weights'", r->f->path);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* No name twice: readers take the first, Python takes the last. */
static int check_names(struct reader *r)
{
    const char **names = calloc(r->f->count + 1, sizeof *names);
    int rc = names ? PL_OK : no_memory(r);
    for (size_t i = 0; !rc && i < r->f->count; i++) names[i] = r->f->tensors[i].name;
    if (!rc) qsort(names, r->f->count, sizeof *names, by_name);
    for (size_t i = 1; !rc && i < r->f->count; i++)
        if (!strcmp(names[i - 1], names[i]))
            rc = pl_fail(r->err, PL_EFORMAT, "%s: two tensors of the name %.100s", r->f->path, names[i]);
    free(names);
    return rc;
}

/* -- the zip ---------------------------------------------------------------------------------------- */

static int ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && !strcmp(name + n - m, end);
}

/* The member data.pkl that lies highest. */
static long find_pickle(const struct archive *a)
{
    long found = -1;
    size_t shortest = SIZE_MAX;
    for (size_t i = 0; i < archive_count(a); i++) {
        const char *name = archive_name(a, i);
        if (!name || !ends_with(name, "data.pkl") || strlen(name) >= shortest) continue;
        if (strlen(name) > 8 && name[strlen(name) - 9] != '/') continue;
        found = (long)i;
        shortest = strlen(name);
    }
    return found;
}

/* Little-endian unless the member byteorder says otherwise. */
static int check_order(struct reader *r)
{
    char name[NAME_BYTES_MAX];
    void *order;
    size_t n;
    long index;
    int rc = PL_OK;
    snprintf(name, sizeof name, "%sbyteorder", r->top);
    if ((index = archive_find(r->archive, name)) < 0) return PL_OK;
    if ((rc = archive_read(r->archive, (size_t)index, &order, &n, 100, r->err))) return rc;
    if (strcmp(order, "little"))
        rc = pl_fail(r->err, PL_EFORMAT, "%s: %s says '%.20s', expected little", r->f->path, name,
                     (char *)order);
    free(order);
    return rc;
}

static int read_remarks(struct reader *r)
{
    struct st_file *f = r->f;
    char name[NAME_BYTES_MAX];
    const char *key;
    void *text;
    size_t n;
    json_t *root, *value;
    long index;
    int rc;
    snprintf(name, sizeof name, "%s" TORCH_REMARKS, r->top);
    if ((index = archive_find(r->archive, name)) < 0) return PL_OK;
    if ((rc = archive_read(r->archive, (size_t)index, &text, &n, REMARKS_BYTES_MAX, r->err))) return rc;
    root = json_loadb(text, n, 0, NULL);
    free(text);
    f->meta_key = calloc(json_object_size(root) + 1, sizeof *f->meta_key);
    f->meta_value = calloc(json_object_size(root) + 1, sizeof *f->meta_value);
    if (!f->meta_key || !f->meta_value) rc = no_memory(r);
    else if (!json_is_object(root))
        rc = pl_fail(r->err, PL_EFORMAT, "%s: %s is no JSON object", f->path, name);
    else json_object_foreach(root, key, value) {
        const char *string = json_string_value(value);
        char *k = keep(r->o, strlen(key) + 1), *v = string ? keep(r->o, strlen(string) + 1) : NULL;
        if (!string) rc = pl_fail(r->err, PL_EFORMAT, "%s: %s: %.80s is no text", f->path, name, key);
        else if (!k || !v) rc = no_memory(r);
        if (rc) break;
        f->meta_key[f->metas] = strcpy(k, key);
        f->meta_value[f->metas++] = strcpy(v, string);
    }
    json_decref(root);
    return rc;
}

static int read_zip(struct reader *r)
{
    const struct pickle_value *root;
    const char *name;
    void *text = NULL;
    size_t n;
    long index;
    int rc = archive_open(&r->archive, r->f->path, r->o->map.at, r->o->map.bytes, r->err);
    if (rc) return rc;
    r->f->kind = "PyTorch zip";
    if ((index = find_pickle(r->archive)) < 0)
        return pl_fail(r->err, PL_EFORMAT, "%s: a ZIP archive without data.pkl: no PyTorch checkpoint",
                       r->f->path);
    name = archive_name(r->archive, (size_t)index);
    n = strlen(name) - strlen("data.pkl");
    if (n > 300) return pl_fail(r->err, PL_ELIMIT, "%s: a member's name of %zu bytes", r->f->path, n);
    if (!(r->top = keep(r->o, n + 1))) return no_memory(r);
    memcpy(r->top, name, n);
    r->top[n] = 0;
    rc = check_order(r);
    if (!rc) rc = archive_read(r->archive, (size_t)index, &text, &n, PICKLE_BYTES_MAX, r->err);
    if (!rc) rc = pickle_read(r->pickle, &root, NULL, text, n, r->f->path, r->err);
    if (!rc) rc = add_weights(r, root);
    if (!rc) rc = read_remarks(r);
    free(text);
    return rc;
}

/* -- the older stream ------------------------------------------------------------------------------- */

/* How many bytes an element of each storage has stands in the pickle alone. */
static int list_places(struct reader *r)
{
    struct pickle_value *const *list;
    size_t n = pickle_persistents(r->pickle, &list), kept = 0;
    if (!(r->places = calloc(n + 1, sizeof *r->places))) return no_memory(r);
    for (size_t i = 0; i < n; i++) {
        struct storage s;
        int rc = read_storage(&s, list[i], r->f->path, r->err);
        if (rc) return rc;
        r->places[i] = (struct place){ s.key->text, s.key->bytes, NULL, 0, pl_dtype_size(s.dtype) };
    }
    qsort(r->places, n, sizeof *r->places, by_key);
    for (size_t i = 0; i < n; i++) {
        if (kept && !by_key(&r->places[kept - 1], &r->places[i])) {
            if (r->places[kept - 1].element == r->places[i].element) continue;
            return pl_fail(r->err, PL_EFORMAT, "%s: storage %.*s has two types", r->f->path,
                           (int)(r->places[i].key_bytes < 60 ? r->places[i].key_bytes : 60),
                           r->places[i].key);
        }
        r->places[kept++] = r->places[i];
    }
    r->place_count = kept;
    return PL_OK;
}

/* For each key in the order of the last pickle: a count, then so many elements. */
static int locate(struct reader *r, const struct pickle_value *keys, size_t at)
{
    const struct pl_mapping *map = &r->o->map;
    if (keys->kind != PICKLE_LIST)
        return pl_fail(r->err, PL_EFORMAT, "%s: the list of storages is none", r->f->path);
    for (size_t i = 0; i < keys->count; i++) {
        const struct pickle_value *key = keys->item[i];
        struct place wanted = { .key = key->text, .key_bytes = key->bytes }, *p = NULL;
        uint64_t count = 0;
        if (key->kind == PICKLE_TEXT && r->place_count)
            p = bsearch(&wanted, r->places, r->place_count, sizeof *p, by_key);
        if (!p || p->data)
            return pl_fail(r->err, PL_EFORMAT, "%s: storage %zu of the list is not one of the pickle's, or "
                           "there twice", r->f->path, i);
        if (map->bytes - at >= 8)
            for (int k = 7; k >= 0; k--) count = count << 8 | map->at[at + (size_t)k];
        if (map->bytes - at < 8 || count > (map->bytes - at - 8) / p->element)
            return pl_fail(r->err, PL_EFORMAT, "%s: storage %zu: %llu elements at byte %zu of %zu",
                           r->f->path, i, (unsigned long long)count, at, map->bytes);
        p->data = map->at + at + 8;
        p->bytes = (size_t)count * p->element;
        at += 8 + p->bytes;
    }
    return PL_OK;
}

static int read_stream(struct reader *r)
{
    static const char *const parts[] = { "magic number", "protocol", "system", "object", "storages" };
    const struct pl_mapping *map = &r->o->map;
    const struct pickle_value *value[PL_COUNT(parts)];
    size_t at = 0, limit = map->bytes, used;
    int rc = PL_OK;
    r->f->kind = "PyTorch stream";
    for (size_t i = 0; !rc && i < PL_COUNT(parts); i++) {
        size_t left = limit - at < PICKLE_BYTES_MAX ? limit - at : PICKLE_BYTES_MAX;
        rc = pickle_read(r->pickle, &value[i], &used, map->at + at, left, r->f->path, r->err);
        at += used;
    }
    if (rc) return rc;
    if (value[1]->kind != PICKLE_INT || value[1]->integer != 1001)
        return pl_fail(r->err, PL_EFORMAT, "%s: PyTorch stream of protocol %lld, expected 1001", r->f->path,
                       value[1]->kind == PICKLE_INT ? (long long)value[1]->integer : -1);
    const struct pickle_value *little = pickle_get(value[2], "little_endian");
    if (little && little->kind == PICKLE_BOOL && !little->integer)
        return pl_fail(r->err, PL_EFORMAT, "%s: written on a big-endian machine", r->f->path);
    rc = list_places(r);
    if (!rc) rc = locate(r, value[4], at);
    return rc ? rc : add_weights(r, value[3]);
}

int torch_open(struct st_file **out, const char *path, struct pl_err *err)
{
    struct reader r = { .err = err };
    int rc;
    *out = NULL;
    r.f = calloc(1, sizeof *r.f);
    r.o = calloc(1, sizeof *r.o);
    r.pickle = pickle_new();
    if (!r.f || !r.o || !r.pickle || !(r.f->path = strdup(path))) {
        free(r.f);
        free(r.o);
        pickle_free(r.pickle);
        return pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    }
    r.f->owner = r.o;
    r.f->drop = drop;
    rc = pl_mapping_open(&r.o->map, path, err);
    if (!rc && !torch_begins(r.o->map.at, r.o->map.bytes))
        rc = pl_fail(err, PL_EFORMAT, "%s: no PyTorch checkpoint", path);
    if (!rc) rc = r.o->map.at[0] == zip_magic[0] ? read_zip(&r) : read_stream(&r);
    if (!rc) rc = check_names(&r);
    archive_close(r.archive);
    pickle_free(r.pickle);
    free(r.places);
    if (rc) st_close(r.f);
    else *out = r.f;
    return rc;
}
