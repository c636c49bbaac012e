/* dht_poll.h - from the DHT's dictionaries of a run to what the dashboard takes: the one source
 * there is for swarms of any implementation. [spec hivemind-protocol 8, 10] */
#ifndef PL_DHT_POLL_H
#define PL_DHT_POLL_H

#include "net/hivemind/records/dht_dictionary.h"
#include "dashboard.h"

/* What was read of the four keys; lists are the holder's, dht_poll_clear frees them. */
struct dht_poll {
    struct dashboard_metrics *metrics;
    struct dashboard_progress *progress;
    struct dashboard_report *report;
    size_t metrics_count, progress_count, report_count;
    size_t searching; /* peers that look for a group */
    size_t refused;   /* records that do not fit their schema */
};

/* Fills one of the lists anew, at most DASHBOARD_RECORDS_MAX. PL_ENOMEM or PL_OK. */
int dht_poll_metrics(struct dht_poll *l, const struct dht_dictionary *d);
int dht_poll_progress(struct dht_poll *l, const struct dht_dictionary *d);
int dht_poll_report(struct dht_poll *l, const struct dht_dictionary *d);
/* Of a group key: counts the declarations. */
int dht_poll_group(struct dht_poll *l, const struct dht_dictionary *d);
void dht_poll_clear(struct dht_poll *l);

#endif
