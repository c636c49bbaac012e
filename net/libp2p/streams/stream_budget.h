/* stream_budget.h - ends streams when a connection holds too much. */
#ifndef PL_STREAM_BUDGET_H
#define PL_STREAM_BUDGET_H

#include "stream_internal.h"

/* Counts the unread and unsent bytes of a connection. Above a limit the largest holder loses: for
 * unread bytes its largest message, for unsent ones its connection. Never call it from within a
 * stream's callbacks. */
void stream_budget_count(struct connection *c);
/* Charges a stream that the other side has opened. PL_ELIMIT: it is refused. */
int stream_budget_open(struct connection *c);

#endif
