/* dht.c - the DHT's part of a walk: calls, storage rules, records with owners. Everything is stored
 * under random keys and expires within seconds. */
#include "dht_walk.h"
#include "net/hivemind/swarm/swarm.h"
#include "net/hivemind/records/dht_dictionary.h"
#include "net/hivemind/messages/msgpack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIVES 20.0   /* s: life of the records that we store */
#define BRIEFLY 1.5  /* s: life of records that the walk expects to expire */
#define LARGE 600000 /* bytes: more than twice a stream's window, each way */

/* --- calls ------------------------------------------------------------------------------------ */

void walk_sign(struct walk *w, struct bytes *out, uint8_t nonce[AUTH_NONCE],
               const struct bytes *plain)
{
    auth_sign_request(out, nonce, w->auth, swarm_time(w->swarm), bytes_at(plain),
                      bytes_length(plain));
}

/* A call's message as the swarm wants it, and back. */
static void ask(struct walk *w, enum dht_call which, const struct bytes *request, struct reply *s)
{
    const char *name = dht_call_name(which);
    struct bytes out = { 0 };
    uint8_t nonce[AUTH_NONCE];
    const uint8_t *plain;
    size_t n;
    struct pl_err err = { "" };
    if (!w->auth) {
        talk_unary(&w->talk, name, bytes_at(request), bytes_length(request), s);
        return;
    }
    walk_sign(w, &out, nonce, request);
    talk_unary(&w->talk, name, bytes_at(&out), bytes_length(&out), s);
    bytes_clear(&out);
    if (s->status) return;
    s->status = auth_check_response(&plain, &n, w->auth, nonce, swarm_time(w->swarm),
                                    bytes_at(&s->bytes), bytes_length(&s->bytes), &err);
    if (s->status) {
        snprintf(s->why, sizeof s->why, "%.250s", err.text);
        return;
    }
    bytes_add(&out, plain, n);
    bytes_clear(&s->bytes);
    s->bytes = out;
}

int walk_dht_call(struct walk *w, enum dht_call which, const struct bytes *request, size_t count,
                  struct dht_answer *a, struct reply *s)
{
    struct pl_err err = { "" };
    int rc;
    memset(a, 0, sizeof *a);
    ask(w, which, request, s);
    if (s->status) return s->status;
    rc = dht_read_answer(a, which, count, bytes_at(&s->bytes), bytes_length(&s->bytes), &err);
    if (rc) memcpy(s->why, err.text, sizeof s->why), s->why[sizeof s->why - 1] = 0;
    return rc;
}

/* 1 accepted, 0 refused, negative: no answer. */
static int store(struct walk *w, const struct dht_record *r)
{
    struct bytes request = { 0 };
    struct dht_answer a;
    struct reply s;
    int rc = dht_write_store(&request, NULL, r, 1);
    if (!rc) {
        rc = walk_dht_call(w, DHT_STORE, &request, 1, &a, &s);
        rc = rc ? rc : a.ok[0] != 0;
        dht_answer_clear(&a);
        reply_clear(&s);
    }
    bytes_clear(&request);
    return rc;
}

static const char *verdict(int taken)
{
    return taken == 1 ? "it was taken" : taken == 0 ? "it was refused" : "no answer";
}

/* The peer's own record: its type, expiration and bytes. */
struct seen {
    int rc;
    enum dht_found_type type;
    double expiration;
    struct bytes value;
    struct reply reply;
};

static void find(struct walk *w, const struct dht_id *key, struct seen *v)
{
    struct bytes request = { 0 };
    struct dht_answer a;
    memset(v, 0, sizeof *v);
    dht_write_find(&request, NULL, key, 1);
    v->rc = walk_dht_call(w, DHT_FIND, &request, 1, &a, &v->reply);
    if (!v->rc) {
        v->type = a.found[0].type;
        v->expiration = a.found[0].expiration;
        bytes_add(&v->value, a.found[0].value, a.found[0].n);
    }
    dht_answer_clear(&a);
    bytes_clear(&request);
}

static void seen_clear(struct seen *v)
{
    bytes_clear(&v->value);
    reply_clear(&v->reply);
}

/* --- 1.5: the storage rules ------------------------------------------------------------------- */

struct text {
    uint8_t at[64];
    size_t n;
};

