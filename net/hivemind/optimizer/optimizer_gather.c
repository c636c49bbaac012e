/* optimizer_gather.c - algorithms of ref/outer over the network, whose messages each peer takes as
 * they are. [spec outer-steps 8, 10, 11, 16]
 *
 *   message   of this peer, by the algorithm
 *   gather    every groupmate's, in the order of peer IDs, which is the same at all of them
 *   apply     the algorithm, with all of them: the same messages, so the same bits
 *
 * With local steps optimizer_local.c decides when; without, an exchange belongs to each common
 * step, which is here. A group is new in each round, so its peers have no fixed numbers: to its own
 * algorithm each peer is number 0, and the others follow.
 *
 * In front of each message is a digest of the parameters that all peers have in common: a peer that
 * has diverged is named by the others, and takes their state over.
 *
 * A round that fails gives the algorithm no message: then it takes back what it had sent. */
#include "optimizer_internal.h"
#include "ref/byte_order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* 1-bit Adam's slices are served by one peer each. Here everybody has all messages and serves all
 * of them: a swarm of one server, whose copies stay equal. */
static int has_server(const struct pl_outer *o)
{
    return o->algorithm == pl_outer_find("onebit_adam");
}

/* --- the digest of the parameters ------------------------------------------------------------- */

#define DIGEST_BYTES 8 /* in front of each message */

/* FNV-1a over phi, or over x where gradients travel: what is equal, bit for bit, at all peers. 0:
 * the algorithm lets peers differ, or, as the cosine transform, hardware. */
static int digest_of(struct pl_collaborative *c, uint64_t *digest)
{
    const struct pl_outer *o = c->outer.state;
    const float *phi = pl_outer_get(o, "phi");
    const char *name = o->algorithm->name;
    float *host;
    int rc;
    *digest = 0;
    if (o->algorithm->exchange == PL_OUTER_GROUP || !strcmp(name, "partial") ||
        !strcmp(name, "demo"))
        return PL_OK;
    if (!(host = pl_alloc_unset(o->n, sizeof *host))) return PL_ENOMEM;
    rc = o->setup.be->get(host, phi ? phi : c->trainer.value, o->n * sizeof *host);
    pl_little_endian(host, sizeof *host, o->n);
    *digest = 14695981039346656037u;
    for (size_t k = 0; !rc && k < o->n * sizeof *host; k++)
        *digest = (*digest ^ ((const uint8_t *)host)[k]) * 1099511628211u;
    pl_free(host);
    return rc;
}

static uint64_t digest_in(const struct averager_message *m)
{
    uint64_t digest = 0;
    if (m->n > DIGEST_BYTES) pl_copy_little(&digest, m->data, sizeof digest, 1);
    return digest;
}

/* The digest that most have; of equally many, that of the first peer ID: all come to the same. */
static uint64_t common_digest(const struct averager_message *m, size_t count)
{
    uint64_t common = 0;
    size_t most = 0;
    for (size_t i = 0; i < count; i++) {
        size_t same = 0;
        for (size_t k = 0; k < count; k++) same += m[k].n && digest_in(&m[k]) == digest_in(&m[i]);
        if (m[i].n && same > most) most = same, common = digest_in(&m[i]);
    }
    return common;
}

/* A peer with another digest takes no part: its message is of other parameters. If it is this one,
 * the step fails here, and the state of those that make it is downloaded. */
static void leave_out_diverged(struct pl_collaborative *c, struct averager_message *m, size_t count,
                               struct training_round *round)
{
    const uint64_t common = common_digest(m, count);
    struct pl_err why;
    char name[PEER_ID_TEXT_MAX];
    for (size_t i = 0; i < count; i++) {
        if (!m[i].n || digest_in(&m[i]) == common) continue;
        m[i].weight = 0;
        peer_id_text(name, &m[i].peer);
        if (m[i].is_own)
            round->status = pl_fail(&round->why, PL_EPROTO,
                                    "our parameters have diverged from the others': their state "
                                    "is downloaded");
        else {
            pl_fail(&why, PL_OK, "the parameters of %s have diverged: it is left out", name);
            collaborative_warn(c, why.text);
        }
    }
}

/* --- an exchange ------------------------------------------------------------------------------ */

/* Digest and message, as they travel. The caller frees it. */
static uint8_t *with_digest(struct pl_collaborative *c, const struct pl_outer_message *own)
{
    uint8_t *data = malloc(DIGEST_BYTES + own->bytes);
    uint64_t digest;
    if (!data || digest_of(c, &digest)) {
        free(data);
        return NULL;
    }
    pl_copy_little(data, &digest, sizeof digest, 1);
    memcpy(data + DIGEST_BYTES, own->data, own->bytes);
    return data;
}

