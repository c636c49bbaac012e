/* memory_hivemind.c - every allocation of hivemind's engines fails once: the call reports it, frees
 * what it had (checked in the sanitizer build), and the same call succeeds afterwards. A whole
 * all-reduce ends, too, whichever of its allocations fails. */
#include "test/unit/failing_work.h"

#define PEERS 3
#define MOST 300
/* These allocations are the test's own and do not fail. */
#define malloc(n) __real_malloc(n)
#define realloc(p, n) __real_realloc(p, n)
#include "test/unit/hivemind/allreduce/allreduce_world.h"
#undef malloc
#undef realloc

#include "net/hivemind/kademlia/dht_search.h"
#include "net/hivemind/kademlia/dht_serve.h"
#include "net/hivemind/messages/state_message.h"
#include "net/hivemind/moderation/authority.h"
#include "net/hivemind/moderation/authority_client.h"
#include "net/hivemind/progress/metrics.h"
#include "net/hivemind/progress/peer_report.h"
#include "net/hivemind/progress/progress.h"

static struct identity me, other;
static struct rsa_key key, authority_key;
static struct pl_err err;

/* --- the DHT ----------------------------------------------------------------------------------- */

static struct dht_id id_number(uint8_t n) { return (struct dht_id){ { n, 1, 2 } }; }

/* Another node asks us: it stores a value, a subkey and a signed record, and finds them. */
static int a_nodes_answers(void)
{
    struct validators guarded = { 0 }, mine = { .key = &key };
    struct dht_caller caller = { .peer = other.id, .subnet = 5 };
    struct dht_state s;
    struct dht_id self = id_number(1), theirs = id_number(2),
                  k[3] = { id_number(3), id_number(4), { { 0 } } };
    struct bytes request = { 0 }, answer = { 0 }, subkey = { 0 }, value = { 0 }, made = { 0 },
                 again = { 0 };
    struct dht_request r = { 0 };
    struct dht_answer a = { 0 };
    struct progress_record p = { .peer = me.id, .epoch = 3, .time = 1 };
    struct dht_record stored[3] = { { .key = k[0],
                                      .subkey = dht_no_subkey,
                                      .subkey_n = 1,
                                      .value = (const uint8_t *)"\xc3",
                                      .n = 1,
                                      .expiration = 50 },
                                    { .key = k[1],
                                      .subkey = (const uint8_t *)"\x07",
                                      .subkey_n = 1,
                                      .value = (const uint8_t *)"\xc3",
                                      .n = 1,
                                      .expiration = 50 } };
    int rc = validators_add_run(&guarded, "run"), kept = 0;
    if (rc) return rc;
    if ((rc = dht_state_init(&s, &self, 0, &guarded))) return rc;
    k[2] = guarded.guards[0].key;
    rc = record_own_subkey(&subkey, &key);
    if (!rc) rc = progress_write(&value, &p);
    if (!rc) {
        struct record to_sign = { .key = k[2].bytes,
                                  .key_n = DHT_ID_BYTES,
                                  .subkey = bytes_at(&subkey),
                                  .subkey_n = bytes_length(&subkey),
                                  .value = bytes_at(&value),
                                  .n = bytes_length(&value),
                                  .expiration = 50 };
        rc = record_sign(&made, &mine, &to_sign);
    }
    stored[2] = (struct dht_record){ .key = k[2],
                                     .subkey = bytes_at(&subkey),
                                     .subkey_n = bytes_length(&subkey),
                                     .value = bytes_at(&made),
                                     .n = bytes_length(&made),
                                     .expiration = 50 };
    if (!rc) rc = dht_write_store(&request, &theirs, stored, 3);
    if (!rc)
        rc = dht_serve(&s, DHT_STORE, 10, &caller, bytes_at(&request), bytes_length(&request),
                       &answer, &r, &err);
    dht_request_clear(&r);
    if (!rc) rc = dht_read_answer(&a, DHT_STORE, 3, bytes_at(&answer), bytes_length(&answer), &err);
    for (size_t i = 0; !rc && i < 3; i++) kept += a.ok[i];
    dht_answer_clear(&a);
    if (!rc && kept != 3) rc = PL_ENOMEM;
    bytes_clear(&request);
    bytes_clear(&answer);
    memset(&r, 0, sizeof r);
    memset(&a, 0, sizeof a);
    if (!rc) rc = dht_write_find(&request, &theirs, k, 3);
    if (!rc)
        rc = dht_serve(&s, DHT_FIND, 10, &caller, bytes_at(&request), bytes_length(&request),
                       &answer, &r, &err);
    dht_request_clear(&r);
    if (!rc) rc = dht_read_answer(&a, DHT_FIND, 3, bytes_at(&answer), bytes_length(&answer), &err);
    for (size_t i = 0; !rc && i < 3; i++) {
        struct dht_reporter from = { .peer = &other.id, .now = 10 };
        struct dht_result result, copy;
        struct dht_record record;
        dht_result_init(&result);
        dht_result_init(&copy);
        rc = dht_result_merge(&result, &guarded, &k[i], &from, a.found[i].type, a.found[i].value,
                              a.found[i].n, a.found[i].expiration);
        if (!rc) rc = dht_result_finish(&result, 10);
        if (!rc && result.type == DHT_NOT_FOUND) rc = PL_ENOMEM;
        if (!rc) rc = dht_result_copy(&copy, &result);
        if (!rc) rc = dht_result_record(&record, &again, &copy, &k[i]);
        dht_result_clear(&result);
        dht_result_clear(&copy);
    }
    dht_answer_clear(&a);
    if (!rc) {
        struct dht_record *records = NULL;
        size_t count = 0;
        bytes_clear(&again);
        rc = dht_state_hand_over(&s, 10, &theirs, &records, &count, &again);
        free(records);
    }
    dht_state_clear(&s);
    bytes_clear(&request);
    bytes_clear(&answer);
    bytes_clear(&subkey);
    bytes_clear(&value);
    bytes_clear(&made);
    bytes_clear(&again);
    return rc;
}

