/* golden_protocol_join.c - join requests and first parts as a real averager answered them, and the
 * calls of two real trainers. */
#include "golden_protocol.h"
#include "net/hivemind/allreduce/allreduce.h"
#include "net/hivemind/matchmaking/matchmaking.h"
#include "net/message.h"
#include "net/hivemind/messages/state_message.h"
#include "net/hivemind/messages/averaging.pb-c.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- a leader that is asked ------------------------------------------------------------------- */

struct leader {
    struct golden *g;
    struct matchmaking m;
    int codes[8], count, ended, over;
};

static void nothing_declared(void *context, double expiration, int active)
{
    (void)context, (void)expiration, (void)active;
}
static void nothing(void *context) { (void)context; }
static void nobody_asked(void *context, const struct peer_id *p, const uint8_t *data, size_t n)
{
    (void)context, (void)p, (void)data, (void)n;
}
static void on_answer(void *context, void *stream, const uint8_t *data, size_t n, int last)
{
    struct leader *l = context;
    Hivemind__MessageFromLeader *m = message_unpack(&hivemind__message_from_leader__descriptor,
                                                    data, n, NULL);
    (void)stream;
    if (m && l->count < (int)PL_COUNT(l->codes)) l->codes[l->count++] = m->code;
    l->ended = last;
    message_free(m);
}
static void on_over(void *context, int status)
{
    ((struct leader *)context)->over = status == PL_OK;
}
static const struct matchmaking_callbacks port = {
    nothing_declared, nothing, nobody_asked, nothing, on_answer, NULL, NULL, NULL, NULL, NULL, NULL,
    on_over
};

static double expiration_of(const struct bytes *request)
{
    Hivemind__JoinRequest *r = message_unpack(&hivemind__join_request__descriptor,
                                              bytes_at(request), bytes_length(request), NULL);
    double expiration = r ? r->expiration : 0;
    message_free(r);
    return expiration;
}

static int code_of(const json_t *response)
{
#define NAME(name) #name,
    static const char *const names[] = { AVERAGING_CODES(NAME) };
#undef NAME
    const char *name = protocol_text(response, "code");
    for (int i = 0; i < MSG_CODES; i++)
        if (!strcmp(names[i], name)) return i;
    return -1;
}

/* The leader's own time: later than the expirations that it found too early, not later than those
 * that it accepted. */
static double begin_of(struct golden *g, const json_t *joins)
{
    double early = 0, taken = INFINITY;
    size_t i;
    json_t *c;
    json_array_foreach(joins, i, c)
    {
        const json_t *first = json_array_get(json_object_get(c, "responses"), 0);
        struct bytes raw = { 0 };
        double e = wire_member(g, c, "request", &raw) ? expiration_of(&raw) : 0;
        if (code_of(first) == MSG_BAD_EXPIRATION_TIME) early = fmax(early, e);
        if (code_of(first) == MSG_ACCEPTED && e > 0) taken = fmin(taken, e);
        bytes_clear(&raw);
    }
    return isfinite(taken) && early > 0 ? early + (taken - early) / 2
           : isfinite(taken)            ? taken - 1
                                        : early + 1;
}

static enum averaging_code first_answer(const json_t *join)
{
    return (enum averaging_code)code_of(json_array_get(json_object_get(join, "responses"), 0));
}

/* A recorded response's bytes contain the code that the recording names. */
static void check_bytes(struct golden *g, const json_t *response, const char *what, int is_part)
{
    struct bytes raw = { 0 };
    struct part_message part;
    int code = -1;
    if (!json_object_get(response, "hex") || !wire_member(g, response, "hex", &raw)) return;
    if (is_part) {
        if (!part_message_read(&part, bytes_at(&raw), bytes_length(&raw), NULL)) code = part.code;
    } else {
        Hivemind__MessageFromLeader *m = message_unpack(&hivemind__message_from_leader__descriptor,
                                                        bytes_at(&raw), bytes_length(&raw), NULL);
        if (m) code = m->code;
        message_free(m);
    }
    golden_check(g, what, code == code_of(response), "its bytes say %d", code);
    bytes_clear(&raw);
}

