/* bench_peer.h - times of the Python packages, from a script that runs them. */
#ifndef PL_CMD_BENCH_PEER_H
#define PL_CMD_BENCH_PEER_H

#include "ref/base.h"

#define PEER_TIMES_MAX 64 /* the script is asked for about twenty */

struct bench_peer_time {
    char what[48], by[64];
    double seconds;
};

struct bench_peers {
    const char *python, *script; /* script NULL: nothing is timed */
    struct bench_peer_time time[PEER_TIMES_MAX];
    int count;
};

/* Runs the script for the `wanted` benchmarks on this many threads and collects its output; each
 * benchmark that it cannot run is printed on a line. PL_EIO with a sentence if the script could not
 * be run at all. */
int bench_peers_ask(struct bench_peers *p, char *const *wanted, int count, int threads, int bf16,
                    struct pl_err *err);

/* NULL: was not found. */
const struct bench_peer_time *bench_peer(const struct bench_peers *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