static int routing(void)
{
    struct dht_routing r;
    struct dht_id self = id_number(0);
    struct dht_search s;
    struct dht_contact next, near[8];
    int rc = dht_routing_init(&r, &self, 3, 5);
    if (rc) return rc;
    for (int i = 1; rc >= 0 && i < 60; i++) {
        struct dht_id id = { { (uint8_t)(i * 37), (uint8_t)i } };
        struct peer_id peer = { .length = 4, .bytes = { (uint8_t)i } };
        struct dht_contact ask;
        rc = dht_routing_add(&r, &id, &peer, i, &ask);
    }
    dht_search_init(&s, &self, &self, 5, NULL);
    s.time = 1;
    if (rc >= 0) rc = dht_search_add(&s, near, dht_routing_nearest(&r, near, 8, &self, NULL));
    while (!rc && dht_search_next(&s, &next)) {
        struct dht_contact more = { .id = { { 9, 9, next.id.bytes[0] } }, .peer = next.peer };
        struct dht_found found = { .type = DHT_FOUND_REGULAR,
                                   .value = (const uint8_t *)"\xc3",
                                   .n = 1,
                                   .expiration = 2,
                                   .nearest = &more,
                                   .nearest_count = 1 };
        rc = dht_search_answered(&s, &next.id, &found);
    }
    dht_search_clear(&s);
    dht_routing_clear(&r);
    return rc < 0 ? rc : PL_OK;
}

static int records(void)
{
    struct progress_record p = { .peer = me.id, .epoch = 1, .samples = 2, .time = 3 };
    struct metrics_record m = { .step = 1 };
    struct report_record r = { .version = "1", .held_out = 2 };
    struct bytes out = { 0 };
    int rc = progress_write(&out, &p);
    if (!rc) rc = progress_read(&p, bytes_at(&out), bytes_length(&out), &err);
    bytes_clear(&out);
    if (!rc) rc = metrics_write(&out, &m);
    if (!rc) rc = metrics_read(&m, bytes_at(&out), bytes_length(&out), &err);
    bytes_clear(&out);
    if (!rc) rc = report_write(&out, &r);
    if (!rc) rc = report_read(&r, bytes_at(&out), bytes_length(&out), &err);
    bytes_clear(&out);
    return rc;
}

