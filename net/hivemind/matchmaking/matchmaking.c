/* matchmaking.c - how a peer finds a group to average with, and the follower's side of it.
 * [Moshpit SGD 3.2] [spec hivemind-protocol 4.4]
 *
 * There is no coordinator. Every peer stores a declaration in the DHT, under the group key: its
 * peer ID and E, the time by which it wants to begin (the record's expiration). Most peers read the
 * same declarations, and one rule gives the group a leader: the peer with the earliest expiration
 * leads, ties go to the smaller peer ID. So each peer asks the peers that are earlier than itself,
 * the earliest first, and accepts the later ones that ask it.
 *
 * matchmaking.h draws the states:
 *
 *   LOOKING    The peer polls the DHT every 0.3 s. It asks the best candidate that is earlier than
 *              itself: first those not asked yet, then those known to exist, then the earliest.
 *              Later peers may ask it meanwhile; those that it accepts are its followers. It leads
 *              when its own time comes (`begin`), when the group is full, or when everybody
 *              expected is there.
 *   ASKING     A JoinRequest is on its way to one leader. Whether we lead is open until the answer,
 *              so peers that ask us wait (matchmaking_followers.c). After request_timeout the next
 *              candidate is asked, and this leader again after 2, 4, 8... s.
 *   FOLLOWING  The leader has accepted us. Our own followers are sent on to it, so that chains of
 *              followers collapse into one group. Until the expiration in our request, plus
 *              request_timeout, the leader may send BEGIN_ALLREDUCE with the group: its ID, all
 *              peers in order, and each peer's gather message.
 *   over       IDLE again. The caller gets the group, or the deadline has passed without one.
 *
 * Two peers that ask each other at once don't wait for each other. The one with the earlier
 * expiration leads: its own request is refused with BAD_EXPIRATION_TIME, and the other one's is
 * answered at once, see matchmaking_request. A window that ends without a group is followed by a
 * new declaration, until the deadline.
 *
 * A client (client_mode) never declares. A peer behind NAT declares nothing and only asks. If there
 * was nobody to follow in a window, it declares for the next one: all peers may be behind the same
 * router.
 *
 * What strangers can cause: declarations about others are not signed, so candidates that only third
 * parties report are `doubtful`. They are asked last, for an eighth of a window each. Once three of
 * them have not answered, no other is asked in this window; in later windows, once one has not. A
 * chain of suggested leaders ends after eight. Banned peers and peers on back-off (reliability.h)
 * are not asked and not accepted.
 */
#include "matchmaking_internal.h"
#include "net/message.h"
#include "net/hivemind/messages/averaging.pb-c.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void matchmaking_init(struct matchmaking *m, const struct matchmaking_options *o,
                      const struct matchmaking_callbacks *callbacks, void *context)
{
    memset(m, 0, sizeof *m);
    m->o = *o;
    m->begin = INFINITY;
    m->callbacks = callbacks;
    m->context = context;
}

void matchmaking_clear(struct matchmaking *m)
{
    group_clear(&m->group);
    group_clear(&m->followers);
    while (m->waiting.count) free(matchmaking_take_waiting(m, m->waiting.count - 1).request);
    free(m->streams);
    free(m->polls.candidates);
    free(m->attempts.list);
    free(m->waiting.list);
    memset(m, 0, sizeof *m);
}

/* --- declaring -------------------------------------------------------------------------------- */

/* The end of a window that begins now: E = min(max(scheduled, now + min_time), deadline). [spec
 * hivemind-protocol 4.4] min_time gives others time to find the record. If it were shorter, two
 * peers could both lead, each alone. */
static double end_of_window(const struct matchmaking *m, double now)
{
    return fmin(fmax(m->scheduled, now + m->o.min_time), m->deadline);
}

static void begin_window(struct matchmaking *m)
{
    /* Invented candidates cost their author nothing, and each costs us an eighth of a
     * window. A window in which all of them were silent lowers their number to one in the
     * windows that follow. */
    m->attempts.distrust |= m->attempts.unanswered >= matchmaking_doubtful_asks(m);
    m->attempts.unanswered = 0;
}

