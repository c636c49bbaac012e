/* allreduce_rules.c - one all-reduce engine and a script of events: each rule of the protocol by itself, and each bound
 * at n and n + 1. [spec hivemind-protocol 5] allreduce.c has whole groups. */
#include "net/hivemind/allreduce/allreduce_internal.h"
#include "ref/backend.h"
#include "test/unit/unit.h"

#include <math.h>

#define GROUP 3 /* we are the first */
#define PART 4  /* values */
#define PARTS 10

static struct {
    struct allreduce *x;
    struct pl_backend be;
    struct group group;
    size_t elements[PARTS];
    enum pl_compression method[PARTS];
    float values[PARTS][PART], *tensor[PARTS];
    struct allreduce_job *jobs[32];
    size_t job_count, credit[GROUP], answers[GROUP], closed[GROUP];
    int32_t code[GROUP]; /* of the last message to each */
    size_t sent[GROUP];  /* our parts */
    int over, status, busy;
} t;

static void on_stream(void *context, size_t peer) { (void)context, (void)peer; }
static void on_send(void *context, size_t peer, enum allreduce_way way, const uint8_t *data,
                    size_t n)
{
    struct part_message m;
    assert_int_equal(part_message_read(&m, data, n, NULL), PL_OK);
    t.code[peer] = m.code;
    if (way == ALLREDUCE_OUT) t.sent[peer]++;
    if (way == ALLREDUCE_IN) t.answers[peer] += m.code == MSG_AVERAGED_PART;
}
static int is_busy(void *context, size_t peer) { return t.busy; }
static void on_finish(void *context, size_t peer, enum allreduce_way way) {}
static void on_close(void *context, size_t peer, enum allreduce_way way) { t.closed[peer]++; }
static void on_credit(void *context, size_t peer, size_t n) { t.credit[peer] += n; }
static void on_work(void *context, struct allreduce_job *job)
{
    assert_true(t.job_count < PL_COUNT(t.jobs));
    t.jobs[t.job_count++] = job;
}
static void on_over(void *context, int status, const struct pl_err *err)
{
    t.over++;
    t.status = status;
}
static const struct allreduce_callbacks callbacks = { .open = on_stream,
                                                      .send = on_send,
                                                      .is_busy = is_busy,
                                                      .finish = on_finish,
                                                      .close = on_close,
                                                      .credit = on_credit,
                                                      .work = on_work,
                                                      .over = on_over };

static void work(double now)
{
    while (t.job_count) {
        struct allreduce_job *job = t.jobs[--t.job_count];
        job->run(job);
        allreduce_done(t.x, now, job);
    }
}

/* This many tensors of one part each; values are 0 here. */
static struct allreduce_options options(size_t tensors, const double share[GROUP])
{
    static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    memset(&t, 0, sizeof t);
    pl_backend_ref(&t.be);
    for (size_t i = 0; i < PARTS; i++) {
        t.elements[i] = PART;
        t.method[i] = PL_COMPRESS_NONE;
        t.tensor[i] = t.values[i];
    }
    for (int i = 0; i < GROUP; i++) {
        struct peer_id id = { .length = 34, .bytes = { 0x12, 0x20, (uint8_t)i } };
        assert_int_equal(group_add(&t.group, &id, gather, sizeof gather, NULL), PL_OK);
    }
    return (struct allreduce_options){ .be = &t.be,
                                       .group = &t.group,
                                       .tensors = tensors,
                                       .elements = t.elements,
                                       .method = t.method,
                                       .tensor = t.tensor,
                                       .weight = 1,
                                       .share = share,
                                       .part_bytes = 512 };
}

static void begin(const struct allreduce_options *o)
{
    assert_int_equal(allreduce_open(&t.x, o, &callbacks, NULL, 0, NULL), PL_OK);
}

static void end(void)
{
    if (!t.over) allreduce_cancel(t.x, 1000);
    work(1000);
    assert_int_equal(t.over, 1);
    allreduce_close(t.x);
    group_clear(&t.group);
}

