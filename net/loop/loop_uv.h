/* loop_uv.h - the loop from inside, for the files that hold sockets. */
#ifndef PL_LOOP_UV_H
#define PL_LOOP_UV_H

#include <stdint.h>
#include <uv.h>

struct loop;

#define LOOP_SCRATCH (256u << 10) /* one read of a socket; four full Noise messages */

uv_loop_t *loop_uv(struct loop *l);
uint8_t *loop_scratch(struct loop *l); /* LOOP_SCRATCH bytes, borrowed until the callback returns */

#endif
