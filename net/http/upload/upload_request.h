/* upload_request.h - shared by all ways of uploading: a request, its retries, and progress stored
 * in a file next to the upload. Only upload*.c include this. */
#ifndef PL_HTTP_UPLOAD_REQUEST_H
#define PL_HTTP_UPLOAD_REQUEST_H

#include "net/http/libraries.h"
#include "upload_options.h"
#include "data/files/buffer.h"
#include "data/files/mapping.h"

#include <jansson.h>

#define UPLOAD_ANSWER_MAX (4u << 20) /* bytes: the addresses of ten thousand parts */
#define UPLOAD_PARTS_MAX 10000       /* S3's own limit */

/* One request and its response. */
struct upload_reply {
    const uint8_t *data;
    size_t bytes, at;
    long status;
    char location[HTTP_URL_MAX], tag[HTTP_TAG_MAX]; /* Location, ETag */
    long long offset, length; /* Upload-Offset, Upload-Length or Content-Length; -1: absent */
    struct pl_buffer *answer; /* the upload's */
    char library[CURL_ERROR_SIZE];
};

struct upload {
    const struct http_upload_options *o;
    CURL *easy;
    const char *url, *path;
    struct pl_mapping file;
    char sha256[65], location[HTTP_URL_MAX];
    int bare; /* 1: without a token: an address that is signed itself */
    /* of the last request, at most UPLOAD_ANSWER_MAX, with a zero behind it */
    struct pl_buffer answer;
    struct pl_err *err;
};

/* PL_OK: an answer came, whatever it says. PL_EUSE: no other try mends it. data NULL: no body.
 * headers end with NULL. */
int upload_ask(struct upload *u, struct upload_reply *x, const char *method, const char *url,
               const char *const *headers, const void *data, size_t bytes);
/* Retries until the answer is 2xx or the error is permanent: then err names `what`. */
int upload_insist(struct upload *u, struct upload_reply *x, const char *method, const char *url,
                  const char *const *headers, const void *data, size_t bytes, const char *what);
/* 1: the error may be temporary. */
int upload_is_temporary(int rc, const struct upload_reply *x);
int upload_complain(const struct upload *u, int rc, const struct upload_reply *x, const char *what);
void upload_wait(double *seconds);
/* After try number `try`, the first is 0, with `done` bytes confirmed so far. PL_OK when it is time
 * for the next one; otherwise there is none, and err says why: it names `what`. */
int upload_again(const struct upload *u, int try, int rc, const struct upload_reply *x,
                 const char *what, uint64_t done);
int upload_report(const struct upload *u, uint64_t done);

/* Where an upload stands, kept in "<path>.upload": a JSON object. recall returns it if it is about
 * this very file and address, otherwise NULL; remember borrows its argument. */
json_t *upload_recall(struct upload *u);
int upload_remember(struct upload *u, json_t *state);
void upload_forget(const struct upload *u);

/* A part's request; fills *x. */
typedef int upload_part_fn(struct upload *u, struct upload_reply *x, json_t *state, size_t part,
                           const uint8_t *data, size_t bytes);
/* Sends the parts of `piece` bytes whose ETag is not in state's array "etags" yet, and remembers
 * each. PL_ENOTFOUND: the server responds 403, 404 or 410: it no longer knows the upload. */
int upload_parts(struct upload *u, json_t *state, size_t piece, upload_part_fn *send);

/* The ways. */
int upload_tus(struct upload *u);
int upload_s3(struct upload *u);
int upload_hub(struct upload *u);

#endif
