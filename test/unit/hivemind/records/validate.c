/* validate.c - owner tags and signatures in odd places, and dictionaries with one bad record. */
#include "net/hivemind/moderation/auth.h"
#include "net/hivemind/kademlia/dht_result.h"
#include "net/hivemind/kademlia/dht_serve.h"
#include "net/hivemind/progress/progress.h"
#include "test/unit/unit.h"

#include <math.h>
#include <openssl/evp.h>

static struct rsa_key key, other;
static struct validators mine, guarded;

static int setup(void **state)
{
    mine.key = &key;
    return rsa_key_make(&key, NULL) || rsa_key_make(&other, NULL) ||
           validators_add_run(&guarded, "run");
}

static int teardown(void **state)
{
    rsa_key_clear(&key);
    rsa_key_clear(&other);
    return 0;
}

static int check_text(const char *subkey, const char *value)
{
    struct record r = { .key = (const uint8_t *)"k",
                        .key_n = 1,
                        .subkey = (const uint8_t *)subkey,
                        .subkey_n = strlen(subkey),
                        .value = (const uint8_t *)value,
                        .n = strlen(value),
                        .expiration = 1 };
    return record_check(&mine, &r, NULL);
}

/* Two owners that differ, also of one length, are refused before any key is checked. */
static int owners_differ(const char *subkey)
{
    struct record r = { .key = (const uint8_t *)"k",
                        .key_n = 1,
                        .subkey = (const uint8_t *)subkey,
                        .subkey_n = strlen(subkey),
                        .value = (const uint8_t *)"x[signature:c]",
                        .n = 14 };
    struct pl_err why = { "" };
    assert_int_equal(record_check(&mine, &r, &why), PL_EPROTO);
    return strstr(why.text, "two") != NULL;
}

static void tags(void **state)
{
    assert_int_equal(check_text("", "x"), PL_OK);
    assert_int_equal(check_text("[owner:]", "x"), PL_OK);      /* nothing inside: no tag */
    assert_int_equal(check_text("[owner:]]", "x"), PL_EPROTO); /* "]" is inside */
    assert_int_equal(check_text("[owner:a\n]", "x"), PL_OK);   /* no newline inside */
    assert_int_equal(check_text("[owner:\n[owner:a]", "x"), PL_EPROTO);
    assert_int_equal(check_text("[owner:a", "x"), PL_OK);
    assert_int_equal(check_text("[owner:b][owner:b]", "x[signature:c]"), PL_EPROTO);
    assert_true(owners_differ("[owner:a][owner:b]") && owners_differ("[owner:a] [owner:aa]"));
    assert_false(owners_differ("[owner:a][owner:a]"));
    assert_int_equal(check_text("[owner:a][owner:a]", "x[signature:b]"), PL_EPROTO); /* no key */
    assert_int_equal(check_text("", "[signature:a][signature:b]"), PL_OK); /* without an owner */
}

static void strip(void **state)
{
    static const char *const cases[][2] = {
        { "abc", "abc" },
        { "a[signature:x]b[signature:y]c", "abc" },
        { "[signature:]x]y", "y" },
        { "[signature:x", "[signature:x" },
        { "[signature:\n]", "[signature:\n]" },
        { "", "" },
        { "[signature:[signature:x]", "" },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        struct bytes out = { 0 };
        record_strip(&out, (const uint8_t *)cases[i][0], strlen(cases[i][0]));
        assert_true(bytes_length(&out) == strlen(cases[i][1]));
        if (bytes_length(&out))
            assert_memory_equal(bytes_at(&out), cases[i][1], bytes_length(&out));
        bytes_clear(&out);
    }
}

