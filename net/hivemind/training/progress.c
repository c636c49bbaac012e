/* progress.c - how far the swarm is, estimated from everybody's records. [TTT 2.1] [spec
 * hivemind-protocol 8]
 *
 *   estimated = sum_k samples_k + min(now - time_k, 60 s) * speed_k     peers k at the global epoch
 *   speed     = sum_k speed_k                                           all peers
 *   eta       = now + max(0, target - estimated) / speed
 *
 * A record is some seconds old when it is read, so each peer is assumed to go on at its speed.
 * Peers at other epochs do not add samples, but their speed counts: they will have caught up
 * before the step. Each peer computes this alone; from the same records all get nearly the same
 * eta. */
#include "progress.h"

#include <math.h>
#include <string.h>

#define SPEED_MIN 1e-20 /* as hivemind 1.1.12: nothing divides by zero */

int progress_write(struct bytes *out, const struct progress_record *r)
{
    /* In the order in which hivemind writes them. */
    const struct schema_field *f = schema_progress.fields;
    mp_map(out, schema_progress.count);
    mp_text(out, f[0].name);
    mp_bin(out, r->peer.bytes, r->peer.length);
    mp_text(out, f[1].name);
    mp_int(out, r->epoch);
    mp_text(out, f[2].name);
    mp_int(out, r->samples);
    mp_text(out, f[3].name);
    mp_float(out, r->samples_per_second);
    mp_text(out, f[4].name);
    mp_float(out, r->time);
    mp_text(out, f[5].name);
    return mp_bool(out, r->client_mode);
}

/* msgpack integers reach 2^64 - 1, and the schema allows all of them; no honest count is beyond
 * 2^63. */
static int read_fields(struct progress_record *r, const struct mp_value *v, struct pl_err *err)
{
    const struct mp_value *peer = mp_get(v, "peer_id");
    memset(r, 0, sizeof *r);
    if (peer_id_parse(&r->peer, peer->bytes, peer->n))
        return pl_fail(err, PL_EPROTO, "_progress: invalid peer_id (%zu bytes)", peer->n);
    r->epoch = mp_count(mp_get(v, "epoch"));
    r->samples = mp_count(mp_get(v, "samples_accumulated"));
    if (r->epoch < 0 || r->samples < 0)
        return pl_fail(err, PL_EPROTO, "_progress: a count beyond 2^63");
    r->samples_per_second = mp_get(v, "samples_per_second")->real;
    r->time = mp_get(v, "time")->real;
    r->client_mode = mp_get(v, "client_mode")->truth;
    /* One NaN would make everybody's eta a NaN. */
    if (!isfinite(r->samples_per_second) || !isfinite(r->time))
        return pl_fail(err, PL_EPROTO, "_progress: time or speed is not a number");
    return PL_OK;
}

int progress_read(struct progress_record *r, const uint8_t *data, size_t n, struct pl_err *err)
{
    struct mp_value *v;
    int rc = mp_read(&v, data, n, err);
    if (rc) return rc;
    rc = schema_check(&schema_progress, v, err);
    /* nil: the peer has withdrawn its record. */
    if (!rc) rc = v->kind == MP_NIL ? PL_ENOTFOUND : read_fields(r, v, err);
    mp_free(v);
    return rc;
}

static double clip(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x;
}

int64_t progress_plus(int64_t a, int64_t b) { return b <= INT64_MAX - a ? a + b : INT64_MAX; }

/* samples_k + (now - time_k) * speed_k. The age is clipped to a record's life: a peer cannot
 * have been training on for longer, whatever time it claims. */
static double estimated_samples(const struct progress_record *r, double now)
{
    return (double)r->samples + clip(now - r->time, 0, PROGRESS_LIFE) * r->samples_per_second;
}

