/* dht.c - `potluck dht`: a swarm's records from the command line, as a client of its DHT. */
#include "cmd/doctor/preflight.h"
#include "cmd/cmd.h"
#include "dht_bench.h"
#include "dht_json.h"
#include "cmd/options/join_options.h"
#include "cmd/common/swarm_messages.h"
#include "cmd/common/json_event.h"
#include "data/files/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct dht_options {
    const char *verb, *key, *value, *subkey;
    struct option_list join;
    struct membership membership;
    int latest, owner, json, count;
    double expires_s;
};

/* JSON, otherwise the text itself. */
static int pack(struct bytes *out, const char *text)
{
    json_t *v = pl_json_load(text, strlen(text), JSON_DECODE_ANY, NULL);
    int rc = v                               ? dht_json_write(out, v)
             : pl_json_status() == PL_ENOMEM ? PL_ENOMEM
                                             : mp_text(out, text);
    json_decref(v);
    return rc;
}

/* A value alone, for people. */
static int show(const char *before, const uint8_t *data, size_t n)
{
    json_t *v = dht_json_of(data, n);
    char *text = pl_json_text(v, JSON_ENCODE_ANY);
    int rc = text ? PL_OK : PL_ENOMEM;
    if (text) printf("%s%s\n", before, text);
    free(text);
    json_decref(v);
    return rc;
}

/* --- get -------------------------------------------------------------------------------------- */

static json_t *dictionary_json(const struct dht_dictionary *d)
{
    json_t *items = json_array();
    for (size_t i = 0; i < d->count; i++) {
        const struct dht_item *item = &d->items[i];
        json_array_append_new(items, json_pack("{s:o,s:o,s:f}", "subkey",
                                               dht_json_of(item->subkey, item->subkey_n), "value",
                                               dht_json_of(item->value, item->n), "expiration",
                                               item->expiration));
    }
    return items;
}

static int print_result(const struct dht_options *o, const struct dht_result *r, double now)
{
    int rc = PL_OK;
    pl_json_begin();
    if (o->json && r->type == DHT_FOUND_REGULAR) {
        rc = json_event_print(json_pack("{s:s,s:s,s:o,s:f}", "event", "found", "key", o->key,
                                        "value",
                                        dht_json_of(bytes_at(&r->value), bytes_length(&r->value)),
                                        "expiration", r->expiration));
    } else if (o->json) {
        rc = json_event_print(json_pack("{s:s,s:s,s:o,s:f}", "event", "found", "key", o->key,
                                        "dictionary", dictionary_json(&r->dictionary), "expiration",
                                        r->expiration));
    } else if (r->type == DHT_FOUND_REGULAR) {
        rc = show("", bytes_at(&r->value), bytes_length(&r->value));
    } else {
        for (size_t i = 0; !rc && i < r->dictionary.count; i++) {
            const struct dht_item *item = &r->dictionary.items[i];
            rc = show("", item->subkey, item->subkey_n);
            if (!rc) rc = show("    ", item->value, item->n);
            if (!rc) printf("    expires in %.1f s\n", item->expiration - now);
        }
    }
    return rc;
}

static int get(const struct dht_options *o, struct swarm *s)
{
    struct dht_result r;
    struct dht_id key;
    int rc = dht_id_of_text(&key, o->key);
    if (!rc) rc = swarm_get(s, &r, &key, o->latest);
    if (!rc) {
        rc = print_result(o, &r, swarm_time(s));
        dht_result_clear(&r);
    } else if (rc != PL_ENOMEM && o->json) {
        json_event_print(json_pack("{s:s,s:s}", "event", "absent", "key", o->key));
    }
    if (rc && rc != PL_ENOMEM) command_failed("dht", "no peer has a record '%.200s'", o->key);
    if (rc == PL_ENOMEM) command_failed("dht", "'%.200s': no memory", o->key);
    return rc != PL_OK;
}

/* --- put -------------------------------------------------------------------------------------- */

static const char *refusal(int status)
{
    switch (status) {
    case PL_EAGAIN: return "refused: there is a newer record, or it has expired already";
    case PL_EPROTO: return "not sent: it is not a valid record";
    case PL_EIO: return "no peer answered";
    default: return pl_status_name(status);
    }
}

