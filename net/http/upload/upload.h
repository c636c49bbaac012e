/* upload.h - a file to a web server, as the run's auxiliary peers published its checkpoints.
 * Four ways:
 *
 *   put   in one piece: WebDAV, presigned S3 addresses
 *   tus   in pieces, to a server of the tus protocol [tus 1.0.0, tus.io/protocols]
 *   s3    signed requests (Signature Version 4), in parts when the file is large [Amazon S3 API]
 *   hub   Hugging Face's: the file goes to large file storage and a commit names it
 *         [git-lfs, batch API]
 *
 * Tokens and signed requests are sent over https only (credential.h).
 *
 * All but the first resume after an interruption, even if the program was restarted. */
#ifndef PL_HTTP_UPLOAD_H
#define PL_HTTP_UPLOAD_H

#include "upload_options.h"

struct http_upload_options http_upload_options(void);

/* Uploads the file at `path` to url: the file's own address; for tus where uploads are created;
 * for hub the hub's. Where an unfinished one stands is kept in "<path>.upload", with the file's
 * checksum: a file that has changed begins anew. */
int http_upload(const char *url, const char *path, const struct http_upload_options *options,
                struct pl_err *err);

#endif
