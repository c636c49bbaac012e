/* averager.c - averagers over real connections, up to eight in this process: whole groups, clients,
 * liars, peers that fall silent or die, and states that newcomers take over. */
#include "loopback.h"
#include "net/hivemind/dht/dht_node.h"
#include "net/hivemind/dht/dht_node_internal.h"
#include "net/hivemind/messages/msgpack.h"
#include "net/libp2p/rpc/rpc.h"

#include <arpa/inet.h>
#include <math.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- rounds ----------------------------------------------------------------------------------- */

static const struct schema_tensor other_schema[2] = {
    { .type = { .dtype = PL_F32, .dims = 1, .size = { 4000 } } },
    { .type = { .dtype = PL_F32, .dims = 1, .size = { 1000 } } },
};

static void mean_of(double *mean, size_t skip)
{
    double weight = 0;
    memset(mean, 0, VALUES * sizeof *mean);
    for (size_t k = 0; k < count; k++) {
        double w = peers[k].options.auxiliary || k == skip ? 0 : peers[k].step.weight;
        for (size_t i = 0; i < VALUES && w > 0; i++) mean[i] += w * peers[k].values[i];
        weight += w;
    }
    for (size_t i = 0; i < VALUES; i++) mean[i] /= weight > 0 ? weight : 1;
}

static double mean[VALUES];

static void has_mean(const struct peer *p)
{
    double worst = 0;
    for (size_t i = 0; i < VALUES; i++) worst = fmax(worst, fabs((double)p->values[i] - mean[i]));
    if (!(worst < 1e-6))
        fail_msg("peer %d: %g off; senders lost %zu, attempts %d", (int)(p - peers), worst,
                 p->report.senders_lost, p->attempts);
}

static void all_kinds_together(void **state)
{
    (void)state;
    add(0, 0), add(0, 0), add(1, 0), add(0, 1), add(0, 0), add(1, 0);
    expect(count - 1); /* all but the auxiliary one */
    open_all();
    mean_of(mean, SIZE_MAX);
    begin_all();
    for (size_t i = 0; i < count; i++) {
        assert_true(await(&peers[i].done, 1));
        if (peers[i].status) fail_msg("peer %zu: %s", i, peers[i].err.text);
        assert_int_equal(peers[i].group, count);
        assert_memory_equal(peers[i].group_id, peers[0].group_id, DHT_ID_BYTES);
        has_mean(&peers[i]);
    }
    begin_all(); /* and again: everything of the first round is forgotten */
    for (size_t i = 0; i < count; i++) {
        assert_true(await(&peers[i].done, 1));
        assert_int_equal(peers[i].status, PL_OK);
    }
}

/* Groups of two, by bits: whoever has been in one group is in different ones next, so after two
 * rounds everybody has the mean of all four. */
static void groups_by_bits(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct peer *p = add(0, 0);
        p->options.bits = i < 2 ? "0" : "1";
        p->options.target_size = 2;
        p->step.weight = 1;
    }
    open_all();
    mean_of(mean, SIZE_MAX);
    for (int round = 0; round < 2; round++) {
        begin_all();
        for (size_t i = 0; i < count; i++) {
            assert_true(await(&peers[i].done, 1));
            if (peers[i].status) fail_msg("peer %zu: %s", i, peers[i].err.text);
            assert_int_equal(peers[i].group, 2);
        }
        if (round) break;
        assert_memory_equal(peers[0].group_id, peers[1].group_id, DHT_ID_BYTES);
        assert_memory_equal(peers[2].group_id, peers[3].group_id, DHT_ID_BYTES);
    }
    assert_memory_not_equal(peers[0].group_id, peers[1].group_id, DHT_ID_BYTES);
    assert_memory_not_equal(peers[2].group_id, peers[3].group_id, DHT_ID_BYTES);
    for (size_t i = 0; i < count; i++) has_mean(&peers[i]);
}

static void nobody_weighs_anything(void **state)
{
    static float before[VALUES];
    (void)state;
    add(0, 0)->step.weight = 0;
    add(0, 0)->step.weight = 0;
    expect(count);
    open_all();
    memcpy(before, peers[0].values, sizeof before);
    begin_all();
    for (size_t i = 0; i < count; i++) {
        assert_true(await(&peers[i].done, 1));
        assert_int_equal(peers[i].status, PL_OK);
    }
    assert_memory_equal(peers[0].values, before, sizeof before);
}

