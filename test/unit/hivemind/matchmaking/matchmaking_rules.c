/* matchmaking_rules.c - one matchmaking engine and a script of events: each rule of the protocol by itself, and each
 * bound at n and n + 1. [spec hivemind-protocol 4.4] matchmaking.c has whole swarms.
 * One long file: all rules are played by one script of events. */
#include "net/hivemind/matchmaking/matchmaking.h"
#include "net/hivemind/messages/averaging.pb-c.h"
#include "net/message.h"
#include "test/unit/unit.h"

#include <math.h>

#define M 16.0      /* min_time, s */
#define TIMEOUT 3.0 /* request_timeout, s */
#define START 1000.0

static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
static const uint8_t auxiliary[] = { 0x93, 0xc0, 0x02, 0xc4, 0x01, 0xc0 };
static const char key[] = "run_grad_averager.0b";

/* The engine's requests to its owner. */
static struct {
    struct matchmaking m;
    double expiration; /* of the last declaration */
    int active;
    int asks, polls, left, over, status, answers;
    struct peer_id asked;
    double asked_expiration;
    enum averaging_code code; /* of the last answer */
    struct peer_id suggested;
    void *stream;
    int last;
    struct peer_id order[4]; /* of the last BEGIN_ALLREDUCE */
    uint8_t drawn;           /* by the random source so far */
} t;

static struct peer_id id_of(int i)
{
    return (struct peer_id){ .length = 34, .bytes = { 0x12, 0x20, (uint8_t)i } };
}

static void on_declare(void *context, double expiration, int active)
{
    t.expiration = expiration;
    t.active = active;
}
static void on_poll(void *context) { (void)context, t.polls++; }
static void on_ask(void *context, const struct peer_id *leader, const uint8_t *data, size_t n)
{
    Hivemind__JoinRequest *r = message_unpack(&hivemind__join_request__descriptor, data, n, NULL);
    assert_non_null(r);
    t.asked_expiration = r->expiration;
    message_free(r);
    t.asks++;
    t.asked = *leader;
}
static void on_leave(void *context) { (void)context, t.left++; }
static void on_answer(void *context, void *stream, const uint8_t *data, size_t n, int last)
{
    Hivemind__MessageFromLeader *m = message_unpack(&hivemind__message_from_leader__descriptor,
                                                    data, n, NULL);
    assert_non_null(m);
    t.answers++;
    t.stream = stream;
    t.last = last;
    t.code = (enum averaging_code)m->code;
    memset(&t.suggested, 0, sizeof t.suggested);
    if (m->suggested_leader.len)
        assert_int_equal(peer_id_parse(&t.suggested, m->suggested_leader.data,
                                       m->suggested_leader.len),
                         0);
    for (size_t i = 0; i < m->n_ordered_peer_ids && i < PL_COUNT(t.order); i++)
        assert_int_equal(peer_id_parse(&t.order[i], m->ordered_peer_ids[i].data,
                                       m->ordered_peer_ids[i].len),
                         0);
    message_free(m);
}
static void on_over(void *context, int status)
{
    t.over++;
    t.status = status;
}

static int draw(void *context, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) out[i] = (uint8_t)(t.drawn++ * 37 + 11);
    return PL_OK;
}

static int is_banned(void *context, const struct peer_id *peer)
{
    return (void)context, peer->bytes[2] == 66;
}

static int is_paused(void *context, const struct peer_id *peer)
{
    return (void)context, peer->bytes[2] == 67;
}

static const struct matchmaking_callbacks callbacks = { .declare = on_declare,
                                                        .poll = on_poll,
                                                        .ask = on_ask,
                                                        .leave = on_leave,
                                                        .answer = on_answer,
                                                        .refuses = is_banned,
                                                        .paused = is_paused,
                                                        .over = on_over };