/* A message of PART values. */
static void message(double now, size_t peer, enum allreduce_way way, int32_t code, double weight,
                    enum pl_compression method, const float *values)
{
    struct pl_wire_type type = { .dtype = PL_F32, .dims = 1, .size = { PART } };
    struct part_message m = {
        .code = code, .has_part = 1, .weight = weight, .method = method, .elements = PART
    };
    struct bytes out = { 0 };
    uint8_t *buffer;
    if (code == MSG_PART_FOR_AVERAGING) {
        m.group_id = t.group.id;
        m.group_id_n = sizeof t.group.id;
    }
    assert_int_equal(pl_wire_bytes(&m.bytes, method, &type, NULL), PL_OK);
    assert_int_equal(part_message_write(&out, &buffer, &m), PL_OK);
    assert_int_equal(pl_wire_encode(buffer, &t.be, method, &type, values, NULL), PL_OK);
    allreduce_message(t.x, now, peer, way, bytes_at(&out), bytes_length(&out));
    bytes_clear(&out);
    work(now);
}

/* A sender's part, each value x: the first one names the group. */
static void part(double now, size_t peer, size_t number, double weight, float x)
{
    const float values[PART] = { x, x, x, x };
    message(now, peer, ALLREDUCE_IN, number ? MSG_NO_CODE : MSG_PART_FOR_AVERAGING, weight,
            PL_COMPRESS_NONE, values);
}

static void answer(double now, size_t peer, enum pl_compression method, float x)
{
    const float values[PART] = { x, x, x, x };
    message(now, peer, ALLREDUCE_OUT, MSG_AVERAGED_PART, 0, method, values);
}

static size_t lost(void)
{
    struct allreduce_report r;
    allreduce_report(t.x, &r);
    return r.senders_lost;
}

/* --- answers ---------------------------------------------------------------------------------- */

/* A reducer may answer in another compression than ours. A longer answer than its place fits nowhere
 * else: the one behind it, which has come already, stays as it is. */
static void longer_answer_overwrites_nothing(void **state)
{
    static const double share[GROUP] = { 0, PART, PART };
    struct allreduce_options o = options(2, share);
    t.method[0] = t.method[1] = PL_COMPRESS_FLOAT16; /* 8 bytes a part; 16 as float32 */
    begin(&o);
    work(0);
    assert_true(t.x->parts[0].reducer == 1 && t.x->parts[1].reducer == 2);
    answer(0, 2, PL_COMPRESS_FLOAT16, 0.5f);
    answer(0, 1, PL_COMPRESS_NONE, 0.25f);
    assert_true(t.over && t.status == PL_OK);
    for (int k = 0; k < PART; k++) assert_true(t.values[0][k] == 0.25f && t.values[1][k] == 0.5f);
    end();
}

/* An answer to a part that was not sent yet is a proof: no honest reducer knows what it would say. So is one more than
 * there are parts. */
static void an_answer_before_its_part(void **state)
{
    static const double share[GROUP] = { 0, PART, PART };
    (void)state;
    for (int late = 0; late < 2; late++) {
        struct allreduce_options o = options(2, share);
        begin(&o);
        if (late) {
            work(0);
            answer(0, 1, PL_COMPRESS_NONE, 1);
            assert_int_equal(t.over, 0);
        } else {
            t.busy = 1; /* the parts stay here */
        }
        answer(0, 1, PL_COMPRESS_NONE, 1);
        assert_true(allreduce_proof(t.x, 1) && !allreduce_proof(t.x, 2));
        t.busy = 0;
        end();
    }
}

/* A reducer that answers nothing is given up after its timeout; one without parts owes no answer. */
static void reducers_time(void **state)
{
    static const double share[GROUP] = { 0, 2 * PART, 0 };
    struct allreduce_options o = options(2, share);
    struct allreduce_report r;
    o.reducer_timeout = 8;
    begin(&o);
    work(0);
    answer(1, 1, PL_COMPRESS_NONE, 1);
    allreduce_tick(t.x, 8.999); /* its last answer came at 1 */
    assert_int_equal(t.over, 0);
    assert_true(allreduce_wake(t.x) == 9);
    allreduce_tick(t.x, 9);
    assert_true(t.over && t.status == PL_EIO);
    allreduce_report(t.x, &r);
    assert_int_equal(r.reducers_lost, 1);
    end();
}

