/* train_agree.h - training by a run's manifest: `potluck join` gets it from a peer, `potluck train
 * --manifest` from a file that `potluck new-run` wrote. */
#ifndef PL_CMD_TRAIN_AGREE_H
#define PL_CMD_TRAIN_AGREE_H

#include "train_requests.h"

extern const char *const train_algorithms[]; /* ends with NULL */

/* Sets all options that the manifest decides; m is borrowed as long as w is used. PL_EUSE: it names
 * a method that this version does not know. */
int train_agree(struct train_requests *w, const struct run_manifest *m, struct pl_err *err);
/* The manifest's data, unless w has data already. PL_EUSE: neither has. */
int train_agree_data(struct train_requests *w, const struct run_manifest *m, struct pl_err *err);

/* The other direction: makes the manifest of our own options, which other peers have to agree
 * with. */
int train_describe(struct run_manifest *m, const struct train_requests *w,
                   const struct pl_dalle_config *config, struct pl_err *err);

/* --resume may change options, as --steps or --lr: warns of those that differ from the options of
 * the run in the folder. PL_OK or PL_ENOMEM. */
int train_agree_before(const struct train_requests *w, const struct run_manifest *now,
                       struct pl_err *err);

/* A manifest in a file: the JSON that peers publish, with any white space. */
int train_manifest_read_file(struct run_manifest *m, const char *path, struct pl_err *err);
/* "-" is standard output. */
int train_manifest_write_file(const struct run_manifest *m, const char *path, struct pl_err *err);

#endif
