/* preflight_records.c - checks by records of the DHT: how fast a large record can be stored and
 * fetched, whether any peer trains the run, and with which target batch. */
#include "preflight_internal.h"

#include "net/hivemind/progress/progress.h"
#include "net/hivemind/progress/peer_report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOAD_EXPIRES 20.0   /* s that the record lives */
#define SLOW 1.0e6          /* bytes a second; a step of the run moves 100 MB each way */
#define ROUND_TRIP_MOST 0.9 /* of a call's time that may be the way there and back */

/* The record's value: msgpack, bin32. */
static uint8_t *make_load(size_t n)
{
    const uint8_t head[] = { 0xc6, (n - 5) >> 24 & 255, (n - 5) >> 16 & 255, (n - 5) >> 8 & 255,
                             (n - 5) & 255 };
    uint8_t *load = calloc(1, n);
    if (load) memcpy(load, head, sizeof head);
    return load;
}

/* The part of an RPC's time that the data took: all but the round trip. */
static double net(const struct preflight_bootstrap *e, double seconds)
{
    return fmax(seconds - e->ping_s, (1 - ROUND_TRIP_MOST) * seconds);
}

/* Stores and fetches a large record twice; the faster one counts, because TCP starts slowly. */
void preflight_bandwidth(struct preflight *c)
{
    struct bytes store = { 0 }, find = { 0 };
    size_t n = c->plan->load;
    uint8_t *load = n ? make_load(n) : NULL;
    struct dht_record r = {
        .subkey = dht_no_subkey, .subkey_n = sizeof dht_no_subkey, .value = load, .n = n
    };
    struct probe p = { .s = c->s, .stop = c->stop };
    char brief[32];
    double up = INFINITY, down = INFINITY, slower;
    int rc = PL_OK;
    if (!load || c->options->auth || dht_id_random(&r.key)) { /* with a token requests are signed */
        free(load);
        return;
    }
    p.peer = c->good[0]->peer;
    for (int i = 0; i < 2 && !rc; i++) {
        r.expiration = swarm_time(c->s) + LOAD_EXPIRES + i;
        bytes_clear(&store);
        rc = dht_write_store(&store, NULL, &r, 1);
        if (!rc) rc = probe_call(&p, dht_call_name(DHT_STORE), &store);
        up = fmin(up, net(c->good[0], p.seconds));
        if (!i && !rc) rc = dht_write_find(&find, NULL, &r.key, 1);
        if (!rc) rc = probe_call(&p, dht_call_name(DHT_FIND), &find);
        down = fmin(down, net(c->good[0], p.seconds));
    }
    slower = (double)n / fmax(up, down);
    snprintf(brief, sizeof brief, "\n\n%.1f MB/s", 1e-6 * slower);
    if (!rc)
        preflight_say(c, slower < SLOW ? FINDING_WARNING : FINDING_GOOD, "bandwidth",
                      "%.1f MB/s to the first bootstrap peer, %.1f MB/s from it%s",
                      1e-6 * (double)n / up, 1e-6 * (double)n / down,
                      slower < SLOW ? "\nyour side: a slow connection delays everybody's steps: "
                                      "use a small --bandwidth or --client-mode"
                                    : brief);
    else if (!probe_is_stopped(c->s, c->stop))
        preflight_say(c, FINDING_WARNING, "bandwidth", "not measured: %.200s\ntry again", p.why);
    bytes_clear(&store);
    bytes_clear(&find);
    free(load);
}

/* --- the run ---------------------------------------------------------------------------------- */

struct run_view {
    size_t peers;
    int64_t epoch;
    size_t reported; /* peers that report their target batch: ours do, Python peers do not */
    int64_t least, most;
};

static int get_records(struct preflight *c, struct dht_result *r, const struct schema *of)
{
    char key[256];
    struct dht_id id;
    snprintf(key, sizeof key, "%.200s%s", c->plan->run, of->suffix);
    dht_result_init(r);
    return dht_id_of_text(&id, key) ? PL_ENOMEM : swarm_get(c->s, r, &id, 1);
}

/* The peers that train now. Reports of peers that have left stay in the DHT for a while. */
static void view_run(struct preflight *c, struct run_view *v)
{
    struct dht_result progress, reports;
    int rc = get_records(c, &progress, &schema_progress);
    int has_reports = !get_records(c, &reports, &schema_report) &&
                      reports.type == DHT_FOUND_DICTIONARY;
    memset(v, 0, sizeof *v);
    for (size_t i = 0;
         !rc && progress.type == DHT_FOUND_DICTIONARY && i < progress.dictionary.count; i++) {
        const struct dht_item *item = &progress.dictionary.items[i], *report;
        struct progress_record record;
        struct report_record reported;
        if (progress_read(&record, item->value, item->n, NULL)) continue;
        v->peers += progress_peers(&record);
        if (!record.peers && c->trainer_count < PREFLIGHT_WAYS_MAX)
            c->trainers[c->trainer_count++] = record.peer;
        if (record.epoch > v->epoch) v->epoch = record.epoch;
        report = has_reports
                     ? dht_dictionary_find(&reports.dictionary, item->subkey, item->subkey_n)
                     : NULL;
        if (!report || report_read(&reported, report->value, report->n, NULL) ||
            !reported.target_batch)
            continue;
        if (!v->reported || reported.target_batch < v->least) v->least = reported.target_batch;
        if (!v->reported || reported.target_batch > v->most) v->most = reported.target_batch;
        v->reported++;
    }
    dht_result_clear(&progress);
    dht_result_clear(&reports);
}

/* Peers with different target batches step at different times. */
static void compare_targets(struct preflight *c, const struct run_view *v)
{
    int64_t ours = c->plan->target_batch;
    if (!v->reported) return;
    if (v->least != v->most)
        preflight_say(
            c, FINDING_WARNING, "target",
            "the peers of \"%.100s\" have target batches of %lld to %lld "
            "samples\ntheir side: all peers must have the same --target-batch; the smallest makes "
            "the others step too early",
            c->plan->run, (long long)v->least, (long long)v->most);
    else if (ours && ours != v->most)
        preflight_say(
            c, FINDING_WARNING, "target",
            "%zu of the peers of \"%.100s\" report%s a target "
            "batch of %lld samples, ours is %lld\nyour side, if they are right: --target-batch "
            "%lld",
            v->reported, c->plan->run, v->reported == 1 ? "s" : "", (long long)v->most,
            (long long)ours, (long long)v->most);
}

/* A misspelled name is another run, which is not an error to any other peer. */
void preflight_run(struct preflight *c)
{
    struct run_view v;
    char target[64] = "";
    if (!c->plan->run || c->clock_differs) return;
    view_run(c, &v);
    if (v.reported && v.least == v.most)
        snprintf(target, sizeof target, ", of %lld samples each", (long long)v.most);
    if (v.peers)
        preflight_say(c, FINDING_GOOD, "run",
                      "%zu peer%s train%s \"%.100s\", at step %lld%s\n\n%zu train%s", v.peers,
                      v.peers == 1 ? "" : "s", v.peers == 1 ? "s" : "", c->plan->run,
                      (long long)v.epoch, target, v.peers, v.peers == 1 ? "s" : "");
    else
        preflight_say(
            c, c->plan->trains ? FINDING_WARNING : FINDING_GOOD, "run",
            "no peer trains \"%.100s\" yet\nyour side, if others should: use their spelling of "
            "--run, and an address of their swarm for --join\nno trainers yet",
            c->plan->run);
    compare_targets(c, &v);
}
