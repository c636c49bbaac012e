/* outputs.c - a file is written under another name and renamed at the end (data/files/file.h), so a
 * folder that takes the one takes the other. */
#include "outputs.h"
#include "data/files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* On a full disk a file can be created, and nothing be written to it. */
int outputs_check_file(const char *path, struct pl_err *err)
{
    static const char block[4096];
    struct pl_file_out out;
    int rc = path ? pl_file_create(&out, path, err) : PL_OK;
    if (!path || rc) return rc;
    rc = pl_file_append(&out, block, sizeof block, err);
    pl_file_discard(&out);
    return rc;
}

/* A folder that will be made needs a place in the nearest one above that exists. */
static void nearest_folder(char *path)
{
    char *slash;
    while (access(path, F_OK) && (slash = strrchr(path, '/')) && slash > path) *slash = 0;
    if (access(path, F_OK)) strcpy(path, *path == '/' ? "/" : ".");
}

int outputs_check_folder(const char *path, struct pl_err *err)
{
    char *at = strdup(path), *name = NULL;
    struct pl_err why = { ": no memory" };
    struct stat st;
    int rc = PL_ENOMEM, is_there = 0;
    if (at) nearest_folder(at);
    if (at && (name = pl_path_join(at, "writable"))) {
        is_there = !strcmp(at, path);
        if (!stat(at, &st) && !S_ISDIR(st.st_mode))
            rc = pl_fail(&why, PL_EIO, "%s: not a folder", at);
        else rc = outputs_check_file(name, &why);
    }
    /* The last part of the sentence is the reason; that file's name means nothing to the user. */
    if (rc)
        pl_fail(err, rc, "%s: cannot %s%s", path,
                is_there ? "write in this folder" : "make this folder", strrchr(why.text, ':'));
    free(name);
    free(at);
    return rc;
}

/* The lock is on the folder itself, not on a file in it. It is never closed: it ends with this
 * process, however that ends. */
int outputs_take_folder(const char *path, struct pl_err *err)
{
    int rc = outputs_check_folder(path, err), fd;
    if (!rc) rc = pl_folder_make(path, err);
    if (rc) return rc;
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* A file system without such locks is no reason not to write. */
    if (fd < 0 || !flock(fd, LOCK_EX | LOCK_NB) || errno != EWOULDBLOCK) return PL_OK;
    close(fd);
    return pl_fail(err, PL_EIO, "%s: another potluck is writing there: give another --out", path);
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
