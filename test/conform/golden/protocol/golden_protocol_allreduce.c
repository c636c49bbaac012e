/* golden_protocol_allreduce.c - recorded all-reduces, replayed: each peer in turn is our engine,
 * which receives the recorded messages of the others and must send what hivemind sent. */
#include "golden_allreduce_recording.h"
#include "net/message.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* widths of an 8-bit bin by which two encodings of nearly the same values may differ */
#define BIN 1.1

struct replay {
    struct recording *r;
    size_t k; /* recorded peer */
    struct allreduce *x;
    struct allreduce_job *jobs[4 * PEERS_MAX + 64];
    size_t job_count;
    size_t sent[2][PEERS_MAX]; /* messages sent, by direction and group member */
    int status, over;
    struct pl_err err;
};

static const struct recorded_stream *stream_between(const struct recording *r, size_t caller,
                                                    size_t callee)
{
    for (size_t s = 0; s < r->stream_count; s++)
        if (r->streams[s].caller == caller && r->streams[s].callee == callee) return &r->streams[s];
    return NULL;
}

/* The i-th AveragingData of a direction; its bytes in raw. 0: there is none. */
static int message_at(struct recording *r, const struct recorded_stream *s, const char *direction,
                      size_t i, struct bytes *raw)
{
    size_t k;
    json_t *m;
    if (!s) return 0;
    json_array_foreach(s->messages, k, m)
    {
        if (strcmp(protocol_text(m, "dir"), direction) ||
            strcmp(protocol_text(m, "type"), "AveragingData"))
            continue;
        if (!i--) return wire_member(r->g, m, "hex", raw);
    }
    return 0;
}

static int decode(float *x, const struct pl_backend *be, const struct part_message *m)
{
    struct pl_wire_type type = { .dtype = PL_F32, .dims = 1, .size = { (int64_t)m->elements } };
    return pl_wire_decode(x, be, m->method, &type, m->buffer, m->bytes, NULL);
}

static double spread(const float *x, size_t n)
{
    double mean = 0, s = 0;
    for (size_t i = 0; i < n; i++) mean += x[i];
    mean /= (double)(n ? n : 1);
    for (size_t i = 0; i < n; i++) s += (x[i] - mean) * (x[i] - mean);
    return n > 1 ? sqrt(s / (double)(n - 1)) : 0;
}

/* Two encodings of values that differ by a sum's rounding: within a bin, or one unit in a float16's
 * last place. */
static void same_part(struct golden *g, const char *what, const struct part_message *got,
                      const struct part_message *want, int exact)
{
    size_t n = want->elements;
    float *a = pl_alloc(n, sizeof *a), *b = pl_alloc(n, sizeof *b);
    double largest = 0, allowed;
    if (got->method != want->method || got->elements != n || got->weight != want->weight) {
        golden_check(g, what, 0, "method %d of %zu values of weight %g, expected %d of %zu of %g",
                     got->method, got->elements, got->weight, want->method, n, want->weight);
    } else if (exact && got->method != PL_COMPRESS_UNIFORM8) {
        golden_check(g, what,
                     got->bytes == want->bytes && !memcmp(got->buffer, want->buffer, got->bytes),
                     "other bytes");
    } else if (a && b && !decode(a, g->be, got) && !decode(b, g->be, want)) {
        for (size_t i = 0; i < n; i++) largest = fmax(largest, fabs(b[i]));
        allowed = got->method == PL_COMPRESS_UNIFORM8  ? BIN * 6 * spread(b, n) / PL_CODES + 1e-6
                  : got->method == PL_COMPRESS_FLOAT16 ? ldexp(largest, -10) + 1e-6
                                                       : 2e-6 * largest + 1e-6;
        golden_case(g, what, golden_absolute(a, b, n), allowed);
    }
    pl_free(a);
    pl_free(b);
}

static void on_send(void *context, size_t peer, enum allreduce_way way, const uint8_t *data,
                    size_t n)
{
    struct replay *p = context;
    struct recording *r = p->r;
    size_t other = r->recorded[peer];
    const struct recorded_stream *s = way == ALLREDUCE_OUT ? stream_between(r, p->k, other)
                                                           : stream_between(r, other, p->k);
    struct part_message got, want;
    struct bytes raw = { 0 };
    struct pl_err err = { "" };
    char what[80];
    snprintf(what, sizeof what, "peer %zu, %s %zu, message %zu", p->k,
             way == ALLREDUCE_OUT ? "parts to" : "answers to", other, p->sent[way][peer]);
    if (!message_at(r, s, way == ALLREDUCE_OUT ? "request" : "response", p->sent[way][peer]++,
                    &raw) ||
        part_message_read(&want, bytes_at(&raw), bytes_length(&raw), &err) ||
        part_message_read(&got, data, n, &err)) {
        golden_check(r->g, what, 0, "was not recorded; %s", err.text);
    } else {
        golden_check(r->g, what,
                     got.code == want.code && got.group_id_n == want.group_id_n &&
                         (!got.group_id_n ||
                          !memcmp(got.group_id, want.group_id, got.group_id_n)) &&
                         n == bytes_length(&raw),
                     "code %d, expected %d; %zu bytes, expected %zu", got.code, want.code, n,
                     bytes_length(&raw));
        same_part(r->g, what, &got, &want, way == ALLREDUCE_OUT);
    }
    bytes_clear(&raw);
}
static void on_peer(void *context, size_t peer) { (void)context, (void)peer; }
static int is_busy(void *context, size_t peer) { return (void)context, (void)peer, 0; }
static void on_way(void *context, size_t peer, enum allreduce_way way)
{
    (void)context, (void)peer, (void)way;
}
static void on_credit(void *context, size_t peer, size_t n) { (void)context, (void)peer, (void)n; }
static void on_work(void *context, struct allreduce_job *job)
{
    struct replay *p = context;
    p->jobs[p->job_count++] = job;
}
static void on_over(void *context, int status, const struct pl_err *err)
{
    struct replay *p = context;
    p->over = 1;
    p->status = status;
    p->err = *err;
}
static const struct allreduce_callbacks port = { on_peer, on_send,   is_busy, on_way,
                                                 on_way,  on_credit, on_work, on_over,
                                                 NULL,    NULL,      NULL };

