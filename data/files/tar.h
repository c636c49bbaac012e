/* tar.h - the files of a tar archive where they lie in memory: ustar, with GNU's and POSIX's long
 * names. [POSIX.1-2017, pax] */
#ifndef PL_TAR_H
#define PL_TAR_H

#include "ref/base.h"

#define TAR_NAME_MAX 1024

struct tar {
    const uint8_t *data; /* borrowed */
    size_t bytes, at;
    const char *path; /* for sentences */
};

struct tar_file {
    char name[TAR_NAME_MAX];
    const uint8_t *data;
    size_t bytes, at; /* its data begins at this byte of the archive */
};

/* The next regular file; others are passed over. PL_ENOTFOUND: the archive has ended. Before the
 * first call *t holds data, bytes and path. */
int pl_tar_next(struct tar *t, struct tar_file *file, struct pl_err *err);

#endif
