/* averaging.c - any bytes from a groupmate: parts and responses to an all-reduce, messages and
 * requests to matchmaking, a state. The input: records of one byte (what it is) and a length in
 * two. */
#include "net/hivemind/allreduce/allreduce.h"
#include "net/hivemind/matchmaking/matchmaking.h"
#include "net/hivemind/messages/state_message.h"
#include "../../ref/backend.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static struct pl_backend be;

struct target {
    struct allreduce *x;
    struct allreduce_job *jobs[64];
    size_t job_count;
    int over;
};

static void on_peer(void *c, size_t p) { (void)c, (void)p; }
static void on_send(void *c, size_t p, enum allreduce_way w, const uint8_t *d, size_t n)
{
    struct part_message m;
    (void)c, (void)p, (void)w;
    if (part_message_read(&m, d, n, NULL)) abort(); /* messages that we write can be read */
}
static int is_busy(void *c, size_t p) { return (void)c, (void)p, 0; }
static void on_way(void *c, size_t p, enum allreduce_way w) { (void)c, (void)p, (void)w; }
static void on_credit(void *c, size_t p, size_t n) { (void)c, (void)p, (void)n; }
static void on_work(void *c, struct allreduce_job *job)
{
    struct target *t = c;
    if (t->job_count == PL_COUNT(t->jobs)) abort();
    t->jobs[t->job_count++] = job;
}
static void on_over(void *c, int status, const struct pl_err *err)
{
    (void)status, (void)err;
    ((struct target *)c)->over = 1;
}
static const struct allreduce_callbacks allreduce_port = { on_peer, on_send,   is_busy, on_way,
                                                           on_way,  on_credit, on_work, on_over,
                                                           NULL,    NULL,      NULL };
static void on_declare(void *c, double e, int a) { (void)c, (void)e, (void)a; }
static void on_nothing(void *c) { (void)c; }
static void on_ask(void *c, const struct peer_id *p, const uint8_t *d, size_t n)
{
    (void)c, (void)p, (void)d, (void)n;
}
static void on_answer(void *c, void *s, const uint8_t *d, size_t n, int l)
{
    (void)c, (void)s, (void)d, (void)n, (void)l;
}
static void on_found(void *c, int status) { (void)c, (void)status; }
static const struct matchmaking_callbacks matchmaking_port = { on_declare, on_nothing, on_ask,
                                                               on_nothing, on_answer,  NULL,
                                                               NULL,       NULL,       NULL,
                                                               NULL,       NULL,       on_found };

static void work(struct target *t)
{
    while (t->job_count) {
        struct allreduce_job *job = t->jobs[--t->job_count];
        job->run(job);
        allreduce_done(t->x, 0, job);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    static const size_t elements[2] = { 300, 40 };
    static const enum pl_compression method[2] = { PL_COMPRESS_UNIFORM8, PL_COMPRESS_NONE };
    float a[300], b[40], *tensor[2] = { a, b };
    double share[3] = { 100, 140, 100 }, now = 1;
    struct group group = { 0 };
    struct target t = { 0 };
    struct state_load load = { 0 };
    struct matchmaking m;
    struct matchmaking_options mo = { .key = "a.0b",
                                      .min_time = 5,
                                      .request_timeout = 3,
                                      .min_size = 2,
                                      .gather = gather,
                                      .gather_n = sizeof gather };
    struct allreduce_options o = { .be = &be,
                                   .group = &group,
                                   .tensors = 2,
                                   .elements = elements,
                                   .method = method,
                                   .tensor = tensor,
                                   .weight = 1,
                                   .share = share,
                                   .part_bytes = 64,
                                   .sender_timeout = 4,
                                   .reducer_timeout = 8 };
    if (!be.alloc) pl_backend_ref(&be);
    for (size_t i = 0; i < 300; i++) a[i] = (float)i;
    memset(b, 0, sizeof b);
    for (uint8_t i = 0; i < 3; i++)
        group_add(&group, &(struct peer_id){ .length = 34, .bytes = { 0x12, 0x20, i } }, gather,
                  sizeof gather, NULL);
    mo.self = group.members[0].peer;
    matchmaking_init(&m, &mo, &matchmaking_port, NULL);
    matchmaking_begin(&m, now, 0, 100);
    matchmaking_found(&m, now, &(struct matchmaking_candidate){ group.members[1].peer, 3 }, 1);
    if (allreduce_open(&t.x, &o, &allreduce_port, &t, 0, NULL)) abort();
    work(&t);
    while (bytes >= 3) {
        size_t n = (size_t)data[1] << 8 | data[2], peer = 1 + (data[0] >> 3) % 2;
        int kind = data[0] & 7;
        data += 3, bytes -= 3;
        if (n > bytes) n = bytes;
        if (!t.over && kind < 2)
            allreduce_message(t.x, now, peer, kind ? ALLREDUCE_IN : ALLREDUCE_OUT, data, n);
        else if (!t.over && kind == 2)
            allreduce_ended(t.x, now, peer, n % 2 ? ALLREDUCE_IN : ALLREDUCE_OUT);
        else if (kind == 3) matchmaking_message(&m, now, data, n);
        else if (kind == 4)
            matchmaking_request(&m, now, (void *)(data - 1), &group.members[peer].peer, data, n);
        else if (kind == 5) matchmaking_tick(&m, now += (double)n / 100);
        else if (kind == 6 && state_load_add(&load, data, n, NULL)) state_load_clear(&load);
        else if (kind == 7) {
            struct training_state s;
            if (!training_state_read(&s, data, n, NULL)) training_state_clear(&s);
        }
        work(&t);
        data += n, bytes -= n;
    }
    if (!t.over) allreduce_cancel(t.x, now), work(&t);
    if (!t.over) abort();
    allreduce_close(t.x);
    matchmaking_cancel(&m);
    matchmaking_clear(&m);
    state_load_clear(&load);
    group_clear(&group);
    return 0;
}