/* Other shapes under the same name find each other, and nobody else. */
static void two_schemas(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++)
        if (add(0, 0) && i % 2) peers[i].options.schema = other_schema;
    be_impatient(4, 15); /* who is expected never comes: the others' names are there */
    open_all();
    begin_all();
    for (size_t i = 0; i < count; i++) {
        assert_true(await(&peers[i].done, 1));
        assert_int_equal(peers[i].status, PL_OK);
        assert_int_equal(peers[i].group, 2);
        assert_memory_equal(peers[i].group_id, peers[i % 2].group_id, DHT_ID_BYTES);
    }
}

static void not_a_number(void **state)
{
    (void)state;
    add(0, 0), add(0, 0), add(1, 0);
    expect(count);
    open_all();
    mean_of(mean, 2);
    for (size_t i = 0; i < VALUES; i++) peers[2].values[i] = NAN;
    peers[2].timeout = 10; /* nobody answers it: it tries again, alone */
    begin_all();
    for (size_t i = 0; i < 2; i++) {
        assert_true(await(&peers[i].done, 1));
        assert_int_equal(peers[i].status, PL_OK);
        assert_int_equal(peers[i].report.senders_lost, 1);
        has_mean(&peers[i]);
    }
    assert_true(await(&peers[2].done, 1));
    assert_true(peers[2].status != PL_OK);
}

/* A groupmate that never begins its exchange. As a client it costs its timeout; as one that
 * reduces, the round: the others form a group without it. */
static void silent(int client)
{
    add(0, 0), add(0, 0), add(client, 0);
    be_impatient(4, 3);
    expect(count);
    open_all();
    mean_of(mean, 2);
    peers[2].step.untriggered = 1;
    begin_all();
    for (size_t i = 0; i < 2; i++) {
        assert_true(await(&peers[i].done, 1));
        if (peers[i].status) fail_msg("peer %zu: %s", i, peers[i].err.text);
        assert_int_equal(peers[i].attempts, client ? 1 : 2);
        has_mean(&peers[i]);
    }
}
static void silent_client(void **state)
{
    (void)state;
    silent(1);
}
static void silent_reducer(void **state)
{
    (void)state;
    silent(0);
}

static void look_for_group(void *context)
{
    struct peer *p = context;
    p->grouped = averager_has_group(p->a);
}

/* Until the first n have found their group. */
static void await_groups(size_t n)
{
    const double until = pl_seconds() + LIMIT;
    for (size_t i = 0; i < n; i++)
        for (peers[i].grouped = 0; loop_call(loop, look_for_group, &peers[i]), !peers[i].grouped;
             usleep(10000))
            if (pl_seconds() > until) fail_msg("peer %zu finds no group", i);
}

static void trigger(void *context)
{
    struct peer *p = context;
    averager_trigger(p->a, p->step.weight, p->tensor, NULL);
}

/* Parts that come before our own trigger wait; what is given with the trigger is what counts. */
static void late_trigger(void **state)
{
    (void)state;
    add(0, 0), add(0, 0);
    expect(count);
    open_all();
    peers[1].step.untriggered = 1;
    mean_of(mean, SIZE_MAX);
    begin_all();
    await_groups(2);
    usleep(300000); /* for the parts */
    assert_int_equal(noted(&peers[0].done), 0);
    loop_call(loop, trigger, &peers[1]);
    for (size_t i = 0; i < 2; i++) {
        assert_true(await(&peers[i].done, 1));
        assert_int_equal(peers[i].status, PL_OK);
        has_mean(&peers[i]);
    }
}

static void trigger_elsewhere(void *context)
{
    struct peer *p = context;
    struct verifier_claim claim = { .epoch = p->step.claim.epoch + 1, .samples = 3 };
    averager_trigger(p->a, p->step.weight, p->tensor, &claim);
}

/* A search that began for one epoch is triggered for another: what it says of itself from then on
 * is the new one's, and not what lay there before. */
static void moved_in_the_search(void **state)
{
    (void)state;
    add(0, 0), add(0, 0);
    expect(count);
    open_all();
    peers[0].step.untriggered = 1;
    mean_of(mean, SIZE_MAX);
    loop_call(loop, begin, &peers[0]);
    loop_call(loop, trigger_elsewhere, &peers[0]);
    loop_call(loop, begin, &peers[1]);
    for (size_t i = 0; i < 2; i++) {
        assert_true(await(&peers[i].done, 1));
        if (peers[i].status) fail_msg("peer %zu: %s", i, peers[i].err.text);
        has_mean(&peers[i]);
    }
}

