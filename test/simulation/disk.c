/* disk.c - one folder of files for each computer, as strict as POSIX allows a disk to be.
 *
 *   write    is in the system's memory; a power failure keeps any of its sectors, or none
 *   fsync    of a file: its bytes are safe. Of the folder: its names are safe. One that fails has
 *            given up: a second one returns 0, though the bytes never reach the disk, as Linux's
 *            page cache does it
 *   rename   and creating and unlinking are in the system's memory; a power failure keeps the first
 *            few of them, since file systems write names in order, but not after the bytes
 *
 * So a file that is renamed without fsync may be empty after a power failure, and one whose folder
 * was not synced may have its old content. */
#include "disk.h"
#include "threads.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILES_MAX 256
#define OPEN_MAX_FILES 64
#define NAME_LIMIT 96
#define SECTOR 512
#define FD_BASE 2000000 /* descriptors of virtual files; FD_BASE - 1 is the folder's */

struct bytes_at {
    uint8_t *data;
    size_t n;
};
struct inode {
    struct bytes_at now, safe; /* what programs see; what is on the disk in any case */
    int is_dropped;            /* an fsync has failed: what was written is nowhere any more */
};
struct name {
    char path[NAME_LIMIT];
    struct inode *inode;
};
struct names {
    struct name list[FILES_MAX];
    size_t count;
};
struct change { /* of a name: inode NULL removes it */
    char path[NAME_LIMIT];
    struct inode *inode;
};

struct sim_disk {
    struct names now, safe;
    struct change changes[FILES_MAX]; /* since the folder was synced */
    size_t change_count;
    struct sim_disk_faults faults;
};

static struct open_file {
    struct sim_disk *disk; /* NULL: a free place */
    struct inode *inode;
    size_t at;
} files[OPEN_MAX_FILES];

struct sim_disk *sim_disk_new(void) { return __real_calloc(1, sizeof(struct sim_disk)); }
struct sim_disk_faults *sim_disk_faults(struct sim_disk *d) { return &d->faults; }

/* --- names ------------------------------------------------------------------------------------ */

static struct sim_disk *disk_of(const char *path)
{
    struct sim_peer *p = sim_peer_here();
    return p && p->disk && !strncmp(path, DISK_ROOT, strlen(DISK_ROOT)) ? p->disk : NULL;
}

static int is_folder(const char *path)
{
    return !strcmp(path, DISK_ROOT) || (!strncmp(path, DISK_ROOT, strlen(DISK_ROOT) - 1) &&
                                        strlen(path) == strlen(DISK_ROOT) - 1);
}

static struct name *find(struct names *n, const char *path)
{
    for (size_t i = 0; i < n->count; i++)
        if (!strcmp(n->list[i].path, path)) return &n->list[i];
    return NULL;
}

static void apply(struct names *n, const char *path, struct inode *inode)
{
    struct name *x = find(n, path);
    if (!inode) {
        if (x) *x = n->list[--n->count];
        return;
    }
    if (!x) {
        if (n->count == FILES_MAX || strlen(path) >= NAME_LIMIT) sim_fail("disk: %s", path);
        x = &n->list[n->count++];
        snprintf(x->path, sizeof x->path, "%s", path);
    }
    x->inode = inode;
}

static void sync_names(struct sim_disk *d)
{
    d->safe = d->now;
    d->change_count = 0;
}

static void change(struct sim_disk *d, const char *path, struct inode *inode)
{
    struct change *c;
    apply(&d->now, path, inode);
    if (d->change_count == FILES_MAX) sync_names(d); /* no system keeps names forever */
    c = &d->changes[d->change_count++];
    snprintf(c->path, sizeof c->path, "%s", path);
    c->inode = inode;
}

/* --- bytes ------------------------------------------------------------------------------------ */

static void copy_bytes(struct bytes_at *to, const struct bytes_at *from)
{
    to->data = __real_realloc(to->data, from->n + 1);
    memcpy(to->data, from->data, from->n);
    to->n = from->n;
}

static void write_at(struct bytes_at *to, size_t at, const void *data, size_t n)
{
    if (at + n > to->n) {
        to->data = __real_realloc(to->data, at + n + 1);
        memset(to->data + to->n, 0, at + n - to->n);
        to->n = at + n;
    }
    memcpy(to->data + at, data, n);
}

