/* matchmaking_internal.h - what the two sides of a search share: looking for a leader
 * (matchmaking.c), being one (matchmaking_followers.c). */
#ifndef PL_MATCHMAKING_INTERNAL_H
#define PL_MATCHMAKING_INTERNAL_H

#include "matchmaking.h"

/* Calls go from matchmaking.c to matchmaking_followers.c only. So the end of a search is in the
 * latter: it answers all peers that wait for this one. */

/* Nothing is to be had with this peer. */
int matchmaking_refuses(const struct matchmaking *m, const struct peer_id *peer);
/* It is on back-off. */
int matchmaking_is_paused(const struct matchmaking *m, const struct peer_id *peer);
/* In the DHT: we begin nothing at the time that we have declared. */
void matchmaking_withdraw(struct matchmaking *m);
/* The search is over: the declaration withdrawn, everybody answered, `over` called. */
void matchmaking_end(struct matchmaking *m, double now, int status);

/* Begins with those who have come. */
void matchmaking_assemble(struct matchmaking *m, double now);
/* The same if enough of them have. */
void matchmaking_consider_leading(struct matchmaking *m, double now);
/* How many of those who have come, and we, have something to average. */
size_t matchmaking_averaging(const struct matchmaking *m);
/* Sends our followers away, to somebody else if we know of one. */
void matchmaking_disband(struct matchmaking *m, const struct peer_id *suggested);
/* Those who asked while it was open whether we lead. */
void matchmaking_judge_waiting(struct matchmaking *m, double now);
/* The i-th of them, which waits no more; its request is the caller's to free. */
struct matchmaking_waiting matchmaking_take_waiting(struct matchmaking *m, size_t i);

#endif
