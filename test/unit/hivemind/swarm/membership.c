/* membership.c - peers of a moderated run and its authority in one process: a token is renewed when
 * a minute of it is left and not before, a failure is tried again only later, and the public
 * optimizer does all of that by itself. */
#include "net/hivemind/optimizer/optimizer_internal.h"
#include "data/files/file.h"
#include "net/http/authority/authority_server.h"
#include "test/unit/unit.h"

#include <time.h>
#include <unistd.h>

#define LIFE (AUTH_RENEW_BEFORE + 2) /* s: renewal is due two seconds after a token was given */

static struct authority_server *server;
static struct authority authority;
static struct rsa_key authority_key;
static struct bytes certificate, certificate_key;
static char folder[] = "/tmp/membership.XXXXXX", list[64], secret[64], wrong[64], ca[64], url[64];

static void nap(double s)
{
    nanosleep(&(struct timespec){ (time_t)s, (long)((s - (double)(time_t)s) * 1e9) }, NULL);
}

static void write_text(char path[64], const char *name, const void *text, size_t n)
{
    struct pl_err err;
    snprintf(path, 64, "%s/%s", folder, name);
    if (pl_file_write(path, text, n, &err)) fail_msg("%s", err.text);
}

static int begin(void **state)
{
    struct bytes line = { 0 };
    char token[AUTHORITY_TOKEN_MAX];
    struct pl_err err;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(authority_invite(token, &line, "ann", &err), PL_OK);
    write_text(list, "list", bytes_at(&line), bytes_length(&line));
    write_text(secret, "secret", token, strlen(token));
    write_text(wrong, "wrong", "0123456789abcdef", 16);
    bytes_clear(&line);
    assert_int_equal(certificate_make(&certificate, &certificate_key, "localhost", &err), PL_OK);
    write_text(ca, "crt", bytes_at(&certificate), bytes_length(&certificate));
    bytes_u8(&certificate, 0);
    bytes_u8(&certificate_key, 0);
    assert_int_equal(rsa_key_make(&authority_key, &err), PL_OK);
    authority = (struct authority){ .key = &authority_key, .life_s = LIFE };
    if (authority_server_open(&server, &authority, list, "127.0.0.1", 0,
                              (const char *)bytes_at(&certificate),
                              (const char *)bytes_at(&certificate_key), &err))
        fail_msg("%s", err.text);
    snprintf(url, sizeof url, "https://localhost:%d", authority_server_port(server));
    return 0;
}

static int end(void **state)
{
    authority_server_close(server);
    authority_clear(&authority);
    rsa_key_clear(&authority_key);
    bytes_clear(&certificate);
    bytes_clear(&certificate_key);
    remove(list), remove(secret), remove(wrong), remove(ca), remove(folder);
    return 0;
}

static size_t issued(void)
{
    size_t good, bad;
    authority_server_counts(server, &good, &bad);
    return good;
}

static void tokens_are_renewed_in_time(void **state)
{
    struct membership m = { .authority = url, .token_file = secret, .ca_file = ca };
    struct swarm_options o = { .cmd = "test" };
    struct swarm s;
    struct pl_err err;
    struct bytes first = { 0 };
    const size_t before = issued();
    if (membership_open(&m, &o.auth, &err)) fail_msg("%s", err.text);
    assert_ptr_equal(o.auth, &m.auth);
    if (swarm_open(&s, &o, &err)) fail_msg("%s", err.text);
    assert_int_equal(issued(), before + 1);
    assert_int_equal(membership_renew(&m, &s, &err), PL_OK); /* more than a minute is left */
    assert_int_equal(issued(), before + 1);
    bytes_add(&first, bytes_at(&m.auth.token.expiration), bytes_length(&m.auth.token.expiration));
    nap(2.2);
    if (membership_renew(&m, &s, &err)) fail_msg("%s", err.text);
    assert_int_equal(issued(), before + 2);
    /* The texts have one form, so a later time is a later text. */
    assert_true(memcmp(bytes_at(&m.auth.token.expiration), bytes_at(&first), 19) > 0);
    bytes_clear(&first);
    swarm_close(&s);
    membership_close(&m);
}

/* While the authority is away the old token stays, and it is not asked again for 15 seconds: each
 * time training waits. */
static void failed_renewals_wait(void **state)
{
    struct membership m = { .authority = url, .token_file = secret, .ca_file = ca };
    struct swarm_options o = { .cmd = "test" };
    struct swarm s;
    struct pl_err err;
    if (membership_open(&m, &o.auth, &err) || swarm_open(&s, &o, &err)) fail_msg("%s", err.text);
    m.authority = "https://localhost:1";
    nap(2.2);
    assert_int_equal(membership_renew(&m, &s, &err), PL_EAGAIN);
    assert_non_null(strstr(err.text, "no program answers there"));
    assert_true(bytes_length(&m.auth.token.signature) > 0);
    m.authority = url;
    assert_int_equal(membership_renew(&m, &s, &err), PL_OK);
    assert_int_equal(m.failures, 1); /* nothing was due: it was not asked */
    m.retry_at -= 15;
    assert_int_equal(membership_renew(&m, &s, &err), PL_OK);
    assert_int_equal(m.failures, 0);
    swarm_close(&s);
    membership_close(&m);
}

/* --- by the public header --------------------------------------------------------------------- */

