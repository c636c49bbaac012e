/* offload.c - optimizer state in a file instead of memory. [TTT 2.1, memory: offloading]
 *
 *   alloc   blocks of one unlinked file, mapped shared
 *   step    update a tensor's moments in place, then MADV_DONTNEED: its pages leave the process
 *
 * Moments are needed once per step, one tensor after the other, so only one tensor's pages are
 * resident at a time. Released pages stay in the kernel's page cache while memory lasts, and are
 * written back when the kernel likes. */
#include "offload.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Each block of memory begins with its length, in a page of its own. */
static struct {
    struct pl_backend base;
    int fd;
    off_t bytes;
    size_t page;
} file;

static void *map(size_t bytes)
{
    size_t whole = (bytes / file.page + 2) * file.page;
    void *at;
    /* The disk space is reserved now: a full disk fails here, not as SIGBUS in the middle of a
     * step. */
    if (bytes > PTRDIFF_MAX - 2 * file.page || posix_fallocate(file.fd, file.bytes, (off_t)whole))
        return NULL;
    at = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, file.bytes);
    if (at == MAP_FAILED) return NULL;
    file.bytes += (off_t)whole;
    memcpy(at, &whole, sizeof whole);
    return (char *)at + file.page;
}

static void unmap(void *p)
{
    size_t whole;
    if (!p) return;
    memcpy(&whole, (char *)p - file.page, sizeof whole);
    munmap((char *)p - file.page, whole);
}

static void let_go(void *p, size_t bytes)
{
    if (p)
        madvise(p, (bytes + file.page - 1) / file.page * file.page,
                MADV_DONTNEED); /* the file keeps the data */
}

static int adam(float *p, const float *g, const struct pl_moments *m, size_t n,
                const struct pl_adam *step)
{
    int rc = file.base.adam(p, g, m, n, step);
    for (int k = 0; k < 2; k++) {
        let_go(m->value[k], n * sizeof(float));
        let_go(m->code[k], n);
        let_go(m->absmax[k], m->block ? pl_blocks(n, m->block) * sizeof(float) : 0);
    }
    return rc;
}

int offload_open(struct pl_backend *be, const struct pl_backend *base, const char *folder,
                 struct pl_err *err)
{
    char *path = pl_path_join(folder, "potluck-offload-XXXXXX");
    if (!path) return pl_fail(err, PL_ENOMEM, "no memory");
    file.base = *base;
    file.bytes = 0;
    file.page = (size_t)sysconf(_SC_PAGESIZE);
    file.fd = mkostemp(path, O_CLOEXEC);
    if (file.fd < 0) pl_fail(err, PL_EIO, "--offload: %s: %s", path, strerror(errno));
    else unlink(path);
    free(path);
    *be = *base;
    be->alloc = map;
    be->free = unmap;
    be->adam = adam;
    return file.fd < 0 ? PL_EIO : PL_OK;
}

void offload_close(void)
{
    if (file.fd > 0) close(file.fd);
    memset(&file, 0, sizeof file);
}
