/* folder_index.h - the page on which a web server lists the files of a folder, as nginx's
 * autoindex, Apache's mod_autoindex and Python's http.server write it: HTML, an <a href> each. */
#ifndef PL_HTTP_INDEX_H
#define PL_HTTP_INDEX_H

#include "ref/base.h"

/* Whether the bytes are HTML: their first sign is a <, with which no other list begins. */
int http_index_is(const char *text, size_t bytes);

/* The page's links to *.parquet in its own folder or below, each once, in alphabetical order, as a
 * folder on the disk lists them; escaped and relative to the page, so that `url` resolves them.
 * Links out of the folder, to another server, or with a query (?) are left out. The caller frees
 * each name and the list; on error *name is NULL. PL_ENOTFOUND: no link. PL_ELIMIT: more than
 * `most`. */
int http_index_read(char ***name, size_t *count, const char *page, size_t bytes, size_t most,
                    const char *url, struct pl_err *err);

#endif
