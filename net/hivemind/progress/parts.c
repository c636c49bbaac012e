/* parts.c - progress in parts: who is in a part, who leads it, and what its sum counts for.
 *
 *   part     = the first 4 * level bits of SHA-1(owner tag)
 *   order    = splitmix64(SHA-1(owner tag) ^ epoch / 8)          the first living owner leads
 *   samples  = sum_k samples_k + min(now - time_k, 60 s) * speed_k     k at the part's epoch
 *   speed    = sum_k speed_k                                            all of the part
 *
 * A sum has a time of its own, and its readers let it go on at its speed as they do with a peer's
 * record (progress.c), so levels may be some seconds old each without any samples being lost. */
#include "parts.h"
#include "ref/byte_order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FANOUT (1 << RECORD_PART_BITS)
#define SAMPLES_MAX 9e18 /* fits into an int64_t */

/* A level has 16^level keys. The run goes one level deeper once a key would hold more than `most`
 * records on average, and back at half of that: between the two limits a run near one of them does
 * not move to and fro. */
size_t parts_level(size_t level, size_t peers, size_t most)
{
    while (level + 1 < RECORD_PART_LEVELS && peers > most << level * RECORD_PART_BITS) level++;
    while (level && 2 * peers <= most << (level - 1) * RECORD_PART_BITS) level--;
    return level;
}

/* The owner's part on this level, as a number. Owners are hashes, so parts are of about equal
 * size. */
static uint32_t part_of(const uint8_t owner[DHT_ID_BYTES], size_t level)
{
    const uint32_t first = (uint32_t)owner[0] << 8 | owner[1];
    return first >> (16 - level * RECORD_PART_BITS);
}

static int is_own(const struct progress_record *a, const struct progress_record *b)
{
    return !memcmp(a->owner, b->owner, sizeof a->owner);
}

/* --- the order of leaders --------------------------------------------------------------------- */

/* A key can be found that comes first in one period of PARTS_EPOCHS epochs; in the next period its
 * place is another one. splitmix64's finalizer mixes owner and period. */
