/* reliability.h - which peers deliver in the all-reduce, as far as we have seen it ourselves. Pure
 * functions; reports by other peers do not count. [TTT 2.1, fault tolerance]
 *
 * This is the only back-off there is. It needs no proof, so it is short and ends; a peer that is
 * proven to have cheated is banned instead (bans.h).
 *
 * A groupmate delivers if it does its part in a group: a reducer answers the parts that we send, a
 * sender sends its parts, a leader begins the all-reduce after it has accepted us. A peer that does
 * not deliver is on back-off: not accepted as a follower, not asked as a leader, for
 *
 *   BASE * 2^(failures - 1) seconds, at most MAX, and up to a quarter more at random,
 *
 * so one failure of an honest peer costs one short pause, and a peer that fails again and again
 * is tried a few times an hour. Each round that it delivers in takes a quarter of a failure back:
 * a peer that alternates still loses more with every failure than it wins back by one good round.
 *
 * A router that restarts, or an address that changes, makes an honest peer fail a round. If a new
 * connection to a peer that was proven comes after the failed round began, its back-off ends: it is
 * there again. This holds for a single failure, once in RELIABILITY_EXCUSED; so a peer that
 * withholds its part and dials again saves one short back-off in that time.
 *
 * A peer that begins alone, since it knew of no other, leaves the group that a leader has just
 * begun with it, and says so at once. Nobody has waited for it, so this is no failure either, as
 * often as a connection excuses one. For the back-off of new names, below, it counts.
 *
 * An identity costs nothing, so a new one must gain nothing: a peer that has not delivered since
 * its last failure, or never, is unproven. Once an unproven peer has failed, those that we have
 * first seen after that round began are on back-off together, as if they were that peer; each
 * unproven peer that delivers halves their failures. Peers first seen before that round are not
 * affected.
 *
 * Honest newcomers report progress, so failures of peers that do not must not delay them. Two
 * back-offs are counted:
 *
 *   of all unproven peers              holds back those that do not report progress
 *   of those that have been reporting  holds back those that do, once a peer is proven
 *
 * In the first rounds of a swarm everybody that reports is new to everybody: the second back-off
 * would hold back the whole swarm. A peer that has been seen to report stays a reporter here: it
 * can't withdraw its report before it fails. A report costs nothing either, so strangers that
 * report do hold newcomers back, but for REPORTER_MAX at most.
 *
 * A leader gives unproven followers no share to reduce (matchmaking.h), so that what they withhold
 * is their own values only. */
#ifndef PL_RELIABILITY_H
#define PL_RELIABILITY_H

#include "net/random_source.h"
#include "net/libp2p/peer/peer_id.h"
#include "net/hivemind/matchmaking/group.h"

/* As many as one group has. Peers unheard of for an hour are forgotten first, then unproven ones,
 * the newest of them: a peer that comes under many identities pushes out those. */
#define RELIABILITY_PEERS_MAX GROUP_PEERS_MAX
#define RELIABILITY_KEPT 3600.0 /* s: six times the longest back-off */
/* s: one matchmaking time of the run. A process that was restarted is back by then. */
#define RELIABILITY_BASE 15.0
/* s: then a silent reducer, which costs a group one or two timeouts, takes less than a tenth of the
 * time */
#define RELIABILITY_MAX 600.0
/* s: an unproven follower reduces nothing, so its failure costs the next group one short timeout */
#define RELIABILITY_UNPROVEN_BASE 5.0
/* s: strangers that come under a new name each time and don't even report progress */
#define RELIABILITY_UNPROVEN_MAX 120.0
/* s: the same limit for strangers that report progress: an honest newcomer never waits longer than
 * this. Each new name costs a group one short silence of RELIABILITY_SILENCE, a tenth of the
 * time. */
#define RELIABILITY_REPORTER_MAX 30.0
/* s between two failures of a peer that a new connection excuses: the longest back-off, so that it
 * can't win more by them than it loses by the next failure */
#define RELIABILITY_EXCUSED RELIABILITY_MAX
#define RELIABILITY_DISBANDS_MAX 3 /* in a row, without a round in which the peer has delivered */
#define RELIABILITY_REGAINED 0.25  /* failures that one good round takes back */
/* A charge counts as one failure more, but at least as two: 30 s, so that the next round or two go
 * on without the peer. */
#define RELIABILITY_CHARGE 2.0
#define RELIABILITY_FAILURES_MAX 16.0 /* 2^16 bases are beyond MAX: more failures change nothing */

struct reliability {
    struct random_source random;
    struct reliability_peer {
        struct peer_id peer;
        double failures;      /* reduced by rounds that it delivered in */
        double until;         /* on back-off */
        double refused_until; /* on back-off by a charge; at most `until` */
        double latest;        /* s until a good round's first part came; the slowest, decaying */
        double seen, heard;   /* for the first time; when it was last there */
        double connected;     /* its newest connection; 0: none since it is known here */
        double left_until;    /* it has left a group: the next time until then is a failure */
        double excused_until; /* a connection excused its last failure: no other one until then */
        int proven, reports;
        int is_excusable;           /* its failure was the first of a proven peer */
        int disbands;               /* of groups that it led us in, since it last delivered */
    } peers[RELIABILITY_PEERS_MAX]; /* by peer id */
    size_t count, proven;
    /* Failures of the unproven peers first seen after `since`. [0]: of all; [1]: of those that
     * report. */
    struct reliability_unproven {
        double failures, until, since;
    } unproven[2];
};

/* It declares, asks, or is in our group; reports: it reports progress. */
void reliability_see(struct reliability *r, double now, const struct peer_id *peer, int reports);
/* It has done its part; latest: s that its slowest message took while others were waiting. */
void reliability_delivered(struct reliability *r, double now, const struct peer_id *peer,
                           double latest);
/* Records a failure in the round that began at `began`. */
void reliability_failed(struct reliability *r, double now, double began,
                        const struct peer_id *peer);
/* It answers that it is in no group with us, in the round that began at `began`. */
void reliability_left(struct reliability *r, double now, double began, const struct peer_id *peer);
/* A new connection to it has opened. */
void reliability_connected(struct reliability *r, double now, const struct peer_id *peer);
/* It has accepted us and then disbanded its group. Honest leaders do when too few have come, and
 * deliver in a later round: every third time without is a failure. */
void reliability_disbanded(struct reliability *r, double now, double began,
                           const struct peer_id *peer);
/* It voided a verified round that began at `began`, and there is no proof against it, see
 * verifier.h. Returns s of back-off. Unlike after a failure, no group with it is joined meanwhile:
 * its leader has seen the same round fail. */
double reliability_charged(struct reliability *r, double now, double began,
                           const struct peer_id *peer);
int reliability_is_refused(const struct reliability *r, double now, const struct peer_id *peer);
/* It has delivered since its last failure. */
int reliability_is_proven(const struct reliability *r, const struct peer_id *peer);
/* On back-off: by itself, or as an unproven peer that reports progress or doesn't. */
int reliability_is_paused(const struct reliability *r, double now, const struct peer_id *peer,
                          int reports);
/* Seconds of silence after which a groupmate that lags behind the others is dropped, at most
 * `most`: the minimum plus three times its slowest good round, doubled after each failure. */
double reliability_silence(const struct reliability *r, const struct peer_id *peer, double most);

/* A first message waits for the peer's own batch to end, and a part for its uplink; no machine that
 * is well is silent for longer than this while it sends. */
#define RELIABILITY_SILENCE 3.0

#endif
