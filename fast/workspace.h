/* workspace.h - scratch memory that a thread keeps between calls, so that a training step does not
 * fault in fresh pages thousands of times. */
#ifndef PL_FAST_WORKSPACE_H
#define PL_FAST_WORKSPACE_H

#include <stddef.h>

/* At least n floats, 64-byte aligned, contents undefined; NULL without memory. The calling thread
 * owns them until it asks again or ends, which releases them. One user at a time per thread: a
 * function that holds the workspace calls none that asks for it. */
float *workspace(size_t n);

#endif
