/* state_share.h - the donor's side of state sharing: a frozen copy of our state is announced in the
 * DHT, sent to newcomers, and sampled for those that confirm another donor's.
 * [spec hivemind-protocol 7] */
#ifndef PL_STATE_SHARE_H
#define PL_STATE_SHARE_H

#include "callers.h"
#include "state_peer.h"

#define STATE_DOWNLOADS_MAX 2 /* states given at once: each at half our uplink is enough */
#define STATE_SUBNETS_MAX 6   /* the same, with one for each subnet that has none */
#define STATE_QUEUE_MAX 64    /* newcomers that wait for one */
#define STATE_QUEUE_PEER \
    2 /* of one peer: a download that it gave up may not have ended before its next */
#define STATE_ANSWERS_A_SECOND 20 /* samples that we give: 64 KiB and 0.2 ms each, */
#define STATE_ANSWERS_A_PEER 4    /* and of them to one peer: a few tries of a newcomer */

/* The state for newcomers: a frozen copy, shared by all downloads in progress. */
struct state_snapshot {
    uint8_t *metadata; /* free() */
    size_t metadata_n;
    struct state_tensor *tensors;
    size_t count;
    size_t users; /* the donor's */
};
/* For `capacity` tensors at most. NULL: no memory. */
struct state_snapshot *state_snapshot_new(size_t capacity);
/* Memory for the values of one tensor more, which is not compressed: a newcomer begins with the
 * very values of its donor. [spec hivemind-protocol 10] NULL: none. */
void *state_snapshot_add(struct state_snapshot *s, const struct pl_wire_type *type);
/* Copies the metadata. PL_OK, or PL_ENOMEM, also if they could not be written. */
int state_snapshot_describe(struct state_snapshot *s, const struct bytes *metadata);
void state_snapshot_free(struct state_snapshot *s); /* may be NULL */

struct state_share {
    const struct state_peer *peer;
    struct state_snapshot *snapshot;
    double priority;
    struct timer announce_timer;
    struct caller_list uploads;
    size_t running; /* downloads that are under way */
    double since;   /* loop time from which on there was one */
    double seconds; /* in which there was one, until then */
    struct {
        struct peer_id peer;
        double at;
    } answered[STATE_ANSWERS_A_SECOND]; /* to which peers samples were given */
    size_t answered_next;
};

/* p is borrowed. Serves both calls, unless we are a client. */
int state_share_open(struct state_share *s, const struct state_peer *p, struct pl_err *err);
/* Shares from now on, announced with this priority; takes over the snapshot. NULL: stops sharing.
 * Clients and auxiliary peers are not asked. */
void state_share_set(struct state_share *s, struct state_snapshot *snapshot, double priority);
/* Time in which our state was sent, s. */
double state_share_seconds(const struct state_share *s);
void state_share_close(struct state_share *s);

#endif
