/* http_source.h - a file on a web server as a pl_source: blocks fetched when they are read,
 * those behind them side by side and ahead, a bounded number kept. [TTT 2.1: peers stream the
 * data set] */
#ifndef PL_HTTP_SOURCE_H
#define PL_HTTP_SOURCE_H

#include "data/files/source.h"
#include "cache.h"
#include "client.h"

#define HTTP_BLOCK_BYTES (256 << 10) /* a page of codes has some 20 kB */
#define HTTP_BLOCKS 32               /* kept: 8 MiB a source, the whole of it */

/* The client is borrowed and must outlive the source; one thread at a time uses both. sha256
 * (hexadecimal, or NULL) is compared once every byte has been read: a different file is refused
 * then. cache (NULL: none; borrowed likewise) keeps blocks of files with a sha256 or with an ETag
 * from the server. */
int http_source_open(struct pl_source **out, struct http_client *client, struct http_cache *cache,
                     const char *url, const char *sha256, struct pl_err *err);

#endif