/* Of unsynced bytes a power failure keeps nothing, all, a beginning, or single sectors. */
static void lose_bytes(struct inode *x, struct sim_random *r)
{
    struct bytes_at after = { NULL, 0 };
    size_t begin = x->now.n;
    int how = (int)sim_random_below(r, 4);
    if (x->is_dropped) how = 0;
    if (x->now.n == x->safe.n && (!x->now.n || !memcmp(x->now.data, x->safe.data, x->now.n)))
        return;
    if (how == 1) {
        copy_bytes(&x->safe, &x->now);
        return;
    }
    copy_bytes(&after, &x->safe);
    if (how == 2) begin = sim_random_below(r, x->now.n / SECTOR + 1) * SECTOR;
    for (size_t at = 0; how && at < x->now.n; at += SECTOR) {
        size_t n = x->now.n - at < SECTOR ? x->now.n - at : SECTOR;
        if (how == 2 ? at < begin : sim_random_below(r, 2))
            write_at(&after, at, x->now.data + at, n);
    }
    __real_free(x->safe.data);
    x->safe = after;
}

static void lose_power(struct sim_disk *d, struct sim_random *r)
{
    size_t kept = sim_random_below(r, d->change_count + 1);
    for (size_t i = 0; i < d->now.count; i++) lose_bytes(d->now.list[i].inode, r);
    for (size_t i = 0; i < kept; i++) apply(&d->safe, d->changes[i].path, d->changes[i].inode);
    d->now = d->safe;
    d->change_count = 0;
    for (size_t i = 0; i < d->now.count; i++)
        copy_bytes(&d->now.list[i].inode->now, &d->now.list[i].inode->safe);
}

void sim_disk_crash(struct sim_disk *d, int power, struct sim_random *r)
{
    if (power) lose_power(d, r);
    for (size_t i = 0; i < OPEN_MAX_FILES; i++)
        if (files[i].disk == d) files[i].disk = NULL;
}

/* --- the C library's functions (ld's --wrap) -------------------------------------------------- */

static struct open_file *file_of(int fd)
{
    return fd >= FD_BASE && fd < FD_BASE + OPEN_MAX_FILES ? &files[fd - FD_BASE] : NULL;
}

static int fail_with(int error)
{
    errno = error;
    return -1;
}

static int is_faulty(const struct sim_disk *d)
{
    return sim_random_happens(&sim_order, d->faults.failure);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
    struct sim_disk *d = disk_of(path);
    struct name *n;
    int mode = 0, i;
    va_list args;
    va_start(args, flags);
    if (flags & O_CREAT) mode = va_arg(args, int);
    va_end(args);
    if (is_folder(path)) return FD_BASE - 1;
    if (!d) return __real_open(path, flags, mode);
    n = find(&d->now, path);
    if (!n && !(flags & O_CREAT)) return fail_with(ENOENT);
    if (!n && d->faults.full) return fail_with(ENOSPC);
    for (i = 0; i < OPEN_MAX_FILES && files[i].disk; i++) continue;
    if (i == OPEN_MAX_FILES) return fail_with(EMFILE);
    if (!n) {
        change(d, path, __real_calloc(1, sizeof(struct inode)));
        n = find(&d->now, path);
    } else if (flags & O_TRUNC) n->inode->now.n = 0, n->inode->is_dropped = 0;
    files[i] = (struct open_file){ d, n->inode, 0 };
    return FD_BASE + i;
}

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
    struct open_file *f = file_of(fd);
    if (fd == FD_BASE - 1) return 0;
    if (!f) return __real_close(fd);
    f->disk = NULL;
    return 0;
}

ssize_t __real_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(int fd, const void *data, size_t n);
ssize_t __wrap_write(int fd, const void *data, size_t n)
{
    struct open_file *f = file_of(fd);
    if (!f) return __real_write(fd, data, n);
    sim_yield(); /* the disk takes its time: others go on, and the power may fail */
    if (f->disk->faults.full) return fail_with(ENOSPC);
    if (is_faulty(f->disk)) return fail_with(EIO);
    if (n > 1 && sim_random_happens(&sim_order, f->disk->faults.short_write))
        n = 1 + sim_random_below(&sim_order, n - 1);
    write_at(&f->inode->now, f->at, data, n);
    f->at += n;
    return (ssize_t)n;
}

static ssize_t read_at(const struct inode *x, void *data, size_t n, size_t at)
{
    if (at >= x->now.n) return 0;
    if (n > x->now.n - at) n = x->now.n - at;
    memcpy(data, x->now.data + at, n);
    return (ssize_t)n;
}

ssize_t __real_read(int fd, void *data, size_t n);
ssize_t __wrap_read(int fd, void *data, size_t n);
ssize_t __wrap_read(int fd, void *data, size_t n)
{
    struct open_file *f = file_of(fd);
    ssize_t got;
    if (!f) return __real_read(fd, data, n);
    got = read_at(f->inode, data, n, f->at);
    f->at += (size_t)got;
    return got;
}