static uint64_t place_of(const struct progress_record *r, int64_t epoch)
{
    uint64_t x;
    pl_copy_little(&x, r->owner + DHT_ID_BYTES - sizeof x, sizeof x, 1);
    x ^= ((uint64_t)epoch / PARTS_EPOCHS + 1) * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* NaN counts as silent, too. */
static int is_silent(const struct progress_record *r, double now)
{
    return !(now - r->time <= PARTS_SILENT);
}

/* The living come before those that have stopped. */
static int comes_first(const struct progress_record *a, const struct progress_record *b,
                       int64_t epoch, double now)
{
    const int silent = is_silent(a, now);
    if (silent != is_silent(b, now)) return !silent;
    return place_of(a, epoch) < place_of(b, epoch);
}

/* No election: all peers of a part sort the same records, so they agree. While their records differ
 * two may lead, and readers take the sum of one (parts_take). */
int parts_leads(const struct progress_record *records, size_t count,
                const struct progress_record *own, int64_t epoch, double now)
{
    for (size_t i = 0; i < count; i++)
        if (!is_own(&records[i], own) && comes_first(&records[i], own, epoch, now)) return 0;
    return 1;
}

/* --- bounds ----------------------------------------------------------------------------------- */

static int ascending(const void *a_, const void *b_)
{
    const double *a = a_, *b = b_;
    return (*a > *b) - (*a < *b);
}

/* While fewer than half of the numbers are false, the median is at most the largest honest one. */
static double most_of(double *x, size_t n)
{
    qsort(x, n, sizeof *x, ascending);
    return n ? PARTS_TRUST * x[n / 2] : 0;
}

/* Samples are compared with those of sums at the same epoch. While these are fewer than half, as at
 * the beginning of an epoch, they do not count. */
static void bound_samples(struct progress_record *records, size_t count, size_t sums)
{
    int64_t bound[FANOUT];
    double x[FANOUT];
    size_t k = 0;
    /* All bounds first: a bound that was computed after others are cut would depend on the
     * order. */
    for (size_t i = 0; i < count; i++) {
        size_t n = 0;
        if (!records[i].peers) continue;
        for (size_t j = 0; j < count; j++)
            if (records[j].peers && records[j].epoch == records[i].epoch)
                x[n++] = (double)records[j].samples;
        bound[k++] = 2 * n < sums ? 0 : (int64_t)fmin(most_of(x, n), SAMPLES_MAX);
    }
    k = 0;
    for (size_t i = 0; i < count; i++) {
        if (!records[i].peers) continue;
        if (records[i].samples > bound[k]) records[i].samples = bound[k];
        k++;
    }
}

/* At most FANOUT of the records are sums, one of each part. */
static void bound_sums(struct progress_record *records, size_t count)
{
    double peers[FANOUT], speed[FANOUT], most_peers, most_speed;
    size_t n = 0;
    for (size_t i = 0; i < count; i++)
        if (records[i].peers) {
            peers[n] = records[i].peers;
            speed[n++] = records[i].samples_per_second;
        }
    most_peers = most_of(peers, n);
    most_speed = most_of(speed, n);
    bound_samples(records, count, n);
    for (size_t i = 0; i < count; i++) {
        struct progress_record *r = &records[i];
        if (!r->peers) continue;
        r->peers = (uint32_t)fmin(r->peers, most_peers);
        r->clients = r->clients < r->peers ? r->clients : r->peers;
        r->samples_per_second = fmin(r->samples_per_second, most_speed);
    }
}

/* --- a part's records ------------------------------------------------------------------------- */

size_t parts_take(struct progress_record *records, size_t count, const struct progress_record *own,
                  int own_counts, size_t level, int64_t epoch, double now)
{
    struct progress_record *best[FANOUT] = { NULL };
    size_t kept = 0;
    for (size_t i = 0; i <= count; i++) {
        /* The last one is our own, as we know it: the copy in the DHT may be older. */
        const struct progress_record *r = i < count ? &records[i] : own;
        struct progress_record **of;
        if (i < count ? is_own(r, own) : !own_counts) continue;
        /* Only the owner's hash decides: records that owners of other parts have put under this
         * key do not count. */
        if (part_of(r->owner, level) != part_of(own->owner, level)) continue;
        if (!r->peers) { /* a peer's own; in place: kept <= i, so no unread record is lost */
            records[kept++] = *r;
            continue;
        }
        /* The sum of a part right below, to which its leader itself belongs. */
        if (progress_part_bits(r) != (level + 1) * RECORD_PART_BITS) continue;
        /* Several may claim to lead this part. One sum of it counts, so that no sample counts
         * twice. */
        of = &best[part_of(r->owner, level + 1) % FANOUT];
        if (*of && comes_first(*of, r, epoch, now)) continue;
        if (!*of) *of = &records[kept++];
        **of = *r;
    }
    bound_sums(records, kept);
    return kept;
}

/* The epoch that most of these records' peers have reached. -1: none, or no memory. */
static int64_t majority(const struct progress_record *records, size_t count)
{
    struct progress_vote *votes = malloc((count + 1) * sizeof *votes);
    int64_t epoch = -1;
    for (size_t i = 0; votes && i < count; i++)
        votes[i] = (struct progress_vote){ records[i].epoch, progress_peers(&records[i]) };
    if (votes) epoch = progress_majority(votes, count);
    free(votes);
    return epoch;
}

struct progress_record parts_sum(const struct progress_record *records, size_t count,
                                 const struct progress_record *own, size_t level, double fastest,
                                 double now)
{
    struct progress_record sum = { .time = now, .epoch = majority(records, count) };
    double samples = 0;
    /* The sum is signed by its leader, and its ID names the part. */
    memcpy(sum.owner, own->owner, sizeof sum.owner);
    progress_name_part(&sum, own->owner, level * RECORD_PART_BITS);
    for (size_t i = 0; i < count; i++) {
        struct progress_record r = records[i];
        const size_t peers = progress_peers(&r);
        /* A claimed speed counts no more within a sum than in a peer's own record. */
        r.samples_per_second = fmin(r.samples_per_second, fastest * (double)peers);
        sum.peers += (uint32_t)peers;
        sum.clients += r.peers ? r.clients : r.client_mode != 0;
        sum.samples_per_second += r.samples_per_second;
        /* Samples of another epoch belong to another step. The others are extrapolated to `now`,
         * the sum's own time, from where its readers go on. */
        if (r.epoch == sum.epoch) samples += progress_estimate(&r, now);
    }
    sum.samples = (int64_t)fmin(samples, SAMPLES_MAX);
    sum.client_mode = sum.clients == sum.peers; /* a flag on the wire: all of them */
    if (sum.epoch < 0) sum.epoch = own->epoch;
    return sum;
}

/* From then on our part counts by its sum, until then record by record. */
int parts_cover(const struct progress_record *records, size_t count,
                const struct progress_record *own)
{
    for (size_t i = 0; i < count; i++)
        if (records[i].peers && part_of(records[i].owner, 1) == part_of(own->owner, 1)) return 1;
    return 0;
}
