/* allreduce_wait.h - how long a groupmate may be silent, as a sender or as a reducer. */
#ifndef PL_ALLREDUCE_WAIT_H
#define PL_ALLREDUCE_WAIT_H

struct allreduce_wait {
    double since;   /* s: its last progress */
    double checked; /* s: when enough of a message had moved to wait on */
};

struct allreduce_deadline {
    double at;    /* s; INFINITY: none */
    int is_early; /* by patience, before the timeout: unless something moves */
};

#endif
