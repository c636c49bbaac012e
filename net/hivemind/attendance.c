/* attendance.c - see attendance.h. */
#include "attendance.h"

#include <math.h>
#include <stdlib.h>

static int by_peer(const void *a, const void *b)
{
    const struct attendee *x = a, *y = b;
    return peer_id_compare(&x->peer, &y->peer);
}

static struct attendee *find(const struct attendance *a, const struct peer_id *peer)
{
    const struct attendee wanted = { .peer = *peer };
    return a->count ? bsearch(&wanted, a->list, a->count, sizeof *a->list, by_peer) : NULL;
}

int attendance_see(struct attendance *a, struct progress_record *records, size_t count, double now,
                   size_t *counted)
{
    struct attendance next = { .list = malloc((count + a->count + 1) * sizeof *next.list) };
    *counted = count;
    if (!next.list) return PL_ENOMEM;
    *counted = 0;
    for (size_t i = 0; i < count; i++) {
        struct attendee *before = find(a, &records[i].peer), *p = &next.list[next.count++];
        *p = (struct attendee){ .peer = records[i].peer, .reported = records[i].time, .seen = now };
        if (before) {
            p->missed = before->missed;
            before->seen = -INFINITY; /* taken over */
        }
        if (p->reported > p->missed) records[(*counted)++] = records[i];
    }
    for (size_t i = 0; i < a->count; i++)
        if (a->list[i].seen + PROGRESS_LIFE > now) next.list[next.count++] = a->list[i];
    qsort(next.list, next.count, sizeof *next.list, by_peer);
    attendance_clear(a);
    *a = next;
    return PL_OK;
}

void attendance_round(struct attendance *a, const struct group *g, double trigger)
{
    for (size_t i = 0; i < a->count; i++)
        if (!g || group_find(g, &a->list[i].peer) < 0) a->list[i].missed = trigger;
}

void attendance_clear(struct attendance *a)
{
    free(a->list);
    *a = (struct attendance){ 0 };
}
