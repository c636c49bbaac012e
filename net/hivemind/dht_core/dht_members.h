/* dht_members.h - peers that have shown a valid access token, in a moderated swarm; and those that
 * have just failed to. */
#ifndef PL_DHT_MEMBERS_H
#define PL_DHT_MEMBERS_H

#include "net/libp2p/peer/peer_id.h"
#include "net/rate_limit.h"

#define DHT_MEMBERS_MAX 4096  /* four times the largest run; an evicted member is asked again */
#define DHT_REFUSALS_MAX 256  /* strangers that are not asked again for a while; a ring */
#define DHT_REFUSAL_TIME 10.0 /* s; an honest peer's token may be a moment late */
/* An RSA signature of ours takes a millisecond, so this is a tenth of a core. */
#define DHT_PROOFS_A_SECOND 100

/* Requests with a wrong token or signature that are checked: each costs us one or two RSA checks,
 * and its sender nothing. A member's token may be late a few times, or its clock wrong until it
 * asks; after that it may try once a second. A subnet may send 4 times as many at once, at 10 times
 * the rate: all machines of a laboratory may be set up wrong. */
#define DHT_FAILURES_BURST 64
#define DHT_FAILURES_A_SECOND 1
#define DHT_SUBNET_FAILURES_BURST (4 * DHT_FAILURES_BURST)
#define DHT_SUBNET_FAILURES_A_SECOND (10 * DHT_FAILURES_A_SECOND)

/* until: of a member the DHT time at which its token expires; of a refusal the loop's time. */
struct dht_member {
    struct peer_id peer;
    double until;
};

struct dht_members {
    struct dht_member *members; /* (DHT_MEMBERS_MAX) once there is one */
    struct dht_member refusals[DHT_REFUSALS_MAX];
    size_t count, refusal_count, refusal_next;
    double proofs_since;         /* loop time */
    int proofs;                  /* asked for within this second */
    struct rate_limit *failures; /* (2) of peers and of subnets, once there is one */
};
void dht_members_close(struct dht_members *m);

/* After a message whose signature was checked: its sender's token expires at `until`. */
void dht_members_add(struct dht_members *m, const struct peer_id *peer, double until);
int dht_members_has(const struct dht_members *m, const struct peer_id *peer, double dht_now);

void dht_members_refuse(struct dht_members *m, const struct peer_id *peer, double now);
/* 1: a request's token and signature may be checked now; a member's always. */
int dht_members_may_try(const struct dht_members *m, const struct peer_id *peer, uint64_t subnet,
                        double dht_now);
/* They were wrong. */
void dht_members_failed(struct dht_members *m, const struct peer_id *peer, uint64_t subnet,
                        double dht_now);
/* 1: the peer may be asked for a token now. Counts as a request. */
int dht_members_may_ask(struct dht_members *m, const struct peer_id *peer, double now);

#endif
