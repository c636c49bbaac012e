/* bans.c - see bans.h. */
#include "bans.h"

#include <string.h>

static size_t find(const struct bans *b, const struct peer_id *peer)
{
    size_t i = 0;
    while (i < b->count && !peer_id_equal(&b->items[i].peer, peer)) i++;
    return i;
}

void bans_add(struct bans *b, double now, const struct peer_id *peer)
{
    size_t at = find(b, peer);
    if (at == BANS_MAX) at = 0; /* they are in the order of their ends */
    if (at < b->count)
        memmove(&b->items[at], &b->items[at + 1], (--b->count - at) * sizeof *b->items);
    b->items[b->count++] = (struct ban){ *peer, now + BANS_TIME };
}

int bans_has(const struct bans *b, double now, const struct peer_id *peer)
{
    size_t at = find(b, peer);
    return at < b->count && now < b->items[at].until;
}
