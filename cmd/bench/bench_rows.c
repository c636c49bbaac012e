/* bench_rows.c - shared by the sections of `potluck bench`: sizes, the clock, rows for --json. */
#include "bench.h"

#include <time.h>

const struct bench_size bench_sizes[BENCH_SIZES] = {
    { "demo", 32, PL_STORED, 0, 0, 200 },
    { "small", 8, PL_REVERSIBLE, 3.4, 4.6, 0 },
    { "middle", 2, PL_REVERSIBLE, 2.8, 4.0, 0 },
    { "run", 1, PL_REVERSIBLE, 2.9, 3.75, 0 },
};

double bench_now(const struct bench *b)
{
    struct timespec t;
    if (b->compute.threads != 1 || clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t)) return pl_seconds();
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int bench_samples(const struct bench *b, const struct bench_size *size)
{
    return b->batch ? (int)b->batch : size->samples;
}

void bench_row(struct bench *b, const struct bench_peer_time *peer, json_t *row)
{
    if (peer) {
        json_object_set_new(row, "peer", json_string(peer->by));
        json_object_set_new(row, "peer_s", json_real(peer->seconds));
    }
    json_array_append_new(b->rows, row);
}