static void work(struct replay *p)
{
    while (p->job_count) {
        struct allreduce_job *job = p->jobs[--p->job_count];
        job->run(job);
        allreduce_done(p->x, 0, job);
    }
}

/* Everything that the others sent to this peer, part by part. */
static void feed(struct replay *p, enum allreduce_way way)
{
    struct recording *r = p->r;
    int more = 1;
    for (size_t i = 0; more; i++) {
        more = 0;
        for (size_t place = 0; place < r->group.count; place++) {
            size_t other = r->recorded[place];
            const struct recorded_stream *s = way == ALLREDUCE_OUT ? stream_between(r, p->k, other)
                                                                   : stream_between(r, other, p->k);
            struct bytes raw = { 0 };
            if (place != r->member[p->k] &&
                message_at(r, s, way == ALLREDUCE_OUT ? "response" : "request", i, &raw)) {
                more = 1;
                allreduce_message(p->x, 0, place, way, bytes_at(&raw), bytes_length(&raw));
                work(p);
            }
            bytes_clear(&raw);
        }
    }
}

/* The largest value that any peer gave in. */
static double largest_input(const struct recording *r)
{
    double largest = 0;
    for (size_t k = 0; k < r->peers; k++)
        for (size_t i = 0; i < r->values; i++) largest = fmax(largest, fabs(r->input[k][i]));
    return largest;
}

/* Parts that others reduced equal ours + their answer to the last bit. Parts that we reduced may
 * differ by the order of the sum. */
static void check_outputs(struct replay *p, const float *x)
{
    struct recording *r = p->r;
    struct pl_part *parts = NULL;
    size_t count = 0, starts[TENSORS_MAX + 1] = { 0 }, exact = 0, of = 0;
    double worst = 0;
    char what[60];
    for (size_t t = 0; t < r->tensors; t++) starts[t + 1] = starts[t] + r->elements[t];
    pl_partition(&parts, &count, r->elements, r->method, r->tensors, r->share, (int)r->group.count,
                 r->part_bytes, NULL);
    for (size_t i = 0; i < count; i++) {
        size_t at = starts[parts[i].tensor] + parts[i].start, n = parts[i].length;
        if ((size_t)parts[i].reducer == r->member[p->k]) {
            worst = fmax(worst, golden_absolute(x + at, r->output[p->k] + at, n));
        } else {
            of += n;
            for (size_t v = 0; v < n; v++) exact += x[at + v] == r->output[p->k][at + v];
        }
    }
    pl_free(parts);
    snprintf(what, sizeof what, "peer %zu, what others reduced", p->k);
    golden_check(r->g, what, exact == of, "%zu of %zu values equal", exact, of);
    snprintf(what, sizeof what, "peer %zu, what it reduced", p->k);
    golden_case(r->g, what, worst, 1e-6 * largest_input(r)); /* some ulp of the terms */
}

static void replay_peer(struct recording *r, size_t k)
{
    struct replay p = { .r = r, .k = k };
    float *x = malloc((r->values + 1) * sizeof *x), *tensor[TENSORS_MAX];
    struct allreduce_options o = { .be = r->g->be,
                                   .group = &r->group,
                                   .tensors = r->tensors,
                                   .elements = r->elements,
                                   .method = r->method,
                                   .tensor = tensor,
                                   .weight = r->weight[k],
                                   .share = r->share,
                                   .part_bytes = r->part_bytes };
    if (!x) return;
    memcpy(x, r->input[k], r->values * sizeof *x);
    for (size_t t = 0, at = 0; t < r->tensors; at += r->elements[t++]) tensor[t] = x + at;
    r->group.self = r->member[k];
    if (allreduce_open(&p.x, &o, &port, &p, 0, &p.err)) {
        golden_fail(r->g, "all-reduce", "%s", p.err.text);
    } else {
        work(&p);
        feed(&p, ALLREDUCE_IN);
        feed(&p, ALLREDUCE_OUT);
        golden_check(r->g, "end", p.over && p.status == PL_OK, "peer %zu: %s", k,
                     p.over ? p.err.text : "not over");
        if (p.over && p.status == PL_OK) check_outputs(&p, x);
        if (!p.over) allreduce_cancel(p.x, 0), work(&p);
        allreduce_close(p.x);
    }
    free(x);
}

void protocol_allreduce(struct golden *g, const json_t *root)
{
    struct recording r = { .g = g };
    if (allreduce_recording_read(&r, root)) {
        for (size_t k = 0; k < r.peers; k++) replay_peer(&r, k);
    } else {
        golden_fail(g, "recording", "cannot be read");
    }
    allreduce_recording_clear(&r);
}
