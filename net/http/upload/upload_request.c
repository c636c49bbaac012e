/* upload_request.c - one HTTP request of an upload, its repetition after a passing failure, and
 * the state that survives a restart.
 *
 *   ask      one request; the token goes along only if this URL may see it (credential.h)
 *   insist   ask until 2xx, with pauses of wait, 2 wait, 4 wait, ... up to a minute
 *   parts    each part until its ETag is there; after each the state is written to FILE.upload
 *
 * A checkpoint of some gigabytes over a home connection takes hours; so a failure must cost one
 * part, never the whole file. */
#include "upload_request.h"
#include "data/files/file.h"
#include "data/files/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#define WAIT_MAX_S 60.0 /* a server that restarts is back within a minute or two */

/* -- a request -------------------------------------------------------------------------------- */

/* libcurl's read callback: the next bytes of the body, out of the mapped file. */
static size_t give(char *to, size_t size, size_t count, void *context)
{
    struct upload_reply *x = context;
    size_t n = size * count < x->bytes - x->at ? size * count : x->bytes - x->at;
    if (n) memcpy(to, x->data + x->at, n);
    x->at += n;
    return n;
}

/* After a redirect or a broken keep-alive libcurl sends the body again from its start. */
static int rewind_to(void *context, curl_off_t at, int origin)
{
    struct upload_reply *x = context;
    if (origin != SEEK_SET || at < 0 || (size_t)at > x->bytes) return CURL_SEEKFUNC_FAIL;
    x->at = (size_t)at;
    return CURL_SEEKFUNC_OK;
}

/* libcurl's write callback. A server may answer without end: bytes beyond the limit are dropped,
 * not stored. */
static size_t keep(char *data, size_t size, size_t count, void *context)
{
    struct upload_reply *x = context;
    size_t n = size * count, capacity = UPLOAD_ANSWER_MAX - x->answer->bytes;
    pl_buffer_add(x->answer, data, n < capacity ? n : capacity);
    return n;
}

static size_t on_header(char *line, size_t size, size_t count, void *context)
{
    struct upload_reply *x = context;
    size_t n = size * count;
    char text[HTTP_URL_MAX + 40], *value;
    snprintf(text, sizeof text, "%.*s", (int)(n < sizeof text - 1 ? n : sizeof text - 1), line);
    /* A new status line (after a redirect or 100 Continue): headers of the response before do
     * not count. */
    if (!strncasecmp(text, "HTTP/", 5)) {
        x->location[0] = x->tag[0] = 0;
        x->offset = x->length = -1;
    }
    if (!(value = strchr(text, ':'))) return n;
    *value++ = 0;
    value += strspn(value, " \t");
    value[strcspn(value, "\r\n")] = 0;
    for (const char *c = value; *c; c++) /* addresses and tags are ASCII, and are kept as JSON */
        if ((unsigned char)*c < 0x20 || (unsigned char)*c > 0x7E) return n;
    if (!strcasecmp(text, "location"))
        snprintf(x->location, sizeof x->location, "%.*s", HTTP_URL_MAX - 1, value);
    else if (!strcasecmp(text, "etag"))
        snprintf(x->tag, sizeof x->tag, "%.*s", HTTP_TAG_MAX - 1, value);
    else if (!strcasecmp(text, "upload-offset")) x->offset = atoll(value);
    else if (!strcasecmp(text, "upload-length") || !strcasecmp(text, "content-length"))
        x->length = atoll(value);
    return n;
}

