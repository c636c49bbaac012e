/* weights.c - opens a file of weights of any kind by its first bytes, and saves to the kind its
 * name asks for. */
#include "weights.h"
#include "data/files/source.h"
#include "data/torch/torch.h"
#include "ref/small.h"

#include <string.h>

/* Removes the "module." that DataParallel puts before every name, if all names have it. */
static void strip_module(struct st_file *f)
{
    static const char wrapper[] = "module.";
    size_t n = sizeof wrapper - 1;
    for (size_t i = 0; i < f->count; i++)
        if (strncmp(f->tensors[i].name, wrapper, n) || !f->tensors[i].name[n]) return;
    for (size_t i = 0; i < f->count; i++) f->tensors[i].name += n;
}

int pl_weights_open(struct st_file **f, const char *path, struct pl_err *err)
{
    struct pl_source *s;
    uint8_t head[8] = { 0 };
    int rc = pl_source_file(&s, path, err);
    *f = NULL;
    if (rc) return rc;
    if (s->size >= sizeof head) rc = pl_source_read(s, 0, head, sizeof head, err);
    pl_source_close(s);
    if (!rc)
        rc = pl_torch_begins(head, sizeof head) ? pl_torch_open(f, path, err)
                                                : pl_safetensors_open(f, path, err);
    if (!rc) strip_module(*f);
    return rc;
}

static int save_safetensors(const struct st_file *f, const char *path, struct pl_err *err)
{
    struct st_writer *w = pl_safetensors_writer_new();
    int rc = w ? PL_OK : PL_ENOMEM, format = 0;
    for (size_t i = 0; !rc && i < f->metas; i++) {
        format |= !strcmp(f->meta_key[i], "format");
        rc = pl_safetensors_writer_meta(w, f->meta_key[i], f->meta_value[i]);
    }
    /* readers of PyTorch tensors expect this */
    if (!rc && !format) rc = pl_safetensors_writer_meta(w, "format", "pt");
    for (size_t i = 0; !rc && i < f->count; i++) {
        const struct st_tensor *t = &f->tensors[i];
        rc = pl_safetensors_writer_add(w, t->name, t->dtype, t->dims, t->shape, t->data);
    }
    if (rc) pl_fail(err, rc, "%s: %s", path, pl_status_name(rc));
    else rc = pl_safetensors_write(w, path, err);
    pl_safetensors_writer_free(w);
    return rc;
}

int pl_weights_save(const struct st_file *f, const char *path, struct pl_err *err)
{
    static const char *const torch[] = { ".pt", ".pth", ".bin", ".ckpt" };
    if (pl_ends_with(path, ".safetensors")) return save_safetensors(f, path, err);
    for (size_t i = 0; i < PL_COUNT(torch); i++)
        if (pl_ends_with(path, torch[i])) return pl_torch_save(f, path, err);
    return pl_fail(err, PL_EUSE,
                   "%s: unknown kind of file: the name should end in .safetensors, .pt, .pth, .bin "
                   "or .ckpt",
                   path);
}
