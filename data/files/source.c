/* source.c - sources that read from a file (pread) and from memory. */
#include "source.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct file_source {
    struct pl_source s;
    int fd;
};

struct memory_source {
    struct pl_source s;
    const uint8_t *data;
};

static int file_read(struct pl_source *s, uint64_t at, void *out, size_t bytes, struct pl_err *err)
{
    struct file_source *f = (struct file_source *)s;
    uint8_t *p = out;
    while (bytes) {
        ssize_t n = pread(f->fd, p, bytes, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return pl_fail(err, PL_EIO, "%s: cannot read at byte %llu: %s", s->name,
                           (unsigned long long)at, n ? strerror(errno) : "the file has shrunk");
        p += n;
        at += (uint64_t)n;
        bytes -= (size_t)n;
    }
    return PL_OK;
}

static void file_close(struct pl_source *s) { close(((struct file_source *)s)->fd); }

static int memory_read(struct pl_source *s, uint64_t at, void *out, size_t bytes,
                       struct pl_err *err)
{
    memcpy(out, ((struct memory_source *)s)->data + at, bytes);
    return PL_OK;
}

static void memory_close(struct pl_source *s) {}

int pl_source_file(struct pl_source **out, const char *path, struct pl_err *err)
{
    struct file_source *f = calloc(1, sizeof *f + strlen(path) + 1);
    struct stat st;
    int rc = PL_OK;
    *out = NULL;
    if (!f) return pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    f->s.name = memcpy(f + 1, path, strlen(path) + 1);
    f->s.read_at = file_read;
    f->s.close = file_close;
    f->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (f->fd < 0 || fstat(f->fd, &st)) rc = pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode)) rc = pl_fail(err, PL_EIO, "%s: not a regular file", path);
    if (rc) {
        if (f->fd >= 0) close(f->fd);
        free(f);
        return rc;
    }
    f->s.size = (uint64_t)st.st_size;
    *out = &f->s;
    return PL_OK;
}

int pl_source_memory(struct pl_source **out, const char *name, const void *data, size_t bytes,
                     struct pl_err *err)
{
    struct memory_source *m = calloc(1, sizeof *m + strlen(name) + 1);
    *out = NULL;
    if (!m) return pl_fail(err, PL_ENOMEM, "%s: no memory", name);
    m->s.name = memcpy(m + 1, name, strlen(name) + 1);
    m->s.size = bytes;
    m->s.read_at = memory_read;
    m->s.close = memory_close;
    m->data = data;
    *out = &m->s;
    return PL_OK;
}

void pl_source_close(struct pl_source *s)
{
    if (!s) return;
    s->close(s);
    free(s);
}

int pl_source_read(struct pl_source *s, uint64_t at, void *out, size_t bytes, struct pl_err *err)
{
    if (at > s->size || bytes > s->size - at)
        return pl_fail(err, PL_EFORMAT, "%s: bytes %llu to %llu were expected, the file has %llu",
                       s->name, (unsigned long long)at, (unsigned long long)(at + bytes),
                       (unsigned long long)s->size);
    return bytes ? s->read_at(s, at, out, bytes, err) : PL_OK;
}
