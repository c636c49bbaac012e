/* bans.c - see bans.h. */
#include "bans.h"

#include <math.h>

static size_t find(const struct bans *b, const struct peer_id *peer)
{
    size_t i = 0;
    while (i < b->count && !peer_id_equal(&b->items[i].peer, peer)) i++;
    return i;
}

/* Its place, or that of a new one, which is zeros but for its name. */
static struct ban *place(struct bans *b, const struct peer_id *peer)
{
    size_t at = find(b, peer);
    if (at < b->count) return &b->items[at];
    if (b->count < BANS_MAX) {
        at = b->count++;
    } else {
        at = 0;
        for (size_t i = 1; i < BANS_MAX; i++)
            if (b->items[i].until < b->items[at].until) at = i;
    }
    b->items[at] = (struct ban){ .peer = *peer };
    return &b->items[at];
}

int bans_add(struct bans *b, double now, const struct peer_id *peer)
{
    struct ban *ban = place(b, peer);
    int is_new = ban->back_off > 0 || ban->until <= now;
    ban->until = now + BANS_TIME;
    ban->back_off = 0;
    return is_new;
}

double bans_back_off(struct bans *b, double now, const struct peer_id *peer)
{
    struct ban *ban = place(b, peer);
    double time = BANS_BACK_OFF;
    if (ban->back_off > 0 && now < ban->until + BANS_MEMORY) time = 2 * ban->back_off;
    time = fmin(time, BANS_TIME);
    if (now + time < ban->until) return ban->until - now;
    ban->until = now + time;
    ban->back_off = time;
    return time;
}

int bans_has(const struct bans *b, double now, const struct peer_id *peer)
{
    size_t at = find(b, peer);
    return at < b->count && now < b->items[at].until;
}
