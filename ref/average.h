/* average.h - the weighted mean of a group's tensors, part by part: what a reducer does with what
 * reaches it, and a whole group in one process as the yardstick for the one over sockets.
 * [TTT 2.1, communication; 3.3] [spec numerics 8] */
#ifndef PL_AVERAGE_H
#define PL_AVERAGE_H

#include "partition.h"
#include "quant.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Values as they travel, without a copy: what a reducer keeps of a part is its message. */
struct pl_coded {
    enum pl_compression method; /* NONE: float32; FLOAT16: halves; UNIFORM8: codes into the table */
    const void *data;           /* n values of it, little-endian; float32 too may be unaligned */
    float table[PL_CODES];      /* of UNIFORM8 */
};

/* Both work in host memory, and every backend gives the same bits: a group whose members have
 * different hardware must agree on what was sent.
 *
 * sum[i] = sum[i] + weight * x[i], the product and the sum each rounded once. */
typedef int pl_average_add_fn(float *sum, const struct pl_coded *x, float weight, size_t n);

/* delta[i] = sum[i] / weight - x[i], each rounded once; all 0 if the weight is 0, since a mean of
 * nothing changes nothing. */
typedef int pl_average_delta_fn(float *delta, const float *sum, float weight,
                                const struct pl_coded *x, size_t n);

pl_average_add_fn ref_average_add, fast_average_add, cuda_average_add;
pl_average_delta_fn ref_average_delta, fast_average_delta, cuda_average_delta;

/* Values of a sender and how much they count. */
struct pl_sender {
    struct pl_coded x;
    float weight;
};

/* The same in one go, for processors whose caches make a difference; same bits. A backend with
 * host_alloc is not asked for them.
 *
 * sum = 0, then average_add of each sender in turn. */
typedef int pl_average_sum_fn(float *sum, const struct pl_sender *from, int senders, size_t n);
/* x += 1 * the delta of such a sum from x, which may be what a sender's data point to. */
typedef int pl_average_settle_fn(float *x, const struct pl_sender *from, int senders, float weight,
                                 size_t n);
/* codes and table of uniform8_encode of the delta (n >= 1). */
typedef int pl_average_answer_fn(uint8_t *codes, float table[PL_CODES], const float *sum,
                                 float weight, const struct pl_coded *x, size_t n);
/* The same of a sum that nobody has made, and nobody keeps. */
typedef int pl_average_reply_fn(uint8_t *codes, float table[PL_CODES], const struct pl_sender *from,
                                int senders, float weight, const struct pl_coded *x, size_t n);

pl_average_sum_fn ref_average_sum, fast_average_sum;
pl_average_settle_fn ref_average_settle, fast_average_settle;
pl_average_answer_fn ref_average_answer, fast_average_answer;
pl_average_reply_fn ref_average_reply, fast_average_reply;

/* One part at its reducer. The mean depends on the order in which its senders are added: the order
 * of arrival. What has come is added up when somebody asks, all of it in one go. All zero is a
 * valid empty one. */
struct pl_reducer {
    const struct pl_backend *be;
    size_t n, room;
    /* sum: of the senders so far, unset before the first; values, delta: scratch. From be's
     * host_alloc: a device has them without a detour. NULL until they are needed */
    float *sum, *values, *delta;
    double weight;               /* of all that was added */
    int senders, added;          /* so many of them are in the sum */
    struct pl_sender *pending;   /* the others, in their order */
    int pending_room;
};
/* A new part of n values, in the memory of the one before. PL_OK or PL_ENOMEM. */
int pl_reducer_begin(struct pl_reducer *r, const struct pl_backend *be, size_t n);
void pl_reducer_clear(struct pl_reducer *r);

/* The reducer's own values, n floats, which never were encoded. PL_EUSE for a weight that is
 * negative or not finite. What is added is borrowed until the next part, or pl_reducer_clear. */
int pl_reducer_add(struct pl_reducer *r, const float *x, double weight, struct pl_err *err);
/* A sender's message: a tensor of one axis with n float32, encoded. Checked here. */
int pl_reducer_add_message(struct pl_reducer *r, enum pl_compression method, const uint8_t *buffer,
                           size_t bytes, double weight, struct pl_err *err);

/* When all have been added: the sum (n), which the caller may change; NULL without memory. */
float *pl_reducer_sum(struct pl_reducer *r);
/* What the reducer itself adds to its n values; */
int pl_reducer_delta(float *delta, struct pl_reducer *r, const float *x);
/* or adds it at once, where it is done with them: x may be what pl_reducer_add was given; */
int pl_reducer_apply(float *x, struct pl_reducer *r);
/* and the answer to a sender, whose message is given once more: mean minus what that message
 * decodes to, encoded by the message's own method. As long as the message: pl_wire_bytes. */
int pl_reducer_reply(uint8_t *reply, struct pl_reducer *r, enum pl_compression method,
                     const uint8_t *buffer, size_t bytes, struct pl_err *err);

/* A sender adds an answer to its own values, which never were encoded: so everybody keeps their own
 * error of the way out, and results differ a little between peers. */
int pl_average_apply(float *x, size_t n, const struct pl_backend *be, enum pl_compression method,
                     const uint8_t *reply, size_t bytes, struct pl_err *err);

/* A whole group in one process. */
enum pl_role {
    PL_NODE,     /* sends, reduces its share */
    PL_CLIENT,   /* sends, reduces nothing: nobody can dial it */
    PL_AUXILIARY /* reduces only: has no tensors */
};
struct pl_member {
    enum pl_role role;
    double weight;        /* usually the samples in its gradient */
    double fraction;      /* its share of the reducing; a client's is 0 */
    float *const *tensor; /* in: its values, out: the group's mean as it sees it; NULL: auxiliary */
};
struct pl_group {
    struct pl_member *member;
    int members;
    size_t tensors;
    const size_t *elements;            /* (tensors) */
    const enum pl_compression *method; /* (tensors) */
    size_t part_bytes;
    const int *order; /* (members): who arrives first at every reducer; NULL: in their order */
};
int pl_average_group(const struct pl_group *group, const struct pl_backend *be, struct pl_err *err);

#ifdef __cplusplus
}
#endif
#endif
