/* upload.c - see upload.h. */
#include "upload.h"
#include "libraries.h"
#include "client.h"
#include "../../data/file.h"
#include "../../data/mapping.h"

#include <jansson.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define STATE_BYTES_MAX 65536
#define WAIT_MAX_S 60.0

/* One request and what came back. */
struct exchange {
    const uint8_t *data;
    size_t bytes, at;
    long status;
    char location[HTTP_URL_MAX];
    long long offset, length; /* Upload-Offset, Upload-Length or Content-Length; -1: not said */
    char library[CURL_ERROR_SIZE];
};

struct upload {
    const struct http_upload_options *o;
    CURL *easy;
    const char *url, *path;
    struct pl_mapping file;
    char sha256[65], location[HTTP_URL_MAX];
    struct pl_err *err;
};

struct http_upload_options http_upload_options(void)
{
    return (struct http_upload_options){ .tries = 6, .wait_s = 0.5, .stall_s = 20, .piece = 8 << 20 };
}

/* -- a request ----------------------------------------------------------------------------------------- */

static size_t give(char *to, size_t size, size_t count, void *context)
{
    struct exchange *x = context;
    size_t n = size * count < x->bytes - x->at ? size * count : x->bytes - x->at;
    if (n) memcpy(to, x->data + x->at, n);
    x->at += n;
    return n;
}

static int rewind_to(void *context, curl_off_t at, int origin)
{
    struct exchange *x = context;
    if (origin != SEEK_SET || at < 0 || (size_t)at > x->bytes) return CURL_SEEKFUNC_FAIL;
    x->at = (size_t)at;
    return CURL_SEEKFUNC_OK;
}

static size_t ignore(char *data, size_t size, size_t count, void *context)
{
    (void)data;
    (void)context;
    return size * count;
}

static size_t on_header(char *line, size_t size, size_t count, void *context)
{
    struct exchange *x = context;
    size_t n = size * count;
    char text[HTTP_URL_MAX + 40], *value;
    snprintf(text, sizeof text, "%.*s", (int)(n < sizeof text - 1 ? n : sizeof text - 1), line);
    if (!strncasecmp(text, "HTTP/", 5)) {
        x->location[0] = 0;
        x->offset = x->length = -1;
    }
    if (!(value = strchr(text, ':'))) return n;
    *value++ = 0;
    value += strspn(value, " \t");
    value[strcspn(value, "\r\n")] = 0;
    if (!strcasecmp(text, "location")) snprintf(x->location, sizeof x->location, "%.*s", HTTP_URL_MAX - 1, value);
    else if (!strcasecmp(text, "upload-offset")) x->offset = atoll(value);
    else if (!strcasecmp(text, "upload-length") || !strcasecmp(text, "content-length")) x->length = atoll(value);
    return n;
}

/* PL_OK: an answer came, whatever it says. */
static int ask(struct upload *u, struct exchange *x, const char *method, const char *url,
               const char *const *headers, const uint8_t *data, size_t bytes)
{
    struct curl_slist *list = NULL;
    CURL *e = u->easy;
    CURLcode code;
    *x = (struct exchange){ .data = data, .bytes = bytes, .offset = -1, .length = -1 };
    for (; headers && *headers; headers++) {
        struct curl_slist *more = curl_slist_append(list, *headers);
        if (!more) {
            curl_slist_free_all(list);
            return PL_ENOMEM;
        }
        list = more;
    }
    curl_easy_reset(e);
    curl_easy_setopt(e, CURLOPT_URL, url);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_USERAGENT, "potluck/" PL_VERSION);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT, (long)u->o->stall_s);
    curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)u->o->stall_s);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, x->library);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, x);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, ignore);
    curl_easy_setopt(e, CURLOPT_HTTPHEADER, list);
    if (u->o->token) {
        curl_easy_setopt(e, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        curl_easy_setopt(e, CURLOPT_XOAUTH2_BEARER, u->o->token);
    }
    if (data) {
        curl_easy_setopt(e, CURLOPT_UPLOAD, 1L);
        curl_easy_setopt(e, CURLOPT_READFUNCTION, give);
        curl_easy_setopt(e, CURLOPT_READDATA, x);
        curl_easy_setopt(e, CURLOPT_SEEKFUNCTION, rewind_to);
        curl_easy_setopt(e, CURLOPT_SEEKDATA, x);
        curl_easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)bytes);
    } else if (!strcmp(method, "HEAD")) curl_easy_setopt(e, CURLOPT_NOBODY, 1L);
    if (strcmp(method, "HEAD")) curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, method);
    code = curl_easy_perform(e);
    curl_easy_getinfo(e, CURLINFO_RESPONSE_CODE, &x->status);
    curl_slist_free_all(list);
    if (!code) return PL_OK;
    if (!x->library[0]) snprintf(x->library, sizeof x->library, "%s", curl_easy_strerror(code));
    return PL_EIO;
}