static void keys(void **state)
{
    static const char *const bad[] = { "",
                                       "ssh-rsa ",
                                       "ssh-rsa AAAA",
                                       "ssh-ed25519 AAAA",
                                       "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAAQE=",
                                       "ssh-rsa AAAAB3NzaC1yc2EAAAAA",
                                       "ssh-rsa !!!!" };
    EVP_PKEY *k;
    struct bytes text = { 0 }, pem = { 0 };
    struct rsa_key back;
    for (size_t i = 0; i < PL_COUNT(bad); i++)
        assert_int_equal(rsa_public_parse(&k, bad[i], strlen(bad[i])), PL_EFORMAT);
    bytes_add(&text, bytes_at(&key.text), bytes_length(&key.text));
    bytes_add(&text, " a comment", 10);
    assert_int_equal(rsa_public_parse(&k, bytes_at(&text), bytes_length(&text)), PL_OK);
    EVP_PKEY_free(k);
    for (size_t cut = 1; cut < 300; cut += 13)
        assert_int_equal(rsa_public_parse(&k, bytes_at(&text), bytes_length(&key.text) - cut),
                         PL_EFORMAT);
    assert_int_equal(rsa_key_write(&pem, &key), PL_OK);
    assert_int_equal(rsa_key_parse(&back, bytes_at(&pem), bytes_length(&pem), NULL), PL_OK);
    assert_true(bytes_length(&back.text) == bytes_length(&key.text));
    assert_memory_equal(bytes_at(&back.text), bytes_at(&key.text), bytes_length(&key.text));
    rsa_key_clear(&back);
    bytes_clear(&text);
    bytes_clear(&pem);
}

/* A signed progress record of `who` under the run's key. */
static void add_progress(struct dht_dictionary *d, const struct dht_id *id,
                         const struct rsa_key *who, int64_t epoch, double expiration, int spoil)
{
    struct validators v = { .key = who };
    struct progress_record p = { .peer = { 34, { 0x12, 0x20 } }, .epoch = epoch, .time = 1 };
    struct bytes subkey = { 0 }, value = { 0 }, made = { 0 };
    struct record r;
    record_own_subkey(&subkey, who);
    progress_write(&value, &p);
    r = (struct record){ .key = id->bytes,
                         .key_n = DHT_ID_BYTES,
                         .subkey = bytes_at(&subkey),
                         .subkey_n = bytes_length(&subkey),
                         .value = bytes_at(&value),
                         .n = bytes_length(&value),
                         .expiration = expiration };
    assert_int_equal(record_sign(&made, &v, &r), PL_OK);
    if (spoil) made.data[bytes_length(&made) - 20] ^= 1;
    assert_int_equal(dht_dictionary_store(d, 0, r.subkey, r.subkey_n, bytes_at(&made),
                                          bytes_length(&made), expiration),
                     PL_OK);
    bytes_clear(&subkey);
    bytes_clear(&value);
    bytes_clear(&made);
}

/* hivemind drops the whole dictionary for one bad record; we drop the record. */
static void one_bad_record(void **state)
{
    struct dht_dictionary d;
    struct dht_result result;
    struct dht_state node;
    struct dht_id id, self = { { 1 } };
    const struct peer_id node_peer = { 34, { 0x12, 0x20 } };
    const struct dht_reporter teller = { .peer = &node_peer, .now = 10 };
    struct bytes packed = { 0 };
    struct dht_record r = { .subkey = (const uint8_t *)"", .expiration = 20 };
    struct progress_record p;
    dht_id_of_text(&id, "run_progress");
    dht_dictionary_init(&d);
    add_progress(&d, &id, &key, 5, 20, 0);
    add_progress(&d, &id, &other, 6, 30, 1);
    dht_dictionary_store(&d, 0, "\xa1x", 2, "\xc0", 1, 40); /* without an owner, under a guarded
                                                             * key */
    dht_dictionary_write(&packed, &d);
    dht_result_init(&result);
    assert_int_equal(dht_result_merge(&result, &guarded, &id, &teller, DHT_FOUND_DICTIONARY,
                                      bytes_at(&packed), bytes_length(&packed), INFINITY),
                     PL_OK);
    assert_int_equal(result.dictionary.count, 1);
    assert_true(result.expiration == 20); /* the node's word counts for nothing */
    assert_int_equal(dht_result_merge(&result, &guarded, &id, &teller, DHT_FOUND_DICTIONARY,
                                      bytes_at(&packed), bytes_length(&packed), INFINITY),
                     PL_EAGAIN);
    assert_int_equal(dht_result_finish(&result, 10), PL_OK);
    assert_int_equal(progress_read(&p, result.dictionary.items[0].value,
                                   result.dictionary.items[0].n, NULL),
                     PL_OK);
    assert_int_equal(p.epoch, 5);
    dht_result_clear(&result);
    /* and when a node is given it to keep */
    dht_state_init(&node, &self, 0, &guarded);
    r.key = id;
    r.value = bytes_at(&packed);
    r.n = bytes_length(&packed);
    assert_int_equal(dht_state_store(&node, 10, &r), PL_EAGAIN);
    assert_int_equal(dht_state_get(&node, 10, &id)->dictionary.count, 1);
    dht_state_clear(&node);
    dht_dictionary_clear(&d);
    bytes_clear(&packed);
}

