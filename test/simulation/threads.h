/* threads.h - shared by the scheduler and by what stands in for the C library. */
#ifndef PL_SIMULATION_THREADS_H
#define PL_SIMULATION_THREADS_H

#include "simulation.h"

/* The C library's own, without the simulation's accounts (ld's --wrap). */
void *__real_malloc(size_t n);
void *__real_calloc(size_t count, size_t n);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);

/* loop_thread.c: which loop the running thread runs. */
const void *loop_here(void);
void loop_here_set(const void *loop);

#endif
