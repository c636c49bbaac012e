/* dashboard.h - a run's page: what was seen in the DHT becomes history, feeds and events. Where the
 * records come from is the caller's business; they are signed, and have been checked.
 *
 * Published: the page's files; /api/state.json, peers.json, history.json, board.json; /api/events;
 * /metrics for Prometheus. [TTT 2.1] [spec page-and-tools 2, 6] */
#ifndef PL_DASHBOARD_H
#define PL_DASHBOARD_H

#include "net/hivemind/training/metrics.h"
#include "net/hivemind/training/progress.h"
#include "net/hivemind/training/peer_report.h"
#include "net/libp2p/protocols/latency.h"
#include "history.h"
#include "net/http/server/server.h"

#include <jansson.h>

#define DASHBOARD_EVERY 10.0        /* s between looks, as the original's auxiliary peer */
#define DASHBOARD_RECORDS_MAX 20000 /* of each kind that are taken into account */
#define DASHBOARD_POINTS 600        /* of the history on the page: one for each 1.5 of its pixels */
#define DASHBOARD_ROWS 200          /* of the tables of peers and accounts */

/* A key is named by the first 16 bytes of its SHA-256, in hex; a training beside the page, which
 * signs nothing, by this. */
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
struct dashboard_look {
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
};

struct dashboard_options {
    const char *run;
    double target_batch;  /* samples a step; 0: not known */
    int64_t total_steps;  /* of the schedule; 0: not known */
    const char *database; /* NULL: in memory */
};

struct dashboard;
/* server is borrowed, may be NULL (no feeds) and outlives the dashboard. */
int dashboard_open(struct dashboard **d, struct http_server *server,
                   const struct dashboard_options *o, struct pl_err *err);
void dashboard_close(struct dashboard *d);

int dashboard_update(struct dashboard *d, const struct dashboard_look *look, struct pl_err *err);

/* A list for the page of what else there is, {"checkpoints": [{"name", "path", "bytes", "step"}],
 * "samples": [{"path", "step"}], "captions": [TEXT]}; takes the reference over. The caller
 * publishes the paths. */
int dashboard_files(struct dashboard *d, json_t *files, struct pl_err *err);

/* The whole page with what it shows now as files in `folder`, for after the run: works from a disk,
 * without a server. */
int dashboard_export(struct dashboard *d, const char *folder, struct pl_err *err);

/* For the key of a record: hex of its subkey's hash. */
void dashboard_key(char out[33], const void *subkey, size_t n);

#endif
