/* inject.c - a preloaded library that makes one allocation or one file operation of a program fail.
 *
 *   FAULT_KIND    memory: malloc, calloc, realloc and their kin return NULL
 *                 file:   opens, reads, writes, syncs, renames, maps and their kin fail with EIO
 *                 full:   writes and reservations fail with ENOSPC, a write after it took half
 *   FAULT_AT      number of the call that fails, from 1; 0: none
 *   FAULT_PLACE   instead: a hash of a call's stack, in hexadecimal digits; the first such call fails.
 *                 Of a program whose threads take turns as they like, numbers name nothing twice
 *   FAULT_LASTS   1: every later call of the kind fails, too
 *   FAULT_TRACE   1: the stack of the first call that fails, and of a crash, on standard error
 *   FAULT_REPORT  file of struct report, mapped, so that it is whole even if the program crashes
 *
 * Calls are counted from main() on. Calls by the libraries of `libraries_left_out` neither count nor fail. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Libraries that end the process themselves when memory is refused (libuv, GMP), crash (libtasn1;
 * OpenSSL 3.0, as its random generator begins) or lose what they have (GnuTLS): no caller could do
 * better. */
static const char *const libraries_left_out[] = {
    "ld-linux", "libgomp",   "libopenblas", "libgfortran", "libgcc_s",  "libasan", "libcu",
    "libnv",    "libcrypto", "libuv",       "libgmp",      "libgnutls", "libtasn1"
};

#define CALLS_MAX (1u << 20) /* stacks that are noted; a tiny training makes a tenth of that */
#define FRAMES 12            /* of a stack: enough to tell one caller's caller from another */
#define MODULES_MAX 1024     /* a library has four parts; a program has some eighty libraries */

struct report {
    _Atomic uint64_t calls, failed;
    char what[32];             /* the function that failed first */
    uint64_t stack[CALLS_MAX]; /* a hash of each call's stack; only if no call fails */
};

static enum { NOTHING, MEMORY, FILES, FULL } kind;
static uint64_t fault_at, fault_place;
static _Atomic int begun; /* a call has failed */
static int lasts, traces;
static struct report *report;
static _Thread_local int busy; /* inside this library: its own calls do not count */

/* --- which caller ---------------------------------------------------------------------------- */

/* The parts of the program and of its libraries that are mapped. Only appended to. */
static struct module {
    uintptr_t from, to, base;
    int excluded;
} modules[MODULES_MAX];
static _Atomic size_t module_count;
static pthread_mutex_t modules_lock = PTHREAD_MUTEX_INITIALIZER;

static const struct module *module_of(uintptr_t at)
{
    size_t n = module_count;
    for (size_t i = 0; i < n; i++)
        if (at >= modules[i].from && at < modules[i].to) return &modules[i];
    return NULL;
}

static int note_module(struct dl_phdr_info *info, size_t size, void *context)
{
    int excluded = 0;
    (void)size, (void)context;
    for (size_t n = 0; n < sizeof libraries_left_out / sizeof *libraries_left_out; n++)
        excluded |= strstr(info->dlpi_name, libraries_left_out[n]) != NULL;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        uintptr_t from = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        size_t n = module_count;
        if (info->dlpi_phdr[i].p_type != PT_LOAD || module_of(from) || n == MODULES_MAX) continue;
        modules[n] = (struct module){ from, from + info->dlpi_phdr[i].p_memsz, info->dlpi_addr,
                                      excluded };
        module_count = n + 1;
    }
    return 0;
}

/* NULL: in none. */
static const struct module *find_module(void *address)
{
    const struct module *m = module_of((uintptr_t)address);
    if (m) return m;
    pthread_mutex_lock(&modules_lock);
    dl_iterate_phdr(note_module, NULL);
    pthread_mutex_unlock(&modules_lock);
    return module_of((uintptr_t)address);
}

static int is_excluded(void *caller)
{
    const struct module *m = find_module(caller);
    return m && m->excluded;
}

