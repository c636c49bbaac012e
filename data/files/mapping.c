/* mapping.c - mmap of a whole file, read only. */
#include "mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const uint8_t nothing[1]; /* stands for an empty file, which cannot be mapped */

int pl_mapping_open(struct pl_mapping *m, const char *path, struct pl_err *err)
{
    struct stat st;
    void *at;
    int fd = open(path, O_RDONLY | O_CLOEXEC), rc = PL_OK;
    memset(m, 0, sizeof *m);
    if (fd < 0 || fstat(fd, &st)) rc = pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode)) rc = pl_fail(err, PL_EIO, "%s: not a regular file", path);
    else if (!st.st_size) m->at = nothing;
    else if ((at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)) == MAP_FAILED)
        rc = pl_fail(err, PL_EIO, "%s: cannot map: %s", path, strerror(errno));
    else {
        m->at = at;
        m->bytes = (size_t)st.st_size;
    }
    if (fd >= 0) close(fd);
    return rc;
}

void pl_mapping_let_go(const struct pl_mapping *m, const void *from, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)m->at,
              at = (uintptr_t)from;
    uintptr_t first, end;
    if (!m->bytes || at < start || at - start > m->bytes || bytes > m->bytes - (at - start)) return;
    first = (at + page - 1) / page * page;
    end = (at + bytes) / page * page;
    if (first < end) madvise((void *)first, end - first, MADV_DONTNEED);
}

void pl_mapping_close(struct pl_mapping *m)
{
    if (m->bytes) munmap((void *)(uintptr_t)m->at, m->bytes);
    memset(m, 0, sizeof *m);
}