/* Dies when the group has been found: the others hear of the lost connection, and do without it. */
static void killed(void **state)
{
    (void)state;
    add(0, 0), add(0, 0), add(0, 0);
    be_impatient(4, 15);
    expect(count);
    open_all();
    mean_of(mean, 2);
    peers[2].step.untriggered = 1;
    begin_all();
    await_groups(3);
    close_peer(&peers[2]);
    for (size_t i = 0; i < 2; i++) {
        assert_true(await(&peers[i].done, 1));
        if (peers[i].status) fail_msg("peer %zu: %s", i, peers[i].err.text);
        has_mean(&peers[i]);
    }
}

/* Closed while its exchange waits for a groupmate: nothing of it may come later. */
static void closed_in_the_exchange(void **state)
{
    (void)state;
    add(0, 0), add(0, 0);
    be_impatient(10, 0.7); /* so that a timer which had been forgotten would go off */
    expect(count);
    open_all();
    peers[1].step.untriggered = 1;
    begin_all();
    await_groups(1);
    close_peer(&peers[0]);
    usleep(1900000);
}

static void cancel(void *context) { averager_cancel(((struct peer *)context)->a); }

static void alone_and_cancelled(void **state)
{
    static float before[VALUES];
    (void)state;
    add(0, 0), add(0, 0);
    open_all();
    memcpy(before, peers[0].values, sizeof before);
    peers[0].timeout = 2;
    loop_call(loop, begin, &peers[0]);
    assert_true(await(&peers[0].done, 1));
    assert_int_equal(peers[0].status, PL_EAGAIN);
    loop_call(loop, begin, &peers[1]);
    loop_call(loop, cancel, &peers[1]);
    assert_true(await(&peers[1].done, 1));
    assert_int_equal(peers[1].status, PL_EAGAIN);
    assert_memory_equal(peers[0].values, before, sizeof before);
}

/* --- what strangers send ---------------------------------------------------------------------- */

struct stranger {
    struct peer *from, *to;
    struct rpc_stream *s;
    int codes[4], code_count, over;
};

static void stranger_message(void *context, struct rpc_stream *s, const uint8_t *data, size_t n)
{
    struct stranger *t = context;
    struct part_message m;
    (void)s;
    if (!part_message_read(&m, data, n, NULL) && t->code_count < 4)
        t->codes[t->code_count++] = m.code;
}
static void stranger_end(void *context, struct rpc_stream *s)
{
    struct stranger *t = context;
    rpc_close(s);
    note(&t->over);
}
static void stranger_failed(void *context, struct rpc_stream *s, int status, const char *why)
{
    (void)status, (void)why;
    stranger_end(context, s);
}

static void send_stranger(void *context)
{
    static const struct rpc_stream_events events = { stranger_message, stranger_end,
                                                     stranger_failed, NULL };
    struct stranger *t = context;
    struct part_message m = { .code = MSG_PART_FOR_AVERAGING,
                              .group_id = (const uint8_t *)"12345678901234567890",
                              .group_id_n = 20,
                              .weight = 1,
                              .elements = 4,
                              .bytes = 16 };
    struct bytes raw = { 0 };
    uint8_t *buffer;
    assert_int_equal(part_message_write(&raw, &buffer, &m), PL_OK);
    memset(buffer, 0, 16);
    t->s = rpc_open(t->from->host, host_id(t->to->host),
                    "test::DecentralizedAverager.rpc_aggregate_part", 1 << 20, 5, &events, t);
    rpc_send(t->s, bytes_at(&raw), bytes_length(&raw));
    rpc_end(t->s);
    bytes_clear(&raw);
}

static void unknown_group(void **state)
{
    struct stranger idle, busy;
    (void)state;
    add(0, 0), add(0, 0), add(0, 0);
    open_all();
    idle = busy = (struct stranger){ .from = &peers[2], .to = &peers[0] };
    loop_call(loop, send_stranger, &idle);
    assert_true(await(&idle.over, 1));
    assert_int_equal(idle.code_count, 1);
    assert_int_equal(idle.codes[0], MSG_BAD_GROUP_ID);
    mean_of(mean, 2);
    expect(2);
    loop_call(loop, begin, &peers[0]);
    loop_call(loop, begin, &peers[1]);
    loop_call(loop, send_stranger, &busy); /* waits until there is a group, and is then refused */
    for (size_t i = 0; i < 2; i++) {
        assert_true(await(&peers[i].done, 1));
        assert_int_equal(peers[i].status, PL_OK);
        has_mean(&peers[i]);
    }
    assert_true(await(&busy.over, 1));
    assert_int_equal(busy.code_count, 1);
    assert_int_equal(busy.codes[0], MSG_BAD_GROUP_ID);
}

