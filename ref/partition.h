/* partition.h - how a group cuts its tensors into parts, and which peer reduces which.
 * [TTT 2.1, communication] [spec numerics 8] */
#ifndef PL_PARTITION_H
#define PL_PARTITION_H

#include "wire.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_PART_BYTES ((size_t)1 << 19) /* of one part when encoded: the peers' setting */
/* At least 1 byte each; the 125 M values of the reference run make 240. */
#define PL_PARTS_MAX ((size_t)1 << 24)

struct pl_part {
    size_t tensor, index; /* part `index` of that tensor */
    size_t start, length; /* elements of the flattened tensor; an empty tensor is one empty part */
    int reducer;          /* the member that reduces it */
};

/* Float32 values of a part, so that it has part_bytes when encoded; at least 1. NONE, FLOAT16 and
 * the methods of 8 bits. */
size_t pl_part_values(enum pl_compression method, size_t part_bytes);

/* Cuts `tensors` tensors of elements[t] values, sent by method[t] (which is chosen for the whole
 * tensor), into parts for N peers in proportion to fraction (N, finite, >= 0, one above 0). Parts
 * are never divided: one across a border goes to the peer that has most of it. All peers of a group
 * compute this and must come to the same result, so the roundings are part of the definition.
 *
 * *parts is in the order of tensors and starts; the caller frees it with pl_free. */
int pl_partition(struct pl_part **parts, size_t *count, const size_t *elements,
                 const enum pl_compression *method, size_t tensors, const double *fraction, int N,
                 size_t part_bytes, struct pl_err *err);

#ifdef __cplusplus
}
#endif
#endif
