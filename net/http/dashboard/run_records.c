/* run_records.c - a run's DHT dictionaries as the dashboard's records. [spec hivemind-protocol 4.1,
 * 8, 10]
 *
 * One function for each key: metrics, progress, report, and the group key, under which peers
 * advertise that they look for a group. The subkey names the signing key, and so joins the
 * records of one peer. Signatures were checked and removed by the DHT node. A record that does
 * not fit its schema is counted and left out, so one bad peer does not hide the others. */
#include "run_records.h"

#include <stdlib.h>
#include <string.h>

static size_t wanted(const struct dht_dictionary *d)
{
    return d->count < DASHBOARD_RECORDS_MAX ? d->count : DASHBOARD_RECORDS_MAX;
}

int run_records_metrics(struct run_records *l, const struct dht_dictionary *d)
{
    size_t n = wanted(d);
    free(l->metrics);
    l->metrics_count = 0;
    if (!(l->metrics = calloc(n + 1, sizeof *l->metrics))) return PL_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct dht_item *item = &d->items[i];
        struct dashboard_metrics *m = &l->metrics[l->metrics_count];
        if (metrics_read(&m->record, item->value, item->n, NULL)) {
            l->refused++;
            continue;
        }
        dashboard_key(m->key, item->subkey, item->subkey_n);
        m->expiration = item->expiration;
        l->metrics_count++;
    }
    return PL_OK;
}

int run_records_progress(struct run_records *l, const struct dht_dictionary *d)
{
    size_t n = wanted(d);
    free(l->progress);
    l->progress_count = 0;
    if (!(l->progress = calloc(n + 1, sizeof *l->progress))) return PL_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct dht_item *item = &d->items[i];
        struct dashboard_progress *p = &l->progress[l->progress_count];
        int rc = progress_read(&p->record, item->value, item->n, NULL);
        if (rc == PL_ENOTFOUND) continue; /* nil: the peer has left */
        if (rc) {
            l->refused++;
            continue;
        }
        dashboard_key(p->key, item->subkey, item->subkey_n);
        l->progress_count++;
    }
    return PL_OK;
}

int run_records_report(struct run_records *l, const struct dht_dictionary *d)
{
    size_t n = wanted(d);
    free(l->report);
    l->report_count = 0;
    if (!(l->report = calloc(n + 1, sizeof *l->report))) return PL_ENOMEM;
    for (size_t i = 0; i < n; i++) {
        const struct dht_item *item = &d->items[i];
        struct dashboard_report *r = &l->report[l->report_count];
        if (report_read(&r->record, item->value, item->n, NULL)) {
            l->refused++;
            continue;
        }
        dashboard_key(r->key, item->subkey, item->subkey_n);
        l->report_count++;
    }
    return PL_OK;
}

int run_records_group(struct run_records *l, const struct dht_dictionary *d)
{
    static const uint8_t yes = 0xc3; /* msgpack's; false: has found its group, or has given up */
    l->searching = 0;
    for (size_t i = 0; i < wanted(d); i++)
        l->searching += d->items[i].n == 1 && d->items[i].value[0] == yes;
    return PL_OK;
}

void run_records_clear(struct run_records *l)
{
    free(l->metrics);
    free(l->progress);
    free(l->report);
    memset(l, 0, sizeof *l);
}
