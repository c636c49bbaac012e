/* world.h - a swarm that has no machines: the real matchmaking, load balancing and cutting into
 * parts, on a virtual clock and a virtual network, with as many peers as memory holds. What takes
 * part:
 *
 *   matchmaking      one engine a peer, with its declarations, requests, leaders, followers
 *   group            what a group agrees on, who reduces how much, the next group bits
 *   uplinks          slow ones reduce nothing and send a part of their values
 *   bandwidth        what a peer's rounds show of its uplink, and what it states
 *   grid             how many group bits a peer takes, by the reports that it finds
 *   liveness         which peers a leader that knows how many will come does not wait for
 *   progress         how often everybody polls the others' records; what these take
 *   ref/partition    which parts
 *
 * (They are in net/hivemind/matchmaking/, averaging/ and training/.)
 *
 * What is modelled: the DHT's five replicas of a group key answer one after the other at their
 * uplinks' speed; a peer's messages queue at its uplink; an exchange lasts as long as its slowest
 * uplink or downlink needs; peers come and go at random, some without a word: their declarations
 * and reports stay until they expire. Everything is drawn from the seed. */
#ifndef PL_SIMULATOR_WORLD_H
#define PL_SIMULATOR_WORLD_H

#include "../../ref/base.h"

struct world_options {
    size_t peers;
    uint64_t seed;
    int steps;
    int warm; /* 1: one more step before these, of a swarm in which nobody has measured anything */
    double accumulate_s; /* s for a global batch: larger swarms take larger ones */
    double life_s;       /* mean life of a peer; its successor comes at once */
    int bits;            /* of the group keys: 0, all peers under one */
    int grid;            /* 1: as many as grid.h says by the reports that each peer finds */
    size_t target;       /* size at which a group begins; 0: none */
    int rounds;          /* of averaging in a step, each in another group: 1 without bits */
    int expect;   /* 1: a leader expects all peers that report; it begins once all have joined */
    int limited;  /* 1: slow uplinks send and reduce less */
    int measured; /* 1: peers state the bandwidth that their rounds have shown, and shares follow */
    size_t values;        /* float32 to be averaged, in tensors of the run's sizes, */
    const size_t *tensor; /* or in `tensors` of these sizes; borrowed */
    size_t tensors;
};

struct world_result {
    double step_s;      /* mean time of a step: accumulation, search, exchange, tries again */
    double averaging_s; /* of it, behind the last sample */
    double first_s;     /* the same of the step before them, if there was one */
    double failed;      /* share of peers' rounds that ended without a mean */
    double tries;       /* groups that a finished round took, on average */
    double group;       /* mean size of the groups that were begun */
    double spread;      /* share of the peers' differences that is left after a step: 0, all
                         * agree */
    double withheld;    /* of the peers' values: not sent, by slow uplinks */
    double moved;       /* bytes that a peer sends in exchanges, a step */
    double control;     /* bytes that a peer moves for matchmaking, a step */
    double replica;     /* bytes a second that the busiest node of the DHT gives in a search */
    double polls_lost;  /* share of polls of the declarations that had no answer in time */
    double dead;        /* peers that a leader expects in vain, on average */
    double progress;    /* bytes a second that a node gives to polls of everybody's progress */
    double unheard;     /* share of those polls that no node has the uplink to answer */
    size_t records_fit; /* progress records that a dictionary of the DHT holds */
    uint64_t events;
};

/* PL_OK, PL_ENOMEM, or PL_EUSE for options that make no sense. */
int world_run(struct world_result *r, const struct world_options *o, struct pl_err *err);

#endif
