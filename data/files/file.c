/* file.c - whole files. A file is written to a temporary name in the same folder, flushed to disk
 * (fsync) and renamed over its target: rename is atomic, so readers see the old file or the new
 * one, never a part. */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int pl_file_read(void **data, size_t *bytes, const char *path, size_t limit, struct pl_err *err)
{
    struct stat st;
    char *buffer = NULL;
    size_t got = 0, want;
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = PL_OK;
    *data = NULL;
    *bytes = 0;
    if (fd < 0) return pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st)) rc = pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode)) rc = pl_fail(err, PL_EIO, "%s: not a regular file", path);
    else if ((uint64_t)st.st_size > limit)
        rc = pl_fail(err, PL_ELIMIT, "%s: %lld bytes, at most %zu expected", path,
                     (long long)st.st_size, limit);
    if (rc) goto done;
    want = (size_t)st.st_size;
    if (!(buffer = malloc(want + 1))) {
        rc = pl_fail(err, PL_ENOMEM, "%s: no memory for %zu bytes", path, want);
        goto done;
    }
    while (got < want) {
        ssize_t n = read(fd, buffer + got, want - got);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            rc = pl_fail(err, PL_EIO, "%s: ends after %zu of %zu bytes%s%s", path, got, want,
                         n ? ": " : "", n ? strerror(errno) : "");
            goto done;
        }
        got += (size_t)n;
    }
    buffer[got] = 0;
    *data = buffer;
    *bytes = got;
    buffer = NULL;
done:
    free(buffer);
    close(fd);
    return rc;
}

int pl_file_read_text(char **text, const char *path, size_t limit, struct pl_err *err)
{
    size_t bytes, n;
    int rc = pl_file_read((void **)text, &bytes, path, limit, err);
    if (rc || (n = strlen(*text)) == bytes) return rc;
    free(*text);
    *text = NULL;
    return pl_fail(err, PL_EFORMAT, "%s: byte %zu is zero: not a text file", path, n);
}

int pl_folder_make(const char *path, struct pl_err *err)
{
    char *part = strdup(path);
    struct stat st;
    int rc = part ? PL_OK : pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    for (char *c = part; !rc && *c; c++) { /* a folder that cannot be made shows at the last one */
        if (*c != '/' || c == part) continue;
        *c = 0;
        (void)!mkdir(part, 0777);
        *c = '/';
    }
    if (!rc && mkdir(path, 0777) && errno != EEXIST)
        rc = pl_fail(err, PL_EIO, "%s: cannot create the folder: %s", path, strerror(errno));
    if (!rc && !stat(path, &st) && !S_ISDIR(st.st_mode))
        rc = pl_fail(err, PL_EIO, "%s: not a folder", path);
    free(part);
    return rc;
}

int pl_file_create(struct pl_file_out *out, const char *path, struct pl_err *err)
{
    size_t n = strlen(path) + 32;
    memset(out, 0, sizeof *out);
    out->fd = -1;
    out->path = strdup(path);
    out->temporary = malloc(n);
    if (!out->path || !out->temporary) {
        pl_file_discard(out);
        return pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    }
    /* In the target's folder, because rename cannot cross file systems. */
    snprintf(out->temporary, n, "%s.%ld.part", path, (long)getpid());
    out->fd = open(out->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (out->fd < 0) {
        int rc = pl_fail(err, PL_EIO, "%s: cannot create: %s", path, strerror(errno));
        free(out->temporary);
        out->temporary = NULL;
        pl_file_discard(out);
        return rc;
    }
    return PL_OK;
}

int pl_file_append(struct pl_file_out *out, const void *data, size_t bytes, struct pl_err *err)
{
    const char *p = data;
    size_t left = bytes;
    while (left) {
        ssize_t n = write(out->fd, p, left);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return pl_fail(err, PL_EIO, "%s: cannot write: %s", out->path,
                           n ? strerror(errno) : "nothing was taken");
        p += n;
        left -= (size_t)n;
        out->bytes += (uint64_t)n;
    }
    return PL_OK;
}

int pl_folder_sync(const char *path, struct pl_err *err)
{
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1, rc = PL_OK;
    if (!folder) rc = pl_fail(err, PL_ENOMEM, "%s: no memory to flush its folder", path);
    /* Some file systems cannot flush a folder (EINVAL), and one that we may not read cannot be
     * opened: the rename itself has succeeded. */
    if (fd >= 0 && fsync(fd) && errno != EINVAL && errno != ENOTSUP)
        rc = pl_fail(err, PL_EIO, "%s: cannot flush: %s", folder, strerror(errno));
    if (fd >= 0) close(fd);
    free(folder);
    return rc;
}

int pl_file_commit(struct pl_file_out *out, struct pl_err *err)
{
    int rc = PL_OK, fd = out->fd;
    if (fsync(fd)) rc = pl_fail(err, PL_EIO, "%s: cannot write: %s", out->path, strerror(errno));
    out->fd = -1;
    if (close(fd) && !rc)
        rc = pl_fail(err, PL_EIO, "%s: cannot write: %s", out->path, strerror(errno));
    if (!rc && rename(out->temporary, out->path))
        rc = pl_fail(err, PL_EIO, "%s: cannot replace: %s", out->path, strerror(errno));
    if (!rc) {
        rc = pl_folder_sync(out->path, err);
        free(out->temporary);
        out->temporary = NULL;
    }
    pl_file_discard(out);
    return rc;
}

void pl_file_discard(struct pl_file_out *out)
{
    if (!out->path && !out->temporary) return;
    if (out->fd >= 0) close(out->fd);
    if (out->temporary) unlink(out->temporary);
    free(out->temporary);
    free(out->path);
    memset(out, 0, sizeof *out);
    out->fd = -1;
}

int pl_file_write(const char *path, const void *data, size_t bytes, struct pl_err *err)
{
    struct pl_file_out out;
    int rc = pl_file_create(&out, path, err);
    if (!rc) rc = pl_file_append(&out, data, bytes, err);
    if (!rc) return pl_file_commit(&out, err);
    pl_file_discard(&out);
    return rc;
}