/* A reducer's time begins when our part is sent, and anew when it has left this machine: neither our encoding
 * nor our slow uplink is its fault. Nothing is queued behind a message that has not left. */
static void a_reducers_time_begins_with_our_part(void **state)
{
    static const double share[GROUP] = { 0, 2 * PART, 0 };
    struct allreduce_options o = options(2, share);
    (void)state;
    o.reducer_timeout = 8;
    begin(&o);
    t.busy = 1;
    work(5);
    assert_int_equal(t.sent[1], 0);
    t.busy = 0;
    allreduce_drained(t.x, 6, 1);
    assert_int_equal(t.sent[1], 1);
    assert_true(allreduce_wake(t.x) == 14);
    t.busy = 1;
    work(7); /* the second part is encoded and waits */
    assert_true(t.sent[1] == 1 && allreduce_wake(t.x) == 14);
    t.busy = 0;
    allreduce_tick(t.x, 9); /* the stream is free: it leaves */
    work(9);
    assert_int_equal(t.sent[1], 2);
    assert_true(allreduce_wake(t.x) == 17);
    allreduce_drained(t.x, 11, 1);
    assert_true(allreduce_wake(t.x) == 19);
    allreduce_tick(t.x, nextafter(19, 0));
    assert_int_equal(t.over, 0);
    allreduce_tick(t.x, 19);
    assert_true(t.over && t.status == PL_EIO);
    end();
}

/* The time limit ends the round. A reducer that has not answered has withheld it, also when a helper thread
 * is still at work and time goes on. */
static void the_time_limit(void **state)
{
    static const double share[GROUP] = { 0, PART, PART };
    struct allreduce_options o = options(2, share);
    double latest;
    o.time_limit = 60;
    begin(&o);
    assert_int_equal(t.job_count, 2); /* parts that are being encoded */
    allreduce_tick(t.x, 59.999);
    assert_int_equal(t.x->phase, ALLREDUCE_REDUCING);
    allreduce_tick(t.x, 60);
    assert_true(t.x->phase == ALLREDUCE_CANCELLED && !t.over);
    allreduce_tick(t.x, 61);
    work(61);
    assert_true(t.over && t.status == PL_EAGAIN);
    assert_int_equal(allreduce_outcome(t.x, 1, &latest), ALLREDUCE_WITHHELD);
    end();
}

/* --- senders ---------------------------------------------------------------------------------- */

/* A sender may be ALLREDUCE_WINDOW parts ahead. One more, for which it has no credit, and no more of
 * it is taken. */
static void the_window(void **state)
{
    static const double share[GROUP] = { PARTS * PART, 0, 0 };
    struct allreduce_options o = options(PARTS, share);
    begin(&o);
    for (size_t k = 0; k < ALLREDUCE_WINDOW; k++) part(0, 1, k, 1, 1);
    assert_int_equal(lost(), 0);
    part(0, 1, ALLREDUCE_WINDOW, 1, 1);
    assert_int_equal(lost(), 1);
    assert_true(t.closed[1] == 1 && t.code[1] == MSG_INTERNAL_ERROR);
    for (size_t k = 0; k < PARTS; k++) part(0, 2, k, 1, 1);
    assert_true(t.over && t.status == PL_OK);
    /* What it had sent stays: three values in the first parts, two in those after. */
    for (size_t k = 0; k < PARTS; k++)
        assert_true(fabsf(t.values[k][0] - (k < ALLREDUCE_WINDOW ? 2.0f / 3 : 0.5f)) < 1e-6f);
    end();
}

/* Each part that is answered gives every sender credit for one more, as far as there are parts; and
 * one for the end mark. */