static void wait_for(double *wait)
{
    struct timespec t = { (time_t)*wait, (long)((*wait - (double)(time_t)*wait) * 1e9) };
    nanosleep(&t, NULL);
    *wait = 2 * *wait > WAIT_MAX_S ? WAIT_MAX_S : 2 * *wait;
}

static int is_passing(int rc, const struct exchange *x)
{
    return rc == PL_EIO || x->status == 408 || x->status == 409 || x->status == 423 || x->status == 429 ||
           x->status >= 500;
}

static int complain(const struct upload *u, int rc, const struct exchange *x, const char *what)
{
    if (rc == PL_ENOMEM) return pl_fail(u->err, rc, "%.200s: no memory", u->path);
    if (rc) return pl_fail(u->err, PL_EIO, "%.200s: %s: %.200s", u->url, what, x->library);
    return pl_fail(u->err, PL_EIO, "%.200s: %s: the server answers %ld", u->url, what, x->status);
}

static int tell(const struct upload *u, uint64_t done)
{
    if (!u->o->progress || !u->o->progress(u->o->context, done, u->file.bytes)) return PL_OK;
    return pl_fail(u->err, PL_EAGAIN, "%.200s: stopped", u->path);
}

/* -- in one piece --------------------------------------------------------------------------------------- */

static int put(struct upload *u)
{
    static const char *const headers[] = { "Content-Type: application/octet-stream", NULL };
    struct exchange x;
    double wait = u->o->wait_s;
    int rc = tell(u, 0);
    for (int try = 0; !rc; try++) {
        rc = ask(u, &x, "PUT", u->url, headers, u->file.at, u->file.bytes);
        if (!rc && x.status >= 200 && x.status < 300) break;
        if (!is_passing(rc, &x) || try + 1 >= u->o->tries) return complain(u, rc, &x, "PUT");
        wait_for(&wait);
        rc = tell(u, 0);
    }
    if (rc) return rc;
    /* A server that can be asked what it has must have all of it. */
    rc = ask(u, &x, "HEAD", u->url, NULL, NULL, 0);
    if (!rc && x.status == 200 && x.length >= 0 && (uint64_t)x.length != u->file.bytes)
        return pl_fail(u->err, PL_EIO, "%.200s: %lld bytes arrived, %zu were sent", u->url, x.length,
                       u->file.bytes);
    return tell(u, u->file.bytes);
}

/* -- tus -------------------------------------------------------------------------------------------------- */

static void state_path(char *text, size_t room, const struct upload *u)
{
    snprintf(text, room, "%s.upload", u->path);
}

/* The location of an upload that was begun of this very file to this very address; 0: there is none. */
static int recall(struct upload *u)
{
    char path[4096];
    void *text;
    size_t n;
    json_t *root;
    const char *to, *sum, *location;
    state_path(path, sizeof path, u);
    if (access(path, R_OK) || pl_file_read(&text, &n, path, STATE_BYTES_MAX, NULL)) return 0;
    root = json_loadb(text, n, 0, NULL);
    free(text);
    to = json_string_value(json_object_get(root, "to"));
    sum = json_string_value(json_object_get(root, "sha256"));
    location = json_string_value(json_object_get(root, "location"));
    int good = to && sum && location && !strcmp(to, u->url) && !strcmp(sum, u->sha256) &&
               strlen(location) < sizeof u->location;
    if (good) snprintf(u->location, sizeof u->location, "%s", location);
    json_decref(root);
    return good;
}

static int remember(struct upload *u)
{
    char path[4096];
    json_t *root = json_pack("{s:s, s:s, s:s}", "to", u->url, "sha256", u->sha256, "location", u->location);
    char *text = root ? json_dumps(root, JSON_INDENT(1)) : NULL;
    int rc;
    state_path(path, sizeof path, u);
    rc = text ? pl_file_write(path, text, strlen(text), u->err)
              : pl_fail(u->err, PL_ENOMEM, "%.200s: no memory", u->path);
    free(text);
    json_decref(root);
    return rc;
}

/* Where the server wants the bytes: an address of its own, perhaps beside the one that was asked. */
static int take_location(struct upload *u, const char *location)
{
    CURLU *url = curl_url();
    char *whole = NULL;
    int good = url && !curl_url_set(url, CURLUPART_URL, u->url, 0) &&
               !curl_url_set(url, CURLUPART_URL, location, 0) && !curl_url_get(url, CURLUPART_URL, &whole, 0) &&
               strlen(whole) < sizeof u->location;
    if (good) snprintf(u->location, sizeof u->location, "%s", whole);
    curl_free(whole);
    curl_url_cleanup(url);
    return good;
}

