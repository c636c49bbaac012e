/* preflight_internal.h - what the parts of a check-up share: the peers (checkup.c), records of
 * theirs (preflight_records.c), the check before joining (preflight_join.c). */
#ifndef PL_CMD_CHECKUP_INSIDE_H
#define PL_CMD_CHECKUP_INSIDE_H

#include "preflight.h"
#include "preflight_ask.h"

/* One address that we were given to join by. */
struct preflight_entry {
    struct preflight *c;
    const char *address;
    struct finding finding;
    struct probe_view view;
    struct peer_id peer;
    double clock, ping_s; /* its clock minus ours, NAN: not known; there and back */
    int good;             /* it lets us in */
    pthread_t thread;
    int has_thread;
};

struct preflight {
    struct swarm *s;
    const struct swarm_options *options;
    const struct preflight_plan *plan;
    const struct probe_stop *stop; /* may be NULL */
    preflight_tell *tell;
    void *context;
    double *first_good; /* pl_seconds(), under the swarm's lock; may be NULL */
    struct preflight_entry entries[DHT_INITIAL_MAX];
    size_t count;
    const struct preflight_entry *good[DHT_INITIAL_MAX]; /* that let us in, in the order given */
    size_t good_count;
    int clock_differs; /* what is not expired to others may be to us */
    int reached;       /* 1: somebody could call us */
};

/* The text, a newline, what to do about it ("": nothing), a newline, the text in brief. */
__attribute__((format(printf, 4, 5))) void preflight_finding(struct finding *f,
                                                             enum finding_level level,
                                                             const char *what, const char *format,
                                                             ...);
__attribute__((format(printf, 4, 5))) void preflight_say(struct preflight *c,
                                                         enum finding_level level, const char *what,
                                                         const char *format, ...);

/* All of it. PL_EIO: nobody lets us in. */
int preflight_peers(struct preflight *c);

/* Of preflight_records.c: how fast a record goes there and comes back; who trains the run. */
void preflight_bandwidth(struct preflight *c);
void preflight_run(struct preflight *c);

#endif
