/* client.c - see client.h. */
#include "client.h"
#include "libraries.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define REDIRECTS_MAX 5
#define WAIT_MAX_S 60.0
#define POLL_MS 200

/* One request under way. */
struct request {
    CURL *easy;
    struct http_part *part; /* NULL: idle */
    const struct http_file *file;
    long status;            /* of the answer at hand */
    uint64_t first, total;  /* its Content-Range */
    int has_range, bad;     /* bad: the sentence is in why, */
    int fatal;              /* and no other try mends it */
    char tag[HTTP_TAG_MAX], why[200], library[CURL_ERROR_SIZE];
    int whole;              /* 1: no range was asked for, 200 is right */
};

struct http_client {
    struct http_client_options o;
    CURLM *multi;
    struct request request[HTTP_CLIENT_CONNECTIONS_MAX];
};

struct http_client_options http_client_options(void)
{
    return (struct http_client_options){
        .connections = 4, .tries = 6, .wait_s = 0.5, .stall_s = 20
    };
}

int http_client_open(struct http_client **out, const struct http_client_options *options,
                     struct pl_err *err)
{
    struct http_client *c;
    int rc = curl_load(err);
    *out = NULL;
    if (rc) return rc;
    if (!(c = calloc(1, sizeof *c))) return pl_fail(err, PL_ENOMEM, "HTTP: no memory");
    c->o = *options;
    if (c->o.connections < 1) c->o.connections = 1;
    if (c->o.connections > HTTP_CLIENT_CONNECTIONS_MAX)
        c->o.connections = HTTP_CLIENT_CONNECTIONS_MAX;
    c->multi = curl_multi_init();
    for (int i = 0; c->multi && i < c->o.connections; i++)
        if (!(c->request[i].easy = curl_easy_init())) {
            http_client_close(c);
            return pl_fail(err, PL_ENOMEM, "HTTP: no memory");
        }
    if (!c->multi) {
        http_client_close(c);
        return pl_fail(err, PL_ENOMEM, "HTTP: no memory");
    }
    *out = c;
    return PL_OK;
}

void http_client_close(struct http_client *c)
{
    if (!c) return;
    for (int i = 0; i < HTTP_CLIENT_CONNECTIONS_MAX; i++) {
        if (c->request[i].part) curl_multi_remove_handle(c->multi, c->request[i].easy);
        curl_easy_cleanup(c->request[i].easy);
    }
    if (c->multi) curl_multi_cleanup(c->multi);
    free(c);
}

/* -- an answer -------------------------------------------------------------------------------- */

static size_t bad(struct request *r, int fatal, const char *why)
{
    r->bad = 1;
    r->fatal = fatal;
    snprintf(r->why, sizeof r->why, "%s", why);
    return 0; /* what makes the library stop */
}

static int begins(const char *line, size_t n, const char *what)
{
    size_t k = strlen(what);
    return n > k && !strncasecmp(line, what, k);
}

static size_t on_header(char *line, size_t size, size_t count, void *context)
{
    struct request *r = context;
    size_t n = size * count;
    char text[300];
    unsigned long long first, last, total;
    snprintf(text, sizeof text, "%.*s", (int)(n < sizeof text - 1 ? n : sizeof text - 1), line);
    if (begins(text, n, "HTTP/")) { /* a redirection was followed: this is another answer */
        r->has_range = 0;
        r->tag[0] = 0;
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

/* Whether the answer's head is what was asked for; looked at before any of its bytes is taken. */
static int check_head(struct request *r)
{
    struct http_part *p = r->part;
    curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &r->status);
    if (r->whole) return r->status == 200;
    /* small, and sent whole */
    if (r->status == 200 && p->at + p->got == 0 && !r->file->size) return 1;
    if (r->status == 200) {
        bad(r, 1, "the server does not answer requests for parts");
        return 0;
    }
    if (r->status != 206) return 0;
    if (!r->has_range || r->first != p->at + p->got) {
        bad(r, 0, "the answer is about other bytes than were asked for");
        return 0;
    }
    if (r->file->size && (r->total != r->file->size || strcmp(r->tag, r->file->tag))) {
        bad(r, 1, "the file has changed while it was being read");
        return 0;
    }
    return 1;
}

static size_t on_data(char *data, size_t size, size_t count, void *context)
{
    struct request *r = context;
    struct http_part *p = r->part;
    size_t n = size * count;
    if (!r->status && !check_head(r)) return 0;
    if (n > p->bytes - p->got)
        return r->whole || r->status == 200
                   ? bad(r, 1,
                         r->whole ? "the file is too long"
                                  : "the server does not answer requests for parts")
                   : bad(r, 0, "more bytes come than were asked for");
    memcpy(p->data + p->got, data, n);
    p->got += n;
    return n;
}

/* -- requests --------------------------------------------------------------------------------- */

static int on_progress(void *context, curl_off_t a, curl_off_t b, curl_off_t d, curl_off_t e)
{
    struct http_client *c = context;
    (void)a, (void)b, (void)d, (void)e;
    return c->o.stopped && c->o.stopped(c->o.context);
}

static void start(struct http_client *c, struct request *r, const struct http_file *file,
                  struct http_part *part, int whole)
{
    char range[64];
    CURL *e = r->easy;
    r->part = part;
    r->file = file;
    r->whole = whole;
    r->status = 0;
    r->has_range = r->bad = r->fatal = 0;
    r->tag[0] = r->library[0] = 0;
    curl_easy_reset(e); /* keeps the connection */
    curl_easy_setopt(e, CURLOPT_URL, file->url);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(e, CURLOPT_MAXREDIRS, (long)REDIRECTS_MAX);
    curl_easy_setopt(e, CURLOPT_USERAGENT, "potluck/" PL_VERSION);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT, (long)c->o.stall_s);
    curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, 1L);
    curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)c->o.stall_s);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, r->library);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, r);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, r);
    curl_easy_setopt(e, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(e, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(e, CURLOPT_XFERINFODATA, c);
    curl_easy_setopt(e, CURLOPT_PRIVATE, r);
    if (c->o.token) {
        curl_easy_setopt(e, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        curl_easy_setopt(e, CURLOPT_XOAUTH2_BEARER, c->o.token);
    }
    if (!whole) {
        snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)(part->at + part->got),
                 (unsigned long long)(part->at + part->bytes - 1));
        curl_easy_setopt(e, CURLOPT_RANGE, range);
    }
    curl_multi_add_handle(c->multi, e);
}

