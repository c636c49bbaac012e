/* pickle_globals.h - the names that a pickle may mention. */
#ifndef PL_PICKLE_GLOBALS_H
#define PL_PICKLE_GLOBALS_H

#include <stddef.h>

/* "module name" -> 1 if checkpoints are known to hold it: as data, never to be called. */
int pl_pickle_global_known(const char *global, size_t bytes);

#endif
