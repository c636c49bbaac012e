/* peer_model.h - what a peer that trains nothing knows of a run's model: its tensors in the swarm's
 * order, with room for values and statistics in the host's memory. */
#ifndef PL_CMD_PEER_MODEL_H
#define PL_CMD_PEER_MODEL_H

#include "net/hivemind/optimizer/optimizer_state.h"
#include "runtime/dalle_run.h"

struct peer_model {
    const char *config, *kind; /* as they were given; kind: the optimizer's */
    struct pl_backend be;      /* the host's */
    struct pl_dalle *dalle;
    struct pl_optimizer *optimizer;
    struct optimizer_state state;
};
/* config, optimizer: as `potluck train` takes them. peer_model_close also after a failure. */
int peer_model_open(struct peer_model *m, const char *config, const char *optimizer,
                    struct pl_err *err); /* both borrowed */
void peer_model_close(struct peer_model *m);

#endif
