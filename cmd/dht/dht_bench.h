/* dht_bench.h - `potluck dht bench`: how many records a second a swarm's DHT takes and gives. */
#ifndef PL_CMD_DHT_BENCH_H
#define PL_CMD_DHT_BENCH_H

#include "net/hivemind/swarm/swarm.h"

/* `writer` stores `count` small records one by one and as many 32 at once, then `reader` gets them
 * in the same two ways; fills rates (per second) in that order. Returns how many failed. */
#define DHT_BENCH_RATES 4
extern const char *const dht_bench_names[DHT_BENCH_RATES];
int dht_bench(struct swarm *writer, struct swarm *reader, double rates[DHT_BENCH_RATES], int count);

#endif
