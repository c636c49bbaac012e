/* averaging.c - an averager's part of a walk: the state that it shares, its answers to
 * join requests, and one round with it. We join as a client whose tensors have weight 0: no mean
 * changes, and no peer has to connect to us. */
#include "averager_walk.h"
#include "net/hivemind/swarm/swarm.h"
#include "net/message.h"
#include "net/hivemind/messages/msgpack.h"
#include "net/hivemind/messages/averaging.pb-c.h"

#include <math.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IDENTIFY_WAIT 2.0 /* s until it has reported what it serves */
#define POLL_EVERY 0.3    /* s between polls of its declaration */
#define MARGIN 1.5        /* s that all our requests may need before its own time comes */
#define BEGIN_AFTER 3.0 /* s behind its time: a leader's second message, as hivemind 1.1.12 waits */
#define DOWNLOAD_TRIES 3 /* where the stream is reset */

const char *walk_code(int code)
{
    static const char *const names[] = {
#define NAME(name) #name,
        AVERAGING_CODES(NAME)
#undef NAME
    };
    return code >= 0 && code < MSG_CODES ? names[code] : "a code that there is not";
}

/* --- what it serves and tells ----------------------------------------------------------------- */

struct serving {
    struct averager_walk *a;
    int count;
};

static void count_served(void *context)
{
    struct serving *s = context;
    s->count = 0;
    for (int i = 0; i < AVERAGER_RPCS; i++)
        s->count += host_peer_serves(s->a->w->talk.host, &s->a->w->talk.peer, s->a->rpc[i]);
}

static int serves_averager(struct averager_walk *a)
{
    struct serving s = { a, 0 };
    for (double waited = 0; waited < IDENTIFY_WAIT && s.count < AVERAGER_RPCS; waited += 0.1) {
        loop_call(host_loop(a->w->talk.host), count_served, &s);
        if (s.count < AVERAGER_RPCS) talk_sleep(0.1);
    }
    if (!s.count) {
        walk_skip(a->w, "hivemind 4.1", "matchmaking, all-reduce, state", "it serves no %s::%s",
                  a->prefix, a->class_name);
        return 0;
    }
    return walk_clause(a->w, "hivemind 4.1", "it serves all three calls of an averager",
                       s.count == AVERAGER_RPCS, "%d of %d", s.count, AVERAGER_RPCS);
}

/* The peer's own entry in a dictionary of the DHT. NULL: there is none. `r` is cleared by the
 * caller. */
static const struct dht_item *entry_of(struct averager_walk *a, const char *key,
                                       struct dht_result *r)
{
    const struct dht_item *item = NULL;
    struct bytes subkey = { 0 };
    struct dht_id id;
    mp_bin(&subkey, a->w->talk.peer.bytes, a->w->talk.peer.length);
    dht_result_init(r);
    if (!dht_id_of_text(&id, key) && !swarm_get(a->w->swarm, r, &id, 1) &&
        r->type == DHT_FOUND_DICTIONARY)
        item = dht_dictionary_find(&r->dictionary, bytes_at(&subkey), bytes_length(&subkey));
    bytes_clear(&subkey);
    return item;
}

/* --- 7: state --------------------------------------------------------------------------------- */

static int is_announced(struct averager_walk *a)
{
    char key[GROUP_KEY_MAX + 32];
    struct dht_result r;
    const struct dht_item *item;
    int announced;
    snprintf(key, sizeof key, "%.200s.all_averagers", a->prefix);
    item = entry_of(a, key, &r);
    announced = item && item->n == 9 && item->value[0] == 0xcb; /* msgpack: float64 */
    if (announced)
        walk_clause(a->w, "hivemind 7", "its state is announced with a priority", 1, "%s", "");
    else
        walk_skip(a->w, "hivemind 7", "its state is announced with a priority",
                  "it shares none now");
    dht_result_clear(&r);
    return announced;
}

static int take_state(struct averager_walk *a, struct talk_stream *s, size_t *messages,
                      struct pl_err *err)
{
    const uint8_t *data;
    size_t n;
    int rc;
    *messages = 0;
    while (!(rc = talk_next(s, TALK_LIMIT, &data, &n))) {
        if ((rc = state_load_add(&a->state, data, n, err))) return rc;
        if (!(*messages)++ && !a->state.metadata)
            return pl_fail(err, PL_EFORMAT, "the first message has no metadata");
    }
    if (rc != PL_ENOTFOUND) return pl_fail(err, rc, "%s", talk_why(s));
    return state_load_finish(&a->state, err);
}

