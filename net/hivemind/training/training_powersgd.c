/* training_powersgd.c - finds the rank of the run's PowerSGD before this peer takes part in a
 * round. [spec wire-extensions A.4, A.5]
 *
 *   1. ask       other peers for the state of their averager of gradients: it holds each Q (b,r),
 *                so its shapes show the rank
 *   2. choose    the run's rank, or the user's; a peer whose user has set another one stops here
 *   3. compress  with this rank from the first round on
 *
 * Matchmaking does not compare ranks. Peers of two ranks would form one group, whose rounds all
 * fail, one timeout after the other. */
#include "training_internal.h"

#include <stdio.h>

/* votes: how many peers have shown this rank; 0: none has answered. */
static void on_rank(void *context, int rank, size_t votes)
{
    struct request *w = context;
    w->number = rank;
    w->left = (int)votes;
    loop_end(&w->wait, PL_OK);
}

static void begin_ask(void *context)
{
    struct request *w = context;
    int rc = averager_ask_rank(w->c->a[GRADIENT], on_rank, w);
    if (rc) loop_end(&w->wait, rc);
}

/* On the loop's thread, where rounds begin: a rank never changes within one. */
static void begin_compress(void *context)
{
    struct request *w = context;
    loop_end(&w->wait, averager_compress(w->c->a[GRADIENT], (int)w->number, w->err));
}

/* Peers that compress nothing agree with any rank at which no tensor is compressed. */
static int is_same(const struct training *c, int rank, int theirs)
{
    return theirs ? rank == theirs : !factors_count(c->o.schema, c->o.tensors, rank);
}

/* If the user sets no rank, the run decides. If the user sets one, the state of a few peers cannot
 * stop this one, but those of more than half of the other peers can. */
static int choose_rank(struct training *c, int *rank, int theirs, size_t votes, struct pl_err *err)
{
    const int wanted = *rank;
    struct training_view v;
    char text[256];
    /* theirs is 0 where most compress nothing: then any rank does that compresses nothing
     * (is_same). */
    if (!wanted) *rank = votes && theirs ? theirs : FACTORS_RANK_USUAL;
    if (!votes || is_same(c, *rank, theirs)) return PL_OK;
    training_get_view(c, &v);
    snprintf(text, sizeof text,
             "%zu of the run's peers compress gradients by PowerSGD of rank %d%s, this one by rank "
             "%d: use --powersgd-rank %d",
             votes, theirs, theirs ? "" : " (no tensor at all)", *rank, theirs ? theirs : *rank);
    /* v.peers counts this peer, too. If at most half of the others have voted, they may be
     * Byzantine peers: only a warning, and the user's rank stays. */
    if (!wanted || 2 * votes > v.peers - 1) return pl_fail(err, PL_EUSE, "%s", text);
    training_warn(c, text);
    return PL_OK;
}

int training_compress(struct training *c, int *rank, struct pl_err *err)
{
    struct request ask = { .c = c, .err = err }, compress = { .c = c, .err = err };
    int rc = request_wait(&ask, begin_ask); /* 1. */
    if (rc) return pl_fail(err, rc, "PowerSGD: no memory");
    rc = choose_rank(c, rank, (int)ask.number, (size_t)ask.left, err); /* 2. */
    if (rc) return rc;
    compress.number = *rank;
    return request_wait(&compress, begin_compress); /* 3. */
}

/* --- a checkpoint's state --------------------------------------------------------------------- */

/* A checkpoint has M and Q, a download only Q: M is what this peer's own gradients still have to
 * send. So a peer that resumes behind the others takes M from its checkpoint and Q from them. */
static void save_factors(void *context)
{
    struct request *w = context;
    w->status = averager_save_factors(w->c->a[GRADIENT], w->bytes);
}

int training_save_factors(struct training *c, struct bytes *out)
{
    struct request w = { .c = c, .bytes = out };
    loop_call(c->loop, save_factors, &w);
    return w.status;
}

/* After training_compress with the checkpoint's rank: other ranks have other shapes. */
static void load_factors(void *context)
{
    struct request *w = context;
    w->status = averager_load_factors(w->c->a[GRADIENT], w->message, w->message_n, w->number,
                                      w->err);
}

int training_load_factors(struct training *c, const uint8_t *data, size_t n, int64_t behind,
                          struct pl_err *err)
{
    struct request w = { .c = c, .message = data, .message_n = n, .number = behind, .err = err };
    loop_call(c->loop, load_factors, &w);
    return w.status;
}