/* The same in every run: addresses count from where their library was loaded. */
static uint64_t stack_hash(void)
{
    void *frame[FRAMES + 3];
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    int n = backtrace(frame, FRAMES + 3);
    for (int i = 2; i < n; i++) {
        const struct module *m = find_module(frame[i]);
        h = (h ^ ((uintptr_t)frame[i] - (m ? m->base : 0))) * 1099511628211u;
    }
    return h;
}

static void print_stack(void)
{
    void *frame[40];
    backtrace_symbols_fd(frame, backtrace(frame, 40), STDERR_FILENO);
}

static void crashed(int number)
{
    print_stack();
    signal(number, SIG_DFL);
    raise(number);
}

/* Counts a call; 1: it has to fail. */
static int fails(const char *what, void *caller)
{
    uint64_t n;
    int failing;
    if (!report || busy) return 0;
    busy = 1;
    failing = 0;
    if (!is_excluded(caller)) {
        n = atomic_fetch_add(&report->calls, 1) + 1;
        if (begun) failing = lasts;
        else if (fault_at) failing = n == fault_at;
        else if (fault_place) failing = stack_hash() == fault_place;
        else if (n <= CALLS_MAX) report->stack[n - 1] = stack_hash();
        if (failing) begun = 1;
        if (failing && !atomic_fetch_add(&report->failed, 1)) {
            strncpy(report->what, what, sizeof report->what - 1);
            if (traces) print_stack();
        }
    }
    busy = 0;
    return failing;
}
#define CALLER __builtin_return_address(0)

/* --- memory ---------------------------------------------------------------------------------- */

void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *p, size_t n);
void *__libc_memalign(size_t a, size_t n);

/* LeakSanitizer's, where its library is preloaded behind this one. */
void *__interceptor_malloc(size_t n) __attribute__((weak));
void *__interceptor_calloc(size_t n, size_t size) __attribute__((weak));
void *__interceptor_realloc(void *p, size_t n) __attribute__((weak));
void *__interceptor_memalign(size_t a, size_t n) __attribute__((weak));

static void *get(size_t n)
{
    return (__interceptor_malloc ? __interceptor_malloc : __libc_malloc)(n);
}
static void *get_zeros(size_t n, size_t size)
{
    return (__interceptor_calloc ? __interceptor_calloc : __libc_calloc)(n, size);
}
static void *resize(void *p, size_t n)
{
    return (__interceptor_realloc ? __interceptor_realloc : __libc_realloc)(p, n);
}
static void *get_aligned(size_t a, size_t n)
{
    return (__interceptor_memalign ? __interceptor_memalign : __libc_memalign)(a, n);
}

static int no_memory(const char *what, void *caller)
{
    if (kind != MEMORY || !fails(what, caller)) return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t n) { return no_memory("malloc", CALLER) ? NULL : get(n); }
void *calloc(size_t n, size_t size)
{
    return no_memory("calloc", CALLER) ? NULL : get_zeros(n, size);
}
void *realloc(void *p, size_t n) { return no_memory("realloc", CALLER) ? NULL : resize(p, n); }
void *aligned_alloc(size_t a, size_t n)
{
    return no_memory("aligned_alloc", CALLER) ? NULL : get_aligned(a, n);
}
int posix_memalign(void **p, size_t a, size_t n)
{
    if (no_memory("posix_memalign", CALLER)) return ENOMEM;
    return (*p = get_aligned(a, n)) ? 0 : ENOMEM;
}

/* --- files ----------------------------------------------------------------------------------- */

/* The next definition of the same name: libc's. */
#define REAL(name) ((__typeof__(&name))real(#name))
static void *real(const char *name)
{
    int before = busy;
    void *f;
    busy = 1;
    f = dlsym(RTLD_NEXT, name);
    busy = before;
    return f;
}

