/* optimizer_gather.c - algorithms whose messages are not averaged: each peer gathers those of all
 * its groupmates and applies them itself. The algorithms are in ref/outer. [spec outer-steps 8, 10,
 * 11, 16]
 *
 *   1. message   the algorithm makes this peer's message
 *   2. gather    the messages of all groupmates arrive; they are sorted by peer ID at every peer
 *   3. apply     the algorithm applies them: the same messages in one order, so the same bits
 *
 * An algorithm with local steps makes an exchange when optimizer_local.c says so. An algorithm
 * without them makes one in each common step: gather_take_step, below. Each round has a new group,
 * so peers have no fixed numbers: each is number 0 to its own algorithm, and its groupmates follow.
 *
 * Each message begins with a digest of the parameters that all peers should have in common. A peer
 * with another digest has diverged: the others leave it out with a warning, and it downloads their
 * state.
 *
 * If a round fails, the algorithm gets no messages and takes back the values that it has sent. */
#include "optimizer_internal.h"
#include "ref/byte_order.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* In 1-bit Adam each slice of the gradient has a server, a peer that averages it and compresses the
 * mean. Here every peer has all messages, so it is the server of all slices to itself, and the
 * servers of all peers stay equal. */
static int has_server(const struct pl_outer *o)
{
    return o->algorithm == pl_outer_find("onebit_adam");
}

/* --- groups ----------------------------------------------------------------------------------- */

/* NoLoCo: the size of the groups that are drawn in each epoch; else 0. */
int gather_drawn_group(const struct pl_collaborative *c)
{
    const struct pl_outer *o = c->outer.state;
    return c->outer.gathers && o->algorithm->exchange == PL_OUTER_GROUP ? o->setup.group : 0;
}

/* Where each peer sends to each other one, groups have a limit. */
size_t gather_group_size(const struct pl_collaborative *c)
{
    if (!c->outer.gathers) return c->o.group_size;
    if (gather_drawn_group(c))
        return (size_t)gather_drawn_group(c) + 1; /* those left over are in larger ones */
    return c->o.group_size && c->o.group_size < AVERAGER_GATHER_PEERS_MAX
               ? c->o.group_size
               : AVERAGER_GATHER_PEERS_MAX;
}

/* Peers of two groups make different steps, and nothing brings them together again. */
static void warn_if_split(struct pl_collaborative *c)
{
    const size_t most = gather_group_size(c);
    struct training_view v;
    struct pl_err text;
    training_get_view(c->training, &v);
    if (c->outer.is_split || gather_drawn_group(c) || !most || v.peers <= most) return;
    c->outer.is_split = 1;
    pl_fail(&text, PL_OK,
            "the run has %zu peers, and %s gathers the messages of at most %zu: peers of different "
            "groups drift apart. diloco or local_sgd has no such limit",
            v.peers, c->o.algorithm, most);
    collaborative_warn(c, text.text);
}

/* --- the digest of the parameters ------------------------------------------------------------- */

/* A hash of the values that are equal, bit for bit, at all peers: phi, or x where gradients travel.
 * 0 if there are none: with noloco, partial and eager peers differ, and with demo nearly equal.
 *
 * FNV-1a, two values at a time: 0.2 s for 125 million of them, where byte by byte takes 0.9 s. The
 * product carries bits upwards only; the shift brings them down again. */
static int digest_of(struct pl_collaborative *c, uint64_t *digest)
{
    const struct pl_outer *o = c->outer.state;
    const float *phi = pl_outer_get(o, "phi");
    const char *name = o->algorithm->name;
    float *host;
    int rc;
    *digest = 0;
    if (o->algorithm->exchange == PL_OUTER_GROUP || !strcmp(name, "partial") ||
        !strcmp(name, "eager") || gather_is_nearly_equal(c))
        return PL_OK;
    if (!(host = pl_alloc_unset(o->n, sizeof *host))) return PL_ENOMEM;
    rc = o->setup.be->get(host, phi ? phi : c->trainer.value, o->n * sizeof *host);
    pl_little_endian(host, sizeof *host, o->n);
    *digest = 14695981039346656037u;
    for (size_t k = 0; !rc && k < o->n; k += 2) {
        uint64_t word = 0;
        memcpy(&word, host + k, (k + 2 <= o->n ? 2 : 1) * sizeof *host);
        pl_little_endian(&word, sizeof word, 1);
        *digest = (*digest ^ word) * 1099511628211u;
        *digest ^= *digest >> 32;
    }
    pl_free(host);
    return rc;
}

static uint64_t digest_in(const struct averager_message *m)
{
    uint64_t digest = 0;
    if (m->n > GATHER_DIGEST_BYTES) pl_copy_little(&digest, m->data, sizeof digest, 1);
    return digest;
}

/* The digest of most peers; in a tie, that of the first peer ID. So all peers find the same one. */
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

/* The message of a peer with another digest gets weight 0, since it was computed from other
 * parameters. If that peer is this one, its step fails, and it downloads a state of the others. */
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

uint8_t *gather_message(struct pl_collaborative *c, const struct pl_outer_message *own)
{
    uint8_t *data = malloc(GATHER_DIGEST_BYTES + own->bytes);
    uint64_t digest;
    warn_if_split(c);
    if (!data || digest_of(c, &digest)) {
        free(data);
        return NULL;
    }
    pl_copy_little(data, &digest, sizeof digest, 1);
    memcpy(data + GATHER_DIGEST_BYTES, own->data, own->bytes);
    return data;
}

