/* averaging_options.c - the rows of averaging_options.h. Values that need more than a range are
 * checked by the library that uses them. */
#include "averaging_options.h"
#include "net/hivemind/swarm/averaging.h"

#include <string.h>

const char *const compression_names[] = { "run",      "none",      "float16",    "meanstd16",
                                          "uniform8", "quantile8", "blockwise8", NULL };

int take_group_bits(const char **bits, const char *value, struct pl_err *err)
{
    *bits = value;
    if (strlen(value) <= GROUP_BITS_MAX && !value[strspn(value, "01")]) return PL_OK;
    return pl_fail(err, PL_EUSE, "'%.40s' is not up to %d zeros and ones", value, GROUP_BITS_MAX);
}

static int take_bits(void *options, const char *name, const char *value, struct pl_err *err)
{
    struct averaging_options *o = options;
    return take_group_bits(&o->group_bits, value, err);
}

static int take_robust(void *options, const char *name, const char *value, struct pl_err *err)
{
    struct averaging_options *o = options;
    if (!robust_named(&o->clip, &o->verify, &o->validators, value)) return PL_OK;
    return pl_fail(err, PL_EUSE,
                   "'%.40s' is not one of none, centered-clip[:RADIUS], btard[:VALIDATORS]", value);
}

#define OPTIONS struct averaging_options
const struct option_row averaging_rows[] = {
    { "matchmaking-time", "SECONDS", "15", OPT_SECONDS(matchmaking_time, 0.1, 3600),
      "how long peers look for each other before a round of averaging" },
    { "averaging-timeout", "SECONDS", "180", OPT_SECONDS(averaging_timeout, 0.1, 86400),
      "limit of a whole round; after it a trainer steps with its own gradients" },
    { "allreduce-timeout", "SECONDS", "60", OPT_SECONDS(allreduce_timeout, 0.1, 86400),
      "limit of the all-reduce within a round. An uplink that needs more than a third of it for "
      "this peer's own gradients sends only a part of them" },
    { "group-size", "N", NULL, OPT_INTEGER(group_size, 2, GROUP_PEERS_MAX),
      "begin a round as soon as this many peers have joined the group (default: wait for all "
      "that join in time)" },
    { "group-bits", "BITS", NULL, OPT_CALL(take_bits),
      "zeros and ones that name this peer's first group: N bits make 2^N groups, '' makes one. "
      "Each round moves peers to other groups (default: one group up to about 64 peers, beyond "
      "that groups of 12 to 48)" },
    { "compression", "C", "run", OPT_NAME(compression, compression_names),
      "how tensors are compressed; run: as in the paper's run, 8 bits for large ones and 16 for "
      "others" },
    { "bandwidth", "X", NULL, OPT_REAL(bandwidth, 0, 1e15),
      "bandwidth of this peer in Mbit/s. Peers with more bandwidth reduce a larger share, peers "
      "with 0 reduce nothing (default: measured in its own rounds)" },
    { "robust", "METHOD", NULL, OPT_CALL(take_robust),
      "protection from Byzantine peers (default: none)"
      "\n- none: the mean"
      "\n- centered-clip[:RADIUS]: CenteredClip in place of the mean"
      "\n- btard[:VALIDATORS]: CenteredClip, and rounds are verified: the gradients of VALIDATORS "
      "peers per round, 0.25 if not given, are recomputed. Every peer of the group has to ask for "
      "it and have the same data" },
    { 0 },
};
