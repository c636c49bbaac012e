/* metrics.c - the record that each peer stores once per epoch, and the dashboard's sums over all
 * of them. [spec hivemind-protocol 10]
 *
 *   loss = sum_k loss_k / sum_k mini_steps_k     over all peers k, whatever their epoch
 *   step = max_k step_k                          samples, speed: sums
 *
 * These are hivemind's definitions, so that its monitor and ours show the same numbers. A peer
 * that falls behind counts with its old record until that expires, after 600 s. */
#include "metrics.h"

#include <string.h>

int metrics_write(struct bytes *out, const struct metrics_record *r)
{
    /* The five fields of hivemind's dataclass, in its order: a sixth would fail its validators. */
    return schema_write(out, &schema_metrics, r->step, r->samples_per_second, r->samples, r->loss,
                        r->mini_steps);
}

static int read_fields(struct metrics_record *r, const struct mp_value *v, struct pl_err *err)
{
    r->step = mp_count(mp_get(v, "step"));
    r->samples = mp_count(mp_get(v, "samples_accumulated"));
    r->mini_steps = mp_count(mp_get(v, "mini_steps"));
    r->samples_per_second = mp_get(v, "samples_per_second")->real;
    r->loss = mp_get(v, "loss")->real;
    /* mp_count gives -1 for a number that does not fit int64. */
    if (r->step < 0 || r->samples < 0 || r->mini_steps < 0)
        return pl_fail(err, PL_EPROTO, "_metrics: a count beyond 2^63");
    return PL_OK;
}

int metrics_read(struct metrics_record *r, const uint8_t *data, size_t n, struct pl_err *err)
{
    struct mp_value *v;
    int rc = schema_read(&v, &schema_metrics, data, n, err);
    memset(r, 0, sizeof *r);
    if (!rc) rc = read_fields(r, v, err);
    mp_free(v);
    return rc;
}

void metrics_sum(struct metrics_sums *s, const struct metrics_record *records, size_t count)
{
    double loss = 0, steps = 0;
    memset(s, 0, sizeof *s);
    /* No records yet: there is no step. */
    s->step = -1;
    for (size_t i = 0; i < count; i++) {
        const struct metrics_record *r = &records[i];
        if (r->step > s->step) s->step = r->step;
        /* Each record holds a sum over its mini-steps, so sums are added before dividing. */
        loss += r->loss;
        steps += (double)r->mini_steps;
        /* Strangers' counts: the sum stops at the largest number instead of overflowing. */
        s->samples += r->samples <= INT64_MAX - s->samples ? r->samples : INT64_MAX - s->samples;
        s->samples_per_second += r->samples_per_second;
    }
    s->peers = count;
    /* Weighted by mini-steps: a peer with many batches counts more than one with few. */
    s->loss = steps > 0 ? loss / steps : 0;
}
