/* allreduce_jobs.c - work that the two halves of an all-reduce hand on: computation to a helper
 * thread, a message to a stream, the end of the round to the engine.
 *
 *   loop's thread    job_new ... job_start                      done (allreduce.c)
 *                                   |                            ^
 *   helper thread                   +---> run: computes ---------+
 *
 * Long operations (compression, sums, hashes) run on helper threads, so that the loop keeps serving
 * streams. A job owns what it works on until it is done: meanwhile the loop's thread touches
 * neither its slot nor its message. So the engine needs no lock.
 *
 * Giving up only marks the round: jobs may still run, and streams are closed by the engine as soon
 * as the event that has led to it is over. */
#include "allreduce_internal.h"

#include <stdlib.h>

struct allreduce_job_of *allreduce_job_new(struct allreduce *x, enum job_kind kind,
                                           void (*run)(struct allreduce_job *job))
{
    struct allreduce_job_of *job = calloc(1, sizeof *job);
    if (!job) return NULL;
    job->job.run = run;
    job->x = x;
    job->kind = kind;
    return job;
}

void allreduce_job_start(struct allreduce *x, struct allreduce_job_of *job)
{
    x->jobs++;
    x->callbacks->work(x->context, &job->job);
}

/* A part is half a megabyte: where the stream can take the buffer itself, nothing is copied. */
void allreduce_send(struct allreduce *x, size_t peer, enum allreduce_way way, struct bytes *message)
{
    if (x->callbacks->give) x->callbacks->give(x->context, peer, way, message);
    else x->callbacks->send(x->context, peer, way, bytes_at(message), bytes_length(message));
    buffer_pool_give(&x->pool, message);
}

void allreduce_give_up(struct allreduce *x, int status, const char *why)
{
    if (x->phase != ALLREDUCE_REDUCING)
        return; /* once it is being applied, it will be in a moment */
    x->phase = ALLREDUCE_CANCELLED;
    x->status = status;
    pl_fail(&x->err, status, "averaging: %s", why);
}
