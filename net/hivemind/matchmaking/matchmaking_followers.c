/* matchmaking_followers.c - a leader and its followers: which requests it accepts, how the group
 * begins, how a search ends. [spec hivemind-protocol 4.4] matchmaking.c has the states.
 *
 *   1. A JoinRequest arrives. While we ask somebody ourselves it waits; else it is judged at once.
 *   2. judge() answers ACCEPTED or the first reason against it: another schema or group key, an
 *      expiration before our own time (it should lead us), a full group, a peer on back-off.
 *      A peer that follows another one answers NOT_A_LEADER and names its leader, as in hivemind.
 *   3. The group begins when it is full, when everybody expected is there, or when our time comes.
 *      Its ID and its order are drawn at random, so nobody can choose its place in the group.
 *   4. BEGIN_ALLREDUCE goes to all followers: the ID, the peers in order, and what each has stated
 *      about itself (bandwidth, mode). From these all compute the same shares.
 *
 * Peers that have never delivered get no share to reduce while enough others can reduce it: a new
 * identity costs nothing, so a silent new reducer could otherwise cost the group its round. */
#include "matchmaking_internal.h"
#include "uplinks.h"
#include "net/message.h"
#include "net/hivemind/messages/averaging.pb-c.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int matchmaking_is_paused(const struct matchmaking *m, const struct peer_id *peer)
{
    return m->callbacks->paused && m->callbacks->paused(m->context, peer);
}

int matchmaking_refuses(const struct matchmaking *m, const struct peer_id *peer)
{
    return m->callbacks->refuses && m->callbacks->refuses(m->context, peer);
}

struct matchmaking_waiting matchmaking_take_waiting(struct matchmaking *m, size_t i)
{
    struct matchmaking_waiting w = m->waiting.list[i];
    /* In the order of arrival: a peer that asked first is judged first, so it gets in before
     * a group is full. */
    memmove(&m->waiting.list[i], &m->waiting.list[i + 1],
            (--m->waiting.count - i) * sizeof *m->waiting.list);
    return w;
}

/* --- a leader's messages ---------------------------------------------------------------------- */

/* MessageFromLeader: a code, and with NOT_A_LEADER or GROUP_DISBANDED the leader to ask instead.
 * hivemind's peers and ours follow the hint of GROUP_DISBANDED, which a leader sends after ACCEPTED
 * (follow_suggestion in matchmaking.c). They ignore that of NOT_A_LEADER, a refusal while ASKING:
 * the next poll shows that leader's own declaration. We send it since hivemind does. */
static void send_code(struct matchmaking *m, void *stream, enum averaging_code code,
                      const struct peer_id *suggested, int last)
{
    Hivemind__MessageFromLeader message = HIVEMIND__MESSAGE_FROM_LEADER__INIT;
    struct bytes out = { 0 };
    message.code = (int32_t)code;
    if (suggested && suggested->length)
        message.suggested_leader = message_bytes(suggested->bytes, suggested->length);
    message_pack(&out, &message.base);
    m->callbacks->answer(m->context, stream, bytes_at(&out), bytes_length(&out), last);
    bytes_clear(&out);
}

void matchmaking_disband(struct matchmaking *m, const struct peer_id *suggested)
{
    for (size_t i = 0; i < m->followers.count; i++)
        send_code(m, m->streams[i], MSG_GROUP_DISBANDED, suggested, 1);
    group_clear(&m->followers);
}

/* --- the group ------------------------------------------------------------------------------- */

static int by_peer(const void *a, const void *b)
{
    const struct group_member *x = a, *y = b;
    return peer_id_compare(&x->peer, &y->peer);
}

/* A random order, not the order of arrival: no peer can choose its place in the group. */
static void shuffle(struct group *g, const struct random_source *random)
{
    /* The list is sorted first, so that the result depends on the random numbers and not on the
     * order of arrival. Then Fisher and Yates' shuffle draws the i-th place from those that are
     * left. */
    qsort(g->members, g->count, sizeof *g->members, by_peer);
    for (size_t i = g->count - 1; i; i--) {
        size_t j = random_source_below(random, i + 1);
        struct group_member swap = g->members[i];
        g->members[i] = g->members[j];
        g->members[j] = swap;
    }
}

/* Shares follow from the gather messages, which the leader passes on: an unproven
 * peer states bandwidth 0, as one behind NAT does, and only sends. */
