/* pairing.h - the groups of an outer step of NoLoCo. [spec outer-steps 11] */
#ifndef PL_PAIRING_H
#define PL_PAIRING_H

#include "../base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* member (peers / group and maybe one more): the peers of `rank`'s group after `steps` inner steps,
 * in the published code's order; returns how many they are. All peers compute the same: permutation
 * from the seed steps + 1, place i to group i mod (peers / group). 1 <= group <= peers. Returns
 * PL_ENOMEM without memory. */
int pl_noloco_group(int *member, int rank, int peers, int group, uint64_t steps);

#ifdef __cplusplus
}
#endif
#endif
