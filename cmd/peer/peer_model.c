/* peer_model.c - the run's model and optimizer in host memory, for the names and shapes of their
 * tensors and to write checkpoints. */
#include "peer_model.h"
#include "cmd/common/compute.h"
#include "cmd/train/train_job.h"
#include "data/models/dalle_config.h"

#include <string.h>

int peer_model_open(struct peer_model *m, const char *config_name, const char *optimizer,
                    struct pl_err *err)
{
    const struct compute host = { .threads = 1 };
    struct pl_optimizer_options options;
    struct pl_dalle_config config;
    int rc;
    *m = (struct peer_model){ .config = config_name, .kind = optimizer };
    train_optimizer_named(&options, optimizer);
    compute_open_host(&m->be, &host);
    rc = pl_dalle_config_find(&config, config_name, err);
    if (!rc) rc = pl_dalle_open(&m->dalle, &config, &m->be, 0, err);
    if (!rc) rc = pl_optimizer_open_params(&m->optimizer, &m->dalle->params, &options, err);
    if (!rc)
        rc = optimizer_state_open_params(&m->state, m->optimizer, &options, &m->dalle->params, err);
    return rc;
}

void peer_model_close(struct peer_model *m)
{
    optimizer_state_close(&m->state);
    pl_optimizer_close(m->optimizer);
    pl_dalle_close(m->dalle);
    memset(m, 0, sizeof *m);
}
