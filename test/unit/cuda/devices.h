/* devices.h - loads the emulated devices' library, and the host's reference to compare with.
 * Included by one file of each program. */
#ifndef PL_TEST_DEVICES_H
#define PL_TEST_DEVICES_H

#include "ref/backend.h"
#include "ref/rng.h"
#include "runtime/backend_open.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct pl_backend be, host;
static void (*set_streams)(long when); /* NULL: no such library, and tests are skipped */

/* This many emulated devices. */
static inline int open_device_count(const char *count)
{
    char path[PATH_MAX + 64] = "";
    ssize_t n = readlink("/proc/self/exe", path, PATH_MAX);
    char *slash;
    void *lib;
    path[n > 0 ? n : 0] = 0;
    slash = strrchr(path, '/');
    if (!slash) return -1;
    strcpy(slash, "/../libpl_cuda_on_cpu.so");
    pl_backend_ref(&host);
    if (access(path, R_OK)) return 0; /* each test reports that it is skipped */
    setenv("CUDA_ON_CPU_DEVICES", count, 1);
    if (pl_backend_open(&be, path, NULL)) return -1;
    lib = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    *(void **)&set_streams = lib ? dlsym(lib, "cuda_on_cpu_streams") : NULL;
    return set_streams ? 0 : -1;
}
static inline int open_device(void **state) { return (void)state, open_device_count("1"); }
static inline int open_devices(void **state) { return (void)state, open_device_count("3"); }

static inline void normal(float *x, size_t n, uint64_t seed)
{
    struct pl_rng rng;
    pl_rng_init(&rng, seed, 0);
    for (size_t i = 0; i < n; i++) x[i] = (float)(0.1 * pl_rng_normal(&rng));
}

#endif
