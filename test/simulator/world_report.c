/* world_report.c - what peers report of their progress, and which peers a leader therefore expects:
 * the real rule (net/hivemind/progress/liveness) over the records of living and dead peers; and the
 * load on the DHT, since every peer polls all records. */
#include "world_internal.h"
#include "net/hivemind/progress/liveness.h"
#include "net/hivemind/progress/parts.h"
#include "net/hivemind/records/dht_dictionary.h"
#include "net/hivemind/records/validate.h"

#include <math.h>
#include <stdlib.h>

#define LOCAL_BATCH 2.5   /* s, a usual one; a training peer reports after each */
#define POLLS_DIFFER 0.01 /* standard deviation of the number of reports that a peer finds */
#define FRESH_POLLS 2     /* of each step: before the update, and behind it */

/* --- what a record takes ---------------------------------------------------------------------- */

/* One of a run whose records are signed, as they are in any: bytes that it travels as, and how
 * many of them a dictionary of the DHT holds. */
static int measure_record(size_t *bytes, size_t *fit)
{
    const struct progress_record r = {
        .epoch = 10000, .samples = 1000, .samples_per_second = 1, .time = 1.7e9
    };
    struct rsa_key key = { 0 };
    struct validators v = { .key = &key };
    struct bytes subkey = { 0 }, plain = { 0 }, value = { 0 }, out = { 0 };
    struct dht_dictionary d;
    struct dht_id id;
    int rc;
    dht_dictionary_init(&d);
    rc = rsa_key_make(&key, NULL);
    if (!rc) rc = validators_add_run(&v, "run");
    if (!rc) rc = dht_id_of_text(&id, "run_progress");
    if (!rc) rc = record_own_subkey(&subkey, &key);
    if (!rc) rc = progress_write(&plain, &r);
    if (!rc)
        rc = record_sign(&value, &v,
                         &(struct record){ .key = id.bytes,
                                           .key_n = sizeof id.bytes,
                                           .subkey = bytes_at(&subkey),
                                           .subkey_n = bytes_length(&subkey),
                                           .value = bytes_at(&plain),
                                           .n = bytes_length(&plain),
                                           .expiration = r.time + PROGRESS_LIFE });
    if (!rc)
        rc = dht_dictionary_store(&d, r.time, bytes_at(&subkey), bytes_length(&subkey),
                                  bytes_at(&value), bytes_length(&value), r.time + PROGRESS_LIFE);
    if (!rc) rc = dht_dictionary_write(&out, &d);
    *bytes = bytes_length(&out);
    *fit = d.bytes ? DHT_DICTIONARY_SIGNED_MAX / d.bytes : 0;
    dht_dictionary_clear(&d);
    bytes_clear(&subkey);
    bytes_clear(&plain);
    bytes_clear(&value);
    bytes_clear(&out);
    rsa_key_clear(&key);
    return rc;
}

int world_open_reports(struct world *w)
{
    for (int k = 0; k < REPLICAS; k++) w->progress_uplink[k] = link_draw_public(&w->rng);
    return measure_record(&w->record_bytes, &w->records_fit);
}

/* How often one peer polls while a batch is collected: the others' speed decides. It reads `count`
 * records, each of as many peers. */
static int count_polls(struct world *w, size_t count, size_t *polls)
{
    struct progress_record *records = world_need(w, calloc(count, sizeof *records));
    const size_t each = w->o.peers / count;
    const double speed = 1 / LOCAL_BATCH,
                 target = speed * w->o.accumulate_s * (double)(each * count);
    const struct progress_local mine = { .samples_per_second = speed };
    if (!records) return PL_ENOMEM;
    *polls = FRESH_POLLS;
    for (double now = 0; now < w->o.accumulate_s; ++*polls) {
        struct progress_view v;
        for (size_t i = 0; i < count; i++) {
            double reported = now -
                              fmod(now + LOCAL_BATCH * (double)i / (double)count, LOCAL_BATCH);
            records[i] = (struct progress_record){ .samples = (int64_t)(fmax(0, reported) * speed *
                                                                        (double)each),
                                                   .samples_per_second = speed * (double)each,
                                                   .time = reported,
                                                   .peers = each > 1 ? (uint32_t)each : 0 };
        }
        progress_update(&v, records, count, 1, &mine, target, now);
        now = v.next_fetch;
    }
    free(records);
    return PL_OK;
}

/* Each peer reads the run's key: all records, or the sums of its parts; and with parts those of its
 * own. The busier of these keys counts. lost: the share of polls that none of its five nodes has the
 * uplink for. */
int world_progress_load(struct world *w, double *a_second, double *lost)
{
    const size_t n = w->o.peers, level = w->o.grid ? parts_level(0, n, PARTS_PEERS) : 0,
                 most = n < w->records_fit ? n : w->records_fit,
                 parts = (size_t)1 << RECORD_PART_BITS, top = level ? parts : most,
                 part = n >> level * RECORD_PART_BITS;
    size_t polls;
    if (count_polls(w, top, &polls)) return PL_ENOMEM;
    *a_second = (double)(n * top);
    if (level) *a_second = fmax(*a_second, (double)(part * part));
    *a_second *= (double)(polls * w->record_bytes) / w->o.accumulate_s;
    *lost = 1;
    for (int k = 0; k < REPLICAS; k++) *lost *= 1 - fmin(1, w->progress_uplink[k] / *a_second);
    return PL_OK;
}