static float value[4], gradient[4] = { 1, 1, 1, 1 };
static char warning[512];

static void report(void *context, const struct pl_collaborative_event *e)
{
    if (e->kind == PL_COLLABORATIVE_WARNING) snprintf(warning, sizeof warning, "%s", e->text);
}

static int open_peer(struct pl_collaborative **c, struct pl_collaborative_run run, const char *join,
                     struct pl_err *err)
{
    static const char *const listen[] = { "/ip4/127.0.0.1/tcp/0" };
    const struct pl_collaborative_tensor tensor = { "x", 1, { 4 }, value, 0 };
    const struct pl_collaborative_options o = { .target_batch = 1000,
                                                .matchmaking_time = 1,
                                                .report = report };
    run.name = "moderated";
    run.listen = listen;
    run.listen_count = 1;
    run.initial_peers = &join;
    run.initial_peer_count = join != NULL;
    return pl_collaborative_open(c, &run, &tensor, 1, &o, err);
}

static void optimizer_is_a_member(void **state)
{
    const struct pl_collaborative_run member = { .authority = url,
                                                 .token_file = secret,
                                                 .authority_ca = ca },
                                      stranger = { .name = NULL };
    const float *const g = gradient;
    const size_t before = issued();
    struct pl_collaborative *c, *other;
    struct pl_err err;
    if (open_peer(&c, member, NULL, &err)) fail_msg("%s", err.text);
    if (open_peer(&other, member, pl_collaborative_address(c), &err)) fail_msg("%s", err.text);
    pl_collaborative_close(other);
    assert_int_equal(open_peer(&other, stranger, pl_collaborative_address(c), &err), PL_EIO);
    assert_non_null(strstr(err.text, "access token"));
    assert_int_equal(issued(), before + 2);
    nap(2.2);
    assert_int_equal(pl_collaborative_step(c, &g, 1, 1, &err), PL_OK);
    assert_int_equal(issued(), before + 3);
    c->member.membership.retry_at = 0;
    c->member.membership.authority = "https://localhost:1";
    nap(2.2); /* a token that cannot be renewed is a warning: training continues */
    assert_int_equal(pl_collaborative_step(c, &g, 1, 1, &err), PL_OK);
    assert_non_null(strstr(warning, "no program answers there"));
    pl_collaborative_close(c);
}

static void refuses(const char *words, struct pl_collaborative_run run)
{
    struct pl_collaborative *c;
    struct pl_err err = { "" };
    assert_int_equal(open_peer(&c, run, NULL, &err), PL_EUSE);
    assert_null(c);
    if (!strstr(err.text, words)) fail_msg("'%s' has no '%s'", err.text, words);
    assert_null(strchr(err.text, '\n'));
}

static void mistakes_are_named(void **state)
{
    const struct pl_collaborative_node node = { (struct swarm *)value,
                                                &authority_key }; /* not read */
    refuses("is not on its list; your side:", (struct pl_collaborative_run){ .authority = url,
                                                                             .token_file = wrong,
                                                                             .authority_ca = ca });
    refuses("needs --token-file, too", (struct pl_collaborative_run){ .authority = url });
    refuses("none is given", (struct pl_collaborative_run){ .token_file = secret });
    refuses("none is given", (struct pl_collaborative_run){ .authority_ca = ca });
    refuses("open already",
            (struct pl_collaborative_run){ .node = &node, .authority = url, .token_file = secret });
}

/* A key without a swarm signs this peer's records: their subkey is its hash. */
static void callers_key_signs_records(void **state)
{
    const float *const g = gradient;
    struct pl_collaborative *c;
    struct rsa_key key = { 0 };
    const struct pl_collaborative_node node = { NULL, &key };
    struct bytes subkey = { 0 };
    struct dht_result r;
    struct dht_id id;
    struct pl_err err;
    assert_int_equal(rsa_key_make(&key, &err), PL_OK);
    assert_int_equal(record_own_subkey(&subkey, &key), PL_OK);
    if (open_peer(&c, (struct pl_collaborative_run){ .node = &node }, NULL, &err))
        fail_msg("%s", err.text);
    assert_int_equal(pl_collaborative_step(c, &g, 1, 1, &err), PL_OK);
    dht_id_of_text(&id, "moderated_progress");
    assert_int_equal(swarm_get(c->member.swarm, &r, &id, 1), PL_OK);
    assert_int_equal(r.dictionary.count, 1);
    /* a minute, hivemind's life of a progress record */
    assert_in_range(r.dictionary.items[0].expiration - swarm_time(c->member.swarm), 30, 60);
    assert_int_equal(r.dictionary.items[0].subkey_n, bytes_length(&subkey));
    assert_memory_equal(r.dictionary.items[0].subkey, bytes_at(&subkey), bytes_length(&subkey));
    dht_result_clear(&r);
    pl_collaborative_close(c);
    bytes_clear(&subkey);
    rsa_key_clear(&key); /* borrowed: still the caller's */
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(tokens_are_renewed_in_time),
                                        cmocka_unit_test(failed_renewals_wait),
                                        cmocka_unit_test(optimizer_is_a_member),
                                        cmocka_unit_test(mistakes_are_named),
                                        cmocka_unit_test(callers_key_signs_records) };
    if (argc > 1) cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, begin, end);
}
