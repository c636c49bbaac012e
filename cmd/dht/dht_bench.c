/* dht_bench.c - how many records per second the DHT stores and returns.
 *
 * A stream keeps `width` requests in flight until all are done: with 1 it measures latency, with
 * 32 throughput. Keys contain the process id, so no run finds the records of another. */
#include "dht_bench.h"

#include <stdio.h>
#include <unistd.h>

#define EXPIRES 600.0 /* s; the benchmark takes less */

const char *const dht_bench_names[DHT_BENCH_RATES] = { "store, one by one", "store, 32 at once",
                                                       "get, one by one", "get, 32 at once" };

struct stream {
    struct swarm *swarm;
    struct loop_request wait;
    int is_get, next, last, width, under_way, failed;
};

static void pump(void *context);

static void on_stored(void *context, int status)
{
    struct stream *s = context;
    s->failed += status != PL_OK;
    s->under_way--;
    pump(s);
}

static void on_got(void *context, int status, const struct dht_result *r)
{
    on_stored(context, status);
}

static int begin_one(struct stream *s)
{
    static const uint8_t value[] = { 0x2a };
    char text[48];
    struct dht_id key;
    snprintf(text, sizeof text, "bench %ld %d", (long)getpid(), s->next++);
    if (dht_id_of_text(&key, text)) return PL_ENOMEM;
    if (s->is_get) return dht_node_get(s->swarm->node, &key, 0, on_got, s) ? PL_OK : PL_ENOMEM;
    return dht_node_store(s->swarm->node, &key, NULL, 0, value, sizeof value,
                          dht_node_time(s->swarm->node) + EXPIRES, on_stored, s)
               ? PL_OK
               : PL_ENOMEM;
}

static void pump(void *context)
{
    struct stream *s = context;
    while (s->under_way < s->width && s->next < s->last) {
        if (begin_one(s)) s->failed++;
        else s->under_way++;
    }
    if (!s->under_way) loop_end(&s->wait, PL_OK);
}

int dht_bench(struct swarm *writer, struct swarm *reader, double rates[DHT_BENCH_RATES], int count)
{
    int failed = 0;
    for (int i = 0; i < DHT_BENCH_RATES; i++) {
        struct stream s = { .swarm = i / 2 ? reader : writer,
                            .is_get = i / 2,
                            .next = i % 2 * count,
                            .last = (i % 2 + 1) * count,
                            .width = i % 2 ? 32 : 1 };
        double began = pl_seconds();
        loop_wait(s.swarm->loop, &s.wait, pump, &s);
        failed += s.failed;
        rates[i] = count / (pl_seconds() - began);
    }
    return failed;
}
