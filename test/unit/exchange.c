/* exchange.c - whole groups of exchanges in one process: equal to the reference bit for bit; and what
 * becomes of a round when peers lie, freeze or leave. */
#include "../../net/hivemind/exchange.h"
#include "../../net/hivemind/referee.h"
#include "../../ref/backend.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define PEERS 4
#define TENSORS 4
#define VALUES 6007

static const size_t elements[TENSORS] = { 5000, 1000, 0, 7 };
static const enum pl_compression run_like[TENSORS] = { PL_COMPRESS_UNIFORM8, PL_COMPRESS_FLOAT16,
                                                       PL_COMPRESS_FLOAT16, PL_COMPRESS_NONE };

struct letter {
    enum { MESSAGE, FINISH, CLOSE, TOLD } kind;
    size_t from, to;
    enum exchange_way way; /* as `to` sees it */
    uint8_t *data;
    size_t n;
};

struct peer {
    struct world *w;
    size_t self;
    struct exchange *x;
    struct group group;
    struct exchange_job *jobs[64];
    size_t job_count;
    float values[VALUES], *tensor[TENSORS];
    double weight;
    size_t credit[4]; /* what each sender may still send */
    int frozen, over, status;
    const struct pl_backend *be;
    struct pl_err err;
};

struct world {
    struct pl_backend be;
    struct peer peer[PEERS];
    double share[PEERS], now, clip;
    int verify;
    void (*meddle)(struct letter *l); /* with what is on its way */
    size_t rank[PEERS]; /* whose letters are taken first */
    enum pl_compression method[TENSORS];
    struct letter *letters;
    size_t count, room;
};

/* --- the post --------------------------------------------------------------------------------- */

static void post(struct peer *p, int kind, size_t to, enum exchange_way way, const uint8_t *data,
                 size_t n)
{
    struct world *w = p->w;
    struct letter l = { .kind = kind, .from = p->self, .to = to, .n = n,
                        .way = way == EXCHANGE_OUT ? EXCHANGE_IN : EXCHANGE_OUT };
    if (p->frozen) return;
    if (w->count == w->room)
        w->letters = realloc(w->letters, (w->room = 2 * w->room + 16) * sizeof l);
    assert_non_null(w->letters);
    assert_non_null(l.data = malloc(n + 1));
    if (n) memcpy(l.data, data, n);
    if (w->meddle) w->meddle(&l);
    w->letters[w->count++] = l;
}

static void on_open(void *context, size_t peer) { (void)context, (void)peer; }
static void on_send(void *context, size_t peer, enum exchange_way way, const uint8_t *data,
                    size_t n)
{
    post(context, MESSAGE, peer, way, data, n);
}
static int is_busy(void *context, size_t peer) { return (void)context, (void)peer, 0; }
static void on_finish(void *context, size_t peer, enum exchange_way way)
{
    post(context, FINISH, peer, way, NULL, 0);
}
static void on_close(void *context, size_t peer, enum exchange_way way)
{
    post(context, CLOSE, peer, way, NULL, 0);
}
static void on_credit(void *context, size_t peer, size_t n)
{
    ((struct peer *)context)->credit[peer] += n;
}
static void on_work(void *context, struct exchange_job *job)
{
    struct peer *p = context;
    assert_true(p->job_count < PL_COUNT(p->jobs));
    p->jobs[p->job_count++] = job;
}
static void on_over(void *context, int status, const struct pl_err *err)
{
    struct peer *p = context;
    assert_false(p->over);
    p->over = 1;
    p->status = status;
    p->err = *err;
}
static void on_tell(void *context, size_t peer, const uint8_t *data, size_t n)
{
    post(context, TOLD, peer, EXCHANGE_OUT, data, n);
}
static const struct exchange_port port = {
    on_open, on_send, is_busy, on_finish, on_close, on_credit, on_work, on_over, on_tell
};

static void work(struct world *w)
{
    for (size_t i = 0; i < PEERS; i++)
        while (w->peer[i].job_count) {
            struct exchange_job *job = w->peer[i].jobs[0];
            memmove(w->peer[i].jobs, w->peer[i].jobs + 1, --w->peer[i].job_count * sizeof job);
            job->run(job);
            exchange_done(w->peer[i].x, w->now, job);
        }
}

