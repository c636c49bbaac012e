/* http_source.c - a file on a web server, read in blocks: peers stream the data set instead of
 * downloading it. [TTT 2.1]
 *
 *   read_at(offset)   block = offset / 256 KiB
 *      in memory      the last 32 blocks, least recently used out first
 *      on the disk    cache.c, if the file has a SHA-256 or an ETag
 *      else           range requests, side by side; four blocks if the reader moves forward
 *
 * Training reads shards forward, so the next blocks are fetched with the missing one: one round
 * trip for four. If a SHA-256 is known, it is computed along the way, and a file that differs is
 * refused at its end. */
#include "http_source.h"
#include "ref/small.h"

#include <ctype.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define FIRST_BYTES 1024 /* of the first request, where the first block may lie on the disk */

struct block {
    uint64_t number;
    size_t bytes;
    uint64_t used; /* when it was last read, by the source's own count */
    uint8_t *data; /* NULL: free */
};

struct http_source {
    struct pl_source s;
    struct http_client *client;
    struct http_cache *cache; /* NULL: none, or nothing tells the file from another */
    struct http_file file;
    char identity[HTTP_URL_MAX + HTTP_TAG_MAX + 30];
    struct block block[HTTP_BLOCKS];
    uint64_t clock, last; /* last: the block of the last read */
    EVP_MD_CTX *hash;     /* NULL: nothing to compare with, or done */
    uint64_t hashed;      /* blocks so far, in order */
    char want[65];
};

static uint64_t blocks_of(const struct http_source *h)
{
    return (h->file.size + HTTP_BLOCK_BYTES - 1) / HTTP_BLOCK_BYTES;
}

static struct block *find(struct http_source *h, uint64_t number)
{
    for (int i = 0; i < HTTP_BLOCKS; i++)
        if (h->block[i].data && h->block[i].number == number) return &h->block[i];
    return NULL;
}

/* A slot with memory for a block: a free one, otherwise the least recently used. NULL: no
 * memory. */
static struct block *take(struct http_source *h)
{
    struct block *oldest = &h->block[0];
    for (int i = 0; i < HTTP_BLOCKS; i++) {
        if (!h->block[i].data) {
            h->block[i].data = malloc(HTTP_BLOCK_BYTES);
            return h->block[i].data ? &h->block[i] : NULL;
        }
        if (h->block[i].used < oldest->used) oldest = &h->block[i];
    }
    return oldest;
}

/* Hashes the blocks that are here in order. They may arrive out of order, and one that was
 * dropped before its turn is hashed when it is read again. */
static int check(struct http_source *h, struct pl_err *err)
{
    struct block *b;
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    char text[2 * EVP_MAX_MD_SIZE + 1] = "";
    while (h->hash && (b = find(h, h->hashed))) {
        if (!EVP_DigestUpdate(h->hash, b->data, b->bytes))
            return pl_fail(err, PL_ENOMEM, "%.300s: no memory", h->s.name);
        if (++h->hashed < blocks_of(h)) continue;
        EVP_DigestFinal_ex(h->hash, digest, &n);
        EVP_MD_CTX_free(h->hash);
        h->hash = NULL;
        pl_hex(text, digest, n);
        if (strcasecmp(text, h->want))
            return pl_fail(err, PL_EFORMAT,
                           "%.300s: SHA-256 is %.16s..., %.16s... was expected: damaged "
                           "or another file",
                           h->s.name, text, h->want);
    }
    return PL_OK;
}

/* Reads the block from the disk cache into b->data, if it is there. */
static int is_kept(struct http_source *h, struct block *b)
{
    char key[HTTP_CACHE_KEY];
    if (!h->cache) return 0;
    http_cache_key(key, h->identity, b->number);
    return http_cache_get(h->cache, key, b->data, b->bytes);
}

static void keep(struct http_source *h, const struct block *b)
{
    char key[HTTP_CACHE_KEY];
    if (!h->cache) return;
    http_cache_key(key, h->identity, b->number);
    http_cache_put(h->cache, key, b->data, b->bytes);
}

