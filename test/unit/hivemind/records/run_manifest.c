/* run_manifest.c - a run's manifest: written and read back, each field refused out of its bounds,
 * two manifests compared, and records that their peers have not signed. */
#include "net/hivemind/records/run_manifest.h"
#include "net/hivemind/records/validate.h"
#include "data/files/json.h"
#include "test/unit/unit.h"

static struct run_manifest sample;
static struct identity me, stranger;
static struct rsa_key key, other;
static struct bytes subkey, other_subkey;

static int setup(void **state)
{
    sample = (struct run_manifest){ .run = "emoji",
                                    .software = "potluck 0.1.0",
                                    .optimizer = "lamb8",
                                    .compression = "run",
                                    .algorithm = "gradients",
                                    .tokenizer = "00ff",
                                    .codec = "41bbb66f",
                                    .data = { "demo", "https://example.org/list.json" },
                                    .data_count = 2,
                                    .steps = 1000,
                                    .target_batch = 64,
                                    .average_state_every = 5,
                                    .seed = 7,
                                    .lr = 0.01,
                                    .warmup = 0.1,
                                    .token_noise = 0.08,
                                    .inner_steps = 50,
                                    .outer_lr = 0.7,
                                    .outer_momentum = 0.9 };
    return pl_dalle_config_named(&sample.config, "small", NULL) ||
           identity_make(&me, KEY_ED25519, NULL) || identity_make(&stranger, KEY_ED25519, NULL) ||
           rsa_key_make(&key, NULL) || rsa_key_make(&other, NULL) ||
           record_own_subkey(&subkey, &key) || record_own_subkey(&other_subkey, &other);
}

static int teardown(void **state)
{
    identity_clear(&me);
    identity_clear(&stranger);
    rsa_key_clear(&key);
    rsa_key_clear(&other);
    bytes_clear(&subkey);
    bytes_clear(&other_subkey);
    return 0;
}

static void there_and_back(void **state)
{
    struct run_manifest back;
    struct pl_err err;
    char *text, *again;
    assert_int_equal(manifest_write(&text, &sample, &err), PL_OK);
    assert_int_equal(manifest_read(&back, text, strlen(text), &err), PL_OK);
    assert_memory_equal(&back.lr, &sample.lr, sizeof sample.lr);
    assert_string_equal(back.data[1], sample.data[1]);
    assert_int_equal(back.data_count, 2);
    assert_int_equal(back.seed, 7);
    assert_int_equal(manifest_compare(&back, &sample, &err), PL_OK);
    /* Its text is what is signed and compared: the same one each time. */
    assert_int_equal(manifest_write(&again, &back, &err), PL_OK);
    assert_string_equal(again, text);
    free(text);
    free(again);
}

/* The reference run's 64 blocks, and the most that there may be, fit into a record. */
static void the_largest_fits(void **state)
{
    struct run_manifest m = sample;
    struct pl_err err;
    char *text;
    assert_int_equal(pl_dalle_config_named(&m.config, "run", NULL), PL_OK);
    m.config.L = PL_DALLE_BLOCKS_MAX;
    pl_dalle_config_pattern(&m.config, 11, 2);
    for (m.data_count = 0; m.data_count < MANIFEST_DATA_MAX; m.data_count++) {
        memset(m.data[m.data_count], 'x', MANIFEST_URL_MAX);
        memcpy(m.data[m.data_count], "https://", 8);
    }
    assert_int_equal(manifest_write(&text, &m, &err), PL_OK);
    assert_true(strlen(text) <= MANIFEST_BYTES_MAX);
    free(text);
    strcpy(m.run, "\xc3\xa9");
    assert_int_equal(manifest_write(&text, &m, &err), PL_EUSE);
    assert_null(text);
}

/* The sample with one key replaced by this JSON; NULL removes it. */
static int with(const char *name, const char *json)
{
    struct run_manifest m;
    struct pl_err err = { "" };
    char *text, *changed;
    json_t *root;
    int rc;
    assert_int_equal(manifest_write(&text, &sample, NULL), PL_OK);
    root = json_loads(text, 0, NULL);
    if (json) json_object_set_new(root, name, json_loads(json, JSON_DECODE_ANY, NULL));
    else json_object_del(root, name);
    changed = json_dumps(root, 0);
    rc = manifest_read(&m, changed, strlen(changed), &err);
    assert_true(!rc || (*err.text && !strchr(err.text, '\n')));
    free(changed);
    free(text);
    json_decref(root);
    return rc;
}

