/* outputs.h - checks whether results can be written, before the work, which may take hours. */
#ifndef PL_CMD_OUTPUTS_H
#define PL_CMD_OUTPUTS_H

#include "ref/base.h"

/* Writes a block to a file next to `path`, as writing to it will begin, and removes the file. NULL:
 * no output. */
int outputs_check_file(const char *path, struct pl_err *err);
/* The same in a folder or, while it is missing, in the nearest one above, where it will be made. */
int outputs_check_folder(const char *path, struct pl_err *err);
/* The same, and makes the folder. Its files belong together: until this process ends, no other one
 * can take it. PL_EIO: another process has taken it. */
int outputs_take_folder(const char *path, struct pl_err *err);

/* A file's name as a word of the shell: quoted where it has to be. text holds `size` bytes; a
 * longer name is cut. */
const char *outputs_shell_word(char *text, size_t size, const char *name);

#endif
