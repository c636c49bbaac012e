/* averager_key.c - the group key under which an averager searches, and its bits: other ones after
 * each group, and as many as the run needs. [Moshpit SGD 3.2] [spec hivemind-protocol 4.1, 4.5] */
#include "averager_internal.h"

#include <stdio.h>
#include <string.h>

/* The search that follows declares under this key. */
static void set_bits(struct averager *a, const char *bits)
{
    char key[GROUP_KEY_MAX];
    struct dht_id id;
    if (group_key(key, a->names.prefix, bits, NULL) || dht_id_of_text(&id, key)) return;
    snprintf(a->names.bits, sizeof a->names.bits, "%s", bits);
    memcpy(a->names.key, key, sizeof a->names.key);
    a->names.key_id = id;
}

/* Each member's index in the group is pushed into the bits of its key: peers that have just
 * averaged together are in different groups next. A group larger than our target leaves the bits as
 * they are. [spec hivemind-protocol 4.5] */
static void next_key(struct averager *a)
{
    char bits[GROUP_BITS_MAX + 1];
    const struct group *g = &a->round.group;
    /* With n = target size and keys of d numbers below n, peers move on a grid of n^d cells, one
     * axis a round, and meet n - 1 others each time. [Moshpit SGD 3.2] */
    if (!a->names.bits[0] ||
        group_next_bits(bits, a->names.bits, g->id, g->count, g->self, a->o.target_size))
        return;
    set_bits(a, bits);
}

/* Who meets only peers that follow the same rule keeps its bits until a round has succeeded: the
 * members of a group that falls apart find each other again under the old key. With other bits each
 * of them would be alone in a large run, where all the others are done. Peers whose bits the user
 * has set change them with every group, as hivemind's do. */
void averager_group_formed(struct averager *a)
{
    if (!a->names.keeps_bits) next_key(a);
}

void averager_round_succeeded(struct averager *a)
{
    if (a->names.keeps_bits) next_key(a);
}

/* A leader that expects a peer that is gone waits for the end of its window, and in the grid its
 * group is a small part of the peers that train. A window that began before the batch was full
 * costs nothing; another one does. But now the group is known: its members come back under this
 * key, except for those on back-off. Peers of other groups are done, or search under other keys;
 * one that does come has declared, and a leader waits for those. */
void averager_expect_group_again(struct averager *a)
{
    const struct group *g = &a->round.group;
    size_t n = 0;
    if (!a->names.keeps_bits && a->names.bits[0]) return; /* its key has changed */
    for (size_t i = 0; i < g->count; i++)
        n += i == g->self ||
             !reliability_is_paused(a->reliability, loop_now(a->loop), &g->members[i].peer, 1);
    if (n < a->call.step.expected) a->call.step.expected = n;
}

void averager_fit_bits(struct averager *a, size_t count)
{
    char bits[GROUP_BITS_MAX + 1];
    if (a->call.phase != AVERAGER_IDLE || strlen(a->names.bits) == count) return;
    memcpy(bits, a->names.bits, sizeof bits);
    grid_fit_bits(bits, count, &a->o.random);
    averager_set_bits(a, bits);
}

void averager_set_bits(struct averager *a, const char *bits)
{
    if (a->call.phase != AVERAGER_IDLE) return;
    a->names.keeps_bits = 1;
    if (strcmp(a->names.bits, bits)) set_bits(a, bits);
}
