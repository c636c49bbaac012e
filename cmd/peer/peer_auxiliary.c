/* peer_auxiliary.c - see peer_auxiliary.h. */
#include "peer_auxiliary.h"
#include "net/hivemind/swarm/averaging.h"
#include "cmd/common/swarm_messages.h"
#include "cmd/cmd.h"
#include "net/hivemind/training/collaboration.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct peer_help {
    const struct peer_model *model;
    int json, has_entered;
    struct collaboration *c;
    float **tensor; /* zeros at first: they weigh nothing, but must be numbers */
};

static int robust(struct peer_help_options *o, const char *value)
{
    if (robust_named(&o->clip, &o->verify, &o->validators, value))
        return cmd_misused("peer",
                           "--robust: '%.40s' is none of none, centered-clip[:RADIUS], "
                           "btard[:VALIDATORS]",
                           value);
    return PL_OK;
}

static int compression(struct peer_help_options *o, const char *value)
{
    enum pl_compression unused;
    o->compression = value;
    if (!compression_named(&unused, value, 1, 1)) return PL_OK;
    return cmd_misused("peer", "--compression: there is no '%.40s'", value);
}

int peer_help_option(struct peer_help_options *o, int option, const char *v)
{
    int rc = PL_OK;
    switch (option - PEER_HELP_FIRST) {
    case 0: o->wanted = 1; break;
    case 1: rc = cmd_integer(&o->target_batch, "peer", "--target-batch", v, 1, 1 << 20); break;
    case 2: rc = cmd_integer(&o->group_size, "peer", "--group-size", v, 2, GROUP_PEERS_MAX); break;
    case 3: rc = cmd_real(&o->matchmaking_time, "peer", "--matchmaking-time", v, 0.1, 3600); break;
    case 4:
        rc = cmd_real(&o->averaging_timeout, "peer", "--averaging-timeout", v, 0.1, 86400);
        break;
    case 5:
        rc = cmd_real(&o->allreduce_timeout, "peer", "--allreduce-timeout", v, 0.1, 86400);
        break;
    case 6: rc = compression(o, v); break;
    case 7: rc = cmd_real(&o->bandwidth, "peer", "--bandwidth", v, 0, 1e15); break;
    case 8: rc = robust(o, v); break;
    case 9: rc = cmd_group_bits(&o->group_bits, "peer", v); break;
    default: return 0;
    }
    return rc ? rc : 1;
}

/* --- work ------------------------------------------------------------------------------------- */

static void say(const struct peer_help *p, const struct collaboration_round *r)
{
    json_t *line;
    char *text;
    if (!p->json) {
        if (r->banned) fprintf(stderr, "potluck peer: %s\n", r->caught.text);
        if (r->status) fprintf(stderr, "potluck peer: %s\n", r->why.text);
        else
            printf("helped %zu peers to average their gradients, in %.2f s%s\n", r->peers - 1,
                   r->seconds, r->verified ? ", verified" : "");
        fflush(stdout);
        return;
    }
    line = json_pack("{s:s,s:i,s:I,s:i,s:f,s:s?,s:s?}", "event", "helped", "status", r->status,
                     "peers", (json_int_t)r->peers, "verified", r->verified, "seconds", r->seconds,
                     "why", r->status ? r->why.text : NULL, "caught",
                     r->banned ? r->caught.text : NULL);
    text = line ? json_dumps(line, JSON_COMPACT) : NULL;
    if (text) puts(text);
    fflush(stdout);
    free(text);
    json_decref(line);
}

void peer_help_turn(struct peer_help *p)
{
    struct collaboration_round r;
    if (!p->has_entered) collaboration_enter(p->c, 0);
    p->has_entered = 1;
    if (collaboration_help(p->c, p->tensor, &r)) say(p, &r);
}

/* --- life ------------------------------------------------------------------------------------- */

static int open_tensors(struct peer_help *p, enum pl_compression **method,
                        const struct peer_help_options *o)
{
    const struct optimizer_state *state = &p->model->state;
    p->tensor = optimizer_state_host(state);
    *method = calloc(state->count + 1, sizeof **method);
    if (!p->tensor || !*method) return PL_ENOMEM;
    for (size_t i = 0; i < state->count; i++) {
        size_t n = state->tensors[state->order[i]].n;
        memset(p->tensor[i], 0, n * sizeof **p->tensor);
        compression_named(&(*method)[i], o->compression, n, PL_WIRE_ADAPTIVE);
    }
    return PL_OK;
}

int peer_help_open(struct peer_help **out, const struct peer_help_options *o,
                   const struct peer_model *model, struct swarm *s, const struct rsa_key *key,
                   const char *run, int json, struct pl_err *err)
{
    struct peer_help *p = calloc(1, sizeof *p);
    enum pl_compression *method = NULL;
    struct collaboration_options options = { .run = run,
                                             .host = s->host,
                                             .node = s->node,
                                             .key = key,
                                             .be = &model->be,
                                             .tensors = model->state.count,
                                             .schema = model->state.schema,
                                             .target_batch = o->target_batch,
                                             .matchmaking_time = o->matchmaking_time,
                                             .averaging_timeout = o->averaging_timeout,
                                             .allreduce_timeout = o->allreduce_timeout,
                                             .average_state_every = 1,
                                             .group_size = (size_t)o->group_size,
                                             .group_bits = o->group_bits,
                                             .bandwidth = o->bandwidth,
                                             .clip = o->clip,
                                             .verify = o->verify,
                                             .validation = { .validators = o->verify ? o->validators
                                                                                     : 0 },
                                             .auxiliary = 1 };
    int rc;
    *out = NULL;
    if (!p) return pl_fail(err, PL_ENOMEM, "--auxiliary: no memory");
    p->model = model;
    p->json = json;
    if ((rc = open_tensors(p, &method, o))) pl_fail(err, rc, "--auxiliary: no memory");
    options.method = method;
    if (!rc) rc = collaboration_open(&p->c, &options, err);
    free(method);
    if (rc) peer_help_close(p);
    else *out = p;
    return rc;
}

void peer_help_close(struct peer_help *p)
{
    if (!p) return;
    collaboration_close(p->c);
    optimizer_state_host_free(&p->model->state, p->tensor);
    free(p);
}
