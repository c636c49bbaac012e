/* run_records.h - reads the DHT's dictionaries of a run for the dashboard: the only source that
 * swarms of any implementation have. [spec hivemind-protocol 8, 10] */
#ifndef PL_RUN_RECORDS_H
#define PL_RUN_RECORDS_H

#include "net/hivemind/records/dht_dictionary.h"
#include "dashboard.h"

/* The records of the four keys; the lists are owned by this struct, run_records_clear frees
 * them. */
struct run_records {
    struct dashboard_metrics *metrics;
    struct dashboard_progress *progress;
    struct dashboard_report *report;
    size_t metrics_count, progress_count, report_count;
    size_t searching; /* peers that look for a group */
    size_t refused;   /* records that do not fit their schema */
};

/* Fills one of the lists anew, at most DASHBOARD_RECORDS_MAX. PL_ENOMEM or PL_OK. */
int run_records_metrics(struct run_records *l, const struct dht_dictionary *d);
int run_records_progress(struct run_records *l, const struct dht_dictionary *d);
int run_records_report(struct run_records *l, const struct dht_dictionary *d);
/* Counts the declarations under a group key. */
int run_records_group(struct run_records *l, const struct dht_dictionary *d);
void run_records_clear(struct run_records *l);

#endif