/* Fetches block `number` and, if the reader moves forward, three behind it. */
static int fetch(struct http_source *h, uint64_t number, struct pl_err *err)
{
    struct http_part parts[HTTP_CLIENT_CONNECTIONS_MAX];
    struct block *blocks[HTTP_CLIENT_CONNECTIONS_MAX];
    int want = number == h->last + 1 || !number ? 4 : 1, count = 0, rc;
    for (uint64_t k = number; k < number + (uint64_t)want && k < blocks_of(h); k++) {
        uint64_t at = k * HTTP_BLOCK_BYTES;
        struct block *b;
        if (find(h, k)) continue;
        if (!(b = take(h))) {
            if (!count) return pl_fail(err, PL_ENOMEM, "%.300s: no memory", h->s.name);
            break;
        }
        b->number = k;
        b->bytes = h->file.size - at < HTTP_BLOCK_BYTES ? (size_t)(h->file.size - at)
                                                        : HTTP_BLOCK_BYTES;
        b->used = ++h->clock; /* now the newest: not taken again below */
        if (is_kept(h, b)) continue;
        parts[count] = (struct http_part){ .at = at, .bytes = b->bytes, .data = b->data };
        blocks[count++] = b;
    }
    rc = http_client_parts(h->client, &h->file, parts, count, err);
    for (int i = 0; i < count; i++)
        if (parts[i].got != parts[i].bytes) { /* a block is whole or not there */
            free(blocks[i]->data);
            *blocks[i] = (struct block){ 0 };
        } else keep(h, blocks[i]);
    return rc ? rc : check(h, err);
}

static int read_at(struct pl_source *s, uint64_t at, void *out, size_t bytes, struct pl_err *err)
{
    struct http_source *h = (struct http_source *)s;
    uint8_t *to = out;
    while (bytes) {
        uint64_t number = at / HTTP_BLOCK_BYTES;
        size_t from = (size_t)(at % HTTP_BLOCK_BYTES), n;
        struct block *b = find(h, number);
        if (!b) {
            int rc = fetch(h, number, err);
            if (rc) return rc;
            if (!(b = find(h, number)))
                return pl_fail(err, PL_EIO, "%.300s: lost a block", s->name);
        }
        n = b->bytes - from < bytes ? b->bytes - from : bytes;
        memcpy(to, b->data + from, n);
        b->used = ++h->clock;
        h->last = number;
        to += n;
        at += n;
        bytes -= n;
    }
    return PL_OK;
}

static void release(struct pl_source *s)
{
    struct http_source *h = (struct http_source *)s;
    for (int i = 0; i < HTTP_BLOCKS; i++) free(h->block[i].data);
    EVP_MD_CTX_free(h->hash);
}

/* The first response tells the size. Without a disk cache it also brings the first block; with
 * one only a little is asked for, since the block may be on the disk. */
static int begin(struct http_source *h, const char *url, struct pl_err *err)
{
    struct block *first;
    uint8_t few[FIRST_BYTES];
    size_t got;
    int rc;
    if (h->cache) rc = http_client_begin(h->client, &h->file, few, &got, sizeof few, url, err);
    else if (!(first = take(h))) return pl_fail(err, PL_ENOMEM, "%.300s: no memory", url);
    else
        rc = http_client_begin(h->client, &h->file, first->data, &first->bytes, HTTP_BLOCK_BYTES,
                               url, err);
    if (rc) return rc;
    h->s.size = h->file.size;
    /* The identity of the contents: the SHA-256, or URL, size and ETag. Without either, a changed
     * file would look like the old one, so nothing is cached. */
    if (h->want[0]) snprintf(h->identity, sizeof h->identity, "sha256 %s", h->want);
    else
        snprintf(h->identity, sizeof h->identity, "%s\n%llu\n%s", h->file.url,
                 (unsigned long long)h->file.size, h->file.tag);
    if (!h->want[0] && !h->file.tag[0]) h->cache = NULL;
    return check(h, err);
}

int http_source_open(struct pl_source **out, struct http_client *client, struct http_cache *cache,
                     const char *url, const char *sha256, struct pl_err *err)
{
    struct http_source *h = calloc(1, sizeof *h);
    int rc = PL_OK;
    *out = NULL;
    if (!h) return pl_fail(err, PL_ENOMEM, "%.300s: no memory", url);
    h->client = client;
    h->cache = cache;
    h->s.name = h->file.url;
    h->s.read_at = read_at;
    h->s.close = release;
    if (sha256) {
        snprintf(h->want, sizeof h->want, "%s", sha256);
        for (char *p = h->want; *p; p++) *p = (char)tolower((unsigned char)*p);
        h->hash = EVP_MD_CTX_new();
        if (!h->hash || !EVP_DigestInit_ex(h->hash, EVP_sha256(), NULL))
            rc = pl_fail(err, PL_ENOMEM, "%.300s: no memory", url);
    }
    if (!rc) rc = begin(h, url, err);
    if (rc) pl_source_close(&h->s);
    else *out = &h->s;
    return rc;
}