/* Peer 50 begins a search at START. */
static void begin(double scheduled, double deadline, size_t target)
{
    struct matchmaking_options o = { .self = id_of(50),
                                     .key = key,
                                     .min_time = M,
                                     .request_timeout = TIMEOUT,
                                     .target_size = target,
                                     .min_size = 2,
                                     .gather = gather,
                                     .gather_n = sizeof gather,
                                     .random = { .draw = draw } };
    memset(&t, 0, sizeof t);
    matchmaking_init(&t.m, &o, &callbacks, NULL);
    matchmaking_begin(&t.m, START, scheduled, deadline);
}

static void end(void)
{
    matchmaking_cancel(&t.m);
    matchmaking_clear(&t.m);
}

static void found(double now, size_t n, const struct matchmaking_candidate *c)
{
    matchmaking_found(&t.m, now, c, n);
}

static void found_one(double now, int peer, double expiration)
{
    const struct matchmaking_candidate c = { id_of(peer), expiration, 0 };
    found(now, 1, &c);
}

/* A peer's request to join us, on a stream of this number. */
static void request(double now, int peer, size_t stream, double expiration, const uint8_t *gathered)
{
    Hivemind__JoinRequest r = HIVEMIND__JOIN_REQUEST__INIT;
    struct bytes out = { 0 };
    struct peer_id id = id_of(peer);
    uint8_t hash[SCHEMA_HASH_BYTES] = { 0 };
    r.schema_hash = message_bytes(hash, sizeof hash);
    r.expiration = expiration;
    r.gather = message_bytes(gathered, sizeof gather);
    r.group_key = (char *)(uintptr_t)key;
    assert_int_equal(message_pack(&out, &r.base), 0);
    matchmaking_request(&t.m, now, (void *)(uintptr_t)stream, &id, bytes_at(&out),
                        bytes_length(&out));
    bytes_clear(&out);
}

/* Our leader's answer. */
static void answered(double now, enum averaging_code code, const struct peer_id *suggested)
{
    Hivemind__MessageFromLeader m = HIVEMIND__MESSAGE_FROM_LEADER__INIT;
    struct bytes out = { 0 };
    m.code = (int32_t)code;
    if (suggested) m.suggested_leader = message_bytes(suggested->bytes, suggested->length);
    assert_int_equal(message_pack(&out, &m.base), 0);
    matchmaking_message(&t.m, now, bytes_at(&out), bytes_length(&out));
    bytes_clear(&out);
}

/* BEGIN_ALLREDUCE with an ID of this many bytes, these peers, and this many gather messages. */
static void began(size_t id_n, size_t n, const int *peers, size_t gathered)
{
    Hivemind__MessageFromLeader m = HIVEMIND__MESSAGE_FROM_LEADER__INIT;
    ProtobufCBinaryData ids[4], gathers[4];
    struct peer_id id[4];
    uint8_t group_id[DHT_ID_BYTES + 1] = { 7 };
    struct bytes out = { 0 };
    for (size_t i = 0; i < n; i++) {
        id[i] = id_of(peers[i]);
        ids[i] = message_bytes(id[i].bytes, id[i].length);
    }
    for (size_t i = 0; i < gathered; i++) gathers[i] = message_bytes(gather, sizeof gather);
    m.code = MSG_BEGIN_ALLREDUCE;
    m.group_id = message_bytes(group_id, id_n);
    m.ordered_peer_ids = ids;
    m.n_ordered_peer_ids = n;
    m.gathered = gathers;
    m.n_gathered = gathered;
    assert_int_equal(message_pack(&out, &m.base), 0);
    matchmaking_message(&t.m, START + 1, bytes_at(&out), bytes_length(&out));
    bytes_clear(&out);
}

static int was_asked(int peer)
{
    struct peer_id id = id_of(peer);
    return peer_id_equal(&t.asked, &id);
}

/* --- declaring -------------------------------------------------------------------------------- */

/* E = min(max(scheduled, now + M), deadline). */
static void the_window(void **state)
{
    static const struct {
        double scheduled, deadline, want;
    } cases[] = {
        { 0, START + 100, START + M },
        { START + M + 1, START + 100, START + M + 1 },
        { START + M - 1, START + 100, START + M },
        { START + M, START + 100, START + M },
        { 0, START + M - 1, START + M - 1 },
        { START + 200, START + 100, START + 100 },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        begin(cases[i].scheduled, cases[i].deadline, 0);
        assert_true(t.active && t.expiration == cases[i].want);
        end();
    }
}