int upload_ask(struct upload *u, struct upload_reply *x, const char *method, const char *url,
               const char *const *headers, const void *data, size_t bytes)
{
    const char *token = u->bare ? NULL
                                : http_token_for(url, u->o->credential, HTTP_CREDENTIALS_MAX);
    struct curl_slist *list = NULL;
    CURL *e = u->easy;
    CURLcode code;
    *x = (struct upload_reply){
        .data = data, .bytes = bytes, .offset = -1, .length = -1, .answer = &u->answer
    };
    u->answer.bytes = 0;
    /* Later addresses come from the server, and may carry signatures: an upload begun over https
     * stays there. */
    if (http_may_see(u->url, u->url) && strncasecmp(url, "https://", 8)) {
        snprintf(x->library, sizeof x->library,
                 "an https server leads to an address without https");
        return pl_fail(u->err, PL_EUSE, "%.200s: %s", u->url, x->library);
    }
    for (; headers && *headers; headers++) {
        struct curl_slist *more = curl.slist_append(list, *headers);
        if (!more) {
            curl.slist_free_all(list);
            return PL_ENOMEM;
        }
        list = more;
    }
    curl.easy_reset(e);
    curl.easy_setopt(e, CURLOPT_URL, url);
    curl.easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl.easy_setopt(e, CURLOPT_USERAGENT, "potluck/" PL_VERSION);
    curl.easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl.easy_setopt(e, CURLOPT_CONNECTTIMEOUT, (long)u->o->stall_s);
    curl.easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl.easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)u->o->stall_s);
    curl.easy_setopt(e, CURLOPT_ERRORBUFFER, x->library);
    curl.easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    curl.easy_setopt(e, CURLOPT_HEADERDATA, x);
    curl.easy_setopt(e, CURLOPT_WRITEFUNCTION, keep);
    curl.easy_setopt(e, CURLOPT_WRITEDATA, x);
    curl.easy_setopt(e, CURLOPT_HTTPHEADER, list);
    if (u->o->ca_file) curl.easy_setopt(e, CURLOPT_CAINFO, u->o->ca_file);
    if (token) {
        curl.easy_setopt(e, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        curl.easy_setopt(e, CURLOPT_XOAUTH2_BEARER, token);
    }
    if (data) {
        curl.easy_setopt(e, CURLOPT_UPLOAD, 1L);
        curl.easy_setopt(e, CURLOPT_READFUNCTION, give);
        curl.easy_setopt(e, CURLOPT_READDATA, x);
        curl.easy_setopt(e, CURLOPT_SEEKFUNCTION, rewind_to);
        curl.easy_setopt(e, CURLOPT_SEEKDATA, x);
        curl.easy_setopt(e, CURLOPT_INFILESIZE_LARGE, (curl_off_t)bytes);
    } else if (!strcmp(method, "HEAD")) curl.easy_setopt(e, CURLOPT_NOBODY, 1L);
    if (strcmp(method, "HEAD")) curl.easy_setopt(e, CURLOPT_CUSTOMREQUEST, method);
    code = curl.easy_perform(e);
    curl.easy_getinfo(e, CURLINFO_RESPONSE_CODE, &x->status);
    curl.slist_free_all(list);
    pl_buffer_byte(&u->answer, 0);
    if (u->answer.failed) return PL_ENOMEM;
    u->answer.bytes--;
    if (!code) return PL_OK;
    if (!x->library[0]) snprintf(x->library, sizeof x->library, "%s", curl.easy_strerror(code));
    /* A wrong certificate or URL is the user's to repair; anything else may pass. */
    return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
                   code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT
               ? PL_EUSE
               : PL_EIO;
}

void upload_wait(double *wait)
{
    struct timespec t = { (time_t)*wait, (long)((*wait - (double)(time_t)*wait) * 1e9) };
    nanosleep(&t, NULL);
    *wait = 2 * *wait > WAIT_MAX_S ? WAIT_MAX_S : 2 * *wait;
}

int upload_is_temporary(int rc, const struct upload_reply *x)
{
    /* 408 timeout, 409 and 423 locked by another request, 429 too many, 5xx the server's own
     * trouble. */
    return rc == PL_EIO || x->status == 408 || x->status == 409 || x->status == 423 ||
           x->status == 429 || x->status >= 500;
}

int upload_complain(const struct upload *u, int rc, const struct upload_reply *x, const char *what)
{
    if (rc == PL_ENOMEM) return pl_fail(u->err, rc, "%.200s: no memory", u->path);
    if (rc) return pl_fail(u->err, PL_EIO, "%.200s: %s: %.200s", u->url, what, x->library);
    return pl_fail(u->err, PL_EIO, "%.200s: %s: the server answers %ld", u->url, what, x->status);
}

int upload_report(const struct upload *u, uint64_t done)
{
    if (!u->o->progress || !u->o->progress(u->o->context, done, u->file.bytes)) return PL_OK;
    return pl_fail(u->err, PL_EAGAIN, "%.200s: stopped", u->path);
}