static int demote_unproven(struct matchmaking *m)
{
    struct group *g = &m->followers;
    struct gather own;
    /* A verified group needs every peer as a reducer, and finds one that does not deliver by
     * itself. */
    size_t proven = 0, unproven = 0;
    if (m->o.verify || !m->callbacks->proven) return PL_OK;
    if (!gather_read(&own, m->o.gather, m->o.gather_n, NULL)) proven = gather_reduces(&own);
    for (size_t i = 0; i < g->count; i++) {
        if (!gather_reduces(&g->members[i].gather)) continue;
        if (m->callbacks->proven(m->context, &g->members[i].peer)) proven++;
        else unproven++;
    }
    /* With p proven and u unproven reducers the proven ones take (p + u) / p times their share. If
     * that exceeds the limit, or if a single proven peer would see all values, unproven peers
     * reduce too: in a new swarm nobody is proven. */
    if (proven < MATCHMAKING_PROVEN_MIN || proven + unproven > MATCHMAKING_PROVEN_LOAD * proven)
        return PL_OK;
    for (size_t i = 0; i < g->count; i++) {
        struct group_member *f = &g->members[i];
        int rc = gather_reduces(&f->gather) && !m->callbacks->proven(m->context, &f->peer)
                     ? group_set_bandwidth(f, 0)
                     : PL_OK;
        if (rc) return rc;
    }
    return PL_OK;
}

/* The ID is drawn after the last follower has joined. No peer knows it earlier, so none can choose
 * its place among the next bits (group_next_bits). */
static int gather_group(struct matchmaking *m)
{
    struct group *g = &m->followers;
    struct peer_id self = m->o.self;
    int rc = random_source_bytes(&m->o.random, g->id, sizeof g->id);
    if (!rc) rc = demote_unproven(m);
    if (!rc) rc = group_add(g, &self, m->o.gather, m->o.gather_n, NULL);
    /* Without memory the group is disbanded, and each follower gets an error on its stream
     * (matchmaking_disband). We, the last member, have no stream, so we are removed first. */
    if (rc) return rc;
    rc = group_limit_bandwidths(g);
    if (!rc) rc = uplinks_relieve(g, m->o.slow);
    if (rc) free(g->members[--g->count].gathered);
    return rc;
}

static int begin_message(struct bytes *out, const struct group *g)
{
    Hivemind__MessageFromLeader message = HIVEMIND__MESSAGE_FROM_LEADER__INIT;
    ProtobufCBinaryData *views = malloc(2 * g->count * sizeof *views);
    int rc;
    if (!views) return PL_ENOMEM;
    for (size_t i = 0; i < g->count; i++) {
        /* Two lists of one length, IDs and gather messages in the same order. Views only:
         * the members own the bytes until the message has been packed. */
        views[i] = message_bytes(g->members[i].peer.bytes, g->members[i].peer.length);
        views[g->count + i] = message_bytes(g->members[i].gathered, g->members[i].gathered_n);
    }
    message.code = MSG_BEGIN_ALLREDUCE;
    message.group_id = message_bytes(g->id, sizeof g->id);
    message.ordered_peer_ids = views;
    message.gathered = views + g->count;
    message.n_ordered_peer_ids = message.n_gathered = g->count;
    rc = message_pack(out, &message.base);
    free(views);
    return rc;
}

/* --- the end of a search ---------------------------------------------------------------------- */

void matchmaking_see(struct matchmaking *m, enum matchmaking_seen seen)
{
    if (seen > m->seen) m->seen = seen;
}

int matchmaking_has_declared(const struct matchmaking *m) { return isfinite(m->begin) != 0; }

void matchmaking_withdraw(struct matchmaking *m)
{
    /* In the DHT a record wins by its later expiration, so the withdrawal takes the next
     * float64 above the declaration's: it overrides that one, and any later declaration
     * overrides it. [spec hivemind-protocol 4.1] */
    if (matchmaking_has_declared(m))
        m->callbacks->declare(m->context, nextafter(m->begin, INFINITY), 0);
    m->begin = INFINITY;
}

/* IDLE comes first: waiting peers that are judged below get NOT_LOOKING_FOR_GROUP. */
static void stop(struct matchmaking *m, double now)
{
    int had_leader = m->state == MATCHMAKING_ASKING || m->state == MATCHMAKING_FOLLOWING;
    m->state = MATCHMAKING_IDLE;
    if (had_leader) m->callbacks->leave(m->context);
    matchmaking_withdraw(m);
    matchmaking_disband(m, NULL);
    matchmaking_judge_waiting(m, now);
}

void matchmaking_end(struct matchmaking *m, double now, int status)
{
    stop(m, now);
    m->callbacks->over(m->context, status);
}

void matchmaking_cancel(struct matchmaking *m)
{
    if (m->state != MATCHMAKING_IDLE) stop(m, 0);
}