/* A withdrawal has the next later expiration, so that it wins over the declaration everywhere. */
static void withdrawals_win(void **state)
{
    begin(0, START + 100, 0);
    matchmaking_cancel(&t.m);
    assert_false(t.active);
    assert_true(t.expiration == nextafter(START + M, INFINITY));
    t.expiration = 0;
    matchmaking_cancel(&t.m); /* once */
    assert_true(t.expiration == 0);
    end();
}

/* This many windows without any other declaration end the search; one with company starts the count
 * anew. */
static void patience(void **state)
{
    double now = START;
    begin(0, START + 1000, 0);
    matchmaking_patience(&t.m, 2);
    for (int window = 0; window < 5; window++) {
        /* in the first and the third somebody later than us is there */
        if (window == 0 || window == 2) found_one(now, 60, now + 500);
        else found(now, 0, NULL);
        assert_int_equal(t.over, 0);
        now += M;
        matchmaking_tick(&t.m, now);
        if (window == 4) break;
        assert_true(t.active && t.expiration == now + M);
    }
    assert_true(t.over == 1 && t.status == PL_EAGAIN);
    end();
}

/* --- asking ----------------------------------------------------------------------------------- */

/* The peer with the earlier declaration leads; of equal ones that with the smaller peer ID. Expired
 * declarations do not count. */
static void earliest_declaration_is_asked(void **state)
{
    static const struct {
        int peer;
        double expiration;
        int asked, known;
    } cases[] = {
        { 60, START + M - 0.001, 1, 1 },
        { 60, START + M + 0.001, 0, 1 },
        { 49, START + M, 1, 1 },
        { 51, START + M, 0, 1 },
        { 49, START, 0, 0 },
        { 49, START + 0.001, 1, 1 },
        { 49, INFINITY, 0, 0 },
        { 66, START + 1, 0, 0 }, /* banned */
        { 50, START + 1, 0, 0 }, /* ourselves */
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        begin(0, START + 100, 0);
        found_one(START, cases[i].peer, cases[i].expiration);
        assert_int_equal(t.asks, cases[i].asked);
        if (t.asks) assert_true(was_asked(cases[i].peer) && t.asked_expiration == START + M);
        assert_int_equal(t.m.seen > MATCHMAKING_SEEN_NONE, cases[i].known);
        end();
    }
}

/* A leader that does not answer is asked again after 2, 4, 8... s, unless our own time would come
 * before its answer could. */
static void the_retry_of_a_join(void **state)
{
    double now = START, pause = 2;
    begin(START + 60, START + 100, 0);
    for (int asks = 1; asks <= 4; asks++, pause *= 2) {
        found_one(now, 40, START + 50);
        assert_int_equal(t.asks, asks);
        matchmaking_tick(&t.m, now + TIMEOUT - 0.001);
        assert_int_equal(t.m.state, MATCHMAKING_ASKING);
        now += TIMEOUT;
        matchmaking_tick(&t.m, now);
        assert_int_equal(t.m.state, MATCHMAKING_LOOKING);
        found_one(now + pause - 0.001, 40, START + 50);
        assert_int_equal(t.asks, asks);
        now += pause;
    }
    end();
    /* Our time is at START + M: a second request at START + 5 would be answered by then... */
    begin(0, START + 100, 0);
    found_one(START + M - 3 * TIMEOUT, 40, START + 15);
    matchmaking_tick(&t.m, START + M - 2 * TIMEOUT);
    found_one(START + M - TIMEOUT - 0.001, 40, START + 15);
    assert_int_equal(t.asks, 2);
    end();
    /* ...and at START + M - TIMEOUT not any more. */
    begin(0, START + 100, 0);
    found_one(START + M - 3 * TIMEOUT, 40, START + 15);
    matchmaking_tick(&t.m, START + M - 2 * TIMEOUT);
    found_one(START + M - TIMEOUT, 40, START + 15);
    assert_int_equal(t.asks, 1);
    end();
}

