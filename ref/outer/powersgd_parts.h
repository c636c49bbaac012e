/* powersgd_parts.h - where each tensor's factors lie in PowerSGD's buffers and messages.
 *
 *   phase P    P_1 | P_2 | ...                        of the tensors that it pays for
 *   phase Q    Q_1 | Q_2 | ... | tensors as they are  of the others
 *
 * in the order of the tensors, as hivemind sends them. */
#ifndef PL_POWERSGD_PARTS_H
#define PL_POWERSGD_PARTS_H

#include "../powersgd.h"
#include "outer.h"

/* A tensor's factors within the buffers; r = 0: it travels as it is. */
struct pl_powersgd_part {
    struct pl_powersgd s;
    size_t p_at, q_at, n_p, n_q;
    float *g;
};

/* The i'th tensor's; g, the gradient of all tensors, may be NULL. */
struct pl_powersgd_part pl_powersgd_part(const struct pl_outer *o, int i, float *g);
/* Values of the exchanges: all P; all Q, and the whole tensors behind them. */
void pl_powersgd_sizes(const struct pl_outer *o, size_t *n_p, size_t *n_q, size_t *whole);
/* Q = uniform in [0,1), from the seed that all peers share. */
int pl_powersgd_draw(const struct pl_outer *o, const struct pl_powersgd_part *part,
                     uint64_t stream);
/* The tensors that travel whole, from g into packed, or back. */
int pl_powersgd_copy_whole(struct pl_outer *o, float *packed, float *g, int unpack);

#endif