/* An optimizer's tensors follow the parameters in its state. */
static size_t count_parameters(const struct averager_walk *a, const struct training_state *t)
{
    size_t others = 0;
    for (size_t i = 0; i < t->count; i++) others += t->leaves[i].kind == STATE_TENSOR;
    return others < a->state.count ? a->state.count - others : 0;
}

static void metadata(struct averager_walk *a)
{
    struct training_state t;
    struct mp_value *root;
    struct pl_err err = { "" };
    int rc;
    a->tensors = a->state.tensors;
    a->count = a->state.count;
    if (a->kind != AVERAGER_STATE) {
        rc = mp_read(&root, a->state.metadata, a->state.metadata_n, &err);
        walk_clause(a->w, "hivemind 7", "its metadata are msgpack", !rc, "%s", err.text);
        if (!rc) mp_free(root);
        return;
    }
    rc = training_state_read(&t, a->state.metadata, a->state.metadata_n, &err);
    walk_clause(a->w, "hivemind 7",
                "its metadata are a training state's: epoch, group bits, optimizer", !rc, "%s",
                err.text);
    a->count = rc ? 0 : count_parameters(a, &t);
    if (!rc) training_state_clear(&t);
}

/* PL_EIO: the stream broke. PL_ENOMEM: there was none. */
static int ask_for_state(struct averager_walk *a, size_t *messages, struct pl_err *err)
{
    struct talk_stream *s = talk_open(&a->w->talk, &a->w->talk.peer, a->rpc[AVERAGER_DOWNLOAD],
                                      state_load_message_max(&a->state));
    int rc;
    *messages = 0;
    if (!s) return pl_fail(err, PL_ENOMEM, "out of memory");
    talk_send_last(s, "", 0);
    rc = take_state(a, s, messages, err);
    talk_close(s);
    if (rc) state_load_clear(&a->state);
    return rc;
}

static void download(struct averager_walk *a)
{
    const char *what = "its state: metadata first, whole tensors, an end";
    int announced = is_announced(a), rc = PL_EIO;
    struct pl_err err = { "" };
    size_t messages = 0;
    /* A busy original may reset the stream though the request's end came with it (talk.h): its own
     * newcomers ask again, too. */
    for (int i = 0; i < DOWNLOAD_TRIES && rc == PL_EIO; i++) rc = ask_for_state(a, &messages, &err);
    if (rc && !messages && !announced)
        walk_clause(a->w, "hivemind 7",
                    "a peer that shares nothing ends the call without a message",
                    rc == PL_ENOTFOUND, "%s", err.text);
    else if (walk_clause(a->w, "hivemind 7", what, !rc, "%s", err.text)) metadata(a);
}

/* A bare averager shares the tensors that it averages. A trainer averages parameters, and gradients
 * of the same shapes. */
static void learn_schema(struct averager_walk *a)
{
    struct schema_tensor *t = calloc(a->count + 1, sizeof *t);
    for (size_t i = 0; t && i < a->count; i++)
        t[i] = (struct schema_tensor){ a->tensors[i].type, a->tensors[i].requires_grad };
    a->has_schema = t && a->count && !group_schema_hash(a->schema, t, a->count);
    free(t);
}

/* --- 4.4: being asked ------------------------------------------------------------------------- */

struct join_request { /* the fields of our request; zeros: the correct value */
    const uint8_t *schema;
    size_t schema_n;
    const char *key;
    double expiration;
};

static struct talk_stream *ask(struct averager_walk *a, const struct join_request *join, int *code,
                               struct peer_id *suggested)
{
    Hivemind__JoinRequest request = HIVEMIND__JOIN_REQUEST__INIT;
    Hivemind__MessageFromLeader *m;
    struct talk_stream *s = talk_open(&a->w->talk, &a->w->talk.peer, a->rpc[AVERAGER_JOIN],
                                      LEADER_MESSAGE_MAX);
    struct bytes out = { 0 };
    const uint8_t *data;
    size_t n;
    *code = -1;
    if (!s) return NULL;
    request.schema_hash = message_bytes(join->schema ? join->schema : a->schema,
                                        join->schema ? join->schema_n : SCHEMA_HASH_BYTES);
    request.expiration = join->expiration;
    request.gather = message_bytes(bytes_at(&a->gather), bytes_length(&a->gather));
    request.client_mode = 1;
    request.group_key = (char *)(uintptr_t)(join->key ? join->key : a->key); /* only read */
    message_pack(&out, &request.base);
    talk_send_last(s, bytes_at(&out), bytes_length(&out));
    bytes_clear(&out);
    if (!talk_next(s, TALK_LIMIT, &data, &n) &&
        (m = message_unpack(&hivemind__message_from_leader__descriptor, data, n, NULL))) {
        *code = m->code;
        if (suggested &&
            peer_id_parse(suggested, m->suggested_leader.data, m->suggested_leader.len))
            suggested->length = 0;
        message_free(m);
    }
    return s;
}