/* Not beyond what the receiver takes; what a letter of the same stream waits for, it waits for too. */
static int may_come(const struct world *w, size_t i)
{
    const struct letter *l = &w->letters[i];
    const struct peer *to = &w->peer[l->to];
    if (l->kind == MESSAGE && l->way == EXCHANGE_IN && !to->credit[l->from] && !to->over) return 0;
    for (size_t k = 0; k < i; k++)
        if (w->letters[k].from == l->from && w->letters[k].to == l->to &&
            w->letters[k].way == l->way && (w->letters[k].kind == TOLD) == (l->kind == TOLD))
            return 0;
    return 1;
}

/* Of all senders, the one that comes first in the order; of its letters the oldest. */
static int deliver(struct world *w)
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
    if (l.kind == MESSAGE && l.way == EXCHANGE_IN && to->credit[l.from]) to->credit[l.from]--;
    if (!to->over && !to->frozen) {
        if (l.kind == MESSAGE) exchange_message(to->x, w->now, l.from, l.way, l.data, l.n);
        else if (l.kind == TOLD) exchange_told(to->x, w->now, l.from, l.data, l.n);
        else if (l.kind == FINISH) exchange_ended(to->x, w->now, l.from, l.way);
        else exchange_failed(to->x, w->now, l.from, l.way);
    }
    free(l.data);
    return 1;
}

static void run(struct world *w)
{
    do work(w); while (deliver(w));
}

/* --- a group ---------------------------------------------------------------------------------- */

static void fill(float *x, size_t n, uint32_t seed)
{
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        x[i] = (float)((double)(seed >> 8) / 0x1p24 - 0.5);
    }
}

static void make(struct world *w)
{
    static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    static const double shares[PEERS] = { 2000, 0, 2500, 1507 };
    memset(w, 0, sizeof *w);
    pl_backend_ref(&w->be);
    memcpy(w->method, run_like, sizeof run_like);
    memcpy(w->share, shares, sizeof shares);
    for (size_t i = 0; i < PEERS; i++) {
        struct peer *p = &w->peer[i];
        p->w = w;
        p->self = i;
        p->weight = (double)(i + 1) * 1.25;
        w->rank[i] = i;
        fill(p->values, VALUES, (uint32_t)i + 1);
        for (size_t t = 0, at = 0; t < TENSORS; at += elements[t++]) p->tensor[t] = p->values + at;
        for (size_t k = 0; k < PEERS; k++) {
            struct peer_id id = { .length = 4, .bytes = { (uint8_t)k } };
            assert_int_equal(group_add(&p->group, &id, gather, sizeof gather, NULL), PL_OK);
            p->credit[k] = EXCHANGE_WINDOW;
        }
        p->group.self = i;
        memset(p->group.id, 7, sizeof p->group.id);
    }
}

static void begin(struct world *w)
{
    for (size_t i = 0; i < PEERS; i++) {
        struct peer *p = &w->peer[i];
        struct exchange_options o = {
            .be = p->be ? p->be : &w->be, .group = &p->group, .tensors = TENSORS, .elements = elements, .method = w->method,
            .tensor = p->tensor, .weight = p->weight, .share = w->share, .part_bytes = 512,
            .clip = w->clip, .verify = w->verify, .weight_max = 100, .sender_timeout = 4, .reducer_timeout = 8, .time_limit = 60,
        };
        if (exchange_open(&p->x, &o, &port, p, w->now, &p->err)) fail_msg("%s", p->err.text);
    }
}

static void end(struct world *w)
{
    for (size_t i = 0; i < PEERS; i++) {
        if (!w->peer[i].over) exchange_cancel(w->peer[i].x, w->now);
    }
    run(w);
    while (w->count) free(w->letters[--w->count].data);
    for (size_t i = 0; i < PEERS; i++) {
        assert_true(w->peer[i].over);
        exchange_close(w->peer[i].x);
        group_clear(&w->peer[i].group);
    }
    free(w->letters);
}

