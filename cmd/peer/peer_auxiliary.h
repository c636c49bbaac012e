/* peer_auxiliary.h - `potluck peer --auxiliary`: a peer without data takes its share of a run's sums:
 * whenever the others average their gradients, it reduces a part of them, and so their connections
 * carry less. */
#ifndef PL_CMD_PEER_HELP_H
#define PL_CMD_PEER_HELP_H

#include "peer_model.h"
#include "net/hivemind/swarm/swarm.h"

#include <getopt.h>

struct peer_help_options {
    int wanted;
    const char *compression, *group_bits;
    int verify;
    int64_t target_batch, group_size;
    double matchmaking_time, averaging_timeout, allreduce_timeout, bandwidth, clip, validators;
};
#define PEER_HELP_DEFAULTS \
    { \
        .compression = "run", .target_batch = 64, .matchmaking_time = 15, \
        .averaging_timeout = 180, .allreduce_timeout = 60, .bandwidth = PL_BANDWIDTH_UNKNOWN \
    }

#define PEER_HELP_FIRST 1400
#define PEER_HELP_OPTIONS \
    { "auxiliary", no_argument, NULL, PEER_HELP_FIRST }, \
        { "target-batch", required_argument, NULL, PEER_HELP_FIRST + 1 }, \
        { "group-size", required_argument, NULL, PEER_HELP_FIRST + 2 }, \
        { "matchmaking-time", required_argument, NULL, PEER_HELP_FIRST + 3 }, \
        { "averaging-timeout", required_argument, NULL, PEER_HELP_FIRST + 4 }, \
        { "allreduce-timeout", required_argument, NULL, PEER_HELP_FIRST + 5 }, \
        { "compression", required_argument, NULL, PEER_HELP_FIRST + 6 }, \
        { "bandwidth", required_argument, NULL, PEER_HELP_FIRST + 7 }, \
        { "robust", required_argument, NULL, PEER_HELP_FIRST + 8 }, \
    { \
        "group-bits", required_argument, NULL, PEER_HELP_FIRST + 9 \
    }

#define PEER_HELP_USAGE \
    "  --auxiliary      help two or more who train to average their gradients, with none of our own: we add up\n" \
    "                   a part of theirs. All of the next as they give them to train:\n" \
    "  --target-batch N   (default: 64)\n" \
    "  --group-size N     (default: all who come in time)\n" \
    "  --matchmaking-time S   (default: 15)\n" \
    "  --averaging-timeout S  (default: 180)\n" \
    "  --allreduce-timeout S  (default: 60)\n" \
    "  --compression C    (default: run)\n" \
    "  --bandwidth B      (default: not told)\n" \
    "  --group-bits B     (default: none)\n" \
    "  --robust R         none, centered-clip[:RADIUS] or btard[:VALIDATORS] (default: none). With btard it reduces,\n" \
    "                     is verified and votes as the others, but computes no gradient again; rounds of three and\n" \
    "                     more who train stay verified only if all ask for the same, this peer too\n"

/* 1: it was one of ours and is stored; 0: not ours; negative: a line was printed. */
int peer_help_option(struct peer_help_options *o, int option, const char *value);

struct peer_help;

/* model and s are borrowed; json: what is said are lines of JSON. */
int peer_help_open(struct peer_help **p, const struct peer_help_options *o,
                   const struct peer_model *model, struct swarm *s, const struct rsa_key *key,
                   const char *run, int json, struct pl_err *err);
/* To be called every second or so, once the swarm has been joined. */
void peer_help_turn(struct peer_help *p);
/* Before swarm_close; leaves a round that is under way. NULL may be closed. */
void peer_help_close(struct peer_help *p);

#endif