/* A refusal is an answer: that declaration is not asked again, a later one of the same peer is. Two
 * codes pass with time, and are treated as silence. */
static void refusals(void **state)
{
    static const struct {
        enum averaging_code code;
        int again;
    } cases[] = {
        { MSG_BAD_EXPIRATION_TIME, 0 }, { MSG_GROUP_IS_FULL, 0 },  { MSG_NOT_A_LEADER, 0 },
        { MSG_BAD_SCHEMA_HASH, 0 },     { MSG_NOT_DECLARED, 1 },   { MSG_DUPLICATE_PEER_ID, 1 },
        { MSG_BAD_GROUP_KEY, 0 },       { MSG_INTERNAL_ERROR, 0 },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        begin(0, START + 100, 0);
        found_one(START, 40, START + 15);
        answered(START + 0.1, cases[i].code, NULL);
        assert_true(t.m.state == MATCHMAKING_LOOKING && t.left == 1);
        found_one(START + 0.1 + MATCHMAKING_AGAIN - 0.001, 40, START + 15);
        assert_int_equal(t.asks, 1);
        found_one(START + 0.1 + MATCHMAKING_AGAIN, 40, START + 15);
        assert_int_equal(t.asks, 1 + cases[i].again);
        end();
        begin(0, START + 100, 0);
        found_one(START, 40, START + 14);
        answered(START + 0.1, cases[i].code, NULL);
        found_one(START + 0.2, 40, START + 15);
        assert_int_equal(t.asks, 2);
        end();
    }
}

/* First candidates that have not been asked, earliest first; then those that are known to exist; a
 * second time only then. */
static void the_order_of_asking(void **state)
{
    const struct matchmaking_candidate all[] = {
        { id_of(40), START + 14, 0 },
        { id_of(41), START + 12, 0 },
        { id_of(42), START + 11, 1 }, /* doubtful */
        { id_of(43), START + 12, 0 }, /* as early as 41, with a greater ID */
    };
    static const int want[] = { 41, 43, 40, 42 };
    double now = START;
    begin(0, START + 100, 0);
    for (size_t i = 0; i < PL_COUNT(want); i++) {
        found(now, PL_COUNT(all), all);
        assert_true(t.asks == (int)i + 1 && was_asked(want[i]));
        matchmaking_tick(&t.m, now += i == 3 ? M / MATCHMAKING_DOUBTFUL_SHARE : TIMEOUT / 2);
        if (i < 3) answered(now, i < 2 ? MSG_NOT_DECLARED : MSG_GROUP_IS_FULL, NULL);
    }
    /* 41 and 43 may be asked again; 40 has refused, 42 is silent. */
    found(now, PL_COUNT(all), all);
    assert_true(t.asks == 5 && was_asked(41));
    end();
}

/* A doubtful candidate has an eighth of M. Three silent ones end that for the window, one in each
 * window after it, until one answers. */
