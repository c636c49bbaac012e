/* memory.h - counts of allocated bytes. */
#ifndef PL_SIMULATION_MEMORY_H
#define PL_SIMULATION_MEMORY_H

/* Before anything else: OpenSSL takes its functions only before its first allocation. */
void sim_memory_install(void);

#endif
