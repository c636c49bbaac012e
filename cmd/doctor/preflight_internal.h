/* preflight_internal.h - what the parts of a check-up share: the peers (checkup.c), records of theirs
 * (checkup_records.c), the check before joining (checkup_join.c). */
#ifndef PL_CMD_CHECKUP_INSIDE_H
#define PL_CMD_CHECKUP_INSIDE_H

#include "preflight.h"
#include "preflight_ask.h"

/* One address that we were given to join by. */
struct checkup_entry {
    struct checkup *c;
    const char *address;
    struct finding finding;
    struct probe_view view;
    struct peer_id peer;
    double clock, ping_s;  /* its clock minus ours, NAN: not known; there and back */
    int good;              /* it lets us in */
    pthread_t thread;
    int has_thread;
};

struct checkup {
    struct swarm *s;
    const struct swarm_options *options;
    const struct checkup_plan *plan;
    const struct probe_stop *stop;   /* may be NULL */
    checkup_tell *tell;
    void *context;
    double *first_good;              /* pl_seconds(), under the swarm's lock; may be NULL */
    struct checkup_entry entries[DHT_INITIAL_MAX];
    size_t count;
    const struct checkup_entry *good[DHT_INITIAL_MAX]; /* that let us in, in the order given */
    size_t good_count;
    int clock_differs;               /* what is not expired to others may be to us */
    int reached;                     /* 1: somebody could call us */
};

/* The text, a newline, what to do about it ("": nothing), a newline, the text in brief. */
__attribute__((format(printf, 4, 5)))
void checkup_finding(struct finding *f, enum finding_level level, const char *what,
                     const char *format, ...);
__attribute__((format(printf, 4, 5)))
void checkup_say(struct checkup *c, enum finding_level level, const char *what, const char *format,
                 ...);

/* All of it. PL_EIO: nobody lets us in. */
int checkup_peers(struct checkup *c);

/* Of checkup_records.c: how fast a record goes there and comes back; who trains the run. */
void checkup_bandwidth(struct checkup *c);
void checkup_run(struct checkup *c);

#endif
