/* conform_peer.h - does a live peer do what the protocol says? One line a clause, with its
 * section. */
#ifndef PL_CMD_CONFORM_PEER_H
#define PL_CMD_CONFORM_PEER_H

#include "cmd/common/membership.h"
#include "ref/backend.h"
#include "ref/partition.h"

#include <getopt.h>

struct conform_peer {
    const char *address;             /* a multiaddr with /p2p/ID; NULL: no walk */
    const char *run;                 /* its two averagers are visited, too; NULL */
    const char *prefix, *class_name; /* a bare averager; NULL */
    const char *compression;         /* the group's, by averaging.h's names; it decides the parts */
    int64_t threshold, part_bytes;
    struct membership membership;
    double patience; /* s that we wait until it looks for a group */
};
#define CONFORM_PEER_USUAL \
    { \
        .class_name = "DecentralizedAverager", .compression = "run", \
        .threshold = PL_WIRE_ADAPTIVE, .part_bytes = PL_PART_BYTES, .patience = 60 \
    }

/* The walk's part of the command line, for the command's own table and text. */
#define CONFORM_PEER_FIRST 512
#define CONFORM_PEER_OPTIONS \
    { "peer", required_argument, NULL, CONFORM_PEER_FIRST }, \
        { "run", required_argument, NULL, CONFORM_PEER_FIRST + 1 }, \
        { "prefix", required_argument, NULL, CONFORM_PEER_FIRST + 2 }, \
        { "class", required_argument, NULL, CONFORM_PEER_FIRST + 3 }, \
        { "wait", required_argument, NULL, CONFORM_PEER_FIRST + 4 }, \
        { "compression", required_argument, NULL, CONFORM_PEER_FIRST + 5 }, \
        { "threshold", required_argument, NULL, CONFORM_PEER_FIRST + 6 }, \
        { "part-bytes", required_argument, NULL, CONFORM_PEER_FIRST + 7 }, MEMBERSHIP_OPTIONS
#define CONFORM_PEER_SYNOPSIS \
    "       potluck conform --peer MULTIADDR [--run ID] [--prefix P [--class NAME]] [--wait S]\n" \
    "                       [--compression C] [--threshold N] [--part-bytes N]\n"
#define CONFORM_PEER_USAGE \
    "  --peer MULTIADDR  walks through a live peer, whoever wrote it, clause by clause: what it stores\n" \
    "                 lies under random keys for seconds, and its averagers are met as a client whose\n" \
    "                 tensors weigh nothing\n" \
    "  --run ID       with --peer: visit the averagers of a training peer of this run, too\n" \
    "  --prefix P     with --peer: visit a bare averager of this prefix, too\n" \
    "  --class NAME   of that averager in the names of calls (default: DecentralizedAverager)\n" \
    "  --wait S       how long it may take to look for a group (default: 60)\n" \
    "  --compression C, --threshold N, --part-bytes N  the group's, as for potluck average\n" MEMBERSHIP_USAGE

/* 1: taken. 0: none of the walk's, or a value that makes no sense, which it has said. */
int conform_peer_option(struct conform_peer *o, int option, const char *value);
/* 1: options that need --peer, or a walk beside something else. */
int conform_peer_misused(const struct conform_peer *o, int something_else);

/* Prints the lines and the closing count. The exit status: 2 for an address that is none. */
int conform_peer(struct conform_peer *o, const struct pl_backend *be);

#endif
