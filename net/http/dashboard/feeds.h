/* feeds.h - a run's state as text for the page and other programs: JSON and Prometheus. */
#ifndef PL_FEEDS_H
#define PL_FEEDS_H

#include "history.h"
#include "snapshot.h"

#include <jansson.h>

/* A peer as its records describe it. */
struct feed_peer {
    const char *key;                        /* borrowed from the snapshot */
    const struct metrics_record *metrics;   /* NULL: has not reported a step yet, or not lately */
    const struct progress_record *progress; /* NULL: no record for a minute */
    const struct report_record *report;     /* NULL: of another implementation, or not yet */
    const struct distance *distance;        /* NULL: not measured */
    double seen;
};
double feed_rate(const struct feed_peer *p);

/* Where the present step is. Groups are looked for shortly before the target batch is there. */
enum feed_phase { FEED_ACCUMULATING, FEED_MATCHING, FEED_AVERAGING };

enum feed_status { FEED_EMPTY, FEED_LIVE, FEED_SILENT, FEED_ENDED };

/* The swarm at one moment. */
struct feed_state {
    const char *run, *problem;
    double time, target, loss, samples_per_second, eta, schedule_eta; /* eta: s from now */
    int64_t step, total_steps, samples, rows; /* rows: points written so far */
    int64_t history_version, files_version;   /* change when there is more to fetch */
    size_t peers, clients;
    enum feed_status status;
    double seen;       /* when the newest record was written; 0: no record */
    double throughput; /* samples a second by wall clock; NAN: not known, or the run is not live */
    double mean_throughput; /* from the page's first poll to the last step; NAN: not known */
    /* The share of the time in which peers average, look for groups and wait; NAN: not known. */
    double averaging_share;
    enum feed_phase phase;
    size_t searching;                  /* peers that look for a group */
    int64_t banned;                    /* groupmates caught lying, as present peers count */
    double held_out;                   /* mean over the peers that measure it; NAN: none does */
    int64_t total[HISTORY_COUNTS];     /* since the history began */
    const struct resources *resources; /* of the page's own peer; borrowed; NULL: it has none */
};

/* The caller decrefs them, and asks pl_json_failed() whether all is in them. */
json_t *feed_state_json(const struct feed_state *s);
/* How much of a peer each scope uses, and the limits; 0: none. */
json_t *feed_resources_json(const struct resources *r);
json_t *feed_peers_json(const struct feed_peer *peers, size_t count);
json_t *feed_history_json(const struct history_point *points, size_t count);
/* Points are ordered by key and time; each is given to its account. */
json_t *feed_board_json(const struct history_account *accounts, size_t count,
                        const struct history_span_point *points, size_t point_count);
/* Frees with free(). */
char *feed_prometheus(const struct feed_state *s, size_t watchers);

#endif
