/* optimizer_state.c - the state that a newcomer downloads: which tensors and leaves it has, in
 * which order. [spec hivemind-protocol 7]
 *
 *   tensors   all parameters in the order of the optimizer's groups, then its state's tensors
 *   metadata  epoch, group bits, and the leaves of the optimizer's state_dict in alphabetical
 *             order: hyperparameters of each group, then for each parameter its moments (an index
 *             of a tensor), its step and its norms
 *
 * optimizer_state_give.c writes it, optimizer_state_take.c checks and reads it. */
#include "optimizer_state_internal.h"

#include <stdlib.h>
#include <string.h>

/* The leaves of one parameter, in alphabetical order, as PyTorch's state_dict is flattened:
 * 32-bit moments, and block-wise 8-bit ones with their scales and code books. Muon's matrices have
 * one moment. */
static const char *const leaves_32[] = { "state1",    "state2",      "step",
                                         "step_norm", "trust_ratio", "weight_norm" };
static const char *const leaves_muon[] = { "state1", "step", "step_norm", "trust_ratio",
                                           "weight_norm" };
static const char *const leaves_8[STATE_LEAVES_MAX] = { "absmax1",    "absmax2",   "qmap1",
                                                        "qmap2",      "state1",    "state2",
                                                        "step",       "step_norm", "trust_ratio",
                                                        "weight_norm" };

/* Which form a parameter has is decided by its size, at the optimizer: small tensors keep 32 bits,
 * where 8 would save little memory. */
static int is_8bit(const struct optimizer_state *s, size_t i)
{
    size_t first = s->first[s->order[i]];
    return !strcmp(pl_optimizer_state_at(s->optimizer, first).name, "absmax1");
}

/* Of torch.optim.SGD with a momentum, which OpenDiLoCo takes for its outer step. */
static const char *const leaves_outer[] = { "momentum_buffer" };

/* 1: between outer steps each peer trains alone, so moments are its own, and not in the state. */
static int has_own_moments(const struct optimizer_state *s)
{
    return s->outer && !s->outer->algorithm->sends_gradients;
}

const char *const *optimizer_state_leaves(const struct optimizer_state *s, size_t i, size_t *n)
{
    int small;
    *n = 1;
    /* One leaf, the outer momentum b; or none; or the moments. */
    if (s->outer && !s->is_whole) return leaves_outer;
    *n = 0;
    if (!s->optimizer || has_own_moments(s)) return NULL;
    if (s->options.kind == PL_MUON && s->tensors[s->order[i]].rows) {
        *n = PL_COUNT(leaves_muon);
        return leaves_muon;
    }
    small = is_8bit(s, i);
    *n = small ? PL_COUNT(leaves_8) : PL_COUNT(leaves_32);
    return small ? leaves_8 : leaves_32;
}

/* Adam and LAMB keep m = mean of g, which has a sign, and v = mean of g^2, which has none. First
 * moments are signed, second ones are not. */
enum pl_map optimizer_state_map(const char *name) /* of "qmap1", "state1"; "qmap2", "state2" */
{
    return name[strlen(name) - 1] == '1' ? PL_MAP_SIGNED : PL_MAP_UNSIGNED;
}

int optimizer_state_open(struct optimizer_state *s, struct pl_optimizer *optimizer,
                         const struct pl_optimizer_options *options, const struct pl_backend *be,
                         const struct pl_optimizer_tensor *tensors,
                         const struct pl_wire_type *types, size_t count, struct pl_err *err)
{
    size_t n = 0;
    *s = (struct optimizer_state){ .optimizer = optimizer,
                                   .options = *options,
                                   .be = be,
                                   .count = count,
                                   .tensors = calloc(count + 1, sizeof *s->tensors),
                                   .schema = calloc(count + 1, sizeof *s->schema),
                                   .order = calloc(count + 1, sizeof *s->order),
                                   .first = calloc(count + 1, sizeof *s->first) };
    if (!s->tensors || !s->schema || !s->order || !s->first) {
        optimizer_state_close(s);
        return pl_fail(err, PL_ENOMEM, "training state: no memory");
    }
    memcpy(s->tensors, tensors, count * sizeof *tensors);
    /* The order of the swarm: group with weight decay first. Each peer must use the same, since
     * tensors have no names on the wire. [spec hivemind-protocol 10] */
    for (int decayed = 1; decayed >= 0; decayed--) {
        for (size_t i = 0; i < count; i++)
            if ((tensors[i].decay > 0) == decayed) s->order[n++] = i;
        if (decayed) s->decayed = n;
    }
    for (size_t i = 0; i < count; i++) s->schema[i].type = types[s->order[i]];
    /* Where each tensor's arrays begin among the optimizer's: moments lie in the order of leaves.
     * Counted backwards, so that the first array of each tensor remains. */
    for (size_t k = optimizer ? pl_optimizer_state_count(optimizer) : 0; k-- > 0;)
        s->first[pl_optimizer_state_at(optimizer, k).tensor] = k;
    return PL_OK;
}