/* --- state ------------------------------------------------------------------------------------ */

static void release(struct state_snapshot *s)
{
    free((void *)(uintptr_t)s->tensors[0].data);
    free(s->tensors);
    free(s->metadata);
    free(s);
}

/* The averager's two tensors, and of an optimizer's state `more` values. */
static struct state_snapshot *snapshot(float value, size_t more)
{
    struct state_snapshot *s = calloc(1, sizeof *s);
    float *x = malloc((VALUES + more) * sizeof *x);
    for (size_t i = 0; i < VALUES + more; i++) x[i] = value;
    s->metadata = malloc(1);
    s->metadata[0] = 0xc0;
    s->metadata_n = 1;
    s->tensors = calloc(3, sizeof *s->tensors);
    for (size_t t = 0; t < 2; t++)
        s->tensors[t] = (struct state_tensor){ schema[t].type, PL_COMPRESS_NONE, x + 4000 * t };
    s->tensors[2] = (struct state_tensor){
        { .dtype = PL_F32, .dims = 1, .size = { (int64_t)more } }, PL_COMPRESS_NONE, x + VALUES
    };
    s->count = 3;
    s->release = release;
    return s;
}

/* Honest peers' states differ a little. */
#define STATE_OF(i) (1000 + (float)(i))
#define NEWER 0.25f

static void share(void *context)
{
    struct peer *p = context;
    averager_share(p->a, snapshot(STATE_OF(p - peers), 15000), (double)(p - peers));
}
static void share_more(void *context)
{
    struct peer *p = context;
    averager_share(p->a, snapshot(STATE_OF(p - peers) + NEWER, 10), (double)(p - peers));
}

static void on_loaded(void *context, int status, const struct peer_id *donor,
                      struct state_load *load, const struct pl_err *err)
{
    struct peer *p = context;
    (void)donor, (void)err;
    p->load_status = status;
    p->confirmed = load->confirmed;
    if (!status) memcpy(&p->first_loaded, load->tensors[0].buffer, sizeof p->first_loaded);
    note(&p->loaded);
}

static void on_donor_failed(void *context, const struct peer_id *donor, int status,
                            const struct pl_err *why)
{
    struct peer *p = context;
    (void)status;
    p->refused = *donor;
    p->err = *why;
}

/* The third's. */
static int refuse(void *context, const struct state_load *load, struct pl_err *err)
{
    float first;
    (void)context;
    memcpy(&first, load->tensors[0].buffer, sizeof first);
    return first == STATE_OF(2) + NEWER ? pl_fail(err, PL_EFORMAT, "not this one") : PL_OK;
}

static void load_another(void *context)
{
    struct peer *p = context;
    p->loaded = 0;
    assert_int_equal(averager_load(p->a, refuse, on_loaded, p), PL_OK);
}

static void load(void *context)
{
    struct peer *p = context;
    p->loaded = 0;
    assert_int_equal(averager_load(p->a, NULL, on_loaded, p), PL_OK);
}

/* Until what the donors have announced is known: the third is among the best. */
static void await_announcements(struct peer *p)
{
    const double until = pl_seconds() + LIMIT;
    do {
        usleep(50000);
        loop_call(loop, load, p);
        assert_true(await(&p->loaded, 1));
        if (pl_seconds() > until) fail_msg("the best donor is not found");
    } while (p->load_status || p->first_loaded != STATE_OF(2));
}

