/* bans.c - a small table of peers, each with the end of its ban.
 *
 * A full table forgets the ban that ends first. As each ban lasts equally long, that is the oldest.
 * With 256 entries a scan is as fast as an index would be, and there is nothing to keep in order:
 * an expired ban stays in its entry until the entry is used again. */
#include "bans.h"

static size_t find(const struct bans *b, const struct peer_id *peer)
{
    size_t i = 0;
    while (i < b->count && !peer_id_equal(&b->items[i].peer, peer)) i++;
    return i;
}

static size_t first_to_end(const struct bans *b)
{
    size_t first = 0;
    for (size_t i = 1; i < b->count; i++)
        if (b->items[i].until < b->items[first].until) first = i;
    return first;
}

int bans_add(struct bans *b, double now, const struct peer_id *peer)
{
    int is_new = !bans_has(b, now, peer);
    size_t at = find(b, peer);
    /* A peer that cheats again while it is banned is banned for the full time from now on. */
    if (at == BANS_MAX) at = first_to_end(b);
    else if (at == b->count) b->count++;
    b->items[at] = (struct ban){ .peer = *peer, .until = now + BANS_TIME };
    return is_new;
}

/* Decided by the clock alone, so a ban ends even if nobody removes it. */
int bans_has(const struct bans *b, double now, const struct peer_id *peer)
{
    size_t at = find(b, peer);
    return at < b->count && now < b->items[at].until;
}
