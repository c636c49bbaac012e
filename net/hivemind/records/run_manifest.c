/* run_manifest.c - the run's manifest: to JSON, from a stranger's JSON, compared, signed.
 *
 *   a peer that trains    options -> JSON -> signed by its identity -> stored under two keys
 *   a newcomer            value -> signature checked -> JSON checked, field by field -> options
 *   a peer of the run     its own manifest and another one: each field that differs, in a sentence
 *
 * One table, `fields`, serves all three. Whatever a stranger writes is checked against it before it
 * is used: the type, the range, the length, printable characters. */
#include "run_manifest.h"
#include "owner_proof.h"
#include "data/files/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANIFEST_TAG "potluck run manifest:"
#define MANIFEST_VERSION 1

/* The fields of one line each; `model` and `data` are written by hand. Limits of numbers are those
 * of the options of `potluck train`. Integers stay below 2^53, so they are exact as doubles.
 *
 * compared: whether a peer with another value may train with us.
 *
 *   ALWAYS      all peers step from the same mean; with another rate, schedule or optimizer their
 *               parameters would part at the first step
 *   ADDED       the same, and 0 if it is missing: older versions do not write it
 *   WHERE_BOTH  the same, but an empty text means "not stated"
 *   OUTER       the same, where both sides make outer steps by one algorithm
 *   NEVER       each peer may have its own: it changes nobody else's mathematics */
enum kind { TEXT, INTEGER, REAL };
static const struct field {
    const char *key, *shown; /* in JSON, and in sentences */
    enum kind kind;
    size_t at, capacity; /* capacity: of a text, its zero included */
    double least, most;
    enum { NEVER, ALWAYS, ADDED, WHERE_BOTH, OUTER } compared;
} fields[] = {
/* A row knows its member by offset and type, so the loops below need no code for single fields. */
#define AT(member) offsetof(struct run_manifest, member)
#define WORDS(member) TEXT, AT(member), sizeof((struct run_manifest *)0)->member, 0, 0
    { "run", "run", WORDS(run), WHERE_BOTH },
    { "software", "software", WORDS(software), NEVER },
    { "optimizer", "optimizer", WORDS(optimizer), ALWAYS },
    { "lr", "learning rate", REAL, AT(lr), 0, 0, 1e3, ALWAYS },
    { "warmup", "warmup", REAL, AT(warmup), 0, 0, 1, ALWAYS },
    { "token_noise", "token noise", REAL, AT(token_noise), 0, 0, 1, ADDED },
    { "steps", "steps", INTEGER, AT(steps), 0, 1, 1e9, ALWAYS },
    { "target_batch", "target batch", INTEGER, AT(target_batch), 0, 1, 1 << 20, ALWAYS },
    { "compression", "compression", WORDS(compression), ALWAYS },
    { "average_state_every", "average-state-every", INTEGER, AT(average_state_every), 0, 1, 1e6,
      ALWAYS },
    { "algorithm", "algorithm", WORDS(algorithm), ALWAYS },
    /* The outer step, at every inner_steps-th step. [spec outer-steps 2, 3] */
    { "algorithm_settings", "algorithm settings", WORDS(algorithm_settings), OUTER },
    { "inner_steps", "inner steps", INTEGER, AT(inner_steps), 0, 1, 1e6, OUTER },
    { "outer_lr", "outer learning rate", REAL, AT(outer_lr), 0, 0, 1e3, OUTER },
    { "outer_momentum", "outer momentum", REAL, AT(outer_momentum), 0, 0, 1, OUTER },
    /* Peers with other token IDs or image codes would train one model on two languages. */
    { "tokenizer", "tokenizer", WORDS(tokenizer), WHERE_BOTH },
    { "codec", "codec", WORDS(codec), WHERE_BOTH },
    { "seed", "seed", INTEGER, AT(seed), 0, 0, 9e15, NEVER },
#undef WORDS
#undef AT
};

/* A field's place in a manifest, by the table. The row is the same for reading and writing, so
 * const goes here. */
static char *text_of(const struct run_manifest *m, const struct field *f)
{
    return (char *)(uintptr_t)m + f->at;
}
static int64_t *integer_of(const struct run_manifest *m, const struct field *f)
{
    return (int64_t *)(void *)text_of(m, f);
}
static double *real_of(const struct run_manifest *m, const struct field *f)
{
    return (double *)(void *)text_of(m, f);
}

/* A user reads these texts in a terminal: no control characters, none that look alike. */
static int is_plain(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] < ' ' || text[i] > '~') return 0;
    return 1;
}

/* --- JSON ------------------------------------------------------------------------------------- */