static void newcomers_take_over(void **state)
{
    (void)state;
    for (int i = 0; i < 7; i++) add(i == 6, 0);
    peers[3].options.donor_failed = on_donor_failed;
    peers[3].options.donor_context = &peers[3];
    open_all();
    loop_call(loop, load, &peers[3]);
    assert_true(await(&peers[3].loaded, 1));
    assert_int_equal(peers[3].load_status, PL_ENOTFOUND);
    loop_call(loop, share, &peers[0]);
    loop_call(loop, share, &peers[1]);
    loop_call(loop, share, &peers[2]);
    await_announcements(&peers[3]);
    for (int i = 3; i < 7; i++) loop_call(loop, load, &peers[i]); /* more at once than are served */
    loop_call(loop, share_more,
              &peers[2]); /* the donor goes on: whoever waits gets the newer one */
    for (int i = 3; i < 7; i++) {
        assert_true(await(&peers[i].loaded, 1));
        assert_int_equal(peers[i].load_status, PL_OK);
        assert_true(peers[i].first_loaded >= STATE_OF(1));
    }
    for (int i = 0; i < 100 && !peers[3].refused.length; i++) {
        loop_call(loop, load_another, &peers[3]); /* a donor's is refused: the next best is asked */
        assert_true(await(&peers[3].loaded, 1));
        assert_int_equal(peers[3].load_status, PL_OK);
        assert_true(peers[3].first_loaded < STATE_OF(2));
    }
    assert_true(peer_id_equal(&peers[3].refused, &peers[2].me.id));
    assert_string_equal(peers[3].err.text, "not this one");
    close_peer(&peers[2]); /* its announcement stays for a while: the next best is asked */
    loop_call(loop, load, &peers[3]);
    assert_true(await(&peers[3].loaded, 1));
    assert_int_equal(peers[3].load_status, PL_OK);
    assert_true(peers[3].first_loaded < STATE_OF(2));
}

static void share_junk(void *context)
{
    struct peer *p = context;
    struct state_snapshot *s = snapshot(0, 10);
    float *x = (float *)(uintptr_t)s->tensors[0].data;
    for (size_t i = 0; i < VALUES; i++) x[i] = i % 2 ? 1000 : -1000; /* as long as the others' */
    averager_share(p->a, s, DONOR_PRIORITY_MAX);
}

static void load_once(struct peer *p)
{
    usleep(1000000 / STATE_ANSWERS_A_PEER + 50000); /* the others say so often what they have */
    loop_call(loop, load, p);
    assert_true(await(&p->loaded, 1));
}

/* A liar's state is taken while nobody can tell, and never once two others agree on another. */
static void one_byzantine_donor(void **state)
{
    const double until = pl_seconds() + LIMIT;
    struct peer *newcomer;
    (void)state;
    for (int i = 0; i < 5; i++) add(0, 0);
    newcomer = &peers[4];
    open_all();
    loop_call(loop, share_junk, &peers[0]);
    do load_once(newcomer);
    while (newcomer->load_status && pl_seconds() < until);
    assert_int_equal(newcomer->load_status, PL_OK);
    assert_int_equal(newcomer->confirmed, 1); /* it is the only one */
    for (int i = 1; i < 4; i++) loop_call(loop, share, &peers[i]);
    do load_once(newcomer); /* until the announcements are found */
    while ((newcomer->load_status || newcomer->confirmed < 3) && pl_seconds() < until);
    for (int i = 0; i < 10; i++) {
        load_once(newcomer);
        assert_int_equal(newcomer->load_status, PL_OK);
        assert_true(newcomer->first_loaded >= STATE_OF(1));
        assert_true(newcomer->confirmed >= 2);
    }
}

/* --- false declarations ----------------------------------------------------------------------- */

#define HONEST 3
#define MADE_UP 400

/* A dictionary item of the liar's own storage, or a record that it stores at others. */
static void tell_declaration(struct peer *liar, const struct peer_id *named, int active,
                             double expiration, int at_others)
{
    struct dht_state *own = &liar->dht->core.state;
    struct dht_id key;
    struct bytes subkey = { 0 };
    uint8_t value = active ? 0xc3 : 0xc2;
    struct dht_record r;
    struct dht_item item;
    dht_id_of_text(&key, "test.0b");
    mp_bin(&subkey, named->bytes, named->length);
    r = (struct dht_record){ .key = key,
                             .subkey = bytes_at(&subkey),
                             .subkey_n = bytes_length(&subkey),
                             .value = &value,
                             .n = 1,
                             .expiration = expiration };
    item = (struct dht_item){ .subkey = (uint8_t *)(uintptr_t)r.subkey,
                              .subkey_n = r.subkey_n,
                              .value = &value,
                              .n = 1,
                              .expiration = expiration,
                              .from = { 1, 1, 0, DHT_DECLARATION } };
    dht_store_put(&own->storage, dht_node_time(liar->dht), &key, &item);
    for (size_t i = 0; at_others && i < HONEST; i++) {
        struct dht_contact to = { .id = peers[i].dht->core.state.self,
                                  .peer = *host_id(peers[i].host) };
        dht_ask_store(&liar->dht->calls, &to, &r, NULL, NULL);
    }
    bytes_clear(&subkey);
}

