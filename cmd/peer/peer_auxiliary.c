/* peer_auxiliary.c - joins the run's rounds of averaging with tensors of zeros that weigh nothing,
 * and reduces a share of the others' gradients. */
#include "peer_auxiliary.h"
#include "cmd/common/json_event.h"
#include "net/hivemind/swarm/averaging.h"
#include "cmd/cmd.h"
#include "cmd/common/plural.h"
#include "net/hivemind/training/training.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct peer_auxiliary {
    const struct peer_model *model;
    int json, has_entered;
    struct training *c;
    float **tensor; /* zeros at first: they weigh nothing, but must be numbers */
};

#define OPTIONS struct peer_auxiliary_options
const struct option_row peer_auxiliary_rows[] = {
    { "auxiliary", NULL, NULL, OPT_FLAG(wanted),
      "reduce a share of the gradients whenever two or more trainers average theirs; "
      "contributes no gradients" },
    { "target-batch", "N", "64", OPT_INTEGER(target_batch, 1, 1 << 20),
      "samples in an optimizer step of the run" },
    { NULL, NULL, NULL, OPT_TABLE(averaging, averaging_rows), NULL },
    { 0 },
};

/* --- work ------------------------------------------------------------------------------------- */

static void say(const struct peer_auxiliary *p, const struct training_round *r)
{
    if (!p->json) {
        if (r->banned) fprintf(stderr, "potluck peer: %s\n", r->caught.text);
        if (r->status) fprintf(stderr, "potluck peer: %s\n", r->why.text);
        else
            printf("helped %zu peer%s to average gradients, in %.2f s%s\n", r->peers - 1,
                   PLURAL(r->peers - 1), r->seconds, r->verified ? ", verified" : "");
        fflush(stdout);
        return;
    }
    json_event_print(json_pack("{s:s,s:i,s:I,s:i,s:f,s:s?,s:s?}", "event", "helped", "status",
                               r->status, "peers", (json_int_t)r->peers, "verified", r->verified,
                               "seconds", r->seconds, "why", r->status ? r->why.text : NULL,
                               "caught", r->banned ? r->caught.text : NULL));
}

void peer_auxiliary_turn(struct peer_auxiliary *p)
{
    struct training_round r;
    if (!p->has_entered) training_enter(p->c, 0);
    p->has_entered = 1;
    if (training_help(p->c, p->tensor, &r)) say(p, &r);
}

/* --- life ------------------------------------------------------------------------------------- */

static int open_tensors(struct peer_auxiliary *p, enum pl_compression **method,
                        const struct peer_auxiliary_options *o)
{
    const struct optimizer_state *state = &p->model->state;
    p->tensor = optimizer_state_host(state);
    *method = calloc(state->count + 1, sizeof **method);
    if (!p->tensor || !*method) return PL_ENOMEM;
    for (size_t i = 0; i < state->count; i++) {
        size_t n = state->tensors[state->order[i]].n;
        memset(p->tensor[i], 0, n * sizeof **p->tensor);
        compression_named(&(*method)[i], o->averaging.compression, n, PL_WIRE_ADAPTIVE);
    }
    return PL_OK;
}

int peer_auxiliary_open(struct peer_auxiliary **out, const struct peer_auxiliary_options *o,
                        const struct peer_model *model, struct swarm *s, const struct rsa_key *key,
                        const char *run, int json, struct pl_err *err)
{
    struct peer_auxiliary *p = calloc(1, sizeof *p);
    enum pl_compression *method = NULL;
    struct training_options options = {
        .run = run,
        .host = s->host,
        .node = s->node,
        .key = key,
        .be = &model->be,
        .tensors = model->state.count,
        .schema = model->state.schema,
        .target_batch = o->target_batch,
        .matchmaking_time = o->averaging.matchmaking_time,
        .averaging_timeout = o->averaging.averaging_timeout,
        .allreduce_timeout = o->averaging.allreduce_timeout,
        .average_state_every = 1,
        .group_size = (size_t)o->averaging.group_size,
        .group_bits = o->averaging.group_bits,
        .bandwidth = o->averaging.bandwidth,
        .clip = o->averaging.clip,
        .verify = o->averaging.verify,
        .validation = { .validators = o->averaging.verify ? o->averaging.validators : 0 },
        .auxiliary = 1
    };
    int rc;
    *out = NULL;
    if (!p) return pl_fail(err, PL_ENOMEM, "--auxiliary: no memory");
    p->model = model;
    p->json = json;
    if ((rc = open_tensors(p, &method, o))) pl_fail(err, rc, "--auxiliary: no memory");
    options.method = method;
    if (!rc) rc = training_open(&p->c, &options, err);
    free(method);
    if (rc) peer_auxiliary_close(p);
    else *out = p;
    return rc;
}

void peer_auxiliary_close(struct peer_auxiliary *p)
{
    if (!p) return;
    training_close(p->c);
    optimizer_state_host_free(&p->model->state, p->tensor);
    free(p);
}
