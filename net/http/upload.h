/* upload.h - a file to a web server, as the run's auxiliary peers published its checkpoints: in one piece by
 * PUT (WebDAV, presigned S3 addresses, hubs), or resumable by the tus protocol, where a broken upload goes
 * on in the middle, also after the program was started anew. [tus 1.0.0, tus.io/protocols] */
#ifndef PL_HTTP_UPLOAD_H
#define PL_HTTP_UPLOAD_H

#include "../../ref/base.h"

struct http_upload_options {
    const char *token;  /* "Authorization: Bearer"; NULL: none */
    int tus;            /* 1: url is where tus creates uploads; 0: url is the file's own address */
    int tries;          /* in a row without progress: 6 */
    double wait_s;      /* before the second try, then double, up to a minute: 0.5 */
    int stall_s;        /* 20 */
    size_t piece;       /* tus: bytes a request: 8 MiB */
    /* Bytes the server has, of how many; not 0 stops with PL_EAGAIN. NULL: not called. */
    int (*progress)(void *context, uint64_t done, uint64_t size);
    void *context;
};
struct http_upload_options http_upload_options(void);

/* Uploads the file at `path`. tus: where the upload lies is kept in "<path>.upload" until it is complete,
 * with the file's checksum: a file that has changed begins anew. */
int http_upload(const char *url, const char *path, const struct http_upload_options *options,
                struct pl_err *err);

#endif