/* Jansson takes NULL for a value and fails; the caller asks once, at the end (json.h). */
static json_t *to_json(const struct run_manifest *m)
{
    json_t *root = json_object(), *data = json_array();
    json_object_set_new(root, "potluck_manifest", json_integer(MANIFEST_VERSION));
    for (const struct field *f = fields; f < fields + PL_COUNT(fields); f++)
        json_object_set_new(root, f->key,
                            f->kind == TEXT      ? json_string(text_of(m, f))
                            : f->kind == INTEGER ? json_integer(*integer_of(m, f))
                                                 : json_real(*real_of(m, f)));
    for (size_t i = 0; i < m->data_count; i++) json_array_append_new(data, json_string(m->data[i]));
    json_object_set_new(root, "data", data);
    json_object_set_new(root, "model", pl_dalle_config_to_json(&m->config));
    return root;
}

int manifest_write(char **text, const struct run_manifest *m, struct pl_err *err)
{
    json_t *root;
    *text = NULL;
    /* By the rule of the readers, so that nothing is published that all of them refuse. */
    for (const struct field *f = fields; f < fields + PL_COUNT(fields); f++)
        if (f->kind == TEXT && !is_plain(text_of(m, f), strlen(text_of(m, f))))
            return pl_fail(err, PL_EUSE, "manifest: %s: only printable ASCII can be published",
                           f->shown);
    /* Keys in order and no spaces: the same settings are the same bytes. 15 digits are exact for a
     * decimal that a user has typed: 0.1 stays 0.1. */
    pl_json_begin();
    root = to_json(m);
    *text = pl_json_text(root, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(15));
    json_decref(root);
    if (!*text) return pl_fail(err, PL_ENOMEM, "manifest: no memory");
    if (strlen(*text) <= MANIFEST_BYTES_MAX) return PL_OK;
    free(*text);
    *text = NULL;
    return pl_fail(err, PL_EUSE, "manifest: more than %d bytes", MANIFEST_BYTES_MAX);
}

/* A JSON string may contain a zero; is_plain refuses it, so the copy ends where the text does. */
static int read_text(char *to, size_t capacity, const json_t *j)
{
    size_t n = json_string_length(j);
    if (!json_is_string(j) || n >= capacity || !is_plain(json_string_value(j), n))
        return PL_EFORMAT;
    memcpy(to, json_string_value(j), n + 1);
    return PL_OK;
}

static int read_field(struct run_manifest *m, const struct field *f, const json_t *j,
                      struct pl_err *err)
{
    /* 0 for whatever is not a number; its type is checked below. */
    const double x = json_number_value(j);
    int good = x >= f->least && x <= f->most; /* false for NaN */
    if (!j && f->compared == ADDED) return PL_OK;
    switch (f->kind) {
    case TEXT:
        if (!j && f->compared == OUTER) return PL_OK; /* older manifests have no such settings */
        if (!read_text(text_of(m, f), f->capacity, j)) return PL_OK;
        return pl_fail(err, PL_EFORMAT, "manifest: %s: expected up to %zu printable characters",
                       f->key, f->capacity - 1);
    case INTEGER: good &= json_is_integer(j); break;
    case REAL: good &= json_is_number(j); break;
    }
    /* Other missing fields end here, too: without a value x is 0 and the type is wrong. */
    if (!good)
        return pl_fail(err, PL_EFORMAT, "manifest: %s: expected a number from %g to %g", f->key,
                       f->least, f->most);
    if (f->kind == INTEGER) *integer_of(m, f) = (int64_t)json_integer_value(j);
    else *real_of(m, f) = x;
    return PL_OK;
}

/* A reader opens only these: files that come with potluck, or a server that proves its name. */
static int read_data(struct run_manifest *m, const json_t *list, struct pl_err *err)
{
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n > MANIFEST_DATA_MAX)
        return pl_fail(err, PL_EFORMAT, "manifest: data: expected a list of at most %d addresses",
                       MANIFEST_DATA_MAX);
    for (size_t i = 0; i < n; i++)
        if (read_text(m->data[i], sizeof m->data[i], json_array_get(list, i)) ||
            (strcmp(m->data[i], "demo") && strncmp(m->data[i], "https://", 8)))
            return pl_fail(err, PL_EFORMAT,
                           "manifest: data: expected \"demo\" or https addresses of at most %d "
                           "characters",
                           MANIFEST_URL_MAX);
    m->data_count = n;
    return PL_OK;
}