static void expect(struct averager_walk *a, const char *what, const struct join_request *join,
                   enum averaging_code want)
{
    int code;
    struct talk_stream *s = ask(a, join, &code, NULL);
    a->search_over |= code == MSG_NOT_LOOKING_FOR_GROUP;
    if (a->search_over && want != MSG_NOT_LOOKING_FOR_GROUP)
        walk_skip(a->w, "hivemind 4.4", what, "its search is over already");
    else
        walk_clause(a->w, "hivemind 4.4", what, code == (int)want, "expected %s, got %s",
                    walk_code((int)want), s && code < 0 ? talk_why(s) : walk_code(code));
    talk_close(s);
}

/* Waits until it has declared a time that leaves us this margin. 0: it searches for no group. */
static int await_declaration(struct averager_walk *a)
{
    double until = swarm_time(a->w->swarm) + a->w->patience;
    do {
        struct dht_result r;
        const struct dht_item *item = entry_of(a, a->key, &r);
        a->begins = item && item->n == 1 && item->value[0] == 0xc3 ? item->expiration : 0;
        a->declared |= a->begins > 0;
        dht_result_clear(&r);
        if (a->begins > swarm_time(a->w->swarm) + MARGIN) return 1;
        talk_sleep(POLL_EVERY);
    } while (swarm_time(a->w->swarm) < until);
    return 0;
}

static void judgements(struct averager_walk *a)
{
    uint8_t other[SCHEMA_HASH_BYTES] = { 1 };
    char key[GROUP_KEY_MAX + 8];
    double late = a->begins + 10;
    struct join_request none = { .schema = other, .expiration = late },
                        strange = { .schema = other, .schema_n = sizeof other, .expiration = late },
                        endless = { .expiration = INFINITY },
                        elsewhere = { .key = key, .expiration = late },
                        early = { .expiration = a->begins - 1 };
    snprintf(key, sizeof key, "%s1", a->key);
    expect(a, "a request without a schema hash: PROTOCOL_VIOLATION", &none, MSG_PROTOCOL_VIOLATION);
    expect(a, "one with an infinite time: PROTOCOL_VIOLATION", &endless, MSG_PROTOCOL_VIOLATION);
    expect(a, "other tensors: BAD_SCHEMA_HASH", &strange, MSG_BAD_SCHEMA_HASH);
    if (!a->has_schema) return;
    expect(a, "another group key: BAD_GROUP_KEY", &elsewhere, MSG_BAD_GROUP_KEY);
    expect(a, "a time before its own: BAD_EXPIRATION_TIME", &early, MSG_BAD_EXPIRATION_TIME);
}

/* --- the group -------------------------------------------------------------------------------- */

