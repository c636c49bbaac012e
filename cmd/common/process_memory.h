/* process_memory.h - memory of the process and the machine, from the system. */
#ifndef PL_CMD_PROC_H
#define PL_CMD_PROC_H

/* Bytes, from the line of `file` that begins with `field`, a colon and kibibytes, as those of
 * /proc/meminfo and /proc/self/status do; 0: unknown. */
double proc_bytes(const char *file, const char *field);

#endif
