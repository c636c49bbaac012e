/* state_witness.c - samples of states: ours for newcomers, and other donors' for us.
 *
 *   newcomer   has a donor's whole state; draws a seed, and asks other donors for samples by it
 *   donor      answers its epoch, and its values at the places that follow from the seed
 *   newcomer   takes its own state's values at these places; state_claim.c compares
 *
 * The seed is drawn after the download, so no donor knows the places beforehand. */
#include "state_witness.h"
#include "ref/byte_order.h"
#include "callers.h"

#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

static size_t samples(const struct state_peer *p)
{
    /* The number is the same for all peers of a run: it follows from the shapes. */
    return state_samples_count(p->elements, p->tensors);
}

/* 64 KiB at most, whatever the model's size (state_claim.h). */
static size_t answer_bytes(const struct state_peer *p) { return 8 + 4 * samples(p); }

int state_answer_write(struct bytes *out, const struct state_peer *p,
                       const struct state_tensor *tensors, uint64_t epoch,
                       const uint8_t seed[STATE_SEED])
{
    float *values = pl_alloc(samples(p) + 1, sizeof *values);
    size_t at = 0;
    if (!values) return PL_ENOMEM;
    for (size_t t = 0; t < p->tensors; t++)
        at += state_samples_take(values + at, tensors[t].data, p->elements, p->tensors, t, seed);
    pl_little_endian(&epoch, sizeof epoch, 1);
    pl_little_endian(values, sizeof *values, at);
    bytes_add(out, &epoch, sizeof epoch);
    bytes_add(out, values, at * sizeof *values);
    pl_free(values);
    return out->failed ? PL_ENOMEM : PL_OK;
}

struct state_claim state_claim_of(const struct state_peer *p, const struct state_load *l,
                                  const uint8_t seed[STATE_SEED])
{
    /* -1: no epoch could be read. Then only the values are compared (state_claim.c). */
    struct state_claim c = { .epoch = -1, .samples = malloc(4 * samples(p) + 1) };
    struct training_state t;
    size_t at = 0;
    for (size_t i = 0; c.samples && i < p->tensors; i++) {
        /* Decoded one tensor at a time: the state is compressed, and twice a model may not
         * fit into memory. */
        const struct tensor_message *m = &l->tensors[i];
        float *values = pl_alloc(p->elements[i], sizeof *values);
        if (values &&
            !pl_wire_decode(values, p->be, m->method, &m->type, m->buffer, m->bytes, NULL))
            at += state_samples_take(c.samples + at, values, p->elements, p->tensors, i, seed);
        pl_free(values);
    }
    /* A tensor that can't be decoded, or no memory: without all samples there is no claim to
     * compare. */
    if (at != samples(p)) {
        free(c.samples);
        c.samples = NULL;
    }
    /* The epoch is part of the claim: the states of donors one epoch apart differ slightly, and
     * both are honest. */
    if (!training_state_read(&t, l->metadata, l->metadata_n, NULL)) {
        c.epoch = t.epoch;
        training_state_clear(&t);
    }
    return c;
}

/* The verdict needs all answers, or their time limit: judging early would favour the
 * quickest donors, and these can be the attacker's. */
static void witness_answered(struct state_witnesses *all)
{
    if (!--all->left) all->answered(all->context);
}

static void on_samples(void *context, const struct rpc_result *r)
{
    struct witness *w = context;
    const struct state_peer *p = w->all->peer;
    uint64_t epoch = 0;
    /* A donor that does not answer, or answers otherwise, is a witness for neither side. */
    w->request = NULL;
    w->is_silent = r->status == PL_EAGAIN;
    if (!r->status && r->n == answer_bytes(p) && (w->claim.samples = malloc(r->n))) {
        pl_copy_little(&epoch, r->data, sizeof epoch, 1);
        /* An impossibly large epoch is treated as no claim. */
        w->claim.epoch = epoch > (uint64_t)DONOR_PRIORITY_MAX ? -1 : (int64_t)epoch;
        pl_copy_little(w->claim.samples, r->data + 8, sizeof *w->claim.samples, samples(p));
    }
    witness_answered(w->all);
}

/* Only the seed travels: the places follow from it and the shapes, which all peers have. */
static void ask(struct witness *w)
{
    const struct state_peer *p = w->all->peer;
    w->request = rpc_call_unary(p->host, &w->peer, p->samples, w->all->seed, STATE_SEED,
                                STATE_WITNESS_LIMIT, on_samples, w);
    if (!w->request) witness_answered(w->all);
}

static void on_witness_admitted(void *context, int status)
{
    struct witness *w = context;
    w->proof = NULL;
    if (!status) ask(w);
    else witness_answered(w->all);
}

void witnesses_ask(struct state_witnesses *all, const struct donor *donors, size_t count,
                   const struct peer_id *giver, const struct dht_blacklist *failed,
                   void (*answered)(void *context), void *context)
{
    const struct state_peer *p = all->peer;
    const double now = loop_now(p->loop);
    witnesses_clear(all);
    all->answered = answered;
    all->context = context;
    /* Drawn after the state has arrived: a donor of a false state cannot know which peers will be
     * asked, nor for which samples. */
    all->asked = calloc(STATE_WITNESSES, sizeof *all->asked);
    if (all->asked && RAND_bytes(all->seed, STATE_SEED) == 1)
        for (size_t i = 0; i < count && all->count < STATE_WITNESSES; i++) {
            const struct peer_id *peer = &donors[i].peer;
            /* A donor can't confirm itself, and one that failed lately is not asked. */
            if (peer_id_equal(peer, giver) || dht_blacklist_has(failed, peer, now)) continue;
            all->asked[all->count++] = (struct witness){ .all = all, .peer = *peer };
        }
    /* One more than there are, so that answers which come at once can't end it in the loop. */
    all->left = all->count + 1;
    for (size_t i = 0; i < all->count; i++) {
        struct witness *w = &all->asked[i];
        if (!caller_needs_token(p->node, &w->peer, p->client_mode)) ask(w);
        else if (!(w->proof = dht_node_admit(p->node, &w->peer, on_witness_admitted, w)))
            witness_answered(all);
    }
    witness_answered(all);
}

/* Calls and token requests may still be under way when a load ends. */
void witnesses_clear(struct state_witnesses *all)
{
    for (size_t i = 0; i < all->count; i++) {
        struct witness *w = &all->asked[i];
        if (w->proof) dht_node_cancel(w->proof);
        if (w->request) rpc_cancel(w->request);
        free(w->claim.samples);
    }
    free(all->asked);
    all->asked = NULL;
    all->count = all->left = 0;
}
