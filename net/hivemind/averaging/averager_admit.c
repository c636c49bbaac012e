/* averager_admit.c - in a moderated swarm, only members average with us. Both callers and the peers
 * that we call must have presented an access token to our DHT node (dht_members.c). A stream waits
 * while the node pings its peer for one. A client cannot be pinged, so clients of ours call the DHT
 * node first. */
#include "averager_internal.h"

#include <stdlib.h>

static void on_group_admitted(void *context, int status)
{
    struct admission *m = context;
    (void)status; /* a peer without a token gets no parts: see averager_round.c */
    m->task = NULL;
    if (!--m->a->admission.left) averager_turn(m->a);
}

void averager_admit_group(struct averager *a)
{
    averager_admit_cancel(a);
    if (!dht_node_has_tokens(a->node) ||
        !(a->admission.list = calloc(a->round.group.count, sizeof *a->admission.list)))
        return;
    for (size_t i = 0; i < a->round.group.count; i++) {
        const struct group_member *m = &a->round.group.members[i];
        struct admission *admission = &a->admission.list[a->admission.count];
        /* All are asked at once, before the round: one after the other would cost a round
         * trip each. */
        if (i == a->round.group.self || m->gather.mode == GROUP_CLIENT ||
            !caller_needs_token(a->node, &m->peer, a->o.client_mode))
            continue;
        admission->a = a;
        admission->task = dht_node_admit(a->node, &m->peer, on_group_admitted, admission);
        a->admission.count += admission->task != NULL;
    }
    a->admission.left = a->admission.count;
}

void averager_admit_cancel(struct averager *a)
{
    for (size_t i = 0; i < a->admission.count; i++)
        if (a->admission.list[i].task) dht_node_cancel(a->admission.list[i].task);
    free(a->admission.list);
    a->admission.list = NULL;
    a->admission.count = a->admission.left = 0;
}