static void declare(struct matchmaking *m, double now)
{
    begin_window(m);
    /* E is known here before the record leaves: hivemind's peers read it within milliseconds, and a
     * peer that asks too early gets NOT_DECLARED and waits for the next declaration. */
    m->begin = m->window_ends = end_of_window(m, now);
    m->callbacks->declare(m->context, m->begin, 1);
}

/* Without a declaration E is infinite, so every other peer is earlier and may lead us. */
static void only_ask(struct matchmaking *m, double now)
{
    begin_window(m);
    m->begin = INFINITY;
    m->window_ends = m->o.client_mode ? INFINITY : end_of_window(m, now);
}

void matchmaking_set_behind_nat(struct matchmaking *m, double now, int behind_nat)
{
    if (behind_nat == m->behind_nat || m->o.client_mode) return;
    if (m->state == MATCHMAKING_LOOKING && !m->followers.count) {
        if (behind_nat) matchmaking_withdraw(m), only_ask(m, now);
        else if (!matchmaking_has_declared(m)) declare(m, now);
    } else if (m->state != MATCHMAKING_IDLE) {
        return; /* until it is LOOKING again, without followers */
    }
    m->behind_nat = behind_nat;
}

/* --- asking ----------------------------------------------------------------------------------- */

/* begin: the leader's, as declared; 0: not known. A peer that only asks can wait until then. */
static void ask(struct matchmaking *m, double now, const struct peer_id *leader, double begin)
{
    Hivemind__JoinRequest request = HIVEMIND__JOIN_REQUEST__INIT;
    struct bytes out = { 0 };
    /* The expiration says how long we can wait. A leader refuses a peer whose time is earlier than
     * its own: the earlier peer should lead. */
    m->leader.asked = matchmaking_has_declared(m) ? m->begin : end_of_window(m, now);
    if (m->behind_nat && !matchmaking_has_declared(m))
        m->leader.asked = fmin(fmax(m->leader.asked, begin), m->deadline);
    request.schema_hash = message_bytes(m->o.schema_hash, SCHEMA_HASH_BYTES);
    request.expiration = m->leader.asked;
    request.gather = message_bytes(m->o.gather, m->o.gather_n);
    request.client_mode = m->o.client_mode;
    request.group_key = (char *)(uintptr_t)m->o.key; /* only read */
    if (message_pack(&out, &request.base)) goto done;
    m->leader.peer = *leader;
    m->state = MATCHMAKING_ASKING;
    m->leader.until = now + m->o.request_timeout;
    /* A peer that may not exist gets an eighth of a window to answer, so three silent ones leave
     * more than half of it. */
    if (m->leader.is_doubtful)
        m->leader.until = fmin(m->leader.until, now + m->o.min_time / MATCHMAKING_DOUBTFUL_SHARE);
    m->callbacks->ask(m->context, leader, bytes_at(&out), bytes_length(&out));
done:
    bytes_clear(&out);
}

/* LOOKING -> ASKING: the best candidate that is earlier than ourselves. None: we may lead. */
static void try_next(struct matchmaking *m, double now)
{
    const struct matchmaking_candidate *best;
    if (m->state != MATCHMAKING_LOOKING) return;
    best = matchmaking_choose_leader(m, now);
    m->leader.hops = 0;
    m->leader.is_doubtful = best && best->doubtful;
    if (best && !matchmaking_note_asked(m, now, best)) ask(m, now, &best->peer, best->expiration);
    else matchmaking_consider_leading(m, now);
}

/* ASKING, FOLLOWING -> LOOKING: other leaders may be asked again, and the join requests that waited
 * are judged. */
static void give_up_leader(struct matchmaking *m, double now)
{
    m->state = MATCHMAKING_LOOKING;
    m->callbacks->leave(m->context);
    matchmaking_judge_waiting(m, now);
    if (m->state == MATCHMAKING_LOOKING && now < m->window_ends) try_next(m, now);
}