/* PL_EAGAIN: the group is off. */
static int read_group(struct averager_walk *a, const uint8_t *data, size_t n, struct pl_err *err)
{
    Hivemind__MessageFromLeader *m = message_unpack(&hivemind__message_from_leader__descriptor,
                                                    data, n, err);
    int rc = PL_OK, mine;
    if (!m) return PL_EFORMAT;
    if (m->code == MSG_GROUP_DISBANDED || m->code == MSG_CANCELLED) rc = PL_EAGAIN;
    else if (m->code != MSG_BEGIN_ALLREDUCE) rc = pl_fail(err, PL_EPROTO, "%s", walk_code(m->code));
    else if (m->group_id.len != DHT_ID_BYTES || m->n_ordered_peer_ids != m->n_gathered)
        rc = pl_fail(err, PL_EPROTO, "an id of %zu bytes, %zu peers, %zu gathered", m->group_id.len,
                     m->n_ordered_peer_ids, m->n_gathered);
    for (size_t i = 0; !rc && i < m->n_gathered; i++) {
        struct peer_id peer;
        rc = peer_id_parse(&peer, m->ordered_peer_ids[i].data, m->ordered_peer_ids[i].len);
        if (!rc) rc = group_add(&a->group, &peer, m->gathered[i].data, m->gathered[i].len, err);
    }
    if (!rc) {
        memcpy(a->group.id, m->group_id.data, DHT_ID_BYTES);
        mine = group_find(&a->group, host_id(a->w->talk.host));
        if (mine < 0 || group_find(&a->group, &a->w->talk.peer) < 0)
            rc = pl_fail(err, PL_EPROTO, "it or we are not in it");
        else if (a->group.members[mine].gathered_n != bytes_length(&a->gather) ||
                 memcmp(a->group.members[mine].gathered, bytes_at(&a->gather),
                        a->group.members[mine].gathered_n))
            rc = pl_fail(err, PL_EPROTO, "what we reported of ourselves has been changed");
        else a->group.self = (size_t)mine;
    }
    message_free(m);
    return rc;
}

/* 1: a group. */
static int join(struct averager_walk *a)
{
    const char *what =
        "at its time: BEGIN_ALLREDUCE, with everybody's names and words in one order";
    struct join_request right = { .expiration = a->begins + 10 };
    struct talk_stream *s, *again;
    const int may_leave = a->kind == AVERAGER_BARE;
    struct peer_id leader;
    struct pl_err err = { "" };
    const uint8_t *data;
    size_t n;
    int code, second, rc, sent_away = 0;
    s = ask(a, &right, &code, &leader);
    if (code == MSG_NOT_LOOKING_FOR_GROUP) {
        walk_skip(a->w, "hivemind 5", "a round with it", "its search is over already");
        talk_close(s);
        return 0;
    }
    if (code == MSG_NOT_A_LEADER) {
        walk_clause(a->w, "hivemind 4.4", "a follower names its leader", leader.length > 0,
                    "NOT_A_LEADER without one");
        walk_skip(a->w, "hivemind 5", "a round with it", "it follows somebody else now");
        talk_close(s);
        return 0;
    }
    if (!walk_clause(a->w, "hivemind 4.4", "the right request: ACCEPTED", code == MSG_ACCEPTED,
                     "%s", s && code < 0 ? talk_why(s) : walk_code(code))) {
        talk_close(s);
        return 0;
    }
    /* A trainer's group may be complete with us, and then begins at once: we must not leave it. */
    if (may_leave && a->begins > swarm_time(a->w->swarm) + MARGIN / 2) {
        again = ask(a, &right, &second, NULL);
        walk_clause(a->w, "hivemind 4.4", "a peer that follows already: DUPLICATE_PEER_ID",
                    second == MSG_DUPLICATE_PEER_ID, "%s", walk_code(second));
        talk_close(again);
        talk_close(s);
        talk_sleep(0.2);
        s = ask(a, &right, &code, NULL);
        walk_clause(a->w, "hivemind 4.4",
                    "a follower that closes its stream is dropped, and may come again",
                    code == MSG_ACCEPTED, "%s", walk_code(code));
    }
    rc = talk_next(s, fmax(0, a->begins - swarm_time(a->w->swarm)) + BEGIN_AFTER, &data, &n);
    if (rc) pl_fail(&err, rc, "%s", talk_why(s));
    else sent_away = (rc = read_group(a, data, n, &err)) == PL_EAGAIN;
    if (rc == PL_EAGAIN && sent_away)
        walk_skip(a->w, "hivemind 4.4", what,
                  "it has sent us away: a trainer that is alone needs no group");
    else walk_clause(a->w, "hivemind 4.4", what, !rc, "%s", err.text);
    talk_close(s);
    return !rc;
}

/* --- the walk --------------------------------------------------------------------------------- */

static void withdrawn(struct averager_walk *a)
{
    const char *what = "after the search its declaration is withdrawn, a moment later";
    struct dht_result r;
    const struct dht_item *item = NULL;
    for (int tries = 0; tries < 10 && !item; tries++) {
        item = entry_of(a, a->key, &r);
        if (item && item->value[0] == 0xc3) item = NULL;
        if (!item && tries < 9) dht_result_clear(&r), talk_sleep(POLL_EVERY);
    }
    if (item)
        walk_clause(a->w, "hivemind 4.1", what,
                    item->n == 1 && item->value[0] == 0xc2 && item->expiration > a->begins,
                    "it is not");
    else walk_skip(a->w, "hivemind 4.1", what, "it has expired, or been made anew");
    dht_result_clear(&r);
}

