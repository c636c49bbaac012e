/* allreduce_notes.h - sentences about groupmates, the first of each kind, for the round's
 * report. */
#ifndef PL_ALLREDUCE_NOTES_H
#define PL_ALLREDUCE_NOTES_H

#include "allreduce_internal.h"

/* A part of another length than ours. */
void allreduce_note_mismatch(struct allreduce *x, size_t peer, const struct pl_part *part,
                             const struct part_message *m);
/* Another compression than ours, which is understood. */
void allreduce_note_differs(struct allreduce *x, size_t peer, const struct pl_part *part,
                            const struct part_message *m);
void allreduce_note_left_out(struct allreduce *x, const struct contribution *c);
void allreduce_note_refusal(struct allreduce *x, size_t peer);
/* 1: a groupmate may have this weight. */
int allreduce_is_weight(const struct allreduce *x, double weight);

#endif
