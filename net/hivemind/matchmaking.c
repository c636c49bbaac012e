/* matchmaking.c - see matchmaking.h. */
#include "matchmaking.h"
#include "message.h"
#include "net/hivemind/averaging.pb-c.h"

#include <math.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

void matchmaking_init(struct matchmaking *m, const struct matchmaking_options *o,
                      const struct matchmaking_port *port, void *context)
{
    memset(m, 0, sizeof *m);
    m->o = *o;
    m->port = port;
    m->context = context;
}

static struct matchmaking_waiting take_waiting(struct matchmaking *m, size_t i)
{
    struct matchmaking_waiting w = m->waiting[i];
    memmove(&m->waiting[i], &m->waiting[i + 1], (--m->waiting_count - i) * sizeof *m->waiting);
    return w;
}

void matchmaking_clear(struct matchmaking *m)
{
    group_clear(&m->group);
    group_clear(&m->followers);
    while (m->waiting_count) free(take_waiting(m, m->waiting_count - 1).request);
    free(m->streams);
    free(m->candidates);
    free(m->tried);
    free(m->waiting);
    memset(m, 0, sizeof *m);
}

static int refuses(const struct matchmaking *m, const struct peer_id *peer)
{
    return m->port->refuses && m->port->refuses(m->context, peer);
}

/* --- what a leader says ----------------------------------------------------------------------- */

static void say(struct matchmaking *m, void *stream, enum averaging_code code,
                const struct peer_id *suggested, int last)
{
    Hivemind__MessageFromLeader message = HIVEMIND__MESSAGE_FROM_LEADER__INIT;
    struct bytes out = { 0 };
    message.code = (int32_t)code;
    if (suggested && suggested->length)
        message.suggested_leader = message_bytes(suggested->bytes, suggested->length);
    message_pack(&out, &message.base);
    m->port->answer(m->context, stream, bytes_at(&out), bytes_length(&out), last);
    bytes_clear(&out);
}

static void disband(struct matchmaking *m, const struct peer_id *suggested)
{
    for (size_t i = 0; i < m->followers.count; i++)
        say(m, m->streams[i], MSG_GROUP_DISBANDED, suggested, 1);
    group_clear(&m->followers);
}

/* --- the end of a search ---------------------------------------------------------------------- */

static void judge_waiting(struct matchmaking *m, double now);

static void withdraw(struct matchmaking *m)
{
    if (m->declared) m->port->declare(m->context, nextafter(m->begin, INFINITY), 0);
    m->declared = 0;
}

static void stop(struct matchmaking *m, double now)
{
    int asked = m->state == MATCHMAKING_ASKING || m->state == MATCHMAKING_FOLLOWING;
    m->state = MATCHMAKING_IDLE;
    if (asked) m->port->leave(m->context);
    withdraw(m);
    disband(m, NULL);
    judge_waiting(m, now); /* not looking for a group any more */
}

static void end(struct matchmaking *m, double now, int status)
{
    stop(m, now);
    m->port->over(m->context, status);
}

void matchmaking_cancel(struct matchmaking *m)
{
    if (m->state != MATCHMAKING_IDLE) stop(m, 0);
}

/* --- leading ---------------------------------------------------------------------------------- */

static void declare(struct matchmaking *m, double now)
{
    m->begin = fmin(fmax(m->scheduled, now + m->o.min_time), m->deadline);
    m->declared = 1;
    m->port->declare(m->context, m->begin, 1);
}

/* A random number below n, for the shuffle: nobody can arrange for a place in the order. */
static size_t below(size_t n)
{
    uint64_t x, most = UINT64_MAX - UINT64_MAX % n;
    do if (RAND_bytes((uint8_t *)&x, sizeof x) != 1) return 0; while (x >= most);
    return (size_t)(x % n);
}

static int gather_group(struct matchmaking *m)
{
    struct group *g = &m->followers;
    struct peer_id self = m->o.self;
    struct dht_id id;
    int rc = group_add(g, &self, m->o.gather, m->o.gather_n, NULL);
    if (!rc) rc = dht_id_random(&id);
    if (rc) return rc;
    memcpy(g->id, id.bytes, sizeof g->id);
    return PL_OK;
}