static int refused(const char *what, void *caller)
{
    if (kind != FILES || !fails(what, caller)) return 0;
    /* A disk that refuses for good would let nobody clean up: that is no fault of the program. */
    if (lasts && report->failed > 1 && (!strcmp(what, "unlink") || !strcmp(what, "close")))
        return 0;
    errno = EIO;
    return 1;
}
static int no_space(const char *what, void *caller)
{
    if (kind != FULL || !fails(what, caller)) return 0;
    errno = ENOSPC;
    return 1;
}
static int is_file(int fd)
{
    struct stat st;
    int before = errno, good = !REAL(fstat)(fd, &st) && S_ISREG(st.st_mode);
    errno = before;
    return good;
}
static int is_file_stream(FILE *f) { return f && is_file(fileno(f)); }

static mode_t mode_of(int flags, va_list list)
{
    return flags & (O_CREAT | O_TMPFILE) ? (mode_t)va_arg(list, unsigned) : 0;
}
#define OPEN(name) \
    int name(const char *path, int flags, ...) \
    { \
        va_list list; \
        mode_t mode; \
        va_start(list, flags); \
        mode = mode_of(flags, list); \
        va_end(list); \
        if (refused(#name, CALLER)) return -1; \
        return REAL(name)(path, flags, mode); \
    }
OPEN(open)
OPEN(open64)

/* Functions that fail as they are, before they did anything. */
#define FAILING(type, failure, name, parameters, arguments) \
    type name parameters { return refused(#name, CALLER) ? failure : REAL(name) arguments; }
FAILING(FILE *, NULL, fopen, (const char *path, const char *mode), (path, mode))
FAILING(FILE *, NULL, fopen64, (const char *path, const char *mode), (path, mode))
FAILING(FILE *, NULL, fdopen, (int fd, const char *mode), (fd, mode))
FAILING(int, -1, mkstemp, (char *path), (path))
FAILING(int, -1, mkostemp, (char *path, int flags), (path, flags))
FAILING(int, -1, fsync, (int fd), (fd))
FAILING(int, -1, fdatasync, (int fd), (fd))
FAILING(int, -1, ftruncate, (int fd, off_t bytes), (fd, bytes))
FAILING(int, -1, ftruncate64, (int fd, off64_t bytes), (fd, bytes))
FAILING(int, -1, rename, (const char *from, const char *to), (from, to))
FAILING(int, -1, unlink, (const char *path), (path))
FAILING(int, -1, mkdir, (const char *path, mode_t mode), (path, mode))
FAILING(int, -1, stat, (const char *path, struct stat *st), (path, st))
FAILING(int, -1, lstat, (const char *path, struct stat *st), (path, st))
FAILING(int, -1, fstat, (int fd, struct stat *st), (fd, st))
FAILING(int, -1, access, (const char *path, int mode), (path, mode))
FAILING(DIR *, NULL, opendir, (const char *path), (path))
FAILING(struct dirent *, NULL, readdir, (DIR * d), (d))
FAILING(int, -1, scandir,
        (const char *path, struct dirent ***list, int (*filter)(const struct dirent *),
         int (*order)(const struct dirent **, const struct dirent **)),
        (path, list, filter, order))

/* The descriptor is gone, even if close() fails. */
int close(int fd)
{
    int failing = kind == FILES && is_file(fd) && refused("close", CALLER);
    int rc = REAL(close)(fd);
    if (!failing) return rc;
    errno = EIO;
    return -1;
}
int fclose(FILE *f)
{
    int failing = kind == FILES && is_file_stream(f) && refused("fclose", CALLER);
    int rc = REAL(fclose)(f);
    if (!failing) return rc;
    errno = EIO;
    return EOF;
}
int fflush(FILE *f)
{
    if (is_file_stream(f) && (refused("fflush", CALLER) || no_space("fflush", CALLER))) return EOF;
    return REAL(fflush)(f);
}
size_t fwrite(const void *from, size_t size, size_t n, FILE *f)
{
    if (is_file_stream(f) && (refused("fwrite", CALLER) || no_space("fwrite", CALLER))) return 0;
    return REAL(fwrite)(from, size, n, f);
}
size_t fread(void *to, size_t size, size_t n, FILE *f)
{
    if (is_file_stream(f) && refused("fread", CALLER)) return 0;
    return REAL(fread)(to, size, n, f);
}
ssize_t read(int fd, void *to, size_t bytes)
{
    if (kind == FILES && is_file(fd) && refused("read", CALLER)) return -1;
    return REAL(read)(fd, to, bytes);
}
ssize_t pread(int fd, void *to, size_t bytes, off_t at)
{
    if (kind == FILES && is_file(fd) && refused("pread", CALLER)) return -1;
    return REAL(pread)(fd, to, bytes, at);
}
ssize_t pread64(int fd, void *to, size_t bytes, off64_t at)
{
    if (kind == FILES && is_file(fd) && refused("pread64", CALLER)) return -1;
    return REAL(pread64)(fd, to, bytes, at);
}
/* A disk that fills up takes what fits and refuses the rest. */
ssize_t write(int fd, const void *from, size_t bytes)
{
    if (kind == FILES && is_file(fd) && refused("write", CALLER)) return -1;
    if (kind == FULL && is_file(fd) && no_space("write", CALLER)) {
        if (bytes < 2 || report->failed > 1) return -1;
        return REAL(write)(fd, from, bytes / 2);
    }
    return REAL(write)(fd, from, bytes);
}
ssize_t pwrite64(int fd, const void *from, size_t bytes, off64_t at)
{
    if (is_file(fd) && (refused("pwrite64", CALLER) || no_space("pwrite64", CALLER))) return -1;
    return REAL(pwrite64)(fd, from, bytes, at);
}
int posix_fallocate(int fd, off_t at, off_t bytes)
{
    if (refused("posix_fallocate", CALLER)) return EIO;
    if (no_space("posix_fallocate", CALLER)) return ENOSPC;
    return REAL(posix_fallocate)(fd, at, bytes);
}
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (fd >= 0 && refused("mmap", CALLER)) return MAP_FAILED;
    if (fd < 0 && no_memory("mmap", CALLER)) return MAP_FAILED;
    return REAL(mmap)(at, bytes, protection, flags, fd, offset);
}

/* --- from main() on -------------------------------------------------------------------------- */

static void begin(void)
{
    const char *name = getenv("FAULT_KIND"), *at = getenv("FAULT_AT"), *all = getenv("FAULT_LASTS"),
               *place = getenv("FAULT_PLACE"), *path = getenv("FAULT_REPORT");
    void *frame[4];
    struct report *r;
    int fd = path ? REAL(open)(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644) : -1;
    if (fd < 0 || !name || REAL(ftruncate)(fd, sizeof *r)) return;
    r = REAL(mmap)(NULL, sizeof *r, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    REAL(close)(fd);
    if (r == MAP_FAILED) return;
    backtrace(frame, 4); /* the first one loads libgcc */
    kind = !strcmp(name, "memory") ? MEMORY : !strcmp(name, "file") ? FILES : FULL;
    fault_at = at ? strtoull(at, NULL, 10) : 0;
    fault_place = place ? strtoull(place, NULL, 16) : 0;
    if ((traces = getenv("FAULT_TRACE") != NULL)) {
        signal(SIGABRT, crashed);
        signal(SIGSEGV, crashed);
    }
    lasts = all && *all == '1';
    report = r;
}

static int (*program)(int, char **, char **);
static int run(int argc, char **argv, char **env)
{
    begin();
    return program(argc, argv, env);
}

typedef int start_fn(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
                     void (*fini)(void), void (*rtld_fini)(void), void *stack_end);
start_fn __libc_start_main;
int __libc_start_main(int (*main)(int, char **, char **), int argc, char **argv, void (*init)(void),
                      void (*fini)(void), void (*rtld_fini)(void), void *stack_end)
{
    program = main;
    return ((start_fn *)real("__libc_start_main"))(run, argc, argv, init, fini, rtld_fini,
                                                   stack_end);
}
