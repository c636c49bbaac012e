/* allreduce_world.h - a whole group of all-reduce engines in one process, and the delivery of their
 * messages, for the tests of the all-reduce. Included by one file of each test program. */
#ifndef PL_TEST_EXCHANGE_WORLD_H
#define PL_TEST_EXCHANGE_WORLD_H

#include "test/unit/hivemind/verification/signed_packets.h"
#include "net/hivemind/allreduce/allreduce_internal.h"
#include "ref/backend.h"
#include "test/unit/hivemind/numbered_identity.h"

#include <math.h>
#include <openssl/evp.h>

#ifndef PEERS
#define PEERS 4
#define MOST 20000 /* values of the longest tensor */
#endif
#define TENSORS 4
#define VALUES (MOST + 1007)

static const size_t elements[TENSORS] = { MOST, 1000, 0, 7 };
static const enum pl_compression run_like[TENSORS] = { PL_COMPRESS_UNIFORM8, PL_COMPRESS_FLOAT16,
                                                       PL_COMPRESS_FLOAT16, PL_COMPRESS_NONE };

struct letter {
    enum { MESSAGE, FINISH, CLOSE, VERIFY } kind;
    size_t from, to;
    enum allreduce_way way; /* as `to` sees it */
    uint8_t *data;
    size_t n;
};

struct peer {
    struct world *w;
    size_t self;
    struct allreduce *x;
    struct identity me;
    struct group group;
    struct allreduce_job *jobs[64];
    size_t job_count;
    float values[VALUES], *tensor[TENSORS];
    double weight, upload;
    uint64_t samples;
    size_t credit[PEERS]; /* messages that each sender may still send */
    size_t moved[PEERS];  /* bytes of each other's message that have come */
    int frozen, over, status;
    const struct pl_backend *be;
    struct pl_err err;
};

struct world {
    struct pl_backend be;
    struct peer peer[PEERS];
    double share[PEERS], now, clip;
    size_t part_bytes;
    int verify;
    const struct allreduce_patience *patience; /* (PEERS); NULL: the timeouts alone */
    struct allreduce_validation validation;    /* each peer's own context */
    struct allreduce_memory *memory;           /* (PEERS); NULL: each exchange's own */
    void (*meddle)(struct letter *l);          /* with what is on its way */
    size_t rank[PEERS];                        /* whose letters are taken first */
    enum pl_compression method[TENSORS];
    struct letter *letters;
    size_t count, capacity;
};

/* --- the post --------------------------------------------------------------------------------- */

static inline void post(struct peer *p, int kind, size_t to, enum allreduce_way way,
                        const uint8_t *data, size_t n)
{
    struct world *w = p->w;
    struct letter l = { .kind = kind,
                        .from = p->self,
                        .to = to,
                        .n = n,
                        .way = way == ALLREDUCE_OUT ? ALLREDUCE_IN : ALLREDUCE_OUT };
    if (p->frozen) return;
    if (w->count == w->capacity)
        w->letters = realloc(w->letters, (w->capacity = 2 * w->capacity + 16) * sizeof l);
    assert_non_null(w->letters);
    assert_non_null(l.data = malloc(n + 1));
    if (n) memcpy(l.data, data, n);
    if (w->meddle) w->meddle(&l);
    w->letters[w->count++] = l;
}

