/* sparseloco_message.h - one message of SparseLoCo: for each tensor the k largest entries of every
 * chunk, in 14 bits each; a tensor whose chunks are single entries as float32. sparseloco.c has the
 * algorithm, and its steps' numbers. */
#ifndef PL_SPARSELOCO_MESSAGE_H
#define PL_SPARSELOCO_MESSAGE_H

#include "outer.h"

/* Bytes of a message, the same for all peers. */
size_t pl_sparseloco_bytes(const struct pl_outer *o);
/* 2. o->out = q, the largest entries of e (n, the backend's), quantized;  e = e - q. */
int pl_sparseloco_write(struct pl_outer *o, float *e);
/* One peer's broken message must not stop the others: all peers alike leave it out. 1, 0, or
 * PL_ENOMEM: it could not be seen. */
int pl_sparseloco_is_readable(const struct pl_outer *o, const struct pl_outer_message *in);
/* 3., 4. G (n, the backend's) of messages that are readable, count >= 1. Of one message: its q. */
int pl_sparseloco_mean(struct pl_outer *o, float *G, const struct pl_outer_message *in, int count);

#endif
