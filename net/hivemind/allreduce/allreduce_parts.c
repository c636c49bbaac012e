/* allreduce_parts.c - one part: its values, how it is compressed, how many bytes that makes, and
 * the place of others' messages of it.
 *
 * A part is a run of values of one tensor, and each has one reducer. Parts of ours go through a
 * ring of ALLREDUCE_WINDOW slots:
 *
 *   k        0  1  2  3  4  5  6 ...      part k lies in slot k % ALLREDUCE_WINDOW
 *   slot     0  1  2  3  0  1  2 ...
 *
 * Senders, receivers and reducers all ask these questions, so this file is
 * below all of them. */
#include "allreduce_internal.h"

#include <math.h>

#define KEPT_HEADER 128 /* bytes of a message's other fields; most take less */

/* Empty parts travel uncompressed: the 8-bit methods know no empty tensor. */
enum pl_compression allreduce_method(const struct allreduce *x, const struct pl_part *part)
{
    return part->length ? x->o.method[part->tensor] : PL_COMPRESS_NONE;
}

float *allreduce_values(const struct allreduce *x, const struct pl_part *part)
{
    return x->o.tensor[part->tensor] + part->start;
}

/* Of any 1 / upload parts in a row one has its values: part i if floor(i * upload + from) grows. */
int allreduce_is_blank(const struct allreduce *x, size_t part)
{
    const double at = (double)part * x->o.upload + x->o.upload_from;
    return x->o.upload > 0 && x->parts[part].length > 1 && floor(at + x->o.upload) == floor(at);
}

/* With 8 bits a value: one byte each and a table of 256 float32; with 16 two; uncompressed
 * four. */
size_t allreduce_part_bytes(const struct allreduce *x, const struct pl_part *part)
{
    struct pl_wire_type type = { .dtype = PL_F32, .dims = 1, .size = { (int64_t)part->length } };
    size_t bytes;
    return pl_wire_bytes(&bytes, allreduce_method(x, part), &type, NULL) ? 0 : bytes;
}

/* A ring: part k and part k + ALLREDUCE_WINDOW share a slot, and never at the same time. */
struct slot *allreduce_slot(struct allreduce *x, size_t k)
{
    return &x->reducing.slot[k % ALLREDUCE_WINDOW];
}

/* By our own compression; a message of another method that is longer lies elsewhere. */
size_t allreduce_kept_max(const struct allreduce *x, size_t k)
{
    return allreduce_part_bytes(x, &x->parts[x->reducing.own[k]]) + KEPT_HEADER;
}

/* Where a peer's message of our k-th part stays; NULL: it needs memory of its own. */
uint8_t *allreduce_kept_place(const struct allreduce *x, size_t k, size_t peer, size_t n)
{
    if (!x->reducing.kept_bytes || n > allreduce_kept_max(x, k)) return NULL;
    /* We send nothing to ourselves, so peers behind us in the group move up by one place. */
    return x->reducing.kept_bytes + x->reducing.kept_at[k] +
           (peer - (peer > x->self)) * allreduce_kept_max(x, k);
}