static void check_join(struct leader *l, const json_t *joins, size_t at,
                       const struct peer_id *peers, size_t count, double now)
{
    json_t *c = json_array_get(joins, at);
    const json_t *responses = json_object_get(c, "responses");
    const char *what = protocol_text(c, "note"), *end = protocol_text(c, "end");
    size_t from = (size_t)golden_int(l->g, c, "from_peer"), n = json_array_size(responses);
    struct bytes raw = { 0 };
    int same = 1;
    if (from >= count) {
        golden_fail(l->g, what, "from a peer that is not listed");
        return;
    }
    if (!wire_member(l->g, c, "request", &raw)) return;
    l->count = 0;
    matchmaking_request(&l->m, now, c, &peers[from], bytes_at(&raw), bytes_length(&raw));
    if (n == 2) matchmaking_tick(&l->m, l->m.begin);
    for (size_t i = 0; i < n; i++) check_bytes(l->g, json_array_get(responses, i), what, 0);
    for (size_t i = 0; i < n; i++)
        same = same && (int)i < l->count && l->codes[i] == code_of(json_array_get(responses, i));
    golden_check(l->g, what, same && l->count == (int)n, "answered %d %d, %zu answers expected",
                 l->count ? l->codes[0] : -1, l->count, n);
    if (strstr(end, "closed by the leader"))
        golden_check(l->g, what, l->ended, "and was left open");
    /* The accepted follower stays while the next request is refused as a duplicate; then it
     * leaves. */
    if (first_answer(c) == MSG_DUPLICATE_PEER_ID)
        matchmaking_request_gone(&l->m, json_array_get(joins, at - 1));
    else if (!l->ended && first_answer(json_array_get(joins, at + 1)) != MSG_DUPLICATE_PEER_ID)
        matchmaking_request_gone(&l->m, c);
    bytes_clear(&raw);
}

/* --- a reducer that is sent a first part ------------------------------------------------------ */

struct reducer {
    struct allreduce *x;
    struct allreduce_job *jobs[16];
    size_t job_count;
    int codes[8], count, closed;
};

static void ignore_peer(void *context, size_t peer) { (void)context, (void)peer; }
static void reducer_send(void *context, size_t peer, enum allreduce_way way, const uint8_t *data,
                         size_t n)
{
    struct reducer *r = context;
    struct part_message m;
    (void)peer;
    if (way == ALLREDUCE_IN && !part_message_read(&m, data, n, NULL) &&
        r->count < (int)PL_COUNT(r->codes))
        r->codes[r->count++] = m.code;
}
static int never_busy(void *context, size_t peer) { return (void)context, (void)peer, 0; }
static void ignore_way(void *context, size_t peer, enum allreduce_way way)
{
    (void)context, (void)peer, (void)way;
}
static void reducer_close(void *context, size_t peer, enum allreduce_way way)
{
    (void)peer;
    if (way == ALLREDUCE_IN) ((struct reducer *)context)->closed = 1;
}
static void ignore_credit(void *context, size_t peer, size_t n)
{
    (void)context, (void)peer, (void)n;
}
static void queue_job(void *context, struct allreduce_job *job)
{
    struct reducer *r = context;
    r->jobs[r->job_count++] = job;
}
static void ignore_over(void *context, int status, const struct pl_err *err)
{
    (void)context, (void)status, (void)err;
}
static const struct allreduce_callbacks reducer_port = { ignore_peer, reducer_send,  never_busy,
                                                         ignore_way,  reducer_close, ignore_credit,
                                                         queue_job,   ignore_over,   NULL,
                                                         NULL,        NULL };

static void run_jobs(struct reducer *r)
{
    while (r->job_count) {
        struct allreduce_job *job = r->jobs[--r->job_count];
        job->run(job);
        allreduce_done(r->x, 0, job);
    }
}

/* The response to a first part. Unknown groups and peers are refused by the owner of the streams,
 * before the all-reduce sees them: the same rule as here. */