void matchmaking_assemble(struct matchmaking *m, double now)
{
    struct bytes out = { 0 };
    size_t followers = m->followers.count;
    /* From here on the group is a fact: followers get BEGIN_ALLREDUCE as the second and last
     * message on the stream that they asked by, and begin the all-reduce without another
     * word. */
    int rc = gather_group(m);
    group_clear(&m->group);
    if (!rc) {
        m->group = m->followers;
        memset(&m->followers, 0, sizeof m->followers);
        shuffle(&m->group, &m->o.random);
        m->group.self = (size_t)group_find(&m->group, &m->o.self);
        rc = begin_message(&out, &m->group);
    }
    for (size_t i = 0; !rc && i < followers; i++)
        m->callbacks->answer(m->context, m->streams[i], bytes_at(&out), bytes_length(&out), 1);
    bytes_clear(&out);
    if (rc) group_clear(&m->group);
    matchmaking_end(m, now, rc);
}

static int is_follower(const struct matchmaking *m, const struct peer_id *peer)
{
    return group_find(&m->followers, peer) >= 0;
}

size_t matchmaking_count_averaging(const struct matchmaking *m)
{
    struct gather own;
    /* Auxiliary peers bring no values (weight 0): a group of them alone has no mean. */
    size_t n = gather_read(&own, m->o.gather, m->o.gather_n, NULL) || own.mode != GROUP_AUXILIARY;
    for (size_t i = 0; i < m->followers.count; i++)
        n += m->followers.members[i].gather.mode != GROUP_AUXILIARY;
    return n;
}

/* How many of the peers that matchmaking_expect counts are here; we count, too. */
static size_t count_expected(const struct matchmaking *m)
{
    size_t n = matchmaking_count_averaging(m);
    for (size_t i = 0; m->callbacks->expected && i < m->followers.count; i++)
        n -= m->followers.members[i].gather.mode != GROUP_AUXILIARY &&
             !m->callbacks->expected(m->context, &m->followers.members[i].peer);
    return n;
}

/* All expected peers are here, and every peer that declared is among them. hivemind waits for the
 * whole window in any case. Progress records tell how many peers train, so a leader that has them
 * all can begin at once; a follower can't tell the difference. [spec hivemind-protocol 12] */
static int all_here(const struct matchmaking *m, double now)
{
    if (!m->expected || count_expected(m) < m->expected || !m->polls.seen) return 0;
    for (size_t i = 0; i < m->polls.count; i++)
        if (m->polls.candidates[i].expiration > now && !m->polls.candidates[i].doubtful &&
            !is_follower(m, &m->polls.candidates[i].peer))
            return 0;
    return 1;
}

void matchmaking_consider_leading(struct matchmaking *m, double now)
{
    size_t size = m->followers.count + 1;
    /* While a request of ours is open its answer decides: another leader may still accept
     * us. */
    if (m->state != MATCHMAKING_LOOKING || m->o.client_mode || size < 2 ||
        matchmaking_count_averaging(m) < m->o.min_size)
        return;
    /* Three reasons to begin: the group is full, the time that we declared has come, or every
     * expected peer is there. */
    if ((m->o.target_size && size >= m->o.target_size) || size == GROUP_PEERS_MAX ||
        now >= m->begin || all_here(m, now))
        matchmaking_assemble(m, now);
}

void matchmaking_expect(struct matchmaking *m, double now, size_t peers)
{
    m->expected = peers;
    matchmaking_consider_leading(m, now);
}

/* --- being asked ------------------------------------------------------------------------------ */

/* The checks and their order are hivemind's: its followers treat all refusals alike, but the
 * code tells a user what to change. [spec hivemind-protocol 4.4] */
static enum averaging_code judge(const struct matchmaking *m, const struct peer_id *peer,
                                 const Hivemind__JoinRequest *r)
{
    double expiration = r->expiration != 0 ? r->expiration : INFINITY; /* absent: forever */
    struct gather theirs;
    if (m->state == MATCHMAKING_IDLE) return MSG_NOT_LOOKING_FOR_GROUP;
    /* PROTOCOL_VIOLATION is for messages that no honest peer sends, and for banned peers. */
    if (!r->schema_hash.len || (r->expiration != 0 && !isfinite(r->expiration)) ||
        m->o.client_mode || matchmaking_refuses(m, peer) ||
        gather_read(&theirs, r->gather.data, r->gather.len, NULL))
        return MSG_PROTOCOL_VIOLATION;
    if (r->schema_hash.len != SCHEMA_HASH_BYTES ||
        memcmp(r->schema_hash.data, m->o.schema_hash, SCHEMA_HASH_BYTES))
        return MSG_BAD_SCHEMA_HASH;
    if (strcmp(r->group_key, m->o.key)) return MSG_BAD_GROUP_KEY;
    /* hivemind has no code for back-off. This one makes the peer look for another leader. */
    if (matchmaking_is_paused(m, peer)) return MSG_NOT_LOOKING_FOR_GROUP;
    /* A peer that has declared no time to begin cannot be followed. */
    if (!matchmaking_has_declared(m)) return MSG_NOT_DECLARED;
    /* Equal times pass: of two such peers only the one with the greater ID asks. */
    if (m->begin > expiration) return MSG_BAD_EXPIRATION_TIME;
    /* We follow another leader; the refusal names it. */
    if (m->state == MATCHMAKING_FOLLOWING) return MSG_NOT_A_LEADER;
    if (peer_id_equal(peer, &m->o.self) || is_follower(m, peer)) return MSG_DUPLICATE_PEER_ID;
    /* Ourselves included. */
    if (m->followers.count + 1 >= GROUP_PEERS_MAX ||
        (m->o.target_size && m->followers.count + 1 >= m->o.target_size))
        return MSG_GROUP_IS_FULL;
    return MSG_ACCEPTED;
}

