/* demo_replay.h - prints the progress of a demo's swarm again, from its record, events.jsonl. */
#ifndef PL_CMD_DEMO_REPLAY_H
#define PL_CMD_DEMO_REPLAY_H

#include "ref/base.h"

/* Prints the demo's lines in order, then the table of peers as it was at the end. */
int demo_replay(const char *path, struct pl_err *err);

#endif
