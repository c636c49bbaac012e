/* authority.c - the authority of a moderated run, without its web server: it knows all peers, and
 * signs tokens for their keys. Two Byzantine peers get none that is of use: a stranger's token has
 * another authority's signature, and an expelled one's is not renewed. */
#include "plan.h"
#include "threads.h"

#include "net/hivemind/moderation/authority_client.h"
#include "net/hivemind/progress/claims.h"

#include <openssl/evp.h>
#include <string.h>
#include <time.h>

#define LIFE 150.0     /* s of a token: each peer renews it once or twice */
#define EXPELLED 40.0  /* s of the token of the peer that gets no other */
#define ANSWER_MAX 2.0 /* s until the authority answers */
#define SLACK 10.0     /* s: a round that began with the token's end near */

static struct rsa_key authorities[2]; /* the run's, and a foreign one */

static double wall(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int has_kind(enum byzantine kind)
{
    const struct sim_peer *p = sim_peer_here();
    return plan.kinds[p->index] == kind;
}

int __wrap_authority_ask(struct auth *auth, const struct authority_ask *ask, double now,
                         struct pl_err *err);
int __wrap_authority_ask(struct auth *auth, const struct authority_ask *ask, double now,
                         struct pl_err *err)
{
    const struct rsa_key *run = &authorities[0], *signer = run;
    double skew = sim_peer_here()->skew, life = LIFE;
    int rc;
    (void)ask, (void)now;
    for (int i = 0; i < 2; i++)
        if (!authorities[i].key && (rc = trainers_authority_key(&authorities[i], i))) return rc;
    sim_wait(auth, sim_now() + (uint64_t)(sim_random_uniform(&sim_order) * ANSWER_MAX * 1e9));
    /* Out of order now and then: members have a minute to try again. */
    if (trainer_here() && trainer_here()->has_joined && sim_random_happens(&sim_order, 0.3))
        return pl_fail(err, PL_EAGAIN, "the authority is busy");
    if (has_kind(BYZANTINE_STRANGER)) signer = &authorities[1];
    if (has_kind(BYZANTINE_EXPELLED)) life = EXPELLED - (double)sim_now() * 1e-9;
    /* The authority's own clock is right. */
    rc = auth_token_issue(&auth->token, signer, "somebody", bytes_at(&auth->key->text),
                          bytes_length(&auth->key->text), wall() - skew + life);
    if (!rc)
        rc = rsa_public_parse(&auth->authority, bytes_at(&run->text), bytes_length(&run->text));
    return rc ? pl_fail(err, rc, "no memory for a token") : PL_OK;
}

/* No honest peer averages with one that has no valid token. */
void __real_claims_round(struct claims *c, const struct group *g);
void __wrap_claims_round(struct claims *c, const struct group *g);
void __wrap_claims_round(struct claims *c, const struct group *g)
{
    const uint64_t stopped = sim_peer_here()->stopped_until;
    /* With outer steps members begin a round up to a matchmaking time apart, and wait for a reducer
     * twice that and one time more (training.c). */
    double now = (double)sim_now() * 1e-9,
           slack = SLACK + (plan_has_outer_steps() ? 4 * plan.matchmaking_time : 0);
    /* A process that was stopped in the middle of a round ends it when it goes on. */
    int may_be_late = stopped && now < (double)stopped * 1e-9 + SLACK;
    for (int i = plan.honest; plan.moderated && trainer_here() && i < sim_peer_count; i++)
        if (group_find(g, &trainers[i].id) >= 0 &&
            (plan.kinds[i] == BYZANTINE_STRANGER ||
             (plan.kinds[i] == BYZANTINE_EXPELLED && now > EXPELLED + slack && !may_be_late)))
            sim_fail("peer %d has averaged with peer %d, which has no valid token",
                     trainer_here()->peer->index, i);
    __real_claims_round(c, g);
}
