/* snapshot.h - a run at one moment: the records that one poll of the DHT has found, checked and
 * signed, with their owners' keys. */
#ifndef PL_HTTP_SNAPSHOT_H
#define PL_HTTP_SNAPSHOT_H

#include "net/hivemind/progress/metrics.h"
#include "net/hivemind/progress/progress.h"
#include "net/hivemind/progress/peer_report.h"
#include "net/libp2p/connections/resources.h"
#include "net/libp2p/protocols/latency.h"

#define DASHBOARD_RECORDS_MAX 20000 /* of each kind that are taken into account */

/* A key is named by the first 16 bytes of its SHA-256, in hex; a training in the page's own
 * process, which signs nothing, by this. */
#define DASHBOARD_THIS "this machine"
struct dashboard_metrics {
    char key[33];
    struct metrics_record record;
    double expiration;
};
struct dashboard_progress {
    char key[33];
    struct progress_record record;
};
struct dashboard_report { /* of our own peers only */
    char key[33];
    struct report_record record;
};
struct dashboard_snapshot {
    double time;                     /* DHT time */
    const struct distance *distance; /* of peers in `progress`, from the machine of the page */
    size_t distance_count;
    const struct dashboard_metrics *metrics;
    size_t metrics_count;
    const struct dashboard_progress *progress;
    size_t progress_count;
    const struct dashboard_report *report;
    size_t report_count;
    double step_s;       /* that a step takes, where no peers report their progress; 0: not known */
    size_t searching;    /* peers that look for a group to average gradients in */
    const char *problem; /* a sentence for the page, or NULL */
    const struct resources *resources; /* of the page's own peer; NULL: it has none */
};

#endif