/* --- who is expected -------------------------------------------------------------------------- */

/* A peer that waits in a round reports again and again. */
static double newest_report(const struct world *w, const struct peer *p)
{
    if (p->triggered && !p->done) return w->now - fmod(w->now - p->ready, MATCHMAKING_TIME);
    return w->now - fmod(w->now + p->phase, p->batch);
}

void world_leave_report(struct world *w, const struct peer *p)
{
    struct ghost g = { p->m.o.self, newest_report(w, p), p->met };
    size_t kept = 0;
    void *more;
    if (!p->reports) return;
    for (size_t i = 0; i < w->ghost_count; i++)
        if (w->ghosts[i].reported + PROGRESS_LIFE > w->now) w->ghosts[kept++] = w->ghosts[i];
    w->ghost_count = kept;
    more = world_need(w, realloc(w->ghosts, (kept + 1) * sizeof *w->ghosts));
    if (!more) return;
    w->ghosts = more;
    w->ghosts[w->ghost_count++] = g;
}

/* Of those that a dictionary holds, or that parts' sums show; polls at different moments differ by
 * some. */
size_t world_reports_found(struct world *w)
{
    double n = 0;
    if (!w->reporting_at || w->reporting_epoch != w->epoch) {
        w->reporting_epoch = w->epoch;
        w->reporting_at = 0;
        for (size_t i = 0; i < w->o.peers; i++) w->reporting_at += w->peer[i].reports != 0;
        for (size_t i = 0; i < w->ghost_count; i++)
            w->reporting_at += w->ghosts[i].reported + PROGRESS_LIFE > w->now;
    }
    n = (double)w->reporting_at;
    if (!w->o.grid) n = fmin(n, (double)w->records_fit);
    return (size_t)rint(n * (1 + POLLS_DIFFER * pl_rng_normal(&w->rng)));
}

/* Our last round, as far as it decides which records count now. */
static int attended(struct liveness *a, struct world *w, const struct peer *p)
{
    static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    struct group g = { 0 };
    int rc = PL_OK;
    for (size_t i = 0; !rc && p->met != MET_NOBODY && i < w->o.peers; i++)
        if (w->peer[i].met == p->met)
            rc = group_append(&g, &w->peer[i].m.o.self, gather, sizeof gather, NULL);
    for (size_t i = 0; !rc && p->met != MET_NOBODY && i < w->ghost_count; i++)
        if (w->ghosts[i].met == p->met)
            rc = group_append(&g, &w->ghosts[i].id, gather, sizeof gather, NULL);
    if (!rc) liveness_round(a, &g, p->met_trigger);
    group_clear(&g);
    return rc;
}

/* All peers poll the same records, and differ only in the records that they have missed. So no peer
 * keeps a list of all: it is made again from the last round when it is needed. */
static size_t expected(struct world *w, const struct peer *p)
{
    const size_t capacity = w->o.peers + w->ghost_count;
    struct progress_record *all = world_need(w, calloc(capacity + 1, sizeof *all)),
                           *seen = world_need(w, calloc(capacity + 1, sizeof *seen));
    struct liveness a = { 0 };
    size_t n = 0, others = 0;
    int rc = w->no_memory ? PL_ENOMEM : PL_OK;
    for (size_t i = 0; !rc && i < w->ghost_count && n < w->records_fit; i++)
        if (w->ghosts[i].reported + PROGRESS_LIFE > w->now)
            all[n++] = (struct progress_record){ .peer = w->ghosts[i].id,
                                                 .time = w->ghosts[i].reported };
    for (size_t i = 0; !rc && i < w->o.peers && n < w->records_fit; i++)
        if (i != p->self && w->peer[i].reports)
            all[n++] = (struct progress_record){ .peer = w->peer[i].m.o.self,
                                                 .time = newest_report(w, &w->peer[i]) };
    others = n;
    if (!rc && p->met != MET_NONE && p->met_trigger + PROGRESS_LIFE > w->now) {
        for (size_t i = 0; i < n; i++) seen[i] = all[i];
        rc = liveness_update(&a, seen, n, w->now, &others);
        if (!rc) rc = attended(&a, w, p);
        if (!rc) rc = liveness_update(&a, all, n, w->now, &others);
    }
    liveness_clear(&a);
    free(all);
    free(seen);
    if (rc) w->no_memory = 1;
    return others + 1;
}

void world_expect(struct peer *p)
{
    struct world *w = p->w;
    size_t alive = 0;
    if (!w->o.expect || !p->triggered || p->m.expected || !p->m.followers.count) return;
    if (!p->expects) {
        p->expects = expected(w, p);
        for (size_t i = 0; i < w->o.peers; i++) alive += w->peer[i].reports != 0;
        w->n.expecting++;
        w->n.expected_dead += fmax(0, (double)p->expects - (double)alive);
    }
    matchmaking_expect(&p->m, w->now, p->expects);
}