/* A signature cannot be used for another key, another owner, or a longer life. */
static void replayed(void **state)
{
    struct validators own = { .key = &key };
    struct bytes subkey = { 0 }, others = { 0 }, made = { 0 };
    struct record r, now;
    struct pl_err err;
    record_own_subkey(&subkey, &key);
    record_own_subkey(&others, &other);
    r = (struct record){ .key = (const uint8_t *)"k",
                         .key_n = 1,
                         .subkey = bytes_at(&subkey),
                         .subkey_n = bytes_length(&subkey),
                         .value = (const uint8_t *)"\x07",
                         .n = 1,
                         .expiration = 100 };
    assert_int_equal(record_sign(&made, &own, &r), PL_OK);
    r.value = bytes_at(&made);
    r.n = bytes_length(&made);
    assert_int_equal(record_check(&mine, &r, &err), PL_OK);
    now = r, now.expiration = 1000;
    assert_int_equal(record_check(&mine, &now, &err), PL_EPROTO);
    now = r, now.key = (const uint8_t *)"l";
    assert_int_equal(record_check(&mine, &now, &err), PL_EPROTO);
    now = r, now.subkey = bytes_at(&others), now.subkey_n = bytes_length(&others);
    assert_int_equal(record_check(&mine, &now, &err), PL_EPROTO);
    now = r, now.n = 1; /* without its signature */
    assert_int_equal(record_check(&mine, &now, &err), PL_EPROTO);
    made.data[made.begin] ^= 1; /* another value under the same signature */
    assert_int_equal(record_check(&mine, &r, &err), PL_EPROTO);
    bytes_clear(&subkey);
    bytes_clear(&others);
    bytes_clear(&made);
}

/* Real peers decode base64 as Python does: strangers in it are passed over, behind the padding
 * nothing counts. */
static void loose_base64(void **state)
{
    struct bytes made = { 0 }, odd = { 0 };
    EVP_PKEY *shared;
    size_t n;
    assert_int_equal(rsa_key_sign(&made, &key, "x", 1), PL_OK);
    assert_int_equal(rsa_public_parse(&shared, bytes_at(&key.text), bytes_length(&key.text)),
                     PL_OK);
    n = bytes_length(&made);
    bytes_add(&odd, bytes_at(&made), 30);
    bytes_add(&odd, "!=\n", 3);
    bytes_add(&odd, bytes_at(&made) + 30, n - 30);
    bytes_add(&odd, "QUJD", 4);
    assert_int_equal(rsa_public_verify(shared, "x", 1, bytes_at(&odd), bytes_length(&odd)), PL_OK);
    assert_int_equal(rsa_public_verify(shared, "x", 1, bytes_at(&made), n), PL_OK);
    assert_int_equal(rsa_public_verify(shared, "x", 1, bytes_at(&made), n - 2), PL_EPROTO);
    assert_int_equal(rsa_public_verify(shared, "x", 1, bytes_at(&made), n - 4), PL_EPROTO);
    assert_int_equal(rsa_public_verify(shared, "x", 1, "", 0), PL_EPROTO);
    assert_int_equal(rsa_public_verify(shared, "x", 1, "=", 1), PL_EPROTO);
    EVP_PKEY_free(shared);
    bytes_clear(&made);
    bytes_clear(&odd);
}

/* A rate is valid if it is at least zero. */
static void rates(void **state)
{
    static const struct {
        double rate;
        int rc;
    } cases[] = {
        { 0, PL_OK }, { -0.0, PL_OK }, { INFINITY, PL_OK }, { -1, PL_EPROTO }, { NAN, PL_EPROTO }
    };
    struct validators v = { .key = &key };
    struct progress_record p = { .peer = { 34, { 0x12, 0x20 } }, .time = 1 };
    struct dht_id id;
    assert_int_equal(validators_add_run(&v, "run"), PL_OK);
    dht_id_of_text(&id, "run_progress");
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        struct bytes subkey = { 0 }, value = { 0 }, made = { 0 };
        struct record r = { .key = id.bytes, .key_n = DHT_ID_BYTES, .expiration = 1 };
        p.samples_per_second = cases[i].rate;
        record_own_subkey(&subkey, &key);
        progress_write(&value, &p);
        r.subkey = bytes_at(&subkey);
        r.subkey_n = bytes_length(&subkey);
        r.value = bytes_at(&value);
        r.n = bytes_length(&value);
        assert_int_equal(record_sign(&made, &v, &r), PL_OK);
        r.value = bytes_at(&made);
        r.n = bytes_length(&made);
        assert_int_equal(record_check(&v, &r, NULL), cases[i].rc);
        bytes_clear(&subkey);
        bytes_clear(&value);
        bytes_clear(&made);
    }
}