/* What the reference gives, where every reducer takes its own values first and then the others' by
 * rank. `out`: left out as if it were not in the group. */
static void reference(struct world *w, float result[PEERS][VALUES], size_t out)
{
    struct pl_part *parts;
    size_t count, starts[TENSORS] = { 0 };
    for (size_t t = 1; t < TENSORS; t++) starts[t] = starts[t - 1] + elements[t - 1];
    assert_int_equal(pl_partition(&parts, &count, elements, w->method, TENSORS, w->share, PEERS,
                                  512, NULL),
                     PL_OK);
    for (int reducer = 0; reducer < PEERS; reducer++) {
        struct pl_member member[PEERS];
        struct pl_group group = { .member = member, .members = PEERS, .tensors = TENSORS,
                                  .elements = elements, .method = w->method, .part_bytes = 512 };
        static float copy[PEERS][VALUES];
        float *tensor[PEERS][TENSORS];
        int order[PEERS], n = 0;
        order[n++] = reducer;
        for (size_t r = 0; r < PEERS; r++)
            for (int i = 0; i < PEERS; i++)
                if (w->rank[i] == r && i != reducer) order[n++] = i;
        for (size_t i = 0; i < PEERS; i++) {
            memcpy(copy[i], w->peer[i].values, sizeof copy[i]);
            for (size_t t = 0; t < TENSORS; t++) tensor[i][t] = copy[i] + starts[t];
            member[i] = (struct pl_member){ w->share[i] > 0 ? PL_NODE : PL_CLIENT,
                                            w->peer[i].weight, w->share[i], tensor[i] };
            if (i == out) member[i].weight = 0;
        }
        group.order = order;
        assert_int_equal(pl_average_group(&group, &w->be, NULL), PL_OK);
        for (size_t p = 0; p < count; p++)
            for (size_t i = 0; parts[p].owner == reducer && i < PEERS; i++)
                memcpy(result[i] + starts[parts[p].tensor] + parts[p].start,
                       copy[i] + starts[parts[p].tensor] + parts[p].start,
                       parts[p].length * sizeof(float));
    }
    pl_free(parts);
}

static float wanted[PEERS][VALUES];

static void as_the_reference(void **state)
{
    static const size_t ranks[][PEERS] = { { 0, 1, 2, 3 }, { 3, 2, 1, 0 }, { 2, 0, 3, 1 } };
    (void)state;
    for (size_t r = 0; r < PL_COUNT(ranks); r++) {
        static struct world w;
        struct exchange_report report;
        make(&w);
        memcpy(w.rank, ranks[r], sizeof w.rank);
        w.peer[2].weight = 0; /* an auxiliary peer: sends, weighs nothing, takes the mean */
        reference(&w, wanted, SIZE_MAX);
        begin(&w);
        run(&w);
        for (size_t i = 0; i < PEERS; i++) {
            assert_true(w.peer[i].over);
            if (w.peer[i].status) fail_msg("peer %zu: %s", i, w.peer[i].err.text);
            assert_memory_equal(w.peer[i].values, wanted[i], sizeof wanted[i]);
            exchange_report(w.peer[i].x, &report);
            assert_int_equal(report.received, VALUES);
            assert_int_equal(report.senders_lost + report.reducers_lost, 0);
        }
        end(&w);
    }
}

/* One of four sends its values' opposite, a hundred times as large: how far does that drag the result from
 * the honest mean? */
static double dragged(double clip)
{
    static struct world w;
    double far = 0;
    make(&w);
    w.clip = clip;
    memset(wanted, 0, sizeof wanted);
    for (size_t t = 0; t < TENSORS; t++) w.method[t] = PL_COMPRESS_NONE;
    for (size_t i = PEERS; i-- > 0; ) { /* the honest agree but for a little */
        w.peer[i].weight = 1;
        for (size_t v = 0; v < VALUES; v++)
            w.peer[i].values[v] = w.peer[0].values[v] + 0.05f * w.peer[i].values[v];
        for (size_t v = 0; v < VALUES && i != 1; v++) wanted[0][v] += w.peer[i].values[v] / 3;
    }
    for (size_t v = 0; v < VALUES; v++) w.peer[1].values[v] *= -100;
    begin(&w);
    run(&w);
    assert_int_equal(w.peer[0].over && w.peer[0].status == PL_OK, 1);
    for (size_t v = 0; v < VALUES; v++) far += pow((double)w.peer[0].values[v] - wanted[0][v], 2);
    end(&w);
    return sqrt(far / VALUES);
}

