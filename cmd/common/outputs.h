/* outputs.h - checks whether results can be written, before the work, which may take hours. */
#ifndef PL_CMD_OUTPUTS_H
#define PL_CMD_OUTPUTS_H

#include "ref/base.h"

/* Creates and removes an empty file next to `path`, as writing to it will begin. NULL: no
 * output. */
int outputs_check_file(const char *path, struct pl_err *err);
/* Makes the folder if it is missing, and tries a file in it. */
int outputs_check_folder(const char *path, struct pl_err *err);

/* A file's name as a word of the shell: quoted where it has to be. text holds `size` bytes; a
 * longer name is cut. */
const char *outputs_shell_word(char *text, size_t size, const char *name);

#endif