static struct text packed(const char *word)
{
    struct bytes b = { 0 };
    struct text t = { .n = 0 };
    mp_text(&b, word);
    t.n = bytes_length(&b);
    memcpy(t.at, bytes_at(&b), t.n);
    bytes_clear(&b);
    return t;
}

static int put(struct walk *w, const struct dht_id *key, const char *subkey, const char *value,
               double expiration, int in_cache)
{
    struct text s = subkey ? packed(subkey) : (struct text){ { 0xc0 }, 1 }, v = packed(value);
    struct dht_record r = { .key = *key,
                            .subkey = s.at,
                            .subkey_n = s.n,
                            .value = v.at,
                            .n = v.n,
                            .expiration = expiration,
                            .in_cache = in_cache };
    return store(w, &r);
}

static int holds(struct walk *w, const struct dht_id *key, const char *value, double expiration)
{
    struct text v = packed(value);
    struct seen seen;
    int good;
    find(w, key, &seen);
    good = !seen.rc && seen.type == DHT_FOUND_REGULAR && seen.expiration == expiration &&
           bytes_length(&seen.value) == v.n && !memcmp(bytes_at(&seen.value), v.at, v.n);
    seen_clear(&seen);
    return good;
}

/* The subkey's value in the dictionary at the key; the key's own expiration in *whole. */
static int has_entry(struct walk *w, const struct dht_id *key, const char *subkey,
                     const char *value, double *whole)
{
    struct text s = packed(subkey), v = packed(value);
    struct dht_dictionary d;
    const struct dht_item *item;
    struct seen seen;
    int good = 0;
    find(w, key, &seen);
    if (!seen.rc && seen.type == DHT_FOUND_DICTIONARY &&
        !dht_dictionary_read(&d, bytes_at(&seen.value), bytes_length(&seen.value), NULL)) {
        item = dht_dictionary_find(&d, s.at, s.n);
        good = item && item->n == v.n && !memcmp(item->value, v.at, v.n);
        dht_dictionary_clear(&d);
    }
    if (whole) *whole = seen.expiration;
    seen_clear(&seen);
    return good;
}

static void regular(struct walk *w)
{
    struct dht_id key, brief, cached;
    double t = swarm_time(w->swarm) + LIVES, soon, life = BRIEFLY;
    int kept;
    if (dht_id_random(&key) || dht_id_random(&brief)) return;
    walk_clause(w, "hivemind 1.5", "a value is stored and found as it was sent",
                put(w, &key, NULL, "one", t, 0) == 1 && holds(w, &key, "one", t),
                "refused, or other bytes, or another expiration");
    walk_clause(w, "hivemind 1.5", "an equal expiration is refused: what is there stays",
                put(w, &key, NULL, "two", t, 0) == 0 && holds(w, &key, "one", t), "it was taken");
    walk_clause(w, "hivemind 1.5", "an earlier expiration is refused",
                put(w, &key, NULL, "two", t - 5, 0) == 0 && holds(w, &key, "one", t),
                "it was taken");
    walk_clause(w, "hivemind 1.5", "a later expiration replaces",
                put(w, &key, NULL, "two", t + 1, 0) == 1 && holds(w, &key, "two", t + 1),
                "it was not taken");
    walk_clause(w, "hivemind 1.5", "what has expired is refused",
                put(w, &brief, NULL, "late", swarm_time(w->swarm) - 1, 0) == 0, "it was taken");
    if (dht_id_random(&cached)) return;
    walk_clause(w, "hivemind 1.3", "in_cache: found like any other",
                put(w, &cached, NULL, "cached", t, 1) == 1 && holds(w, &cached, "cached", t),
                "refused, or not found");
    do { /* longer where it has expired on its way, on a busy machine */
        soon = swarm_time(w->swarm) + life;
        life *= 4;
    } while (!(kept = put(w, &brief, NULL, "cached", soon, 1) == 1) && life < 100);
    /* A refused store at `soon`: the kept record must live on. */
    if (dht_id_random(&key)) return;
    put(w, &key, NULL, "kept", t, 0);
    put(w, &key, NULL, "older", swarm_time(w->swarm) + BRIEFLY, 0);
    talk_sleep(fmax(BRIEFLY, soon - swarm_time(w->swarm)) + 0.5);
    walk_clause(w, "hivemind 1.5", "an expired record is gone",
                kept && !holds(w, &brief, "cached", soon), "it is still there, or was never taken");
    if (holds(w, &key, "kept", t))
        walk_clause(w, "hivemind 12", "a refused store leaves the kept value's time alone", 1, "%s",
                    "");
    else
        walk_skip(w, "hivemind 12", "a refused store leaves the kept value's time alone",
                  "a known flaw of hivemind 1.1.12, which this peer has");
}

