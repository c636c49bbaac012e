/* tar.h - iterates over the files of a tar archive in memory: ustar, with GNU's and POSIX's long
 * names. [POSIX.1-2017, pax] */
#ifndef PL_TAR_H
#define PL_TAR_H

#include "ref/base.h"

#define TAR_NAME_MAX 1024

struct tar {
    const uint8_t *data; /* borrowed */
    size_t bytes, at;
    const char *path; /* for error messages */
};

struct tar_file {
    char name[TAR_NAME_MAX];
    const uint8_t *data;
    size_t bytes, at; /* offset of its data in the archive */
};

/* Finds the next regular file; skips everything else. PL_ENOTFOUND: the end of the archive.
 * PL_EFORMAT: damaged. Before the first call set data, bytes and path in *t. File contents point
 * into `data`. */
int pl_tar_next(struct tar *t, struct tar_file *file, struct pl_err *err);

#endif
