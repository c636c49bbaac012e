/* failures.c - counts failed attempts by network, so that guessing secrets is slow.
 *
 * A table of fixed size, whatever strangers send. When it is full, the smallest count gives way:
 * to make the table forget a network's k failures, 1023 other networks have to fail as often. */
#include "failures.h"

#include <string.h>

unsigned failures_add(struct failures *f, const struct http_address *from, double now)
{
    struct http_address network;
    size_t least = 0; /* the place of the count that would be missed least */
    http_network_of(&network, from);
    for (size_t i = 0; i < FAILURES_NETWORKS_MAX; i++) {
        /* A minute after its first failure a network begins anew. */
        if (f->of[i].until <= now) f->of[i].count = 0;
        if (f->of[i].count && !memcmp(&f->of[i].network, &network, sizeof network))
            return ++f->of[i].count;
        if (f->of[i].count < f->of[least].count) least = i;
    }
    f->of[least].network = network;
    f->of[least].count = 1;
    f->of[least].until = now + FAILURES_WINDOW_S;
    return 1;
}
