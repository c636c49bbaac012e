/* verifier_verdict.c - the consequences of the verification's findings. [BTARD 3]
 *
 *   proof        the peer is banned, the round is void
 *   no proof     the round is void, and charged to the peers that may have caused it: to a silent
 *                peer; to both of a pair that contradict each other, as only these two know which
 *                of them is right
 *   too many     if more peers are at fault than can be Byzantine, it is the network's fault or our
 *                own: no charge
 *
 * Each function only marks; the round's owner bans and backs off when it is over. */
#include "verifier_internal.h"

#include <stdlib.h>
#include <string.h>

size_t verifier_faults(const struct verifier *r)
{
    /* f < n / 3, as Byzantine agreement needs; of three to six peers one. [BTARD 3.1] */
    return r->v.count > 6 ? (r->v.count - 1) / 3 : 1;
}

void verifier_give_up(struct verifier *r, int status, const char *why)
{
    if (r->over) return;
    r->over = 1;
    r->status = pl_fail(&r->err, status, "averaging: the round is void: %s", why);
}

void verifier_ban(struct verifier *r, size_t peer, const char *why)
{
    if (peer != r->v.self) r->banned[peer] = 1;
    verifier_give_up(r, PL_EIO, why);
}

void verifier_charge(struct verifier *r, size_t peer, const char *why)
{
    if (peer != r->v.self) r->charged[peer] = 1;
    verifier_give_up(r, PL_EIO, why);
}

/* Honest peers never deny one another. So a peer that denies, or is denied by, more peers than can
 * be Byzantine is Byzantine itself, and is charged alone; of any other pair it is unknown which one
 * lies. [BTARD, ELIMINATE(i, j)] */
void verifier_charge_pairs(struct verifier *r, uint8_t *edge, const char *why)
{
    size_t n = r->v.count, faults = verifier_faults(r);
    for (size_t i = 0; i < n; i++) {
        size_t degree = 0;
        /* An honest peer has denials only with Byzantine ones: with at most f of them. */
        for (size_t j = 0; j < n; j++) degree += edge[i * n + j] || edge[j * n + i];
        if (degree > faults) r->opinion[i] = 1; /* not in use yet: a mark */
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            if (!edge[i * n + j]) continue;
            if (r->opinion[i]) verifier_charge(r, i, why);
            if (r->opinion[j]) verifier_charge(r, j, why);
            if (r->opinion[i] || r->opinion[j]) continue;
            verifier_charge(r, i, why);
            verifier_charge(r, j, why);
        }
    memset(r->opinion, 0, n);
}

void verifier_charge_if_few(struct verifier *r, const uint8_t *faulty, const char *why)
{
    size_t count = 0;
    for (size_t i = 0; i < r->v.count; i++) count += faulty[i] != 0;
    /* More than f at once are not all Byzantine, so the network has failed, or we have: no
     * charge. */
    for (size_t i = 0; count <= verifier_faults(r) && i < r->v.count; i++)
        if (faulty[i]) verifier_charge(r, i, why);
    verifier_give_up(r, PL_EIO, why);
}

void verifier_charge_silent(struct verifier *r)
{
    static const char why[] = "a peer has fallen silent while the round was verified";
    uint8_t silent[VERIFIER_PEERS_MAX] = { 0 };
    int full = broadcast_is_full(&r->b, r->phase);
    size_t others = 0;
    for (size_t i = 0; i < r->v.count; i++) others += r->b.elsewhere[i];
    for (size_t i = 0; i < r->v.count; i++) {
        int has = verifier_message(r, r->phase, i) != NULL;
        /* A leader may have sent different groups to its followers: then many send of another
         * round. */
        if (i == r->v.self || (r->b.elsewhere[i] && others > verifier_faults(r))) continue;
        silent[i] = full ? !broadcast_agrees(&r->b, r->phase, i) : !has;
    }
    verifier_charge_if_few(r, silent, why);
}
