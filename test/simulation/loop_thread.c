/* loop_thread.c - net/loop/loop.c as it is, but that its one thread-local variable is a plain one:
 * all threads of the simulation are one of the system, so the scheduler saves and restores it. */
#define _Thread_local
#include "net/loop/loop.c"
#undef _Thread_local

#include "threads.h"

const void *loop_here(void) { return mine; }
void loop_here_set(const void *loop) { mine = loop; }
