/* backend_open.h - finds and loads backends. */
#ifndef PL_BACKEND_OPEN_H
#define PL_BACKEND_OPEN_H

#include "../ref/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens "ref", "fast", "cuda", "auto" or a path to a shared library (a name with a slash in it).
 * A name N means libpl_N.so (with _ for -) in the folder of the running program or of
 * libpotluck.so, in $PL_BACKEND_DIR, or where the system looks. `auto` takes the first of cuda,
 * fast, ref that this machine has; be->note says which and why. The library stays loaded until
 * the program ends. */
int pl_backend_open(struct pl_backend *be, const char *name, struct pl_err *err);

#ifdef __cplusplus
}
#endif
#endif