static void a_liar_drags_little(void **state)
{
    double mean, usual, fixed;
    (void)state;
    mean = dragged(0);
    usual = dragged(EXCHANGE_CLIP_USUAL);
    fixed = dragged(1);
    assert_true(mean > 5);     /* a quarter of a hundred times 0.29 */
    assert_true(usual < 0.02); /* the honest are 0.01 apart themselves */
    assert_true(fixed < 0.1);
}

static void nobody_weighs_anything(void **state)
{
    static struct world w;
    static float before[VALUES];
    (void)state;
    make(&w);
    for (size_t i = 0; i < PEERS; i++) w.peer[i].weight = 0;
    memcpy(before, w.peer[0].values, sizeof before);
    begin(&w);
    run(&w);
    for (size_t i = 0; i < PEERS; i++) assert_int_equal(w.peer[i].status, PL_OK);
    assert_memory_equal(w.peer[0].values, before, sizeof before);
    end(&w);
}

/* A liar's parts are left out, everybody else has the mean of the honest. */
static void not_a_number(void **state)
{
    static struct world w;
    struct exchange_report report;
    (void)state;
    make(&w);
    reference(&w, wanted, 1);
    for (size_t v = 0; v < VALUES; v++) w.peer[1].values[v] = v % 2 ? NAN : INFINITY;
    for (size_t t = 0; t < TENSORS; t++) w.method[t] = PL_COMPRESS_NONE; /* halves would hide infinity */
    begin(&w);
    run(&w);
    for (size_t i = 0; i < PEERS; i++) {
        if (i == 1) continue; /* it reduces nothing, and gets no answers */
        assert_int_equal(w.peer[i].status, PL_OK);
        for (size_t v = 0; v < VALUES; v++) assert_true(isfinite(w.peer[i].values[v]));
        exchange_report(w.peer[i].x, &report);
        assert_int_equal(report.senders_lost, 1);
    }
    assert_int_equal(w.peer[1].status, w.peer[1].over ? PL_EIO : PL_OK);
    end(&w);
}

static void tick(struct world *w, double seconds)
{
    w->now += seconds;
    for (size_t i = 0; i < PEERS; i++)
        if (!w->peer[i].over && !w->peer[i].frozen) exchange_tick(w->peer[i].x, w->now);
    run(w);
}

/* A client that falls silent costs its timeout and nothing else. */
static void frozen_client(void **state)
{
    static struct world w;
    (void)state;
    make(&w);
    w.peer[1].frozen = 1;
    begin(&w);
    run(&w);
    for (size_t i = 0; i < PEERS; i++) assert_false(w.peer[i].over);
    assert_true(exchange_wake(w.peer[0].x) == 4);
    tick(&w, 3.9);
    assert_false(w.peer[0].over);
    tick(&w, 0.2);
    for (size_t i = 0; i < PEERS; i++)
        if (i != 1) assert_int_equal(w.peer[i].over && w.peer[i].status == PL_OK, 1);
    w.peer[1].frozen = 0;
    end(&w);
}

/* One that reduces takes the round with it: nobody's values change, and everybody says so. */
static void frozen_reducer(void **state)
{
    static struct world w;
    static float before[PEERS][VALUES];
    (void)state;
    make(&w);
    for (size_t i = 0; i < PEERS; i++) memcpy(before[i], w.peer[i].values, sizeof before[i]);
    w.peer[2].frozen = 1;
    begin(&w);
    run(&w);
    tick(&w, 4.1);
    tick(&w, 4.1);
    for (size_t i = 0; i < PEERS; i++) {
        if (i == 2) continue;
        assert_true(w.peer[i].over);
        assert_int_equal(w.peer[i].status, PL_EIO);
        assert_memory_equal(w.peer[i].values, before[i], sizeof before[i]);
    }
    w.peer[2].frozen = 0;
    end(&w);
}

