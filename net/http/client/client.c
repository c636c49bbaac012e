/* client.c - fetches parts of a file over several connections at once. Each part is tried again
 * by itself, when its own pause is over, and the others go on. A connection that has fallen
 * silent is given up soon where the server's answers are quick, and only after stall_s where
 * they are slow. */
#include "client.h"
#include "client_request.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_TRIES 6 /* of a server that has never sent a byte: its name may be wrong */
#define WAIT_MAX_S 60.0
#define POLL_MS 200
#define QUIET_S \
    3.0                 /* the least silence that is taken for a broken connection: a lost packet is
                         * sent again within a second or two */
#define QUIET_RATIO 4.0 /* the silence that is given up, of the longest that ended by itself */
#define QUIET_DECAY 0.75 /* with each answer, as an outage is over */
#define MUCH_BYTES 4096  /* a broken response with at least this many bytes is continued at once */

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
    int rc = curl_load(err), has_all;
    *out = NULL;
    if (rc) return rc;
    if (!(c = calloc(1, sizeof *c))) return pl_fail(err, PL_ENOMEM, "HTTP: no memory");
    c->o = *options;
    c->quiet = least_silence(c);
    if (c->o.connections < 1) c->o.connections = 1;
    if (c->o.connections > HTTP_CLIENT_CONNECTIONS_MAX)
        c->o.connections = HTTP_CLIENT_CONNECTIONS_MAX;
    c->multi = curl.multi_init();
    has_all = c->multi != NULL;
    for (int i = 0; i < c->o.connections; i++) {
        c->request[i].multi = c->multi;
        c->request[i].options = &c->o;
        has_all &= (c->request[i].easy = curl.easy_init()) != NULL;
    }
    if (!has_all) {
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
        if (c->request[i].part) curl.multi_remove_handle(c->multi, c->request[i].easy);
        curl.easy_cleanup(c->request[i].easy);
    }
    if (c->multi) curl.multi_cleanup(c->multi);
    free(c);
}

static void start(struct request *r, const struct http_file *file, struct http_part *part,
                  struct attempt *attempt)
{
    r->part = part;
    r->attempt = attempt;
    r->file = file;
    r->redirects = 0;
    r->had = part->got;
    memcpy(r->url, file->url, sizeof r->url);
    attempt->is_active = 1;
    request_send(r);
}

struct round {
    int fatal;    /* a request failed in a way that no other try mends */
    int answered; /* the size of the file, which was unknown, is known now */
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
    curl.easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &r->status);
    curl.multi_remove_handle(c->multi, r->easy);
    r->part = NULL;
    r->attempt->is_active = 0;
    /* A slow request that succeeded shows how slow this server is. */
    if (!code) {
        double quiet = fmax(QUIET_RATIO * r->silence, QUIET_DECAY * c->quiet);
        c->quiet = fmin(fmax(quiet, least_silence(c)), c->o.stall_s);
    }
    /* An answer without ranges counts only as a whole: if it fills the buffer, the file may be
     * longer. */
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
                 : code        ? curl.easy_strerror(code)
                               : "the answer ends too early");
    if (!request_is_passing(r, code)) round->fatal = 1;
    r->part = p;
    plan_next(c, r);
    r->part = NULL;
}

/* Gives up connections that have been silent for too long. */
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

/* Starts the requests that may start. *complete: nothing is left to do. PL_EIO: a part has used up
 * its tries. */
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
        start(&c->request[free_one], file, &parts[k], a);
        ++*active;
    }
    return PL_OK;
}

static void stop_all(struct http_client *c)
{
    for (int i = 0; i < c->o.connections; i++) {
        if (!c->request[i].part) continue;
        curl.multi_remove_handle(c->multi, c->request[i].easy);
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
        if (curl.multi_perform(c->multi, &running)) {
            rc = pl_fail(err, PL_EIO, "%.300s: no memory", file->url);
            break;
        }
        while ((m = curl.multi_info_read(c->multi, &left))) {
            char *context = NULL;
            if (m->msg != CURLMSG_DONE) continue;
            CURLcode code = m->data.result;
            curl.easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &context);
            if (request_follow((struct request *)(void *)context, code)) continue;
            finish(c, (struct request *)(void *)context, code, &round);
            active--;
            /* The first response has the size, even if it was cut off: the rest is then requested
             * as a part of a known file. */
            complete = round.answered;
        }
        active -= give_up_the_silent(c, &round);
        if (round.fatal) rc = pl_fail(err, PL_EIO, "%.300s: %.150s", file->url, round.why);
        else if (!complete)
            curl.multi_poll(c->multi, NULL, 0, active ? POLL_MS : POLL_MS / 4, NULL);
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
