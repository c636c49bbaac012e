/* golden_protocol_records.c - recorded signatures, schemas, tokens, progress: what is accepted,
 * what refused, and what follows from all records together. */
#include "golden_protocol.h"
#include "net/hivemind/moderation/auth.h"
#include "net/hivemind/kademlia/dht_message.h"
#include "net/hivemind/progress/metrics.h"
#include "net/hivemind/progress/progress.h"
#include "net/hivemind/records/validate.h"

#include <math.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- records ---------------------------------------------------------------------------------- */

static int read_key(struct golden *g, const json_t *root, const char *member, struct rsa_key *key)
{
    struct bytes der = { 0 };
    struct pl_err err;
    int rc = -1;
    memset(key, 0, sizeof *key);
    if (wire_member(g, root, member, &der)) {
        rc = rsa_key_parse(key, bytes_at(&der), bytes_length(&der), &err);
        golden_check(g, member, !rc, "%s", err.text);
    }
    bytes_clear(&der);
    return !rc;
}

static int is_text(const struct bytes *b, const char *text)
{
    return bytes_length(b) == strlen(text) && !memcmp(bytes_at(b), text, strlen(text));
}

/* The parts stay in `parts` until the caller clears them. */
static int read_record(struct golden *g, const json_t *c, struct record *r, struct bytes parts[3])
{
    memset(parts, 0, 3 * sizeof *parts);
    if (!wire_member(g, c, "key", &parts[0]) || !wire_member(g, c, "subkey", &parts[1]) ||
        !wire_member(g, c, "value", &parts[2]))
        return 0;
    r->key = bytes_at(&parts[0]);
    r->key_n = bytes_length(&parts[0]);
    r->subkey = bytes_at(&parts[1]);
    r->subkey_n = bytes_length(&parts[1]);
    r->value = bytes_at(&parts[2]);
    r->n = bytes_length(&parts[2]);
    r->expiration = protocol_real(json_object_get(c, "expiration_time"));
    return 1;
}

static void check_verdict(struct golden *g, const json_t *c, const struct validators *v,
                          const struct record *r)
{
    struct pl_err err = { "accepted" };
    const char *note = protocol_text(c, "note");
    int rc = record_check(v, r, &err);
    golden_check(g, note, !rc == json_is_true(json_object_get(c, "valid")), "%s", err.text);
}

/* The start of a signature: with another one after it, hivemind reads both as one, too. */
static int has_signature(const struct bytes *value)
{
    static const char tag[] = "[signature:";
    return memmem(bytes_at(value), bytes_length(value), tag, sizeof tag - 1) != NULL;
}

/* Signs the stripped value anew: it must verify, and be refused with one bit changed. */
static void sign_anew(struct golden *g, const struct validators *v, const struct record *r,
                      const struct bytes *stripped)
{
    struct record mine = *r;
    struct bytes value = { 0 };
    mine.value = bytes_at(stripped);
    mine.n = bytes_length(stripped);
    record_sign(&value, v, &mine);
    if (bytes_length(&value) > mine.n) {
        mine.value = bytes_at(&value);
        mine.n = bytes_length(&value);
        golden_check(g, "signed anew", !record_check(v, &mine, NULL), "does not verify");
        value.data[value.begin] ^= 1;
        golden_check(g, "altered", record_check(v, &mine, NULL), "verifies");
    }
    bytes_clear(&value);
}

