/* disk.h - files of the virtual computers. */
#ifndef PL_SIMULATION_DISK_H
#define PL_SIMULATION_DISK_H

/* Paths of the running computer's own disk begin so; all others are the system's. */
#define DISK_ROOT "/disk/"

#endif
