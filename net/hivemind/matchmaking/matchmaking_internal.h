/* matchmaking_internal.h - shared by the parts of a search: asking and following a leader
 * (matchmaking.c), which one to ask (matchmaking_leader.c), being one (matchmaking_followers.c). */
#ifndef PL_MATCHMAKING_INTERNAL_H
#define PL_MATCHMAKING_INTERNAL_H

#include "matchmaking.h"

/* Calls go from matchmaking.c to the other two only. So the end of a search is in
 * matchmaking_followers.c: it answers all peers that wait for this one. */

/* --- matchmaking_leader.c */

/* The candidate to ask next; NULL: there is none, and we may lead. */
const struct matchmaking_candidate *matchmaking_choose_leader(const struct matchmaking *m,
                                                              double now);
/* Counts a request to it. PL_ELIMIT: too many were asked; PL_ENOMEM. */
int matchmaking_note_asked(struct matchmaking *m, double now,
                           const struct matchmaking_candidate *c);
/* How many doubtful peers may leave a request unanswered in a window. */
int matchmaking_doubtful_asks(const struct matchmaking *m);

/* --- matchmaking_followers.c */

/* The peer is banned. */
int matchmaking_refuses(const struct matchmaking *m, const struct peer_id *peer);
/* The peer is on back-off. */
int matchmaking_is_paused(const struct matchmaking *m, const struct peer_id *peer);
/* Notes what was seen of another peer. */
void matchmaking_see(struct matchmaking *m, enum matchmaking_seen seen);
/* Our declaration is in the DHT. */
int matchmaking_has_declared(const struct matchmaking *m);
/* Withdraws it. */
void matchmaking_withdraw(struct matchmaking *m);
/* Ends the search: withdraws the declaration, answers all waiting peers, calls `over`. */
void matchmaking_end(struct matchmaking *m, double now, int status);

/* Begins the group with the present followers. */
void matchmaking_assemble(struct matchmaking *m, double now);
/* The same, if there is a reason to begin now. */
void matchmaking_consider_leading(struct matchmaking *m, double now);
/* How many of the followers and ourselves have values to average. */
size_t matchmaking_count_averaging(const struct matchmaking *m);
/* Sends our followers away, to the suggested leader if there is one. */
void matchmaking_disband(struct matchmaking *m, const struct peer_id *suggested);
/* Judges the requests that came while it was open whether we lead. */
void matchmaking_judge_waiting(struct matchmaking *m, double now);
/* Removes the i-th of these requests and returns it; the caller frees its bytes. */
struct matchmaking_waiting matchmaking_take_waiting(struct matchmaking *m, size_t i);

#endif
