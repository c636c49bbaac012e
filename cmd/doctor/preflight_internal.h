/* preflight_internal.h - shared by the parts of the preflight checks: the network (preflight.c),
 * the DHT's records (preflight_records.c), the checks before joining (preflight_join.c). */
#ifndef PL_CMD_PREFLIGHT_INTERNAL_H
#define PL_CMD_PREFLIGHT_INTERNAL_H

#include "preflight.h"
#include "preflight_ask.h"

/* One --join address. */
struct preflight_bootstrap {
    struct preflight *c;
    const char *address;
    struct finding finding;
    struct probe_view view;
    struct peer_id peer;
    double clock, ping_s; /* its clock minus ours, NAN: not known; round trip */
    int good;             /* it accepts us */
    pthread_t thread;
    int has_thread;
};

#define PREFLIGHT_WAYS_MAX 32 /* peers to which the doctor connects */

struct preflight {
    struct swarm *s;
    const struct swarm_options *options;
    const struct preflight_plan *plan;
    const struct probe_stop *stop; /* may be NULL */
    preflight_report *report;
    void *context;
    double *first_good; /* pl_seconds(), under the swarm's lock; may be NULL */
    struct preflight_bootstrap bootstraps[DHT_INITIAL_MAX];
    size_t count;
    const struct preflight_bootstrap *good[DHT_INITIAL_MAX]; /* accept us, in the order given */
    size_t good_count;
    struct peer_id trainers[PREFLIGHT_WAYS_MAX]; /* of the run */
    size_t trainer_count;
    int clock_differs; /* records may seem expired to us that are valid to others */
    int reached;       /* 1: a peer could connect to us */
};

/* Format: the text, a newline, the advice (may be empty), a newline, the text in brief. */
__attribute__((format(printf, 4, 5))) void preflight_set(struct finding *f,
                                                         enum finding_level level, const char *what,
                                                         const char *format, ...);
/* The same, reported at once. */
__attribute__((format(printf, 4, 5))) void preflight_say(struct preflight *c,
                                                         enum finding_level level, const char *what,
                                                         const char *format, ...);

/* All checks of the network. PL_EIO: no bootstrap peer accepts us. */
int preflight_peers(struct preflight *c);

/* Of preflight_router.c: reachability, NAT, port mapping, relays. */
void preflight_router(struct preflight *c);

/* Of preflight_ways.c: after preflight_run. */
void preflight_ways(struct preflight *c);

/* Of preflight_records.c. */
void preflight_bandwidth(struct preflight *c);
void preflight_run(struct preflight *c);

#endif
