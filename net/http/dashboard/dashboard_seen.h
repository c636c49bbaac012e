/* dashboard_seen.h - a poll of the DHT, bounded and joined peer by peer. */
#ifndef PL_HTTP_DASHBOARD_SEEN_H
#define PL_HTTP_DASHBOARD_SEEN_H

#include "snapshot.h"
#include "feeds.h"

/* The records, ordered by key so that the kinds meet; the peers, the fastest first. */
struct seen {
    struct dashboard_metrics *metrics;
    struct dashboard_progress *progress;
    struct dashboard_report *report;
    size_t metrics_count, progress_count, report_count, count;
    struct feed_peer *peers;
};

/* From a snapshot, which is borrowed as long as `s` is used. `s` begins as zeros; after PL_ENOMEM
 * call seen_clear, too. */
int seen_take(struct seen *s, const struct dashboard_snapshot *snapshot);
void seen_clear(struct seen *s);

/* The mean of the peers' held-out losses; NAN: no peer reports one. */
double seen_held_out(const struct seen *s);
/* Groupmates caught lying, as all peers count. */
int64_t seen_banned(const struct seen *s);

#endif