/* A model's parameters with their shapes and decay, as tensors of the optimizer. */
int optimizer_state_open_params(struct optimizer_state *s, struct pl_optimizer *optimizer,
                                const struct pl_optimizer_options *options,
                                const struct pl_params *params, struct pl_err *err)
{
    struct pl_optimizer_tensor *tensors = calloc(params->count + 1, sizeof *tensors);
    struct pl_wire_type *types = calloc(params->count + 1, sizeof *types);
    int rc = tensors && types ? PL_OK : pl_fail(err, PL_ENOMEM, "training state: no memory");
    /* Norms and biases have no decay: p->decay says so, and it decides the group. */
    for (size_t i = 0; !rc && i < params->count; i++) {
        const struct pl_param *p = &params->list[i];
        tensors[i] = pl_optimizer_tensor_of(p, options->decay);
        types[i] = (struct pl_wire_type){ .dtype = PL_F32, .dims = p->dims };
        memcpy(types[i].size, p->shape, (size_t)p->dims * sizeof *p->shape);
    }
    if (!rc)
        rc = optimizer_state_open(s, optimizer, options, params->be, tensors, types, params->count,
                                  err);
    free(tensors);
    free(types);
    return rc;
}

/* The state's parameters are phi then, which all agree on, not those that the donor trains. */
int optimizer_state_use_outer(struct optimizer_state *s, struct pl_outer *outer)
{
    struct schema_tensor *schema = calloc(s->count + 1, sizeof *schema);
    if (!schema) return PL_ENOMEM;
    s->outer = outer;
    /* One group: tensors with and without decay stay in one order. */
    for (size_t i = 0; i < s->count; i++) schema[s->order[i]] = s->schema[i];
    free(s->schema);
    s->schema = schema;
    for (size_t i = 0; i < s->count; i++) s->order[i] = i;
    return PL_OK;
}

/* Algorithms that hivemind does not have: their shared state travels as one tensor of bytes, which
 * only potluck's peers understand. */
void optimizer_state_use_whole_outer(struct optimizer_state *s, struct pl_outer *outer)
{
    s->outer = outer;
    s->is_whole = 1;
}

/* The algorithm sees tensors in the optimizer's order, in which x lies in memory; shapes are stored
 * in the swarm's. */
int optimizer_state_open_outer(struct pl_outer **outer, const struct optimizer_state *s,
                               const struct pl_outer_algorithm *algorithm,
                               struct pl_outer_setup *setup, const float *x, struct pl_err *err)
{
    struct pl_outer_tensor *tensors = calloc(s->count + 1, sizeof *tensors);
    int rc;
    *outer = NULL;
    if (!tensors) return pl_fail(err, PL_ENOMEM, "training state: no memory");
    for (size_t i = 0; i < s->count; i++) {
        struct pl_outer_tensor *to = &tensors[s->order[i]];
        const struct pl_wire_type *type = &s->schema[i].type;
        *to = (struct pl_outer_tensor){ .offset = s->tensors[s->order[i]].offset,
                                        .n = s->tensors[s->order[i]].n,
                                        .axes = type->dims };
        memcpy(to->shape, type->size, (size_t)type->dims * sizeof *to->shape);
    }
    /* Streaming DiLoCo's fragments: the same at all peers, since they follow from shapes alone. */
    pl_outer_cut(tensors, (int)s->count, setup->fragments);
    setup->be = s->be;
    setup->tensors = tensors;
    setup->count = (int)s->count;
    rc = pl_outer_open(outer, algorithm, setup, x, err);
    free(tensors);
    return rc;
}

void optimizer_state_close(struct optimizer_state *s)
{
    free(s->tensors);
    free(s->schema);
    free(s->order);
    free(s->first);
    memset(s, 0, sizeof *s);
}
