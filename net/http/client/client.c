/* client.c - see client.h. Each part is tried again by itself, when its own pause is over, and the
 * others go on. A connection that has fallen silent is given up soon where the server's answers are
 * quick, and only after stall_s where they are slow. */
#include "client.h"
#include "net/http/libraries.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define REDIRECTS_MAX 5
#define REDIRECT_BODY_MAX 65536 /* bytes that are read past, so that the connection can be kept */
#define FIRST_TRIES 6           /* of who has never brought a byte: its name may be wrong */
#define WAIT_MAX_S 60.0
#define POLL_MS 200
#define QUIET_S \
    3.0                 /* the least silence that is taken for a broken connection: a lost packet is
                         * sent again within a second or two */
#define QUIET_RATIO 4.0 /* the silence that is given up, of the longest that ended by itself */
#define QUIET_DECAY 0.75 /* with each answer, as an outage is over */
#define TRICKLE 100      /* bytes/s over stall_s: another connection may be better */
#define MUCH_BYTES 4096  /* a broken answer that brought so many is continued at once */

/* One request under way. */
struct request {
    CURL *easy;
    struct http_part *part; /* NULL: idle */
    struct attempt *attempt;
    const struct http_file *file;
    char url[HTTP_URL_MAX]; /* the file's, or where a redirect has led */
    int redirects;          /* so far */
    size_t skipped;         /* bytes of a redirect's body */
    long status;            /* of the answer at hand */
    uint64_t first, total;  /* its Content-Range */
    size_t had;             /* bytes of the part when it began */
    double heard, silence;  /* when something came last; the longest wait for something, s */
    double retry_after;     /* s, as the server requests; 0: it says nothing */
    int has_range, bad;     /* bad: the sentence is in why, */
    int fatal;              /* and no other try mends it */
    char tag[HTTP_TAG_MAX], why[200], library[CURL_ERROR_SIZE];
};

/* How a part fares. */
struct attempt {
    int bare;     /* tries in a row without a byte */
    double wait;  /* before the next one, s */
    double after; /* not before this time */
    int is_active;
};

struct http_client {
    struct http_client_options o;
    CURLM *multi;
    double quiet;      /* a connection that is silent for longer is given up, s */
    double not_before; /* a busy server named this time */
    int has_brought;   /* it has brought something at some time */
    struct request request[HTTP_CLIENT_CONNECTIONS_MAX];
};

struct http_client_options http_client_options(void)
{
    return (
        struct http_client_options){ .connections = 4, .tries = 12, .wait_s = 0.5, .stall_s = 20 };
}

static double least_silence(const struct http_client *c) { return fmin(c->o.stall_s, QUIET_S); }

int http_client_open(struct http_client **out, const struct http_client_options *options,
                     struct pl_err *err)
{
    struct http_client *c;
    int rc = curl_load(err);
    *out = NULL;
    if (rc) return rc;
    if (!(c = calloc(1, sizeof *c))) return pl_fail(err, PL_ENOMEM, "HTTP: no memory");
    c->o = *options;
    c->quiet = least_silence(c);
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

/* Whether the answer's head is what was asked for; looked at before any of its bytes is taken. */
static int check_head(struct request *r)
{
    struct http_part *p = r->part;
    curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &r->status);
    if (is_redirect(r->status)) return 1;
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
    heard(r);
    if (!r->status && !check_head(r)) return 0;
    if (is_redirect(r->status)) {
        r->skipped += n;
        return r->skipped <= REDIRECT_BODY_MAX ? n : bad(r, 1, "a redirect with a long body");
    }
    if (n > p->bytes - p->got)
        return r->status == 200 ? bad(r, 1, "the server does not answer requests for parts")
                                : bad(r, 0, "more bytes come than were asked for");
    memcpy(p->data + p->got, data, n);
    p->got += n;
    return n;
}

/* -- requests --------------------------------------------------------------------------------- */

/* Asks r->url for what the part lacks. Redirects are not followed by libcurl but by follow(), so
 * that each of them is a request of its own, which sees the token only if its own URL may. */