static void doubtful_candidates(void **state)
{
    struct matchmaking_candidate c[8];
    double now = START, share = M / MATCHMAKING_DOUBTFUL_SHARE;
    begin(0, START + 100, 0);
    for (int i = 0; i < 8; i++)
        c[i] = (struct matchmaking_candidate){ id_of(i + 1), START + M - 1, 1 };
    found(now, 8, c);
    for (int asks = 1; asks <= MATCHMAKING_DOUBTFUL_ASKS; asks++) {
        assert_int_equal(t.asks, asks);
        matchmaking_tick(&t.m, now + share - 0.001);
        assert_int_equal(t.m.state, MATCHMAKING_ASKING);
        matchmaking_tick(&t.m, now += share);
    }
    found(now, 8, c);
    assert_int_equal(t.asks, MATCHMAKING_DOUBTFUL_ASKS);
    now = START + M;
    matchmaking_tick(&t.m, now);
    for (int i = 0; i < 8; i++) c[i].expiration = now + M - 1;
    found(now, 8, c);
    assert_int_equal(t.asks, MATCHMAKING_DOUBTFUL_ASKS + 1);
    matchmaking_tick(&t.m, now += share);
    found(now, 8, c);
    assert_int_equal(t.asks, MATCHMAKING_DOUBTFUL_ASKS + 1);
    now = START + 2 * M;
    matchmaking_tick(&t.m, now);
    for (int i = 0; i < 8; i++) c[i].expiration = now + M - 1;
    found(now, 8, c);
    answered(now, MSG_GROUP_IS_FULL, NULL); /* one exists: three may be silent again */
    for (int asks = 0; asks < MATCHMAKING_DOUBTFUL_ASKS; asks++) {
        assert_int_equal(t.asks, MATCHMAKING_DOUBTFUL_ASKS + 3 + asks);
        matchmaking_tick(&t.m, now += share);
    }
    found(now, 8, c);
    assert_int_equal(t.asks, 2 * MATCHMAKING_DOUBTFUL_ASKS + 2);
    end();
}

/* --- following -------------------------------------------------------------------------------- */

static void follow(void)
{
    begin(0, START + 100, 0);
    found_one(START, 40, START + 10);
    answered(START, MSG_ACCEPTED, NULL);
    assert_int_equal(t.m.state, MATCHMAKING_FOLLOWING);
}

/* Which BEGIN_ALLREDUCE is a group. */
static void the_group(void **state)
{
    static const struct {
        size_t id_n, n;
        int peers[4];
        size_t gathered;
        int good;
    } cases[] = {
        { DHT_ID_BYTES, 3, { 40, 50, 60 }, 3, 1 },
        { DHT_ID_BYTES, 2, { 50, 40 }, 2, 1 },
        { DHT_ID_BYTES - 1, 3, { 40, 50, 60 }, 3, 0 },
        { DHT_ID_BYTES + 1, 3, { 40, 50, 60 }, 3, 0 },
        { DHT_ID_BYTES, 3, { 40, 50, 60 }, 2, 0 },
        { DHT_ID_BYTES, 2, { 40, 50 }, 3, 0 },
        { DHT_ID_BYTES, 4, { 40, 50, 60, 60 }, 4, 0 }, /* a peer twice */
        { DHT_ID_BYTES, 3, { 40, 50, 40 }, 3, 0 },
        { DHT_ID_BYTES, 2, { 50, 60 }, 2, 0 },     /* without its leader */
        { DHT_ID_BYTES, 2, { 40, 60 }, 2, 0 },     /* without us */
        { DHT_ID_BYTES, 3, { 40, 50, 66 }, 3, 0 }, /* with a peer that we refuse */
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        follow();
        began(cases[i].id_n, cases[i].n, cases[i].peers, cases[i].gathered);
        assert_int_equal(t.over, cases[i].good);
        if (cases[i].good) {
            assert_true(t.status == PL_OK && t.m.group.count == cases[i].n);
            assert_int_equal(t.m.group.id[0], 7);
            assert_int_equal(t.m.group.members[t.m.group.self].peer.bytes[2], 50);
        } else {
            assert_int_equal(t.m.state, MATCHMAKING_LOOKING);
        }
        end();
    }
}

/* A leader that has accepted us has until our own time and one request_timeout more. */
static void the_leaders_time(void **state)
{
    follow();
    matchmaking_tick(&t.m, START + M + TIMEOUT - 0.001);
    assert_int_equal(t.m.state, MATCHMAKING_FOLLOWING);
    matchmaking_tick(&t.m, START + M + TIMEOUT);
    assert_int_equal(t.m.state, MATCHMAKING_LOOKING);
    end();
}

/* Leaders may send us on eight times; not to ourselves, nor to a peer that we
 * refuse, or whose groups we leave alone for a while. */