static int create(struct upload *u)
{
    const char *slash = strrchr(u->path, '/'), *name = slash ? slash + 1 : u->path;
    char length[60], metadata[512], coded[400];
    const char *headers[] = { "Tus-Resumable: 1.0.0", length, metadata, "Content-Length: 0", NULL };
    struct exchange x;
    double wait = u->o->wait_s;
    int rc;
    EVP_EncodeBlock((unsigned char *)coded, (const unsigned char *)name,
                    (int)(strlen(name) < 255 ? strlen(name) : 255));
    snprintf(length, sizeof length, "Upload-Length: %zu", u->file.bytes);
    snprintf(metadata, sizeof metadata, "Upload-Metadata: filename %s", coded);
    for (int try = 0;; try++) {
        rc = ask(u, &x, "POST", u->url, headers, NULL, 0);
        if (!rc && x.status == 201) break;
        if (!is_passing(rc, &x) || try + 1 >= u->o->tries) return complain(u, rc, &x, "beginning an upload");
        wait_for(&wait);
    }
    if (!x.location[0] || !take_location(u, x.location))
        return pl_fail(u->err, PL_EFORMAT, "%.200s: the server does not say where the upload lies", u->url);
    return remember(u);
}

/* How many bytes the server has. PL_ENOTFOUND: it has forgotten the upload. */
static int ask_offset(struct upload *u, uint64_t *offset)
{
    static const char *const headers[] = { "Tus-Resumable: 1.0.0", NULL };
    struct exchange x;
    double wait = u->o->wait_s;
    for (int try = 0;; try++) {
        int rc = ask(u, &x, "HEAD", u->location, headers, NULL, 0);
        if (!rc && (x.status == 404 || x.status == 410 || x.status == 403)) return PL_ENOTFOUND;
        if (!rc && x.status >= 200 && x.status < 300) break;
        if (!is_passing(rc, &x) || try + 1 >= u->o->tries) return complain(u, rc, &x, "asking how far");
        wait_for(&wait);
    }
    if (x.offset < 0 || (uint64_t)x.offset > u->file.bytes)
        return pl_fail(u->err, PL_EFORMAT, "%.200s: the server has %lld of %zu bytes, it says", u->url,
                       x.offset, u->file.bytes);
    *offset = (uint64_t)x.offset;
    return PL_OK;
}

/* From *offset on, piece by piece. */
static int send_pieces(struct upload *u, uint64_t offset)
{
    double wait = u->o->wait_s;
    int bare = 0, rc = tell(u, offset);
    while (!rc && offset < u->file.bytes) {
        size_t n = u->file.bytes - offset < u->o->piece ? (size_t)(u->file.bytes - offset) : u->o->piece;
        char where[60];
        const char *headers[] = { "Tus-Resumable: 1.0.0", "Content-Type: application/offset+octet-stream",
                                  where, NULL };
        struct exchange x;
        uint64_t now = offset;
        snprintf(where, sizeof where, "Upload-Offset: %llu", (unsigned long long)offset);
        rc = ask(u, &x, "PATCH", u->location, headers, u->file.at + offset, n);
        if (!rc && x.status == 204 && x.offset == (long long)(offset + n)) {
            offset += n;
            bare = 0;
            wait = u->o->wait_s;
            rc = tell(u, offset);
            continue;
        }
        if (!is_passing(rc, &x) && !(rc == PL_OK && x.status == 204)) return complain(u, rc, &x, "PATCH");
        if ((rc = ask_offset(u, &now))) return rc == PL_ENOTFOUND ? complain(u, 0, &x, "PATCH") : rc;
        if (now <= offset && ++bare >= u->o->tries)
            return pl_fail(u->err, PL_EIO, "%.200s: stays at byte %llu of %zu", u->url,
                           (unsigned long long)now, u->file.bytes);
        if (now > offset) bare = 0;
        offset = now;
        if (!(rc = tell(u, offset))) wait_for(&wait);
    }
    return rc;
}

static int tus(struct upload *u)
{
    char path[4096];
    uint64_t offset = 0;
    int rc = recall(u) ? ask_offset(u, &offset) : PL_ENOTFOUND;
    if (rc == PL_ENOTFOUND) {
        offset = 0;
        rc = create(u);
    }
    if (!rc) rc = send_pieces(u, offset);
    if (rc) return rc;
    state_path(path, sizeof path, u);
    unlink(path);
    return PL_OK;
}

int http_upload(const char *url, const char *path, const struct http_upload_options *options,
                struct pl_err *err)
{
    struct upload u = { .o = options, .url = url, .path = path, .err = err };
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    int rc;
    if (strlen(url) >= HTTP_URL_MAX || strlen(path) > 4000)
        return pl_fail(err, PL_ELIMIT, "%.100s...: too long an address or path", url);
    if ((rc = curl_load(err)) || (rc = pl_mapping_open(&u.file, path, err))) return rc;
    if (!(u.easy = curl_easy_init()) || !EVP_Digest(u.file.at, u.file.bytes, digest, &n, EVP_sha256(), NULL))
        rc = pl_fail(err, PL_ENOMEM, "%.200s: no memory", path);
    for (unsigned i = 0; i < n && i < 32; i++) snprintf(u.sha256 + 2 * i, 3, "%02x", digest[i]);
    if (!rc) rc = options->tus ? tus(&u) : put(&u);
    curl_easy_cleanup(u.easy);
    pl_mapping_close(&u.file);
    return rc;
}