/* The leader that we followed has begun no group. */
static void abandon(struct matchmaking *m, double now, int has_disbanded)
{
    if (m->callbacks->abandoned)
        m->callbacks->abandoned(m->context, &m->leader.peer, has_disbanded);
    give_up_leader(m, now);
}

/* The requests that we have sent for the leader's newest declaration. NULL: none, since another
 * leader suggested this one. */
static struct matchmaking_attempt *attempt_at_leader(const struct matchmaking *m)
{
    for (size_t i = m->attempts.count; i-- > 0;)
        if (peer_id_equal(&m->attempts.list[i].of.peer, &m->leader.peer))
            return &m->attempts.list[i];
    return NULL;
}

/* The leader's machine or link may only have stalled. So it is asked again, the n-th time after 2^n
 * s: without it the whole window would be lost. */
static void no_answer(struct matchmaking *m, double now)
{
    struct matchmaking_attempt *a = attempt_at_leader(m);
    if (m->state == MATCHMAKING_ASKING) {
        m->attempts.unanswered += m->leader.is_doubtful;
        if (a) a->again = now + ldexp(MATCHMAKING_AGAIN, a->count - 1);
    }
    give_up_leader(m, now);
}

/* The stream to the leader has ended. A leader that has accepted us is asked once more if this
 * happens before its time: a relay closes connections after two minutes or 128 KiB, though the
 * leader is alive. */
void matchmaking_leader_gone(struct matchmaking *m, double now)
{
    struct matchmaking_attempt *a = attempt_at_leader(m);
    if (m->state == MATCHMAKING_ASKING) {
        no_answer(m, now);
    } else if (m->state == MATCHMAKING_FOLLOWING && a && a->count == 1 && now < m->leader.until) {
        a->again = now;
        give_up_leader(m, now);
    } else if (m->state == MATCHMAKING_FOLLOWING) {
        abandon(m, now, 0);
    }
}

/* --- a leader's messages ------------------------------------------------------------------- */

/* BEGIN_ALLREDUCE. A group is invalid if it lacks its leader or ourselves, lists a peer twice, or
 * contains a peer that we refuse. Then we look for another leader. */
static int take_group(struct matchmaking *m, const Hivemind__MessageFromLeader *message)
{
    struct group g = { 0 };
    struct peer_id peer;
    int rc = message->group_id.len == sizeof g.id &&
                     message->n_ordered_peer_ids == message->n_gathered
                 ? PL_OK
                 : PL_EPROTO;
    for (size_t i = 0; !rc && i < message->n_gathered; i++) {
        const ProtobufCBinaryData *id = &message->ordered_peer_ids[i],
                                  *gather = &message->gathered[i];
        /* One banned member makes the whole list invalid: the leader may not know of the ban,
         * but a round with that peer would fail again. */
        rc = peer_id_parse(&peer, id->data, id->len);
        if (!rc && matchmaking_refuses(m, &peer)) rc = PL_EPROTO;
        if (!rc) rc = group_append(&g, &peer, gather->data, gather->len, NULL);
    }
    if (!rc) rc = group_check_peers(&g);
    if (!rc && (group_find(&g, &m->o.self) < 0 || group_find(&g, &m->leader.peer) < 0))
        rc = PL_EPROTO;
    if (rc) {
        group_clear(&g);
        return rc;
    }
    /* The ID names the round: a first part carries it, so a reducer can tell one group from
     * another. */
    memcpy(g.id, message->group_id.data, sizeof g.id);
    g.self = (size_t)group_find(&g, &m->o.self);
    group_clear(&m->group);
    m->group = g;
    return PL_OK;
}

/* Asks the leader that this message suggests. As in hivemind, only a leader that has ACCEPTED us
 * may suggest one. Returns 0 if it suggests none that we may ask, or if we have followed too many
 * suggestions. */
