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
 * eta.
 *
 * A new peer has shown none of its samples yet, and a new identity costs nothing. So new peers
 * together add at most as much to each sum as the others, or more if our last group had more of
 * them: however many there are, at least half of a target batch is not theirs. */
#include "progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SPEED_MIN 1e-20 /* as hivemind 1.1.12: nothing divides by zero */

/* --- a part's ID ------------------------------------------------------------------------------ */

/* Where its numbers are; the head in front of them. */
enum { PART_HEAD = 18, PART_BITS = PART_HEAD + 1, PART_PEERS = PART_BITS + 4, PART_END = 34 };
static const uint8_t part_head[PART_HEAD + 1] = "\x12\x20potluck progress";

static void put_be32(uint8_t *to, uint32_t x)
{
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(x >> (24 - 8 * i));
}

static uint32_t be32(const uint8_t *from)
{
    return (uint32_t)from[0] << 24 | (uint32_t)from[1] << 16 | (uint32_t)from[2] << 8 | from[3];
}

void progress_name_part(struct progress_record *r, const uint8_t owner[DHT_ID_BYTES], size_t bits)
{
    memset(&r->peer, 0, sizeof r->peer);
    r->peer.length = PART_END;
    memcpy(r->peer.bytes, part_head, PART_HEAD);
    r->peer.bytes[PART_HEAD] = (uint8_t)bits;
    put_be32(r->peer.bytes + PART_BITS, be32(owner) & ~(uint32_t)(0xffffffffu >> bits));
}

size_t progress_part_bits(const struct progress_record *r)
{
    return r->peers ? r->peer.bytes[PART_HEAD] : 0;
}

/* Moves the numbers out of the ID, so that two sums of one part have one ID. An ID of no peers, or
 * with a number that no part has, stays a peer's. */
static void read_part(struct progress_record *r)
{
    const uint8_t *id = r->peer.bytes, bits = id[PART_HEAD];
    const uint32_t peers = be32(id + PART_PEERS), clients = be32(id + PART_PEERS + 4);
    if (r->peer.length != PART_END || memcmp(id, part_head, PART_HEAD) || !peers || bits < 1 ||
        bits > 31)
        return;
    r->peers = peers;
    r->clients = clients < peers ? clients : peers;
    memset(r->peer.bytes + PART_PEERS, 0, PART_END - PART_PEERS);
}

/* --- the record ------------------------------------------------------------------------------- */

int progress_write(struct bytes *out, const struct progress_record *r)
{
    /* In the order in which hivemind writes them. */
    struct peer_id peer = r->peer;
    if (r->peers) {
        put_be32(peer.bytes + PART_PEERS, r->peers);
        put_be32(peer.bytes + PART_PEERS + 4, r->clients);
    }
    return schema_write(out, &schema_progress, peer.bytes, (size_t)peer.length, r->epoch,
                        r->samples, r->samples_per_second, r->time, r->client_mode);
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
    read_part(r);
    /* One NaN would make everybody's eta a NaN. */
    if (!isfinite(r->samples_per_second) || !isfinite(r->time))
        return pl_fail(err, PL_EPROTO, "_progress: time or speed is not a number");
    return PL_OK;
}

int progress_read(struct progress_record *r, const uint8_t *data, size_t n, struct pl_err *err)
{
    struct mp_value *v;
    int rc = schema_read(&v, &schema_progress, data, n, err);
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

/* --- the estimate ----------------------------------------------------------------------------- */

/* The age is clipped to a record's life: a peer cannot have been training on for longer, whatever
 * time it claims. */
double progress_estimate(const struct progress_record *r, double now)
{
    return (double)r->samples + clip(now - r->time, 0, PROGRESS_LIFE) * r->samples_per_second;
}

static int by_epoch(const void *a_, const void *b_)
{
    const struct progress_vote *a = a_, *b = b_;
    return (a->epoch > b->epoch) - (a->epoch < b->epoch);
}

int64_t progress_majority(struct progress_vote *votes, size_t n)
{
    size_t all = 0, reached = 0;
    qsort(votes, n, sizeof *votes, by_epoch);
    for (size_t i = 0; i < n; i++) all += votes[i].peers;
    while (n && 2 * reached <= all) reached += votes[--n].peers;
    return all ? votes[n].epoch : -1;
}

static void count_peers(struct progress_view *v, const struct progress_record *r)
{
    v->peers += progress_peers(r);
    v->clients += r->peers ? r->clients : r->client_mode != 0;
}

/* A sum over peers that have been in a round, and over new ones. */
struct sum {
    double known, new;
};

static void add(struct sum *s, const struct progress_record *r, double x)
{
    *(r->is_new ? &s->new : &s->known) += x;
}

static double bounded(const struct sum *s, double newcomers)
{
    return s->known + fmin(s->new, newcomers * s->known);
}

void progress_update(struct progress_view *v, const struct progress_record *records, size_t count,
                     int any, const struct progress_local *mine, double target_batch, double now)
{
    struct sum estimated = { 0 }, speed = { .known = SPEED_MIN };
    int64_t new_samples = 0;
    double n, crowd, most;
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
        int64_t *sum = r->is_new ? &new_samples : &v->samples;
        count_peers(v, r);
        /* All peers' speeds, the samples of this epoch only. */
        add(&speed, r, r->samples_per_second);
        if (r->epoch != v->epoch) continue;
        *sum = progress_plus(*sum, r->samples);
        add(&estimated, r, progress_estimate(r, now));
    }
    most = mine->newcomers * (double)v->samples;
    v->samples = progress_plus(v->samples,
                               (double)new_samples > most ? (int64_t)most : new_samples);
    v->eta = now + fmax(0, target_batch - bounded(&estimated, mine->newcomers)) /
                       bounded(&speed, mine->newcomers);
    n = (double)v->peers;
    crowd = fmax(1, n / PROGRESS_FETCH_PEERS);
    /* Poll again after n / max(n + 3, 1.2 n) of the remaining time: at most 5/6 of it, and less
     * in a small swarm, where one newcomer changes the estimate more. In a large one a poll
     * costs more, as everybody asks the same few nodes, and tells less. */
    v->next_fetch = now + clip((v->eta - now) * n / fmax(n + 3, 1.2 * n),
                               fmin(PROGRESS_FETCH_MIN * crowd, PROGRESS_FETCH_MIN_LARGE),
                               fmin(PROGRESS_FETCH_MAX * crowd, PROGRESS_FETCH_MAX_LARGE));
}

/* eta = now + max_k max(0, target - estimated_k) / speed_k     peers k at the global epoch
 *
 * Peers at an earlier epoch first have to download a state, which takes an unknown time; they do
 * not count. Neither do new ones while none is waited for. */
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
        count_peers(v, r);
        if (r->epoch != v->epoch || (r->is_new && !mine->newcomers)) continue;
        at_epoch++;
        left = fmax(left, fmax(0, target - progress_estimate(r, now)) /
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
