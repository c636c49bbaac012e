/* zip_archive.h - ZIP archives of stored members, as torch.save writes them: found by libzip, used
 * where they lie in the mapped file. [spec images-and-text 7.2] */
#ifndef PL_ZIP_ARCHIVE_H
#define PL_ZIP_ARCHIVE_H

#include "ref/base.h"

struct archive;

/* data is borrowed until pl_zip_archive_close; `path` is for sentences. */
int pl_zip_archive_open(struct archive **a, const char *path, const void *data, size_t bytes,
                        struct pl_err *err);
void pl_zip_archive_close(struct archive *a);

size_t pl_zip_archive_count(const struct archive *a);
const char *pl_zip_archive_name(const struct archive *a,
                                size_t index); /* NULL: a member without one */
/* Index of the member of this name, -1 if there is none. */
long pl_zip_archive_find(const struct archive *a, const char *name);

/* A stored member where it lies; err says so if it is compressed or encrypted, or lies outside. No
 * checksum is taken: PyTorch takes none either, and newer files may hold none. */
int pl_zip_archive_stored(struct archive *a, size_t index, const void **data, size_t *bytes,
                          struct pl_err *err);
/* A copy of any member of at most `limit` bytes once inflated, with a zero behind it; free(). */
int pl_zip_archive_read(struct archive *a, size_t index, void **data, size_t *bytes, size_t limit,
                        struct pl_err *err);

/* Writing: members are stored in the order they are added, the content of each on a multiple of 64
 * bytes; their data is borrowed until pl_zip_archive_write, after which the file is there, whole, or not
 * at all. `out` is NULL after an error of pl_zip_archive_create. */
struct archive_out;
int pl_zip_archive_create(struct archive_out **out, const char *path, struct pl_err *err);
int pl_zip_archive_add(struct archive_out *out, const char *name, const void *data, size_t bytes,
                       struct pl_err *err);
int pl_zip_archive_write(struct archive_out *out, struct pl_err *err);
void pl_zip_archive_discard(struct archive_out *out); /* also after pl_zip_archive_write */

#endif