static void dictionaries(struct walk *w)
{
    struct dht_id key, mixed;
    double t = swarm_time(w->swarm) + LIVES, whole = 0;
    if (dht_id_random(&key) || dht_id_random(&mixed)) return;
    walk_clause(w, "hivemind 1.5", "a subkey makes a dictionary",
                put(w, &key, "a", "one", t, 0) == 1 && has_entry(w, &key, "a", "one", &whole) &&
                    whole == t,
                "refused, not found, or not as a dictionary");
    walk_clause(w, "hivemind 1.5",
                "a second subkey is kept with the first, and the key lives as long as the longest",
                put(w, &key, "b", "two", t + 2, 0) == 1 && has_entry(w, &key, "a", "one", NULL) &&
                    has_entry(w, &key, "b", "two", &whole) && whole == t + 2,
                "one of them is missing, or the time is another");
    walk_clause(w, "hivemind 1.5", "a subkey's earlier expiration is refused, a later one replaces",
                put(w, &key, "a", "old", t - 1, 0) == 0 &&
                    put(w, &key, "a", "new", t + 1, 0) == 1 && has_entry(w, &key, "a", "new", NULL),
                "not so");
    walk_clause(w, "hivemind 1.5", "a value that expires later destroys a dictionary",
                put(w, &key, NULL, "all", t + 3, 0) == 1 && holds(w, &key, "all", t + 3),
                "it did not");
    put(w, &mixed, NULL, "value", t, 0);
    walk_clause(w, "hivemind 1.5", "a subkey that expires earlier than a value is refused",
                put(w, &mixed, "a", "one", t - 1, 0) == 0 && holds(w, &mixed, "value", t),
                "it was taken");
    walk_clause(w, "hivemind 1.5", "one that expires later replaces the value",
                put(w, &mixed, "a", "one", t + 1, 0) == 1 && has_entry(w, &mixed, "a", "one", NULL),
                "it was not taken");
}

static void whole_dictionary(struct walk *w)
{
    struct text a = packed("a"), b = packed("b"), one = packed("one"), two = packed("two");
    struct dht_dictionary d;
    struct bytes value = { 0 };
    struct dht_record r = { .subkey = (const uint8_t *)"", .subkey_n = 0 };
    double t = swarm_time(w->swarm);
    dht_dictionary_init(&d);
    if (dht_id_random(&r.key)) return;
    dht_dictionary_store(&d, t, a.at, a.n, one.at, one.n, t + LIVES);
    dht_dictionary_store(&d, t, b.at, b.n, two.at, two.n, t + LIVES + 1);
    dht_dictionary_write(&value, &d);
    r.value = bytes_at(&value);
    r.n = bytes_length(&value);
    r.expiration = t + LIVES + 1;
    walk_clause(w, "hivemind 1.3", "an empty subkey: a whole dictionary, entry by entry",
                store(w, &r) == 1 && has_entry(w, &r.key, "a", "one", NULL) &&
                    has_entry(w, &r.key, "b", "two", NULL),
                "refused, or entries are missing");
    bytes_clear(&value);
    dht_dictionary_clear(&d);
}

static void large(struct walk *w)
{
    struct bytes value = { 0 };
    struct dht_record r = { .subkey = dht_no_subkey,
                            .subkey_n = 1,
                            .expiration = swarm_time(w->swarm) + LIVES };
    struct seen seen;
    uint8_t *body;
    if (dht_id_random(&r.key)) return;
    bytes_u8(&value, 0xc6); /* msgpack: bin32 */
    bytes_be32(&value, LARGE);
    if (!(body = bytes_reserve(&value, LARGE))) return;
    for (size_t i = 0; i < LARGE; i++) body[i] = (uint8_t)(i * 2654435761u >> 24);
    value.end += LARGE;
    r.value = bytes_at(&value);
    r.n = bytes_length(&value);
    if (walk_clause(w, "wire 8", "a request of more than two windows passes", store(w, &r) == 1,
                    "no answer, or refused")) {
        find(w, &r.key, &seen);
        walk_clause(w, "wire 8", "and so does its answer",
                    !seen.rc && bytes_length(&seen.value) == r.n &&
                        !memcmp(bytes_at(&seen.value), r.value, r.n),
                    "%s", seen.reply.why[0] ? seen.reply.why : "other bytes");
        seen_clear(&seen);
    }
    bytes_clear(&value);
}