static int put(const struct dht_options *o, struct swarm *s, const struct rsa_key *key_pair)
{
    struct bytes subkey = { 0 }, value = { 0 };
    struct dht_id key;
    double expiration = swarm_time(s) + o->expires_s;
    int has_subkey = o->subkey || o->owner, rc = dht_id_of_text(&key, o->key);
    if (!rc && o->owner) rc = record_own_subkey(&subkey, key_pair);
    else if (!rc && o->subkey) rc = pack(&subkey, o->subkey);
    if (!rc) rc = pack(&value, o->value);
    if (!rc) rc = swarm_store(s, &key, has_subkey ? &subkey : NULL, &value, expiration);
    if (o->json && rc)
        json_event_print(
            json_pack("{s:s,s:s,s:s}", "event", "refused", "key", o->key, "why", refusal(rc)));
    else if (o->json)
        json_event_print(
            json_pack("{s:s,s:s,s:f}", "event", "stored", "key", o->key, "expiration", expiration));
    if (rc) command_failed("dht", "'%.200s': %s", o->key, refusal(rc));
    bytes_clear(&subkey);
    bytes_clear(&value);
    return rc != 0;
}

/* --- ping ------------------------------------------------------------------------------------- */

static int ping_one(const struct dht_options *o, struct swarm *s, const char *address)
{
    struct multiaddr a;
    struct multiaddr_target target;
    struct pl_err err;
    struct dht_pong pong;
    char peer[PEER_ID_TEXT_MAX];
    int rc = multiaddr_from_text(&a, address, &err);
    if (!rc && (multiaddr_target(&target, &a) || !target.peer.length))
        rc = pl_fail(&err, PL_EUSE, "no /p2p/ID at its end");
    if (!rc) rc = swarm_ping(s, &pong, &err, &target.peer);
    if (rc) {
        const struct swarm_options one = { .cmd = "dht", .join = &address, .join_count = 1 };
        if (o->json)
            json_event_print(
                json_pack("{s:s,s:s,s:s}", "event", "failed", "address", address, "why", err.text));
        if (rc != PL_EUSE) preflight_explain(s, &one, &err);
        command_failed("dht", "%.200s: %s", address, err.text);
        return 1;
    }
    peer_id_text(peer, &target.peer);
    if (o->json)
        json_event_print(
            json_pack("{s:s,s:s,s:f,s:o,s:b}", "event", "pong", "peer", peer, "seconds",
                      pong.seconds, "clock_error",
                      !isfinite(pong.clock_error) ? json_null() : json_real(pong.clock_error),
                      "available", pong.available));
    else if (isnan(pong.clock_error)) printf("%s %.1f ms\n", peer, 1e3 * pong.seconds);
    else
        printf("%s %.1f ms, its clock is %+.3f s from ours\n", peer, 1e3 * pong.seconds,
               pong.clock_error);
    return 0;
}

static int ping(const struct dht_options *o, struct swarm *s)
{
    int failed = 0;
    for (size_t i = 0; i < o->join.count; i++) failed |= ping_one(o, s, o->join.item[i]);
    return failed;
}

/* --- bench ------------------------------------------------------------------------------------ */

/* s stores; a second node reads, which has nothing of it in its cache. */
static int bench(const struct dht_options *o, struct swarm *s, const struct swarm_options *how)
{
    double rates[DHT_BENCH_RATES];
    struct swarm reader;
    struct pl_err err;
    int failed;
    if (swarm_open(&reader, how, &err) || cmd_wait_joined("dht", &reader, &err)) {
        command_failed("dht", "%s", err.text);
        if (reader.loop) swarm_close(&reader);
        return 1;
    }
    failed = dht_bench(s, &reader, rates, o->count);
    swarm_close(&reader);
    for (int i = 0; i < DHT_BENCH_RATES; i++) {
        if (o->json)
            json_event_print(json_pack("{s:s,s:s,s:f}", "event", "rate", "what", dht_bench_names[i],
                                       "per_second", rates[i]));
        else printf("%-18s %8.0f /s\n", dht_bench_names[i], rates[i]);
    }
    if (failed) command_failed("dht", "%d of %d failed", failed, DHT_BENCH_RATES * o->count);
    return failed != 0;
}

/* --- the command ------------------------------------------------------------------------------ */

