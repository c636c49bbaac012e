/* checkup_records.c - what records in the DHT tell before one joins: how fast a large one goes
 * there and comes back; whether anybody trains the run. */
#include "checkup_inside.h"

#include "../net/hivemind/progress.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LOAD_EXPIRES 20.0   /* s that the record lies there */
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

/* Of a call's time, what the data took. */
static double net(const struct checkup_entry *e, double seconds)
{
    return fmax(seconds - e->ping_s, (1 - ROUND_TRIP_MOST) * seconds);
}

/* A large record goes there and comes back; twice, the better one counts: a connection begins
 * slowly. */
void checkup_bandwidth(struct checkup *c)
{
    struct bytes store = { 0 }, find = { 0 };
    size_t n = c->plan->load;
    uint8_t *load = n ? make_load(n) : NULL;
    struct dht_record r = { .subkey = dht_no_subkey, .subkey_n = sizeof dht_no_subkey,
                            .value = load, .n = n };
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
        checkup_say(c, slower < SLOW ? FINDING_WARNING : FINDING_GOOD, "bandwidth",
                    "%.1f MB/s to the first entry peer, %.1f MB/s from it%s", 1e-6 * (double)n / up,
                    1e-6 * (double)n / down,
                    slower < SLOW ? "\nyour side: a slow line delays the steps of all: take part "
                                    "with a small --bandwidth, or in --client-mode"
                                  : brief);
    else if (!probe_is_stopped(c->s, c->stop))
        checkup_say(c, FINDING_WARNING, "bandwidth", "not measured: %.200s\ntry again", p.why);
    bytes_clear(&store);
    bytes_clear(&find);
    free(load);
}

/* A name that is spelt otherwise is another run, and nobody would say so. */
void checkup_run(struct checkup *c)
{
    char key[256];
    struct dht_id id;
    struct dht_result r;
    size_t peers = 0;
    int64_t epoch = 0;
    int rc;
    if (!c->plan->run || c->clock_differs) return;
    snprintf(key, sizeof key, "%.200s%s", c->plan->run, schema_progress.suffix);
    if (dht_id_of_text(&id, key)) return;
    rc = swarm_get(c->s, &r, &id, 1);
    for (size_t i = 0; !rc && r.type == DHT_FOUND_DICTIONARY && i < r.dictionary.count; i++) {
        const struct dht_item *item = &r.dictionary.items[i];
        struct progress_record record;
        if (progress_read(&record, item->value, item->n, NULL)) continue;
        peers++;
        if (record.epoch > epoch) epoch = record.epoch;
    }
    dht_result_clear(&r);
    if (peers)
        checkup_say(c, FINDING_GOOD, "run",
                    "%zu peer%s train%s \"%.100s\", at step %lld\n\n%zu train%s", peers,
                    peers == 1 ? "" : "s", peers == 1 ? "s" : "", c->plan->run, (long long)epoch,
                    peers, peers == 1 ? "s" : "");
    else
        checkup_say(c, c->plan->trains ? FINDING_WARNING : FINDING_GOOD, "run",
                    "nobody trains \"%.100s\" there yet\nyour side, if somebody should: --run has "
                    "to be spelt as the others spell it, and --join an address of theirs\n"
                    "nobody trains yet", c->plan->run);
}
