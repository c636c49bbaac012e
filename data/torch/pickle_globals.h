/* pickle_globals.h - the global names that a pickle may contain. */
#ifndef PL_PICKLE_GLOBALS_H
#define PL_PICKLE_GLOBALS_H

#include <stddef.h>

/* 1 if "module name" is known from checkpoints: accepted as data, never called. */
int pl_pickle_global_known(const char *global, size_t bytes);

#endif
