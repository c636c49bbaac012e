/* averager_witness.c - other donors are asked whether a state that we were given is theirs, too,
 * and we answer so. A call between our own peers: hivemind's do not have it.
 *
 *   request   8 bytes, a seed
 *   answer    the epoch, 8 bytes; then the samples that the seed picks, float32; little-endian */
#include "averager_internal.h"
#include "ref/small.h"

#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

static size_t samples(const struct averager *a)
{
    /* The number is the same for all peers of a run: it follows from the shapes. */
    return state_samples_count(a->tensors.elements, a->o.tensors);
}

/* 64 KiB at most, whatever the model's size (state_claim.h). */
static size_t answer_bytes(const struct averager *a) { return 8 + 4 * samples(a); }

/* --- answering -------------------------------------------------------------------------------- */

/* Limits the answers per second, in total and for each peer. */
static int is_too_soon(struct averager *a, const struct peer_id *peer)
{
    double now = loop_now(a->loop);
    size_t all = 0, own = 0;
    /* A ring of the last answers: it is full for a second exactly if that many were given
     * within it. */
    for (size_t i = 0; i < STATE_ANSWERS_A_SECOND; i++)
        if (a->witnesses.given[i].peer.length && now - a->witnesses.given[i].at < 1) {
            all++;
            own += peer_id_equal(&a->witnesses.given[i].peer, peer);
        }
    /* Both limits: one peer can't take all answers, and many together can't take the CPU. */
    if (all == STATE_ANSWERS_A_SECOND || own >= STATE_ANSWERS_A_PEER) return 1;
    /* Refused requests are not entered: asking too often does not make the pause longer. */
    a->witnesses.given[a->witnesses.given_next].peer = *peer;
    a->witnesses.given[a->witnesses.given_next].at = now;
    a->witnesses.given_next = (a->witnesses.given_next + 1) % STATE_ANSWERS_A_SECOND;
    return 0;
}

static int has_parameters(const struct averager *a)
{
    /* Samples are of the averaged tensors, with which a state begins; a snapshot of others
     * has none. */
    const struct state_snapshot *s = a->shared.snapshot;
    if (!s || s->count < a->o.tensors) return 0;
    for (size_t t = 0; t < a->o.tensors; t++) {
        size_t n;
        if (s->tensors[t].type.dtype != PL_F32 || pl_wire_elements(&n, &s->tensors[t].type, NULL) ||
            n != a->tensors.elements[t])
            return 0;
    }
    return 1;
}

static void on_asked(void *context, struct rpc_call *call, const uint8_t *seed, size_t n)
{
    struct averager *a = context;
    const struct peer_id *caller = rpc_caller(call);
    struct bytes answer = { 0 };
    float *values = NULL;
    size_t at = 0;
    /* The seed is the caller's, so a donor can't know which values will be compared before
     * it gives its state. */
    if (!dht_node_admits(a->node, caller) || !a->shared.is_on || !has_parameters(a) ||
        n != STATE_SEED || is_too_soon(a, caller) ||
        !(values = pl_alloc(samples(a) + 1, sizeof *values))) {
        /* One refusal for all reasons: the newcomer asks another donor, whatever this one's
         * reason is. */
        rpc_reply_error(call, "ValueError('no samples of our state now')");
        return;
    }
    for (size_t t = 0; t < a->o.tensors; t++)
        at += state_samples_take(values + at, a->shared.snapshot->tensors[t].data,
                                 a->tensors.elements, a->o.tensors, t, seed);
    /* The priority is the epoch of the snapshot: states of other epochs differ honestly. */
    for (int i = 0; i < 8; i++) bytes_u8(&answer, (uint8_t)((uint64_t)a->shared.priority >> 8 * i));
    for (size_t i = 0; i < at; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        for (int k = 0; k < 4; k++) bytes_u8(&answer, (uint8_t)(bits >> 8 * k));
    }
    if (answer.failed) rpc_reply_error(call, "MemoryError()");
    else rpc_reply(call, bytes_at(&answer), bytes_length(&answer));
    bytes_clear(&answer);
    pl_free(values);
}

int averager_witness_open(struct averager *a, struct pl_err *err)
{
    if (rpc_serve_unary(a->host, a->names.rpc[AVERAGER_SAMPLES], on_asked, a))
        return pl_fail(err, PL_EUSE, "averaging: %s is already served",
                       a->names.rpc[AVERAGER_SAMPLES]);
    return PL_OK;
}

void averager_witness_close(struct averager *a)
{
    rpc_unserve(a->host, a->names.rpc[AVERAGER_SAMPLES]);
}

/* --- asking ----------------------------------------------------------------------------------- */