static void suggested_leaders_are_followed_eight_times(void **state)
{
    struct peer_id next;
    follow();
    for (int hop = 1; hop <= MATCHMAKING_HOPS_MAX + 1; hop++) {
        next = id_of(70 + hop);
        answered(START, MSG_GROUP_DISBANDED, &next);
        if (hop > MATCHMAKING_HOPS_MAX) break;
        assert_true(t.asks == 1 + hop && was_asked(70 + hop));
        answered(START, MSG_ACCEPTED, NULL);
    }
    assert_int_equal(t.asks, 1 + MATCHMAKING_HOPS_MAX);
    assert_int_equal(t.m.state, MATCHMAKING_LOOKING);
    end();
    for (int i = 0; i < 3; i++) {
        follow();
        next = id_of((int[]){ 50, 66, 67 }[i]);
        answered(START, MSG_CANCELLED, &next);
        assert_true(t.asks == 1 && t.m.state == MATCHMAKING_LOOKING);
        end();
    }
}

/* --- leading ---------------------------------------------------------------------------------- */

/* An expiration that is not before our own time is accepted; an absent one means forever. */
static void expirations_of_followers(void **state)
{
    begin(0, START + 100, 0);
    request(START, 60, 1, START + M, gather);
    assert_true(t.code == MSG_ACCEPTED && !t.last);
    request(START, 61, 2, nextafter(START + M, 0), gather);
    assert_true(t.code == MSG_BAD_EXPIRATION_TIME && t.last);
    request(START, 62, 3, 0, gather);
    assert_int_equal(t.code, MSG_ACCEPTED);
    request(START, 63, 4, INFINITY, gather);
    assert_int_equal(t.code, MSG_PROTOCOL_VIOLATION);
    request(START, 60, 5, START + M, gather);
    assert_int_equal(t.code, MSG_DUPLICATE_PEER_ID);
    request(START, 50, 6, START + M, gather);
    assert_int_equal(t.code, MSG_DUPLICATE_PEER_ID);
    request(START, 66, 7, START + M, gather);
    assert_int_equal(t.code, MSG_PROTOCOL_VIOLATION);
    end();
}

/* The group begins at our own time, not before; a request that comes in that moment is in it. */
static void at_our_own_time(void **state)
{
    begin(0, START + 100, 0);
    request(START, 60, 1, START + M, gather);
    matchmaking_tick(&t.m, nextafter(START + M, 0));
    assert_int_equal(t.over, 0);
    matchmaking_tick(&t.m, START + M);
    assert_true(t.over == 1 && t.code == MSG_BEGIN_ALLREDUCE && t.m.group.count == 2);
    end();
    begin(0, START + 100, 0);
    request(START + M, 60, 1, START + M, gather);
    assert_true(t.over == 1 && t.code == MSG_BEGIN_ALLREDUCE);
    end();
    /* An auxiliary peer and one other average nothing, whichever leads. */
    for (int leads = 0; leads <= 1; leads++) {
        begin(0, START + 100, 0);
        if (leads) t.m.o.gather = auxiliary;
        request(START, 60, 1, START + M, leads ? gather : auxiliary);
        matchmaking_tick(&t.m, START + M);
        assert_true(t.over == 0 && t.code == MSG_GROUP_DISBANDED);
        end();
    }
}

/* With as many peers as are expected, and no other declaration, it begins at once; it has to know
 * the others' declarations for that. */
static void all_are_here(void **state)
{
    for (int peers = 2; peers <= 3; peers++) {
        begin(0, START + 100, 0);
        matchmaking_expect(&t.m, START, (size_t)peers);
        request(START, 60, 1, START + M, gather);
        assert_int_equal(t.over, 0);
        found(START + 0.1, 0, NULL);
        assert_int_equal(t.over, peers == 2);
        end();
    }
    /* One who has declared and is no follower is waited for, until its declaration expires. */
    begin(0, START + 100, 0);
    matchmaking_expect(&t.m, START, 2);
    found_one(START, 61, START + M + 2);
    request(START, 60, 1, START + M, gather);
    assert_int_equal(t.over, 0);
    found(START + 0.3, 0, NULL);
    assert_int_equal(t.over, 1);
    end();
}