static void time_limit_and_cancel(void **state)
{
    static struct world w;
    (void)state;
    make(&w);
    w.peer[0].frozen = w.peer[2].frozen = 1;
    begin(&w);
    exchange_cancel(w.peer[3].x, w.now);
    run(&w);
    assert_true(w.peer[3].over);
    assert_int_equal(w.peer[3].status, PL_EAGAIN);
    tick(&w, 61);
    assert_true(w.peer[1].over);
    assert_int_equal(w.peer[1].status, PL_EAGAIN);
    w.peer[0].frozen = w.peer[2].frozen = 0;
    end(&w);
}

/* Wrong first messages, parts of a wrong size, of a wrong weight, too many: never more than a ban. */
static void bad_messages(void **state)
{
    static const double weights[] = { -1, NAN, INFINITY, 101 };
    static const float values[] = { NAN, -INFINITY, 2 * PART_VALUE_MAX };
    (void)state;
    for (int kind = 0; kind < 10; kind++) {
        static struct world w;
        struct bytes raw = { 0 };
        struct part_message m = { .code = MSG_PART_FOR_AVERAGING,
                                  .method = PL_COMPRESS_NONE,
                                  .weight = 1,
                                  .elements = 512,
                                  .bytes = 2048 };
        struct exchange_report report;
        uint8_t *buffer;
        make(&w);
        w.peer[3].frozen = 1;
        begin(&w);
        run(&w);
        if (kind == 0) m.code = MSG_ACCEPTED;
        if (kind == 1) m.elements = 100, m.bytes = 400;
        if (kind > 1 && kind < 6) m.weight = weights[kind - 2];
        assert_int_equal(part_message_write(&raw, &buffer, &m), PL_OK);
        memset(buffer, 0, m.bytes);
        if (kind > 6) memcpy(buffer + 40, &values[kind - 7], sizeof *values);
        if (kind == 6) raw.end = raw.begin + 3;
        exchange_message(w.peer[0].x, w.now, 3, EXCHANGE_IN, bytes_at(&raw), bytes_length(&raw));
        run(&w);
        exchange_report(w.peer[0].x, &report);
        assert_int_equal(report.senders_lost, 1);
        assert_false(exchange_awaits(w.peer[0].x, 3));
        exchange_message(w.peer[0].x, w.now, 3, EXCHANGE_OUT, bytes_at(&raw), bytes_length(&raw));
        exchange_report(w.peer[0].x, &report);
        assert_int_equal(report.reducers_lost, 1);
        assert_int_equal(exchange_lied(w.peer[0].x, 3), kind == 6); /* others have not the code of an answer */
        bytes_clear(&raw);
        w.peer[3].frozen = 0;
        end(&w);
    }
}

/* Answers that no honest reducer gives: the round is lost, and everybody knows by whom. Codes of trouble
 * are no lies. */
static void lying_reducer(void **state)
{
    static const float values[] = { 0, NAN, INFINITY, 2 * PART_VALUE_MAX };
    (void)state;
    for (int kind = 0; kind < 5; kind++) {
        static struct world w;
        static float before[VALUES];
        struct bytes raw = { 0 };
        struct part_message m = {
            .code = MSG_AVERAGED_PART, .method = PL_COMPRESS_NONE, .elements = 512, .bytes = 2048
        };
        uint8_t *buffer;
        make(&w);
        for (size_t t = 0; t < TENSORS; t++) w.method[t] = PL_COMPRESS_NONE;
        memcpy(before, w.peer[0].values, sizeof before);
        w.peer[2].frozen = 1;
        begin(&w);
        run(&w);
        if (kind == 0) m.elements = 511, m.bytes = 2044;
        if (kind == 4) {
            assert_int_equal(part_message_code(&raw, MSG_INTERNAL_ERROR), PL_OK);
        } else {
            assert_int_equal(part_message_write(&raw, &buffer, &m), PL_OK);
            for (size_t i = 0; i < m.elements; i++)
                memcpy(buffer + 4 * i, &values[kind], sizeof *values);
        }
        exchange_message(w.peer[0].x, w.now, 2, EXCHANGE_OUT, bytes_at(&raw), bytes_length(&raw));
        assert_int_equal(exchange_lied(w.peer[0].x, 2), kind != 4);
        tick(&w, 4.1);
        assert_int_equal(w.peer[0].over && w.peer[0].status == PL_EIO, 1);
        assert_memory_equal(w.peer[0].values, before, sizeof before);
        bytes_clear(&raw);
        w.peer[2].frozen = 0;
        end(&w);
    }
}

