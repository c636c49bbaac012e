/* interrupt.h - Ctrl-C as a request that long work looks at between its steps, so that it can save
 * first. */
#ifndef PL_CMD_INTERRUPT_H
#define PL_CMD_INTERRUPT_H

#include <signal.h>

struct interrupt {
    struct sigaction before_int, before_term;
};

/* From now on SIGINT and SIGTERM only set the request; an earlier one is forgotten. NULL: for a
 * command that ends with its work, and releases nothing. */
void interrupt_catch(struct interrupt *i);
/* Their previous handlers. */
void interrupt_release(const struct interrupt *i);

int interrupted(void);
/* 1: interrupted, or a command that waits for these signals (sigwait) has one waiting for it. */
int interrupt_waits(void);
/* As if the user had asked: a time limit is over. */
void interrupt_ask(void);

#endif
