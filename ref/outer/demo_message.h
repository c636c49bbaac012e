/* demo_message.h - one message of DeMo: for each tensor the k largest coefficients of every chunk's
 * cosine transform, 12 bits an index and a float32. demo.c has the algorithm, and its steps'
 * numbers. */
#ifndef PL_DEMO_MESSAGE_H
#define PL_DEMO_MESSAGE_H

#include "outer.h"

/* Bytes of a message, the same for all peers. */
size_t pl_demo_bytes(const struct pl_outer *o);
/* 2. o->out = q_r, the largest coefficients of m (n, the backend's);  m = m - q_r. */
int pl_demo_write(struct pl_outer *o, float *m);
/* One peer's broken message must not stop the others: all peers alike leave it out. 1, 0, or
 * PL_ENOMEM: it could not be seen. */
int pl_demo_is_readable(const struct pl_outer *o, const struct pl_outer_message *in);
/* 3. u (n, the backend's) = inverse transform of Q, of messages that are readable. */
int pl_demo_mean(const struct pl_outer *o, float *u, const struct pl_outer_message *in, int count);

#endif
