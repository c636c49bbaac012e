/* dashboard_seen.c - a poll of the DHT made usable: every claim bounded, and the records of each
 * peer joined.
 *
 * A signature shows who claims a number, not that it is true. One peer with 10^18 samples would
 * hide all others in a sum, so each value is cut to a limit that no honest peer exceeds. Then
 * metrics and progress, sorted by key, are merged like two sorted lists; reports are looked up. */
#include "dashboard_seen.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bounds for one peer and step: a million times the run's fastest peer. */
#define SAMPLES_MAX 1000000000
#define RATE_MAX 1e6
#define LOSS_MAX 1e12

static double within(double x, double max) { return x > 0 ? (x < max ? x : max) : 0; }
static int64_t at_most(int64_t x, int64_t max) { return x < max ? x : max; }

/* Of records of each kind, which begin with their key (snapshot.h). */
static int by_key(const void *a, const void *b) { return strcmp(a, b); }

static int by_rate(const void *a_, const void *b_)
{
    const struct feed_peer *a = a_, *b = b_;
    double x = feed_rate(a), y = feed_rate(b);
    return x < y ? 1 : x > y ? -1 : strcmp(a->key, b->key);
}

void seen_clear(struct seen *s)
{
    free(s->metrics);
    free(s->progress);
    free(s->report);
    free(s->peers);
}

static void bound(struct seen *s)
{
    for (size_t i = 0; i < s->metrics_count; i++) {
        struct metrics_record *r = &s->metrics[i].record;
        r->samples = at_most(r->samples, SAMPLES_MAX);
        r->mini_steps = at_most(r->mini_steps, SAMPLES_MAX);
        r->samples_per_second = within(r->samples_per_second, RATE_MAX);
        if (!(fabs(r->loss) <= LOSS_MAX))
            r->loss = 0, r->mini_steps = 0; /* counts as not reported */
    }
    for (size_t i = 0; i < s->progress_count; i++) {
        struct progress_record *r = &s->progress[i].record;
        r->samples = at_most(r->samples, SAMPLES_MAX);
        r->samples_per_second = within(r->samples_per_second, RATE_MAX);
    }
    for (size_t i = 0; i < s->report_count; i++) {
        struct report_record *r = &s->report[i].record;
        int64_t *const counts[] = {
            &r->rounds,      &r->failed,    &r->retried,      &r->banned,
            &r->sent,        &r->received,  &r->uncompressed, &r->samples,
            &r->computed_ms, &r->waited_ms, &r->averaged_ms,  &r->shared_ms
        };
        for (size_t k = 0; k < PL_COUNT(counts); k++)
            *counts[k] = at_most(*counts[k], HISTORY_COUNT_MAX);
        if (!(fabs(r->held_out) <= LOSS_MAX)) r->held_out = NAN;
    }
}

/* The report of the same key, or NULL: a report without other records is ignored. */
static const struct report_record *report_of(const struct seen *s, const char *key)
{
    struct dashboard_report wanted;
    const struct dashboard_report *found;
    if (!s->report_count) return NULL;
    snprintf(wanted.key, sizeof wanted.key, "%s", key);
    found = bsearch(&wanted, s->report, s->report_count, sizeof *s->report, by_key);
    return found ? &found->record : NULL;
}

/* To the peer itself, not its key: few are measured, so a list does. */
static const struct distance *distance_of(const struct dashboard_snapshot *snapshot,
                                          const struct peer_id *peer)
{
    for (size_t i = 0; i < snapshot->distance_count; i++)
        if (peer_id_equal(&snapshot->distance[i].peer, peer)) return &snapshot->distance[i];
    return NULL;
}

static size_t bounded(size_t n) { return n < DASHBOARD_RECORDS_MAX ? n : DASHBOARD_RECORDS_MAX; }

int seen_take(struct seen *s, const struct dashboard_snapshot *snapshot)
{
    size_t i = 0, k = 0;
    s->metrics_count = bounded(snapshot->metrics_count);
    s->progress_count = bounded(snapshot->progress_count);
    s->report_count = bounded(snapshot->report_count);
    s->metrics = calloc(s->metrics_count + 1, sizeof *s->metrics);
    s->progress = calloc(s->progress_count + 1, sizeof *s->progress);
    s->peers = calloc(s->metrics_count + s->progress_count + 1, sizeof *s->peers);
    s->report = calloc(s->report_count + 1, sizeof *s->report);
    if (!s->metrics || !s->progress || !s->report || !s->peers) return PL_ENOMEM;
    if (s->metrics_count)
        memcpy(s->metrics, snapshot->metrics, s->metrics_count * sizeof *s->metrics);
    if (s->progress_count)
        memcpy(s->progress, snapshot->progress, s->progress_count * sizeof *s->progress);
    if (s->report_count) memcpy(s->report, snapshot->report, s->report_count * sizeof *s->report);
    bound(s);
    qsort(s->report, s->report_count, sizeof *s->report, by_key);
    qsort(s->metrics, s->metrics_count, sizeof *s->metrics, by_key);
    qsort(s->progress, s->progress_count, sizeof *s->progress, by_key);
    /* A merge of two sorted lists: a peer may have metrics, progress, or both. */
    while (i < s->metrics_count || k < s->progress_count) {
        const int is_part = k < s->progress_count && s->progress[k].record.peers;
        int order = i == s->metrics_count    ? 1
                    : k == s->progress_count ? -1
                                             : strcmp(s->metrics[i].key, s->progress[k].key);
        struct feed_peer *p = &s->peers[s->count++];
        if (order <= 0) {
            p->key = s->metrics[i].key;
            p->metrics = &s->metrics[i].record;
            /* Metrics carry no time: their expiration less their life is when they were stored. */
            p->seen = s->metrics[i].expiration - METRICS_LIFE;
            i++;
        }
        /* A part's sum is in the run's totals, but says nothing about the peer that signed it. */
        if (order >= 0 && is_part) {
            k++;
            if (order > 0) {
                s->count--;
                continue;
            }
        } else if (order >= 0) {
            p->key = s->progress[k].key;
            p->progress = &s->progress[k].record;
            p->seen = fmax(p->seen, p->progress->time);
            p->distance = distance_of(snapshot, &p->progress->peer);
            k++;
        }
        /* The clock is ahead: times in the future are set to now. */
        p->seen = fmin(p->seen, snapshot->time);
        p->report = report_of(s, p->key);
    }
    qsort(s->peers, s->count, sizeof *s->peers, by_rate);
    return PL_OK;
}

double seen_held_out(const struct seen *s)
{
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++)
        if (s->peers[i].report && isfinite(s->peers[i].report->held_out))
            sum += s->peers[i].report->held_out, n++;
    return n ? sum / (double)n : (double)NAN;
}

int64_t seen_banned(const struct seen *s)
{
    int64_t sum = 0;
    for (size_t i = 0; i < s->count; i++)
        if (s->peers[i].report) sum += s->peers[i].report->banned;
    return sum;
}
