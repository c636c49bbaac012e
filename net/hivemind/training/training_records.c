/* training_records.c - the records for the dashboard, once per epoch, and the caller's view
 * of the swarm. [spec hivemind-protocol 10]
 *
 *   RUN_metrics   loss, samples, speed: hivemind's record, which its monitor adds up over all peers
 *   RUN_report    rounds, bytes, reachability: our own record, since hivemind's has no other fields
 *
 * Both are claims of the peer that signs them; the dashboard shows them, and nothing else uses
 * them. */
#include "training_internal.h"

#include <math.h>
#include <string.h>

/* a + b, staying far below overflow: the totals are sent, and only grow. */
static int64_t add_saturating(int64_t a, size_t b)
{
    return a > INT64_MAX / 2 || b > INT64_MAX / 8 ? INT64_MAX / 2 : a + (int64_t)b;
}

static void add_seconds(int64_t *ms, double seconds)
{
    if (seconds > 0) *ms = add_saturating(*ms, (size_t)(1e3 * fmin(seconds, 1e9) + 0.5));
}

void training_count_batch(struct training *c, int64_t samples, double seconds)
{
    struct report_record *t = &c->records.totals;
    if (samples > 0) t->samples = add_saturating(t->samples, (size_t)samples);
    add_seconds(&t->computed_ms, seconds);
}

void training_count_wait(struct training *c, double seconds)
{
    add_seconds(&c->records.totals.waited_ms, seconds);
}

/* Adds a round to the totals. A difference in setup that the group showed becomes a warning,
 * once. */
void training_count(struct training *c, const struct averager_result *r, int missed)
{
    struct report_record *t = &c->records.totals;
    if (r->differs[0] && !c->records.has_warned_differs) {
        c->records.has_warned_differs = 1;
        training_warn(c, r->differs);
    }
    /* So does the name of a peer that rounds leave out. */
    if (r->left_out[0] && !c->records.has_warned_left_out) {
        c->records.has_warned_left_out = 1;
        training_warn(c, r->left_out);
    }
    /* A round counts as failed if there was a group, or should have been one: being alone is no
     * failure. */
    add_seconds(&t->averaged_ms, r->seconds);
    t->rounds += !r->status;
    t->failed += r->status && (r->group || missed);
    t->retried += r->attempts > 1 ? r->attempts - 1 : 0;
    t->banned += r->banned;
    t->sent = add_saturating(t->sent, r->report.bytes_out);
    t->received = add_saturating(t->received, r->report.bytes_in);
    /* The bytes of the same values as float32: the ratio to `sent` is the effect of compression. */
    t->uncompressed = add_saturating(t->uncompressed, sizeof(float) * r->report.values_out);
}

/* Our second record, for dashboards of this implementation (peer_report.c). */
static void publish_report(struct training *c)
{
    struct dht_status status;
    struct bytes value = { 0 };
    dht_node_status(c->o.node, &status);
    /* How others reach us: hole punching and relays matter to readers of the dashboard. */
    c->records.totals.reachability = c->o.client_mode || !status.reachable ? REPORT_UNREACHABLE
                                     : status.relayed                      ? REPORT_RELAYED
                                                                           : REPORT_DIRECT;
    c->records.totals.shared_ms = (int64_t)(1e3 * averager_shared(c->a[STATE]));
    if (!report_write(&value, &c->records.totals))
        training_store(c, &c->records.report_key, &value, REPORT_LIFE);
    bytes_clear(&value);
}

/* Written with the next report, and every one after it. */
static void set_held_out(void *context)
{
    struct request *w = context;
    w->c->records.totals.held_out = w->seconds;
}

void training_held_out(struct training *c, double loss)
{
    struct request w = { .c = c, .seconds = loss };
    loop_call(c->loop, set_held_out, &w);
}

/* Once per epoch of our own: the record of the epoch that has just ended. */
static void publish_records(void *context)
{
    struct request *w = context;
    struct bytes value = { 0 };
    /* step, samples_per_second; the caller has set loss, mini_steps and samples. The loss is a sum
     * over local steps: the monitor divides sums by sums. */
    w->metrics.step = w->c->own.epoch;
    w->metrics.samples_per_second = performance_get(&w->c->own.speed);
    /* Only from a peer that is in step: the sums mix all records, whatever their epoch. */
    if (w->c->own.epoch == w->c->poll.view.epoch && !metrics_write(&value, &w->metrics))
        training_store(w->c, &w->c->records.metrics_key, &value, METRICS_LIFE);
    bytes_clear(&value);
    publish_report(w->c);
}

/* After each step of ours; hivemind's peers do it when their own epoch changes. */
void training_publish(struct training *c, double loss, int64_t mini_steps, int64_t samples)
{
    struct request w = {
        .c = c, .metrics = { .loss = loss, .mini_steps = mini_steps, .samples = samples }
    };
    loop_call(c->loop, publish_records, &w);
}

/* The oldest warning first. */
static void take_warning(void *context)
{
    struct request *w = context;
    struct training *c = w->c;
    w->number = c->records.warning_count > 0;
    if (w->number) {
        *w->err = c->records.warnings[0];
        memmove(c->records.warnings, c->records.warnings + 1,
                --c->records.warning_count * sizeof *c->records.warnings);
    }
}

int training_take_warning(struct training *c, struct pl_err *warning)
{
    struct request w = { .c = c, .err = warning };
    loop_call(c->loop, take_warning, &w);
    return w.number != 0;
}

static void copy_view(void *context)
{
    struct request *w = context;
    struct training *c = w->c;
    /* All of one moment: fields read one by one would not belong together. */
    *w->view = (struct training_view){ .epoch = c->own.epoch,
                                       .samples = c->own.samples,
                                       .global_epoch = c->poll.displayed > c->own.epoch
                                                           ? c->poll.displayed
                                                           : c->own.epoch,
                                       .is_unshown = c->load.failures == LOAD_FAILURES_MAX,
                                       .global_samples = c->poll.view.samples,
                                       .peers = c->poll.others + 1,
                                       .eta_s = fmax(0, c->poll.view.eta - training_now(c)),
                                       .samples_per_second = performance_get(&c->own.speed) };
}

void training_get_view(struct training *c, struct training_view *v)
{
    struct request w = { .c = c, .view = v };
    loop_call(c->loop, copy_view, &w);
}
