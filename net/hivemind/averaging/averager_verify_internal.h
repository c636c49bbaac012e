/* averager_verify_internal.h - BTARD's messages as calls, and which groups can verify.
 * [BTARD 3.1] */
#ifndef PL_AVERAGER_VERIFY_INTERNAL_H
#define PL_AVERAGER_VERIFY_INTERNAL_H

#include "net/hivemind/verification/equivocation_log.h"
#include "net/hivemind/verification/verifier.h"

struct averager;

#define AVERAGER_VERIFY_MIN 3 /* peers: if two accuse each other, a third must decide */

struct averager_verify {
    struct verify_call *calls;   /* that are under way */
    struct equivocation_log log; /* past rounds whose proofs still count */
};

int averager_verify_open(struct averager *a, struct pl_err *err);
void averager_verify_close(struct averager *a);
/* The terms of a verified round, as msgpack: a version, and the settings on which the whole group
 * must agree. hivemind's peers ignore them. */
int averager_write_terms(struct bytes *out, const struct averager *a, int64_t epoch);
/* 1: the group that has been found verifies. *rc = PL_ENOMEM: unknown. A peer that took it for one
 * that does not would answer with what no honest reducer sends, and be banned. */
int averager_can_verify(const struct averager *a, int *rc);
void averager_verify_send(void *context, size_t peer, const uint8_t *data, size_t n);
/* With a proof: for BANS_TIME. The step's result names the peer, and why. */
void averager_ban(struct averager *a, const struct peer_id *peer, const char *why);

#endif