static void check_first(struct golden *g, const json_t *c, const struct group *group,
                        const struct peer_id *peers, size_t count)
{
    const json_t *responses = json_object_get(c, "responses");
    const char *what = protocol_text(c, "note");
    const json_t *request = json_array_get(json_object_get(c, "requests"), 0);
    long place = golden_int(g, c, "from_peer");
    int from = place >= 0 && (size_t)place < count ? group_find(group, &peers[place]) : -1;
    int want = -1;
    struct bytes raw = { 0 };
    struct part_message m;
    struct pl_err err = { "" };
    float values[5] = { 1, 2, 3, 4, 5 }, *tensor = values;
    size_t elements = 5, share[GROUP_PEERS_MAX], i;
    double fraction[GROUP_PEERS_MAX];
    enum pl_compression method = PL_COMPRESS_NONE;
    struct reducer r = { 0 };
    struct allreduce_options o = { .group = group,
                                   .tensors = 1,
                                   .elements = &elements,
                                   .method = &method,
                                   .tensor = &tensor,
                                   .weight = 1,
                                   .share = fraction,
                                   .part_bytes = PL_PART_BYTES,
                                   .be = g->be };
    json_t *response;
    if (!json_is_string(request) || wire_hex(&raw, json_string_value(request)) ||
        part_message_read(&m, bytes_at(&raw), bytes_length(&raw), &err)) {
        golden_fail(g, what, "%s", err.text);
        goto done;
    }
    json_array_foreach(responses, i, response)
    { /* one of them, twice or once */
        if (i && want != code_of(response)) golden_fail(g, what, "answers differ");
        want = code_of(response);
        check_bytes(g, response, what, 1);
    }
    if (m.group_id_n != sizeof group->id || memcmp(m.group_id, group->id, sizeof group->id)) {
        golden_check(g, what, want == MSG_BAD_GROUP_ID && json_array_size(responses) == 1,
                     "expected BAD_GROUP_ID");
        goto done;
    }
    if (from < 0) {
        golden_check(g, what, want < 0 && strstr(protocol_text(c, "end"), "P2PHandlerError"),
                     "expected an error of the call");
        goto done;
    }
    if (group_shares(share, group, elements, &err)) goto done;
    for (i = 0; i < group->count; i++) fraction[i] = (int)i == from ? 0 : 1;
    if (allreduce_open(&r.x, &o, &reducer_port, &r, 0, &err)) {
        golden_fail(g, what, "%s", err.text);
        goto done;
    }
    run_jobs(&r);
    allreduce_message(r.x, 0, (size_t)from, ALLREDUCE_IN, bytes_at(&raw), bytes_length(&raw));
    golden_check(g, what, r.count && r.codes[0] == want && r.closed, "answered %d, expected %d",
                 r.count ? r.codes[0] : -1, want);
    allreduce_cancel(r.x, 0);
    run_jobs(&r);
    allreduce_close(r.x);
done:
    bytes_clear(&raw);
}

/* The group as the leader announced it to its followers. */
static int read_group(struct golden *g, const json_t *joins, const struct peer_id *leader,
                      struct group *group)
{
    size_t i, k;
    json_t *c, *response;
    json_array_foreach(joins, i, c) json_array_foreach(json_object_get(c, "responses"), k, response)
    {
        struct bytes raw = { 0 };
        Hivemind__MessageFromLeader *m;
        struct peer_id peer;
        if (code_of(response) != MSG_BEGIN_ALLREDUCE || !wire_member(g, response, "hex", &raw))
            continue;
        m = message_unpack(&hivemind__message_from_leader__descriptor, bytes_at(&raw),
                           bytes_length(&raw), NULL);
        for (size_t p = 0; m && p < m->n_gathered; p++)
            if (!peer_id_parse(&peer, m->ordered_peer_ids[p].data, m->ordered_peer_ids[p].len))
                group_add(group, &peer, m->gathered[p].data, m->gathered[p].len, NULL);
        if (m && m->group_id.len == sizeof group->id)
            memcpy(group->id, m->group_id.data, sizeof group->id);
        message_free(m);
        bytes_clear(&raw);
    }
    if (group_find(group, leader) < 0) return 0;
    group->self = (size_t)group_find(group, leader);
    return 1;
}

static int read_peer(struct golden *g, const json_t *object, const char *key, struct peer_id *id)
{
    struct bytes raw = { 0 };
    int good = wire_member(g, object, key, &raw) &&
               !peer_id_parse(id, bytes_at(&raw), bytes_length(&raw));
    char text[PEER_ID_TEXT_MAX] = "", name[40];
    if (good) peer_id_text(text, id);
    snprintf(name, sizeof name, "%.*s", (int)strlen(key) - 6, key); /* without _bytes */
    if (json_object_get(object, name) && strcmp(text, protocol_text(object, name)))
        golden_fail(g, name, "is %s", text);
    bytes_clear(&raw);
    return good;
}

