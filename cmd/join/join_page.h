/* join_page.h - the addresses by which a run's page says that it is joined. */
#ifndef PL_CMD_JOIN_PAGE_H
#define PL_CMD_JOIN_PAGE_H

#include "ref/base.h"

#define JOIN_PAGE_ADDRESSES 8 /* as many as potluck dash publishes */
#define JOIN_PAGE_BYTES 16384 /* eight multiaddrs of 1,024 characters and their frame */

/* Texts of multiaddrs that end in a peer ID; each is freed with free(). */
struct join_page {
    char *address[JOIN_PAGE_ADDRESSES];
    size_t count;
};
/* url: of the page, over https, or over http from this machine. PL_EUSE for another one; PL_EFORMAT
 * for an answer that names no address. */
int join_page_read(struct join_page *page, const char *url, struct pl_err *err);
/* api/join.json itself, which anybody may have written. */
int join_page_parse(struct join_page *page, const char *text, size_t n, struct pl_err *err);
void join_page_clear(struct join_page *page);

#endif
