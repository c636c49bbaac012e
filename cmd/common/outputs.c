/* outputs.c - a file is written under another name and renamed at the end (data/files/file.h), so a
 * folder that takes the first takes the second. */
#include "outputs.h"
#include "data/files/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int outputs_check_file(const char *path, struct pl_err *err)
{
    struct pl_file_out out;
    int rc = path ? pl_file_create(&out, path, err) : PL_OK;
    if (path && !rc) pl_file_discard(&out);
    return rc;
}

int outputs_check_folder(const char *path, struct pl_err *err)
{
    int rc = pl_folder_make(path, err);
    char *name = rc ? NULL : pl_path_join(path, "writable");
    if (rc) return rc;
    rc = name ? outputs_check_file(name, err) : pl_fail(err, PL_ENOMEM, "no memory");
    free(name);
    return rc;
}

const char *outputs_shell_word(char *text, size_t size, const char *name)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_./-+,:@%";
    size_t n = 0;
    if (*name && !name[strspn(name, plain)]) {
        snprintf(text, size, "%s", name);
        return text;
    }
    /* Within single quotes all stands for itself but a single quote: '\'' ends, adds, begins. */
    text[n++] = '\'';
    for (; *name && n + 6 < size; name++) {
        if (*name == '\'') memcpy(text + n, "'\\'", 3), n += 3;
        text[n++] = *name;
    }
    text[n++] = '\'';
    text[n] = 0;
    return text;
}
