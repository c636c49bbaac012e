/* allreduce_wait.c - how long a silent groupmate is waited for, as a sender or as a reducer.
 *
 *   deadline = min(since + timeout, max(since, others_at) + max(patience, 3 slowest))
 *
 * The timeout alone would be enough to end, but a whole group waits for its slowest peer. So a
 * groupmate that has a record (reliability.h) is given up early, once the others have done what it
 * has not; unless bytes of its message still move. */
#include "allreduce_internal.h"

#include <math.h>

struct allreduce_deadline allreduce_deadline(const struct allreduce *x,
                                             const struct allreduce_wait *wait, double timeout,
                                             double others_at, double patience)
{
    double until = timeout > 0 ? wait->since + timeout : INFINITY;
    /* Three times the slowest part so far is what this group's links take. */
    double early = fmax(fmax(wait->since, wait->checked), others_at) +
                   fmax(patience, 3 * x->receiving.slowest);
    return (struct allreduce_deadline){ fmin(early, until), early < until };
}

/* A slow link and a silent peer look alike until a whole message is there. So bytes count: at the
 * rate so far, moved / elapsed, the part must take no longer than twice the timeout. The timeout
 * itself is not prolonged. */
int allreduce_may_wait(const struct allreduce *x, double now, struct allreduce_wait *wait,
                       struct allreduce_deadline d, size_t peer, enum allreduce_way way,
                       size_t part, double timeout)
{
    double bytes = (double)allreduce_part_bytes(x, &x->parts[part]), moved;
    if (!d.is_early || !x->callbacks->moved || timeout <= 0) return 0;
    moved = (double)x->callbacks->moved(x->context, peer, way);
    if (!(moved > 0 && moved >= bytes * (now - wait->since) / (2 * timeout))) return 0;
    wait->checked = now;
    return 1;
}
