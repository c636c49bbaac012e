/* claims.h - which progress records count. A record in the DHT is signed, but by a key that anybody
 * can make: its epoch, samples and speed are claims, and so is the peer that it names. Our own
 * observations decide how far a claim is followed. Pure functions.
 *
 *   lead   the highest epoch that more than half of the others claim: of our groupmates in the last
 *          common round, of gradients or of parameters, if they are two or more; if there is one,
 *          of all that have been our groupmates; else of all. A minority's claim does not move it,
 *          and a peer in step with its groupmates stays with them. The lead is a reason to ask for
 *          a state, never an epoch to take over.
 *   doubt  a peer whose lead no state has shown: unless it was in our last common round, its lead
 *          does not count for a while, twice as long each time.
 *   silent a peer that does not answer a ping, and has not reported since: it is dead or stopped.
 *          Its record stays in the DHT for a minute, but says nothing about living peers.
 *   owner  the key that writes a peer's record. Where several keys write for one peer, the one that
 *          the peer's identity has signed for (owner_proof.h) is its own. Peers of hivemind have no
 *          such proof: then it is the key that wrote first, as long as it reports, and for a peer
 *          that we have not known before, the record nearest to our own epoch; while we have no
 *          state, the highest one, which is no more than a reason to ask for one. A common round
 *          settles it.
 *   name   a key writes for one peer. Records in which it names another one do not count while the
 *          first is remembered.
 */
#ifndef PL_CLAIMS_H
#define PL_CLAIMS_H

#include "net/hivemind/records/dht_dictionary.h"
#include "net/hivemind/matchmaking/group.h"
#include "progress.h"

/* A downloaded state may be this many epochs ahead of the lead: records lag one step behind the
 * states, and the swarm may step once more between our poll and the download. */
#define CLAIMS_SLACK 2
#define CLAIMS_MAX 4096        /* peers that are remembered: four times the largest group */
#define CLAIMS_MATES_MIN 2     /* of our last round: one alone decides nothing */
#define CLAIMS_DOUBT_MIN 30.0  /* s: half a record's life */
#define CLAIMS_DOUBT_MAX 480.0 /* after five times in a row: an honest peer is asked again soon */
#define CLAIMS_SILENT 35.0     /* s without a new report; a living peer reports every 30 */
#define CLAIMS_PINGS 16 /* at once: a majority of the dead in most swarms, a few packets in all */

struct claims {
    struct claimant {
        struct peer_id peer;
        uint8_t owner[DHT_ID_BYTES];
        int is_proven;        /* the peer's identity has signed for its owner */
        int64_t epoch;        /* as it last claimed */
        double time;          /* of the claim, by the peer's clock */
        double renewed;       /* DHT time of our first poll that found it */
        double doubted_until; /* DHT time */
        int doubts;           /* in a row */
        double asked;         /* DHT time of our last ping; 0: none yet */
        int is_listed;        /* in the last poll */
        int is_silent;        /* has not answered it, and has reported nothing since */
        int is_client;
        uint32_t part_peers; /* of a part's sum, which has as many votes; 0: one peer */
        int is_mate;         /* was in the last common round */
        int is_met;          /* was in that one, or in an earlier one */
        int is_disputed; /* several keys write for it, and nothing has shown yet which is its own */
    } * list;            /* by peer id */
    size_t count;
    int wants_proofs;  /* keys without a proof write for one peer, see claims_prove */
    int64_t own;       /* our epoch, to judge disputes by; -1: we have none to judge by yet */
    int64_t displayed; /* see claims_displayed */
    double displayed_at;
};

/* Reads the progress records among a dictionary's (n) items, with their owners. Returns their
 * number. */
size_t claims_read(struct progress_record *records, const struct dht_item *items, size_t n);
/* Marks the records whose keys are proven to be their peers': items are those under RUN_identity.
 * Without memory no record is marked. */
void claims_prove(struct progress_record *records, size_t count, const struct dht_item *items,
                  size_t n);
/* A poll: all other peers' records as they are in the DHT now. Moves those that count to the
 * front, one for each peer, with a speed in bounds; *counted is their number. PL_ENOMEM: none
 * counts. */
int claims_update(struct claims *c, struct progress_record *records, size_t count,
                  double target_batch, double now, size_t *counted);
/* The lead by the last poll, for a peer at epoch `own`; -1: no peer is listed. */
int64_t claims_lead(const struct claims *c, int64_t own, double now);
/* The swarm's epoch, for display: the highest lead so far. Peers that leave or die may take the
 * lead down, but a run's epoch does not go back. It falls to the lead only once the lead has been
 * doubted, or has been lower for CLAIMS_DOUBT_MAX: what a majority claimed falsely does not
 * stay. */
int64_t claims_displayed(struct claims *c, int64_t lead, double now);
/* 1: one of the peers beyond `own` can serve a state; clients cannot. */
int claims_can_be_shown(const struct claims *c, int64_t own, double now);
/* Peers whose claims keep the lead below `epoch`, the oldest claims first, at most CLAIMS_PINGS:
 * to be pinged now, unless they have been within CLAIMS_SILENT seconds. Returns how many they
 * are. */
size_t claims_to_ping(struct claims *c, struct peer_id out[CLAIMS_PINGS], int64_t epoch,
                      double now);
/* A pinged peer has not answered; `asked` is the DHT time of the ping. Does nothing if the peer
 * has reported since. */
void claims_silent(struct claims *c, const struct peer_id *peer, double asked);
/* A common round, of gradients or of parameters, has succeeded in this group. */
void claims_round(struct claims *c, const struct group *g);
/* 1: this owner's key is the peer's, as far as the last polls tell. */
int claims_is_owner(const struct claims *c, const struct peer_id *peer,
                    const uint8_t owner[DHT_ID_BYTES]);
/* Of a record under any key: the hash of the key that signed it. */
void claims_owner(uint8_t owner[DHT_ID_BYTES], const struct dht_item *item);
/* No state has shown an epoch beyond `own`: peers that claim one are doubted. */
void claims_doubt(struct claims *c, int64_t own, double now);
/* A state of epoch `own` was loaded: claims of at most this epoch are confirmed, and doubts about
 * their peers end. */
void claims_shown(struct claims *c, int64_t own);
void claims_clear(struct claims *c);

#endif