static int begin_message(struct bytes *out, const struct group *g)
{
    Hivemind__MessageFromLeader message = HIVEMIND__MESSAGE_FROM_LEADER__INIT;
    ProtobufCBinaryData *views = malloc(2 * g->count * sizeof *views);
    int rc;
    if (!views) return PL_ENOMEM;
    for (size_t i = 0; i < g->count; i++) {
        views[i] = message_bytes(g->members[i].peer.bytes, g->members[i].peer.length);
        views[g->count + i] = message_bytes(g->members[i].said, g->members[i].said_n);
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

static void assemble(struct matchmaking *m, double now)
{
    struct bytes out = { 0 };
    size_t followers = m->followers.count;
    int rc = gather_group(m);
    group_clear(&m->group);
    if (!rc) {
        m->group = m->followers;
        memset(&m->followers, 0, sizeof m->followers);
        for (size_t i = m->group.count - 1; i; i--) {
            size_t j = below(i + 1);
            struct group_member swap = m->group.members[i];
            m->group.members[i] = m->group.members[j];
            m->group.members[j] = swap;
        }
        m->group.self = (size_t)group_find(&m->group, &m->o.self);
        rc = begin_message(&out, &m->group);
    }
    for (size_t i = 0; !rc && i < followers; i++)
        m->port->answer(m->context, m->streams[i], bytes_at(&out), bytes_length(&out), 1);
    bytes_clear(&out);
    if (rc) group_clear(&m->group);
    end(m, now, rc);
}

static int is_follower(const struct matchmaking *m, const struct peer_id *peer)
{
    return group_find(&m->followers, peer) >= 0;
}

/* Everybody is here: the number that was to be expected, and nobody has declared who is not. */
static int all_here(const struct matchmaking *m, double now)
{
    if (!m->expected || m->followers.count + 1 < m->expected || !m->seen) return 0;
    for (size_t i = 0; i < m->candidate_count; i++)
        if (m->candidates[i].expiration > now && !is_follower(m, &m->candidates[i].peer)) return 0;
    return 1;
}

static void consider_leading(struct matchmaking *m, double now)
{
    size_t size = m->followers.count + 1;
    if (m->state != MATCHMAKING_LOOKING || m->o.client_mode || size < m->o.min_size || size < 2)
        return;
    if ((m->o.target_size && size >= m->o.target_size) || size == GROUP_PEERS_MAX ||
        now >= m->begin || all_here(m, now))
        assemble(m, now);
}

void matchmaking_expect(struct matchmaking *m, double now, size_t peers)
{
    m->expected = peers;
    consider_leading(m, now);
}

/* --- asking ----------------------------------------------------------------------------------- */

static void ask(struct matchmaking *m, double now, const struct peer_id *leader)
{
    Hivemind__JoinRequest request = HIVEMIND__JOIN_REQUEST__INIT;
    struct bytes out = { 0 };
    m->asked = m->o.client_mode ? fmin(fmax(m->scheduled, now + m->o.min_time), m->deadline)
                                : m->begin;
    request.schema_hash = message_bytes(m->o.schema_hash, SCHEMA_HASH_BYTES);
    request.expiration = m->asked;
    request.gather = message_bytes(m->o.gather, m->o.gather_n);
    request.client_mode = m->o.client_mode;
    request.group_key = (char *)(uintptr_t)m->o.key; /* only read */
    if (message_pack(&out, &request.base)) goto done;
    m->leader = *leader;
    m->state = MATCHMAKING_ASKING;
    m->until = now + m->o.request_timeout;
    m->port->ask(m->context, leader, bytes_at(&out), bytes_length(&out));
done:
    bytes_clear(&out);
}

static int earlier(const struct matchmaking_candidate *a, const struct matchmaking_candidate *b)
{
    if (a->expiration != b->expiration) return a->expiration < b->expiration;
    return peer_id_compare(&a->peer, &b->peer) < 0;
}

static int was_tried(const struct matchmaking *m, const struct matchmaking_candidate *c)
{
    for (size_t i = 0; i < m->tried_count; i++)
        if (m->tried[i].expiration == c->expiration && peer_id_equal(&m->tried[i].peer, &c->peer))
            return 1;
    return 0;
}

/* Expired attempts make room first. */
static int note_tried(struct matchmaking *m, double now, const struct matchmaking_candidate *c)
{
    size_t kept = 0;
    for (size_t i = 0; i < m->tried_count; i++)
        if (m->tried[i].expiration > now) m->tried[kept++] = m->tried[i];
    m->tried_count = kept;
    if (kept == m->tried_room) {
        size_t room = kept ? 2 * kept : 16;
        struct matchmaking_candidate *more;
        if (kept >= 4 * MATCHMAKING_CANDIDATES_MAX) return PL_ELIMIT;
        if (!(more = realloc(m->tried, room * sizeof *more))) return PL_ENOMEM;
        m->tried = more;
        m->tried_room = room;
    }
    m->tried[m->tried_count++] = *c;
    return PL_OK;
}

static void try_next(struct matchmaking *m, double now)
{
    const struct matchmaking_candidate me = { m->o.self, m->begin }, *best = NULL;
    if (m->state != MATCHMAKING_LOOKING) return;
    for (size_t i = 0; i < m->candidate_count; i++) {
        const struct matchmaking_candidate *c = &m->candidates[i];
        if (c->expiration > now && earlier(c, best ? best : &me) && !was_tried(m, c)) best = c;
    }
    m->hops = 0;
    if (best && !note_tried(m, now, best)) ask(m, now, &best->peer);
    else consider_leading(m, now);
}

/* The leader is of no use: others may be asked, and may ask. */
static void give_up_leader(struct matchmaking *m, double now)
{
    m->state = MATCHMAKING_LOOKING;
    m->port->leave(m->context);
    judge_waiting(m, now);
    if (m->state == MATCHMAKING_LOOKING && now < m->begin) try_next(m, now);
}

void matchmaking_leader_gone(struct matchmaking *m, double now)
{
    if (m->state == MATCHMAKING_ASKING || m->state == MATCHMAKING_FOLLOWING) give_up_leader(m, now);
}

/* --- what a leader has said ------------------------------------------------------------------- */

static int take_group(struct matchmaking *m, const Hivemind__MessageFromLeader *message)
{
    struct group g = { 0 };
    struct peer_id peer;
    int rc = message->group_id.len == sizeof g.id &&
             message->n_ordered_peer_ids == message->n_gathered ? PL_OK : PL_EPROTO;
    for (size_t i = 0; !rc && i < message->n_gathered; i++) {
        const ProtobufCBinaryData *id = &message->ordered_peer_ids[i],
                                  *said = &message->gathered[i];
        rc = peer_id_parse(&peer, id->data, id->len);
        if (!rc && refuses(m, &peer)) rc = PL_EPROTO; /* the round would come to nothing again */
        if (!rc) rc = group_append(&g, &peer, said->data, said->len, NULL);
    }
    if (!rc) rc = group_check_peers(&g, NULL);
    if (!rc && (group_find(&g, &m->o.self) < 0 || group_find(&g, &m->leader) < 0)) rc = PL_EPROTO;
    if (rc) {
        group_clear(&g);
        return rc;
    }
    memcpy(g.id, message->group_id.data, sizeof g.id);
    g.self = (size_t)group_find(&g, &m->o.self);
    group_clear(&m->group);
    m->group = g;
    return PL_OK;
}

/* Sent on to another leader. 0: there is none, or we have been sent on too often. */
static int follow_suggestion(struct matchmaking *m, double now,
                             const Hivemind__MessageFromLeader *message)
{
    struct peer_id next;
    if ((message->code != MSG_GROUP_DISBANDED && message->code != MSG_CANCELLED) ||
        peer_id_parse(&next, message->suggested_leader.data, message->suggested_leader.len) ||
        peer_id_equal(&next, &m->o.self) || refuses(m, &next) || m->hops++ >= MATCHMAKING_HOPS_MAX)
        return 0;
    m->state = MATCHMAKING_LOOKING;
    m->port->leave(m->context);
    ask(m, now, &next);
    return m->state == MATCHMAKING_ASKING;
}

void matchmaking_message(struct matchmaking *m, double now, const uint8_t *data, size_t n)
{
    Hivemind__MessageFromLeader *message;
    int grouped;
    if (m->state != MATCHMAKING_ASKING && m->state != MATCHMAKING_FOLLOWING) return;
    message = message_unpack(&hivemind__message_from_leader__descriptor, data, n, NULL);
    if (m->state == MATCHMAKING_ASKING && message && message->code == MSG_ACCEPTED) {
        m->state = MATCHMAKING_FOLLOWING;
        m->until = m->asked + m->o.request_timeout;
        disband(m, &m->leader);
        judge_waiting(m, now);
    } else {
        grouped = m->state == MATCHMAKING_FOLLOWING && message &&
                  message->code == MSG_BEGIN_ALLREDUCE && !take_group(m, message);
        if (grouped) end(m, now, PL_OK);
        else if (m->state == MATCHMAKING_ASKING || !message || !follow_suggestion(m, now, message))
            give_up_leader(m, now);
    }
    if (message) protobuf_c_message_free_unpacked(&message->base, NULL);
}

/* --- being asked ------------------------------------------------------------------------------ */

static enum averaging_code judge(const struct matchmaking *m, const struct peer_id *peer,
                                 const Hivemind__JoinRequest *r)
{
    double expiration = r->expiration != 0 ? r->expiration : INFINITY; /* absent: for ever */
    struct gather said;
    if (m->state == MATCHMAKING_IDLE) return MSG_NOT_LOOKING_FOR_GROUP;
    if (!r->schema_hash.len || (r->expiration != 0 && !isfinite(r->expiration)) ||
        m->o.client_mode || refuses(m, peer) ||
        gather_read(&said, r->gather.data, r->gather.len, NULL))
        return MSG_PROTOCOL_VIOLATION;
    if (r->schema_hash.len != SCHEMA_HASH_BYTES ||
        memcmp(r->schema_hash.data, m->o.schema_hash, SCHEMA_HASH_BYTES))
        return MSG_BAD_SCHEMA_HASH;
    if (strcmp(r->group_key, m->o.key)) return MSG_BAD_GROUP_KEY;
    if (!m->declared) return MSG_NOT_DECLARED;
    if (m->begin > expiration) return MSG_BAD_EXPIRATION_TIME;
    if (m->state == MATCHMAKING_FOLLOWING) return MSG_NOT_A_LEADER;
    if (peer_id_equal(peer, &m->o.self) || is_follower(m, peer)) return MSG_DUPLICATE_PEER_ID;
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
    if (code == MSG_ACCEPTED) {
        more = realloc(m->streams, (m->followers.count + 1) * sizeof *more);
        if (more) m->streams = more;
        if (!more || group_add(&m->followers, peer, r->gather.data, r->gather.len, NULL))
            code = MSG_INTERNAL_ERROR;
        else m->streams[m->followers.count - 1] = stream;
    }
    if (r) protobuf_c_message_free_unpacked(&r->base, NULL);
    say(m, stream, code, code == MSG_NOT_A_LEADER ? &m->leader : NULL, code != MSG_ACCEPTED);
    if (code == MSG_ACCEPTED) consider_leading(m, now);
}

static void judge_waiting(struct matchmaking *m, double now)
{
    while (m->waiting_count && m->state != MATCHMAKING_ASKING) {
        struct matchmaking_waiting w = take_waiting(m, 0); /* judging may end the search, and come here */
        decide(m, now, w.stream, &w.peer, w.request, w.n);
        free(w.request);
    }
}

static int wait(struct matchmaking *m, void *stream, const struct peer_id *peer,
                const uint8_t *data, size_t n)
{
    struct matchmaking_waiting *more, w = { .stream = stream, .peer = *peer, .n = n };
    if (m->waiting_count == MATCHMAKING_WAITING_MAX || !(w.request = malloc(n + 1)))
        return PL_ELIMIT;
    if (n) memcpy(w.request, data, n);
    more = realloc(m->waiting, (m->waiting_count + 1) * sizeof *more);
    if (!more) {
        free(w.request);
        return PL_ENOMEM;
    }
    m->waiting = more;
    m->waiting[m->waiting_count++] = w;
    return PL_OK;
}

void matchmaking_request(struct matchmaking *m, double now, void *stream,
                         const struct peer_id *peer, const uint8_t *data, size_t n)
{
    /* While we ask somebody it is open whether we lead, so others wait, as at the original. The one
     * whom we are asking would wait for us too: it gets its answer at once. Should it be accepted,
     * it follows us, and will say so to our own request. */
    if (m->state == MATCHMAKING_ASKING && !peer_id_equal(peer, &m->leader)) {
        if (wait(m, stream, peer, data, n)) say(m, stream, MSG_INTERNAL_ERROR, NULL, 1);
    } else {
        decide(m, now, stream, peer, data, n);
    }
}

void matchmaking_asker_gone(struct matchmaking *m, void *stream)
{
    for (size_t i = 0; i < m->waiting_count; i++)
        if (m->waiting[i].stream == stream) {
            free(take_waiting(m, i).request);
            return;
        }
    for (size_t i = 0; i < m->followers.count; i++)
        if (m->streams[i] == stream) {
            size_t behind = --m->followers.count - i;
            free(m->followers.members[i].said);
            memmove(&m->followers.members[i], &m->followers.members[i + 1],
                    behind * sizeof *m->followers.members);
            memmove(&m->streams[i], &m->streams[i + 1], behind * sizeof *m->streams);
            return;
        }
}

/* --- time ------------------------------------------------------------------------------------- */

static void look(struct matchmaking *m)
{
    m->looking_up = 1;
    m->port->look_up(m->context);
}

void matchmaking_begin(struct matchmaking *m, double now, double scheduled, double deadline)
{
    m->scheduled = scheduled;
    m->deadline = deadline;
    m->begin = INFINITY;
    m->state = MATCHMAKING_LOOKING;
    m->seen = 0;
    m->expected = 0;
    m->patience = m->lonely = 0;
    m->candidate_count = m->tried_count = 0;
    group_clear(&m->group);
    if (!m->o.client_mode) declare(m, now);
    look(m);
}

void matchmaking_patience(struct matchmaking *m, int times)
{
    m->patience = times;
    m->lonely = 0;
}

double matchmaking_wake(const struct matchmaking *m)
{
    switch (m->state) {
    case MATCHMAKING_IDLE: return INFINITY;
    case MATCHMAKING_ASKING: case MATCHMAKING_FOLLOWING: return fmin(m->until, m->deadline);
    case MATCHMAKING_LOOKING: break;
    }
    return fmin(m->deadline, fmin(m->begin, m->looking_up ? INFINITY : m->look_at));
}

/* Our time has come. */
static void lead(struct matchmaking *m, double now)
{
    if (m->followers.count + 1 >= m->o.min_size && m->followers.count) {
        assemble(m, now);
        return;
    }
    disband(m, NULL);
    m->lonely = m->candidate_count ? 0 : m->lonely + 1;
    if (now >= m->deadline || (m->patience && m->lonely >= m->patience)) {
        end(m, now, PL_EAGAIN);
        return;
    }
    declare(m, now);
    try_next(m, now);
}

void matchmaking_tick(struct matchmaking *m, double now)
{
    if ((m->state == MATCHMAKING_ASKING || m->state == MATCHMAKING_FOLLOWING) && now >= m->until)
        give_up_leader(m, now);
    if (m->state == MATCHMAKING_LOOKING && now >= m->begin) lead(m, now);
    if (m->state != MATCHMAKING_IDLE && now >= m->deadline) end(m, now, PL_EAGAIN);
    if (m->state == MATCHMAKING_LOOKING && !m->looking_up && now >= m->look_at) look(m);
}

void matchmaking_found(struct matchmaking *m, double now, const struct matchmaking_candidate *found,
                       size_t n)
{
    m->looking_up = 0;
    m->look_at = now + MATCHMAKING_LOOK_EVERY;
    if (m->state == MATCHMAKING_IDLE) return;
    if (!m->candidates &&
        !(m->candidates = malloc(MATCHMAKING_CANDIDATES_MAX * sizeof *m->candidates)))
        return;
    m->candidate_count = 0;
    m->seen = 1;
    for (size_t i = 0; i < n && m->candidate_count < MATCHMAKING_CANDIDATES_MAX; i++)
        if (found[i].expiration > now && isfinite(found[i].expiration) &&
            !peer_id_equal(&found[i].peer, &m->o.self) && !refuses(m, &found[i].peer))
            m->candidates[m->candidate_count++] = found[i];
    try_next(m, now);
}