static int from_json(struct run_manifest *m, const json_t *root, struct pl_err *err)
{
    const json_t *version = json_object_get(root, "potluck_manifest");
    int rc = PL_OK;
    /* The version first: with another one no further field may be understood. */
    if (!json_is_integer(version))
        return pl_fail(err, PL_EFORMAT, "manifest: not a manifest of a run");
    /* A newer version may have fields that this peer would have to obey. */
    if (json_integer_value(version) != MANIFEST_VERSION)
        return pl_fail(err, PL_EFORMAT, "manifest: of another version than %d: update potluck",
                       MANIFEST_VERSION);
    for (const struct field *f = fields; f < fields + PL_COUNT(fields) && !rc; f++)
        rc = read_field(m, f, json_object_get(root, f->key), err);
    if (!rc) rc = read_data(m, json_object_get(root, "data"), err);
    if (!rc)
        rc = pl_dalle_config_from_json(&m->config, json_object_get(root, "model"), 1,
                                       "manifest: model", err);
    if (!rc && !is_plain(m->config.name, strlen(m->config.name)))
        rc = pl_fail(err, PL_EFORMAT, "manifest: model: a name that cannot be printed");
    return rc == PL_ENOMEM || !rc ? rc : PL_EFORMAT;
}

int manifest_read(struct run_manifest *m, const char *text, size_t n, struct pl_err *err)
{
    json_error_t why;
    json_t *root;
    int rc;
    memset(m, 0, sizeof *m);
    /* The length before the parser, which bounds its work. */
    if (n > MANIFEST_BYTES_MAX)
        return pl_fail(err, PL_EFORMAT, "manifest: more than %d bytes", MANIFEST_BYTES_MAX);
    /* Of two values of one key, two readers may take different ones: refused. */
    root = pl_json_load(text, n, JSON_REJECT_DUPLICATES, &why);
    if (!root) return pl_fail(err, pl_json_status(), "manifest: line %d is not JSON", why.line);
    rc = from_json(m, root, err);
    json_decref(root);
    return rc;
}

/* --- two manifests ---------------------------------------------------------------------------- */

/* Appends "steps: 100 here, 1000 in the run"; cut if it does not fit. At most 64 characters of each
 * value, so that one long name does not hide the other differences. */
static void add_difference(struct pl_err *all, const char *name, const char *ours,
                           const char *theirs)
{
    size_t at = strlen(all->text);
    snprintf(all->text + at, sizeof all->text - at, "%s%s: %.64s here, %.64s in the run",
             at ? "; " : "", name, ours, theirs);
}

/* Numbers are compared as they are printed: two that look equal to the user do not differ. */
static void compare_field(struct pl_err *all, const struct run_manifest *ours,
                          const struct run_manifest *theirs, const struct field *f)
{
    char a[32], b[32];
    const char *x = a, *y = b;
    switch (f->kind) {
    case TEXT:
        x = text_of(ours, f);
        y = text_of(theirs, f);
        if (f->compared == WHERE_BOTH && (!*x || !*y)) return;
        break;
    case INTEGER:
        snprintf(a, sizeof a, "%" PRId64, *integer_of(ours, f));
        snprintf(b, sizeof b, "%" PRId64, *integer_of(theirs, f));
        break;
    case REAL:
        snprintf(a, sizeof a, "%.10g", *real_of(ours, f));
        snprintf(b, sizeof b, "%.10g", *real_of(theirs, f));
        break;
    }
    if (strcmp(x, y)) add_difference(all, f->shown, x, y);
}

/* The name does not count: a file may give the same sizes another name. */
static int compare_models(struct pl_err *all, const struct run_manifest *ours,
                          const struct run_manifest *theirs)
{
    json_t *a, *b;
    char x[96], y[96];
    int failed;
    pl_json_begin();
    a = pl_dalle_config_to_json(&ours->config);
    b = pl_dalle_config_to_json(&theirs->config);
    failed = pl_json_failed();
    if (!failed) {
        json_object_del(a, "name"); /* what is left decides the shapes and the mathematics */
        json_object_del(b, "name");
        snprintf(x, sizeof x, "%.31s (%d blocks of width %d)", ours->config.name, ours->config.L,
                 ours->config.D);
        snprintf(y, sizeof y, "%.31s (%d blocks of width %d)", theirs->config.name,
                 theirs->config.L, theirs->config.D);
        if (!json_equal(a, b)) add_difference(all, "model", x, y);
    }
    json_decref(a);
    json_decref(b);
    return failed ? PL_ENOMEM : PL_OK;
}

