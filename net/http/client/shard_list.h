/* shard_list.h - a list of files on web servers. */
#ifndef PL_HTTP_LIST_H
#define PL_HTTP_LIST_H

#include "client.h"

#define HTTP_LIST_BYTES_MAX (16 << 20)
#define HTTP_LIST_MAX 1000000

struct http_list {
    size_t count, capacity;
    char **url, **sha256; /* sha256: NULL where the list has none */
};

int http_is_url(const char *text);
/* Whether a URL is of a list rather than of a shard: its path ends in .json, .txt, .htm, .html or a
 * slash, whatever is asked behind it ("list.json?download=true"), or it names but a host. */
int http_is_list(const char *url);

/* The list at a URL: JSON - an array, or an object's "shards", of texts or of {"url", "sha256"} -
 * or HTML, the page on which a web server lists a folder (folder_index.h); or, if it is neither,
 * lines of text, a URL each, with the SHA-256 behind a space where it is known; # begins a comment.
 * An incomplete URL is relative to the list's own URL. On error *list is empty. */
int http_list_read(struct http_list *list, struct http_client *client, const char *url,
                   struct pl_err *err);
/* The same from bytes. */
int http_list_parse(struct http_list *list, const char *text, size_t bytes, const char *url,
                    struct pl_err *err);
void http_list_clear(struct http_list *list);

#endif
