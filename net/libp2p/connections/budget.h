/* budget.h - admission of a connection, and of a message that it awaits. [spec libp2p-wire 16] */
#ifndef PL_BUDGET_H
#define PL_BUDGET_H

#include "connection.h"

/* Opens the account of a new connection, whose `remote` is known, and charges the connection to it.
 * Where a limit is reached, the connection that has been idle longest in the largest subnet ends.
 * Returns NULL, or a sentence why this one is refused. */
const char *budget_admit(struct connection *c);
/* PL_ELIMIT: with n more unread bytes its peer would have too many. */
int budget_expect(struct connection *c, size_t n);

#endif