void protocol_signatures(struct golden *g, const json_t *root)
{
    static const char *const tags[2][3] = { { "private_key_pkcs1_der", "owner_tag",
                                              "public_key_openssh" },
                                            { "private_key2_pkcs1_der", "owner_tag2", "" } };
    const json_t *example = json_object_get(root, "signed_bytes_example");
    struct validators v = { 0 };
    struct rsa_key keys[2];
    struct bytes parts[3], out = { 0 }, want = { 0 };
    struct record r;
    size_t i;
    json_t *c;
    for (i = 0; i < 2; i++) {
        char tag[RSA_TEXT_MAX];
        if (!read_key(g, root, tags[i][0], &keys[i])) continue;
        snprintf(tag, sizeof tag, "[owner:%.*s]", (int)bytes_length(&keys[i].text),
                 (const char *)bytes_at(&keys[i].text));
        golden_check(g, tags[i][1], !strcmp(tag, protocol_text(root, tags[i][1])), "another tag");
        if (tags[i][2][0])
            golden_check(g, tags[i][2], is_text(&keys[i].text, protocol_text(root, tags[i][2])),
                         "another text");
    }
    if (read_record(g, example, &r, parts) && wire_member(g, example, "message_to_sign", &want)) {
        record_message(&out, &r);
        wire_same(g, "message to sign", &out, &want);
    }
    for (i = 0; i < 3; i++) bytes_clear(&parts[i]);
    bytes_clear(&want);
    if (keys[0].key) v.key = &keys[0];
    json_array_foreach(json_object_get(root, "records"), i, c)
    {
        if (read_record(g, c, &r, parts) && wire_member(g, c, "stripped_value", &want)) {
            bytes_clear(&out);
            record_strip(&out, r.value, r.n);
            wire_same(g, "stripped value", &out, &want);
            check_verdict(g, c, &v, &r);
            if (!has_signature(&out)) sign_anew(g, &v, &r, &out);
        }
        bytes_clear(&want);
        for (int k = 0; k < 3; k++) bytes_clear(&parts[k]);
    }
    bytes_clear(&out);
    rsa_key_clear(&keys[0]);
    rsa_key_clear(&keys[1]);
}

void protocol_schema(struct golden *g, const json_t *root)
{
    struct validators v = { 0 };
    size_t i;
    json_t *c;
    if (validators_add_run(&v, protocol_text(root, "prefix"))) {
        golden_fail(g, "prefix", "too long");
        return;
    }
    json_array_foreach(json_object_get(root, "records"), i, c)
    {
        struct bytes parts[3], value = { 0 }, stripped = { 0 };
        struct record r;
        struct dht_id id;
        if (read_record(g, c, &r, parts)) {
            dht_id_of_text(&id, protocol_text(c, "raw_key"));
            golden_check(g, "key", r.key_n == DHT_ID_BYTES && !memcmp(r.key, id.bytes, r.key_n),
                         "another id");
            record_strip(&stripped, r.value, r.n);
            if (protocol_value(g, json_object_get(c, "decoded_value"), &value))
                wire_same(g, "value", &value, &stripped);
            check_verdict(g, c, &v, &r);
        }
        for (int k = 0; k < 3; k++) bytes_clear(&parts[k]);
        bytes_clear(&value);
        bytes_clear(&stripped);
    }
}

/* --- tokens ----------------------------------------------------------------------------------- */

static enum dht_call call_of(const char *type)
{
    return !strncmp(type, "Ping", 4) ? DHT_PING : !strncmp(type, "Store", 5) ? DHT_STORE : DHT_FIND;
}

static void check_request(struct golden *g, const json_t *c, struct auth *server, double now)
{
    const char *note = protocol_text(c, "note");
    const json_t *replayed = json_object_get(c, "valid_when_replayed");
    struct bytes raw = { 0 };
    struct pl_err err = { "accepted" };
    struct dht_request request;
    uint8_t nonce[AUTH_NONCE];
    const uint8_t *plain;
    size_t n;
    int rc;
    if (!wire_member(g, c, "hex", &raw)) goto done;
    rc = auth_check_request(&plain, &n, nonce, server, now, bytes_at(&raw), bytes_length(&raw),
                            &err);
    golden_check(g, note, !rc == json_is_true(json_object_get(c, "valid")), "%s", err.text);
    if (!rc) {
        rc = dht_read_request(&request, call_of(protocol_text(c, "type")), plain, n, &err);
        golden_check(g, "the request in it", !rc, "%s", err.text);
        dht_request_clear(&request);
    }
    if (json_is_boolean(replayed)) {
        strcpy(err.text, "accepted");
        rc = auth_check_request(&plain, &n, nonce, server, now, bytes_at(&raw), bytes_length(&raw),
                                &err);
        golden_check(g, "replayed", !rc == json_is_true(replayed), "%s: %s", note, err.text);
    }
done:
    bytes_clear(&raw);
}

