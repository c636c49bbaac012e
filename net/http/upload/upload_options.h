/* upload_options.h - how a file is uploaded. */
#ifndef PL_HTTP_UPLOAD_OPTIONS_H
#define PL_HTTP_UPLOAD_OPTIONS_H

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
#endif
