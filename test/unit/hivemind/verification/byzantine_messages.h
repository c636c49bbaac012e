/* byzantine_messages.h - false messages that Byzantine peers send in a round's verification, one
 * function for each kind. Included by one file of each test program. */
#ifndef PL_TEST_BYZANTINE_MESSAGES_H
#define PL_TEST_BYZANTINE_MESSAGES_H

#include "test/unit/hivemind/allreduce/allreduce_world.h"

static size_t byzantine[2], byzantine_count; /* the Byzantine peers */
static int stage_of_lie;                     /* of the one who tells it now */
static struct world *the_world;
static lie_fn *reported_by[2];
static int stages[2];

static int is_byzantine(size_t peer)
{
    return peer == byzantine[0] || (byzantine_count == 2 && peer == byzantine[1]);
}

static size_t after(size_t peer) { return (peer + 1) % PEERS; }

/* The first honest one behind the first who lies. */
static size_t victim(void)
{
    size_t at = after(byzantine[0]);
    while (is_byzantine(at)) at = after(at);
    return at;
}

/* A part that a peer reduces, or does not. */
static size_t part_of(const struct verifier *r, size_t peer, int reduces)
{
    size_t p = 0;
    while ((r->v.parts[p].reducer == (int)peer) != reduces) p++;
    return p;
}

static void accuse(const struct verifier *r, uint8_t *body, size_t of, int reduces)
{
    size_t by = r->v.self, part = part_of(r, by, reduces);
    uint8_t accusation[ACCUSATION_BYTES] = { ACCUSES_REPORT, 0, 0, (uint8_t)(part >> 8),
                                             (uint8_t)part };
    if (of != by) memcpy(body + of * ACCUSATION_BYTES, accusation, sizeof accusation);
}

/* --- lies ------------------------------------------------------------------------------------- */

