/* equivocation_log.c - the data that outlive a verified round: its peers and its hash.
 *
 * 1. a round begins: its hash and its peers are logged, the oldest round is forgotten
 * 2. a packet arrives: each proof in it is checked against the round that it names
 * 3. a proof holds: the accused peer is convicted, once, and the proof is passed on
 *
 * The log costs two signature checks for each peer convicted, and two for each peer that sends an
 * invalid proof. */
#include "equivocation_log.h"
#include "broadcast.h"

#include <stdlib.h>
#include <string.h>

static void forget(struct equivocation_log *l, size_t at)
{
    struct logged_round *r = &l->rounds[at];
    /* All that a round leaves behind: no messages, no parts. */
    equivocation_scope_clear(&r->scope);
    free(r->convicted);
    free(r->ignored);
    memmove(r, r + 1, (--l->count - at) * sizeof *r);
}

int equivocation_log_add(struct equivocation_log *l, double now,
                         const struct equivocation_rules *rules, const struct group *g,
                         const uint8_t round[PL_HASH_BYTES])
{
    struct logged_round *r;
    /* Eight rounds of up to 20 KiB: a bound in number and in time (EQUIVOCATION_TIME). */
    if (l->count == EQUIVOCATION_ROUNDS_MAX) forget(l, 0);
    r = &l->rounds[l->count++];
    memset(r, 0, sizeof *r);
    r->until = now + EQUIVOCATION_TIME;
    r->convicted = calloc(g->count + 1, 1);
    r->ignored = calloc(g->count + 1, 1);
    if (!r->convicted || !r->ignored || equivocation_scope_init(&r->scope, rules, g, round)) {
        forget(l, l->count - 1);
        return PL_ENOMEM;
    }
    return PL_OK;
}

static size_t place_of(const struct logged_round *r, const struct peer_id *peer)
{
    size_t i = 0;
    /* The count means: it was not in that round. */
    while (i < r->scope.count && !peer_id_equal(&r->scope.peers[i], peer)) i++;
    return i;
}

/* A packet with this proof alone, to be passed on. */
static void pass_on(const struct logged_round *r, size_t peer, const uint8_t *proof, size_t n,
                    equivocation_convicted *convicted, void *context)
{
    struct bytes packet = { 0 };
    /* The form of broadcast.h's packets, so that peers which are still in the round read it
     * too. */
    bytes_be32(&packet, (uint32_t)(FRAME_START + n));
    bytes_u8(&packet, FRAME_PROOF);
    bytes_add(&packet, r->scope.round, PL_HASH_BYTES);
    bytes_add(&packet, proof, n);
    /* Even without memory the peer is convicted here; others have to get the proof elsewhere. */
    if (packet.failed) convicted(context, r, peer, NULL, 0);
    else convicted(context, r, peer, bytes_at(&packet), bytes_length(&packet));
    bytes_clear(&packet);
}

static void receive_proof(struct logged_round *r, size_t sender, const uint8_t *proof, size_t n,
                          equivocation_convicted *convicted, void *context)
{
    size_t author;
    struct cursor c = { proof, n };
    struct signed_message first;
    uint32_t length;
    const uint8_t *head;
    /* After one false proof this sender's packets about that round are ignored. */
    if (r->ignored[sender]) return;
    /* Every honest peer passes a proof on once, so most proofs are known already. */
    if (!get_be32(&c, &length) && !get_bytes(&c, &head, length) &&
        !signed_message_read(&first, head, length) && first.from < r->scope.count &&
        r->convicted[first.from])
        return;
    /* An honest peer has checked a proof before it passes it on. */
    if (equivocation_check(&author, &r->scope, proof, n)) {
        r->ignored[sender] = 1;
        return;
    }
    r->convicted[author] = 1;
    pass_on(r, author, proof, n, convicted, context);
}

size_t equivocation_log_receive(struct equivocation_log *l, double now, const struct peer_id *from,
                                const uint8_t *packet, size_t n, equivocation_convicted *convicted,
                                void *context)
{
    struct cursor c = { packet, n };
    const uint8_t *frame;
    uint32_t length;
    size_t ours = 0, place[EQUIVOCATION_ROUNDS_MAX];
    /* The oldest round is the first: rounds are logged in order. */
    while (l->count && now >= l->rounds[0].until) forget(l, 0);
    /* A peer that was in none of these rounds can't cause any work here. */
    for (size_t i = 0; i < l->count; i++) place[i] = place_of(&l->rounds[i], from);
    while (!get_be32(&c, &length) && length >= FRAME_START && !get_bytes(&c, &frame, length))
        for (size_t i = 0; i < l->count; i++) {
            struct logged_round *r = &l->rounds[i];
            if (place[i] == r->scope.count || memcmp(frame + 1, r->scope.round, PL_HASH_BYTES))
                continue;
            /* Counted even if it does not prove anything: the caller refuses packets that belong to
             * no round at all. */
            ours++;
            /* All other frames belong to the live verifier of the round (broadcast_receive). */
            if (frame[0] == FRAME_PROOF)
                receive_proof(r, place[i], frame + FRAME_START, length - FRAME_START, convicted,
                              context);
        }
    return ours;
}

void equivocation_log_clear(struct equivocation_log *l)
{
    while (l->count) forget(l, 0);
}
