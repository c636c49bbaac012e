/* allreduce_notes.h - sentences about groupmates, the first of each kind, for the round's
 * report. */
#ifndef PL_ALLREDUCE_NOTES_H
#define PL_ALLREDUCE_NOTES_H

#include "allreduce.h"

struct contribution;

struct allreduce_notes {    /* an empty text: none */
    struct pl_err misfit;   /* whose parts are cut otherwise than ours, and why, most likely */
    struct pl_err refusal;  /* which reducer takes no more of our parts */
    struct pl_err lost;     /* the first reducer that was lost, and why */
    struct pl_err differs;  /* who only compresses otherwise */
    struct pl_err left_out; /* whose values are not finite, or weigh too much */
};

/* A part of another length than ours. */
void allreduce_note_misfit(struct allreduce *x, size_t peer, const struct pl_part *part,
                           const struct part_message *m);
/* Another compression than ours, which is understood. */
void allreduce_note_differs(struct allreduce *x, size_t peer, const struct pl_part *part,
                            const struct part_message *m);
void allreduce_note_left_out(struct allreduce *x, const struct contribution *c);
void allreduce_note_refusal(struct allreduce *x, size_t peer);
/* 1: a groupmate may weigh so much. */
int allreduce_is_weight(const struct allreduce *x, double weight);

#endif
