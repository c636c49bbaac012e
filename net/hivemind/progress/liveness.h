/* liveness.h - whether a peer's progress report still counts: records live in the DHT for a
 * minute, those of dead peers too. Pure functions. [spec hivemind-protocol 8, 12]
 *
 * A peer that does not come to a round, and has reported nothing since that round was triggered,
 * does not count until its next report: no group waits for it, and its samples and speed are not
 * added up. One round is enough. A living peer that can come to the next round reports before that:
 * a step, a state taken over, or a local batch, whatever made it miss this one.
 *
 * A peer that keeps reporting but misses LIVENESS_MISSES rounds in a row is absent: its matchmaking
 * is broken, or it cheats. It does not count either until it has been in a round again; it may
 * join, since a leader takes any peer that asks. Now and then the group waits for it once more, so
 * that two halves of a swarm that could not reach each other do not stay apart forever. A round
 * without any group says nothing: then it may be we that cannot be reached.
 *
 * A peer that has never been in a round with us has shown none of the samples that it claims. After
 * some rounds in which it should have appeared (more of them with groups of a limited size), its
 * samples and speed do not count until it does: otherwise its report alone would make us step
 * without gradients. Those that appear once we have averaged with anybody are new until they have
 * been in a round: their claims together count within a bound (progress.c), and after a round that
 * has waited for new peers in vain the next few wait for none. */
#ifndef PL_LIVENESS_H
#define PL_LIVENESS_H

#include "net/hivemind/matchmaking/group.h"
#include "progress.h"

#define LIVENESS_MISSES 3 /* rounds in a row */
/* An absent peer is waited for again whenever it has missed a multiple of this many rounds. */
#define LIVENESS_AGAIN 16
/* Rounds that do not wait for new peers, after one that has waited for them in vain. */
#define LIVENESS_NEW_PAUSE 3

struct liveness {
    struct participant {
        struct peer_id peer;
        double reported; /* DHT time of its newest report, by its own clock */
        double seen;     /* DHT time of our last poll that found one */
        double missed;   /* DHT time of a round's trigger that it did not come to; 0: none */
        int misses;      /* such rounds in a row, with a report of its own between them */
        double due;      /* rounds in which we should have met it, while we never have */
        int is_met;      /* it has been in a round with us */
        int is_new;      /* not yet, and it has appeared after our first round with others */
    } * list;            /* by peer id */
    size_t count;
    int has_met;       /* there has been such a round */
    double newcomers;  /* of our last group: new peers for each of the others, with ourselves */
    int has_waited;    /* set by the caller: this round waits for new peers */
    int new_pause;     /* rounds that wait for none, after one in vain */
    size_t part_peers; /* that parts' sums stand for, in the last poll */
};

/* All other peers' records as they are in the DHT now. A part's sum counts as it is. Those that
 * count are moved to the front, with samples and speeds set to 0 where those do not, and the new
 * ones marked; *counted is their number. A peer without a record for a record's life is forgotten:
 * one poll alone may miss some. PL_ENOMEM: all count. */
int liveness_update(struct liveness *a, struct progress_record *records, size_t count, double now,
                    size_t *counted);
/* A round that was triggered at `trigger` has ended with this group; NULL: without one. */
void liveness_round(struct liveness *a, const struct group *g, double trigger);
/* As liveness_round, but for every round that we have waited for: in a group of a limited size
 * we meet only some. */
void liveness_note_group(struct liveness *a, const struct group *g);
/* How many times as much as the others new peers may count. A group is a sample of the swarm: where
 * most of it was new, the swarm has grown by as much. With local steps: 0 if none is waited for. */
double liveness_newcomers(const struct liveness *a, int local_steps);
/* It has reported, and is not absent. */
int liveness_reports(const struct liveness *a, const struct peer_id *peer);
/* 1: no group waits for it, although it reports. */
int liveness_is_absent(const struct liveness *a, const struct peer_id *peer);
void liveness_clear(struct liveness *a);

#endif
