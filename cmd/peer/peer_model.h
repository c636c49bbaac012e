/* peer_model.h - a run's model in a peer that trains nothing: its tensors in the swarm's order,
 * with parameters and optimizer state in host memory. */
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