static enum fate accuse_all(const struct verifier *r, size_t to, int stage, uint8_t *body,
                            size_t *n)
{
    if (stage != VERIFIER_ACCUSE) return SAME;
    for (size_t i = 0; i < PEERS; i++) accuse(r, body, i, 1);
    return CHANGED;
}
static enum fate accuse_one(const struct verifier *r, size_t to, int stage, uint8_t *body,
                            size_t *n)
{
    if (stage != VERIFIER_ACCUSE) return SAME;
    accuse(r, body, victim(), 1);
    return CHANGED;
}
static enum fate accuse_of_others(const struct verifier *r, size_t to, int stage, uint8_t *body,
                                  size_t *n)
{
    if (stage != VERIFIER_ACCUSE) return SAME;
    accuse(r, body, victim(), 0);
    return CHANGED;
}
/* The hashes of the parts that it has sent: to all; to one; of its own aggregates. */
static enum fate commit_wrongly(const struct verifier *r, size_t to, int stage, uint8_t *body,
                                size_t *n)
{
    if (stage != VERIFIER_COMMIT) return SAME;
    for (size_t i = 0; i < PEERS; i++) body[COMMIT_DIGESTS(PEERS) + i * PL_HASH_BYTES] = 77;
    return CHANGED;
}
static enum fate commit_one_wrongly(const struct verifier *r, size_t to, int stage, uint8_t *body,
                                    size_t *n)
{
    if (stage != VERIFIER_COMMIT) return SAME;
    memset(body + COMMIT_DIGESTS(PEERS) + victim() * PL_HASH_BYTES, 7, PL_HASH_BYTES);
    return CHANGED;
}
static enum fate commit_to_other_aggregates(const struct verifier *r, size_t to, int stage,
                                            uint8_t *body, size_t *n)
{
    if (stage != VERIFIER_COMMIT) return SAME;
    memset(body, 7, PL_HASH_BYTES);
    return CHANGED;
}
/* One gets another message than the others. */
static enum fate equivocate(const struct verifier *r, size_t to, int stage, uint8_t *body,
                            size_t *n)
{
    if (stage != stage_of_lie || to != victim()) return SAME;
    body[stage == VERIFIER_COMMIT ? COMMIT_LOT : 0] ^= 1;
    return SPLIT;
}
static enum fate equivocate_by_halves(const struct verifier *r, size_t to, int stage, uint8_t *body,
                                      size_t *n)
{
    if (stage != stage_of_lie || to % 2) return SAME;
    body[stage == VERIFIER_COMMIT ? COMMIT_LOT : 0] ^= 1;
    return SPLIT;
}
static enum fate reveal_another(const struct verifier *r, size_t to, int stage, uint8_t *body,
                                size_t *n)
{
    if (stage != VERIFIER_REVEAL) return SAME;
    body[0] = 1, body[1] = 2, body[2] = 3;
    return CHANGED;
}
static enum fate misreport(const struct verifier *r, size_t to, int stage, uint8_t *body, size_t *n)
{
    struct part_report t;
    size_t part = part_of(r, victim(), 1);
    if (stage != VERIFIER_REPORT) return SAME;
    memcpy(&t, body + part * sizeof t, sizeof t);
    t.s += 0.01 * t.norm;
    memcpy(body + part * sizeof t, &t, sizeof t);
    return CHANGED;
}
static enum fate report_no_numbers(const struct verifier *r, size_t to, int stage, uint8_t *body,
                                   size_t *n)
{
    struct part_report t = { NAN, NAN, INFINITY };
    if (stage != VERIFIER_REPORT) return SAME;
    for (size_t at = 0; at < *n; at += sizeof t) memcpy(body + at, &t, sizeof t);
    return CHANGED;
}
static enum fate open_other_values(const struct verifier *r, size_t to, int stage, uint8_t *body,
                                   size_t *n)
{
    if (stage != VERIFIER_OPEN) return SAME;
    body[*n - 1] = 1, body[*n - 2] = 1, body[*n - 3] = 1;
    return CHANGED;
}
static enum fate open_nothing(const struct verifier *r, size_t to, int stage, uint8_t *body,
                              size_t *n)
{
    if (stage != VERIFIER_OPEN) return SAME;
    *n = PEERS;
    return CHANGED;
}
static enum fate open_other_hashes(const struct verifier *r, size_t to, int stage, uint8_t *body,
                                   size_t *n)
{
    if (stage != VERIFIER_OPEN) return SAME;
    memset(body + PEERS, 5, PL_HASH_BYTES);
    return CHANGED;
}
static enum fate agree_to_another(const struct verifier *r, size_t to, int stage, uint8_t *body,
                                  size_t *n)
{
    if (stage != VERIFIER_AGREE) return SAME;
    memset(body, 9, *n);
    return CHANGED;
}
static enum fate claim_too_much(const struct verifier *r, size_t to, int stage, uint8_t *body,
                                size_t *n)
{
    if (stage != VERIFIER_COMMIT) return SAME;
    memset(body + COMMIT_CLAIM + 8, 0x7f, 8);
    return CHANGED;
}
static enum fate be_of_another_epoch(const struct verifier *r, size_t to, int stage, uint8_t *body,
                                     size_t *n)
{
    if (stage != VERIFIER_COMMIT) return SAME;
    memset(body + COMMIT_CLAIM, 0x7f, 8);
    return CHANGED;
}
/* From its message of a stage on, towards all, or only one. Its lists go with it. */
static enum fate fall_silent(const struct verifier *r, size_t to, int stage, uint8_t *body,
                             size_t *n)
{
    return stage % VERIFIER_PHASES >= stage_of_lie ? DROPPED : SAME;
}
static enum fate be_silent_to_one(const struct verifier *r, size_t to, int stage, uint8_t *body,
                                  size_t *n)
{
    return stage % VERIFIER_PHASES == stage_of_lie && to == victim() ? DROPPED : SAME;
}
static enum fate be_silent_to_most(const struct verifier *r, size_t to, int stage, uint8_t *body,
                                   size_t *n)
{
    return stage % VERIFIER_PHASES == stage_of_lie && to != victim() ? DROPPED : SAME;
}
/* Its list, once it has all messages, says otherwise. */
static enum fate list_another(const struct verifier *r, size_t to, int stage, uint8_t *body,
                              size_t *n)
{
    if (stage != VERIFIER_PHASES + stage_of_lie) return SAME;
    memset(body + victim() * PL_HASH_BYTES, 3, PL_HASH_BYTES);
    return SPLIT;
}
static enum fate deny_all(const struct verifier *r, size_t to, int stage, uint8_t *body, size_t *n)
{
    if (stage != VERIFIER_COMMIT) return SAME;
    for (size_t i = 0; i < PEERS; i++) body[COMMIT_DENIED + i] = i != r->v.self;
    return CHANGED;
}
static enum fate deny_one(const struct verifier *r, size_t to, int stage, uint8_t *body, size_t *n)
{
    if (stage != VERIFIER_COMMIT) return SAME;
    body[COMMIT_DENIED + victim()] = 1;
    return CHANGED;
}
/* As many as can be Byzantine in a group of seven. */
static enum fate deny_two(const struct verifier *r, size_t to, int stage, uint8_t *body, size_t *n)
{
    if (stage != VERIFIER_COMMIT) return SAME;
    body[COMMIT_DENIED + victim()] = body[COMMIT_DENIED + after(victim())] = 1;
    return CHANGED;
}
/* Signs to all that it has sent them something else. */
static enum fate sign_another(const struct verifier *r, size_t to, int stage, uint8_t *body,
                              size_t *n)
{
    if (stage == VERIFIER_SENT) body[0] = 11, body[1] = 12;
    else if (stage == VERIFIER_COMMIT)
        for (size_t i = 0; i < PEERS; i++) {
            body[COMMIT_DIGESTS(PEERS) + i * PL_HASH_BYTES] = 11;
            body[COMMIT_DIGESTS(PEERS) + i * PL_HASH_BYTES + 1] = 12;
        }
    else return SAME;
    return CHANGED;
}

/* So long that a small share of its length is more than all others' radius: a false sum that its
 * reducer would have to answer for. */
#define LONG 1e6f
static enum fate misreport_a_share(const struct verifier *r, size_t to, int stage, uint8_t *body,
                                   size_t *n)
{
    struct part_report t;
    size_t part = part_of(r, victim(), 1);
    if (stage != VERIFIER_REPORT) return SAME;
    memcpy(&t, body + part * sizeof t, sizeof t);
    t.s += 5e-8 * t.norm;
    memcpy(body + part * sizeof t, &t, sizeof t);
    return CHANGED;
}

#endif
