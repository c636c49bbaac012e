/* upload.h - a file to a web server, as the run's auxiliary peers published its checkpoints.
 * Four ways:
 *
 *   put   in one piece: WebDAV, presigned S3 addresses
 *   tus   in pieces, to a server of the tus protocol [tus 1.0.0, tus.io/protocols]
 *   s3    signed requests (Signature Version 4), in parts when the file is large [Amazon S3 API]
 *   hub   Hugging Face's: the file goes to large file storage and a commit names it [git-lfs, batch API]
 *
 * Tokens and what is signed by a key travel over https alone (credential.h).
 *
 * All but the first go on in the middle after a break, also when the program was started anew. */
#ifndef PL_HTTP_UPLOAD_H
#define PL_HTTP_UPLOAD_H

#include "net/http/client/client.h"

enum http_upload_way { HTTP_UPLOAD_PUT, HTTP_UPLOAD_TUS, HTTP_UPLOAD_S3, HTTP_UPLOAD_HUB };

struct http_upload_options {
    enum http_upload_way way;
    /* "Authorization: Bearer", not for s3; each request asks http_token_for. Borrowed. */
    struct http_credential credential[HTTP_CREDENTIALS_MAX];
    const char *ca_file; /* certificates of the authorities to believe; NULL: the system's */
    int tries;           /* in a row without progress: 6 */
    double wait_s;       /* before the second try, then double, up to a minute: 0.5 */
    int stall_s;         /* 20 */
    size_t piece;        /* bytes a request of tus and s3; S3 takes no less than 5 MiB: 8 MiB */
    const char *key_id, *secret, *session, *region; /* s3; session NULL: none */
    const char *repository, *kind, *revision,
        *name; /* hub: "user/name", "models" or "datasets", a branch,
                                                      * the file's name there */
    /* Bytes the server has, of how many; not 0 stops with PL_EAGAIN. NULL: not called. */
    int (*progress)(void *context, uint64_t done, uint64_t size);
    void *context;
};
struct http_upload_options http_upload_options(void);

/* Uploads the file at `path` to url: the file's own address; for tus where uploads are created;
 * for hub the hub's. Where an unfinished one stands is kept in "<path>.upload", with the file's
 * checksum: a file that has changed begins anew. */
int http_upload(const char *url, const char *path, const struct http_upload_options *options,
                struct pl_err *err);

#endif
