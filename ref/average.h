/* average.h - butterfly all-reduce of a group's tensors, the whole group in one process. The
 * networked all-reduce must give the same bits for the same order of arrival.
 * [TTT 2.1, communication; 3.3] [spec numerics 8] */
#ifndef PL_AVERAGE_H
#define PL_AVERAGE_H

#include "partition.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pl_backend;

enum pl_role {
    PL_NODE,     /* sends, reduces its share */
    PL_CLIENT,   /* sends, reduces nothing: behind NAT, no peer can dial it */
    PL_AUXILIARY /* reduces only: has no tensors */
};
struct pl_member {
    enum pl_role role;
    double weight;        /* >= 0: usually the samples in its gradient */
    double fraction;      /* share of all elements that it reduces; a client's is 0 */
    float *const *tensor; /* in: its values; out: the mean, up to Q's error; NULL: auxiliary */
};
struct pl_group {
    struct pl_member *member;
    int members;
    size_t tensors;
    const size_t *elements;            /* (tensors) */
    const enum pl_compression *method; /* (tensors) */
    size_t part_bytes;
    const int *order; /* (members) of arrival, the same at every reducer; NULL: 0, 1, 2, ... */
};
/* Replaces every sender's tensors by the weighted mean; all host memory. `be` encodes the
 * parts; every backend gives the same bytes. PL_EUSE: a weight that is negative or not finite, or a
 * client that should reduce; PL_ENOMEM. An error may leave some parts averaged. */
int pl_average_group(const struct pl_group *group, const struct pl_backend *be, struct pl_err *err);

#ifdef __cplusplus
}
#endif
#endif
