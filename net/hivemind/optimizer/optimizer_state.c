/* optimizer_state.c - the state that a newcomer downloads. [spec hivemind-protocol 7]
 *
 *   tensors   all parameters in the order of the optimizer's groups, then its state's tensors
 *   metadata  epoch, group bits, and the leaves of the optimizer's state_dict in alphabetical
 *             order: hyperparameters of each group, then for each parameter its moments (an index
 *             of a tensor), its step and its norms
 *
 * A state comes from a stranger. So it is checked whole before anything of it is taken: shapes,
 * finite numbers, second moments that are not negative, codes that are within the code book. */
#include "optimizer_state.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The leaves of one parameter, in alphabetical order, as PyTorch's state_dict is flattened:
 * 32-bit moments, and block-wise 8-bit ones with their scales and code books. */
static const char *const leaves_32[] = { "state1",    "state2",      "step",
                                         "step_norm", "trust_ratio", "weight_norm" };
static const char *const leaves_8[] = { "absmax1",     "absmax2",    "qmap1", "qmap2",
                                        "state1",      "state2",     "step",  "step_norm",
                                        "trust_ratio", "weight_norm" };

/* Which form a parameter has is decided by its size, at the optimizer. */
static int is_8bit(const struct optimizer_state *s, size_t i)
{
    size_t first = s->first[s->order[i]];
    return !strcmp(pl_optimizer_state_at(s->optimizer, first).name, "absmax1");
}

/* The leaves that a parameter has at this peer; none if the optimizer is the caller's own. */
static const char *const *leaf_names(const struct optimizer_state *s, size_t i, size_t *n)
{
    int small;
    *n = 0;
    if (!s->optimizer) return NULL;
    small = is_8bit(s, i);
    *n = small ? PL_COUNT(leaves_8) : PL_COUNT(leaves_32);
    return small ? leaves_8 : leaves_32;
}