/* The messages go to the algorithm: now, or as a mean that it applies later. */
static int give_messages(struct pl_collaborative *c, float *gradient,
                         const struct pl_outer_message *in, size_t count)
{
    struct pl_outer *o = c->outer.state;
    if (c->outer.overlaps) return pl_outer_arrive(o, in, (int)count);
    return pl_outer_apply(o, c->trainer.value, gradient, in, (int)count);
}

int gather_end(struct pl_collaborative *c, float *gradient, uint8_t *data,
               const struct pl_outer_message *own, struct training_round *round)
{
    struct pl_outer *o = c->outer.state;
    struct averager_message *theirs = NULL;
    struct pl_outer_message *in = NULL, mine = *own;
    size_t count = 0;
    int next;
    if (!round->status) count = training_take_messages(c->training, &theirs);
    leave_out_diverged(c, theirs, count, round);
    if (count && !round->status && !(in = calloc(count, sizeof *in))) round->status = PL_ENOMEM;
    for (size_t i = 0; in && i < count; i++) {
        const size_t head = theirs[i].n ? GATHER_DIGEST_BYTES : 0;
        in[i] = (struct pl_outer_message){ theirs[i].data + head, theirs[i].n - head,
                                           theirs[i].weight, theirs[i].is_own ? 0 : (int)i + 1 };
    }
    c->has_mixed |= count > 1;
    if (in && !has_server(o) && o->algorithm->exchange != PL_OUTER_GROUP)
        o->setup.peers = (int)count;
    mine.data = data + GATHER_DIGEST_BYTES;
    if (in) next = give_messages(c, gradient, in, count);
    else next = give_messages(c, gradient, &mine, (size_t)round->is_alone);
    for (size_t i = 0; i < count; i++) free(theirs[i].data);
    free(theirs);
    free(in);
    if (c->trainer.state->optimizer)
        pl_optimizer_written(c->trainer.state->optimizer, c->trainer.value);
    return next;
}

int gather_exchange(struct pl_collaborative *c, float *gradient, const struct pl_outer_message *own,
                    struct training_round *round)
{
    uint8_t *data = gather_message(c, own);
    int next;
    if (!data) return PL_ENOMEM;
    training_gather(c->training, own->weight, data, GATHER_DIGEST_BYTES + own->bytes, round);
    next = gather_end(c, gradient, data, own, round);
    free(data);
    return next;
}

/* The round has failed: there is no step, and the epoch stays. The algorithm sends the values that
 * it has taken back with its next message. */
static int fail_step(struct pl_collaborative *c, const struct training_round *round)
{
    struct pl_err why;
    pl_fail(&why, PL_OK, "no step %lld: %.300s; what we sent goes with the next message",
            (long long)c->epoch, round->why.text);
    collaborative_warn(c, why.text);
    c->outer.is_delivered |= round->is_delivered;
    memset(&c->now, 0, sizeof c->now);
    local_count_steps(c);
    training_enter(c->training, c->epoch);
    return PL_OK;
}

/* A peer without samples has no gradient. NaN makes the algorithm send a message of weight 0 and
 * keep its momentum and error feedback. */
int gather_gradient(struct pl_collaborative *c, float **gradient, struct pl_err *err)
{
    const struct pl_outer *o = c->outer.state;
    int rc = c->trainer.take_gradient(c->trainer.context, 0, gradient);
    if (!rc && !c->now.samples) rc = o->setup.be->fill(*gradient, NAN, o->n);
    return rc ? pl_fail(err, rc, "gradients: %s", pl_status_name(rc)) : PL_OK;
}

/* Our gradient, g = (sum over our samples) / n, becomes the algorithm's message. The messages of
 * all then change x; or they leave the mean in g (PL_OUTER_STEP), and the local optimizer steps. */
int gather_take_step(struct pl_collaborative *c, struct pl_err *err)
{
    const struct pl_collaborative_trainer *t = &c->trainer;
    struct pl_outer *o = c->outer.state;
    struct step_account account = c->now;
    struct training_round round = { .peers = 0 };
    struct pl_outer_message own;
    float *gradient;
    int next, rc = gather_gradient(c, &gradient, err);
    if (rc) return rc;
    account.began = pl_seconds();
    next = pl_outer_before_step(o, t->value, gradient,
                                c->o.schedule ? c->o.schedule(c->o.context, c->epoch) : c->o.lr);
    for (int sent = 0; next == PL_OUTER_SEND; sent++) {
        next = pl_outer_message(o, &own, t->value, gradient);
        if (next != PL_OUTER_RECEIVE) break;
        /* The second message of a step is the server's, and each peer is its own (has_server). */
        next = sent ? pl_outer_apply(o, t->value, gradient, &own, 1)
                    : gather_exchange(c, gradient, &own, &round);
        if (next >= 0 && round.status && !round.is_alone) break;
    }
    if (next < 0) return pl_fail(err, next, "step: %s", pl_status_name(next));
    if (round.status && !round.is_alone) {
        t->change(t->context, TRAINER_DROP, c->epoch);
        return fail_step(c, &round);
    }
    if (next == PL_OUTER_STEP) rc = t->step(t->context, c->epoch, 0, err);
    else t->change(t->context, TRAINER_DROP, c->epoch);
    if (rc == PL_EFORMAT && !collaborative_has_failed(c)) {
        collaborative_recover(c, err->text);
        return PL_OK;
    }
    if (rc) return rc;
    memset(&c->now, 0, sizeof c->now);
    c->outer.is_delivered = 0;
    o->counter[PL_OUTER_ROUNDS] = o->counter[PL_OUTER_STEPS] = (uint64_t)c->epoch + 1;
    return collaborative_stepped(c, &account, &round);
}
