/* optimizer_state_take.c - a state of another peer becomes ours. [spec hivemind-protocol 7]
 *
 * A state comes from a stranger. So it is checked whole before anything of it is taken: shapes,
 * finite numbers, second moments that are not negative, codes that are within the code book.
 *
 * Positions decide, since tensors have no names on the wire: the i-th tensor is the i-th parameter
 * of the swarm's order, and the last leaves are those of the parameters' moments. */
#include "optimizer_state_internal.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The leaves of all parameters. Before them stand the groups' options, whose number may differ
 * (initial_lr), so positions are counted from the end. */
static size_t state_leaves(const struct optimizer_state *s)
{
    size_t all = 0, n;
    for (size_t i = 0; i < s->count; i++) {
        optimizer_state_leaves(s, i, &n);
        all += n;
    }
    return all + (size_t)s->is_whole;
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
static int all_finite(const struct optimizer_state *s, const struct tensor_message *m, float least)
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
static int codes_valid(const struct optimizer_state *s, const struct tensor_message *codes,
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
    /* The same book, as with another peer of ours: the codes stay as they are. */
    if (rc || !memcmp(theirs, ours, sizeof ours)) return rc;
    x = pl_alloc(n, sizeof *x);
    absmax = pl_alloc(blocks, sizeof *absmax);
    if (!x || !absmax) rc = PL_ENOMEM;
    if (!rc) rc = decode(absmax, s, leaf_tensor(s, l, leaf - 4, blocks, PL_F32));
    if (!rc) rc = ref_dequantize(x, codes, absmax, n, s->options.block, theirs);
    if (!rc) rc = ref_quantize(codes, absmax, x, n, s->options.block, map, s->options.rule);
    /* The scales were put before with the sender's values: codes come after absmax. */
    if (!rc) rc = pl_optimizer_state_put(s->optimizer, array - 2, absmax);
    pl_free(x);
    pl_free(absmax);
    return rc;
}

/* The outer momentum is the last leaf of each parameter: checked with put 0, taken with put 1. */
static int walk_outer(struct optimizer_state *s, const struct state_load *l,
                      const struct training_state *t, int put, struct pl_err *err)
{
    float *b = pl_outer_get(s->outer, "momentum");
    for (size_t i = 0; i < s->count; i++) {
        const struct pl_optimizer_tensor *to = &s->tensors[s->order[i]];
        const struct tensor_message *m = leaf_tensor(s, l, &t->leaves[t->count - s->count + i],
                                                     to->n, PL_F32);
        float *x;
        int rc;
        if (!m)
            return pl_fail(err, PL_EUSE,
                           "state: parameter %zu has no outer momentum of %zu elements", i, to->n);
        if (!put && !all_finite(s, m, -FLT_MAX))
            return pl_fail(err, PL_EFORMAT, "state: the momentum of parameter %zu is not finite",
                           i);
        if (!put) continue;
        x = pl_alloc(to->n, sizeof *x);
        rc = x ? decode(x, s, m) : PL_ENOMEM;
        if (!rc) rc = s->be->put(b + to->offset, x, to->n * sizeof *x);
        pl_free(x);
        if (rc) return pl_fail(err, rc, "state: %s", pl_status_name(rc));
    }
    return PL_OK;
}

/* The part of an algorithm's state that all peers share is the last leaf. */
static int walk_whole_outer(struct optimizer_state *s, const struct state_load *l,
                            const struct training_state *t, int put, struct pl_err *err)
{
    const size_t n = pl_outer_shared_bytes(s->outer);
    const struct tensor_message *m = leaf_tensor(s, l, &t->leaves[t->count - 1], n, PL_U8);
    uint8_t *data;
    int rc;
    if (!m)
        return pl_fail(err, PL_EUSE, "state: no %zu bytes of %s as ours has: another algorithm?", n,
                       s->outer->algorithm->name);
    if (!(data = pl_alloc(n, 1))) return pl_fail(err, PL_ENOMEM, "state: no memory");
    rc = decode(data, s, m);
    if (rc) pl_fail(err, rc, "state: %s", pl_status_name(rc));
    else if (put) rc = pl_outer_load_shared(s->outer, data, err);
    else rc = pl_outer_check_shared(s->outer, data, err);
    pl_free(data);
    return rc;
}

/* Visits all moments in the order of their leaves: first with put 0 to check every one, then
 * with put 1 to take them. So nothing of a state is used before all of it was found sound. */
static int walk(struct optimizer_state *s, const struct state_load *l,
                const struct training_state *t, int put, struct pl_err *err)
{
    /* Groups' options are not read: ours are set by our own command line. */
    size_t at = t->count - state_leaves(s);
    if (s->outer && !s->is_whole) return walk_outer(s, l, t, put, err);
    for (size_t i = 0; i < s->count; i++) {
        size_t n, array = s->first[s->order[i]];
        const char *const *names = optimizer_state_leaves(s, i, &n);
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
            /* Code books come before the codes that they decode, so a bad one is found first. */
            if (!put && !strncmp(names[k], "qmap", 4) &&
                !is_book(s, leaf_tensor(s, l, leaf, PL_CODES, PL_F32)))
                return pl_fail(err, PL_EFORMAT,
                               "state: parameter %zu has no \"%s\" of %d codes up to 1", i,
                               names[k], PL_CODES);
            /* Norms and code books are not kept: they follow from the rest. */
            if (strncmp(names[k], "state", 5) && strncmp(names[k], "absmax", 6)) continue;
            a = pl_optimizer_state_at(s->optimizer, array);
            /* It must have our number of elements and our width; otherwise it belongs to another
             * optimizer. */
            m = leaf_tensor(s, l, leaf, a.n, a.element_size == 1 ? PL_U8 : PL_F32);
            if (!m)
                return pl_fail(err, PL_EUSE,
                               "state: parameter %zu has no \"%s\" of %zu elements as ours has", i,
                               names[k], a.n);
            if (!put && !all_finite(s, m, strcmp(names[k], "state1") ? 0 : -FLT_MAX))
                return pl_fail(err, PL_EFORMAT,
                               "state: \"%s\" of parameter %zu is not finite, or "
                               "negative where it cannot be",
                               names[k], i);
            /* In alphabetical order: absmax2, qmap1, qmap2, state1, state2. So the book lies two
             * before the codes, the scales four. */
            if (!put && a.element_size == 1 && !strcmp(names[k], "state2") &&
                !codes_valid(s, m, leaf_tensor(s, l, leaf - 2, PL_CODES, PL_F32),
                             leaf_tensor(s, l, leaf - 4, pl_blocks(a.n, s->options.block), PL_F32)))
                return pl_fail(err, PL_EFORMAT, "state: parameter %zu has negative second moments",
                               i);
            if (put) {
                if (!(data = pl_alloc(a.n, a.element_size)))
                    return pl_fail(err, PL_ENOMEM, "state: no memory");
                /* Second pass: decode, translate codes if need be, hand over. */
                rc = decode(data, s, m);
                if (!rc && a.element_size == 1)
                    rc = recode(s, l, data, a.n, leaf, optimizer_state_map(names[k]), array);
                if (!rc) rc = pl_optimizer_state_put(s->optimizer, array, data);
                pl_free(data);
            }
            if (rc) return pl_fail(err, rc, "state: %s", pl_status_name(rc));
            array++;
        }
    }
    return s->is_whole ? walk_whole_outer(s, l, t, put, err) : PL_OK;
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
    /* hivemind refuses a state older than its own; a peer that catches up wants a later one. */
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
        else if (!all_finite(s, m, -FLT_MAX))
            rc = pl_fail(err, PL_EFORMAT, "state: parameter %zu is not finite", i);
    }
    if (!rc) rc = walk((struct optimizer_state *)(uintptr_t)s, l, &t, 0, err); /* checks only */
    training_state_clear(&t);
    return rc;
}

