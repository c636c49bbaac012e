/* backend_open.c - a backend is a shared library with one symbol, pl_backend_v1, which overwrites
 * the reference's table. */
#include "backend_open.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Environment variables that a backend's libraries read once, while they are loaded. */
static void prepare_environment(void)
{
    /* Exported by some environments, these turn OpenBLAS' best kernels off (paper/speed.md), and
     * no user of a peer means that. */
    unsetenv("OPENBLAS_CORETYPE");
    unsetenv("OPENBLAS_L2_SIZE");
    /* OpenMP's threads spin while they wait, by default without end: on cores shared with other
     * programs a step then takes several times as long. A short spin keeps the gain. */
    if (!getenv("OMP_WAIT_POLICY")) setenv("GOMP_SPINCOUNT", "5000", 0);
}

static void program_folder(char *folder, size_t size)
{
    ssize_t n = readlink("/proc/self/exe", folder, size - 1);
    char *slash;
    folder[n > 0 ? n : 0] = 0;
    slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    else snprintf(folder, size, ".");
}

static const char own_name[] = "libpotluck"; /* dladdr finds the library that contains this */

/* The folder of libpotluck.so if another program loaded it, otherwise of the program. */
static void own_folder(char *folder, size_t size)
{
    Dl_info info;
    char *slash;
    folder[0] = 0;
    if (!dladdr(own_name, &info) || !info.dli_fname) return;
    snprintf(folder, size, "%s", info.dli_fname);
    slash = strrchr(folder, '/');
    if (slash) *slash = 0;
    else folder[0] = 0;
}

/* Tries one file; the reason for a failure goes to `why`. */
static int open_library(struct pl_backend *be, const char *path, char *why, size_t why_size)
{
    void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    pl_backend_v1_fn *fill;
    int rc;
    if (!lib) {
        const char *message = dlerror();
        size_t n = strlen(path);
        if (!strchr(path, '/') && !strncmp(message, path, n) && strstr(message, "No such file"))
            snprintf(why, why_size, "not built");
        else snprintf(why, why_size, "%s", message);
        return PL_ENOTFOUND;
    }
    *(void **)&fill = dlsym(lib, "pl_backend_v1");
    if (!fill) {
        snprintf(why, why_size, "%s: not a backend: it has no symbol pl_backend_v1", path);
        dlclose(lib);
        return PL_EFORMAT;
    }
    pl_backend_ref(be);
    be->many_threads = 0; /* a plug-in sets it itself */
    rc = fill(be);
    if (rc != PL_OK) {
        snprintf(why, why_size, "%s", be->note[0] ? be->note : pl_status_name(rc));
        return rc; /* lib stays loaded: it may have begun threads, or streams on a device */
    }
    return PL_OK; /* the table points into lib, which stays loaded */
}

/* path: the file below a folder, which may have no name. */
static int is_there(char *path, size_t size, const char *folder, const char *below,
                    const char *file)
{
    snprintf(path, size, "%s%s/%s", folder, below, file);
    return folder[0] && access(path, R_OK) == 0;
}

static int open_name(struct pl_backend *be, const char *name, char *why, size_t why_size)
{
    const char *named = getenv("PL_BACKEND_DIR");
    char folder[PATH_MAX], path[PATH_MAX + 80], file[64];
    prepare_environment();
    if (strlen(name) > 32) {
        snprintf(why, why_size, "a backend's name has at most 32 characters");
        return PL_EUSE;
    }
    snprintf(file, sizeof file, "libpl_%s.so", name);
    for (char *c = file; *c; c++)
        if (*c == '-') *c = '_';
    if (named && *named) {
        if (strlen(named) >= PATH_MAX) {
            snprintf(why, why_size, "PL_BACKEND_DIR: a path of more than %d bytes", PATH_MAX);
            return PL_EUSE;
        }
        snprintf(path, sizeof path, "%s/%s", named, file);
        return open_library(be, path, why, why_size);
    }
    program_folder(folder, sizeof folder);
    if (!is_there(path, sizeof path, folder, "", file) &&
        !is_there(path, sizeof path, folder, "/../lib/potluck", file)) { /* make install */
        own_folder(folder, sizeof folder);
        if (!is_there(path, sizeof path, folder, "", file) &&
            !is_there(path, sizeof path, folder, "/potluck", file) &&  /* make install */
            !is_there(path, sizeof path, folder, "/../potluck", file)) /* LIBDIR = lib/MACHINE */
            snprintf(path, sizeof path, "%s", file);
    }
    return open_library(be, path, why, why_size);
}

int pl_backend_open(struct pl_backend *be, const char *name, struct pl_err *err)
{
    static const char *const better[] = { "cuda", "fast" };
    char why[512] = "", reasons[1100] = "";
    int rc;
    if (!strcmp(name, "ref")) {
        pl_backend_ref(be);
        return PL_OK;
    }
    if (strchr(name, '/')) {
        prepare_environment();
        rc = open_library(be, name, why, sizeof why);
        return rc ? pl_fail(err, rc, "backend %.200s: %.300s", name, why) : PL_OK;
    }
    if (strcmp(name, "auto")) {
        rc = open_name(be, name, why, sizeof why);
        return rc ? pl_fail(err, rc, "backend %.40s: %.300s", name, why) : PL_OK;
    }
    for (size_t i = 0; i < PL_COUNT(better); i++) {
        char note[sizeof be->note];
        size_t used = strlen(reasons);
        rc = open_name(be, better[i], why, sizeof why);
        if (rc == PL_OK) {
            snprintf(note, sizeof note, "%.120s%.130s", be->note, reasons);
            memcpy(be->note, note, sizeof note);
            return PL_OK;
        }
        snprintf(reasons + used, sizeof reasons - used, "; no %s (%.*s)", better[i],
                 (int)strcspn(why, "\n"), why);
    }
    pl_backend_ref(be);
    {
        size_t used = strlen(be->note);
        snprintf(be->note + used, sizeof be->note - used, "%.190s", reasons);
    }
    return PL_OK;
}
