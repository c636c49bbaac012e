/* mapping.h - a whole file as memory, read only: pages come in when they are looked at. */
#ifndef PL_MAPPING_H
#define PL_MAPPING_H

#include "ref/base.h"

struct pl_mapping {
    const uint8_t *at; /* never NULL while open, also for an empty file */
    size_t bytes;
};

/* err names the file. After an error *m is all zero and need not be closed. A file that another
 * program cuts while it is mapped kills us with SIGBUS, as it does every reader of mapped files:
 * potluck itself never writes in place. */
int pl_mapping_open(struct pl_mapping *m, const char *path, struct pl_err *err);
/* The whole pages of a part that was read: no longer memory of this process, and read again if
 * somebody looks. What does not lie in the file is left alone. */
void pl_mapping_let_go(const struct pl_mapping *m, const void *from, size_t bytes);
void pl_mapping_close(struct pl_mapping *m); /* all zero is harmless */

#endif
