/* partial.h - averaging a part of the parameters at a time. [spec outer-steps 12] Host memory. */
#ifndef PL_PARTIAL_H
#define PL_PARTIAL_H

#include "../base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How many parts n entries are dealt into for a share of them at a time: ceil(1 / share), at most
 * n. 0 < share <= 1. */
size_t pl_partial_parts(size_t n, double share);

/* index (n): the entries of all parts, part after part, each ascending; a permutation that the seed
 * and the tensor's number draw, the same on all peers. Part p is entries begin..end-1 of index. */
void pl_partial_assign(uint32_t *index, size_t n, size_t parts, uint64_t seed, uint64_t tensor);
void pl_partial_range(size_t *begin, size_t *end, size_t n, size_t parts, size_t p);

/* values (count) = x[index], and back. */
void pl_partial_take(float *values, const float *x, const uint32_t *index, size_t count);
void pl_partial_put(float *x, const float *values, const uint32_t *index, size_t count);

#ifdef __cplusplus
}
#endif
#endif
