/* world_internal.h - what the parts of a simulated world share: its peers' steps (world.c), the
 * network between them (world_net.c), their groups (world_meeting.c), which peers they expect
 * (world_report.c). Units: seconds, bytes. */
#ifndef PL_SIMULATOR_WORLD_INTERNAL_H
#define PL_SIMULATOR_WORLD_INTERNAL_H

#include "world.h"
#include "links.h"
#include "queue.h"
#include "net/hivemind/averaging/bandwidth.h"
#include "net/hivemind/matchmaking/grid.h"
#include "net/hivemind/matchmaking/matchmaking.h"

#define MATCHMAKING_TIME 15.0 /* the run's */
#define ALLREDUCE_TIMEOUT 60.0
#define UPLOAD_LIMIT (ALLREDUCE_TIMEOUT / 3) /* as training.c */
#define SENDER_TIMEOUT MATCHMAKING_TIME      /* as training.c */
#define REPLICAS 5
#define MET_NONE 0            /* no round yet */
#define MET_NOBODY UINT64_MAX /* a round without a group */
#define ORPHAN SIZE_MAX       /* the declaring peer died silently */

/* A message in flight, shared by all its receivers. */
struct blob {
    size_t users, n;
    uint8_t data[];
};

struct stream { /* a follower's JoinRequest to a leader */
    size_t asker, leader;
    uint32_t asker_life, leader_life;
    int open;
    struct stream *next; /* all are kept to the end */
};

/* A group that was found, once for all of its members. */
struct meeting {
    uint8_t id[DHT_ID_BYTES];
    size_t *member, count, seen; /* in the order that the engines agreed on */
    uint32_t *life;
    double *fraction, *bytes; /* (count) share of the reduction; bytes that each sends */
    double *upload;           /* (count) part of its own values that it sends */
    double formed, began, ends, limit,
        slowest;                /* slowest: s that a part of its slowest sender takes */
    int failed, over, is_known; /* is_known: somebody's uplink is */
    uint64_t number;            /* from 1 */
};

struct peer {
    struct world *w;
    struct matchmaking m;
    struct link link;
    struct bandwidth bandwidth; /* as it has measured it */
    struct grid grid;           /* the run's size, estimated from its groups */
    struct stream *asked;
    struct meeting *meeting;
    size_t self;
    uint32_t life, wake; /* generations: events of older ones are void */
    double value;        /* the averaged value: one number stands for all */
    double ready, deadline, uplink_free;
    int round, attempts, done, is_searching, triggered;
    int left_silently;   /* a peer that had this number before left silently */
    int reports;         /* it takes part in this step, and says so */
    double batch, phase; /* s, of its local batches */
    size_t expects;      /* 0: has not been needed in this step */
    uint64_t met;        /* the group of its last round */
    double met_trigger;
    uint8_t gather[32]; /* its gather message */
    double declared;    /* 0: not */
    size_t place;       /* in its key's list, when declared */
    char key[GROUP_KEY_MAX], bits[GROUP_BITS_MAX + 1];
};

/* One group key in the DHT. */
struct key {
    struct matchmaking_candidate *list; /* in order of coming */
    size_t *owner, count, capacity;
    double free[REPLICAS], uplink[REPLICAS];
    double given; /* bytes by each replica in this search */
};

/* Whose report outlives it. */
struct ghost {
    struct peer_id id;
    double reported;
    uint64_t met;
};

enum {
    E_TICK,
    E_TRIGGER,
    E_POLLED,
    E_REQUEST,
    E_ANSWER,
    E_LEADER_GONE,
    E_ASKER_GONE,
    E_BEGIN,
    E_EXCHANGED,
    E_DIES
};

struct world {
    struct world_options o;
    struct pl_rng rng, lots;     /* lots: the engines' */
    struct random_source source; /* of lots */
    struct queue queue;
    double now;
    struct peer *peer;
    struct key *keys; /* by the number of bits and the bits, see world_key */
    size_t key_count;
    int64_t epoch, reporting_epoch;
    size_t reporting_at; /* reports in the DHT at the beginning of that epoch */
    struct meeting **meetings;
    size_t meeting_count, meeting_capacity, undone;
    struct stream *streams;
    struct blob *last; /* the last message: most are sent to many */
    size_t *elements, tensors;
    enum pl_compression *method;
    double slow; /* Mbit/s; 0: slow uplinks send all, too */
    uint64_t meeting_number;
    struct counts {
        uint64_t rounds, rounds_failed, attempts, grouped, groups, polls, polls_lost, expecting;
        double moved, control, busiest, expected_dead, uploaded;
    } n;
    double searching_since, mostly; /* mostly: when nearly all were done */
    struct ghost *ghosts;
    size_t ghost_count, record_bytes, records_fit;
    double progress_uplink[REPLICAS];
    int no_memory;
};

/* Returns the allocation; if it is NULL, notes that in no_memory. */
void *world_need(struct world *w, void *p);
void world_at(struct world *w, double when, struct event e);
/* After whatever has touched a peer's engine. */
void world_settle(struct peer *p);

/* The matchmaking's callbacks, except for its end. */
void world_on_declare(void *context, double expiration, int active);
void world_on_poll(void *context);
void world_on_ask(void *context, const struct peer_id *leader, const uint8_t *data, size_t n);
void world_on_leave(void *context);
void world_on_answer(void *context, void *stream, const uint8_t *data, size_t n, int last);
/* The group key that a peer's bits say. */
struct key *world_key(struct world *w, const struct peer *p);
/* Its declaration is removed at once; or stays until it expires, */
void world_forget(struct world *w, struct peer *p);
void world_orphan(struct world *w, struct peer *p);
/* which may have come. */
void world_expire(struct world *w, struct key *k);
void world_drop_blob(struct blob *b);

/* The engines' group as ours: the first member that hears of it makes it. NULL: no memory. */
struct meeting *world_meeting(struct world *w, const struct group *found);
void world_free_meeting(struct meeting *g);
void world_begin_exchange(struct world *w, struct meeting *g);
/* The member in this place measures its uplink by the exchange. */
void world_measure(struct world *w, const struct meeting *g, size_t place);
/* The member in this place left before the end. */
void world_lose_member(struct world *w, struct meeting *g, size_t place, int silent);

/* Measures the size of a progress record and the nodes that hold records. PL_OK or PL_ENOMEM. */
int world_open_reports(struct world *w);
/* Bytes a second that each of those nodes sends while a batch is collected; the share of polls that
 * none of them has the uplink for. */
int world_progress_load(struct world *w, double *a_second, double *lost);
/* Of a peer that dies without a word. */
void world_leave_report(struct world *w, const struct peer *p);
/* Reports that a peer finds. */
size_t world_reports_found(struct world *w);
/* A leader with followers learns how many will come. */
void world_expect(struct peer *p);

#endif
