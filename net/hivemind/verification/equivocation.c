/* equivocation.c - a proof holds by two signatures alone. [BTARD 3.1]
 *
 * An honest peer signs one message for each stage and receiver, so two different ones convict their
 * author. The signature covers the round's hash, the stage, the author, the receiver and the body's
 * hash: a message of another round, or for another receiver, proves nothing here. */
#include "equivocation.h"

#include <stdlib.h>
#include <string.h>

int equivocation_scope_init(struct equivocation_scope *s, const struct equivocation_rules *rules,
                            const struct group *g, const uint8_t round[PL_HASH_BYTES])
{
    memset(s, 0, sizeof *s);
    s->rules = rules;
    memcpy(s->round, round, sizeof s->round);
    if (!(s->peers = calloc(g->count + 1, sizeof *s->peers))) return PL_ENOMEM;
    s->count = g->count;
    /* A copy: the group is freed with its round, and a proof may come later. */
    for (size_t i = 0; i < g->count; i++) s->peers[i] = g->members[i].peer;
    return PL_OK;
}

void equivocation_scope_clear(struct equivocation_scope *s)
{
    free(s->peers);
    memset(s, 0, sizeof *s);
}

/* Messages of the last stage are all equal. One that differs is ignored instead of punished: a peer
 * that has ended the round no longer waits for proofs. */
static int heads_contradict(const struct equivocation_scope *s, const struct signed_message *x,
                            const struct signed_message *y)
{
    /* Same author, same stage, same receiver, two hashes. Bodies are not needed: an honest peer
     * never signs a second one. */
    return x->from == y->from && x->to == y->to && x->stage == y->stage &&
           x->stage != s->rules->stages - 1 && x->stage < 2 * s->rules->stages &&
           memcmp(x->hash, y->hash, PL_HASH_BYTES) != 0;
}

/* A head is enough for kind 1. Kind 2 is about the contents of the bodies, so they have to be the
 * signed ones. */
static int has_body(const struct signed_message *m)
{
    uint8_t hash[PL_HASH_BYTES];
    signed_hash(hash, m->body, m->n);
    return !memcmp(hash, m->hash, sizeof hash);
}

/* Kind 2: the pair's message comes first. */
static int bodies_contradict(const struct equivocation_scope *s, const struct signed_message *pair,
                             const struct signed_message *common)
{
    return pair->from == common->from && pair->stage < s->rules->pairs && pair->to < s->count &&
           common->stage >= s->rules->pairs && common->to == SIGNED_TO_ALL && has_body(pair) &&
           has_body(common) && s->rules->contradicts(pair, common, s->count);
}

int equivocation_check(size_t *peer, const struct equivocation_scope *s, const uint8_t *proof,
                       size_t n)
{
    struct cursor c = { proof, n };
    struct signed_message x, y;
    uint32_t length;
    const uint8_t *first;
    /* Form first, signatures last, since those are expensive. */
    if (get_be32(&c, &length) || get_bytes(&c, &first, length) ||
        signed_message_read(&x, first, length) || signed_message_read(&y, c.at, c.left) ||
        x.from >= s->count || !(heads_contradict(s, &x, &y) || bodies_contradict(s, &x, &y)))
        return PL_EPROTO;
    /* Both by the same key, over this round's hash. */
    if (signed_message_check(&x, s->round, &s->peers[x.from]) ||
        signed_message_check(&y, s->round, &s->peers[x.from]))
        return PL_EPROTO;
    *peer = x.from;
    return PL_OK;
}

int equivocation_write(struct bytes *out, const uint8_t *x, size_t x_n, const uint8_t *y,
                       size_t y_n)
{
    /* The second message needs no length: it ends with the frame. */
    bytes_be32(out, (uint32_t)x_n);
    bytes_add(out, x, x_n);
    bytes_add(out, y, y_n);
    return out->failed ? PL_ENOMEM : PL_OK;
}