static void check_response(struct golden *g, const json_t *c, struct auth *client, double now)
{
    struct bytes raw = { 0 }, nonce = { 0 };
    struct pl_err err = { "accepted" };
    const uint8_t *plain;
    size_t n;
    if (wire_member(g, c, "hex", &raw) && wire_member(g, c, "request_nonce", &nonce) &&
        bytes_length(&nonce) == AUTH_NONCE) {
        int rc = auth_check_response(&plain, &n, client, bytes_at(&nonce), now, bytes_at(&raw),
                                     bytes_length(&raw), &err);
        golden_check(g, protocol_text(c, "note"), !rc == json_is_true(json_object_get(c, "valid")),
                     "%s", err.text);
    }
    bytes_clear(&raw);
    bytes_clear(&nonce);
}

/* A request and an answer of our own, with the recorded keys. */
static void check_exchange(struct golden *g, struct auth *client, struct auth *server, double now)
{
    struct bytes out = { 0 };
    uint8_t nonce[AUTH_NONCE], heard[AUTH_NONCE];
    const uint8_t *plain;
    size_t n;
    struct pl_err err = { "bytes differ" };
    int good = !auth_sign_request(&out, nonce, client, now, "\x18\x01", 2) &&
               !auth_check_request(&plain, &n, heard, server, now, bytes_at(&out),
                                   bytes_length(&out), &err) &&
               n == 2 && !memcmp(plain, "\x18\x01", 2);
    golden_check(g, "our request", good, "%s", err.text);
    bytes_clear(&out);
    good = good && !auth_sign_response(&out, server, heard, "\x28\x01", 2) &&
           !auth_check_response(&plain, &n, client, nonce, now, bytes_at(&out), bytes_length(&out),
                                &err) &&
           n == 2 && !memcmp(plain, "\x28\x01", 2);
    golden_check(g, "our response", good, "%s", err.text);
    bytes_clear(&out);
}

static void check_token(struct golden *g, const json_t *root, EVP_PKEY *authority,
                        const struct rsa_key *secret, struct auth_token *token, double now)
{
    const json_t *want = json_object_get(root, "token");
    struct bytes raw = { 0 }, out = { 0 };
    struct pl_err err = { "" };
    struct auth_token issued;
    if (wire_member(g, want, "hex", &raw) &&
        !auth_token_read(token, bytes_at(&raw), bytes_length(&raw))) {
        golden_check(g, "token's key",
                     is_text(&token->public_key, protocol_text(want, "public_key")), "differs");
        golden_check(g, "token",
                     is_text(&token->username, protocol_text(want, "username")) &&
                         is_text(&token->expiration, protocol_text(want, "expiration_time")) &&
                         is_text(&token->signature, protocol_text(want, "signature")),
                     "fields differ");
        auth_token_write(&out, token);
        wire_same(g, "token is written", &out, &raw);
        bytes_clear(&out);
        auth_token_message(&out, token);
        golden_check(g, "what the authority signs",
                     is_text(&out, protocol_text(want, "bytes_signed_by_the_authority")),
                     "differs");
        golden_check(g, "token is good", !auth_token_check(token, authority, now, &err), "%s",
                     err.text);
    }
    if (!auth_token_issue(&issued, secret, "bob", bytes_at(&token->public_key),
                          bytes_length(&token->public_key), now + 0.5))
        golden_check(g, "our token",
                     !auth_token_check(&issued, authority, now, &err) &&
                         auth_token_check(&issued, authority, now + 1, NULL),
                     "%s", err.text);
    auth_token_clear(&issued);
    bytes_clear(&raw);
    bytes_clear(&out);
}