/* A StoreRequest whose lists do not belong together: two keys, nothing else. */
static void malformed(struct walk *w)
{
    struct bytes request = { 0 };
    struct dht_id key;
    struct reply s;
    if (dht_id_random(&key)) return;
    for (int i = 0; i < 2; i++) {
        bytes_u8(&request, 2 << 3 | 2); /* keys */
        bytes_u8(&request, DHT_ID_BYTES);
        bytes_add(&request, key.bytes, DHT_ID_BYTES);
    }
    ask(w, DHT_STORE, &request, &s);
    walk_clause(w, "hivemind 1.3", "lists of different lengths: an error in reply",
                s.end == TALK_FAILED, "%s",
                s.end == TALK_LATE ? s.why : "it was answered as if it were right");
    reply_clear(&s);
    bytes_clear(&request);
}

/* --- 2: records with an owner ----------------------------------------------------------------- */

static int put_record(struct walk *w, const struct record *r, const struct dht_id *key,
                      const struct bytes *value)
{
    struct dht_record d = { .key = *key,
                            .subkey = r->subkey,
                            .subkey_n = r->subkey_n,
                            .value = bytes_at(value),
                            .n = bytes_length(value),
                            .expiration = r->expiration };
    return store(w, &d);
}

static void owners(struct walk *w)
{
    struct rsa_key mine = { 0 };
    struct validators v = { .key = &mine };
    struct bytes subkey = { 0 }, value = { 0 };
    struct text plain = packed("mine");
    struct dht_id key;
    struct record r = { .value = plain.at,
                        .n = plain.n,
                        .expiration = swarm_time(w->swarm) + LIVES };
    struct pl_err err;
    int taken;
    if (dht_id_random(&key) || rsa_key_make(&mine, &err)) return;
    record_own_subkey(&subkey, &mine);
    r.key = key.bytes;
    r.key_n = DHT_ID_BYTES;
    r.subkey = bytes_at(&subkey);
    r.subkey_n = bytes_length(&subkey);
    bytes_add(&value, plain.at, plain.n);
    taken = put_record(w, &r, &key, &value);
    bytes_clear(&value);
    if (taken == 1) {
        walk_skip(w, "hivemind 2.1", "records with an owner need its signature",
                  "no validators here: it keeps anything, as initial peers may");
    } else {
        walk_clause(w, "hivemind 2.1", "a record with an owner and no signature is refused",
                    taken == 0, "%s", verdict(taken));
        record_sign(&value, &v, &r);
        r.expiration += 1; /* another time than was signed */
        taken = put_record(w, &r, &key, &value);
        walk_clause(w, "hivemind 2.1", "a signature over another expiration is refused", taken == 0,
                    "%s", verdict(taken));
        r.expiration -= 1;
        taken = put_record(w, &r, &key, &value);
        walk_clause(w, "hivemind 2.1", "the owner's signature is accepted", taken == 1, "%s",
                    verdict(taken));
        if (bytes_length(&value) > 80) value.data[value.end - 60] ^= 1;
        r.expiration += 2;
        taken = put_record(w, &r, &key, &value);
        walk_clause(w, "hivemind 2.1", "a tampered signature is refused", taken == 0, "%s",
                    verdict(taken));
    }
    bytes_clear(&value);
    bytes_clear(&subkey);
    rsa_key_clear(&mine);
}

void walk_dht(struct walk *w)
{
    struct dht_answer a;
    struct reply s;
    walk_dht_pings(w);
    regular(w);
    dictionaries(w);
    whole_dictionary(w);
    large(w);
    malformed(w);
    owners(w);
    walk_clause(w, "hivemind 1.3", "after all this it answers as before",
                !walk_dht_ping(w, NULL, &a, &s), "%s", s.why);
    dht_answer_clear(&a);
    reply_clear(&s);
}