static void send_request(struct http_client *c, struct request *r)
{
    char range[64];
    const char *token = http_token_for(r->url, c->o.credential, HTTP_CREDENTIALS_MAX);
    const struct http_part *part = r->part;
    CURL *e = r->easy;
    r->status = 0;
    r->has_range = r->bad = r->fatal = 0;
    r->tag[0] = r->library[0] = 0;
    r->heard = pl_seconds();
    r->silence = r->retry_after = 0;
    r->skipped = 0;
    curl_easy_reset(e); /* keeps the connection */
    curl_easy_setopt(e, CURLOPT_URL, r->url);
    curl_easy_setopt(e, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(e, CURLOPT_USERAGENT, "potluck/" PL_VERSION);
    curl_easy_setopt(e, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(e, CURLOPT_CONNECTTIMEOUT, (long)c->o.stall_s);
    curl_easy_setopt(e, CURLOPT_LOW_SPEED_LIMIT, (long)TRICKLE);
    curl_easy_setopt(e, CURLOPT_LOW_SPEED_TIME, (long)c->o.stall_s);
    curl_easy_setopt(e, CURLOPT_ERRORBUFFER, r->library);
    curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(e, CURLOPT_HEADERDATA, r);
    curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(e, CURLOPT_WRITEDATA, r);
    curl_easy_setopt(e, CURLOPT_PRIVATE, r);
    if (token) {
        curl_easy_setopt(e, CURLOPT_HTTPAUTH, (long)CURLAUTH_BEARER);
        curl_easy_setopt(e, CURLOPT_XOAUTH2_BEARER, token);
    }
    if (c->o.ca_file) curl_easy_setopt(e, CURLOPT_CAINFO, c->o.ca_file);
    snprintf(range, sizeof range, "%llu-%llu", (unsigned long long)(part->at + part->got),
             (unsigned long long)(part->at + part->bytes - 1));
    curl_easy_setopt(e, CURLOPT_RANGE, range);
    curl_multi_add_handle(c->multi, e);
}

static void start(struct http_client *c, struct request *r, const struct http_file *file,
                  struct http_part *part, struct attempt *attempt)
{
    r->part = part;
    r->attempt = attempt;
    r->file = file;
    r->redirects = 0;
    r->had = part->got;
    memcpy(r->url, file->url, sizeof r->url);
    attempt->is_active = 1;
    send_request(c, r);
}

/* 1: the answer was a redirect, and its target has been asked. */
static int follow(struct http_client *c, struct request *r, CURLcode code)
{
    const char *target = NULL;
    if (code || r->bad) return 0;
    curl_easy_getinfo(r->easy, CURLINFO_REDIRECT_URL, &target);
    if (!target) return 0;
    if (++r->redirects > REDIRECTS_MAX || strlen(target) >= sizeof r->url) {
        bad(r, 1, strlen(target) < sizeof r->url ? "too many redirects" : "a redirect too long");
        return 0;
    }
    snprintf(r->url, sizeof r->url, "%s", target);
    curl_multi_remove_handle(c->multi, r->easy);
    send_request(c, r);
    return 1;
}

/* What may pass by itself: the net's troubles, a server that is busy. */
static int is_passing(const struct request *r, CURLcode code)
{
    if (r->bad) return !r->fatal;
    if (r->status >= 400) return r->status == 408 || r->status == 429 || r->status >= 500;
    return code != CURLE_URL_MALFORMAT && code != CURLE_UNSUPPORTED_PROTOCOL &&
           code != CURLE_PEER_FAILED_VERIFICATION && code != CURLE_SSL_CACERT_BADFILE;
}

struct round {
    int fatal;    /* a request failed in a way that no other try mends */
    int answered; /* of a file whose size was not known: it is now */
    char why[HTTP_URL_MAX / 8];
};

/* When the part may be asked for again, after a request that did not complete it. */
static void plan_next(struct http_client *c, const struct request *r)
{
    struct attempt *a = r->attempt;
    double now = pl_seconds(), asked = fmin(r->retry_after, WAIT_MAX_S);
    size_t came = r->part->got - r->had;
    if (came) {
        a->bare = 0;
        a->wait = c->o.wait_s;
        a->after = came < MUCH_BYTES ? now + a->wait : now;
        return;
    }
    a->bare++;
    a->after = now + a->wait;
    a->wait = fmin(2 * a->wait, WAIT_MAX_S);
    if (r->status >= 400 && asked > 0) { /* the whole server is busy, not this part alone */
        c->not_before = fmax(c->not_before, now + asked);
        a->after = fmax(a->after, c->not_before);
    }
}

/* A request has ended, or is given up; its part may be complete or not. */
static void finish(struct http_client *c, struct request *r, CURLcode code, struct round *round)
{
    struct http_part *p = r->part;
    curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &r->status);
    curl_multi_remove_handle(c->multi, r->easy);
    r->part = NULL;
    r->attempt->is_active = 0;
    /* What waited for long and came yet is how slow this server is. */
    if (!code) {
        double quiet = fmax(QUIET_RATIO * r->silence, QUIET_DECAY * c->quiet);
        c->quiet = fmin(fmax(quiet, least_silence(c)), c->o.stall_s);
    }
    /* Of an answer that knows no ranges only the whole counts: where a full buffer ends, the file
     * goes on perhaps. */
    int complete = r->status == 200 ? !code && !r->file->size : p->got == p->bytes;
    if (p->got > r->had || complete) c->has_brought = 1;
    round->answered = !r->file->size && !r->bad &&
                      (complete || (r->status == 206 && r->has_range && p->got));
    if (complete || round->answered) return;
    /* of a whole answer that broke there is nothing to go on from */
    if (r->status == 200 && !r->bad) p->got = r->had = 0;
    if (r->bad) snprintf(round->why, sizeof round->why, "%s", r->why);
    else if (r->status == 416 && !r->file->size) /* no first byte to ask for */
        snprintf(round->why, sizeof round->why, "an empty file");
    else if (r->status >= 400 || (r->status && r->status != 200 && r->status != 206))
        snprintf(round->why, sizeof round->why, "the server answers %ld", r->status);
    else
        snprintf(round->why, sizeof round->why, "%.200s",
                 r->library[0] ? r->library
                 : code        ? curl_easy_strerror(code)
                               : "the answer ends too early");
    if (!is_passing(r, code)) round->fatal = 1;
    r->part = p;
    plan_next(c, r);
    r->part = NULL;
}

/* Gives up who has been silent for too long. */
static int give_up_the_silent(struct http_client *c, struct round *round)
{
    double now = pl_seconds();
    int count = 0;
    for (int i = 0; i < c->o.connections; i++) {
        struct request *r = &c->request[i];
        if (!r->part || now - r->heard < c->quiet) continue;
        snprintf(r->library, sizeof r->library, "nothing came for %.0f s", now - r->heard);
        /* Before its first byte the server may just be slow: it gets longer the next time. */
        if (r->part->got == r->had) c->quiet = fmin(2 * c->quiet, c->o.stall_s);
        finish(c, r, CURLE_OPERATION_TIMEDOUT, round);
        count++;
    }
    return count;
}

static int is_stopped(const struct http_client *c)
{
    return c->o.stopped && c->o.stopped(c->o.context);
}

static int tries_of(const struct http_client *c)
{
    return !c->has_brought && c->o.tries > FIRST_TRIES ? FIRST_TRIES : c->o.tries;
}

/* Begins what may begin. *complete: nothing is left to do. PL_EIO: a part has had all its tries. */
static int begin_some(struct http_client *c, const struct http_file *file, struct http_part *parts,
                      struct attempt *attempts, int count, int *active, int *complete)
{
    double now = pl_seconds();
    int free_one = 0;
    *complete = 1;
    for (int k = 0; k < count; k++) {
        struct attempt *a = &attempts[k];
        if (!a->is_active && parts[k].got == parts[k].bytes) continue;
        *complete = 0;
        if (a->is_active || now < a->after || now < c->not_before) continue;
        if (a->bare >= tries_of(c)) return PL_EIO;
        while (free_one < c->o.connections && c->request[free_one].part) free_one++;
        if (free_one == c->o.connections) continue;
        start(c, &c->request[free_one], file, &parts[k], a);
        ++*active;
    }
    return PL_OK;
}

static void stop_all(struct http_client *c)
{
    for (int i = 0; i < c->o.connections; i++) {
        if (!c->request[i].part) continue;
        curl_multi_remove_handle(c->multi, c->request[i].easy);
        c->request[i].part = NULL;
    }
}

/* All parts, until they are complete (or, of a file whose size is not known yet, answered once). */
static int fetch(struct http_client *c, const struct http_file *file, struct http_part *parts,
                 int count, struct pl_err *err)
{
    struct attempt attempts[HTTP_CLIENT_CONNECTIONS_MAX];
    struct round round = { 0 };
    int active = 0, running, left, complete = 0, rc = PL_OK;
    for (int k = 0; k < count; k++) attempts[k] = (struct attempt){ .wait = c->o.wait_s };
    while (!rc && !complete) {
        CURLMsg *m;
        if (is_stopped(c)) {
            rc = pl_fail(err, PL_EAGAIN, "%.300s: stopped", file->url);
            break;
        }
        if (begin_some(c, file, parts, attempts, count, &active, &complete))
            rc = pl_fail(err, PL_EIO, "%.300s: %.150s (%d tries)", file->url, round.why,
                         tries_of(c));
        if (rc || complete) break;
        if (curl_multi_perform(c->multi, &running)) {
            rc = pl_fail(err, PL_EIO, "%.300s: no memory", file->url);
            break;
        }
        while ((m = curl_multi_info_read(c->multi, &left))) {
            char *context = NULL;
            if (m->msg != CURLMSG_DONE) continue;
            CURLcode code = m->data.result;
            curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &context);
            if (follow(c, (struct request *)(void *)context, code)) continue;
            finish(c, (struct request *)(void *)context, code, &round);
            active--;
            /* A first answer has told the size, cut or not: what is missing is asked for as a part
             * of a known file. */
            complete = round.answered;
        }
        active -= give_up_the_silent(c, &round);
        if (round.fatal) rc = pl_fail(err, PL_EIO, "%.300s: %.150s", file->url, round.why);
        else if (!complete)
            curl_multi_poll(c->multi, NULL, 0, active ? POLL_MS : POLL_MS / 4, NULL);
    }
    stop_all(c);
    return rc;
}

