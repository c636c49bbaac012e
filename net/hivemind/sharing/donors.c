/* donors.c - which donor of a state is asked first. [spec hivemind-protocol 7]
 *
 * An announcement is a claim that costs nothing, so it decides little: the better half of the
 * donors is asked in random order, donors that failed lately come last (others are asked first for
 * 15 s, 30 s, 60 s...), and 32 are asked at most. */
#include "donors.h"
#include "net/hivemind/messages/msgpack.h"

#include <openssl/rand.h>
#include <math.h>
#include <stdlib.h>

static int by_priority(const void *a_, const void *b_)
{
    /* Descending: the highest epoch first. */
    const struct donor *a = a_, *b = b_;
    return (a->priority < b->priority) - (a->priority > b->priority);
}

static int by_rank(const void *a_, const void *b_)
{
    const struct donor *a = a_, *b = b_;
    /* Rank 0: the better half; 1: the others; 2: donors that failed lately. */
    if (a->rank != b->rank) return a->rank - b->rank;
    if (a->priority != b->priority) return by_priority(a_, b_);
    return (a->random > b->random) - (a->random < b->random);
}

/* The better half in any order, then the others by priority; those that have failed lately last.
 * A priority is a donor's own claim, so the greatest must not put it first every time; and all
 * newcomers would ask the same one. */
static void order_donors(struct donor *d, size_t n, const struct dht_blacklist *failed, double now)
{
    double median;
    if (!n) return;
    qsort(d, n, sizeof *d, by_priority);
    /* The priority is the epoch that a donor claims. The median can't be moved by a few
     * claims, and every donor from it up is as good as the others. */
    median = d[n / 2].priority;
    for (size_t i = 0; i < n; i++) {
        d[i].rank = dht_blacklist_has(failed, &d[i].peer, now) ? 2 : d[i].priority < median;
        if (d[i].rank == 0) d[i].priority = median; /* equal from here on */
        /* hivemind's newcomers all ask the highest priority first, and time out on one busy
         * donor. [spec hivemind-protocol 12] */
        RAND_bytes((uint8_t *)&d[i].random, sizeof d[i].random);
    }
    qsort(d, n, sizeof *d, by_rank);
}

static int read_donor(struct donor *d, const struct dht_item *item, const struct peer_id *self)
{
    struct mp_value *subkey = NULL, *value = NULL;
    /* Any peer may write this record of 30 s: entries that cannot be a donor's are skipped, and the
     * others stay. */
    int good = !mp_read(&subkey, item->subkey, item->subkey_n, NULL) &&
               !mp_read(&value, item->value, item->n, NULL) && subkey->kind == MP_BIN &&
               !peer_id_parse(&d->peer, subkey->bytes, subkey->n) &&
               !peer_id_equal(&d->peer, self) && (value->kind == MP_FLOAT || value->kind == MP_INT);
    if (good)
        d->priority = value->kind == MP_FLOAT ? value->real
                      : value->negative       ? -1
                                              : (double)value->number;
    if (good) /* an epoch, as hivemind announces it: a whole number, as a float64 */
        good = d->priority >= 0 && d->priority <= DONOR_PRIORITY_MAX &&
               d->priority == floor(d->priority);
    if (subkey) mp_free(subkey);
    if (value) mp_free(value);
    return good;
}

struct donor *donors_read(size_t *count, const struct dht_dictionary *announced,
                          const struct peer_id *self, const struct dht_blacklist *failed,
                          double now)
{
    /* Sorting announcements costs us time, and their authors nothing, so no more than this are
     * read. */
    size_t most = announced->count < DONORS_MAX ? announced->count : DONORS_MAX, n = 0;
    struct donor *d = malloc((most + 1) * sizeof *d);
    for (size_t i = 0; d && i < most; i++)
        n += (size_t)read_donor(&d[n], &announced->items[i], self);
    order_donors(d, n, failed, now);
    /* Each donor may take its whole time limit, so invented ones could keep a newcomer for
     * hours. */
    *count = n < DONORS_ASKED_MAX ? n : DONORS_ASKED_MAX;
    return d;
}
