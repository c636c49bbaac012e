/* cache.c - fetched blocks kept in a folder, bounded and self-checking. [TTT 2.1]
 *
 *   file   NAME = SHA-256(block number, identity of the content)
 *          32 bytes of SHA-256 of the data, then the data; mtime = last use
 *   get    read - hash - equal? touch it : remove it
 *   put    write a temporary file - rename: readers see it whole or not at all
 *   bound  when limit / 16 has been added: list the folder, remove the least recently used
 *
 * Several processes share the folder without locks. That works since names determine contents,
 * rename is atomic, and a block that another process removed is just fetched again. */
#include "cache.h"
#include "data/files/file.h"
#include "ref/small.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HASH 32
#define SHARE 16 /* the folder is scanned each time this part of the limit has been added */

struct http_cache {
    char folder[PATH_MAX];
    uint64_t limit, added; /* added: bytes since the last scan of the folder */
};

struct entry {
    char name[HTTP_CACHE_KEY + 16];
    struct timespec used;
    uint64_t bytes;
};

int http_cache_open(struct http_cache **out, const char *folder, uint64_t limit, struct pl_err *err)
{
    struct http_cache *c;
    int rc = pl_folder_make(folder, err);
    *out = NULL;
    if (rc) return rc;
    if (!(c = calloc(1, sizeof *c))) return pl_fail(err, PL_ENOMEM, "%.300s: no memory", folder);
    c->limit = limit;
    c->added = limit; /* scan before the first put: the folder may be full */
    if (!realpath(folder, c->folder) || access(c->folder, R_OK | W_OK | X_OK)) {
        rc = pl_fail(err, PL_EIO, "%.300s: %s", folder, strerror(errno));
        free(c);
        return rc;
    }
    *out = c;
    return PL_OK;
}

void http_cache_close(struct http_cache *c) { free(c); }

void http_cache_key(char key[HTTP_CACHE_KEY], const char *identity, uint64_t block)
{
    unsigned char digest[EVP_MAX_MD_SIZE], number[8];
    EVP_MD_CTX *hash = EVP_MD_CTX_new();
    key[0] = 0;
    for (int i = 0; i < 8; i++) number[i] = (unsigned char)(block >> 8 * i);
    if (hash && EVP_DigestInit_ex(hash, EVP_sha256(), NULL) &&
        EVP_DigestUpdate(hash, number, sizeof number) &&
        EVP_DigestUpdate(hash, identity, strlen(identity)) &&
        EVP_DigestFinal_ex(hash, digest, NULL))
        pl_hex(key, digest, HASH);
    EVP_MD_CTX_free(hash);
}

static void path_of(char path[PATH_MAX + HTTP_CACHE_KEY + 20], const struct http_cache *c,
                    const char *name)
{
    snprintf(path, PATH_MAX + HTTP_CACHE_KEY + 20, "%s/%s", c->folder, name);
}

int http_cache_get(struct http_cache *c, const char *key, void *data, size_t bytes)
{
    char path[PATH_MAX + HTTP_CACHE_KEY + 20];
    unsigned char want[HASH], digest[EVP_MAX_MD_SIZE];
    struct stat st;
    int fd, good;
    if (!*key) return 0;
    path_of(path, c, key);
    if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0) return 0;
    good = !fstat(fd, &st) && S_ISREG(st.st_mode) && (uint64_t)st.st_size == HASH + bytes &&
           pread(fd, want, HASH, 0) == HASH && pread(fd, data, bytes, HASH) == (ssize_t)bytes &&
           EVP_Digest(data, bytes, digest, NULL, EVP_sha256(), NULL) && !memcmp(digest, want, HASH);
    /* Least recently used by file time: it survives restarts, and all processes see it. */
    if (good) futimens(fd, NULL);
    close(fd);
    if (!good) unlink(path);
    return good;
}

/* -- the bound
 * ---------------------------------------------------------------------------------------- */

/* Never remove files that this cache has not written: the folder may hold others. */
static int is_ours(const char *name)
{
    return (strlen(name) == HTTP_CACHE_KEY - 1 &&
            strspn(name, "0123456789abcdef") == HTTP_CACHE_KEY - 1) ||
           !strncmp(name, ".block-", 7); /* left by a killed process */
}

static int earlier(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec) return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    return x->used.tv_nsec < y->used.tv_nsec ? -1 : x->used.tv_nsec > y->used.tv_nsec;
}

/* All blocks of the folder, or NULL. */
static struct entry *list(const struct http_cache *c, size_t *count, uint64_t *total)
{
    DIR *d = opendir(c->folder);
    struct entry *all = NULL;
    struct dirent *e;
    size_t capacity = 0;
    *count = 0;
    *total = 0;
    while (d && (e = readdir(d))) {
        struct stat st;
        if (!is_ours(e->d_name) || strlen(e->d_name) >= sizeof all->name ||
            fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        if (pl_grow(&all, *count, &capacity, 64)) break;
        snprintf(all[*count].name, sizeof all->name, "%.*s", (int)sizeof all->name - 1, e->d_name);
        all[*count].used = st.st_mtim;
        *total += all[(*count)++].bytes = (uint64_t)st.st_size;
    }
    if (d) closedir(d);
    return all;
}

/* Removes least recently used blocks until `bytes` more fit. */
static void free_space(struct http_cache *c, uint64_t bytes)
{
    char path[PATH_MAX + HTTP_CACHE_KEY + 20];
    uint64_t total;
    size_t count;
    struct entry *all = list(c, &count, &total);
    if (total + bytes > c->limit && all) qsort(all, count, sizeof *all, earlier);
    for (size_t i = 0; i < count && total + bytes > c->limit; i++) {
        path_of(path, c, all[i].name);
        if (!unlink(path) || errno == ENOENT) total -= all[i].bytes;
    }
    free(all);
    c->added = 0;
}

void http_cache_put(struct http_cache *c, const char *key, const void *data, size_t bytes)
{
    char path[PATH_MAX + HTTP_CACHE_KEY + 20], temporary[PATH_MAX + HTTP_CACHE_KEY + 20];
    unsigned char digest[EVP_MAX_MD_SIZE];
    int fd, good;
    if (!*key || HASH + bytes > c->limit ||
        !EVP_Digest(data, bytes, digest, NULL, EVP_sha256(), NULL))
        return;
    if ((c->added += HASH + bytes) > c->limit / SHARE) free_space(c, HASH + bytes);
    path_of(path, c, key);
    path_of(temporary, c, ".block-XXXXXX");
    if ((fd = mkostemp(temporary, O_CLOEXEC)) < 0) return;
    /* No fsync: after a power cut an incomplete file does not match its SHA-256. */
    good = write(fd, digest, HASH) == HASH && write(fd, data, bytes) == (ssize_t)bytes;
    good &= !close(fd);
    if (!good || rename(temporary, path)) unlink(temporary);
}