static void what_is_out_of_bounds_is_refused(void **state)
{
    static const char *const bad[][2] = {
        { "potluck_manifest", "2" },
        { "potluck_manifest", NULL },
        { "run", "7" },
        { "run", "\"\\u001b[2J\"" },
        { "run", "\"1234567890123456789012345678901234567890123456789012345678901234\"" },
        { "optimizer", NULL },
        { "lr", "-0.1" },
        { "lr", "1001" },
        { "lr", "\"0.01\"" },
        { "warmup", "1.5" },
        { "token_noise", "1.5" },
        { "steps", "0" },
        { "steps", "1000000001" },
        { "steps", "10.5" },
        { "target_batch", "1048577" },
        { "average_state_every", "0" },
        { "inner_steps", "0" },
        { "outer_lr", "1e4" },
        { "outer_momentum", "2" },
        { "seed", "-1" },
        { "tokenizer", "\"00000000000000000000000000000000000000000000000000000000000000000\"" },
        { "codec", "null" },
        { "data", "\"demo\"" },
        { "data", "[\"http://example.org/\"]" },
        { "data", "[\"file:///etc/passwd\"]" },
        { "data", "[\"/etc\"]" },
        { "data",
          "[\"demo\",\"demo\",\"demo\",\"demo\",\"demo\",\"demo\",\"demo\",\"demo\",\"demo\"]" },
        { "model", "{}" },
        { "model", "\"small\"" },
        { "model", "{\"base\": \"small\", \"depth\": 257}" },
        { "model", "{\"base\": \"small\", \"name\": \"\\u0007\"}" },
        { "model", "{\"base\": \"small\", \"widht\": 4}" },
    };
    for (size_t i = 0; i < PL_COUNT(bad); i++)
        if (with(bad[i][0], bad[i][1]) != PL_EFORMAT)
            fail_msg("%s: %s", bad[i][0], bad[i][1] ? bad[i][1] : "missing");
    /* Fields of a later version, and whole numbers for reals, are accepted. */
    assert_int_equal(with("added", "[1]"), PL_OK);
    assert_int_equal(with("lr", "1"), PL_OK);
    assert_int_equal(with("data", "[]"), PL_OK);
}

/* Manifests of versions that did not know them. */
static void fields_that_came_later_may_be_missing(void **state)
{
    struct run_manifest m = sample;
    struct pl_err err;
    assert_int_equal(with("algorithm_settings", NULL), PL_OK);
    assert_int_equal(with("token_noise", NULL), PL_OK);
    m.token_noise = 0;
    assert_int_equal(manifest_compare(&m, &sample, &err), PL_EUSE);
    assert_string_equal(err.text, "token noise: 0 here, 0.08 in the run");
}

static void long_and_broken_texts_are_refused(void **state)
{
    struct run_manifest m;
    struct pl_err err;
    char *text = malloc(MANIFEST_BYTES_MAX + 2);
    memset(text, ' ', MANIFEST_BYTES_MAX + 2);
    assert_int_equal(manifest_read(&m, text, MANIFEST_BYTES_MAX + 1, &err), PL_EFORMAT);
    memset(text, '[', MANIFEST_BYTES_MAX);
    assert_int_equal(manifest_read(&m, text, MANIFEST_BYTES_MAX, &err), PL_EFORMAT);
    assert_int_equal(manifest_read(&m, "{\"run\":1,\"run\":1}", 17, &err), PL_EFORMAT);
    assert_int_equal(manifest_read(&m, "", 0, &err), PL_EFORMAT);
    free(text);
}

/* Both values are named; fields that each peer may choose make no difference. */
static void differences_are_named(void **state)
{
    struct run_manifest m = sample;
    struct pl_err err;
    strcpy(m.software, "potluck 9");
    m.seed = 8;
    m.data_count = 0;
    m.inner_steps = 3;
    *m.codec = 0;
    strcpy(m.config.name, "mine");
    assert_int_equal(manifest_compare(&m, &sample, &err), PL_OK);
    m.steps = 100;
    m.lr = 0.02;
    assert_int_equal(manifest_compare(&m, &sample, &err), PL_EUSE);
    assert_string_equal(err.text, "learning rate: 0.02 here, 0.01 in the run; "
                                  "steps: 100 here, 1000 in the run");
    m = sample;
    m.config.D *= 2;
    assert_int_equal(manifest_compare(&m, &sample, &err), PL_EUSE);
    assert_non_null(strstr(err.text, "model: small"));
    for (int i = 0; i < 5; i++) {
        m = sample;
        strcpy(i == 0   ? m.optimizer
               : i == 1 ? m.compression
               : i == 2 ? m.tokenizer
               : i == 3 ? m.codec
                        : m.algorithm,
               "other");
        assert_int_equal(manifest_compare(&m, &sample, &err), PL_EUSE);
        assert_non_null(strstr(err.text, ": other here, "));
    }
    m = sample;
    m.target_batch = 65;
    assert_int_equal(manifest_compare(&m, &sample, NULL), PL_EUSE);
    m = sample;
    m.average_state_every = 1;
    assert_int_equal(manifest_compare(&m, &sample, NULL), PL_EUSE);
    /* Rules of an outer step count where both have one. */
    struct run_manifest diloco = sample;
    strcpy(diloco.algorithm, "diloco");
    m = diloco;
    m.outer_momentum = 0.5;
    assert_int_equal(manifest_compare(&m, &diloco, NULL), PL_EUSE);
}

/* A record's value as `from` would publish it under its own subkey. */
static void write_record(struct bytes *b, const struct bytes *under, const struct identity *from)
{
    char *text;
    assert_int_equal(manifest_write(&text, &sample, NULL), PL_OK);
    assert_int_equal(manifest_record_write(b, under, from, text), PL_OK);
    free(text);
}

