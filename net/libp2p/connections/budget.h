/* budget.h - admission of a connection, of a message that it awaits, and of its handlers. [spec
 * libp2p-wire 16] */
#ifndef PL_BUDGET_H
#define PL_BUDGET_H

#include "connection.h"

/* Opens the account of a new connection, whose `remote` is known, and charges the connection to it.
 * Where a limit is reached, the connection that has been idle longest in the largest subnet ends.
 * Returns NULL, or a sentence why this one is refused. */
const char *budget_admit(struct connection *c);
/* PL_ELIMIT: with n more unread bytes its peer would have too many. */
int budget_expect(struct connection *c, size_t n);
/* 1: the peer's handlers have used their share of the loop; its requests wait for the next
 * second. */
int budget_must_wait(const struct connection *c);
/* s until the next second begins for budget_must_wait. */
double budget_window_left(const struct connection *c);

/* A handler that runs for a connection: its processor time is charged when it has returned, also
 * when it has ended the connection. A handler within it (a relayed connection's) is charged to its
 * own connection only. */
struct handler_time {
    struct host_core *core;
    struct handler_charge charge;
    uint64_t began_us, nested_us;
};
void budget_begin_handler(struct handler_time *t, struct connection *c);
void budget_end_handler(struct handler_time *t);

#endif