static inline void on_open(void *context, size_t peer) { (void)context, (void)peer; }
static inline void on_send(void *context, size_t peer, enum allreduce_way way, const uint8_t *data,
                           size_t n)
{
    post(context, MESSAGE, peer, way, data, n);
}
static inline int is_busy(void *context, size_t peer) { return (void)context, (void)peer, 0; }
static inline void on_finish(void *context, size_t peer, enum allreduce_way way)
{
    post(context, FINISH, peer, way, NULL, 0);
}
static inline void on_close(void *context, size_t peer, enum allreduce_way way)
{
    post(context, CLOSE, peer, way, NULL, 0);
}
static inline void on_credit(void *context, size_t peer, size_t n)
{
    ((struct peer *)context)->credit[peer] += n;
}
static inline void on_work(void *context, struct allreduce_job *job)
{
    struct peer *p = context;
    assert_true(p->job_count < PL_COUNT(p->jobs));
    p->jobs[p->job_count++] = job;
}
static inline void on_over(void *context, int status, const struct pl_err *err)
{
    struct peer *p = context;
    assert_false(p->over);
    p->over = 1;
    p->status = status;
    p->err = *err;
}
static inline void on_report(void *context, size_t peer, const uint8_t *data, size_t n)
{
    post(context, VERIFY, peer, ALLREDUCE_OUT, data, n);
}
/* As a stream that takes over what it is given, and hands back what it had before. */
static inline void on_give(void *context, size_t peer, enum allreduce_way way, struct bytes *data)
{
    on_send(context, peer, way, bytes_at(data), bytes_length(data));
    bytes_clear(data);
}
static inline size_t on_moved(void *context, size_t peer, enum allreduce_way way)
{
    return ((struct peer *)context)->moved[peer];
}
static const struct allreduce_callbacks port = { on_open,   on_send,   is_busy, on_finish,
                                                 on_close,  on_credit, on_work, on_over,
                                                 on_report, on_give,   on_moved };

static inline void work(struct world *w)
{
    for (size_t i = 0; i < PEERS; i++)
        while (w->peer[i].job_count) {
            struct allreduce_job *job = w->peer[i].jobs[0];
            memmove(w->peer[i].jobs, w->peer[i].jobs + 1, --w->peer[i].job_count * sizeof job);
            job->run(job);
            allreduce_done(w->peer[i].x, w->now, job);
        }
}

/* Delivers no more than the receiver takes. A message waits if an earlier one of the same stream
 * waits. */
static inline int may_come(const struct world *w, size_t i)
{
    const struct letter *l = &w->letters[i];
    const struct peer *to = &w->peer[l->to];
    if (l->kind == MESSAGE && l->way == ALLREDUCE_IN && !to->credit[l->from] && !to->over) return 0;
    for (size_t k = 0; k < i; k++)
        if (w->letters[k].from == l->from && w->letters[k].to == l->to &&
            w->letters[k].way == l->way && (w->letters[k].kind == VERIFY) == (l->kind == VERIFY))
            return 0;
    return 1;
}

/* Of all senders, the one that comes first in the order; of its letters the oldest. */
static inline int deliver(struct world *w)
{
    size_t best = SIZE_MAX;
    struct letter l;
    struct peer *to;
    for (size_t i = 0; i < w->count; i++)
        if (may_come(w, i) &&
            (best == SIZE_MAX || w->rank[w->letters[i].from] < w->rank[w->letters[best].from]))
            best = i;
    if (best == SIZE_MAX) return 0;
    l = w->letters[best];
    memmove(&w->letters[best], &w->letters[best + 1], (--w->count - best) * sizeof l);
    to = &w->peer[l.to];
    if (l.kind == MESSAGE && l.way == ALLREDUCE_IN && to->credit[l.from]) to->credit[l.from]--;
    if (!to->over && !to->frozen) {
        if (l.kind == MESSAGE) allreduce_message(to->x, w->now, l.from, l.way, l.data, l.n);
        else if (l.kind == VERIFY) allreduce_verify_message(to->x, w->now, l.from, l.data, l.n);
        else if (l.kind == FINISH) allreduce_ended(to->x, w->now, l.from, l.way);
        else allreduce_failed(to->x, w->now, l.from, l.way, "its line is cut");
    }
    free(l.data);
    return 1;
}

static inline void run(struct world *w)
{
    do work(w);
    while (deliver(w));
}

/* --- a group ---------------------------------------------------------------------------------- */

static inline void fill(float *x, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)((double)(seed >> 8) / 0x1p24 - 0.5);
    }
}

