/* file.h - reading and writing whole files. A written file appears complete or not at all. */
#ifndef PL_FILE_H
#define PL_FILE_H

#include "ref/base.h"

/* Reads a file of at most `limit` bytes (PL_ELIMIT if larger). *data has one extra zero byte; the
 * caller frees it with free(). err names the file. */
int pl_file_read(void **data, size_t *bytes, const char *path, size_t limit, struct pl_err *err);

/* The same for text: PL_EFORMAT if the file contains a zero byte. */
int pl_file_read_text(char **text, const char *path, size_t limit, struct pl_err *err);

/* Makes a folder and its missing parents. */
int pl_folder_make(const char *path, struct pl_err *err);

/* Flushes the entry of a file in its folder to disk: after a power cut, a renamed file may
 * otherwise be there under its former name. PL_OK where the file system has nothing to flush. */
int pl_folder_sync(const char *path, struct pl_err *err);

/* A file being written under a temporary name in the same folder. */
struct pl_file_out {
    char *path, *temporary;
    int fd;
    uint64_t bytes; /* written so far */
};
int pl_file_create(struct pl_file_out *out, const char *path, struct pl_err *err);
int pl_file_append(struct pl_file_out *out, const void *data, size_t bytes, struct pl_err *err);
/* Flushes the file to disk and renames it to `path`. On error the old file is unchanged, unless the
 * folder could not be flushed: then a power cut may bring the old one back. Clears *out. */
int pl_file_commit(struct pl_file_out *out, struct pl_err *err);
/* Removes the temporary file; does nothing after a commit. */
void pl_file_discard(struct pl_file_out *out);

/* Create, append and commit in one call. */
int pl_file_write(const char *path, const void *data, size_t bytes, struct pl_err *err);

#endif
