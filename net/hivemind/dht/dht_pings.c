/* dht_pings.c - rpc_ping as the user's tool [spec hivemind-protocol 1.3]. The answer has the peer's
 * node id and its clock, and with `validate` whether the peer could open a connection to us. In a
 * moderated swarm both messages carry access tokens, so a ping also is the question "are you a
 * member?": the caller shows its own token and sees the other's. */
#include "dht_pings.h"

#include <math.h>
#include <stdlib.h>

/* A failed ping is reported with a sentence that tells the user what is wrong with the peer. */
static void on_pong(void *context, const struct dht_contact *who, const struct dht_reply *r)
{
    struct dht_task *t = context;
    struct dht_pings *p = t->part;
    struct dht_pong pong = { .seconds = r->seconds, .clock_error = NAN, .error = r->error };
    if (r->pong) {
        pong.has_id = r->pong->has_id;
        pong.id = r->pong->id;
        pong.available = r->pong->available;
        /* 0 is proto3's "not sent". As NTP does: the peer read its clock about half-way between our
         * sending and now. */
        if (r->pong->dht_time != 0)
            pong.clock_error = r->pong->dht_time - (dht_core_time(p->core) - r->seconds / 2);
    }
    list_remove(&p->pings, t);
    if (!t->cancelled) t->pinged(t->context, r->status, &pong);
    free(t);
}

/* replied frees the task. NULL: no memory. The callback cannot come before the caller has set it:
 * calls are sent at the end of this iteration of the loop. */
static struct dht_task *start_ping(struct dht_pings *p, struct dht_task **list,
                                   const struct peer_id *peer, int validate, dht_replied *replied,
                                   void *context)
{
    struct dht_task *t = calloc(1, sizeof *t);
    if (!t || dht_ask_ping(p->calls, peer, validate, replied, t)) {
        free(t);
        return NULL;
    }
    dht_task_push(list, t, p, context);
    return t;
}

/* With `validate` the peer calls us back on a new connection before it answers: that is how a node
 * learns whether it is reachable. [spec hivemind-protocol 1.3] */
struct dht_task *dht_ping_start(struct dht_pings *p, const struct peer_id *peer, int validate,
                                dht_pinged *pinged, void *context)
{
    struct dht_task *t = start_ping(p, &p->pings, peer, validate, on_pong, context);
    if (t) t->pinged = pinged;
    return t;
}

/* --- admission -------------------------------------------------------------------------------- */

/* dht_calls.c has checked token and signature of the answer, and made its sender a member. */
static void on_proof(void *context, const struct dht_contact *who, const struct dht_reply *r)
{
    struct dht_task *t = context;
    struct dht_pings *p = t->part;
    struct dht_members *members = &p->core->members;
    /* Whatever the answer's status was: only a valid token that has been seen counts. */
    int admitted = !p->core->auth || dht_members_has(members, &who->peer, dht_core_time(p->core));
    list_remove(&p->admissions, t);
    if (!admitted) dht_members_refuse(members, &who->peer, loop_now(p->core->loop));
    if (!t->cancelled) t->admitted(t->context, admitted ? PL_OK : PL_EPROTO);
    free(t);
}

struct dht_task *dht_admit_start(struct dht_pings *p, const struct peer_id *peer,
                                 dht_admitted *admitted, void *context)
{
    struct dht_task *t;
    /* Each question costs us a signature and a stranger nothing, so questions are rationed. The
     * ping need not ask to be called back: a valid token in its answer is all that counts. */
    if (!dht_members_may_ask(&p->core->members, peer, loop_now(p->core->loop))) return NULL;
    if ((t = start_ping(p, &p->admissions, peer, 0, on_proof, context))) t->admitted = admitted;
    return t;
}

/* Every task gets its callback once: here with PL_EAGAIN, which says nothing about the peer. */
void dht_pings_close(struct dht_pings *p)
{
    while (p->pings) {
        struct dht_task *t = p->pings;
        struct dht_pong pong = { .clock_error = NAN, .error = "the node is closed" };
        p->pings = t->next;
        if (!t->cancelled) t->pinged(t->context, PL_EAGAIN, &pong);
        free(t);
    }
    while (p->admissions) {
        struct dht_task *t = p->admissions;
        p->admissions = t->next;
        if (!t->cancelled) t->admitted(t->context, PL_EAGAIN);
        free(t);
    }
}
