/* pairs.c - a permutation of the peers, sorted by ID, from the epoch as its seed, and their groups:
 * those of the published code (ref/outer/pairing.h). Peers of one group look for each other under
 * one key, whose bits are the number of their first member.
 *
 * Peers that find each other first would pair off by speed and distance, always alike, and of an
 * odd number one would be left over each time. Where two peers know of different others for a
 * while, they draw different groups: these rounds fail, and local steps go on. */
#include "pairs.h"
#include "ref/outer/pairing.h"

#include <assert.h>
#include <stdlib.h>

static int by_id(const void *a, const void *b) { return peer_id_compare(a, b); }

int pairs_draw(char bits[GROUP_BITS_MAX + 1], struct peer_id *peers, size_t count,
               const struct peer_id *self, int group, int64_t epoch)
{
    int *member = malloc((count + 1) * sizeof *member), size, first, length = 0;
    size_t own = 0;
    bits[0] = 0;
    if (!member) return PL_ENOMEM;
    qsort(peers, count, sizeof *peers, by_id);
    while (own < count && !peer_id_equal(&peers[own], self)) own++;
    assert(own < count);
    if (count < 2 * (size_t)group) { /* one group of all */
        free(member);
        return (int)count;
    }
    size = pl_noloco_group(member, (int)own, (int)count, group, (uint64_t)epoch);
    first = size > 0 ? member[0] : 0;
    for (int i = 1; i < size; i++)
        if (member[i] < first) first = member[i];
    free(member);
    while ((size_t)1 << length < count) length++;
    for (int i = 0; i < length; i++) bits[i] = first >> (length - 1 - i) & 1 ? '1' : '0';
    bits[length] = 0;
    return size;
}