/* --- verified --------------------------------------------------------------------------------- */

static void make_verified(struct world *w)
{
    make(w);
    w->verify = 1;
    w->peer[3].weight = 0; /* sends, weighs nothing */
    for (size_t i = 1; i < PEERS; i++)
        for (size_t v = 0; v < VALUES; v++)
            w->peer[i].values[v] = w->peer[0].values[v] + 0.1f * w->peer[i].values[v];
}

/* Who found whom: nobody has changed anything, and everybody but the liars bans these, and nobody else. */
static void is_void(struct world *w, float before[PEERS][VALUES], const char *liars)
{
    for (size_t i = 0; i < PEERS; i++) {
        if (liars[i] == 'L') continue;
        assert_true(w->peer[i].over);
        if (w->peer[i].status != PL_EIO)
            fail_msg("peer %zu: %d %s", i, w->peer[i].status, w->peer[i].err.text);
        assert_memory_equal(w->peer[i].values, before[i], sizeof before[i]);
        for (size_t k = 0; k < PEERS; k++)
            if (exchange_lied(w->peer[i].x, k) != (liars[k] == 'L'))
                fail_msg("peer %zu of peer %zu: %s", i, k, w->peer[i].err.text);
    }
}

static float before[PEERS][VALUES];

static void honest_rounds_hold(void **state)
{
    (void)state;
    for (int plain = 0; plain < 2; plain++) {
        static struct world w;
        make_verified(&w);
        for (size_t t = 0; plain && t < TENSORS; t++) w.method[t] = PL_COMPRESS_NONE;
        begin(&w);
        run(&w);
        for (size_t i = 0; i < PEERS; i++) {
            if (!w.peer[i].over || w.peer[i].status)
                fail_msg("peer %zu: %s", i, w.peer[i].err.text);
            assert_memory_equal(w.peer[i].values, w.peer[0].values, sizeof w.peer[i].values); /* to the bit */
        }
        end(&w);
    }
}

/* A reducer that moves what CenteredClip gives, by a hundredth of the values' spread. */
static int shifting_clip(double *v, struct pl_clip_result *result, const float *x,
                         const double *weight, int n, size_t d, const struct pl_clip *clip)
{
    int rc = ref_centered_clip(v, result, x, weight, n, d, clip);
    for (size_t k = 0; k < d; k++) v[k] += 0.001;
    return rc;
}

static void a_reducer_that_shifts_is_banned(void **state)
{
    static struct world w;
    struct pl_backend lying;
    (void)state;
    make_verified(&w);
    lying = w.be;
    lying.centered_clip = shifting_clip;
    w.peer[2].be = &lying;
    for (size_t i = 0; i < PEERS; i++) memcpy(before[i], w.peer[i].values, sizeof before[i]);
    begin(&w);
    run(&w);
    is_void(&w, before, "..L.");
    end(&w);
}

/* The third says to one what it says to nobody else; or something about its values that is not so. */
static int meddled_phase, meddled_to;
static void meddle(struct letter *l)
{
    double s;
    if (l->kind != TOLD || l->from != 2 || l->data[DHT_ID_BYTES] != meddled_phase ||
        (meddled_to >= 0 && l->to != (size_t)meddled_to))
        return;
    if (meddled_phase == REFEREE_REPORT) {
        memcpy(&s, l->data + DHT_ID_BYTES + 1, sizeof s);
        s += 0.01;
        memcpy(l->data + DHT_ID_BYTES + 1, &s, sizeof s);
    } else {
        l->data[DHT_ID_BYTES + 3] ^= 1;
    }
}