/* What may pass by itself: the net's troubles, a server that is busy. */
static int is_passing(const struct request *r, CURLcode code)
{
    if (r->bad) return !r->fatal;
    if (r->status >= 400) return r->status == 408 || r->status == 429 || r->status >= 500;
    return code != CURLE_URL_MALFORMAT && code != CURLE_UNSUPPORTED_PROTOCOL &&
           code != CURLE_TOO_MANY_REDIRECTS && code != CURLE_PEER_FAILED_VERIFICATION;
}

static void pause_for(struct http_client *c, double seconds)
{
    double until = pl_seconds() + seconds;
    while (pl_seconds() < until && !(c->o.stopped && c->o.stopped(c->o.context))) {
        struct timespec t = { 0, 50 * 1000000 };
        nanosleep(&t, NULL);
    }
}

struct round {
    int bare;              /* tries in a row without a byte */
    int fatal;             /* a request failed in a way that no other try mends */
    char why[HTTP_URL_MAX / 8];
};

/* A request has ended; its part may be complete or not. */
static void finish(struct http_client *c, struct request *r, CURLcode code, struct round *round)
{
    struct http_part *p = r->part;
    curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &r->status);
    curl_multi_remove_handle(c->multi, r->easy);
    r->part = NULL;
    /* an empty file: nobody called on_data */
    int empty = !code && r->whole && r->status == 200 && !p->got;
    /* Of an answer that knows no ranges only the whole counts: where a full buffer ends, the file
     * goes on perhaps. */
    int complete = r->status == 200 ? !code && (r->whole || !r->file->size) : p->got == p->bytes;
    if (complete || empty) return;
    if (r->bad) snprintf(round->why, sizeof round->why, "%s", r->why);
    else if (r->status >= 400 || (r->status && r->status != 200 && r->status != 206))
        snprintf(round->why, sizeof round->why, "the server answers %ld", r->status);
    else if (!code && r->status == 206 && !r->file->size) return; /* shorter than the first request */
    else snprintf(round->why, sizeof round->why, "%.200s", r->library[0] ? r->library
                                                           : code ? curl_easy_strerror(code)
                                                                  : "the answer ends too early");
    if (!is_passing(r, code)) round->fatal = 1;
}

/* One try of every part that is not complete. */
static int try_once(struct http_client *c, const struct http_file *file, struct http_part *parts,
                    int count, int whole, struct round *round)
{
    int next = 0, running = 0, busy = 0;
    for (;;) {
        CURLMsg *m;
        int left;
        for (int i = 0; i < c->o.connections && !round->fatal; i++) {
            while (next < count && parts[next].got == parts[next].bytes && parts[next].bytes)
                next++;
            if (c->request[i].part || next >= count) continue;
            start(c, &c->request[i], file, &parts[next++], whole);
            busy++;
        }
        if (!busy) return PL_OK;
        if (curl_multi_perform(c->multi, &running)) return PL_EIO;
        while ((m = curl_multi_info_read(c->multi, &left))) {
            char *context = NULL;
            if (m->msg != CURLMSG_DONE) continue;
            CURLcode code = m->data.result;
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &context);
            finish(c, (struct request *)(void *)context, code, round);
            busy--;
        }
        if (busy) curl_multi_poll(c->multi, NULL, 0, POLL_MS, NULL);
    }
}