int gather_exchange(struct pl_collaborative *c, float *gradient, const struct pl_outer_message *own,
                    struct training_round *round)
{
    struct pl_outer *o = c->outer.state;
    struct averager_message *theirs = NULL;
    struct pl_outer_message *in = NULL;
    uint8_t *data = with_digest(c, own);
    size_t count = 0;
    int next;
    if (!data) return PL_ENOMEM;
    training_gather(c->training, own->weight, data, DIGEST_BYTES + own->bytes, round);
    free(data);
    if (!round->status) count = training_take_messages(c->training, &theirs);
    leave_out_diverged(c, theirs, count, round);
    if (count && !round->status && !(in = calloc(count, sizeof *in))) round->status = PL_ENOMEM;
    for (size_t i = 0; in && i < count; i++)
        in[i] = (struct pl_outer_message){ theirs[i].data + (theirs[i].n ? DIGEST_BYTES : 0),
                                           theirs[i].n - (theirs[i].n ? DIGEST_BYTES : 0),
                                           theirs[i].weight, theirs[i].is_own ? 0 : (int)i + 1 };
    c->has_mixed |= count > 1;
    if (in && !has_server(o) && o->algorithm->exchange != PL_OUTER_GROUP)
        o->setup.peers = (int)count;
    if (in) next = pl_outer_apply(o, c->trainer.value, gradient, in, (int)count);
    else next = pl_outer_apply(o, c->trainer.value, gradient, own, round->is_alone);
    for (size_t i = 0; i < count; i++) free(theirs[i].data);
    free(theirs);
    free(in);
    if (c->trainer.state->optimizer)
        pl_optimizer_written(c->trainer.state->optimizer, c->trainer.value);
    return next;
}

/* No step: the epoch stays, and the values that the algorithm has taken back go with the next
 * message. */
static int fail_step(struct pl_collaborative *c, const struct training_round *round)
{
    struct pl_err why;
    pl_fail(&why, PL_OK, "no step %lld: %.300s; what we sent goes with the next message",
            (long long)c->epoch, round->why.text);
    collaborative_warn(c, why.text);
    c->outer.is_delivered |= round->is_delivered;
    memset(&c->now, 0, sizeof c->now);
    local_count_steps(c);
    training_set_epoch(c->training, c->epoch);
    return PL_OK;
}

/* g = (sum over our samples) / n, into the algorithm's message; then x by the messages of all, or
 * by the local optimizer, where the algorithm leaves the mean in g. */
int gather_take_step(struct pl_collaborative *c, struct pl_err *err)
{
    const struct pl_collaborative_trainer *t = &c->trainer;
    struct pl_outer *o = c->outer.state;
    struct step_account account = c->now;
    struct training_round round = { .peers = 0 };
    struct pl_outer_message own;
    float *gradient;
    int next, rc = t->take_gradient(t->context, 0, &gradient);
    if (rc) return pl_fail(err, rc, "gradients: %s", pl_status_name(rc));
    account.began = pl_seconds();
    /* A peer without samples has no gradient: as one with a NaN, it sends a message of weight 0,
     * and its momentum and error stay. */
    if (!account.samples && (rc = o->setup.be->fill(gradient, NAN, o->n)))
        return pl_fail(err, rc, "gradients: %s", pl_status_name(rc));
    next = pl_outer_before_step(o, t->value, gradient,
                                c->o.schedule ? c->o.schedule(c->o.context, c->epoch) : c->o.lr);
    for (int sent = 0; next == PL_OUTER_SEND; sent++) {
        next = pl_outer_message(o, &own, t->value, gradient);
        if (next != PL_OUTER_RECEIVE) break;
        /* A second message in a step is the server's, which each peer is to itself. */
        next = sent ? pl_outer_apply(o, t->value, gradient, &own, 1)
                    : gather_exchange(c, gradient, &own, &round);
        if (next >= 0 && round.status && !round.is_alone) break;
    }
    if (next < 0) return pl_fail(err, next, "step: %s", pl_status_name(next));
    if (round.status && !round.is_alone) {
        t->drop(t->context);
        return fail_step(c, &round);
    }
    if (next == PL_OUTER_STEP) rc = t->step(t->context, c->epoch, 0, err);
    else t->drop(t->context);
    if (rc) return rc;
    memset(&c->now, 0, sizeof c->now);
    c->outer.is_delivered = 0;
    o->counter[PL_OUTER_ROUNDS] = o->counter[PL_OUTER_STEPS] = (uint64_t)c->epoch + 1;
    return collaborative_stepped(c, &account, &round);
}
