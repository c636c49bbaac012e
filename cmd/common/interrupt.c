/* interrupt.c - the signal handler only sets a flag; a second Ctrl-C changes nothing, because
 * saving is already under way. */
#include "interrupt.h"

static volatile sig_atomic_t asked;

static void on_signal(int number) { asked = 1; }

void interrupt_catch(struct interrupt *i)
{
    /* SA_RESTART: a read or write in progress continues; the program stops before its next step. */
    const struct sigaction catch = { .sa_handler = on_signal, .sa_flags = SA_RESTART };
    asked = 0;
    sigaction(SIGINT, &catch, i ? &i->before_int : NULL);
    sigaction(SIGTERM, &catch, i ? &i->before_term : NULL);
}

void interrupt_release(const struct interrupt *i)
{
    sigaction(SIGINT, &i->before_int, NULL);
    sigaction(SIGTERM, &i->before_term, NULL);
}

int interrupted(void) { return asked; }

int interrupt_waits(void)
{
    sigset_t waiting;
    sigpending(&waiting);
    return asked || sigismember(&waiting, SIGTERM) == 1 || sigismember(&waiting, SIGINT) == 1;
}

void interrupt_ask(void) { asked = 1; }