int optimizer_state_take(struct optimizer_state *s, float *value, int64_t *epoch,
                         const struct state_load *l, struct pl_err *err)
{
    struct training_state t;
    size_t largest = 0;
    float *x, *phi = s->outer ? pl_outer_get(s->outer, "phi") : NULL;
    int rc = training_state_read(&t, l->metadata, l->metadata_n, err);
    if (rc) return rc;
    for (size_t i = 0; i < s->count; i++)
        if (s->tensors[i].n > largest) largest = s->tensors[i].n;
    /* Before the first tensor changes. From here on only this machine's memory or device can fail:
     * then the epoch stays the old one, and the state is requested again. */
    if (!(x = pl_alloc(largest, sizeof *x))) rc = PL_ENOMEM;
    for (size_t i = 0; !rc && i < s->count; i++) {
        const struct pl_optimizer_tensor *to = &s->tensors[s->order[i]];
        /* Decoded in host memory, then put on the device, one tensor at a time. */
        rc = decode(x, s, &l->tensors[i]);
        if (!rc) rc = s->be->put(value + to->offset, x, to->n * sizeof *x);
        if (!rc && phi) rc = s->be->put(phi + to->offset, x, to->n * sizeof *x);
    }
    pl_free(x);
    if (rc) pl_fail(err, rc, "state: %s", pl_status_name(rc));
    /* The optimizer's cached copies of the parameters are out of date. */
    if (s->optimizer) pl_optimizer_written(s->optimizer, value);
    if (!rc) rc = walk(s, l, &t, 1, err);
    if (!rc && s->outer) pl_outer_restart(s->outer);
    if (!rc) *epoch = t.epoch;
    training_state_clear(&t);
    return rc;
}
