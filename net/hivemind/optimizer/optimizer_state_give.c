/* optimizer_state_give.c - a frozen copy of parameters and moments, in the form in which hivemind's
 * peers load it. [spec hivemind-protocol 7]
 *
 *   state_dict = { param_groups: [ { betas, eps, (initial_lr), lr, params, weight_decay } ... ],
 *                  state: { i: { (absmax, qmap,) state1, state2, step, norms } ... } }
 *
 * PyTorch's state_dict is flattened: maps in alphabetical order of their keys, lists in order. A
 * tensor's leaf is its index among the tensors that follow the parameters; any other leaf is the
 * value itself. The receiver must have the same number of leaves, so each one counts. */
#include "optimizer_state_internal.h"
#include "ref/small.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A snapshot while it is written. */
struct maker {
    struct state_snapshot *snapshot;
    struct training_state meta;
    size_t leaf_capacity;
    size_t optimizer_tensors;
    int failed;
};

/* Adds a tensor to the snapshot and returns memory for its values; NULL (and failed) without
 * memory. */
static void *add_tensor(struct maker *m, const struct pl_wire_type *type)
{
    void *data = state_snapshot_add(m->snapshot, type);
    m->failed |= !data;
    return data;
}

/* Adds a leaf of the metadata: a real number, a count, or the index of a tensor. */
static void add_leaf(struct maker *m, struct state_leaf leaf)
{
    if (pl_grow(&m->meta.leaves, m->meta.count, &m->leaf_capacity, 64)) m->failed = 1;
    else m->meta.leaves[m->meta.count++] = leaf;
}

static void add_real(struct maker *m, double x)
{
    add_leaf(m, (struct state_leaf){ .kind = STATE_REAL, .real = x });
}
static void add_count(struct maker *m, int64_t x)
{
    add_leaf(m, (struct state_leaf){ .kind = STATE_COUNT, .index = x });
}

/* A tensor of the optimizer counts from 0 in its leaf, and lies behind the parameters: a leaf with
 * its index, and the tensor itself after all parameters. */
static void *add_moment(struct maker *m, const struct pl_wire_type *type)
{
    add_leaf(m,
             (struct state_leaf){ .kind = STATE_TENSOR, .index = (int64_t)m->optimizer_tensors++ });
    return add_tensor(m, type);
}

/* A parameter group's options in alphabetical order: betas, eps, initial_lr (only with a
 * schedule), lr, params (their running numbers), weight_decay. */
static void add_group(struct maker *m, const struct optimizer_state *s, size_t begin, size_t end,
                      double decay, double lr, double initial_lr)
{
    add_real(m, s->options.beta1);
    add_real(m, s->options.beta2);
    add_real(m, s->options.eps);
    if (initial_lr >= 0) add_real(m, initial_lr);
    add_real(m, lr);
    for (size_t i = begin; i < end; i++) add_count(m, (int64_t)i);
    add_real(m, decay);
}

static void add_truth(struct maker *m, int x)
{
    add_leaf(m, (struct state_leaf){ .kind = STATE_TRUTH, .index = x });
}

/* The options of torch.optim.SGD: dampening, differentiable, foreach, lr, maximize, momentum,
 * nesterov, params, weight_decay. [spec outer-steps 4] */
static void add_outer_group(struct maker *m, const struct optimizer_state *s)
{
    const struct pl_outer_setup *o = &s->outer->setup;
    add_count(m, 0);
    add_truth(m, 0);
    add_leaf(m, (struct state_leaf){ .kind = STATE_NONE });
    add_real(m, o->nu);
    add_truth(m, 0);
    add_real(m, o->mu);
    add_truth(m, o->mu > 0);
    for (size_t i = 0; i < s->count; i++) add_count(m, (int64_t)i);
    add_count(m, 0);
}

/* b of one parameter. */
static void add_outer_momentum(struct maker *m, const struct optimizer_state *s, size_t i)
{
    const struct pl_optimizer_tensor *t = &s->tensors[s->order[i]];
    void *data = add_moment(m, &s->schema[i].type);
    const float *b = pl_outer_get(s->outer, "momentum");
    if (data && s->be->get(data, b + t->offset, t->n * sizeof *b)) m->failed = 1;
}

/* All that peers share of the algorithm's state, as bytes. */
static void add_whole_outer(struct maker *m, const struct optimizer_state *s)
{
    const size_t n = pl_outer_shared_bytes(s->outer);
    const struct pl_wire_type type = { .dtype = PL_U8, .dims = 1, .size = { (int64_t)n } };
    void *data = add_moment(m, &type);
    if (data && pl_outer_save_shared(s->outer, data)) m->failed = 1;
}