static inline void make(struct world *w)
{
    static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    /* one of the first four reduces nothing */
    static const double shares[4] = { 7000, 0, 8500, 5507 };
    memset(w, 0, sizeof *w);
    pl_backend_ref(&w->be);
    memcpy(w->method, run_like, sizeof run_like);
    for (size_t i = 0; i < PEERS; i++) w->share[i] = PEERS == 4 ? shares[i % 4] : VALUES / PEERS;
    if (PEERS != 4) w->share[0] += VALUES % PEERS;
    w->part_bytes = 512;
    for (size_t i = 0; i < PEERS; i++) numbered_identity(&w->peer[i].me, i);
    for (size_t i = 0; i < PEERS; i++) {
        struct peer *p = &w->peer[i];
        p->w = w;
        p->self = i;
        p->weight = (double)(i + 1) * 1.25;
        p->samples = 1;
        w->rank[i] = i;
        fill(p->values, VALUES, (uint32_t)i + 1);
        for (size_t t = 0, at = 0; t < TENSORS; at += elements[t++]) p->tensor[t] = p->values + at;
        for (size_t k = 0; k < PEERS; k++) {
            assert_int_equal(group_add(&p->group, &w->peer[k].me.id, gather, sizeof gather, NULL),
                             PL_OK);
            p->credit[k] = ALLREDUCE_WINDOW;
        }
        p->group.self = i;
        memset(p->group.id, 7, sizeof p->group.id);
    }
}

static inline void begin(struct world *w)
{
    for (size_t i = 0; i < PEERS; i++) {
        struct peer *p = &w->peer[i];
        struct allreduce_options o = {
            .be = p->be ? p->be : &w->be,
            .group = &p->group,
            .tensors = TENSORS,
            .elements = elements,
            .method = w->method,
            .tensor = p->tensor,
            .weight = p->weight,
            .upload = p->upload,
            .share = w->share,
            .me = &p->me,
            .part_bytes = w->part_bytes,
            .clip = w->clip,
            .verify = w->verify,
            .patience = w->patience,
            .claim = { .samples = p->weight > 0 ? p->samples : 0 },
            .validation = w->validation,
            .weight_max = 100,
            .sender_timeout = 4,
            .reducer_timeout = 8,
            .time_limit = 60,
        };
        o.validation.context = p;
        if (w->memory) o.memory = &w->memory[i];
        if (allreduce_open(&p->x, &o, &port, p, w->now, &p->err)) fail_msg("%s", p->err.text);
    }
}

static inline void end(struct world *w)
{
    for (size_t i = 0; i < PEERS; i++) {
        if (!w->peer[i].over) allreduce_cancel(w->peer[i].x, w->now);
    }
    run(w);
    while (w->count) free(w->letters[--w->count].data);
    for (size_t i = 0; i < PEERS; i++) {
        assert_true(w->peer[i].over);
        allreduce_close(w->peer[i].x);
        group_clear(&w->peer[i].group);
        identity_clear(&w->peer[i].me);
    }
    free(w->letters);
}

static inline void tick(struct world *w, double seconds)
{
    w->now += seconds;
    for (size_t i = 0; i < PEERS; i++)
        if (!w->peer[i].over && !w->peer[i].frozen) allreduce_tick(w->peer[i].x, w->now);
    run(w);
}

/* Replaces a message of verification by a false one of the same sender. */
static inline void rewrite_letter(struct letter *l, struct world *w, lie_fn *lie)
{
    struct bytes out = { 0 };
    if (l->kind != VERIFY) return;
    rewrite_packet(&out, w->peer[l->from].x->verify.verifier, l->to, lie, l->data, l->n);
    free(l->data);
    l->n = bytes_length(&out);
    assert_non_null(l->data = malloc(l->n + 1));
    if (l->n) memcpy(l->data, bytes_at(&out), l->n);
    bytes_clear(&out);
}

static inline int lied(const struct peer *p, size_t groupmate)
{
    return allreduce_proof(p->x, groupmate) != NULL;
}

#endif