static int follow_suggestion(struct matchmaking *m, double now,
                             const Hivemind__MessageFromLeader *message)
{
    struct peer_id next;
    if ((message->code != MSG_GROUP_DISBANDED && message->code != MSG_CANCELLED) ||
        peer_id_parse(&next, message->suggested_leader.data, message->suggested_leader.len) ||
        peer_id_equal(&next, &m->o.self) || matchmaking_refuses(m, &next) ||
        matchmaking_is_paused(m, &next) || m->leader.hops++ >= MATCHMAKING_HOPS_MAX)
        return 0;
    m->state = MATCHMAKING_LOOKING;
    m->callbacks->leave(m->context);
    m->leader.is_doubtful = 0; /* a leader that has answered knows it */
    ask(m, now, &next, 0);
    return m->state == MATCHMAKING_ASKING;
}

/* Temporary refusals. DUPLICATE_PEER_ID: the leader still counts our earlier request, which we gave
 * up. NOT_DECLARED: peers see its declaration before the leader knows that it is stored. */
static int is_temporary(int code)
{
    return code == MSG_DUPLICATE_PEER_ID || code == MSG_NOT_DECLARED;
}

void matchmaking_message(struct matchmaking *m, double now, const uint8_t *data, size_t n)
{
    Hivemind__MessageFromLeader *message;
    int grouped;
    if (m->state != MATCHMAKING_ASKING && m->state != MATCHMAKING_FOLLOWING) return;
    message = message_unpack(&hivemind__message_from_leader__descriptor, data, n, NULL);
    /* Noted for the error message that the user gets if no group is found. */
    if (message && message->code == MSG_BAD_SCHEMA_HASH)
        matchmaking_see(m, MATCHMAKING_SEEN_INCOMPATIBLE);
    if (message && message->code == MSG_PROTOCOL_VIOLATION)
        matchmaking_see(m, MATCHMAKING_SEEN_REFUSAL);
    if (m->state == MATCHMAKING_ASKING && m->leader.is_doubtful && message)
        m->attempts.distrust = 0;
    /* ASKING -> FOLLOWING: our followers, and the peers whose requests wait, are sent on to our
     * leader. */
    if (m->state == MATCHMAKING_ASKING && message && message->code == MSG_ACCEPTED) {
        m->state = MATCHMAKING_FOLLOWING;
        /* The leader begins at its own time, which is at most the one in our request. */
        m->leader.until = m->leader.asked + m->o.request_timeout;
        matchmaking_disband(m, &m->leader.peer);
        matchmaking_judge_waiting(m, now);
    } else {
        /* FOLLOWING -> over. Any other message, or an invalid group: -> LOOKING. */
        grouped = m->state == MATCHMAKING_FOLLOWING && message &&
                  message->code == MSG_BEGIN_ALLREDUCE && !take_group(m, message);
        if (grouped) matchmaking_end(m, now, PL_OK);
        else if (message && is_temporary(message->code)) no_answer(m, now);
        else if (m->state == MATCHMAKING_ASKING) give_up_leader(m, now);
        else if (!message || !follow_suggestion(m, now, message)) abandon(m, now, 1);
    }
    message_free(message);
}

/* --- time ------------------------------------------------------------------------------------- */

static void poll(struct matchmaking *m)
{
    m->polls.under_way = 1;
    m->callbacks->poll(m->context);
}

void matchmaking_begin(struct matchmaking *m, double now, double scheduled, double deadline)
{
    m->scheduled = scheduled;
    m->deadline = deadline;
    m->state = MATCHMAKING_LOOKING;
    m->polls.seen = 0;
    m->seen = MATCHMAKING_SEEN_NONE;
    m->expected = 0;
    m->patience = m->windows_alone = 0;
    m->polls.count = m->attempts.count = 0;
    group_clear(&m->group);
    if (m->o.client_mode || m->behind_nat) only_ask(m, now);
    else declare(m, now);
    poll(m);
}

void matchmaking_patience(struct matchmaking *m, int windows)
{
    m->patience = windows;
    m->windows_alone = 0;
}