static void credit(void **state)
{
    for (size_t parts = 1; parts <= PARTS; parts++) {
        const double share[GROUP] = { (double)(parts * PART), 0, 0 };
        struct allreduce_options o = options(parts, share);
        begin(&o);
        for (size_t k = 0; k < parts; k++) {
            part(0, 1, k, 1, 1);
            part(0, 2, k, 1, 1);
        }
        assert_true(t.over && t.status == PL_OK);
        for (size_t p = 1; p < GROUP; p++)
            assert_int_equal(t.credit[p],
                             1 + (parts > ALLREDUCE_WINDOW ? parts - ALLREDUCE_WINDOW : 0));
        end();
    }
}

/* A peer without a share reads nothing before it has sent everything: its answers are held. */
static void answers_are_held(void **state)
{
    static const double share[GROUP] = { 2 * PART, 0, PART };
    struct allreduce_options o = options(3, share);
    begin(&o);
    work(0);
    assert_int_equal(t.x->reducing.own_count, 2);
    part(0, 1, 0, 1, 1);
    part(0, 2, 0, 1, 1);
    assert_true(t.answers[1] == 0 && t.answers[2] == 1);
    part(0, 2, 1, 1, 1);
    assert_true(t.answers[1] == 0 && t.answers[2] == 1);
    part(0, 1, 1, 1, 1);
    assert_true(t.answers[1] == 2 && t.answers[2] == 2);
    answer(0, 2, PL_COMPRESS_NONE, 0);
    assert_true(t.over && t.status == PL_OK);
    end();
}

/* The report's weight is the least that a part is a mean over, whichever part that is. */
static void the_least_weight(void **state)
{
    static const double share[GROUP] = { 3 * PART, 0, 0 },
                        weights[][3] = { { 0.5, 2, 3 }, { 3, 2, 0.5 }, { 2, 0.5, 3 } };
    for (size_t i = 0; i < PL_COUNT(weights); i++) {
        struct allreduce_options o = options(3, share);
        struct allreduce_report r;
        begin(&o);
        for (size_t k = 0; k < 3; k++) {
            part(0, 1, k, weights[i][k], 1);
            part(0, 2, k, 1, 1);
        }
        allreduce_report(t.x, &r);
        assert_true(r.weight == 2.5);
        end();
    }
}

/* A sender is silent only while it has credit: its time begins anew when the window moves on. */
static void a_senders_time(void **state)
{
    static const double share[GROUP] = { PARTS * PART, 0, 0 };
    struct allreduce_options o = options(PARTS, share);
    o.sender_timeout = 4;
    begin(&o);
    for (size_t k = 0; k < ALLREDUCE_WINDOW; k++) part(0, 1, k, 1, 1);
    part(3.9, 2, 0, 1, 1);
    allreduce_tick(t.x, 7.899);
    assert_int_equal(lost(), 0);
    assert_true(fabs(allreduce_wake(t.x) - 7.9) < 1e-9);
    allreduce_tick(t.x, 7.9 + 1e-9);
    work(8);
    assert_int_equal(lost(), 2);
    end();
    /* While it waits for us, forever. */
    o = options(PARTS, share);
    o.sender_timeout = 4;
    begin(&o);
    for (size_t k = 0; k < ALLREDUCE_WINDOW; k++) part(0, 1, k, 1, 1);
    allreduce_tick(t.x, 4);
    assert_int_equal(lost(), 1); /* the other one */
    end();
}

/* A sender that alone lacks a part is waited for three times as long as the slowest part took, counted from the first
 * that came; what is answered then is counted. */
static void patience_follows_the_slowest_part(void **state)
{
    static const double share[GROUP] = { 2 * PART, 0, 0 };
    static const struct allreduce_patience patience[GROUP] = { { 1, 1 }, { 1, 1 }, { 1, 1 } };
    struct allreduce_options o = options(2, share);
    struct allreduce_report r;
    o.sender_timeout = 100;
    o.patience = patience;
    begin(&o);
    part(2, 1, 0, 1, 1);
    assert_true(allreduce_wake(t.x) == 8);
    allreduce_tick(t.x, 7.999);
    assert_int_equal(lost(), 0);
    allreduce_tick(t.x, 8);
    work(8);
    assert_int_equal(lost(), 1);
    part(8, 1, 1, 1, 1);
    assert_true(t.over && t.status == PL_OK);
    allreduce_report(t.x, &r);
    assert_int_equal(r.values_out, 2 * PART);
    end();
}