void progress_update(struct progress_view *v, const struct progress_record *records, size_t count,
                     int any, const struct progress_local *mine, double target_batch, double now)
{
    const double n = (double)count, crowd = fmax(1, n / PROGRESS_FETCH_PEERS);
    double estimated = 0, speed = SPEED_MIN;
    memset(v, 0, sizeof *v);
    v->epoch = mine->epoch;
    /* No records at all: the swarm is this peer. */
    if (!any) {
        v->samples = mine->samples;
        v->eta = now + fmax(0, target_batch - (double)mine->samples) / mine->samples_per_second;
        v->next_fetch = now + PROGRESS_FETCH_ALONE;
        return;
    }
    for (size_t i = 0; i < count; i++)
        /* Clients follow: they could not give a state to peers behind them. */
        if (!records[i].client_mode && records[i].epoch > v->epoch) v->epoch = records[i].epoch;
    for (size_t i = 0; i < count; i++) {
        const struct progress_record *r = &records[i];
        v->peers++;
        v->clients += (size_t)(r->client_mode != 0);
        /* All peers' speeds, the samples of this epoch only. */
        speed += r->samples_per_second;
        if (r->epoch != v->epoch) continue;
        v->samples = progress_plus(v->samples, r->samples);
        estimated += estimated_samples(r, now);
    }
    v->eta = now + fmax(0, target_batch - estimated) / speed;
    /* Poll again after n / max(n + 3, 1.2 n) of the remaining time: at most 5/6 of it, and less
     * in a small swarm, where one newcomer changes the estimate more. In a large one a poll costs
     * more, as it brings everybody's record, and tells less. */
    v->next_fetch = now + clip((v->eta - now) * n / fmax(n + 3, 1.2 * n),
                               fmin(PROGRESS_FETCH_MIN * crowd, PROGRESS_FETCH_MIN_LARGE),
                               fmin(PROGRESS_FETCH_MAX * crowd, PROGRESS_FETCH_MAX_LARGE));
}

/* eta = now + max_k max(0, target - estimated_k) / speed_k     peers k at the global epoch
 *
 * Peers at an earlier epoch first have to download a state, which takes an unknown time; they do
 * not count. */
void progress_update_each(struct progress_view *v, const struct progress_record *records,
                          size_t count, const struct progress_local *mine, double target,
                          double now)
{
    double left = 0;
    size_t at_epoch = 0;
    memset(v, 0, sizeof *v);
    v->epoch = mine->epoch;
    for (size_t i = 0; i < count; i++)
        if (!records[i].client_mode && records[i].epoch > v->epoch) v->epoch = records[i].epoch;
    if (v->epoch == mine->epoch) v->samples = mine->samples;
    for (size_t i = 0; i < count; i++) {
        const struct progress_record *r = &records[i];
        v->peers++;
        v->clients += (size_t)(r->client_mode != 0);
        if (r->epoch != v->epoch) continue;
        at_epoch++;
        left = fmax(left, fmax(0, target - estimated_samples(r, now)) /
                              fmax(r->samples_per_second, SPEED_MIN));
    }
    v->eta = at_epoch ? now + left : INFINITY;
    v->next_fetch = now + clip((v->eta - now) / 2, PROGRESS_FETCH_MIN, PROGRESS_FETCH_EACH_MAX);
}

/* Exponential average of seconds per sample, with Adam's correction of its start at 0:
 *
 *   e <- alpha * dt / n + (1 - alpha) * e      speed = 1 / (e / (1 - (1 - alpha)^k)) */
void performance_init(struct performance *p, double alpha)
{
    p->alpha = alpha;
    p->mean = 0;
    p->remainder = 1;
}

void performance_add(struct performance *p, double samples, double seconds)
{
    p->mean = p->alpha * (seconds / samples) + (1 - p->alpha) * p->mean;
    p->remainder *= 1 - p->alpha; /* (1 - alpha)^k after k batches */
}

double performance_get(const struct performance *p)
{
    if (p->remainder == 1) return SPEED_MIN;
    return 1 / fmax(p->mean / (1 - p->remainder), SPEED_MIN);
}
