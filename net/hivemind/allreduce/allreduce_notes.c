/* allreduce_notes.c - what a round reports about its groupmates: a sentence for the user at most
 * once of each kind, and how each has behaved, which decides about back-off (reliability.h).
 *
 * A groupmate's outcome follows from both of its roles:
 *
 *   either     LEFT when it was not in the group any more as the round began
 *   sender     WITHHELD when some of its parts did not arrive here, or were unusable
 *   reducer    DELIVERED when it answered all of our parts; REFUSED when it declined;
 *              WITHHELD when it fell silent - unless we have lost a sender ourselves, since a
 *              reducer waits for the slowest sender before it answers anybody */
#include "allreduce_notes.h"

#include <math.h>

/* A reducer answers INTERNAL_ERROR to a part that it did not expect, or that comes too late. */
void allreduce_note_refusal(struct allreduce *x, size_t peer)
{
    char name[PEER_ID_TEXT_MAX];
    /* One sentence of a kind is enough: the same reason holds for all parts that follow. */
    if (x->notes.refusal.text[0]) return;
    peer_id_text(name, &x->o.group->members[peer].peer);
    pl_fail(
        &x->notes.refusal, PL_EIO,
        "%.60s refuses our further parts: we were too slow for it, or its %s--part-bytes (ours: "
        "%zu) or --compression differs",
        name, x->o.phase ? "rank of PowerSGD, " : "", x->o.part_bytes);
}

/* Parts of a tensor are as long as --part-bytes and its compression make them, so a part of another
 * length shows which of the two differs. [spec hivemind-protocol 5] */
void allreduce_note_mismatch(struct allreduce *x, size_t peer, const struct pl_part *part,
                             const struct part_message *m)
{
    const struct group_member *who = &x->o.group->members[peer];
    enum pl_compression ours = allreduce_method(x, part);
    /* If the part has the length that this peer's own compression gives, --part-bytes agree and the
     * compression differs. Otherwise --part-bytes differ. */
    size_t whole = pl_part_values(m->method, x->o.part_bytes);
    size_t rest = x->o.elements[part->tensor] - part->start;
    size_t per_value = x->o.part_bytes / whole ? x->o.part_bytes / whole : 1;
    char name[PEER_ID_TEXT_MAX];
    if (x->notes.mismatch.text[0]) return;
    peer_id_text(name, &who->peer);
    if (m->method != ours && m->elements == (whole < rest ? whole : rest))
        pl_fail(&x->notes.mismatch, PL_EPROTO,
                "%.60s sends parts of %zu values (%s), we send parts of %zu "
                "(%s): --compression differs; your side, if the others agree with that peer, "
                "otherwise its side",
                name, m->elements, pl_compression_name(m->method), part->length,
                pl_compression_name(ours));
    else if (x->o.phase)
        pl_fail(&x->notes.mismatch, PL_EPROTO,
                "%.60s sends a part of %zu values where ours has %zu: its rank of PowerSGD, or its "
                "--part-bytes, is not ours; your side, if the others agree with that peer, "
                "otherwise its side",
                name, m->elements, part->length);
    else
        pl_fail(
            &x->notes.mismatch, PL_EPROTO,
            "%.60s sends a part of %zu values (%zu bytes) where ours has %zu (at most %zu bytes): "
            "our --part-bytes %zu differs from its own; your side, if the others agree with that "
            "peer, otherwise its side",
            name, m->elements, m->elements * per_value, part->length, part->length * per_value,
            x->o.part_bytes);
}

/* Every sender is answered in the compression that it uses. */
void allreduce_note_differs(struct allreduce *x, size_t peer, const struct pl_part *part,
                            const struct part_message *m)
{
    enum pl_compression ours = allreduce_method(x, part);
    char name[PEER_ID_TEXT_MAX];
    if (x->notes.differs.text[0] || m->method == ours) return;
    peer_id_text(name, &x->o.group->members[peer].peer);
    pl_fail(&x->notes.differs, PL_OK,
            "%.60s sends %s where we send %s; both are understood, nothing has "
            "to be done (--compression)",
            name, pl_compression_name(m->method), pl_compression_name(ours));
}

