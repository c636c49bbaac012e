/* upload.c - publishing a file on a web server; here the way in, and the simplest of four ways,
 * PUT.
 *
 *   map the file - SHA-256 - one of put, tus (upload_tus.c), s3 (upload_s3.c), hub (upload_hub.c)
 *
 * The hash tells an unfinished upload of this file from one of an older file of the same name:
 * only the first is continued. */
#include "upload.h"
#include "upload_request.h"
#include "ref/small.h"

#include <openssl/evp.h>
#include <string.h>

struct http_upload_options http_upload_options(void)
{
    return (
        struct http_upload_options){ .tries = 6, .wait_s = 0.5, .stall_s = 20, .piece = 8 << 20 };
}

static int put_file(struct upload *u)
{
    static const char *const headers[] = { "Content-Type: application/octet-stream", NULL };
    struct upload_reply x;
    int rc = upload_report(u, 0);
    if (!rc) rc = upload_insist(u, &x, "PUT", u->url, headers, u->file.at, u->file.bytes, "PUT");
    if (rc) return rc;
    /* Some servers answer 200 to a cut upload. Where HEAD gives a length, it must be the whole
     * file's. */
    rc = upload_ask(u, &x, "HEAD", u->url, NULL, NULL, 0);
    if (!rc && x.status == 200 && x.length >= 0 && (uint64_t)x.length != u->file.bytes)
        return pl_fail(u->err, PL_EIO, "%.200s: %lld bytes arrived, %zu were sent", u->url,
                       x.length, u->file.bytes);
    return upload_report(u, u->file.bytes);
}

int http_upload(const char *url, const char *path, const struct http_upload_options *options,
                struct pl_err *err)
{
    static int (*const ways[])(struct upload *) = { put_file, upload_tus, upload_s3, upload_hub };
    struct upload u = { .o = options, .url = url, .path = path, .err = err };
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    int rc;
    if (strlen(url) >= HTTP_URL_MAX || strlen(path) > 4000)
        return pl_fail(err, PL_ELIMIT, "%.100s...: too long an address or path", url);
    if ((rc = curl_load(err)) || (rc = pl_mapping_open(&u.file, path, err))) return rc;
    if (!(u.easy = curl.easy_init()) ||
        !EVP_Digest(u.file.at, u.file.bytes, digest, &n, EVP_sha256(), NULL))
        rc = pl_fail(err, PL_ENOMEM, "%.200s: no memory", path);
    if (!rc) pl_hex(u.sha256, digest, n);
    if (!rc) rc = ways[options->way](&u);
    pl_buffer_clear(&u.answer);
    curl.easy_cleanup(u.easy);
    pl_mapping_close(&u.file);
    return rc;
}
