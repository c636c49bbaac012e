/* verifier_commit.c - SENT and COMMIT: hashes that bind every peer to the values that it has sent
 * and reduced, before random numbers are drawn. [BTARD 3]
 *
 *   SENT to j     SHA-256 over the hashes of all parts that I have sent to j; SHA-256 of my
 *                 aggregates
 *   COMMIT        the same for all pairs; a commitment to my random number; epoch and samples; one
 *                 byte for each peer: 1 if its SENT is missing, or differs from what arrived here
 *
 * A COMMIT that contradicts its author's SENT is a proof (equivocation.h). A peer that denies
 * another proves nothing: either of them may be wrong, so both are charged. */
#include "verifier_internal.h"
#include "ref/byte_order.h"

#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>

/* Little-endian, as peers of any byte order have to agree. */
static void hash_numbers(EVP_MD_CTX *c, const void *x, size_t size, size_t n)
{
    uint8_t block[4096];
    const uint8_t *from = x;
    while (n) {
        size_t some = n < sizeof block / size ? n : sizeof block / size;
        pl_copy_little(block, from, size, some);
        EVP_DigestUpdate(c, block, size * some);
        from += size * some;
        n -= some;
    }
}

/* own_hash: for each reducer, the SHA-256 of its aggregates and their radii. */
static void hash_aggregates(struct verifier *r)
{
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    if (!c) verifier_give_up(r, PL_ENOMEM, "no memory");
    for (size_t reducer = 0; !r->over && reducer < r->v.count; reducer++) {
        EVP_DigestInit_ex(c, EVP_sha256(), NULL);
        for (size_t p = 0; p < r->v.part_count; p++) {
            double tau;
            const float *a;
            if (r->v.parts[p].reducer != (int)reducer) continue;
            a = r->v.aggregate(r->v.context, p, &tau);
            /* One hash for all aggregates of a reducer, radii included: a reducer that has
             * answered two peers differently shows up here, as their hashes differ.
             * [BTARD 3, step 3] */
            hash_numbers(c, &tau, sizeof tau, 1);
            hash_numbers(c, a, sizeof *a, r->v.parts[p].length);
        }
        EVP_DigestFinal_ex(c, r->own_hash + reducer * PL_HASH_BYTES, NULL);
    }
    EVP_MD_CTX_free(c);
}

/* The hash of a part as it travelled from a peer to its reducer, one of which we are; zeros if
 * nothing did. */
static void hash_part(struct verifier *r, struct bytes *raw, size_t part, size_t from,
                      uint8_t hash[PL_HASH_BYTES])
{
    int rc;
    bytes_take(raw, bytes_length(raw));
    rc = from == r->v.self ? r->v.sent(r->v.context, part, raw)
                           : r->v.received(r->v.context, part, from, raw);
    if (rc < 0) verifier_give_up(r, PL_ENOMEM, "no memory");
    /* No known input has a SHA-256 of zeros, so "nothing was sent" can't be mistaken for an empty
     * part. */
    memset(hash, 0, PL_HASH_BYTES);
    if (rc == 1) signed_hash(hash, bytes_at(raw), bytes_length(raw));
}

/* Over the hashes of all parts from one peer to a reducer. */
static void digest_pair(struct verifier *r, size_t from, size_t reducer,
                        uint8_t digest[PL_HASH_BYTES])
{
    struct bytes raw = { 0 }, hashes = { 0 };
    uint8_t hash[PL_HASH_BYTES];
    for (size_t p = 0; !r->over && p < r->v.part_count; p++) {
        if (r->v.parts[p].reducer != (int)reducer) continue;
        hash_part(r, &raw, p, from, hash);
        /* Kept for OPEN, where they are shown. */
        if (from == r->v.self) memcpy(r->sent_hash + p * PL_HASH_BYTES, hash, sizeof hash);
        bytes_add(&hashes, hash, sizeof hash);
    }
    signed_hash(digest, bytes_at(&hashes), bytes_length(&hashes));
    if (raw.failed || hashes.failed) verifier_give_up(r, PL_ENOMEM, "no memory");
    bytes_clear(&raw);
    bytes_clear(&hashes);
}

void verifier_send_pairs(struct verifier *r)
{
    uint8_t body[2 * PL_HASH_BYTES];
    hash_aggregates(r);
    /* Each receiver gets a signature on data that it alone can check: the parts sent to it, and the
     * aggregates in the answers to it. */
    memcpy(body + PL_HASH_BYTES, r->own_hash + r->v.self * PL_HASH_BYTES, PL_HASH_BYTES);
    for (size_t i = 0; !r->over && i < r->v.count; i++) {
        digest_pair(r, r->v.self, i, r->sent_digest + i * PL_HASH_BYTES);
        memcpy(body, r->sent_digest + i * PL_HASH_BYTES, PL_HASH_BYTES);
        if (i != r->v.self) broadcast_send_pair(&r->b, r->now, VERIFIER_SENT, i, body, sizeof body);
    }
}

int verifier_has_all_pairs(const struct verifier *r)
{
    for (size_t i = 0; i < r->v.count; i++)
        if (i != r->v.self && !verifier_message(r, VERIFIER_SENT, i)) return 0;
    return 1;
}

