/* parts.h - progress in parts, for runs with more peers than one key of the DHT can serve. Pure
 * functions.
 *
 *   level 0   RUN_progress           up to PARTS_PEERS peers: each has its record here, as in
 *                                    hivemind. In a larger run: the sums of 16 parts
 *   level 1   RUN_progress.0bBBBB    a part: the records of peers whose owner tags' hashes begin
 *                                    with these bits, or the sums of 16 smaller parts
 *   level 2   RUN_progress.0bBBBBBBBB  and so on
 *
 * A peer reports on the level that the run's size asks for, under the key of its own part. The
 * part's leader (the peer that comes first in an order drawn anew every few epochs) adds up what
 * lies under its key, and puts the sum under the key one level above, signed, in the form of a
 * progress record. So every peer reads its own part and the 16 sums of level 0, whatever the size
 * of the run. Python peers write to level 0 and read from there; to them a sum is a fast peer.
 *
 * Nobody's samples count twice: a key has one record of each owner, only of owners of its part, and
 * of each part one sum. Peers that see another size of the run, and so report on another level, are
 * counted, too.
 *
 * A leader claims its sum, which counts for at most PARTS_TRUST times the median of the sums next
 * to it, in peers, speed and samples. A leader's key has to belong to the part, and the order of
 * leaders is another one every PARTS_EPOCHS epochs. */
#ifndef PL_PARTS_H
#define PL_PARTS_H

#include "net/hivemind/records/validate.h"
#include "progress.h"

#define PARTS_PEERS 256  /* under one key: 226 kB a poll; a thousand of them would be 44 MB/s */
#define PARTS_TRUST 3    /* a false sum of 16 brings the step forward by an eighth at most */
#define PARTS_EPOCHS 8   /* with the same leaders */
#define PARTS_SILENT 35. /* s: a living peer reports every 30, a living leader every 10 */

/* The level for a run with this many peers, of which `most` may be under one key; `level` is the
 * present one: it falls only once the run is half as large as it may be there. */
size_t parts_level(size_t level, size_t peers, size_t most);
/* Moves the records that count under the key of own's part on this level to the front; of each
 * smaller part only its leader's sum, within bounds. Then adds `own`, in place of what was found of
 * it, unless own_counts is 0. `records` has space for it. Returns their number. */
size_t parts_take(struct progress_record *records, size_t count, const struct progress_record *own,
                  int own_counts, size_t level, int64_t epoch, double now);
/* 1: own's owner leads its part, of which these are the records. */
int parts_leads(const struct progress_record *records, size_t count,
                const struct progress_record *own, int64_t epoch, double now);
/* The sum of a part's records, with the epoch that most of its peers have reached. fastest: the
 * most that one record's speed may be. */
struct progress_record parts_sum(const struct progress_record *records, size_t count,
                                 const struct progress_record *own, size_t level, double fastest,
                                 double now);
/* 1: one of the records is the sum of own's part below level 0. */
int parts_cover(const struct progress_record *records, size_t count,
                const struct progress_record *own);

#endif