int upload_again(const struct upload *u, int try, int rc, const struct upload_reply *x,
                 const char *what, uint64_t done)
{
    double wait = fmin(ldexp(u->o->wait_s, try), WAIT_MAX_S);
    if (!upload_is_temporary(rc, x) || try + 1 >= u->o->tries)
        return upload_complain(u, rc, x, what);
    if ((rc = upload_report(u, done))) return rc;
    upload_wait(&wait);
    return PL_OK;
}

int upload_insist(struct upload *u, struct upload_reply *x, const char *method, const char *url,
                  const char *const *headers, const void *data, size_t bytes, const char *what)
{
    for (int try = 0;; try++) {
        int rc = upload_ask(u, x, method, url, headers, data, bytes);
        if (!rc && x->status >= 200 && x->status < 300) return PL_OK;
        if ((rc = upload_again(u, try, rc, x, what, 0))) return rc;
    }
}

/* -- stored progress -------------------------------------------------------------------------- */

static void state_path(char *text, size_t capacity, const struct upload *u)
{
    snprintf(text, capacity, "%s.upload", u->path);
}

static int is_text(const json_t *object, const char *key, const char *want)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text && !strcmp(text, want);
}

json_t *upload_recall(struct upload *u)
{
    char path[4096];
    void *text;
    size_t n;
    json_t *state;
    state_path(path, sizeof path, u);
    if (access(path, R_OK) || pl_file_read(&text, &n, path, UPLOAD_ANSWER_MAX, NULL)) return NULL;
    state = pl_json_load(text, n, 0, NULL);
    free(text);
    /* State of another destination or of other bytes is not ours to continue. */
    if (is_text(state, "to", u->url) && is_text(state, "sha256", u->sha256)) return state;
    json_decref(state);
    return NULL;
}

int upload_remember(struct upload *u, json_t *state)
{
    char path[4096], *text = NULL;
    int rc;
    state_path(path, sizeof path, u);
    pl_json_begin();
    if (!json_object_set_new(state, "to", json_string(u->url)) &&
        !json_object_set_new(state, "sha256", json_string(u->sha256)))
        text = pl_json_text(state, JSON_INDENT(1));
    rc = text ? pl_file_write(path, text, strlen(text), u->err)
              : pl_fail(u->err, PL_ENOMEM, "%.200s: no memory", u->path);
    free(text);
    return rc;
}

void upload_forget(const struct upload *u)
{
    char path[4096];
    state_path(path, sizeof path, u);
    unlink(path);
}

/* -- in parts --------------------------------------------------------------------------------- */

/* Sends one part until the server has confirmed it by an ETag. 403, 404, 410: the upload has
 * expired there, so the caller begins a new one. */
static int send_part(struct upload *u, struct upload_reply *x, json_t *state, size_t part,
                     size_t piece, upload_part_fn *send)
{
    size_t at = part * piece, n = u->file.bytes - at < piece ? u->file.bytes - at : piece;
    for (int try = 0;; try++) {
        int rc = send(u, x, state, part, u->file.at + at, n);
        if (!rc && x->status >= 200 && x->status < 300 && x->tag[0]) return PL_OK;
        if (!rc && (x->status == 403 || x->status == 404 || x->status == 410)) {
            upload_complain(u, rc, x, "a part");
            return PL_ENOTFOUND;
        }
        if (!rc && x->status >= 200 && x->status < 300)
            return pl_fail(u->err, PL_EFORMAT, "%.200s: the server gives no ETag for a part",
                           u->url);
        if ((rc = upload_again(u, try, rc, x, "a part", at))) return rc;
    }
}

int upload_parts(struct upload *u, json_t *state, size_t piece, upload_part_fn *send)
{
    json_t *tags = json_object_get(state, "etags");
    size_t parts = u->file.bytes / piece + (u->file.bytes % piece != 0);
    int rc = PL_OK;
    for (size_t part = json_array_size(tags); !rc && part < parts; part++) {
        struct upload_reply x;
        if ((rc = upload_report(u, part * piece)) ||
            (rc = send_part(u, &x, state, part, piece, send)))
            break;
        if (json_array_append_new(tags, json_string(x.tag)))
            rc = pl_fail(u->err, PL_ENOMEM, "%.200s: no memory", u->path);
        else rc = upload_remember(u, state);
    }
    return rc;
}