void protocol_auth(struct golden *g, const json_t *root)
{
    const char *clock = strstr(protocol_text(root, "note"), "now = ");
    const char *authority_text = protocol_text(root, "authority_public_key");
    struct rsa_key authority_key, client_key, server_key;
    struct auth client = { 0 }, server = { 0 };
    EVP_PKEY *authority = NULL;
    double now = clock ? strtod(clock + 6, NULL) : 0;
    size_t i;
    json_t *c;
    int good = read_key(g, root, "authority_private_key_pkcs1_der", &authority_key);
    good = read_key(g, root, "client_private_key_pkcs1_der", &client_key) && good;
    good = read_key(g, root, "server_private_key_pkcs1_der", &server_key) && good;
    if (rsa_public_parse(&authority, authority_text, strlen(authority_text)) || now <= 0) {
        golden_fail(g, "authority", "no such key, or no clock in the note");
        good = 0;
    }
    if (good) {
        golden_check(g, "public keys",
                     is_text(&authority_key.text, authority_text) &&
                         is_text(&client_key.text, protocol_text(root, "client_public_key")) &&
                         is_text(&server_key.text, protocol_text(root, "server_public_key")),
                     "are of others");
        client.key = &client_key;
        server.key = &server_key;
        client.authority = server.authority = authority;
        check_token(g, root, authority, &authority_key, &client.token, now);
        auth_token_issue(&server.token, &authority_key, "server", bytes_at(&server_key.text),
                         bytes_length(&server_key.text), now + 100);
        json_array_foreach(json_object_get(root, "requests"), i, c)
            check_request(g, c, &server, now);
        json_array_foreach(json_object_get(root, "responses"), i, c)
            check_response(g, c, &client, now);
        check_exchange(g, &client, &server, now);
    }
    auth_clear(&client);
    auth_clear(&server);
    EVP_PKEY_free(authority);
    rsa_key_clear(&authority_key);
    rsa_key_clear(&client_key);
    rsa_key_clear(&server_key);
}

/* --- progress --------------------------------------------------------------------------------- */

static int close_to(double got, double want)
{
    return got == want || fabs(got - want) <= 1e-12 * fabs(want);
}

static void read_peer(const json_t *p, struct progress_record *r)
{
    struct bytes id = { 0 };
    memset(r, 0, sizeof *r);
    if (!wire_hex(&id, protocol_text(p, "peer_id")))
        peer_id_parse(&r->peer, bytes_at(&id), bytes_length(&id));
    bytes_clear(&id);
    r->epoch = json_integer_value(json_object_get(p, "epoch"));
    r->samples = json_integer_value(json_object_get(p, "samples_accumulated"));
    r->samples_per_second = protocol_real(json_object_get(p, "samples_per_second"));
    r->time = protocol_real(json_object_get(p, "time"));
    r->client_mode = json_is_true(json_object_get(p, "client_mode"));
}

