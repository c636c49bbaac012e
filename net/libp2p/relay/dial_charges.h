/* dial_charges.h - dials that a peer makes us begin, each counted for a minute: to it, to its
 * subnet, and to all together (RESOURCE_DIAL_BACKS in resources.c). */
#ifndef PL_DIAL_CHARGES_H
#define PL_DIAL_CHARGES_H

#include "net/libp2p/connections/connection.h"

#define DIAL_CHARGED_S 60.0

struct dial_charge;
struct dial_charges {
    struct dial_charge *made, *last; /* oldest first */
};

/* Charges one more to the peer at the other end of c. PL_ELIMIT: a limit is reached; or
 * PL_ENOMEM. */
int dial_charges_add(struct dial_charges *all, struct resources *r, const struct connection *c,
                     double now);
void dial_charges_clear(struct dial_charges *all);

#endif