/* Weights are numbers of samples, and no peer can check a groupmate's. One absurd weight would make
 * its values the mean, so the user's limit, or the wire format's, bounds each. */
static double weight_max(const struct allreduce *x)
{
    return x->o.weight_max > 0 ? fmin(x->o.weight_max, PART_WEIGHT_MAX) : PART_WEIGHT_MAX;
}

int allreduce_is_weight(const struct allreduce *x, double weight) /* not of a NaN */
{
    return weight >= 0 && weight <= weight_max(x);
}

void allreduce_note_left_out(struct allreduce *x, const struct contribution *c)
{
    char name[PEER_ID_TEXT_MAX];
    if (x->notes.left_out.text[0]) return;
    peer_id_text(name, &x->o.group->members[c->peer].peer);
    if (!allreduce_is_weight(x, c->part.weight))
        pl_fail(&x->notes.left_out, PL_EPROTO,
                "%.60s is left out: its weight is %g, expected 0 to %g", name, c->part.weight,
                weight_max(x));
    else
        pl_fail(&x->notes.left_out, PL_EPROTO,
                "%.60s is left out: its values are not finite, or beyond %g", name,
                (double)PART_VALUE_MAX);
}

const char *allreduce_left_out(const struct allreduce *x)
{
    return x->notes.left_out.text[0] ? x->notes.left_out.text : NULL;
}

/* Harmless differences are reported only if nothing worse is: they would hide the reason. */
const char *allreduce_differs(const struct allreduce *x)
{
    return x->notes.differs.text[0] && !x->notes.mismatch.text[0] && !x->notes.refusal.text[0]
               ? x->notes.differs.text
               : NULL;
}

const char *allreduce_proof(const struct allreduce *x, size_t peer)
{
    if (x->verify.verifier && x->verify.verifier->banned[peer]) /* the round may still succeed */
        return x->verify.verifier->err.text[0] ? x->verify.verifier->err.text
                                               : "it has equivocated";
    /* Unlike a missing message, these can't come from a bad link: streams are authenticated,
     * and bytes arrive as they were sent. */
    if (x->sending.peer[peer].fault == FAULT_FALSE)
        return "it answers with values that no reducer computes";
    return x->receiving.peer[peer].fault == IN_FAULT_FALSE ? "it sends invalid parts" : NULL;
}

int allreduce_is_charged(const struct allreduce *x, size_t peer)
{
    return x->verify.verifier && x->verify.verifier->charged[peer];
}

/* As a sender to us. */
static enum allreduce_outcome sender_outcome(const struct allreduce *x, const struct in_peer *in)
{
    if (in->fault != IN_FAULT_NONE) return ALLREDUCE_WITHHELD;
    /* A peer that reduces nothing expects no parts, so it can tell nothing about senders. */
    if (!x->reducing.own_count) return ALLREDUCE_UNKNOWN;
    return in->next == x->reducing.own_count ? ALLREDUCE_DELIVERED : ALLREDUCE_UNKNOWN;
}

enum allreduce_outcome allreduce_outcome(const struct allreduce *x, size_t peer, double *latest)
{
    const struct out_peer *out = &x->sending.peer[peer];
    enum allreduce_outcome sender = sender_outcome(x, &x->receiving.peer[peer]);
    *latest = x->receiving.peer[peer].latest;
    if (peer == x->self || x->cause == CAUSE_OURS) return ALLREDUCE_UNKNOWN;
    if (out->fault == FAULT_LEFT) return ALLREDUCE_LEFT;
    if (sender == ALLREDUCE_WITHHELD || out->fault == FAULT_FALSE) return ALLREDUCE_WITHHELD;
    /* A reducer with all answers has delivered. One that reduces nothing is judged as a
     * sender alone. */
    if (out->answered == out->parts) return out->parts ? ALLREDUCE_DELIVERED : sender;
    if (x->report.senders_lost) return ALLREDUCE_UNKNOWN;
    if (out->fault == FAULT_REFUSED) return ALLREDUCE_REFUSED;
    return out->state == OUT_LOST || x->cause == CAUSE_TIME ? ALLREDUCE_WITHHELD
                                                            : ALLREDUCE_UNKNOWN;
}