struct state_claim averager_claim(const struct averager *a, const struct state_load *l,
                                  const uint8_t seed[STATE_SEED])
{
    /* -1: no epoch could be read. Then only the values are compared (state_claim.c). */
    struct state_claim c = { .epoch = -1, .samples = malloc(4 * samples(a) + 1) };
    struct training_state t;
    size_t at = 0;
    for (size_t i = 0; c.samples && i < a->o.tensors; i++) {
        /* Decoded one tensor at a time: the state is compressed, and twice a model may not
         * fit into memory. */
        const struct tensor_message *m = &l->tensors[i];
        float *values = pl_alloc(a->tensors.elements[i], sizeof *values);
        if (values &&
            !pl_wire_decode(values, a->o.be, m->method, &m->type, m->buffer, m->bytes, NULL))
            at += state_samples_take(c.samples + at, values, a->tensors.elements, a->o.tensors, i,
                                     seed);
        pl_free(values);
    }
    /* A tensor that can't be decoded, or no memory: without all samples there is no claim to
     * compare. */
    if (at != samples(a)) {
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
static void witness_answered(struct averager *a)
{
    if (!--a->witnesses.left) a->witnesses.answered(a);
}

static void on_samples(void *context, const struct rpc_result *r)
{
    struct witness *w = context;
    struct averager *a = w->a;
    uint64_t epoch = 0;
    /* A donor that does not answer, or answers otherwise, is a witness for neither side. */
    w->request = NULL;
    if (!r->status && r->n == answer_bytes(a) && (w->claim.samples = malloc(r->n))) {
        for (int i = 0; i < 8; i++) epoch |= (uint64_t)r->data[i] << 8 * i;
        /* An impossibly large epoch is treated as no claim. */
        w->claim.epoch = epoch > (uint64_t)DONOR_PRIORITY_MAX ? -1 : (int64_t)epoch;
        for (size_t i = 0; i < samples(a); i++) {
            uint32_t bits = pl_le32(r->data + 8 + 4 * i);
            memcpy(&w->claim.samples[i], &bits, sizeof bits);
        }
    }
    witness_answered(a);
}

static void ask(struct witness *w)
{
    struct averager *a = w->a;
    w->request = rpc_call_unary(a->host, &w->peer, a->names.rpc[AVERAGER_SAMPLES],
                                a->witnesses.seed, STATE_SEED, STATE_WITNESS_LIMIT, on_samples, w);
    if (!w->request) witness_answered(a);
}

static void on_witness_admitted(void *context, int status)
{
    struct witness *w = context;
    w->proof = NULL;
    if (!status) ask(w);
    else witness_answered(w->a);
}

/* The first in the order of the donors that are neither the one that gave the state nor have
 * failed. Ends with `answered`, from the loop. */
void averager_ask_witnesses(struct averager *a, void (*answered)(struct averager *a))
{
    const struct peer_id *donor = &a->load.donors[a->load.at - 1].peer;
    averager_witnesses_clear(a);
    a->witnesses.answered = answered;
    /* Drawn after the state has come: a donor that gives a false one can't know who will be
     * asked, nor for which samples. */
    a->witnesses.asked = calloc(STATE_WITNESSES, sizeof *a->witnesses.asked);
    if (a->witnesses.asked && RAND_bytes(a->witnesses.seed, STATE_SEED) == 1)
        for (size_t i = 0; i < a->load.count && a->witnesses.count < STATE_WITNESSES; i++) {
            const struct peer_id *peer = &a->load.donors[i].peer;
            /* A donor can't confirm itself; one that failed lately is no good witness. */
            if (peer_id_equal(peer, donor) || averager_is_doubted(a, peer)) continue;
            a->witnesses.asked[a->witnesses.count++] = (struct witness){ .a = a, .peer = *peer };
        }
    /* One more than there are, so that answers which come at once can't end it in the loop. */
    a->witnesses.left = a->witnesses.count + 1;
    for (size_t i = 0; i < a->witnesses.count; i++) {
        struct witness *w = &a->witnesses.asked[i];
        if (!averager_must_ask(a, &w->peer)) ask(w);
        else if (!(w->proof = dht_node_admit(a->node, &w->peer, on_witness_admitted, w)))
            witness_answered(a);
    }
    witness_answered(a);
}

/* Calls and token requests may still be under way when a load ends. */
void averager_witnesses_clear(struct averager *a)
{
    for (size_t i = 0; i < a->witnesses.count; i++) {
        struct witness *w = &a->witnesses.asked[i];
        if (w->proof) dht_node_cancel(w->proof);
        if (w->request) rpc_cancel(w->request);
        free(w->claim.samples);
    }
    free(a->witnesses.asked);
    a->witnesses.asked = NULL;
    a->witnesses.count = a->witnesses.left = 0;
}