static void check_view(struct golden *g, const json_t *c, size_t at)
{
    const json_t *peers = json_object_get(c, "peers"), *own = json_object_get(c, "local");
    const json_t *want = json_object_get(c, "result");
    struct progress_record *records = calloc(json_array_size(peers) + 1, sizeof *records);
    struct progress_local mine = { .epoch = golden_int(g, own, "epoch"),
                                   .samples = golden_int(g, own, "samples_accumulated"),
                                   .samples_per_second = golden_real(g, own,
                                                                     "ema_samples_per_second") };
    struct progress_view v;
    size_t i, count = 0;
    json_t *peer;
    char what[64];
    if (!records) return;
    json_array_foreach(peers, i, peer) if (json_is_object(peer)) read_peer(peer, &records[count++]);
    progress_update(&v, records, count, json_array_size(peers) > 0, &mine,
                    golden_real(g, c, "target_batch_size"), golden_real(g, c, "now"));
    snprintf(what, sizeof what, "global progress %zu", at);
    golden_check(g, what,
                 v.epoch == golden_int(g, want, "global_epoch") &&
                     v.samples == golden_int(g, want, "samples_accumulated") &&
                     (long)v.peers == golden_int(g, want, "num_peers") &&
                     (long)v.clients == golden_int(g, want, "num_clients") &&
                     close_to(v.eta, golden_real(g, want, "eta_next_epoch")) &&
                     close_to(v.next_fetch, golden_real(g, want, "next_fetch_time")),
                 "epoch %lld samples %lld peers %zu eta %.17g next %.17g", (long long)v.epoch,
                 (long long)v.samples, v.peers, v.eta, v.next_fetch);
    free(records);
}

static void check_performance(struct golden *g, const json_t *c)
{
    struct performance p;
    size_t i;
    json_t *step;
    performance_init(&p, golden_real(g, c, "alpha"));
    golden_check(g, "performance before the first sample", performance_get(&p) == 1e-20, "differs");
    json_array_foreach(json_object_get(c, "steps"), i, step)
    {
        performance_add(&p, golden_real(g, step, "task_size"), golden_real(g, step, "interval"));
        golden_check(g, "performance",
                     close_to(performance_get(&p), golden_real(g, step, "samples_per_second")) &&
                         close_to(p.mean, golden_real(g, step, "ema_seconds_per_sample")),
                     "%.17g at step %zu", performance_get(&p), i);
    }
}

/* A record's bytes equal the value's, and are read and written the same. */
static void check_record(struct golden *g, const json_t *root, const char *hex, const char *value,
                         int is_progress)
{
    struct bytes raw = { 0 }, out = { 0 };
    struct pl_err err;
    int rc;
    if (wire_member(g, root, hex, &raw) && protocol_value(g, json_object_get(root, value), &out)) {
        struct progress_record p;
        struct metrics_record m;
        wire_same(g, value, &out, &raw);
        bytes_clear(&out);
        rc = is_progress ? progress_read(&p, bytes_at(&raw), bytes_length(&raw), &err)
                         : metrics_read(&m, bytes_at(&raw), bytes_length(&raw), &err);
        golden_check(g, hex, !rc, "%s", err.text);
        if (!rc) {
            if (is_progress) progress_write(&out, &p);
            else metrics_write(&out, &m);
            wire_same(g, "is written", &out, &raw);
        }
    }
    bytes_clear(&raw);
    bytes_clear(&out);
}

void protocol_progress(struct golden *g, const json_t *root)
{
    struct dht_id id, want;
    size_t i;
    json_t *c;
    dht_id_of_text(&id, protocol_text(root, "key"));
    if (protocol_id(g, root, "dht_id", &want))
        golden_check(g, "key", dht_id_equal(&id, &want), "another id");
    if (json_object_get(root, "metrics_key")) {
        const char *key = protocol_text(root, "key"), *metrics = protocol_text(root, "metrics_key");
        size_t n = strlen(key) > 9 ? strlen(key) - 9 : 0; /* without _progress */
        golden_check(g, "metrics_key",
                     !strncmp(key, metrics, n) && !strcmp(key + n, "_progress") &&
                         strlen(metrics) > n && !strcmp(metrics + n, "_metrics"),
                     "differs");
    }
    check_record(g, root, "record_value_hex", "record_value", 1);
    check_record(g, root, "metrics_value_hex", "metrics_value", 0);
    json_array_foreach(json_object_get(root, "global_progress_cases"), i, c) check_view(g, c, i);
    json_array_foreach(json_object_get(root, "performance_ema"), i, c) check_performance(g, c);
}
