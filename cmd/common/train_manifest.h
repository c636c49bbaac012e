/* train_manifest.h - a trainer and its run's manifest: it reads those of the bootstrap peers,
 * compares them with our options, and publishes ours as long as we train.
 *
 * Which one counts: the manifest that a peer named on our command line has signed. Its peer ID
 * stands in the address, so no stranger can give us another. All others under the run's name are
 * anybody's: if they differ, there is a warning, no error. */
#ifndef PL_CMD_TRAIN_MANIFEST_H
#define PL_CMD_TRAIN_MANIFEST_H

#include "net/hivemind/records/run_manifest.h"
#include "net/hivemind/swarm/swarm.h"

/* The newest manifest that the peer has signed. PL_ENOTFOUND: it has signed none. */
int train_manifest_of_peer(struct manifest_record *r, struct swarm *s, const struct peer_id *peer,
                           struct pl_err *err);
/* The peer named at the end of an address. PL_EUSE: it names none. */
int train_manifest_named(struct peer_id *peer, const char *address, struct pl_err *err);
/* Counts the peers whose manifest under the run's name is as `m`, and those whose is not (NULL: not
 * wanted); why says how one of these differs. own: a record to leave out, or NULL. */
void train_manifest_count(size_t *same, size_t *others, struct pl_err *why, struct swarm *s,
                          const struct run_manifest *m, const struct bytes *own);

struct train_manifest;
/* Called once s has joined with the options `how`. ours: the manifest of our own options. PL_EUSE:
 * a bootstrap peer trains with other values, and err names both. *out publishes on a thread of its
 * own. It is NULL if our manifest cannot be published; a line on stderr explains why. */
int train_manifest_begin(struct train_manifest **out, struct swarm *s,
                         const struct swarm_options *how, const struct rsa_key *key,
                         const struct run_manifest *ours, struct pl_err *err);
/* NULL may be ended. */
void train_manifest_end(struct train_manifest *t);

#endif