static void lies_among_peers(void **state)
{
    static const struct { int phase, to; } cases[] = {
        { REFEREE_COMMIT, 0 }, { REFEREE_REVEAL, -1 }, { REFEREE_REPORT, 0 }, { REFEREE_ACCUSE, 0 }, { REFEREE_AGREE, -1 },
    };
    (void)state;
    for (size_t k = 0; k < PL_COUNT(cases); k++) {
        static struct world w;
        make_verified(&w);
        for (size_t i = 0; i < PEERS; i++) memcpy(before[i], w.peer[i].values, sizeof before[i]);
        w.meddle = meddle;
        meddled_phase = cases[k].phase;
        meddled_to = cases[k].to;
        begin(&w);
        run(&w);
        tick(&w, 9); /* who has found something says no more, and the others' patience ends */
        for (size_t i = 0; i < PEERS; i++) {
            if (i == 2) continue;
            assert_int_equal(w.peer[i].over && w.peer[i].status == PL_EIO, 1);
            assert_memory_equal(w.peer[i].values, before[i], sizeof before[i]);
            if (cases[k].phase == REFEREE_REVEAL)
                assert_int_equal(exchange_lied(w.peer[i].x, 2), 1);
        }
        end(&w);
    }
}

/* Reports of other values than it has sent. */
static struct peer *forgetful;
static void forget(struct letter *l)
{
    if (l->kind == TOLD && l->from == forgetful->self && l->data[DHT_ID_BYTES] == REFEREE_REVEAL)
        forgetful->values[10] = forgetful->w->peer[0].values[10] + 1;
}

/* Its reducer knows, and says so; who knows nothing bans both of them. */
static void a_false_report_is_accused(void **state)
{
    static struct world w;
    (void)state;
    make_verified(&w);
    forgetful = &w.peer[2]; /* of a part that the first reduces */
    w.meddle = forget;
    for (size_t i = 0; i < PEERS; i++) memcpy(before[i], w.peer[i].values, sizeof before[i]);
    begin(&w);
    run(&w);
    for (size_t i = 0; i < PEERS; i++) {
        if (i == 2) continue;
        assert_int_equal(w.peer[i].over && w.peer[i].status == PL_EIO, 1);
        assert_memory_equal(w.peer[i].values, before[i], sizeof before[i]);
        assert_int_equal(exchange_lied(w.peer[i].x, 2), 1);
        assert_int_equal(exchange_lied(w.peer[i].x, 0), i != 0);
        assert_int_equal(exchange_lied(w.peer[i].x, i == 1 ? 3 : 1), 0);
    }
    end(&w);
}

static void silence_and_absence_are_void(void **state)
{
    static struct world w;
    (void)state;
    make_verified(&w);
    for (size_t i = 0; i < PEERS; i++) memcpy(before[i], w.peer[i].values, sizeof before[i]);
    for (size_t v = 0; v < VALUES; v++) w.peer[1].values[v] = NAN; /* to be sent as NONE */
    for (size_t t = 0; t < TENSORS; t++) w.method[t] = PL_COMPRESS_NONE;
    begin(&w);
    run(&w);
    for (size_t i = 0; i < PEERS; i++) {
        if (i == 1) continue;
        assert_int_equal(w.peer[i].over && w.peer[i].status == PL_EIO, 1);
        assert_memory_equal(w.peer[i].values, before[i], sizeof before[i]);
    }
    end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_the_reference), cmocka_unit_test(a_liar_drags_little),
        cmocka_unit_test(nobody_weighs_anything),
        cmocka_unit_test(not_a_number), cmocka_unit_test(frozen_client),
        cmocka_unit_test(frozen_reducer), cmocka_unit_test(time_limit_and_cancel),
        cmocka_unit_test(bad_messages), cmocka_unit_test(lying_reducer),
        cmocka_unit_test(honest_rounds_hold), cmocka_unit_test(a_reducer_that_shifts_is_banned),
        cmocka_unit_test(lies_among_peers), cmocka_unit_test(a_false_report_is_accused),
        cmocka_unit_test(silence_and_absence_are_void),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
