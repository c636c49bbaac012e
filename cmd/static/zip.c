/* zip.c - archives of torch.save in the static program: libzip has no static library in Debian, so
 * here they can be neither read nor written. Weights travel as .safetensors. */
#include "data/torch/zip_archive.h"

#include <stddef.h>

static int absent(const char *path, struct pl_err *err)
{
    return pl_fail(err, PL_EUSE,
                   "%s: the static program has no PyTorch archives; use .safetensors, or the "
                   "program that is built with libzip",
                   path);
}

int pl_zip_archive_open(struct archive **a, const char *path, const void *data, size_t bytes,
                        struct pl_err *err)
{
    *a = NULL;
    return absent(path, err);
}

int pl_zip_archive_create(struct archive_out **out, const char *path, struct pl_err *err)
{
    *out = NULL;
    return absent(path, err);
}

/* No archive is ever open. */
void pl_zip_archive_close(struct archive *a) {}
size_t pl_zip_archive_count(const struct archive *a) { return (size_t)0; }

const char *pl_zip_archive_name(const struct archive *a, size_t index) { return NULL; }

long pl_zip_archive_find(const struct archive *a, const char *name) { return -1; }

int pl_zip_archive_stored(struct archive *a, size_t index, const void **data, size_t *bytes,
                          struct pl_err *err)
{
    return absent("archive", err);
}

int pl_zip_archive_read(struct archive *a, size_t index, void **data, size_t *bytes, size_t limit,
                        struct pl_err *err)
{
    return absent("archive", err);
}

int pl_zip_archive_add(struct archive_out *out, const char *name, const void *data, size_t bytes,
                       struct pl_err *err)
{
    return absent("archive", err);
}

int pl_zip_archive_write(struct archive_out *out, struct pl_err *err)
{
    return absent("archive", err);
}

void pl_zip_archive_discard(struct archive_out *out) {}
