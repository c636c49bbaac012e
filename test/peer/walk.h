/* walk.h - a walk through a live peer: does it do what the protocol says? One file a chapter; each
 * clause prints a line with the section that it comes from. Sections are those of the two
 * specifications, "wire" for libp2p's part and "hivemind" for what is above. */
#ifndef PL_WALK_H
#define PL_WALK_H

#include "../../ref/backend.h"
#include "net/libp2p/peer/multiaddr.h"
#include "net/hivemind/moderation/auth.h"
#include "talk.h"

struct swarm;
struct rsa_key;

struct walk {
    struct talk talk;         /* with the peer */
    struct swarm *swarm;      /* a client of its DHT, for records at other nodes */
    struct auth *auth;        /* our token, if the swarm is moderated; NULL */
    struct multiaddr address; /* of the peer, with its ID */
    const struct pl_backend *be;
    const char *run;                 /* --run; NULL */
    const struct rsa_key *key;       /* with --run: signs our progress record */
    int has_reported;                /* it is in the DHT */
    const char *prefix, *class_name; /* --prefix: a bare averager; NULL */
    const char *compression;         /* how tensors are cut: the group's setting */
    size_t threshold, part_bytes;
    double patience; /* s that we wait until it searches for a group */
    void *report;    /* where clauses are written down, too; NULL */
    long passed, failed, skipped;
};

/* "ok   hivemind 1.5  what" or "FAIL ... what: why". Returns good. */
__attribute__((format(printf, 5, 6))) int walk_clause(struct walk *w, const char *section,
                                                      const char *what, int good, const char *why,
                                                      ...);
__attribute__((format(printf, 4, 5))) void walk_skip(struct walk *w, const char *section,
                                                     const char *what, const char *why, ...);

/* A call's message as a moderated swarm wants it; the answer has to bear the nonce. In dht.c. */
void walk_sign(struct walk *w, struct bytes *out, uint8_t nonce[AUTH_NONCE],
               const struct bytes *plain);

/* The chapters. Each works without the others. */
void walk_wire(struct walk *w);
void walk_dht(struct walk *w);
void walk_averaging(struct walk *w);

#endif
