/* swarm_events.h - the lines that a trainer in a swarm prints about its rounds. */
#ifndef PL_CMD_SWARM_EVENTS_H
#define PL_CMD_SWARM_EVENTS_H

#include "net/hivemind/optimizer.h"

/* One line of JSON for each event, with all fields whether the kind has them or not. */
void swarm_event_json(const struct pl_collaborative_event *e);
/* Sentences on stderr. The progress line shows batches and successful rounds, so only events that a
 * user may act on are printed here. inner_steps: steps of an epoch, as the user counts them. */
void swarm_event_text(const struct pl_collaborative_event *e, const char *cmd, int verify,
                      int64_t inner_steps);

#endif
