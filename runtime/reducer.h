/* reducer.h - a reducer of one part: collects its senders' messages, sums them in one pass when a
 * result is needed, and encodes each sender's delta. ref/average.c has the same as plain equations;
 * this gives the same bits. [TTT 2.1, communication; 3.3] */
#ifndef PL_REDUCER_H
#define PL_REDUCER_H

#include "../ref/backend.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One part at its reducer. The mean depends on the order in which senders are added: the order of
 * arrival. Pending senders are summed when a result is asked for, all in one pass over memory.
 * All zero is a valid empty reducer. */
struct pl_reducer {
    const struct pl_backend *be;
    size_t n, capacity;
    /* sum: of the senders so far, undefined before the first; values, delta: scratch. All from be's
     * host_alloc, so that a device reaches them by DMA; NULL until they are needed. */
    float *sum, *values, *delta;
    double weight;             /* of all senders */
    int senders, added;        /* how many there are, and how many of them are in the sum */
    struct pl_sender *pending; /* the others, in order of arrival */
    size_t pending_capacity;
};
/* Begins a part of n values, reusing the memory of the part before. PL_OK or PL_ENOMEM. */
int pl_reducer_begin(struct pl_reducer *r, const struct pl_backend *be, size_t n);
void pl_reducer_clear(struct pl_reducer *r);

/* Before pl_reducer_begin: reserves the memory for parts of up to n values from this many senders.
 * decodes: a method among theirs needs scratch (pl_needs_scratch). PL_OK or PL_ENOMEM. */
int pl_reducer_reserve(struct pl_reducer *r, const struct pl_backend *be, size_t n, size_t senders,
                       int decodes);
/* 1: a message of this method is decoded before it can be added. */
int pl_needs_scratch(enum pl_compression method);

/* Adds the reducer's own n values, which never travelled. PL_EUSE for a weight that is negative or
 * not finite. x and messages are borrowed until the next pl_reducer_begin or pl_reducer_clear. */
int pl_reducer_add(struct pl_reducer *r, const float *x, double weight, struct pl_err *err);
/* Adds a sender's message: a tensor of one axis with n float32, encoded. It is checked here. */
int pl_reducer_add_message(struct pl_reducer *r, enum pl_compression method, const uint8_t *buffer,
                           size_t bytes, double weight, struct pl_err *err);

/* Once all have been added: the sum (n), which the caller may change; NULL without memory. */
float *pl_reducer_sum(struct pl_reducer *r);
/* delta (n) = mean - x, for the reducer's own values; */
int pl_reducer_delta(float *delta, struct pl_reducer *r, const float *x);
/* x += mean - x, where x may be what pl_reducer_add was given; */
int pl_reducer_apply(float *x, struct pl_reducer *r);
/* reply = mean minus what a sender's message decodes to, encoded by the message's own method. The
 * message is given once more; the reply is as long: pl_wire_bytes. */
int pl_reducer_reply(uint8_t *reply, struct pl_reducer *r, enum pl_compression method,
                     const uint8_t *buffer, size_t bytes, struct pl_err *err);

/* reply = the mean, encoded: for a sender whose message had no values. */
int pl_reducer_mean(uint8_t *reply, struct pl_reducer *r, enum pl_compression method,
                    struct pl_err *err);

/* x (n) += the decoded reply. A sender adds it to its own values, not to what its message
 * decoded to: so each keeps the quantization error of its own message, and peers' results differ
 * a little. scratch (n): only for methods that need it. */
int pl_apply_delta(float *x, size_t n, const struct pl_backend *be, enum pl_compression method,
                   const uint8_t *reply, size_t bytes, float *scratch, struct pl_err *err);

#ifdef __cplusplus
}
#endif
#endif
