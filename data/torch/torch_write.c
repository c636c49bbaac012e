/* torch_write.c - writes a state dict as torch.save does: a pickle of protocol 2 with only those
 * names that torch.load(weights_only=True) accepts, and one archive member per tensor. */
#include "torch.h"
#include "data/files/json.h"
#include "zip_archive.h"
#include "data/files/buffer.h"
#include "ref/byte_order.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const storage_names[PL_DTYPES] = {
    [PL_F64] = "Double", [PL_F32] = "Float", [PL_F16] = "Half",  [PL_BF16_T] = "BFloat16",
    [PL_I64] = "Long",   [PL_I32] = "Int",   [PL_I16] = "Short", [PL_I8] = "Char",
    [PL_U8] = "Byte",    [PL_BOOL] = "Bool",
};

static void code(struct pl_buffer *b, const char *opcodes)
{
    pl_buffer_add(b, opcodes, strlen(opcodes));
}

static void text(struct pl_buffer *b, const char *s)
{
    size_t n = strlen(s);
    pl_buffer_byte(b, 'X'); /* BINUNICODE */
    pl_buffer_le32(b, (uint32_t)n);
    pl_buffer_add(b, s, n);
}

static void integer(struct pl_buffer *b, int64_t x)
{
    if (x == (int32_t)x) {
        pl_buffer_byte(b, 'J'); /* BININT */
        pl_buffer_le32(b, (uint32_t)x);
        return;
    }
    pl_buffer_byte(b, 0x8A); /* LONG1 of 8 bytes */
    pl_buffer_byte(b, 8);
    pl_buffer_le32(b, (uint32_t)x);
    pl_buffer_le32(b, (uint32_t)((uint64_t)x >> 32));
}

/* _rebuild_tensor_v2(storage, 0, shape, strides, False, OrderedDict()) */
static void tensor(struct pl_buffer *b, const struct st_tensor *t, const char *key)
{
    int64_t step = 1, steps[PL_COUNT(t->shape)];
    char type[40];
    snprintf(type, sizeof type, "ctorch\n%sStorage\n", storage_names[t->dtype]);
    for (int i = t->dims - 1; i >= 0; i--) {
        steps[i] = step;
        step *= t->shape[i] ? t->shape[i] : 1;
    }
    code(b, "ctorch._utils\n_rebuild_tensor_v2\n((");
    text(b, "storage");
    code(b, type);
    text(b, key);
    text(b, "cpu");
    integer(b, (int64_t)t->n);
    code(b, "tQ"); /* TUPLE, BINPERSID */
    integer(b, 0);
    code(b, "(");
    for (int i = 0; i < t->dims; i++) integer(b, t->shape[i]);
    code(b, "t(");
    for (int i = 0; i < t->dims; i++) integer(b, steps[i]);
    /* NEWFALSE, an empty OrderedDict, TUPLE, REDUCE */
    code(b, "t\x89"
            "ccollections\nOrderedDict\n)RtR");
}

static char *metadata_of(const struct st_file *f)
{
    json_t *root = json_object();
    char *s = NULL;
    int failed = !root;
    for (size_t i = 0; !failed && i < f->metas; i++)
        failed = json_object_set_new(root, f->meta_key[i], json_string(f->meta_value[i]));
    if (!failed) s = pl_json_text(root, JSON_COMPACT);
    json_decref(root);
    return s;
}

/* The archive's top folder is "archive", as in torch.save to a stream. */
/* Little-endian copies of tensors, which the archive borrows until it is written. */
struct kept {
    struct kept *next;
    uint8_t data[];
};

static const void *keep_little(struct kept **list, const struct st_tensor *t)
{
    size_t size = pl_dtype_size(t->dtype);
    struct kept *k = malloc(sizeof *k + t->bytes);
    if (!k) return NULL;
    pl_copy_little(k->data, t->data, size, t->bytes / size);
    k->next = *list;
    return (*list = k)->data;
}

int pl_torch_save(const struct st_file *f, const char *path, struct pl_err *err)
{
    struct pl_buffer b = { 0 };
    struct archive_out *out = NULL;
    struct kept *kept = NULL;
    char *extra = f->metas ? metadata_of(f) : NULL;
    int rc = f->metas && !extra ? pl_fail(err, PL_ENOMEM, "%s: no memory", path) : PL_OK;
    code(&b, "\x80\x02"
             "ccollections\nOrderedDict\n)R("); /* PROTO 2, an OrderedDict, MARK */
    for (size_t i = 0; i < f->count; i++) {
        char key[24];
        snprintf(key, sizeof key, "%zu", i);
        text(&b, f->tensors[i].name);
        tensor(&b, &f->tensors[i], key);
    }
    code(&b, "u."); /* SETITEMS, STOP */
    if (!rc && b.failed) rc = pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    if (!rc) rc = pl_zip_archive_create(&out, path, err);
    if (!rc) rc = pl_zip_archive_add(out, "archive/data.pkl", b.data, b.bytes, err);
    if (!rc) rc = pl_zip_archive_add(out, "archive/byteorder", "little", 6, err);
    for (size_t i = 0; !rc && i < f->count; i++) {
        const struct st_tensor *t = &f->tensors[i];
        const void *data = t->data;
        char name[48];
        snprintf(name, sizeof name, "archive/data/%zu", i);
        if (PL_BIG_ENDIAN) data = keep_little(&kept, t);
        rc = data || !t->bytes ? pl_zip_archive_add(out, name, data, t->bytes, err)
                               : pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    }
    if (!rc && extra)
        rc = pl_zip_archive_add(out, "archive/" TORCH_METADATA, extra, strlen(extra), err);
    if (!rc) rc = pl_zip_archive_add(out, "archive/version", "3\n", 2, err);
    if (!rc) rc = pl_zip_archive_write(out, err);
    pl_zip_archive_discard(out);
    pl_buffer_clear(&b);
    free(extra);
    while (kept) {
        struct kept *next = kept->next;
        free(kept);
        kept = next;
    }
    return rc;
}
