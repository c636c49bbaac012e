/* dial_charges.c - a list in the order of time, so that the oldest are at its front. */
#include "dial_charges.h"

#include <math.h>
#include <stdlib.h>

struct dial_charge {
    struct account account;
    double until; /* s */
    struct dial_charge *next;
};

static void forget_before(struct dial_charges *all, double now)
{
    while (all->made && all->made->until <= now) {
        struct dial_charge *next = all->made->next;
        resources_close(&all->made->account);
        free(all->made);
        all->made = next;
    }
}

int dial_charges_add(struct dial_charges *all, struct resources *r, const struct connection *c,
                     double now)
{
    struct dial_charge *one = calloc(1, sizeof *one);
    int rc;
    forget_before(all, now);
    if (!one) return PL_ENOMEM;
    rc = resources_open(r, &one->account, &c->remote, 0, now);
    if (!rc) rc = resources_authenticate(&one->account, &c->peer->id);
    if (!rc && resources_charge(&one->account, RESOURCE_DIAL_BACKS, 1)) rc = PL_ELIMIT;
    if (rc) {
        resources_close(&one->account);
        free(one);
        return rc;
    }
    one->until = now + DIAL_CHARGED_S;
    if (all->made) all->last->next = one;
    else all->made = one;
    all->last = one;
    return PL_OK;
}

void dial_charges_clear(struct dial_charges *all) { forget_before(all, INFINITY); }