static void decide(struct matchmaking *m, double now, void *stream, const struct peer_id *peer,
                   const uint8_t *data, size_t n)
{
    Hivemind__JoinRequest *r = message_unpack(&hivemind__join_request__descriptor, data, n, NULL);
    enum averaging_code code = r ? judge(m, peer, r) : MSG_PROTOCOL_VIOLATION;
    void **more;
    if (code == MSG_BAD_SCHEMA_HASH) matchmaking_see(m, MATCHMAKING_SEEN_INCOMPATIBLE);
    if (code == MSG_ACCEPTED) {
        /* The stream stays open: BEGIN_ALLREDUCE or GROUP_DISBANDED follows on it. */
        more = realloc(m->streams, (m->followers.count + 1) * sizeof *more);
        if (more) m->streams = more;
        if (!more || group_add(&m->followers, peer, r->gather.data, r->gather.len, NULL))
            code = MSG_INTERNAL_ERROR;
        else m->streams[m->followers.count - 1] = stream;
    }
    message_free(r);
    send_code(m, stream, code, code == MSG_NOT_A_LEADER ? &m->leader.peer : NULL,
              code != MSG_ACCEPTED);
    if (code == MSG_ACCEPTED) matchmaking_consider_leading(m, now);
}

void matchmaking_judge_waiting(struct matchmaking *m, double now)
{
    while (m->waiting.count && m->state != MATCHMAKING_ASKING) {
        /* taken out first: judging may end the search, and come here */
        struct matchmaking_waiting w = matchmaking_take_waiting(m, 0);
        decide(m, now, w.stream, &w.peer, w.request, w.n);
        free(w.request);
    }
}

/* Their streams are bounded where they are served (averager_join.c): 1,280 requests of 8 KiB.
 * Without memory they are refused with INTERNAL_ERROR, and their senders ask again later. */
static int queue_request(struct matchmaking *m, void *stream, const struct peer_id *peer,
                         const uint8_t *data, size_t n)
{
    struct matchmaking_waiting *more, w = { .stream = stream, .peer = *peer, .n = n };
    if (!(w.request = malloc(n + 1))) return PL_ENOMEM;
    if (n) memcpy(w.request, data, n);
    more = realloc(m->waiting.list, (m->waiting.count + 1) * sizeof *more);
    if (!more) {
        free(w.request);
        return PL_ENOMEM;
    }
    m->waiting.list = more;
    m->waiting.list[m->waiting.count++] = w;
    return PL_OK;
}

void matchmaking_request(struct matchmaking *m, double now, void *stream,
                         const struct peer_id *peer, const uint8_t *data, size_t n)
{
    /* While we ask a leader it is open whether we lead, so requests wait, as in hivemind. A request
     * of that leader itself is answered at once: else both would wait. If we accept that peer, it
     * becomes our follower and answers our request with NOT_A_LEADER. While we ask a doubtful
     * leader no request waits. */
    if (m->state == MATCHMAKING_ASKING && !m->leader.is_doubtful &&
        !peer_id_equal(peer, &m->leader.peer)) {
        if (queue_request(m, stream, peer, data, n))
            send_code(m, stream, MSG_INTERNAL_ERROR, NULL, 1);
    } else {
        decide(m, now, stream, peer, data, n);
    }
}

/* A peer that has closed its stream is not a follower any more: in the group it would be a reducer
 * that no other peer can reach. */
void matchmaking_request_gone(struct matchmaking *m, void *stream)
{
    for (size_t i = 0; i < m->waiting.count; i++)
        if (m->waiting.list[i].stream == stream) {
            free(matchmaking_take_waiting(m, i).request);
            return;
        }
    for (size_t i = 0; i < m->followers.count; i++)
        if (m->streams[i] == stream) {
            size_t behind = --m->followers.count - i;
            free(m->followers.members[i].gathered);
            memmove(&m->followers.members[i], &m->followers.members[i + 1],
                    behind * sizeof *m->followers.members);
            memmove(&m->streams[i], &m->streams[i + 1], behind * sizeof *m->streams);
            return;
        }
}