ssize_t __real_pread(int fd, void *data, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *data, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *data, size_t n, off_t at)
{
    struct open_file *f = file_of(fd);
    return f ? read_at(f->inode, data, n, (size_t)at) : __real_pread(fd, data, n, at);
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    struct open_file *f = file_of(fd);
    struct sim_peer *p = sim_peer_here();
    if (!f && fd != FD_BASE - 1) return __real_fsync(fd);
    sim_wait(&p->disk, sim_now() + sim_random_below(&sim_order, 20 * SIM_MS));
    if (sim_random_happens(&sim_order, p->disk->faults.sync_failure)) {
        if (f) f->inode->is_dropped = 1;
        p->disk->faults.sync_failed(p);
        return fail_with(EIO);
    }
    if (!f) sync_names(p->disk);
    else if (!f->inode->is_dropped) copy_bytes(&f->inode->safe, &f->inode->now);
    return 0;
}

static void fill_stat(struct stat *st, mode_t mode, size_t n)
{
    memset(st, 0, sizeof *st);
    st->st_mode = mode;
    st->st_size = (off_t)n;
}

int __real_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st)
{
    struct open_file *f = file_of(fd);
    if (!f) return __real_fstat(fd, st);
    fill_stat(st, S_IFREG | 0644, f->inode->now.n);
    return 0;
}

int __real_stat(const char *path, struct stat *st);
int __wrap_stat(const char *path, struct stat *st);
int __wrap_stat(const char *path, struct stat *st)
{
    struct sim_disk *d = disk_of(path);
    struct name *n;
    if (is_folder(path)) return fill_stat(st, S_IFDIR | 0755, 0), 0;
    if (!d) return __real_stat(path, st);
    if (!(n = find(&d->now, path))) return fail_with(ENOENT);
    fill_stat(st, S_IFREG | 0644, n->inode->now.n);
    return 0;
}

int __real_access(const char *path, int mode);
int __wrap_access(const char *path, int mode);
int __wrap_access(const char *path, int mode)
{
    struct sim_disk *d = disk_of(path);
    if (is_folder(path)) return 0;
    if (!d) return __real_access(path, mode);
    return find(&d->now, path) ? 0 : fail_with(ENOENT);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    struct sim_disk *d = disk_of(from);
    struct inode *inode;
    struct name *n;
    if (!d) return __real_rename(from, to);
    if (!(n = find(&d->now, from))) return fail_with(ENOENT);
    if (is_faulty(d)) return fail_with(EIO);
    inode = n->inode;
    change(d, to, inode);
    change(d, from, NULL);
    return 0;
}

int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path)
{
    struct sim_disk *d = disk_of(path);
    if (!d) return __real_unlink(path);
    if (!find(&d->now, path)) return fail_with(ENOENT);
    change(d, path, NULL);
    return 0;
}

int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode)
{
    return is_folder(path) ? fail_with(EEXIST) : __real_mkdir(path, mode);
}

void *__real_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    struct open_file *f = file_of(fd);
    void *copy;
    if (!f) return __real_mmap(at, n, protection, flags, fd, offset);
    copy = __real_mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copy != MAP_FAILED) read_at(f->inode, copy, n, (size_t)offset);
    return copy;
}

int __real_scandir(const char *path, struct dirent ***out, int (*keep)(const struct dirent *),
                   int (*compare)(const struct dirent **, const struct dirent **));
int __wrap_scandir(const char *path, struct dirent ***out, int (*keep)(const struct dirent *),
                   int (*compare)(const struct dirent **, const struct dirent **));
int __wrap_scandir(const char *path, struct dirent ***out, int (*keep)(const struct dirent *),
                   int (*compare)(const struct dirent **, const struct dirent **))
{
    struct sim_peer *p = sim_peer_here();
    struct dirent **list;
    int n = 0;
    if (!is_folder(path) || !p) return __real_scandir(path, out, keep, compare);
    if (!(list = malloc((p->disk->now.count + 1) * sizeof *list))) return fail_with(ENOMEM);
    for (size_t i = 0; i < p->disk->now.count; i++) {
        struct dirent e = { .d_type = DT_REG };
        snprintf(e.d_name, sizeof e.d_name, "%s", p->disk->now.list[i].path + strlen(DISK_ROOT));
        if (keep && !keep(&e)) continue;
        if (!(list[n] = malloc(sizeof e))) {
            while (n) free(list[--n]);
            free(list);
            return fail_with(ENOMEM);
        }
        *list[n++] = e;
    }
    if (compare) qsort(list, (size_t)n, sizeof *list, (int (*)(const void *, const void *))compare);
    *out = list;
    return n;
}
