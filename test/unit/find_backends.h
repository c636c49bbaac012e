/* find_backends.h - for units that open a backend by its name. */
#ifndef TEST_UNIT_FIND_BACKENDS_H
#define TEST_UNIT_FIND_BACKENDS_H

#include <stdlib.h>
#include <unistd.h>

/* Backends are in the program's folder, one above the tests. */
static inline void find_backends(void)
{
    char folder[4096];
    ssize_t n = readlink("/proc/self/exe", folder, sizeof folder - 1);
    for (int slashes = 0; n > 0 && slashes < 2; n--) slashes += folder[n - 1] == '/';
    folder[n > 0 ? n : 0] = 0;
    setenv("PL_BACKEND_DIR", folder, 0);
}

#endif
