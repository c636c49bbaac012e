/* cache.h - blocks of files from the web, kept in a folder: a second pass over shards, or a second
 * peer of this machine, does not fetch them again. Bounded: the least recently used blocks are
 * removed first. Checked: a block is stored after its own SHA-256, and a damaged one is removed and
 * fetched again. Any number of processes may share a folder: a block appears whole or not at all,
 * and one that another process removed is fetched again. [TTT 2.1: peers stream the data set; the
 * disks of volunteers are small] */
#ifndef PL_HTTP_CACHE_H
#define PL_HTTP_CACHE_H

#include "ref/base.h"

#define HTTP_CACHE_KEY 65 /* characters of a block's name and a zero */

struct http_cache;

/* The folder is made if it is not there; `limit` bytes of blocks lie in it at most, but for a
 * sixteenth that may be added before the next scan. */
int http_cache_open(struct http_cache **c, const char *folder, uint64_t limit, struct pl_err *err);
void http_cache_close(struct http_cache *c); /* the blocks stay */

/* The name of a block of something that `identity` tells from everything else. */
void http_cache_key(char key[HTTP_CACHE_KEY], const char *identity, uint64_t block);
/* 1: data holds the block's `bytes`. 0: it is not there, or was damaged. */
int http_cache_get(struct http_cache *c, const char *key, void *data, size_t bytes);
/* Keeps a block. A full disk, or whatever else goes wrong, only means that it is not kept. */
void http_cache_put(struct http_cache *c, const char *key, const void *data, size_t bytes);

#endif
