/* zip_archive.h - ZIP archives with stored members, as torch.save writes them: found by libzip,
 * used in place in the mapped file. [spec images-and-text 7.2] */
#ifndef PL_ZIP_ARCHIVE_H
#define PL_ZIP_ARCHIVE_H

#include "ref/base.h"

struct archive;

/* Opens an archive in memory. data is borrowed until pl_zip_archive_close; `path` is for
 * messages. */
int pl_zip_archive_open(struct archive **a, const char *path, const void *data, size_t bytes,
                        struct pl_err *err);
void pl_zip_archive_close(struct archive *a);

size_t pl_zip_archive_count(const struct archive *a);
const char *pl_zip_archive_name(const struct archive *a, size_t index); /* NULL: no name */
/* The index of the member with this name, or -1. */
long pl_zip_archive_find(const struct archive *a, const char *name);

/* The bytes of a stored member, in place; an error if it is compressed, encrypted or outside. The
 * checksum is not verified: PyTorch does not either, and newer files may have none. */
int pl_zip_archive_stored(struct archive *a, size_t index, const void **data, size_t *bytes,
                          struct pl_err *err);
/* A copy of any member of at most `limit` bytes when decompressed, zero-terminated; free with
 * free(). */
int pl_zip_archive_read(struct archive *a, size_t index, void **data, size_t *bytes, size_t limit,
                        struct pl_err *err);

/* Writing: members are stored in the order they are added, each at a multiple of 64 bytes. Their
 * data is borrowed until pl_zip_archive_write, which writes the file complete or not at all. *out
 * is NULL after an error of pl_zip_archive_create. */
struct archive_out;
int pl_zip_archive_create(struct archive_out **out, const char *path, struct pl_err *err);
int pl_zip_archive_add(struct archive_out *out, const char *name, const void *data, size_t bytes,
                       struct pl_err *err);
int pl_zip_archive_write(struct archive_out *out, struct pl_err *err);
void pl_zip_archive_discard(struct archive_out *out); /* also after pl_zip_archive_write */

#endif
