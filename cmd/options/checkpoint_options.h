/* checkpoint_options.h - rows of all commands that train: when to save, how many checkpoints to
 * keep. */
#ifndef PL_CMD_CHECKPOINT_OPTIONS_H
#define PL_CMD_CHECKPOINT_OPTIONS_H

#include "cmd/options/options.h"

/* clang-format off */
/* For a job with the fields save_every, keep and resume. */
#define CHECKPOINT_ROWS(job) \
    { "save-every", "N", "100", OPT_INTEGER(job.save_every, 0, 1000000000), \
      "steps between checkpoints; 0 saves only at the end" }, \
    { "keep", "N", "2", OPT_INTEGER(job.keep, 0, 1000000), \
      "newest checkpoints that are kept; 0 keeps all" }, \
    { "resume", NULL, NULL, OPT_FLAG(job.resume), \
      "continue from the newest checkpoint in --out. Repeat the other options; " \
      "potluck train names those that differ" }
/* clang-format on */

#endif
