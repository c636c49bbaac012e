/* optimizer_options.c - the defaults of ../optimizer_options.h, and which options go together. A
 * mistake is refused before the run is joined, with a sentence that names it. */
#include "optimizer_internal.h"
#include "net/hivemind/swarm/averaging.h"

#include <math.h>
#include <string.h>

#define INNER_STEPS_MAX 1000000 /* published runs have 15 to 500 */

/* The defaults are the settings of the paper's run: a peer that sets nothing fits into such a
 * swarm. [spec hivemind-protocol 10] */
void collaborative_set_defaults(struct pl_collaborative_options *o)
{
    if (!o->target_batch) o->target_batch = 4096; /* [TTT 3.3] */
    if (!o->lr) o->lr = 0.0025;
    if (!o->compression) o->compression = "run";
    if (!o->matchmaking_time) o->matchmaking_time = 15; /* s; also the least time of an epoch */
    if (!o->averaging_timeout) o->averaging_timeout = 180;
    if (!o->allreduce_timeout) o->allreduce_timeout = 60;
    if (!o->average_state_every) o->average_state_every = 1;
    if (!o->algorithm) o->algorithm = "gradients";
    if (!o->inner_steps) o->inner_steps = 50;
    if (!o->outer_lr) o->outer_lr = 0.7; /* [DiLoCo 3.1] */
    o->outer_momentum = o->outer_momentum < 0 ? 0 : o->outer_momentum > 0 ? o->outer_momentum : 0.9;
    if (!o->min_peers_timeout) o->min_peers_timeout = 300; /* two people start two machines */
    /* Without an end: claims and states beyond it are refused anyway. */
    if (!o->epochs) o->epochs = STATE_STEPS_MAX + 1;
    /* A negative value asks to reduce nothing; none is measured. */
    o->bandwidth = o->bandwidth > 0 ? o->bandwidth : o->bandwidth < 0 ? 0 : PL_BANDWIDTH_UNKNOWN;
}

/* Values that would only fail later, in the middle of a round, are refused here. */
int collaborative_check_options(const struct pl_collaborative_run *run,
                                const struct pl_collaborative_options *o, struct pl_err *err)
{
    const int has_swarm = run->node && run->node->swarm;
    enum pl_compression method;
    if (!run->name || !*run->name) return pl_fail(err, PL_EUSE, "the run has no name");
    if (has_swarm && !run->node->key)
        return pl_fail(err, PL_EUSE,
                       "the run's swarm comes without the key that signs its records");
    if (has_swarm && (run->authority || run->token_file || run->authority_ca))
        return pl_fail(err, PL_EUSE,
                       "the run's swarm is open already: its access token has to come with it");
    if (run->client_mode && !has_swarm && !run->initial_peer_count)
        return pl_fail(err, PL_EUSE, "a client only dials: it needs an initial peer");
    if (!(o->lr > 0) || !isfinite(o->lr))
        return pl_fail(err, PL_EUSE, "learning rate %g: expected a number above 0", o->lr);
    if (o->target_batch < 1 || o->epoch < 0 || o->epochs < 1 || o->average_state_every < 1 ||
        o->matchmaking_time < 0 || o->averaging_timeout < 0 || o->allreduce_timeout < 0 ||
        o->min_peers_timeout < 0)
        return pl_fail(err, PL_EUSE, "a number of the options is negative");
    if (!collaborative_averages_gradients(o) && !pl_outer_find(o->algorithm))
        return pl_fail(err, PL_EUSE,
                       "algorithm '%.40s': expected gradients, powersgd_own, or another one of "
                       "paper/algorithms.md, by its name there",
                       o->algorithm);
    if (collaborative_gathers(o) && run->client_mode)
        return pl_fail(err, PL_EUSE,
                       "algorithm %s does not take client_mode: each peer gives its message to "
                       "each other peer",
                       o->algorithm);
    if (collaborative_is_powersgd(o) && (o->clip != 0 || o->verify))
        return pl_fail(err, PL_EUSE,
                       "algorithm %s takes neither clip nor verify: a peer's factors mean nothing "
                       "without those of the others",
                       o->algorithm);
    if (o->powersgd_rank < 0 || o->powersgd_rank > FACTORS_RANK_MAX)
        return pl_fail(err, PL_EUSE, "PowerSGD of rank %d: expected 1 to %d", o->powersgd_rank,
                       FACTORS_RANK_MAX);
    /* A common step that comes after H local ones is rare enough to be waited for. */
    if (!collaborative_averages_gradients(o) && (o->delay || o->verify))
        return pl_fail(
            err, PL_EUSE,
            "algorithm %s takes neither delay nor verify: no peer can recompute local steps",
            o->algorithm);
    if (o->inner_steps < 1 || o->inner_steps > INNER_STEPS_MAX || !(o->outer_lr > 0) ||
        !isfinite(o->outer_lr) || !(o->outer_momentum < 1))
        return pl_fail(err, PL_EUSE,
                       "1 to %d inner steps, an outer rate above 0, an outer momentum below 1",
                       INNER_STEPS_MAX);
    /* Peers report the samples of an outer step: the target batch times H. */
    if (o->target_batch > INT64_MAX / INNER_STEPS_MAX)
        return pl_fail(err, PL_EUSE, "target batch %lld: too large", (long long)o->target_batch);
    /* The name alone is checked here: each tensor's method follows from its size. */
    if (compression_named(&method, o->compression, 1, PL_WIRE_ADAPTIVE))
        return pl_fail(err, PL_EUSE, "compression '%.40s': unknown method", o->compression);
    if (o->group_bits &&
        (strlen(o->group_bits) > GROUP_BITS_MAX || o->group_bits[strspn(o->group_bits, "01")]))
        return pl_fail(err, PL_EUSE, "group bits '%.40s': expected up to %d zeros and ones",
                       o->group_bits, GROUP_BITS_MAX);
    return PL_OK;
}