/* A part of another length, and an invalid first message. */
static void invalid_parts_are_refused(void **state)
{
    static const double share[GROUP] = { 2 * PART, 0, 0 };
    struct allreduce_options o = options(2, share);
    t.elements[0] = PART - 1;
    begin(&o);
    part(0, 1, 0, 1, 1);
    assert_int_equal(lost(), 1);
    assert_int_equal(t.code[1], MSG_INTERNAL_ERROR);
    end();
    o = options(2, share);
    begin(&o);
    part(0, 2, 1, 1, 1); /* without the code that the first one has */
    assert_int_equal(lost(), 1);
    assert_int_equal(t.code[2], MSG_INTERNAL_ERROR);
    end();
}

/* --- CenteredClip ----------------------------------------------------------------------------- */

/* Five iterations from the median, by a given radius. */
static void iterations(void **state)
{
    static const double share[GROUP] = { PART, 0, 0 };
    struct allreduce_options o = options(1, share);
    const float values[GROUP * PART] = { 0, 0, 0, 0, .2f, .2f, .2f, .2f, 9, 9, 9, 9 };
    const double weight[GROUP] = { 1, 1, 1 };
    float median[PART];
    o.clip = 0.5;
    begin(&o);
    part(0, 1, 0, 1, .2f);
    part(0, 2, 0, 1, 9);
    assert_true(t.over && t.status == PL_OK);
    assert_int_equal(t.be.median(median, values, GROUP, PART, 0), PL_OK);
    for (int n = 4; n <= 6; n++) {
        struct pl_clip clip = { .tau = 0.5, .iterations = n, .stop_norm = -1, .stop_largest = -1 };
        struct pl_clip_result result;
        double v[PART];
        for (int k = 0; k < PART; k++) v[k] = median[k];
        assert_int_equal(t.be.centered_clip(v, &result, values, weight, GROUP, PART, &clip), PL_OK);
        assert_int_equal(fabs(t.values[0][0] - v[0]) < 1e-6, n == 5);
    }
    end();
}

/* In a verified round the radius is the middle one of the distances from the aggregate that it leads
 * to, not from where the search for it began. */
static void the_radius(void **state)
{
    static const double share[GROUP] = { PART, PART, PART };
    static const float values[GROUP][PART] = { { 0, 1, 0, 0 }, { 3, 0, 0, 1 }, { 0, 0, 5, -2 } };
    struct allreduce_options o = options(3, share);
    double norm[GROUP], tau;
    const float *a;
    o.verify = 1;
    memcpy(t.values[0], values[0], sizeof values[0]);
    begin(&o);
    for (size_t p = 1; p < GROUP; p++)
        message(0, p, ALLREDUCE_IN, MSG_PART_FOR_AVERAGING, 1, PL_COMPRESS_NONE, values[p]);
    a = t.x->reducing.own_delta;
    tau = t.x->verify.own_tau[0];
    for (int i = 0; i < GROUP; i++) {
        double squares = 0;
        for (int k = 0; k < PART; k++)
            squares += ((double)values[i][k] - a[k]) * ((double)values[i][k] - a[k]);
        norm[i] = sqrt(squares);
    }
    tau /= fmax(fmin(norm[0], norm[1]), fmin(fmax(norm[0], norm[1]), norm[2]));
    assert_true(fabs(tau - 1) < 0.05);
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patience_follows_the_slowest_part),
        cmocka_unit_test(longer_answer_overwrites_nothing),
        cmocka_unit_test(an_answer_before_its_part),
        cmocka_unit_test(reducers_time),
        cmocka_unit_test(a_reducers_time_begins_with_our_part),
        cmocka_unit_test(the_time_limit),
        cmocka_unit_test(the_window),
        cmocka_unit_test(credit),
        cmocka_unit_test(answers_are_held),
        cmocka_unit_test(the_least_weight),
        cmocka_unit_test(a_senders_time),
        cmocka_unit_test(invalid_parts_are_refused),
        cmocka_unit_test(iterations),
        cmocka_unit_test(the_radius),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
