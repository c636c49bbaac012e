/* client_request.c - one range request: "bytes 1000 to 1999 of this URL". Each response must match
 * the first one in status, range, file size and ETag, and no byte beyond the range is accepted.
 * Redirects are followed here and not by libcurl, so that each one is a new request whose own URL
 * decides whether it may carry a token. */
#include "client_request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define REDIRECTS_MAX 5
#define REDIRECT_BODY_MAX 65536 /* bytes that are read past, so that the connection can be kept */
#define TRICKLE 100             /* bytes/s over stall_s: another connection may be better */

static int bad(struct request *r, int fatal, const char *why)
{
    r->bad = 1;
    r->fatal = fatal;
    snprintf(r->why, sizeof r->why, "%s", why);
    return 0; /* makes the library stop */
}

static int begins(const char *line, size_t n, const char *what)
{
    size_t k = strlen(what);
    return n > k && !strncasecmp(line, what, k);
}

static void heard(struct request *r)
{
    double now = pl_seconds();
    if (now - r->heard > r->silence) r->silence = now - r->heard;
    r->heard = now;
}

static size_t on_header(char *line, size_t size, size_t count, void *context)
{
    struct request *r = context;
    size_t n = size * count;
    char text[300];
    unsigned long long first, last, total;
    heard(r);
    snprintf(text, sizeof text, "%.*s", (int)(n < sizeof text - 1 ? n : sizeof text - 1), line);
    if (begins(text, n, "HTTP/")) { /* an interim answer (1xx) came before this one */
        r->has_range = 0;
        r->tag[0] = 0;
        r->retry_after = 0;
    } else if (begins(text, n, "retry-after:")) {
        r->retry_after = atof(text + 12); /* a date reads as 0 or as its day: no long wait */
    } else if (begins(text, n, "content-range:")) {
        r->has_range = sscanf(text + 14, " bytes %llu-%llu/%llu", &first, &last, &total) == 3 &&
                       first <= last && last < total;
        r->first = first;
        r->total = total;
    } else if (begins(text, n, "etag:")) {
        const char *value = text + 5 + strspn(text + 5, " \t");
        snprintf(r->tag, sizeof r->tag, "%.*s", (int)strcspn(value, "\r\n"), value);
    }
    return n;
}

static int is_redirect(long status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* Checks the response's header against the request, before any byte of the body is accepted. */
static int check_head(struct request *r)
{
    struct http_part *p = r->part;
    curl.easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &r->status);
    if (is_redirect(r->status)) return 1;
    /* small, and sent whole */
    if (r->status == 200 && p->at + p->got == 0 && !r->file->size) return 1;
    if (r->status == 200) return bad(r, 1, "the server does not answer requests for parts");
    if (r->status != 206) return 0;
    if (!r->has_range || r->first != p->at + p->got)
        return bad(r, 0, "the answer is about other bytes than were asked for");
    if (r->file->size && (r->total != r->file->size || strcmp(r->tag, r->file->tag)))
        return bad(r, 1, "the file has changed while it was being read");
    return 1;
}

static size_t on_data(char *data, size_t size, size_t count, void *context)
{
    struct request *r = context;
    struct http_part *p = r->part;
    size_t n = size * count;
    heard(r);
    if (!r->status && !check_head(r)) return 0;
    if (is_redirect(r->status)) {
        r->skipped += n;
        return r->skipped <= REDIRECT_BODY_MAX ? n
                                               : (size_t)bad(r, 1, "a redirect with a long body");
    }
    if (n > p->bytes - p->got)
        return (size_t)(r->status == 200
                            ? bad(r, 1, "the server does not answer requests for parts")
                            : bad(r, 0, "more bytes come than were asked for"));
    memcpy(p->data + p->got, data, n);
    p->got += n;
    return n;
}

/* -- requests --------------------------------------------------------------------------------- */

/* Requests the part's missing bytes from r->url. Redirects are not followed by libcurl but by
 * request_follow, so that each of them is a request of its own, which sees the token only if its
 * own URL may. */
void request_send(struct request *r)
{
    const struct http_client_options *o = r->options;
    char range[64];
    const char *token = http_token_for(r->url, o->credential, HTTP_CREDENTIALS_MAX);
    const struct http_part *part = r->part;
    CURL *e = r->easy;
    r->status = 0;
    r->has_range = r->bad = r->fatal = 0;
    r->tag[0] = r->library[0] = 0;
    r->heard = pl_seconds();
    r->silence = r->retry_after = 0;
    r->skipped = 0;
    curl.easy_reset(e); /* keeps the connection */
    curl.easy_setopt(e, CURLOPT_URL, r->url);
    curl.easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl.easy_setopt(e, CURLOPT_USERAGENT, "potluck/" PL_VERSION);
    curl.easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl.easy_setopt(e, CURLOPT_CONNECTTIMEOUT, (long)o->stall_s);
    curl.easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, (long)TRICKLE);
    curl.easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)o->stall_s);
    curl.easy_setopt(e, CURLOPT_ERRORBUFFER, r->library);
    curl.easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    curl.easy_setopt(e, CURLOPT_HEADERDATA, r);
    curl.easy_setopt(e, CURLOPT_WRITEFUNCTION, on_data);
    curl.easy_setopt(e, CURLOPT_WRITEDATA, r);
    curl.easy_setopt(e, CURLOPT_PRIVATE, r);
    if (token) {
        curl.easy_setopt(e, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        curl.easy_setopt(e, CURLOPT_XOAUTH2_BEARER, token);
    }
    if (o->ca_file) curl.easy_setopt(e, CURLOPT_CAINFO, o->ca_file);
    snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)(part->at + part->got),
             (unsigned long long)(part->at + part->bytes - 1));
    curl.easy_setopt(e, CURLOPT_RANGE, range);
    curl.multi_add_handle(r->multi, e);
}

int request_follow(struct request *r, CURLcode code)
{
    const char *target = NULL;
    if (code || r->bad) return 0;
    curl.easy_getinfo(r->easy, CURLINFO_REDIRECT_URL, &target);
    if (!target) return 0;
    if (strlen(target) >= sizeof r->url) return bad(r, 1, "a redirect too long");
    if (++r->redirects > REDIRECTS_MAX) return bad(r, 1, "too many redirects");
    snprintf(r->url, sizeof r->url, "%s", target);
    curl.multi_remove_handle(r->multi, r->easy);
    request_send(r);
    return 1;
}

int request_is_passing(const struct request *r, CURLcode code)
{
    if (r->bad) return !r->fatal;
    if (r->status >= 400) return r->status == 408 || r->status == 429 || r->status >= 500;
    return code != CURLE_URL_MALFORMAT && code != CURLE_UNSUPPORTED_PROTOCOL &&
           code != CURLE_PEER_FAILED_VERIFICATION && code != CURLE_SSL_CACERT_BADFILE;
}
