/* progress.h - how fast each peer trains, and when the next common step is due: records in the
 * DHT and the estimate from all of them. Pure functions. [spec hivemind-protocol 8] */
#ifndef PL_PROGRESS_H
#define PL_PROGRESS_H

#include "net/libp2p/peer/peer_id.h"
#include "net/hivemind/records/dht_id.h"
#include "net/hivemind/records/schema.h"

#define PROGRESS_LIFE 60.0         /* s until a record expires */
#define PROGRESS_REPORT_EVERY 30.0 /* s, also without a change */
#define PROGRESS_FETCH_MIN 0.5     /* s between polls of the others' records */
#define PROGRESS_FETCH_MAX 10.0
/* Both limits hold for this many peers. With more they grow in proportion, up to these. */
#define PROGRESS_FETCH_PEERS 100
#define PROGRESS_FETCH_MIN_LARGE 3.0 /* s: a step seen this late still finds its group */
#define PROGRESS_FETCH_MAX_LARGE PROGRESS_LIFE
#define PROGRESS_FETCH_EACH_MAX 2.0 /* with a target for each peer, as OpenDiLoCo's peers */
#define PROGRESS_FETCH_ALONE 3.0    /* while there are no records at all */

/* Of one peer; or, in a run that is large, the sum of a part of its peers (parts.h), which has the
 * same six fields on the wire: hivemind's peers add it to the others without knowing. In place of
 * the peer's ID stands the part's, an ID that belongs to no key:
 *
 *   12 20  "potluck progress"  number of bits (1)  bits (4)  peers (4)  clients (4)  0 0 0
 */
struct progress_record {
    struct peer_id peer;    /* a part's ID: without the numbers of peers and clients */
    int64_t epoch, samples; /* accumulated in the epoch */
    double samples_per_second;
    double time; /* DHT time of the measurement */
    int client_mode;
    /* Set when it is read from the DHT: */
    uint8_t owner[DHT_ID_BYTES]; /* hash of the key that signed it */
    int is_proven;               /* the peer's identity has signed for this key */
    uint32_t peers, clients;     /* of a part; peers is 0 in a peer's own record */
    int is_new;                  /* has been in no round yet, though it might (liveness.h) */
};
/* Names the part of these owners: its ID has this many of the owner's first bits. */
void progress_name_part(struct progress_record *r, const uint8_t owner[DHT_ID_BYTES], size_t bits);
/* The number of bits of a part's ID; 0: the record is a peer's own. */
size_t progress_part_bits(const struct progress_record *r);
static inline size_t progress_peers(const struct progress_record *r)
{
    return r->peers ? r->peers : 1;
}
/* The highest epoch that more than half of the peers have reached: sorts the votes. -1: none. */
struct progress_vote {
    int64_t epoch;
    size_t peers;
};
int64_t progress_majority(struct progress_vote *votes, size_t n);
/* samples + (now - time) * speed: the peer goes on at its speed, for a record's life at most. */
double progress_estimate(const struct progress_record *r, double now);
/* Appends its value. */
int progress_write(struct bytes *out, const struct progress_record *r);
/* PL_EPROTO: the record does not match the schema. PL_ENOTFOUND: nil, the peer has left. */
int progress_read(struct progress_record *r, const uint8_t *data, size_t n, struct pl_err *err);

/* All peers' progress as seen at one moment. */
struct progress_view {
    int64_t epoch;
    int64_t samples; /* at most INT64_MAX */
    size_t peers, clients;
    double eta;        /* DHT time at which the target batch is expected to be there */
    double next_fetch; /* DHT time for the next poll */
};
/* a + b, at most INT64_MAX: peers' claims are not below 0, but may have any size. */
int64_t progress_plus(int64_t a, int64_t b);

struct progress_local {
    int64_t epoch, samples;
    double samples_per_second;
    double newcomers; /* new peers together count at most this many times as much as all others */
};
/* any: 0 if there was nothing under the key; records may be none even so (all have left). */
void progress_update(struct progress_view *v, const struct progress_record *records, size_t count,
                     int any, const struct progress_local *mine, double target_batch, double now);

/* The same where each peer has the target to itself, as in OpenDiLoCo: samples are our own, and eta
 * is the slowest peer's; that of new ones only if mine->newcomers is not 0. [spec outer-steps 4] */
void progress_update_each(struct progress_view *v, const struct progress_record *records,
                          size_t count, const struct progress_local *mine, double target,
                          double now);

/* Exponential average of seconds per sample, corrected for its start at 0. */
struct performance {
    double alpha;           /* 0.1 in hivemind 1.1.12 */
    double mean, remainder; /* private; remainder: (1 - alpha)^k */
};
void performance_init(struct performance *p, double alpha);
void performance_add(struct performance *p, double samples, double seconds);
double performance_get(const struct performance *p); /* samples a second; 1e-20 before the first */

#endif