/* 1: a peer's SENT matches the values that have arrived here. */
static int accepts(struct verifier *r, size_t peer)
{
    /* The receiver's side of a dispute: it denies a SENT that is missing, or that differs from what
     * has arrived. */
    const uint8_t *sent = verifier_message(r, VERIFIER_SENT, peer);
    uint8_t digest[PL_HASH_BYTES];
    if (peer == r->v.self) return 1;
    /* No SENT by the limit: it is denied, like one that does not fit. */
    if (!sent) return 0;
    digest_pair(r, peer, r->v.self, digest);
    return !memcmp(sent, digest, sizeof digest) &&
           !memcmp(sent + PL_HASH_BYTES, r->own_hash + peer * PL_HASH_BYTES, PL_HASH_BYTES);
}

void verifier_commit(struct verifier *r, struct bytes *out)
{
    const struct pl_btard b = { .hash = signed_hash };
    uint8_t hash[PL_HASH_BYTES];
    pl_btard_lot_commit(hash, &b, (uint32_t)r->v.self, r->nonce, r->salt);
    bytes_add(out, r->own_hash + r->v.self * PL_HASH_BYTES, PL_HASH_BYTES);
    bytes_add(out, hash, sizeof hash);
    bytes_be64(out, (uint64_t)r->v.claim.epoch);
    bytes_be64(out, r->v.claim.samples);
    for (size_t i = 0; i < r->v.count; i++) bytes_u8(out, (uint8_t)!accepts(r, i));
    bytes_add(out, r->sent_digest, r->v.count * PL_HASH_BYTES);
}

/* 1: a SENT for `to` is not what its author's COMMIT holds for that pair. */
static int differs(const uint8_t *sent, const uint8_t *committed, size_t to, size_t count)
{
    /* Both messages name the same two hashes for this pair; an honest author writes both
     * from one place. */
    return memcmp(sent, committed + COMMIT_DIGESTS(count) + to * PL_HASH_BYTES, PL_HASH_BYTES) !=
               0 ||
           memcmp(sent + PL_HASH_BYTES, committed, PL_HASH_BYTES) != 0;
}

static int contradicts(const struct signed_message *pair, const struct signed_message *common,
                       size_t count)
{
    return pair->stage == VERIFIER_SENT && common->stage == VERIFIER_COMMIT &&
           pair->n == SENT_BYTES && common->n == COMMIT_BYTES(count) &&
           differs(pair->body, common->body, pair->to, count);
}

const struct equivocation_rules verifier_rules = { .stages = VERIFIER_PHASES,
                                                   .pairs = VERIFIER_COMMIT,
                                                   .contradicts = contradicts };

void verifier_compare_commitments(struct verifier *r)
{
    for (size_t i = 0; i < r->v.count; i++) {
        /* As soon as both are here, not at the stage's end: the proof needs time to reach
         * everybody. */
        const uint8_t *sent = i == r->v.self ? NULL : verifier_message(r, VERIFIER_SENT, i),
                      *committed = verifier_message(r, VERIFIER_COMMIT, i);
        if (sent && committed && differs(sent, committed, r->v.self, r->v.count))
            broadcast_prove(&r->b, i, VERIFIER_SENT, VERIFIER_COMMIT);
    }
}

void verifier_judge_commitments(struct verifier *r)
{
    size_t n = r->v.count;
    uint8_t elsewhere[VERIFIER_PEERS_MAX] = { 0 }, *edge;
    int is_denied = 0, is_apart = 0;
    for (size_t i = 0; i < n; i++) {
        /* Denials: a matrix of which peer denies which. No third peer can tell which of a pair is
         * right. [BTARD 3, ELIMINATE(i, j)] */
        const uint8_t *committed = verifier_message(r, VERIFIER_COMMIT, i) + COMMIT_DENIED;
        for (size_t j = 0; j < n; j++) is_denied |= i != j && committed[j];
        if (r->v.samples_max && verifier_claim_of(r, i).samples > r->v.samples_max)
            verifier_ban(r, i, "a peer claims more samples than anybody may");
        /* Gradients from other parameters can't be computed again. The gather messages named
         * one epoch (averager_verify.c), so a few that differ are charged; if many do, it
         * may be ours that is wrong. */
        elsewhere[i] = verifier_claim_of(r, i).epoch != r->v.claim.epoch;
        is_apart |= elsewhere[i];
    }
    if (!r->over && is_apart)
        verifier_charge_if_few(r, elsewhere, "its peers are at different epochs");
    if (r->over || !is_denied) return;
    if (!(edge = calloc(n * n, 1))) {
        verifier_give_up(r, PL_ENOMEM, "no memory");
        return;
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            edge[i * n + j] = i != j &&
                              (verifier_message(r, VERIFIER_COMMIT, i) + COMMIT_DENIED)[j];
    /* A round with a denial is void: parts that a peer has not received can't be checked by
     * it. */
    verifier_charge_pairs(r, edge,
                          "a peer has not sent a message that it signed, or another peer "
                          "denies that it did");
    free(edge);
}