double matchmaking_wake(const struct matchmaking *m)
{
    switch (m->state) {
    case MATCHMAKING_IDLE: return INFINITY;
    case MATCHMAKING_ASKING:
    case MATCHMAKING_FOLLOWING: return fmin(m->leader.until, m->deadline);
    case MATCHMAKING_LOOKING: break;
    }
    return fmin(m->deadline, fmin(m->window_ends, m->polls.under_way ? INFINITY : m->polls.next));
}

/* Is there a candidate that is not doubtful? */
static int has_others(const struct matchmaking *m)
{
    for (size_t i = 0; i < m->polls.count; i++)
        if (!m->polls.candidates[i].doubtful) return 1;
    return 0;
}

/* The time that we have declared has come; or, without a declaration, we have found no leader. */
static void end_window(struct matchmaking *m, double now)
{
    if (m->followers.count && matchmaking_count_averaging(m) >= m->o.min_size) {
        matchmaking_assemble(m, now);
        return;
    }
    matchmaking_disband(m, NULL);
    /* After `patience` windows alone we stop: the other peers have ended or died. Their progress
     * records live up to a minute longer and must not keep us waiting.
     * [spec hivemind-protocol 12] */
    m->windows_alone = has_others(m) ? 0 : m->windows_alone + 1;
    if (now >= m->deadline || (m->patience && m->windows_alone >= m->patience)) {
        matchmaking_end(m, now, PL_EAGAIN);
        return;
    }
    /* A peer behind NAT alternates: it only asks in one window and declares in the next, because
     * all peers may be behind the same router and able to reach each other. */
    if (m->behind_nat && matchmaking_has_declared(m)) only_ask(m, now);
    else declare(m, now);
    try_next(m, now);
}

void matchmaking_tick(struct matchmaking *m, double now)
{
    /* (no effect unless ASKING or FOLLOWING) */
    if (now >= m->leader.until) matchmaking_leader_gone(m, now);
    if (m->state == MATCHMAKING_LOOKING && now >= m->window_ends) end_window(m, now);
    if (m->state != MATCHMAKING_IDLE && now >= m->deadline) matchmaking_end(m, now, PL_EAGAIN);
    if (m->state == MATCHMAKING_LOOKING && !m->polls.under_way && now >= m->polls.next) poll(m);
}

static int is_absent(const struct matchmaking *m, const struct peer_id *peer)
{
    return m->callbacks->absent && m->callbacks->absent(m->context, peer);
}

static void choose_candidates(struct matchmaking *m, double now,
                              const struct matchmaking_candidate *found, size_t n, int absent)
{
    for (size_t i = 0; i < n && m->polls.count < MATCHMAKING_CANDIDATES_MAX; i++)
        if (found[i].expiration > now && isfinite(found[i].expiration) &&
            !peer_id_equal(&found[i].peer, &m->o.self) && !matchmaking_refuses(m, &found[i].peer) &&
            !matchmaking_is_paused(m, &found[i].peer) && is_absent(m, &found[i].peer) == absent)
            m->polls.candidates[m->polls.count++] = found[i];
}

void matchmaking_found(struct matchmaking *m, double now, const struct matchmaking_candidate *found,
                       size_t n)
{
    m->polls.under_way = 0;
    m->polls.next = now + MATCHMAKING_POLL_EVERY;
    if (m->state == MATCHMAKING_IDLE) return;
    if (!m->polls.candidates &&
        !(m->polls.candidates = malloc(MATCHMAKING_CANDIDATES_MAX * sizeof *m->polls.candidates)))
        return;
    m->polls.count = 0;
    m->polls.seen = 1;
    /* Absent peers are candidates only if there are no others. */
    choose_candidates(m, now, found, n, 0);
    if (!m->polls.count && !m->followers.count) choose_candidates(m, now, found, n, 1);
    if (m->polls.count) matchmaking_see(m, MATCHMAKING_SEEN_PEERS);
    try_next(m, now);
}