#define OPTIONS struct dht_options
static const struct option_row rows[] = {
    { "join", "MULTIADDR", NULL, OPT_LIST_CHECKED(join, swarm_check_peer_address),
      "address of a peer of the swarm, with /p2p/ID at its end; may be repeated" },
    { "latest", NULL, NULL, OPT_FLAG(latest),
      "get: ask all of the nearest nodes and take the newest record" },
    { "subkey", "SUBKEY", NULL, OPT_TEXT(subkey), "put: store one entry of the key's dictionary" },
    { "expires", "SECONDS", "60", OPT_SECONDS(expires_s, 0.001, 3600),
      "put: lifetime of the record" },
    { "owner", NULL, NULL, OPT_FLAG(owner),
      "put: sign the record with a new key, whose owner tag becomes the subkey" },
    { "count", "N", "200", OPT_INTEGER(count, 1, 1000000), "bench: records for each rate" },
    { NULL, NULL, NULL, OPT_TABLE(membership, membership_rows), NULL },
    { "json", NULL, NULL, OPT_FLAG(json), "print results as lines of JSON" },
    { 0 },
};

/* A verb, and the words that it takes. */
static int check(struct dht_options *o, int words, char **argv)
{
    static const char *const verbs[] = { "get", "put", "ping", "bench", NULL };
    static const int words_of[] = { 1, 2, 0, 0 };
    const int verb = command_verb("dht", verbs, words ? argv[1] : NULL);
    int wanted;
    if (verb < 0) return verb;
    o->verb = verbs[verb];
    wanted = words_of[verb];
    if (words - 1 < wanted)
        return command_misused("dht", "%s: %s", o->verb,
                               wanted == 1 ? "a key is needed" : "a key and a value are needed");
    if (words - 1 > wanted) return command_misused("dht", OPTIONS_STRAY, argv[2 + wanted]);
    if (wanted > 0) o->key = argv[2];
    if (wanted > 1) o->value = argv[3];
    if (!o->join.count)
        return command_misused("dht", "--join is missing: the address of a peer of the swarm");
    if (!strcmp(o->verb, "bench") && o->membership.authority)
        return command_misused("dht",
                               "bench is for swarms without tokens: it would measure signatures");
    return PL_OK;
}

static int run_dht(int argc, char **argv)
{
    static const char *const anywhere[] = { "/ip4/0.0.0.0/tcp/0" };
    struct dht_options o = { .verb = NULL };
    struct validators validators = { 0 };
    struct rsa_key key = { 0 };
    struct swarm s;
    struct pl_err err;
    int words, status;
    if (options_parse(&command_dht, &o, argc, argv, &words, &status)) return status;
    if (check(&o, words, argv)) return 2;
    status = 1;
    if (o.owner && rsa_key_make(&key, &err)) return command_failed("dht", "--owner: %s", err.text);
    if (o.owner) validators.key = &key;
    struct swarm_options swarm = {
        .cmd = "dht", .join = o.join.item, .join_count = o.join.count, .validators = &validators
    };
    if (!strcmp(o.verb, "bench")) { /* as a node among nodes */
        swarm.listen = anywhere;
        swarm.listen_count = 1;
    }
    if (cmd_membership_open(&o.membership, &swarm.auth, &err) || swarm_open(&s, &swarm, &err)) {
        command_failed("dht", "%s", err.text);
        membership_close(&o.membership);
        rsa_key_clear(&key);
        return 1;
    }
    if (cmd_wait_joined("dht", &s, &err) && strcmp(o.verb, "ping")) {
        preflight_explain(&s, &swarm, &err);
        command_failed("dht", "%s", err.text);
    } else if (!strcmp(o.verb, "get")) status = get(&o, &s);
    else if (!strcmp(o.verb, "put")) status = put(&o, &s, &key);
    else if (!strcmp(o.verb, "bench")) status = bench(&o, &s, &swarm);
    else status = ping(&o, &s);
    swarm_close(&s);
    membership_close(&o.membership);
    rsa_key_clear(&key);
    return status;
}

const struct command command_dht = {
    .name = "dht",
    .summary = "read and write records of a swarm's DHT",
    .synopsis =
        "get KEY       --join MULTIADDR ... [--latest] [--json]\n"
        "put KEY VALUE --join MULTIADDR ... [--subkey SUBKEY] [--expires SECONDS] [--json]\n"
        "ping          --join MULTIADDR ... [--json]\n"
        "bench         --join MULTIADDR ... [--count N] [--json]",
    .about =
        "Reads (get) and writes (put) records of a swarm, contacts each of the given peers "
        "(ping), or measures how many records per second the swarm stores and finds (bench). Keys "
        "are text. Values and subkeys are JSON, or text if they are not valid JSON; {\"bytes\": "
        "\"00ff\"} stands for bytes and {\"tuple\": [...]} for a tuple.",
    .rows = rows,
    .notes = "Exit status 1: no record was found, it was refused, or no peer was reached.",
    .run = run_dht,
};
