/* golden_optim.h - the optimizer area's files that are not replays of whole steps. */
#ifndef PL_GOLDEN_OPTIM_H
#define PL_GOLDEN_OPTIM_H

#include "test/conform/golden/golden.h"

/* STEM.json: tensor sizes, and the state that each one gets. */
void golden_optim_thresholds(struct golden *g, const char *stem);
/* A safetensors file with steps and their learning rates. */
void golden_optim_schedule(struct golden *g, const char *path);

#endif
