/* allreduce_verify.c - an all-reduce that is applied only if its verification finds nothing: which
 * data of the all-reduce the verifier reads, and when it runs. [TTT 2.1, security] [BTARD 3]
 *
 * On the wire it is hivemind's all-reduce with two differences, so the whole group has to use it.
 * An answer holds the aggregate itself, as float32, because all peers have to check the same
 * numbers; and its weight field holds CenteredClip's radius. Peers count equally, because weights
 * cannot be checked. The values of every peer are needed. */
#include "allreduce_verify.h"

#include <math.h>
#include <stdlib.h>

/* --- what the verifier sees ------------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

/* The k-th of our own parts. */
static size_t own_number(const struct allreduce *x, size_t part)
{
    /* Own parts are in ascending order, as they were dealt; the caller asks only for own
     * ones. */
    const size_t *at = bsearch(&part, x->reducing.own, x->reducing.own_count,
                               sizeof *x->reducing.own, by_number);
    return (size_t)(at - x->reducing.own);
}

static const float *aggregate(void *context, size_t part, double *tau)
{
    struct allreduce *x = context;
    const struct answer *a = &x->sending.answers[part];
    size_t k;
    if (x->parts[part].reducer != (int)x->self) {
        /* The answer's values and its radius are all that is known of another reducer's
         * part. */
        *tau = a->weight;
        return (const float *)(const void *)a->data; /* as malloc has aligned it */
    }
    k = own_number(x, part);
    /* The aggregate of our own part lies where an unverified round keeps its differences. */
    *tau = x->verify.own_tau[k];
    return x->reducing.own_delta + x->reducing.own_at[k];
}

/* A part as it is sent: the compression method, and the encoded values. */
static int add_part(struct bytes *out, enum pl_compression method, const uint8_t *buffer, size_t n)
{
    bytes_u8(out, (uint8_t)method);
    bytes_add(out, buffer, n);
    return out->failed ? PL_ENOMEM : 1;
}

/* Compression is deterministic: encoding again gives the bytes that were sent, so they need not be
 * kept. */
static int encode(struct bytes *out, const struct allreduce *x, const struct pl_part *part,
                  enum pl_compression method, const float *values)
{
    struct pl_wire_type type = { .dtype = PL_F32, .dims = 1, .size = { (int64_t)part->length } };
    uint8_t *buffer;
    size_t bytes;
    bytes_u8(out, (uint8_t)method);
    if (pl_wire_bytes(&bytes, method, &type, NULL) || !(buffer = bytes_reserve(out, bytes)) ||
        pl_wire_encode(buffer, x->o.be, method, &type, values, NULL))
        return PL_ENOMEM;
    out->end += bytes;
    return 1;
}

/* The verifier reads three things: the parts that we sent, the parts that we received to reduce,
 * and each part's aggregate with its radius. Every check of BTARD follows from these. */
static int sent(void *context, size_t number, struct bytes *out)
{
    struct allreduce *x = context;
    const struct pl_part *part = &x->parts[number];
    const float *own = x->o.tensor[part->tensor] + part->start;
    /* A peer without samples takes no part in any sum. */
    if (!(x->o.weight > 0)) return 0;
    /* Our values of our own part went into the aggregate uncompressed, and count as sent so. */
    return encode(out, x, part,
                  part->reducer == (int)x->self ? PL_COMPRESS_NONE : allreduce_method(x, part),
                  own);
}

static int received(void *context, size_t number, size_t peer, struct bytes *out)
{
    struct allreduce *x = context;
    size_t k = own_number(x, number);
    /* As it has arrived, byte for byte: its sender's signature is over a hash of these
     * bytes. */
    for (size_t i = 0; i < x->reducing.kept_count[k]; i++) {
        const struct part_message *m = &x->reducing.kept[k][i].part;
        /* A sender of weight 0 has sent nothing that counts. */
        if (x->reducing.kept[k][i].peer == peer && m->weight > 0)
            return add_part(out, m->method, m->buffer, m->bytes);
    }
    return 0;
}

/* From another peer's message of the verification: as untrusted as a part, so the same checks
 * apply. */
static const float *decode(void *context, size_t number, const uint8_t *data, size_t n,
                           float *decoded)
{
    struct allreduce *x = context;
    const struct pl_part *part = &x->parts[number];
    struct pl_wire_type type = { .dtype = PL_F32, .dims = 1, .size = { (int64_t)part->length } };
    struct part_message m = { .has_part = 1, .weight = 1, .elements = part->length };
    size_t elements;
    if (!n || data[0] >= PL_COMPRESSIONS) return NULL;
    m.method = (enum pl_compression)data[0];
    m.buffer = data + 1;
    m.bytes = n - 1;
    if (pl_wire_check(&elements, m.method, &type, m.buffer, m.bytes, NULL) ||
        !part_message_is_finite(&m) ||
        pl_wire_decode(decoded, x->o.be, m.method, &type, m.buffer, m.bytes, NULL))
        return NULL;
    return decoded;
}

/* A validator computes a target's gradient exactly; the reducer saw it compressed. To be
 * compared it goes the same way, Q(x). */