static size_t all_got(const struct http_part *parts, int count, int *complete)
{
    size_t sum = 0;
    *complete = 1;
    for (int i = 0; i < count; i++) {
        sum += parts[i].got;
        *complete &= parts[i].got == parts[i].bytes;
    }
    return sum;
}

int http_client_parts(struct http_client *c, const struct http_file *file, struct http_part *parts,
                      int count, struct pl_err *err)
{
    struct round round = { 0 };
    double wait = c->o.wait_s;
    int complete;
    size_t had = all_got(parts, count, &complete);
    while (!complete) {
        int rc = try_once(c, file, parts, count, 0, &round);
        size_t got = all_got(parts, count, &complete);
        if (complete) break;
        if (c->o.stopped && c->o.stopped(c->o.context))
            return pl_fail(err, PL_EAGAIN, "%s: stopped", file->url);
        if (rc || round.fatal)
            return pl_fail(err, PL_EIO, "%.300s: %.150s", file->url, rc ? "no memory" : round.why);
        if (got > had) { /* something came: the next try is the first again */
            had = got;
            round.bare = 0;
            wait = c->o.wait_s;
        } else if (++round.bare >= c->o.tries)
            return pl_fail(err, PL_EIO, "%.300s: %.150s (%d tries)", file->url, round.why,
                           c->o.tries);
        pause_for(c, wait);
        if (round.bare) wait = 2 * wait > WAIT_MAX_S ? WAIT_MAX_S : 2 * wait;
    }
    return PL_OK;
}

/* A request without knowing the size; what the answer says of it stays in request[0]. */
static int first_request(struct http_client *c, struct http_file *file, struct http_part *part,
                         int whole, const char *url, struct pl_err *err)
{
    double wait = c->o.wait_s;
    memset(file, 0, sizeof *file);
    if (strlen(url) >= sizeof file->url)
        return pl_fail(err, PL_ELIMIT, "%.100s...: a URL of %zu characters", url, strlen(url));
    snprintf(file->url, sizeof file->url, "%s", url);
    for (int try = 0; try < c->o.tries; try++) {
        struct round round = { 0 };
        struct request *r = &c->request[0];
        int rc;
        part->got = 0;
        rc = try_once(c, file, part, 1, whole, &round);
        if (!rc && !round.why[0]) return PL_OK;
        /* A cut answer has told the size already; the rest is asked for as a part of a known
         * file. */
        if (!rc && !whole && !round.fatal && part->got && r->has_range) return PL_OK;
        if (c->o.stopped && c->o.stopped(c->o.context))
            return pl_fail(err, PL_EAGAIN, "%.300s: stopped", url);
        if (rc || round.fatal || try + 1 == c->o.tries)
            return pl_fail(err, PL_EIO, "%.300s: %.150s%s", url, rc ? "no memory" : round.why,
                           round.fatal ? "" : ", again and again");
        pause_for(c, wait);
        wait = 2 * wait > WAIT_MAX_S ? WAIT_MAX_S : 2 * wait;
    }
    return pl_fail(err, PL_EIO, "%.300s: no answer", url);
}

int http_client_begin(struct http_client *c, struct http_file *file, uint8_t *data, size_t *got,
                      size_t room, const char *url, struct pl_err *err)
{
    struct http_part part = { .bytes = room, .data = data };
    const struct request *r = &c->request[0];
    int rc = first_request(c, file, &part, 0, url, err);
    *got = 0;
    if (rc) return rc;
    file->size = r->has_range ? r->total : part.got;
    memcpy(file->tag, r->tag, sizeof file->tag);
    if (!file->size) return pl_fail(err, PL_EFORMAT, "%.300s: an empty file", url);
    part.bytes = file->size < room ? (size_t)file->size : room;
    if (part.got > part.bytes)
        return pl_fail(err, PL_EFORMAT,
                       "%.300s: more bytes came than the file has by its own account", url);
    if (part.got < part.bytes) rc = http_client_parts(c, file, &part, 1, err);
    *got = part.got;
    return rc;
}

int http_client_get(struct http_client *c, void **data, size_t *bytes, size_t limit,
                    const char *url, struct pl_err *err)
{
    struct http_part part = { .bytes = limit, .data = malloc(limit + 1) };
    struct http_file file;
    int rc = part.data ? first_request(c, &file, &part, 1, url, err)
                       : pl_fail(err, PL_ENOMEM, "%.300s: no memory", url);
    *data = NULL;
    *bytes = 0;
    if (rc) {
        free(part.data);
        return rc;
    }
    part.data[part.got] = 0;
    *data = realloc(part.data, part.got + 1);
    if (!*data) *data = part.data;
    *bytes = part.got;
    return PL_OK;
}
