/* queue.h - what is going to happen, soonest first; of equal times, what was queued first. */
#ifndef PL_SIMULATOR_QUEUE_H
#define PL_SIMULATOR_QUEUE_H

#include "../../ref/base.h"

struct stream;
struct blob;

struct event {
    double at;
    uint64_t order; /* the queue's */
    int kind, last;
    size_t peer;
    uint32_t life, stamp;
    struct stream *stream; /* counted references, both */
    struct blob *blob;
};
struct queue {
    struct event *heap;
    size_t count, capacity;
    uint64_t pushed;
};
int queue_push(struct queue *q, const struct event *e); /* PL_OK or PL_ENOMEM */
struct event queue_pop(struct queue *q);                /* of a queue that is not empty */
void queue_clear(struct queue *q);

#endif