void protocol_join_rejections(struct golden *g, const json_t *root)
{
    static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    const json_t *joins = json_object_get(root, "joins"), *list = json_object_get(root, "peers");
    struct leader l = { .g = g };
    struct matchmaking_options o = { .min_time = 5,
                                     .request_timeout = 3,
                                     .min_size = 2,
                                     .gather = gather,
                                     .gather_n = sizeof gather };
    struct peer_id *peers = calloc(json_array_size(list) + 1, sizeof *peers);
    struct group group = { 0 };
    struct dht_id hash;
    struct bytes raw = { 0 };
    double begin = begin_of(g, joins);
    char key[GROUP_KEY_MAX] = "";
    size_t i;
    json_t *c;
    if (!peers || !protocol_id(g, root, "schema_hash", &hash) ||
        !read_peer(g, root, "leader_peer_id_bytes", &o.self))
        goto done;
    json_array_foreach(list, i, c) if (!read_peer(g, c, "peer_id_bytes", &peers[i])) goto done;
    memcpy(o.schema_hash, hash.bytes, sizeof o.schema_hash);
    json_array_foreach(joins, i, c)
    { /* the leader's scheduler key */
        if (first_answer(c) == MSG_ACCEPTED && wire_member(g, c, "request", &raw)) {
            Hivemind__JoinRequest *r = message_unpack(&hivemind__join_request__descriptor,
                                                      bytes_at(&raw), bytes_length(&raw), NULL);
            if (r) snprintf(key, sizeof key, "%s", r->group_key);
            message_free(r);
        }
        bytes_clear(&raw);
    }
    o.key = key;
    matchmaking_init(&l.m, &o, &port, &l);
    json_array_foreach(joins, i, c)
    {
        int idle = first_answer(c) == MSG_NOT_LOOKING_FOR_GROUP;
        if (!idle && l.m.state == MATCHMAKING_IDLE && !l.over)
            matchmaking_begin(&l.m, begin - o.min_time, begin, begin + 600);
        check_join(&l, joins, i, peers, json_array_size(list), begin - 1);
    }
    matchmaking_cancel(&l.m);
    matchmaking_clear(&l.m);
    if (!read_group(g, joins, &o.self, &group))
        golden_fail(g, "group", "no answer names a group with its leader in it");
    else
        json_array_foreach(json_object_get(root, "first_parts"), i, c)
            check_first(g, c, &group, peers, json_array_size(list));
    group_clear(&group);
done:
    free(peers);
}

/* --- two real trainers ------------------------------------------------------------------------ */

static void check_request(struct golden *g, const json_t *event, const struct bytes *raw)
{
    struct gather gather;
    struct bytes again = { 0 };
    struct pl_err err = { "" };
    Hivemind__JoinRequest *r = message_unpack(&hivemind__join_request__descriptor, bytes_at(raw),
                                              bytes_length(raw), &err);
    if (!r) {
        golden_fail(g, "join request", "%s", err.text);
        return;
    }
    golden_check(g, "join request",
                 group_key_is_valid(r->group_key) &&
                     !strcmp(r->group_key, protocol_text(event, "group_key")) &&
                     !gather_read(&gather, r->gather.data, r->gather.len, &err),
                 "%s", err.text);
    golden_check(g, "join request's parts",
                 wire_says(event, "schema_hash", r->schema_hash.data, r->schema_hash.len) &&
                     wire_says(event, "gather", r->gather.data, r->gather.len),
                 "differ");
    message_pack(&again, &r->base);
    wire_same(g, "join request is written", &again, raw);
    message_free(r);
    bytes_clear(&again);
}

/* Whether the i-th member of a group is the recording's peer of that number. */
static int is_ordered(const json_t *event, const json_t *peers, size_t i,
                      const struct peer_id *peer)
{
    const json_t *place = json_array_get(json_object_get(event, "order"), i);
    char text[PEER_ID_TEXT_MAX];
    peer_id_text(text, peer);
    return !strcmp(text, protocol_text(json_array_get(peers, (size_t)json_integer_value(place)),
                                       "peer_id"));
}

static void check_leader(struct golden *g, const json_t *event, const json_t *peers,
                         const struct bytes *raw)
{
    struct group group = { 0 };
    struct peer_id peer;
    struct pl_err err = { "" };
    Hivemind__MessageFromLeader *m = message_unpack(&hivemind__message_from_leader__descriptor,
                                                    bytes_at(raw), bytes_length(raw), &err);
    int rc = m ? PL_OK : PL_EFORMAT;
    for (size_t i = 0; !rc && i < m->n_gathered && i < m->n_ordered_peer_ids; i++) {
        rc = peer_id_parse(&peer, m->ordered_peer_ids[i].data, m->ordered_peer_ids[i].len);
        if (!rc && peers && !is_ordered(event, peers, i, &peer))
            rc = pl_fail(&err, PL_EFORMAT, "another peer at position %zu", i);
        if (!rc) rc = group_add(&group, &peer, m->gathered[i].data, m->gathered[i].len, &err);
    }
    golden_check(g, "leader's message",
                 !rc && m->code == code_of(event) &&
                     group.count == json_array_size(json_object_get(event, "order")),
                 "%s", err.text);
    group_clear(&group);
    message_free(m);
}

void protocol_training_trace(struct golden *g, const json_t *root)
{
    size_t i;
    json_t *e;
    json_array_foreach(json_object_get(root, "events"), i, e)
    {
        const char *type = protocol_text(e, "type");
        struct bytes raw = { 0 };
        if (json_object_get(e, "hex") && wire_member(g, e, "hex", &raw)) {
            if (!strcmp(type, "JoinRequest")) check_request(g, e, &raw);
            else if (!strcmp(type, "MessageFromLeader"))
                check_leader(g, e, json_object_get(root, "peers"), &raw);
        }
        bytes_clear(&raw);
    }
}