int http_client_parts(struct http_client *c, const struct http_file *file, struct http_part *parts,
                      int count, struct pl_err *err)
{
    int rc = PL_OK;
    for (int at = 0; at < count && !rc; at += HTTP_CLIENT_CONNECTIONS_MAX) {
        int n = count - at < HTTP_CLIENT_CONNECTIONS_MAX ? count - at : HTTP_CLIENT_CONNECTIONS_MAX;
        rc = fetch(c, file, parts + at, n, err);
    }
    return rc;
}

int http_client_begin(struct http_client *c, struct http_file *file, uint8_t *data, size_t *got,
                      size_t capacity, const char *url, struct pl_err *err)
{
    struct http_part part = { .bytes = capacity, .data = data };
    const struct request *r = &c->request[0]; /* one part alone takes the first */
    int rc;
    memset(file, 0, sizeof *file);
    *got = 0;
    if (strlen(url) >= sizeof file->url)
        return pl_fail(err, PL_ELIMIT, "%.100s...: a URL of %zu characters", url, strlen(url));
    snprintf(file->url, sizeof file->url, "%s", url);
    if ((rc = fetch(c, file, &part, 1, err))) return rc;
    file->size = r->has_range ? r->total : part.got;
    memcpy(file->tag, r->tag, sizeof file->tag);
    if (!file->size) return pl_fail(err, PL_EFORMAT, "%.300s: an empty file", url);
    part.bytes = file->size < capacity ? (size_t)file->size : capacity;
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
    struct http_file file;
    uint8_t *text = malloc(limit + 1);
    int rc = text ? http_client_begin(c, &file, text, bytes, limit, url, err)
                  : pl_fail(err, PL_ENOMEM, "%.300s: no memory", url);
    *data = NULL;
    if (!rc && file.size > limit)
        rc = pl_fail(err, PL_ELIMIT, "%.300s: %llu bytes, at most %zu were expected", url,
                     (unsigned long long)file.size, limit);
    if (rc) {
        free(text);
        *bytes = 0;
        return rc;
    }
    text[*bytes] = 0;
    *data = realloc(text, *bytes + 1);
    if (!*data) *data = text;
    return PL_OK;
}