/* First moments are signed, second ones are not. */
static enum pl_map map_of(const char *name) /* of "qmap1", "state1"; "qmap2", "state2" */
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
    /* Backwards, so that the first array of each tensor is what remains. */
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
    for (size_t i = 0; !rc && i < params->count; i++) {
        const struct pl_param *p = &params->list[i];
        tensors[i] = (struct pl_optimizer_tensor){ p->offset, p->n, p->decay ? options->decay : 0,
                                                   p->name };
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

void optimizer_state_close(struct optimizer_state *s)
{
    free(s->tensors);
    free(s->schema);
    free(s->order);
    free(s->first);
    memset(s, 0, sizeof *s);
}

/* --- giving ----------------------------------------------------------------------------------- */

struct maker {
    struct state_snapshot *snapshot;
    struct training_state meta;
    size_t leaf_room;
    size_t optimizer_tensors;
    int failed;
};

/* Called by the averager when the last download of the snapshot has ended. */
static void release(struct state_snapshot *s)
{
    for (size_t i = 0; i < s->count; i++) free((void *)(uintptr_t)s->tensors[i].data);
    free(s->tensors);
    free(s->metadata);
    free(s);
}

/* Memory for a tensor of the snapshot. */
/* Adds a tensor to the snapshot and returns memory for its values; NULL (and failed) without
 * memory. */
static void *add_tensor(struct maker *m, const struct pl_wire_type *type)
{
    struct state_snapshot *s = m->snapshot;
    size_t n = 0;
    void *data = pl_wire_elements(&n, type, NULL) ? NULL
                                                  : malloc(n * pl_dtype_size(type->dtype) + 1);
    if (!data) {
        m->failed = 1;
        return NULL;
    }
    s->tensors[s->count++] = (struct state_tensor){ *type, PL_COMPRESS_NONE, data };
    return data;
}

/* Adds a leaf of the metadata: a real number, a count, or the index of a tensor. */
static void add_leaf(struct maker *m, struct state_leaf leaf)
{
    if (m->meta.count == m->leaf_room) {
        size_t room = m->leaf_room ? 2 * m->leaf_room : 64;
        struct state_leaf *more = realloc(m->meta.leaves, room * sizeof *more);
        if (!more) {
            m->failed = 1;
            return;
        }
        m->meta.leaves = more;
        m->leaf_room = room;
    }
    m->meta.leaves[m->meta.count++] = leaf;
}

static void add_real(struct maker *m, double x)
{
    add_leaf(m, (struct state_leaf){ .kind = STATE_REAL, .real = x });
}
static void add_count(struct maker *m, int64_t x)
{
    add_leaf(m, (struct state_leaf){ .kind = STATE_COUNT, .index = x });
}

/* A tensor of the optimizer: a leaf with its index, and the tensor itself after all parameters. */
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
    const char *const *names = leaf_names(s, i, &n);
    struct pl_lamb_norms norms = { 0 };
    if (s->optimizer) norms = pl_optimizer_norms(s->optimizer, tensor);
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
            if ((data = add_moment(m, &type))) pl_codebook(data, map_of(names[k]), s->options.rule);
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

/* A frozen copy, made once per epoch: downloads take long, and training must not wait for them,
 * nor change what is sent. */
struct state_snapshot *optimizer_state_snapshot(const struct optimizer_state *s, const float *value,
                                                int64_t epoch, double lr, double initial_lr,
                                                const char *bits)
{
    struct maker m = { .meta = { .epoch = epoch }, .snapshot = calloc(1, sizeof *m.snapshot) };
    struct bytes metadata = { 0 };
    if (!m.snapshot) return NULL;
    /* The metadata are written last: only then are all leaves known. */
    snprintf(m.meta.group_bits, sizeof m.meta.group_bits, "%s", bits);
    m.snapshot->release = release;
    m.snapshot->tensors = calloc((PL_COUNT(leaves_8) + 1) * s->count + 1,
                                 sizeof *m.snapshot->tensors);
    m.failed = !m.snapshot->tensors;
    /* Tensors: parameters first, in the swarm's order. */
    for (size_t i = 0; i < s->count && !m.failed; i++) {
        const struct pl_optimizer_tensor *t = &s->tensors[s->order[i]];
        void *data = add_tensor(&m, &s->schema[i].type);
        if (data && s->be->get(data, value + t->offset, t->n * sizeof(float))) m.failed = 1;
    }
    /* Leaves: "param_groups" comes before "state" in the alphabet. */
    if (s->decayed) add_group(&m, s, 0, s->decayed, s->options.decay, lr, initial_lr);
    if (s->decayed < s->count) add_group(&m, s, s->decayed, s->count, 0, lr, initial_lr);
    for (size_t i = 0; i < s->count && !m.failed; i++) add_param_state(&m, s, i);
    if (!m.failed) m.failed = training_state_write(&metadata, &m.meta) != PL_OK;
    if (!m.failed && (m.snapshot->metadata = malloc(bytes_length(&metadata)))) {
        memcpy(m.snapshot->metadata, bytes_at(&metadata), bytes_length(&metadata));
        m.snapshot->metadata_n = bytes_length(&metadata);
    } else {
        release(m.snapshot);
        m.snapshot = NULL;
    }
    bytes_clear(&metadata);
    training_state_clear(&m.meta);
    return m.snapshot;
}

/* --- taking ----------------------------------------------------------------------------------- */

/* The leaves of all parameters. What comes before them, the groups' options, may differ in
 * number (initial_lr), so positions are counted from the end. */
static size_t state_leaves(const struct optimizer_state *s)
{
    size_t all = 0, n;
    for (size_t i = 0; i < s->count; i++) {
        leaf_names(s, i, &n);
        all += n;
    }
    return all;
}

/* The tensor that a leaf points to, if it has n elements of this type; NULL if not. The index is
 * a stranger's number. */
static const struct tensor_message *leaf_tensor(const struct optimizer_state *s,
                                                const struct state_load *l,
                                                const struct state_leaf *leaf, size_t n,
                                                enum pl_dtype dtype)
{
    size_t at = s->count + (leaf->kind == STATE_TENSOR ? (size_t)leaf->index : 0);
    if (leaf->kind != STATE_TENSOR || (uint64_t)leaf->index > l->count || at >= l->count)
        return NULL;
    if (tensor_elements(&l->tensors[at]) != n || l->tensors[at].type.dtype != dtype) return NULL;
    return &l->tensors[at];
}

/* Values as float32 or bytes, whatever compression the donor has chosen. */
static int decode(void *data, const struct optimizer_state *s, const struct tensor_message *m)
{
    return pl_wire_decode(data, s->be, m->method, &m->type, m->buffer, m->bytes, NULL);
}

/* All finite and >= least: -FLT_MAX for signed values, 0 for second moments and for blocks'
 * absmax. A NaN in a moment would spoil every later step. */
static int all_sound(const struct optimizer_state *s, const struct tensor_message *m, float least)
{
    size_t n = tensor_elements(m), i = 0;
    float *x;
    if (m->type.dtype != PL_F32) return 1;
    if (!(x = pl_alloc(n, sizeof *x))) return 0;
    if (!decode(x, s, m))
        while (i < n && isfinite(x[i]) && x[i] >= least) i++;
    pl_free(x);
    return i == n;
}

/* Decoded second moments are code * absmax of the block. None may be negative: LAMB takes the
 * square root. Some libraries have -1 as the first code of the unsigned book, and use it only in
 * blocks of zeros, whose absmax is 0. */
static int codes_sound(const struct optimizer_state *s, const struct tensor_message *codes,
                       const struct tensor_message *book, const struct tensor_message *absmax)
{
    size_t n = tensor_elements(codes), i = 0;
    float value[PL_CODES], *size = pl_alloc(tensor_elements(absmax), sizeof *size);
    uint8_t *code = pl_alloc(n, 1);
    if (code && size && !decode(code, s, codes) && !decode(value, s, book) &&
        !decode(size, s, absmax))
        while (i < n && (value[code[i]] >= 0 || size[i / s->options.block] == 0)) i++;
    pl_free(code);
    pl_free(size);
    return i == n;
}

/* A code book: every code is within [-1, 1], so no moment decodes to more than its block's
 * absmax. */
static int is_book(const struct optimizer_state *s, const struct tensor_message *m)
{
    float book[PL_CODES];
    size_t k = 0;
    if (!m || decode(book, s, m)) return 0;
    while (k < PL_CODES && fabsf(book[k]) <= 1) k++;
    return k == PL_CODES;
}

/* Translates codes from the sender's code book to ours, if they differ:
 *
 *   x = code_theirs * absmax      (absmax', codes) = quantize(x) with our book
 *
 * The leaves stand in alphabetical order, so absmax is four and the book two before the codes. */
static int recode(struct optimizer_state *s, const struct state_load *l, uint8_t *codes, size_t n,
                  const struct state_leaf *leaf, enum pl_map map, size_t array)
{
    const struct tensor_message *m = leaf_tensor(s, l, leaf - 2, PL_CODES, PL_F32);
    size_t blocks = pl_blocks(n, s->options.block);
    float theirs[PL_CODES], ours[PL_CODES], *x, *absmax;
    int rc = decode(theirs, s, m);
    pl_codebook(ours, map, s->options.rule);
    if (rc || !memcmp(theirs, ours, sizeof ours)) return rc;
    x = pl_alloc(n, sizeof *x);
    absmax = pl_alloc(blocks, sizeof *absmax);
    if (!x || !absmax) rc = PL_ENOMEM;
    if (!rc) rc = decode(absmax, s, leaf_tensor(s, l, leaf - 4, blocks, PL_F32));
    if (!rc) rc = ref_dequantize(x, codes, absmax, n, s->options.block, theirs);
    if (!rc) rc = ref_quantize(codes, absmax, x, n, s->options.block, map, s->options.rule);
    if (!rc) rc = pl_optimizer_state_put(s->optimizer, array - 2, absmax);
    pl_free(x);
    pl_free(absmax);
    return rc;
}

/* Visits all moments in the order of their leaves: first with put 0 to check every one, then
 * with put 1 to take them. So nothing of a state is used before all of it was found sound. */
static int walk(struct optimizer_state *s, const struct state_load *l,
                const struct training_state *t, int put, struct pl_err *err)
{
    /* Groups' options are not read: ours are set by our own command line. */
    size_t at = t->count - state_leaves(s);
    for (size_t i = 0; i < s->count; i++) {
        size_t n, array = s->first[s->order[i]];
        const char *const *names = leaf_names(s, i, &n);
        for (size_t k = 0; k < n; k++, at++) {
            const struct state_leaf *leaf = &t->leaves[at];
            const struct tensor_message *m;
            struct pl_optimizer_state a;
            void *data;
            int rc = PL_OK;
            /* The number of steps, for Adam's correction and the schedule; a stranger's number,
             * so bounded. */
            if (!strcmp(names[k], "step")) {
                if (leaf->kind != STATE_COUNT || leaf->index < 0 || leaf->index > STATE_STEPS_MAX)
                    return pl_fail(err, PL_EFORMAT, "state: parameter %zu has no step", i);
                /* One counter for all parameters, as they step together. */
                if (put) pl_optimizer_set_steps(s->optimizer, (uint64_t)leaf->index);
            }
            if (!put && !strncmp(names[k], "qmap", 4) &&
                !is_book(s, leaf_tensor(s, l, leaf, PL_CODES, PL_F32)))
                return pl_fail(err, PL_EFORMAT,
                               "state: parameter %zu has no \"%s\" of %d codes up to 1", i,
                               names[k], PL_CODES);
            /* Norms and code books are not kept: they follow from the rest. */
            if (strncmp(names[k], "state", 5) && strncmp(names[k], "absmax", 6)) continue;
            a = pl_optimizer_state_at(s->optimizer, array);
            /* Same number of elements and same width as ours: else it is another optimizer. */
            m = leaf_tensor(s, l, leaf, a.n, a.element_size == 1 ? PL_U8 : PL_F32);
            if (!m)
                return pl_fail(err, PL_EUSE,
                               "state: parameter %zu has no \"%s\" of %zu elements as ours has", i,
                               names[k], a.n);
            if (!put && !all_sound(s, m, strcmp(names[k], "state1") ? 0 : -FLT_MAX))
                return pl_fail(err, PL_EFORMAT,
                               "state: \"%s\" of parameter %zu is not finite, or "
                               "negative where it cannot be",
                               names[k], i);
            /* In alphabetical order: absmax2, qmap1, qmap2, state1, state2. So the book lies two
             * before the codes, the scales four. */
            if (!put && a.element_size == 1 && !strcmp(names[k], "state2") &&
                !codes_sound(s, m, leaf_tensor(s, l, leaf - 2, PL_CODES, PL_F32),
                             leaf_tensor(s, l, leaf - 4, pl_blocks(a.n, s->options.block), PL_F32)))
                return pl_fail(err, PL_EFORMAT, "state: parameter %zu has negative second moments",
                               i);
            if (put) {
                if (!(data = pl_alloc(a.n, a.element_size)))
                    return pl_fail(err, PL_ENOMEM, "state: no memory");
                /* Second pass: decode, translate codes if need be, hand over. */
                rc = decode(data, s, m);
                if (!rc && a.element_size == 1)
                    rc = recode(s, l, data, a.n, leaf, map_of(names[k]), array);
                if (!rc) rc = pl_optimizer_state_put(s->optimizer, array, data);
                pl_free(data);
            }
            if (rc) return pl_fail(err, rc, "state: %s", pl_status_name(rc));
            array++;
        }
    }
    return PL_OK;
}

int optimizer_state_check(const struct optimizer_state *s, const struct state_load *l,
                          int64_t least, struct pl_err *err)
{
    struct training_state t;
    int rc = training_state_read(&t, l->metadata, l->metadata_n, err);
    if (rc) return rc;
    /* The cheap checks first, tensors last: a wrong state costs little. */
    if (t.epoch > STATE_STEPS_MAX)
        rc = pl_fail(err, PL_EFORMAT, "state: of epoch %lld, expected at most %lld",
                     (long long)t.epoch, (long long)STATE_STEPS_MAX);
    else if (t.epoch < least)
        rc = pl_fail(err, PL_EPROTO, "state: of epoch %lld, expected at least %lld",
                     (long long)t.epoch, (long long)least);
    else if (l->count < s->count)
        rc = pl_fail(err, PL_EUSE, "state: %zu tensors, expected %zu parameters first", l->count,
                     s->count);
    else if (t.count <= state_leaves(s))
        rc = pl_fail(err, PL_EUSE, "state: %zu leaves of the optimizer, expected more than %zu",
                     t.count, state_leaves(s));
    for (size_t i = 0; !rc && i < s->count; i++) {
        const struct tensor_message *m = &l->tensors[i];
        size_t n = s->tensors[s->order[i]].n;
        /* By the number of elements, not the shape: positions decide, as in hivemind. */
        if (m->type.dtype != PL_F32 || tensor_elements(m) != n)
            rc = pl_fail(err, PL_EUSE,
                         "state: parameter %zu has %zu elements, ours has %zu float32 ones", i,
                         tensor_elements(m), n);
        else if (!all_sound(s, m, -FLT_MAX))
            rc = pl_fail(err, PL_EFORMAT, "state: parameter %zu is not finite", i);
    }
    if (!rc) rc = walk((struct optimizer_state *)(uintptr_t)s, l, &t, 0, err); /* only looks */
    training_state_clear(&t);
    return rc;
}

int optimizer_state_take(struct optimizer_state *s, float *value, int64_t *epoch,
                         const struct state_load *l, struct pl_err *err)
{
    struct training_state t;
    int rc = training_state_read(&t, l->metadata, l->metadata_n, err);
    if (rc) return rc;
    for (size_t i = 0; !rc && i < s->count; i++) {
        const struct pl_optimizer_tensor *to = &s->tensors[s->order[i]];
        float *x = pl_alloc(to->n, sizeof *x);
        /* Decoded in host memory, then put on the device, one tensor at a time. */
        rc = x ? decode(x, s, &l->tensors[i]) : PL_ENOMEM;
        if (!rc) rc = s->be->put(value + to->offset, x, to->n * sizeof *x);
        pl_free(x);
        if (rc) pl_fail(err, rc, "state: %s", pl_status_name(rc));
    }
    /* Whatever the optimizer has cached of the parameters is out of date. */
    if (s->optimizer) pl_optimizer_written(s->optimizer, value);
    if (!rc) rc = walk(s, l, &t, 1, err);
    *epoch = t.epoch;
    training_state_clear(&t);
    return rc;
}
