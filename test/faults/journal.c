/* journal.c - a preloaded library that writes down what a program does to the files of a folder.
 *
 *   JOURNAL       the file to write to
 *   JOURNAL_ROOT  the folder, as an absolute path without symbolic links
 *
 * An entry is a line "OP INODE OFFSET BYTES PATH PATH2", followed by BYTES bytes of data:
 *
 *   create  a file was created or truncated under PATH    rename  PATH became PATH2
 *   write   data at OFFSET                                remove  PATH was removed
 *   whole   the data is all that a stdio stream's         folder  PATH was made
 *           file holds now                                sync    of a file, or of the folder PATH
 *   size    of the file became OFFSET
 *
 * Writes of stdio are made inside libc, so a stream's file is read when it is flushed or closed. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int journal = -1;
static char root[PATH_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("JOURNAL"), *folder = getenv("JOURNAL_ROOT");
    if (!path || !folder) return;
    snprintf(root, sizeof root, "%s/", folder);
    journal = REAL(open)(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
}

/* The path below the root; NULL: somewhere else. */
static const char *below(const char *path)
{
    size_t n = strlen(root);
    if (journal < 0) return NULL;
    if (!strncmp(path, root, n)) return path + n;
    return strlen(path) == n - 1 && !strncmp(path, root, n - 1) ? "." : NULL;
}

static void note(const char *op, unsigned long inode, long long at, const void *data, size_t bytes,
                 const char *path, const char *other)
{
    char line[2 * PATH_MAX + 100];
    int n = snprintf(line, sizeof line, "%s %lu %lld %zu %s %s\n", op, inode, at, bytes, path,
                     other);
    pthread_mutex_lock(&lock);
    if (REAL(write)(journal, line, (size_t)n) != n ||
        (bytes && REAL(write)(journal, data, bytes) != (ssize_t)bytes))
        abort();
    pthread_mutex_unlock(&lock);
}

/* The descriptor's file below the root, and its inode; NULL: none. */
static const char *file_of(int fd, unsigned long *inode, char path[PATH_MAX])
{
    char link[40];
    struct stat st;
    ssize_t n;
    if (journal < 0 || fstat(fd, &st) || (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)))
        return NULL;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, PATH_MAX - 1);
    path[n < 0 ? 0 : n] = 0;
    *inode = (unsigned long)st.st_ino;
    return below(path);
}

static void note_fd(const char *op, int fd, long long at, const void *data, size_t bytes)
{
    int before = errno;
    unsigned long inode;
    char path[PATH_MAX];
    const char *name = file_of(fd, &inode, path);
    if (name) note(op, inode, at, data, bytes, name, "-");
    errno = before;
}

static int opened(int fd, int is_new)
{
    if (fd >= 0 && is_new) note_fd("create", fd, 0, NULL, 0);
    return fd;
}

#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        int is_new = (flags & O_TRUNC) || ((flags & O_CREAT) && access(path, F_OK)); \
        mode_t mode = 0; \
        va_list list; \
        va_start(list, flags); \
        if (flags & O_CREAT) mode = (mode_t)va_arg(list, unsigned); \
        va_end(list); \
        return opened(REAL(name)(path, flags, mode), is_new); \
    }
OPEN(open)
OPEN(open64)
int mkstemp(char *path) { return opened(REAL(mkstemp)(path), 1); }
int mkostemp(char *path, int flags) { return opened(REAL(mkostemp)(path, flags), 1); }

#define FOPEN(name) \
    FILE *name(const char *path, const char *mode) \
    { \
        int is_new = *mode == 'w' || (*mode == 'a' && access(path, F_OK)); \
        FILE *f = REAL(name)(path, mode); \
        if (f) opened(fileno(f), is_new); \
        return f; \
    }
FOPEN(fopen)
FOPEN(fopen64)

static ssize_t written(int fd, const void *data, ssize_t n)
{
    if (n > 0) note_fd("write", fd, (long long)lseek(fd, 0, SEEK_CUR) - n, data, (size_t)n);
    return n;
}
ssize_t write(int fd, const void *data, size_t n)
{
    return written(fd, data, REAL(write)(fd, data, n));
}
#define PWRITE(name, type) \
    ssize_t name(int fd, const void *data, size_t n, type at) \
    { \
        ssize_t done = REAL(name)(fd, data, n, at); \
        if (done > 0) note_fd("write", fd, at, data, (size_t)done); \
        return done; \
    }
PWRITE(pwrite, off_t)
PWRITE(pwrite64, off64_t)

#define ON_FD(name, op, at, parameters, arguments) \
    int name parameters \
    { \
        int rc = REAL(name) arguments; \
        if (!rc) note_fd(op, fd, at, NULL, 0); \
        return rc; \
    }
ON_FD(ftruncate, "size", n, (int fd, off_t n), (fd, n))
ON_FD(ftruncate64, "size", n, (int fd, off64_t n), (fd, n))
ON_FD(fsync, "sync", 0, (int fd), (fd))
ON_FD(fdatasync, "sync", 0, (int fd), (fd))

static void flushed(FILE *f)
{
    unsigned long inode;
    char path[PATH_MAX];
    const char *name = file_of(fileno(f), &inode, path);
    struct stat st;
    char *data;
    int fd;
    if (!name || fstat(fileno(f), &st) || !(data = malloc((size_t)st.st_size + 1))) return;
    if ((fd = REAL(open)(path, O_RDONLY | O_CLOEXEC)) >= 0) {
        ssize_t n = read(fd, data, (size_t)st.st_size);
        if (n >= 0) note("whole", inode, 0, data, (size_t)n, name, "-");
        close(fd);
    }
    free(data);
}
int fflush(FILE *f)
{
    int rc = REAL(fflush)(f);
    if (f && !rc) flushed(f);
    return rc;
}
int fclose(FILE *f)
{
    if (!(fcntl(fileno(f), F_GETFL) & (O_WRONLY | O_RDWR))) return REAL(fclose)(f);
    fflush(f);
    return REAL(fclose)(f);
}

int rename(const char *from, const char *to)
{
    int rc = REAL(rename)(from, to);
    if (!rc && below(from) && below(to)) note("rename", 0, 0, NULL, 0, below(from), below(to));
    return rc;
}
int unlink(const char *path)
{
    int rc = REAL(unlink)(path);
    if (!rc && below(path)) note("remove", 0, 0, NULL, 0, below(path), "-");
    return rc;
}
int mkdir(const char *path, mode_t mode)
{
    int rc = REAL(mkdir)(path, mode);
    if (!rc && below(path)) note("folder", 0, 0, NULL, 0, below(path), "-");
    return rc;
}
