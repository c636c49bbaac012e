/* donors.h - the peers that announce a state, and the order in which a newcomer asks them. */
#ifndef PL_DONORS_H
#define PL_DONORS_H

#include "net/hivemind/dht_core/dht_blacklist.h"
#include "net/hivemind/records/dht_dictionary.h"

#define DONORS_MAX 1024        /* announcements that are read */
#define DONORS_ASKED_MAX 32    /* of one load: announcements cost nothing, each may take its time */
#define DONOR_PRIORITY_MAX 1e9 /* epochs, whole numbers: a run of 30 years has one a second */
#define DONOR_FAILURES_MAX \
    64 /* donors that are remembered for having failed; the first to return goes */
#define DONOR_BACKOFF_FIRST 15.0    /* s, doubled with each further failure */
#define DONOR_BACKOFF_LONGEST 600.0 /* s: a donor that was restarted is asked again */

struct donor {
    struct peer_id peer;
    double priority; /* the epoch that it claims */
    int rank;        /* lower ones are asked first, */
    uint32_t random; /* equal ones in this order */
};

/* Donors that have failed lately. They only come last: each is still asked after all others. */
#define DONOR_FAILURES \
    ((struct dht_blacklist){ .first = DONOR_BACKOFF_FIRST, \
                             .longest = DONOR_BACKOFF_LONGEST, \
                             .max = DONOR_FAILURES_MAX })

/* The announcements under one key, ours excepted, in the order of asking. free(); NULL: none. */
struct donor *donors_read(size_t *count, const struct dht_dictionary *announced,
                          const struct peer_id *self, const struct dht_blacklist *failed,
                          double now);

#endif
