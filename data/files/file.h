/* file.h - whole files in, whole files out: a written file appears complete or not at all. */
#ifndef PL_FILE_H
#define PL_FILE_H

#include "ref/base.h"

/* Reads a file of at most `limit` bytes; *data gets one extra zero byte and is freed with free().
 * err names the file. */
int pl_file_read(void **data, size_t *bytes, const char *path, size_t limit, struct pl_err *err);

/* Likewise a file of text, which holds no zero byte. */
int pl_file_read_text(char **text, const char *path, size_t limit, struct pl_err *err);

/* Makes a folder and those that it lies in, as far as they are missing. */
int pl_folder_make(const char *path, struct pl_err *err);

/* A file being written under a temporary name beside `path`. */
struct pl_file_out {
    char *path, *temporary;
    int fd;
    uint64_t bytes; /* written so far */
};
int pl_file_create(struct pl_file_out *out, const char *path, struct pl_err *err);
int pl_file_append(struct pl_file_out *out, const void *data, size_t bytes, struct pl_err *err);
/* fsync, rename over `path`, fsync of the folder. On error the old file is untouched. Clears
 * *out. */
int pl_file_commit(struct pl_file_out *out, struct pl_err *err);
/* Removes the temporary file; harmless after a commit. */
void pl_file_discard(struct pl_file_out *out);

/* The three above in one. */
int pl_file_write(const char *path, const void *data, size_t bytes, struct pl_err *err);

#endif