/* It has declared no time, or none that left us the margin: it may search for a group just now. */
static void no_round(struct averager_walk *a)
{
    const char *what = "it searches for no group and says so: NOT_LOOKING_FOR_GROUP";
    struct join_request right = { .schema = a->schema,
                                  .schema_n = sizeof a->schema,
                                  .expiration = swarm_time(a->w->swarm) + 10 };
    int code;
    struct talk_stream *s = ask(a, &right, &code, NULL);
    if (a->declared && code >= 0 && code != MSG_NOT_LOOKING_FOR_GROUP) {
        walk_skip(a->w, "hivemind 4.4", what, "it searches for one");
    } else {
        walk_clause(a->w, "hivemind 4.4", what, code == MSG_NOT_LOOKING_FOR_GROUP,
                    "expected %s, got %s", walk_code(MSG_NOT_LOOKING_FOR_GROUP),
                    s && code < 0 ? talk_why(s) : walk_code(code));
        walk_stray_part(a);
    }
    talk_close(s);
    walk_skip(a->w, "hivemind 4.4", "a round with it",
              a->declared ? "each time that it declared was less than %.1f s away"
                          : "it has not searched for a group within %.0f s",
              a->declared ? MARGIN : a->w->patience);
}

static void round_with(struct averager_walk *a)
{
    struct gather gather = { .bandwidth = PL_BANDWIDTH_UNKNOWN, .mode = GROUP_CLIENT };
    static const uint8_t nil = 0xc0;
    gather.user = &nil;
    gather.user_n = 1;
    if (gather_write(&a->gather, &gather)) return;
    if (!await_declaration(a)) {
        no_round(a);
        return;
    }
    judgements(a);
    if (a->search_over)
        walk_skip(a->w, "hivemind 5", "a round with it", "its search is over already");
    else if (!a->has_schema)
        walk_skip(a->w, "hivemind 5", "a round with it",
                  "it has not reported which tensors it averages");
    else if (join(a)) {
        walk_exchange(a);
        withdrawn(a);
    }
}

static void walk_averager(struct averager_walk *a)
{
    struct pl_err err;
    int rc = group_key(a->key, a->prefix, "", &err);
    for (int i = 0; !rc && i < AVERAGER_RPCS; i++)
        rc = group_rpc_name(a->rpc[i], a->prefix, a->class_name, (enum averager_rpc)i, &err);
    if (rc) {
        walk_skip(a->w, "hivemind 4.1", "matchmaking, all-reduce, state", "%s", err.text);
        return;
    }
    if (!serves_averager(a)) return;
    if (a->kind != AVERAGER_BARE) walk_report(a->w, 0);
    download(a);
    learn_schema(a);
    round_with(a);
}

static void clear(struct averager_walk *a)
{
    bytes_clear(&a->gather);
    group_clear(&a->group);
    state_load_clear(&a->state);
}

void walk_averaging(struct walk *w)
{
    char state_prefix[GROUP_KEY_MAX], prefix[GROUP_KEY_MAX];
    struct averager_walk bare = { .w = w,
                                  .prefix = w->prefix,
                                  .class_name = w->class_name,
                                  .kind = AVERAGER_BARE },
                         state = { .w = w,
                                   .prefix = state_prefix,
                                   .class_name = "TrainingStateAverager",
                                   .kind = AVERAGER_STATE },
                         gradient = { .w = w,
                                      .prefix = prefix,
                                      .class_name = "GradientAverager",
                                      .kind = AVERAGER_GRADIENT };
    if (w->prefix) walk_averager(&bare);
    if (w->run) {
        snprintf(state_prefix, sizeof state_prefix, "%.200s_state_averager", w->run);
        walk_averager(&state);
        snprintf(prefix, sizeof prefix, "%.200s_grad_averager", w->run);
        gradient.tensors = state.tensors;
        gradient.count = state.count;
        walk_averager(&gradient);
        walk_report(w, 1);
    }
    clear(&bare);
    clear(&gradient);
    clear(&state); /* whose tensors the gradients' walk has read */
}