/* --- states and tokens ------------------------------------------------------------------------- */

static int a_state(void)
{
    static const float values[2000];
    const struct schema_tensor schema[2] = {
        { .type = { .dtype = PL_F32, .dims = 1, .size = { 2000 } } },
        { .type = { .dtype = PL_F32, .dims = 1, .size = { 5 } } }
    };
    const struct state_tensor tensors[2] = { { schema[0].type, PL_COMPRESS_FLOAT16, values },
                                             { schema[1].type, PL_COMPRESS_NONE, values } };
    struct state_leaf leaves[2] = { { .kind = STATE_TENSOR, .index = 1 },
                                    { .kind = STATE_REAL, .real = 2 } };
    struct training_state t = { .epoch = 3, .group_bits = "01", .leaves = leaves, .count = 2 },
                          read = { 0 };
    struct state_source source = { .tensors = tensors, .count = 2 };
    struct state_load l = { 0 };
    struct bytes message = { 0 }, metadata = { 0 };
    struct pl_backend be;
    int rc = training_state_write(&metadata, &t), end = 0;
    pl_backend_ref(&be);
    source.metadata = bytes_at(&metadata);
    source.metadata_n = bytes_length(&metadata);
    state_load_expect(&l, schema, 2);
    while (!rc && !end) {
        rc = state_source_next(&source, &message, &be, &err);
        if (rc == PL_ENOTFOUND) {
            end = 1;
            rc = PL_OK;
        } else if (!rc) {
            rc = state_load_add(&l, bytes_at(&message), bytes_length(&message), &err);
        }
        bytes_clear(&message);
    }
    if (!rc) rc = state_load_finish(&l, &err);
    if (!rc) rc = training_state_read(&read, l.metadata, l.metadata_n, &err);
    training_state_clear(&read);
    state_load_clear(&l);
    state_source_clear(&source);
    bytes_clear(&metadata);
    return rc;
}

/* A user asks the authority for a token and calls a member with it. */
static int moderation(void)
{
    struct authority run = { .key = &authority_key, .life_s = 3600 };
    struct auth client = { .key = &key }, server = { .key = &key };
    struct bytes line = { 0 }, json = { 0 }, request = { 0 }, answer = { 0 }, copy = { 0 };
    char secret[AUTHORITY_TOKEN_MAX], bearer[AUTHORITY_TOKEN_MAX + 8], body[2000];
    uint8_t nonce[AUTH_NONCE], nonce_heard[AUTH_NONCE];
    struct auth_token read = { 0 };
    EVP_PKEY *by = NULL;
    const uint8_t *plain;
    size_t n;
    int rc = authority_invite(secret, &line, "ann", &err);
    if (!rc) rc = authority_read(&run, (const char *)bytes_at(&line), bytes_length(&line), &err);
    snprintf(bearer, sizeof bearer, "Bearer %s", secret);
    snprintf(body, sizeof body, "{\"experiment_join_input\": {\"peer_public_key\": \"%.*s\"}}",
             (int)bytes_length(&key.text), (const char *)bytes_at(&key.text));
    if (!rc && authority_join(&run, &json, bearer, body, strlen(body), 1.8e9) != 200)
        rc = PL_ENOMEM;
    if (!rc)
        rc = authority_answer_read(&client.token, &by, (const char *)bytes_at(&json),
                                   bytes_length(&json), &err);
    client.authority = server.authority = by;
    if (!rc) rc = auth_token_write(&copy, &client.token);
    if (!rc) rc = auth_token_read(&read, bytes_at(&copy), bytes_length(&copy));
    server.token = read;
    if (!rc) rc = auth_token_check(&client.token, by, 1.8e9, &err);
    if (!rc) rc = auth_sign_request(&request, nonce, &client, 1.8e9, "\x18\x01", 2);
    if (!rc)
        rc = auth_check_request(&plain, &n, nonce_heard, &server, 1.8e9, bytes_at(&request),
                                bytes_length(&request), &err);
    if (!rc) rc = auth_sign_response(&answer, &server, nonce, "\x18\x01", 2);
    if (!rc)
        rc = auth_check_response(&plain, &n, &client, nonce, 1.8e9, bytes_at(&answer),
                                 bytes_length(&answer), &err);
    EVP_PKEY_free(by);
    client.authority = server.authority = NULL;
    auth_clear(&client);
    auth_clear(&server);
    authority_clear(&run);
    bytes_clear(&line);
    bytes_clear(&json);
    bytes_clear(&request);
    bytes_clear(&answer);
    bytes_clear(&copy);
    return rc;
}

