/* progress.c - a trainer that is alone in its run averages with nobody, so its rounds could not be
 * tested. We report ourselves as its second peer: a client without samples. The report is withdrawn
 * at the end, as by a trainer that leaves. [spec hivemind-protocol 8, 9] */
#include "averager_walk.h"
#include "net/hivemind/swarm/swarm.h"
#include "net/hivemind/messages/msgpack.h"
#include "net/hivemind/records/validate.h"
#include "net/hivemind/progress/progress.h"

#include <stdio.h>

/* The trainer's epoch; -1: it has not reported any, or others train, too. */
static int64_t epoch_of_lone_trainer(struct walk *w, const struct dht_id *key)
{
    struct dht_result r;
    struct progress_record p;
    int64_t epoch = -1;
    int others = 0;
    dht_result_init(&r);
    if (!swarm_get(w->swarm, &r, key, 1) && r.type == DHT_FOUND_DICTIONARY)
        for (size_t i = 0; i < r.dictionary.count; i++) {
            const struct dht_item *item = &r.dictionary.items[i];
            if (progress_read(&p, item->value, item->n, NULL)) continue;
            if (peer_id_equal(&p.peer, &w->talk.peer)) epoch = p.epoch;
            else others += !peer_id_equal(&p.peer, host_id(w->talk.host));
        }
    dht_result_clear(&r);
    return others ? -1 : epoch;
}

void walk_report(struct walk *w, int is_leaving)
{
    char text[GROUP_KEY_MAX + 32];
    struct progress_record ours = { .peer = *host_id(w->talk.host), .client_mode = 1 };
    struct bytes subkey = { 0 }, value = { 0 };
    struct dht_id key;
    int rc;
    if (is_leaving && !w->has_reported) return;
    snprintf(text, sizeof text, "%.200s%s", w->run, schema_progress.suffix);
    rc = dht_id_of_text(&key, text) || record_own_subkey(&subkey, w->key);
    if (!rc && !is_leaving && (ours.epoch = epoch_of_lone_trainer(w, &key)) < 0) rc = 1;
    ours.time = swarm_time(w->swarm);
    if (!rc) rc = is_leaving ? mp_nil(&value) : progress_write(&value, &ours);
    if (!rc) rc = swarm_store(w->swarm, &key, &subkey, &value, ours.time + PROGRESS_LIFE);
    w->has_reported |= !rc;
    bytes_clear(&subkey);
    bytes_clear(&value);
}