/* Norms are tensors of no axes in PyTorch's state: four bytes and an empty shape. */
static void add_scalar(struct maker *m, float x)
{
    const struct pl_wire_type type = { .dtype = PL_F32 };
    float *data = add_moment(m, &type);
    if (data) *data = x;
}

/* One parameter's leaves; a tensor leaf is an index into the tensors that follow the parameters. */
static void add_param_state(struct maker *m, const struct optimizer_state *s, size_t i)
{
    size_t n, tensor = s->order[i], array = s->first[tensor];
    const char *const *names = optimizer_state_leaves(s, i, &n);
    struct pl_lamb_norms norms = { 0 };
    if (s->optimizer) norms = pl_optimizer_norms(s->optimizer, tensor);
    /* The names are in alphabetical order, so this is the order of the leaves as well. */
    for (size_t k = 0; k < n && !m->failed; k++) {
        struct pl_wire_type type = { .dtype = PL_F32, .dims = 1 };
        void *data;
        if (!strcmp(names[k], "step")) add_count(m, (int64_t)pl_optimizer_steps(s->optimizer));
        else if (!strcmp(names[k], "step_norm")) add_scalar(m, norms.step);
        else if (!strcmp(names[k], "trust_ratio")) add_scalar(m, norms.trust);
        else if (!strcmp(names[k], "weight_norm")) add_scalar(m, norms.weight);
        else if (!strncmp(names[k], "qmap", 4)) {
            type.size[0] = PL_CODES;
            /* The code book travels with the codes: the receiver may decode by another rule. */
            if ((data = add_moment(m, &type)))
                pl_codebook(data, optimizer_state_map(names[k]), s->options.rule);
        } else {
            struct pl_optimizer_state a = pl_optimizer_state_at(s->optimizer, array);
            /* Moments have the parameter's shape; absmax has one number for each block. */
            if (!strncmp(names[k], "state", 5)) type = s->schema[i].type;
            else type.size[0] = (int64_t)a.n;
            if (a.element_size == 1) type.dtype = PL_U8;
            if ((data = add_moment(m, &type)) && pl_optimizer_state_get(s->optimizer, array, data))
                m->failed = 1;
            array++;
        }
    }
}

/* A frozen copy, made once per epoch: downloads take long; training must neither wait for them nor
 * change the values being sent. */
struct state_snapshot *optimizer_state_snapshot(const struct optimizer_state *s, const float *value,
                                                int64_t epoch, double lr, double initial_lr,
                                                const char *bits)
{
    struct maker m = { .meta = { .epoch = epoch },
                       .snapshot = state_snapshot_new((STATE_LEAVES_MAX + 1) * s->count + 1) };
    struct bytes metadata = { 0 };
    if (!m.snapshot) return NULL;
    /* The metadata are written last: only then are all leaves known. */
    snprintf(m.meta.group_bits, sizeof m.meta.group_bits, "%s", bits);
    /* Tensors: parameters first, in the swarm's order; with local steps that is phi, not this
     * peer's own x. */
    if (s->outer && pl_outer_get(s->outer, "phi")) value = pl_outer_get(s->outer, "phi");
    for (size_t i = 0; i < s->count && !m.failed; i++) {
        const struct pl_optimizer_tensor *t = &s->tensors[s->order[i]];
        void *data = add_tensor(&m, &s->schema[i].type);
        /* The device's copy waits for the step that writes the parameters. */
        if (data && s->be->get(data, value + t->offset, t->n * sizeof(float))) m.failed = 1;
    }
    /* Leaves: "param_groups" comes before "state" in the alphabet. */
    if (s->outer && !s->is_whole) add_outer_group(&m, s);
    else if (s->decayed) add_group(&m, s, 0, s->decayed, s->options.decay, lr, initial_lr);
    if ((!s->outer || s->is_whole) && s->decayed < s->count)
        add_group(&m, s, s->decayed, s->count, 0, lr, initial_lr);
    for (size_t i = 0; i < s->count && !m.failed; i++)
        if (s->outer && !s->is_whole) add_outer_momentum(&m, s, i);
        else add_param_state(&m, s, i);
    if (s->is_whole && !m.failed) add_whole_outer(&m, s);
    if (!m.failed) m.failed = training_state_write(&metadata, &m.meta) != PL_OK;
    if (m.failed || state_snapshot_describe(m.snapshot, &metadata)) {
        state_snapshot_free(m.snapshot);
        m.snapshot = NULL;
    }
    bytes_clear(&metadata);
    training_state_clear(&m.meta);
    return m.snapshot;
}
