/* lab_swarm_internal.h - shared by the swarm's files: peers, exchanges. */
#ifndef PL_LAB_SWARM_INTERNAL_H
#define PL_LAB_SWARM_INTERNAL_H

#include "lab_swarm.h"

/* Everything of a peer that is plain data, and is saved as it is. */
struct peer_clock {
    enum lab_activity activity;
    double since, until;      /* of the activity; until: of a gradient alone */
    double computed, present; /* s, without the present activity */
    double loss;              /* of its latest gradient */
    uint64_t steps;           /* gradients computed */
    uint64_t sent, applied;   /* rounds; the number of the next one */
    uint64_t own;             /* PL_OUTER_ONE: the number of its latest message */
    int donor, has_state;     /* of a download */
};

struct peer {
    struct peer_clock clock;
    float *x, *g; /* backend memory */
    struct pl_outer *outer;
};

struct exchange {
    struct {
        uint64_t number;
        int has_begun, has_failed, members, is_used; /* is_used: a peer has applied it */
        int under_way;                               /* transfers */
        double began;
        int parts[LAB_PEERS_MAX];      /* that a reducer still waits for */
        int messages[LAB_PEERS_MAX];   /* that a member still waits for */
        uint8_t member[LAB_PEERS_MAX]; /* takes part */
        uint8_t done[LAB_PEERS_MAX];   /* had everything before another member left */
    } plain;
    struct pl_outer_message message[LAB_PEERS_MAX]; /* data owned; NULL: no message. In a grid its
                                                       sender's parameters follow its bytes */
};

struct lab_swarm {
    const struct lab_setup *setup;
    const struct lab_model *model;
    lab_event_fn *event;
    void *context;
    struct lab_net net;
    struct peer peer[LAB_PEERS_MAX];
    struct exchange **exchange; /* in the order of numbers; owned */
    size_t exchanges, capacity;
    struct {
        int has_begun;
        uint64_t gradients, numbers;  /* numbers: PL_OUTER_ONE's messages so far */
        uint8_t left[LAB_LEAVES_MAX]; /* 1: gone; 2: has come back */
    } count;
};

/* Tags of transfers: number << 1 | phase of an exchange; or a state download. */
#define LAB_TAG_STATE UINT64_MAX

/* Streams of the seed. */
enum { LAB_RNG_STRAGGLE = 1, LAB_RNG_FAIL };

/* ---- lab_exchange.c ---- */

int lab_swarm_report(struct lab_swarm *s, const struct lab_event *e, struct pl_err *err);
int lab_is_active(const struct lab_swarm *s, int k);
/* A number in [0,1) that belongs to (what, a, b) alone, so that nothing depends on the order of
 * events. */
double lab_draw(const struct lab_swarm *s, int what, uint64_t a, uint64_t b);

/* Bytes of its data: the message, and in a grid the parameters. */
size_t lab_exchange_bytes(const struct lab_swarm *s, const struct pl_outer_message *m);
/* The peer's next message; begins the exchange if it was the last one missing. Returns the
 * algorithm's next action, or a status. */
int lab_exchange_send(struct lab_swarm *s, int k, struct pl_err *err);
/* Whether the oldest exchange that this peer has not applied has brought it everything. */
int lab_exchange_is_here(const struct lab_swarm *s, int k);
/* Applies it; returns the next action, or a status. */
int lab_exchange_apply(struct lab_swarm *s, int k);
int lab_exchange_arrived(struct lab_swarm *s, const struct lab_transfer *t, struct pl_err *err);
/* A peer has left. */
int lab_exchange_without(struct lab_swarm *s, int k, struct pl_err *err);
struct exchange *lab_exchange_new(struct lab_swarm *s, uint64_t number);
void lab_exchange_clear(struct lab_swarm *s);

#endif
