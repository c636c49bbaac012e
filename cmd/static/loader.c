/* loader.c - dlopen in a program that has no shared libraries. The fast backend is linked in and
 * answers to its file's name; everything else that is loaded at run time elsewhere (other backends,
 * libcurl, libmicrohttpd, Cairo) is missing here, and its callers report that in a sentence.
 *
 * glibc has a dlopen for static programs, too, but it needs the very glibc that the program was
 * linked with, and such a program is made for machines that have another one, or none. */
#include "runtime/backend_open.h"

#include <dlfcn.h>
#include <string.h>

extern pl_backend_v1_fn pl_backend_v1; /* fast/backend.c */

static char fast; /* its address is the handle */
static const char *error;

void *dlopen(const char *file, int mode)
{
    if (file && !strcmp(file, "libpl_fast.so")) return &fast;
    error = "not in the static program";
    return NULL;
}

void *dlsym(void *restrict handle, const char *restrict name)
{
    pl_backend_v1_fn *fill = pl_backend_v1;
    void *address = NULL;
    if (handle == &fast && !strcmp(name, "pl_backend_v1")) memcpy(&address, &fill, sizeof address);
    else error = "not in the static program";
    return address;
}

char *dlerror(void)
{
    const char *now = error;
    error = NULL;
    return (char *)(uintptr_t)now; /* as POSIX declares it; never written */
}

int dlclose(void *handle) { return 0; }

/* 0: no shared object holds that address. */
int dladdr(const void *address, Dl_info *info) { return 0; }