/* --- what a record may be --------------------------------------------------------------------- */

/* A signed progress record of the run or of a part of it, with any text in its owner's tag, and anything around the tag. */
static int check_owner(size_t level, const char *before, const struct bytes *text,
                       const char *after)
{
    struct validators v = guarded;
    struct progress_record p = { .peer = { 34, { 0x12, 0x20 } }, .time = 1 };
    struct bytes tag = { 0 }, subkey = { 0 }, value = { 0 }, made = { 0 };
    struct dht_id id, owner;
    struct record r;
    int rc;
    v.key = &key;
    v.count = 0;
    assert_int_equal(validators_add_run(&v, "run"), PL_OK);
    record_own_subkey(&subkey, &key);
    dht_id_of(&owner, bytes_at(&subkey), bytes_length(&subkey));
    bytes_clear(&subkey);
    record_part_key(&id, "run", &owner, level);
    bytes_add(&tag, before, strlen(before));
    bytes_add(&tag, "[owner:", 7);
    bytes_add(&tag, bytes_at(text), bytes_length(text));
    bytes_add(&tag, "]", 1);
    bytes_add(&tag, after, strlen(after));
    mp_bin(&subkey, bytes_at(&tag), bytes_length(&tag));
    progress_write(&value, &p);
    r = (struct record){ .key = id.bytes,
                         .key_n = DHT_ID_BYTES,
                         .subkey = bytes_at(&subkey),
                         .subkey_n = bytes_length(&subkey),
                         .value = bytes_at(&value),
                         .n = bytes_length(&value),
                         .expiration = 60 };
    bytes_add(&made, r.value, r.n);
    bytes_add(&made, "[signature:", 11);
    {
        struct bytes message = { 0 };
        record_message(&message, &r);
        assert_int_equal(rsa_key_sign(&made, &key, bytes_at(&message), bytes_length(&message)),
                         PL_OK);
        bytes_clear(&message);
    }
    bytes_add(&made, "]", 1);
    r.value = bytes_at(&made);
    r.n = bytes_length(&made);
    rc = record_check(&v, &r, NULL);
    bytes_clear(&tag);
    bytes_clear(&subkey);
    bytes_clear(&value);
    bytes_clear(&made);
    return rc;
}

/* One key has one record in the progress dictionary: other texts of the key, and more in the subkey
 * than the tag, would each be another one. */
static void one_record_an_owner(void **state)
{
    struct bytes text = { 0 };
    bytes_add(&text, bytes_at(&key.text), bytes_length(&key.text));
    bytes_add(&text, " me", 3);
    for (size_t level = 0; level < RECORD_PART_LEVELS; level++) {
        assert_int_equal(check_owner(level, "", &key.text, ""), PL_OK);
        assert_int_equal(check_owner(level, "1", &key.text, ""), PL_EPROTO);
        assert_int_equal(check_owner(level, "", &key.text, "1"), PL_EPROTO);
        assert_int_equal(check_owner(level, "", &text, ""), PL_EPROTO);
    }
    bytes_clear(&text);
}

/* A record with an owner, 16 KiB at most; what is longer is refused before its tags are read. */
static void signed_records_are_short(void **state)
{
    static const struct validators signs = { .key = &key };
    static const struct validators plain = { 0 };
    static uint8_t value[1 << 14];
    for (int over = 0; over <= 1; over++) {
        struct bytes subkey = { 0 }, made = { 0 };
        struct record r = { .key = (const uint8_t *)"k", .key_n = 1, .value = value, .n = 1000 };
        size_t signature_n;
        record_own_subkey(&subkey, &key);
        r.subkey = bytes_at(&subkey);
        r.subkey_n = bytes_length(&subkey);
        record_sign(&made, &signs, &r);
        signature_n = bytes_length(&made) - r.n;
        bytes_clear(&made);
        r.n = sizeof value - signature_n + (size_t)over;
        assert_int_equal(record_sign(&made, &signs, &r), PL_OK);
        r.value = bytes_at(&made);
        r.n = bytes_length(&made);
        assert_int_equal(record_check(&plain, &r, NULL), over ? PL_EPROTO : PL_OK);
        bytes_clear(&subkey);
        bytes_clear(&made);
    }
}