static int read_record(const struct bytes *b, const struct bytes *under, const struct peer_id *of)
{
    struct manifest_record *r = calloc(1, sizeof *r);
    int rc = manifest_record_read(r, of, bytes_at(under), bytes_length(under), bytes_at(b),
                                  bytes_length(b), NULL);
    if (!rc) {
        assert_true(peer_id_equal(&r->peer, &me.id));
        assert_int_equal(manifest_compare(&r->manifest, &sample, NULL), PL_OK);
        assert_int_equal(strlen(r->text), r->n);
    }
    manifest_record_clear(r);
    free(r);
    return rc;
}

static void records_are_their_peers(void **state)
{
    struct bytes b = { 0 }, changed = { 0 };
    write_record(&b, &subkey, &me);
    assert_int_equal(read_record(&b, &subkey, &me.id), PL_OK);
    assert_int_equal(read_record(&b, &subkey, NULL), PL_OK);
    assert_int_equal(read_record(&b, &subkey, &stranger.id), PL_ENOTFOUND);
    /* Under a stranger's own key, a copy of it is nobody's. */
    assert_int_equal(read_record(&b, &other_subkey, &me.id), PL_EPROTO);
    /* One changed character of the text, then one of the signature. */
    for (size_t at = 40; at < bytes_length(&b); at += bytes_length(&b) - 80) {
        bytes_clear(&changed);
        bytes_add(&changed, bytes_at(&b), bytes_length(&b));
        ((uint8_t *)(uintptr_t)bytes_at(&changed))[at] ^= 1;
        assert_int_not_equal(read_record(&changed, &subkey, &me.id), PL_OK);
    }
    bytes_clear(&changed);
    mp_map(&changed, 1);
    mp_text(&changed, "manifest");
    mp_bin(&changed, "{}", 2);
    assert_int_not_equal(read_record(&changed, &subkey, NULL), PL_OK);
    bytes_clear(&changed);
    mp_list(&changed, 0);
    assert_int_not_equal(read_record(&changed, &subkey, NULL), PL_OK);
    bytes_clear(&changed);
    bytes_clear(&b);
}

/* A stranger that names another peer's public key has no signature by it. */
static void manifest_is_signed_by_its_own_peer(void **state)
{
    struct identity false_one = stranger;
    struct bytes b = { 0 };
    false_one.public_key = me.public_key;
    write_record(&b, &other_subkey, &false_one);
    assert_int_equal(read_record(&b, &other_subkey, &me.id), PL_EPROTO);
    bytes_clear(&b);
}

/* Under the run's key a node stores an owner's one record, for an hour at most. */
static void a_node_guards_the_runs_key(void **state)
{
    struct validators mine = { .key = &key }, guarded = { 0 };
    struct bytes b = { 0 }, value = { 0 };
    struct dht_id id;
    struct record r;
    assert_int_equal(validators_add_run(&guarded, "emoji"), PL_OK);
    assert_int_equal(manifest_key_of_run(&id, "emoji"), PL_OK);
    write_record(&b, &subkey, &me);
    r = (struct record){ .key = id.bytes,
                         .key_n = DHT_ID_BYTES,
                         .subkey = bytes_at(&subkey),
                         .subkey_n = bytes_length(&subkey),
                         .value = bytes_at(&b),
                         .n = bytes_length(&b),
                         .expiration = 1000 };
    assert_int_equal(record_sign(&value, &mine, &r), PL_OK);
    assert_int_equal(record_check(&guarded, &r, NULL), PL_EPROTO); /* not signed */
    r.value = bytes_at(&value);
    r.n = bytes_length(&value);
    assert_int_equal(record_check(&guarded, &r, NULL), PL_OK);
    assert_int_equal(record_check_life(&guarded, &r, 1000 - 3600), PL_OK);
    assert_int_equal(record_check_life(&guarded, &r, 1000 - 3700), PL_EPROTO);
    /* A field of another type is none. */
    bytes_clear(&b);
    bytes_clear(&value);
    mp_map(&b, 3);
    for (int i = 0; i < 3; i++) {
        mp_text(&b, schema_manifest.fields[i].name);
        mp_int(&b, 1);
    }
    r.value = bytes_at(&b);
    r.n = bytes_length(&b);
    assert_int_equal(record_sign(&value, &mine, &r), PL_OK);
    r.value = bytes_at(&value);
    r.n = bytes_length(&value);
    assert_int_equal(record_check(&guarded, &r, NULL), PL_EPROTO);
    bytes_clear(&value);
    bytes_clear(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_and_back),
        cmocka_unit_test(the_largest_fits),
        cmocka_unit_test(what_is_out_of_bounds_is_refused),
        cmocka_unit_test(fields_that_came_later_may_be_missing),
        cmocka_unit_test(long_and_broken_texts_are_refused),
        cmocka_unit_test(differences_are_named),
        cmocka_unit_test(records_are_their_peers),
        cmocka_unit_test(manifest_is_signed_by_its_own_peer),
        cmocka_unit_test(a_node_guards_the_runs_key),
    };
    return cmocka_run_group_tests_name("run_manifest", tests, setup, teardown);
}
