/* conform_peer.h - tests a live peer against the protocol. One line for each clause, with its
 * section. */
#ifndef PL_CMD_CONFORM_PEER_H
#define PL_CMD_CONFORM_PEER_H

#include "cmd/options/join_options.h"
#include "ref/backend.h"
#include "ref/partition.h"

struct conform_peer {
    const char *address;             /* a multiaddr with /p2p/ID; NULL: no walk */
    const char *run;                 /* its two averagers are visited, too; NULL */
    const char *prefix, *class_name; /* a bare averager; NULL */
    const char *compression;         /* the group's, by averaging.h's names; it decides the parts */
    int64_t threshold, part_bytes;
    struct membership membership;
    double patience; /* s that we wait until it looks for a group */
};
extern const struct option_row conform_peer_rows[];

/* Returns 1 for options that need --peer, or if --peer is combined with another mode. */
int conform_peer_misused(const struct conform_peer *o, int something_else);

/* Prints the lines and the closing count, and writes them to `page` (.html or .json), if it is not
 * NULL. The exit status: 2 for a malformed address or a page that cannot be written. */
int conform_peer(struct conform_peer *o, const struct pl_backend *be, const char *page);

#endif