/* A group of the target size begins at once. While it can't, since we ask somebody ourselves, it is
 * full at that size. */
static void the_target_size(void **state)
{
    const struct matchmaking_candidate c = { id_of(40), START + 10, 1 };
    for (int target = 2; target <= 3; target++) {
        begin(0, START + 100, (size_t)target);
        request(START, 60, 1, START + M, gather);
        assert_int_equal(t.over, target == 2);
        if (target == 3) request(START, 61, 2, START + M, gather);
        assert_int_equal(t.over, 1);
        end();
        begin(0, START + 100, (size_t)target);
        found(START, 1, &c); /* doubtful: no request waits for its answer */
        for (int i = 1; i <= target; i++) {
            request(START, 60 + i, (size_t)i, START + M, gather);
            assert_int_equal(t.code, i < target ? MSG_ACCEPTED : MSG_GROUP_IS_FULL);
        }
        end();
    }
}

/* While we ask, others wait; then they hear what has come of it. */
static void others_wait(void **state)
{
    struct peer_id leader = id_of(40);
    begin(0, START + 100, 0);
    found_one(START, 40, START + 10);
    for (size_t i = 0; i < 300; i++) request(START, 60, 1 + i, START + M, gather);
    assert_int_equal(t.answers, 0);
    request(START, 40, 1001, START + M, gather); /* the peer that we ask is answered at once */
    assert_true(t.answers == 1 && t.code == MSG_ACCEPTED);
    answered(START, MSG_ACCEPTED, NULL);
    assert_int_equal(t.code, MSG_NOT_A_LEADER);
    assert_true(peer_id_equal(&t.suggested, &leader));
    assert_int_equal(t.answers, 1 + 300 + 1); /* and its own follower */
    end();
}

/* Of two followers one leaves: the other one's stream is still its own. */
static void a_follower_leaves(void **state)
{
    for (size_t gone = 1; gone <= 3; gone++) {
        begin(0, START + 100, 0);
        for (int i = 1; i <= 3; i++) request(START, 60 + i, (size_t)i, START + M, gather);
        matchmaking_request_gone(&t.m, (void *)gone);
        assert_int_equal(t.m.followers.count, 2);
        for (size_t i = 0; i < 2; i++)
            assert_int_equal(t.m.followers.members[i].peer.bytes[2],
                             60 + (uintptr_t)t.m.streams[i]);
        for (size_t i = 0; i < 2; i++) assert_true(t.m.streams[i] != (void *)gone);
        end();
    }
}

/* Places are drawn at random: a peer gains nothing by coming first. */
static void places(void **state)
{
    static const int orders[][3] = { { 61, 62, 63 }, { 63, 61, 62 }, { 62, 63, 61 } };
    struct peer_id want[4];
    for (size_t i = 0; i < PL_COUNT(orders); i++) {
        begin(0, START + 100, 4);
        t.drawn = 0;
        for (int k = 0; k < 3; k++) request(START, orders[i][k], (size_t)k + 1, START + M, gather);
        assert_int_equal(t.code, MSG_BEGIN_ALLREDUCE);
        if (!i) memcpy(want, t.order, sizeof want);
        assert_memory_equal(t.order, want, sizeof want);
        end();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_window),
        cmocka_unit_test(withdrawals_win),
        cmocka_unit_test(patience),
        cmocka_unit_test(earliest_declaration_is_asked),
        cmocka_unit_test(the_retry_of_a_join),
        cmocka_unit_test(refusals),
        cmocka_unit_test(the_order_of_asking),
        cmocka_unit_test(doubtful_candidates),
        cmocka_unit_test(the_group),
        cmocka_unit_test(the_leaders_time),
        cmocka_unit_test(suggested_leaders_are_followed_eight_times),
        cmocka_unit_test(expirations_of_followers),
        cmocka_unit_test(at_our_own_time),
        cmocka_unit_test(all_are_here),
        cmocka_unit_test(the_target_size),
        cmocka_unit_test(others_wait),
        cmocka_unit_test(a_follower_leaves),
        cmocka_unit_test(places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