/* --- groups ------------------------------------------------------------------------------------ */

/* All peers but one go on with all memory; whichever allocation fails, every peer's round ends, and all that
 * apply have the same. */
static int an_allreduce_of(int verify)
{
    static struct world w;
    long at = fail_at;
    int rc = PL_OK;
    fail_at = -1;
    make(&w);
    w.verify = verify;
    begin(&w);
    fail_at = at;
    calls = 0;
    run(&w);
    for (int i = 0; i < 20; i++) tick(&w, 4);
    for (size_t i = 0; i < PEERS; i++) {
        if (!w.peer[i].over) rc = PL_EPROTO;
        if (w.peer[i].status) rc = w.peer[i].status;
    }
    at = calls;
    fail_at = -1;
    end(&w);
    calls = at;
    return rc;
}
static int an_allreduce(void) { return an_allreduce_of(0); }
static int a_verified_allreduce(void) { return an_allreduce_of(1); }

static int opening_an_allreduce(void)
{
    static const double share[2] = { 40, 50 };
    static const size_t lengths[2] = { 30, 60 };
    static const enum pl_compression method[2] = { PL_COMPRESS_NONE, PL_COMPRESS_FLOAT16 };
    static float a[30], b[60], *const tensor[2] = { a, b };
    static const uint8_t gather[] = { 0x93, 0xc0, 0x00, 0xc4, 0x01, 0xc0 };
    struct pl_backend be;
    struct group group = { 0 };
    struct allreduce_options o = { .be = &be,
                                   .group = &group,
                                   .tensors = 2,
                                   .elements = lengths,
                                   .method = method,
                                   .tensor = tensor,
                                   .weight = 1,
                                   .share = share,
                                   .me = &me,
                                   .part_bytes = 64 };
    struct allreduce *x = NULL;
    int rc = group_add(&group, &me.id, gather, sizeof gather, &err);
    if (!rc) rc = group_add(&group, &other.id, gather, sizeof gather, &err);
    pl_backend_ref(&be);
    for (int verify = 0; !rc && verify < 2; verify++) {
        static struct peer p;
        memset(&p, 0, sizeof p);
        p.w = &(struct world){ .now = 0 };
        o.verify = verify;
        rc = allreduce_open(&x, &o, &port, &p, 0, &err);
        if (rc) break;
        for (size_t i = 0; i < p.job_count; i++) {
            p.jobs[i]->run(p.jobs[i]);
            allreduce_done(x, 0, p.jobs[i]);
        }
        p.job_count = 0;
        if (!p.over) allreduce_cancel(x, 1);
        while (p.w->count) free(p.w->letters[--p.w->count].data);
        free(p.w->letters);
        allreduce_close(x);
    }
    group_clear(&group);
    return rc;
}

static int setup(void **state)
{
    (void)state;
    return identity_make(&me, KEY_ED25519, NULL) || identity_make(&other, KEY_ED25519, NULL) ||
           rsa_key_make(&key, NULL) || rsa_key_make(&authority_key, NULL);
}

static int teardown(void **state)
{
    (void)state;
    identity_clear(&me);
    identity_clear(&other);
    rsa_key_clear(&key);
    rsa_key_clear(&authority_key);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        EACH_FAILING(a_nodes_answers, 0), EACH_FAILING(routing, 0),
        EACH_FAILING(records, 0),         EACH_FAILING(a_state, 0),
        EACH_FAILING(moderation, 0),      EACH_FAILING(opening_an_allreduce, 1),
        FAILING(an_allreduce, 1, 1),      FAILING(a_verified_allreduce, 1, 1),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
