/* dashboard.h - a run's page: turns records of the DHT into history, feeds and events. The caller
 * reads the records; they are signed, and have been checked.
 *
 * Published: the page's files; /api/state.json, peers.json, history.json, board.json; /api/events;
 * /metrics for Prometheus. [TTT 2.1] [spec page-and-tools 2, 6] */
#ifndef PL_DASHBOARD_H
#define PL_DASHBOARD_H

#include "history.h"
#include "snapshot.h"
#include "net/http/server/server.h"

#include <jansson.h>

#define DASHBOARD_EVERY 10.0 /* s between polls, as the run's auxiliary peer */
#define DASHBOARD_POINTS 600 /* of the history on the page: one for each 1.5 of its pixels */
#define DASHBOARD_ROWS 200   /* of the tables of peers and accounts */

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

/* The steps of the whole run, from the next update on; 0: not known. */
void dashboard_schedule(struct dashboard *d, int64_t total_steps);
int dashboard_update(struct dashboard *d, const struct dashboard_snapshot *snapshot,
                     struct pl_err *err);

/* A list of files for the page, {"checkpoints": [{"name", "path", "bytes", "step"}], "samples":
 * [{"path", "step"}], "captions": [TEXT]}; takes the reference over. The caller publishes the
 * paths. */
int dashboard_files(struct dashboard *d, json_t *files, struct pl_err *err);

/* Exports the page with its present data as files into `folder`, for after the run: it works from a
 * disk, without a server. */
int dashboard_export(struct dashboard *d, const char *folder, struct pl_err *err);

/* For the key of a record: hex of its subkey's hash. */
void dashboard_key(char out[33], const void *subkey, size_t n);

#endif