/* The table in validate.h. */
static void lives(void **state)
{
    static const char id38[] = "\xc4\x26\x00\x24\x08\x01\x12\x20"
                               "0123456789abcdef0123456789abcdef";
    static const struct {
        const char *key, *subkey, *value;
        double most;
    } cases[] = { { "run_progress", "[owner:a]", "", 60 }, { "run_metrics", "[owner:a]", "", 3600 },
                  { "run_report", "[owner:a]", "", 3600 }, { "other", "[owner:a]", "", 3600 },
                  { "other", id38, "\xc3", 3600 },         { "other", id38, "\xc2", 3600 },
                  { "other", id38, "\x01", 120 },          { "other", "\xc0", "x", 3600 } };
    const double now = 1e9, slack = RECORD_CLOCK_SLACK;
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        size_t n = cases[i].subkey == id38 ? sizeof id38 - 1 : strlen(cases[i].subkey);
        struct dht_id key_id;
        struct record r = { .key = key_id.bytes,
                            .key_n = DHT_ID_BYTES,
                            .subkey = (const uint8_t *)cases[i].subkey,
                            .subkey_n = n,
                            .value = (const uint8_t *)cases[i].value,
                            .n = strlen(cases[i].value) };
        dht_id_of_text(&key_id, cases[i].key);
        r.expiration = now + cases[i].most + slack;
        assert_int_equal(record_check_life(&guarded, &r, now), PL_OK);
        r.expiration += 1;
        assert_int_equal(record_check_life(&guarded, &r, now), PL_EPROTO);
        r.expiration = INFINITY;
        assert_int_equal(record_check_life(&guarded, &r, now), PL_EPROTO);
        r.expiration = NAN;
        assert_int_equal(record_check_life(&guarded, &r, now), PL_EPROTO);
    }
}

/* A record that lives too long is refused by a node that shall keep it, and by one that finds
 * it. */
static void long_lives_are_refused(void **state)
{
    const double now = 1000;
    const struct peer_id teller_id = { 34, { 0x12, 0x20 } };
    const struct dht_reporter teller = { .peer = &teller_id, .now = now };
    struct dht_id id, self = { { 1 } };
    dht_id_of_text(&id, "run_progress");
    for (int too_long = 0; too_long <= 1; too_long++) {
        struct dht_dictionary d;
        struct dht_result result;
        struct dht_state node;
        struct bytes packed = { 0 };
        struct dht_record r = { .key = id, .subkey = (const uint8_t *)"", .expiration = now + 9 };
        dht_dictionary_init(&d);
        add_progress(&d, &id, &key, 5, now + (too_long ? 1e6 : 60), 0);
        dht_dictionary_write(&packed, &d);
        dht_result_init(&result);
        assert_int_equal(dht_result_merge(&result, &guarded, &id, &teller, DHT_FOUND_DICTIONARY,
                                          bytes_at(&packed), bytes_length(&packed), now + 1e6),
                         too_long ? PL_EAGAIN : PL_OK);
        assert_int_equal(result.dictionary.count, !too_long);
        dht_result_clear(&result);
        dht_state_init(&node, &self, 0, &guarded);
        r.value = bytes_at(&packed);
        r.n = bytes_length(&packed);
        for (r.in_cache = 0; r.in_cache <= 1; r.in_cache++)
            assert_int_equal(dht_state_store(&node, now, &r), too_long ? PL_EAGAIN : PL_OK);
        assert_int_equal(dht_state_get(&node, now, &id) != NULL, !too_long);
        dht_state_clear(&node);
        dht_dictionary_clear(&d);
        bytes_clear(&packed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tags),
        cmocka_unit_test(strip),
        cmocka_unit_test(keys),
        cmocka_unit_test(one_bad_record),
        cmocka_unit_test(replayed),
        cmocka_unit_test(loose_base64),
        cmocka_unit_test(rates),
        cmocka_unit_test(one_record_an_owner),
        cmocka_unit_test(signed_records_are_short),
        cmocka_unit_test(lives),
        cmocka_unit_test(long_lives_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