int manifest_compare(const struct run_manifest *ours, const struct run_manifest *theirs,
                     struct pl_err *err)
{
    /* All differences in one sentence, so that a user corrects them at once. Settings of outer
     * steps count only where both sides make such steps. */
    struct pl_err all = { "" };
    const int outer = strcmp(ours->algorithm, "gradients") &&
                      !strcmp(ours->algorithm, theirs->algorithm);
    if (compare_models(&all, ours, theirs)) return pl_fail(err, PL_ENOMEM, "manifest: no memory");
    for (const struct field *f = fields; f < fields + PL_COUNT(fields); f++)
        if (f->compared != NEVER && (f->compared != OUTER || outer))
            compare_field(&all, ours, theirs, f);
    return *all.text ? pl_fail(err, PL_EUSE, "%.500s", all.text) : PL_OK;
}

/* --- the record ------------------------------------------------------------------------------- */

/* RUN_manifest and PEER_manifest hold the same record. The first is found by the run's name, and
 * everybody may write there; the second by the peer ID in the address that a newcomer was given, so
 * that it gets the manifest of exactly that peer.
 *
 * The signature is over tag, subkey and text. The tag keeps signatures made for other purposes from
 * counting here; the subkey names the record's owner, so a copy by another owner is not valid. */
int manifest_record_write(struct bytes *out, const struct bytes *subkey, const struct identity *me,
                          const char *text)
{
    uint8_t signature[SIGNATURE_MAX];
    size_t signature_n = 0, n = strlen(text);
    int rc = owner_proof_sign(signature, &signature_n, me, MANIFEST_TAG, subkey, text, n);
    return rc ? rc
              : schema_write(out, &schema_manifest, text, n, bytes_at(&me->public_key),
                             bytes_length(&me->public_key), signature, signature_n);
}

/* Cheap checks first: the claimed peer, then the signature, and the JSON last. */
static int read_signed(struct manifest_record *r, const struct peer_id *of, const uint8_t *subkey,
                       size_t subkey_n, const struct mp_value *map, struct pl_err *err)
{
    const struct mp_value *text = mp_get(map, schema_manifest.fields[0].name),
                          *key = mp_get(map, schema_manifest.fields[1].name),
                          *signature = mp_get(map, schema_manifest.fields[2].name);
    int rc;
    if (text->n > MANIFEST_BYTES_MAX)
        return pl_fail(err, PL_EPROTO, "_manifest: a text of %zu bytes", text->n);
    /* A peer ID is a hash of the key, or the key itself: nobody can claim another peer's. Another
     * peer's record under its key is no error, only not what was asked for. */
    peer_id_of_key(&r->peer, key->bytes, key->n);
    if (of && !peer_id_equal(of, &r->peer)) return PL_ENOTFOUND;
    /* As it was signed: tag, subkey, text. */
    rc = owner_proof_check(key, signature, MANIFEST_TAG, subkey, subkey_n, text->bytes, text->n);
    if (rc == PL_EPROTO) pl_fail(err, rc, "_manifest: the signature is not its peer's");
    if (!rc) rc = manifest_read(&r->manifest, (const char *)text->bytes, text->n, err);
    if (rc) return rc;
    if (!(r->text = malloc(text->n + 1))) return pl_fail(err, PL_ENOMEM, "_manifest: no memory");
    memcpy(r->text, text->bytes, text->n);
    r->text[r->n = text->n] = 0;
    return PL_OK;
}

int manifest_record_read(struct manifest_record *r, const struct peer_id *of, const uint8_t *subkey,
                         size_t subkey_n, const uint8_t *value, size_t n, struct pl_err *err)
{
    /* The schema checks the map: three byte strings. NULL first, so that a refused record may be
     * cleared. */
    struct mp_value *map;
    int rc = schema_read(&map, &schema_manifest, value, n, err);
    r->text = NULL;
    if (!rc) rc = read_signed(r, of, subkey, subkey_n, map, err);
    mp_free(map);
    return rc;
}

void manifest_record_clear(struct manifest_record *r)
{
    free(r->text);
    r->text = NULL;
}

/* Refused, not cut: two long names that begin alike would share a key. */
static int key_of(struct dht_id *key, const char *prefix)
{
    char text[PEER_ID_TEXT_MAX + 1024];
    int n = snprintf(text, sizeof text, "%s%s", prefix, schema_manifest.suffix);
    return n < 0 || (size_t)n >= sizeof text ? PL_ELIMIT : dht_id_of_text(key, text);
}

int manifest_key_of_run(struct dht_id *key, const char *run) { return key_of(key, run); }

int manifest_key_of_peer(struct dht_id *key, const struct peer_id *peer)
{
    char text[PEER_ID_TEXT_MAX];
    peer_id_text(text, peer);
    return key_of(key, text);
}