/* "false" for all that take part, with a later expiration each time; and a value over the whole
 * dictionary. */
static void lie(void *context)
{
    struct peer *liar = context;
    double now = dht_node_time(liar->dht);
    struct dht_record whole = { .subkey = dht_no_subkey,
                                .subkey_n = 1,
                                .value = (const uint8_t *)"\x07",
                                .n = 1,
                                .expiration = now + 3000 };
    dht_id_of_text(&whole.key, "test.0b");
    for (size_t i = 0; i < HONEST; i++) {
        struct dht_contact to = { .id = peers[i].dht->core.state.self,
                                  .peer = *host_id(peers[i].host) };
        tell_declaration(liar, host_id(peers[i].host), 0, now + 600, 1);
        dht_ask_store(&liar->dht->calls, &to, &whole, NULL, NULL);
    }
}

static struct multiaddr silent_address;

/* A port that takes connections and says nothing. */
static int open_silent_port(void)
{
    const uint8_t ip[4] = { 127, 0, 0, 1 };
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof at;
    int s = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&at, n), 0);
    assert_int_equal(listen(s, 1024), 0);
    assert_int_equal(getsockname(s, (struct sockaddr *)&at, &n), 0);
    silent_address.length = 0;
    multiaddr_add_ip(&silent_address, 4, ip);
    multiaddr_add_tcp(&silent_address, ntohs(at.sin_port));
    return s;
}

/* Peers that do not exist and want to begin before everybody else; all others find an address of each,
 * where nobody answers. */
static void make_up(void *context)
{
    struct peer *liar = context;
    double now = dht_node_time(liar->dht);
    for (uint32_t i = 0; i < MADE_UP; i++) {
        struct peer_id nobody = { 34, { 0x12, 0x20 } };
        memcpy(nobody.bytes + 2, &i, sizeof i);
        tell_declaration(liar, &nobody, 1, now + 9 + i * 1e-3, 0);
        for (size_t k = 0; k < HONEST && silent_address.length; k++)
            host_learn(peers[k].host, &nobody, &silent_address, 60);
    }
}

/* The honest find each other in each of three steps, while a node of the DHT says all the time that
 * nobody looks for a group, or that thousands do. */
static void lied_to(loop_fn *attack)
{
    const double window = 10;
    struct peer *liar;
    for (int i = 0; i < HONEST; i++) add(0, 0);
    liar = add(0, 0);
    be_impatient(window, 15);
    expect(HONEST);
    for (int i = 0; i < HONEST; i++) {
        peers[i].options.request_timeout = 2;
        loop_call(loop, open_averager, &peers[i]);
        if (!peers[i].a) fail_msg("%s", peers[i].err.text);
    }
    for (int round = 0; round < 3; round++) {
        loop_call(loop, attack, liar);
        usleep(300000); /* it is everywhere before they begin */
        for (int i = 0; i < HONEST; i++) loop_call(loop, begin, &peers[i]);
        for (int i = 0; i < HONEST; i++) {
            const double until = pl_seconds() + 3 * window; /* a fifth of one is enough when idle */
            for (; !noted(&peers[i].done); usleep(100000)) {
                if (pl_seconds() > until) fail_msg("peer %d: no group", i);
                loop_call(loop, attack, liar);
            }
            if (peers[i].status) fail_msg("peer %d: %s", i, peers[i].err.text);
            assert_int_equal(peers[i].group, HONEST);
            assert_int_equal(peers[i].attempts, 1);
        }
    }
}
static void told_that_nobody_is_there(void **state)
{
    (void)state;
    lied_to(lie);
}
static void told_of_peers_that_are_none(void **state)
{
    int port = open_silent_port();
    (void)state;
    lied_to(make_up);
    close(port);
}

/* A name, with * and ?, runs only the tests that match it. */
int main(int argc, char **argv)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin_test, end_test)
    const struct CMUnitTest tests[] = {
        TEST(all_kinds_together),
        TEST(groups_by_bits),
        TEST(nobody_weighs_anything),
        TEST(two_schemas),
        TEST(not_a_number),
        TEST(silent_client),
        TEST(silent_reducer),
        TEST(late_trigger),
        TEST(moved_in_the_search),
        TEST(killed),
        TEST(closed_in_the_exchange),
        TEST(alone_and_cancelled),
        TEST(unknown_group),
        TEST(newcomers_take_over),
        TEST(one_byzantine_donor),
        TEST(told_that_nobody_is_there),
        TEST(told_of_peers_that_are_none),
    };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