static const float *travel(void *context, size_t number, const float *values, float *decoded)
{
    struct allreduce *x = context;
    const struct pl_part *part = &x->parts[number];
    struct bytes out = { 0 };
    const float *there = NULL;
    if (encode(&out, x, part, allreduce_method(x, part), values) == 1)
        there = decode(x, number, bytes_at(&out), bytes_length(&out), decoded);
    bytes_clear(&out);
    return there;
}

static int recompute(void *context, size_t peer, const struct verifier_claim *claim,
                     float *const **tensor)
{
    struct allreduce *x = context;
    const struct allreduce_validation *v = &x->o.validation;
    /* Memory for a whole model: only if a lot has drawn this peer as a validator. */
    if (!x->verify.again && !(x->verify.again = calloc(x->o.tensors + 1, sizeof *x->verify.again)))
        return PL_ENOMEM;
    for (size_t t = 0; t < x->o.tensors; t++)
        if (!x->verify.again[t] &&
            !(x->verify.again[t] = pl_alloc(x->o.elements[t], sizeof(float))))
            return PL_ENOMEM;
    *tensor = x->verify.again;
    return v->recompute(v->context, &x->o.group->members[peer].peer, claim, x->verify.again);
}

/* --- life ------------------------------------------------------------------------------------- */

int allreduce_verify_open(struct allreduce *x, struct pl_err *err)
{
    const struct verifier_view view = { .group = x->o.group,
                                        .me = x->o.me,
                                        .limit = x->o.reducer_timeout,
                                        .count = x->count,
                                        .self = x->self,
                                        .parts = x->parts,
                                        .part_count = x->part_count,
                                        .claim = x->o.claim,
                                        /* All peers of a group have stated these options
                                         * alike (averager_verify.c), or the round would not
                                         * be verified. */
                                        .validators = x->o.validation.validators,
                                        .samples_max = x->o.validation.samples_max,
                                        .random = x->o.random,
                                        .context = x,
                                        .aggregate = aggregate,
                                        .sent = sent,
                                        .received = received,
                                        .decode = decode,
                                        .travel = travel,
                                        .recompute = x->o.validation.recompute ? recompute : NULL };
    if (!(x->verify.own_tau = calloc(x->reducing.own_count + 1, sizeof *x->verify.own_tau)))
        return pl_fail(err, PL_ENOMEM, "averaging: no memory");
    /* The aggregates of our own parts lie in own_delta, their radii here. */
    return verifier_open(&x->verify.verifier, &view, err);
}

void allreduce_verify_close(struct allreduce *x)
{
    for (size_t t = 0; x->verify.again && t < x->o.tensors; t++) pl_free(x->verify.again[t]);
    free(x->verify.again);
    free(x->verify.own_tau);
    verifier_close(x->verify.verifier);
}

/* --- its course ------------------------------------------------------------------------------- */

static void run_verify(struct allreduce_job *job)
{
    verifier_step(((struct allreduce_job_of *)job)->x->verify.verifier);
}

void allreduce_verify_go(struct allreduce *x, double now)
{
    struct allreduce_job_of *job;
    /* A step reads the all-reduce's memory on a helper thread. Nothing changes there until
     * it is back: all parts have been answered, and the result is not applied before the
     * verification holds. */
    if (x->verify.state == VERIFY_STEPPING) return;
    x->verify.state = VERIFY_WAITING;
    if (now < verifier_wake(x->verify.verifier)) return;
    if (!(job = allreduce_job_new(x, JOB_VERIFY, run_verify))) {
        allreduce_give_up(x, PL_ENOMEM, "no memory");
        return;
    }
    x->verify.state = VERIFY_STEPPING;
    /* Packets that have come since the last step go with this one; later ones wait in the
     * inbox. */
    verifier_take(x->verify.verifier, now);
    allreduce_job_start(x, job);
}

/* While a step runs here, no groupmate counts as silent. Nor does one count so while others may be
 * computing a gradient (verifier_is_slow). */
double allreduce_verify_wake(const struct allreduce *x)
{
    return x->verify.state == VERIFY_WAITING ? verifier_wake(x->verify.verifier) : INFINITY;
}

void allreduce_verify_expire(struct allreduce *x, double now)
{
    if (x->verify.state == VERIFY_WAITING) verifier_expire(x->verify.verifier, now);
}

void allreduce_verify_done(struct allreduce *x, double now)
{
    struct verifier *r = x->verify.verifier;
    x->verify.state = VERIFY_WAITING;
    verifier_stepped(r, now);
    /* Broadcast here is n - 1 calls: libp2p streams are between two peers. */
    for (struct packet *l = r->b.out; l; l = l->next)
        for (size_t p = 0; p < x->count; p++)
            if (p != x->self && (l->to == p || l->to == SIZE_MAX))
                x->callbacks->send_packet(x->context, p, bytes_at(&l->data),
                                          bytes_length(&l->data));
    broadcast_sent(&r->b);
    if (x->phase == ALLREDUCE_CANCELLED) return;
    /* Holds: `go` applies the round next. Void: nothing is applied, and the verifier's
     * sentence says why; bans and charges are read by allreduce_notes.c. */
    if (r->over && !r->status) x->verify.state = VERIFY_HOLDS;
    if (!r->over || !r->status) return;
    allreduce_give_up(x, r->status, "");
    x->err = r->err;
}

const uint8_t *allreduce_round(const struct allreduce *x)
{
    return x->verify.verifier ? x->verify.verifier->b.o.round : NULL;
}
