/* schema.c - the types of a run's records. Strangers write into the DHT; whatever reads a record
 * must be able to rely on its fields. hivemind declares them as pydantic models and refuses
 * every value that would need a conversion: 3 is not a float, True is not an integer. The tables
 * below say the same [spec hivemind-protocol 2.2]. */
#include "schema.h"

#include "rsa_key.h"

#include <stdarg.h>
#include <string.h>

/* s. hivemind renews progress every 30 s with a life of 60 s. Trainers follow it, so an older one
 * must not count. */
#define PROGRESS_LIVES 60.0
/* s. An option of hivemind's trainer, 600 s by default. No decision depends on metrics. */
#define METRICS_LIVES 3600.0
/* A signature by the longest key in base64 takes 1,368 bytes, its tag 12; the map of a progress
 * or a metrics record less than 200, of a report less than 1,000. */
#define RECORD_VALUE_MAX (RSA_TEXT_MAX + 548)
#define REPORT_VALUE_MAX (RSA_TEXT_MAX + 2596)
/* A public key and a signature of the longest RSA identity. */
#define IDENTITY_VALUE_MAX (RSA_TEXT_MAX + 2048 + 1024 + 100)
#define MANIFEST_VALUE_MAX (IDENTITY_VALUE_MAX + 8192) /* and MANIFEST_BYTES_MAX */

/* A peer's progress, which the collaborative optimizer adds up [spec hivemind-protocol 8].
 * hivemind's tracker sends nil when it shuts down, and no other field may be there. */
const struct schema schema_progress = { "_progress",
                                        PROGRESS_LIVES,
                                        RECORD_VALUE_MAX,
                                        1,
                                        0,
                                        6,
                                        {
                                            { "peer_id", SCHEMA_BYTES },
                                            { "epoch", SCHEMA_COUNT },
                                            { "samples_accumulated", SCHEMA_COUNT },
                                            { "samples_per_second", SCHEMA_RATE },
                                            { "time", SCHEMA_REAL },
                                            { "client_mode", SCHEMA_BOOL },
                                        } };

/* The figures of a peer's training for the page [spec hivemind-protocol 10]. `loss` is a sum over
 * mini_steps; it may be NaN, since a float of pydantic may. */
const struct schema schema_metrics = { "_metrics",
                                       METRICS_LIVES,
                                       RECORD_VALUE_MAX,
                                       0,
                                       0,
                                       5,
                                       {
                                           { "step", SCHEMA_COUNT },
                                           { "samples_per_second", SCHEMA_RATE },
                                           { "samples_accumulated", SCHEMA_COUNT },
                                           { "loss", SCHEMA_REAL },
                                           { "mini_steps", SCHEMA_COUNT },
                                       } };

/* Ours alone: how a peer's rounds went. Later versions may add fields, so others are allowed and
 * ignored. "reach" says whether others can call it; bytes are counted before and after
 * compression. */
const struct schema schema_report = { "_report",
                                      METRICS_LIVES,
                                      REPORT_VALUE_MAX,
                                      0,
                                      1,
                                      9,
                                      {
                                          { "version", SCHEMA_BYTES },
                                          { "reach", SCHEMA_COUNT },
                                          { "rounds", SCHEMA_COUNT },
                                          { "failed", SCHEMA_COUNT },
                                          { "retried", SCHEMA_COUNT },
                                          { "sent", SCHEMA_COUNT },
                                          { "received", SCHEMA_COUNT },
                                          { "uncompressed", SCHEMA_COUNT },
                                          { "held_out", SCHEMA_REAL },
                                      } };

/* Only potluck's: the run's manifest, also signed by a peer's identity (run_manifest.h). No
 * decision of a round depends on it, so it may live as long as metrics. */
const struct schema schema_manifest = { "_manifest",
                                        METRICS_LIVES,
                                        MANIFEST_VALUE_MAX,
                                        0,
                                        1,
                                        3,
                                        {
                                            { "manifest", SCHEMA_BYTES },
                                            { "identity", SCHEMA_BYTES },
                                            { "signature", SCHEMA_BYTES },
                                        } };

/* Only potluck's: which peer a record's owner belongs to. It decides between owners that write for
 * the same peer, so nodes check its signature, too (owner_proof.h). */
const struct schema schema_identity = { "_identity",
                                        METRICS_LIVES,
                                        IDENTITY_VALUE_MAX,
                                        0,
                                        0,
                                        2,
                                        {
                                            { "identity", SCHEMA_BYTES },
                                            { "signature", SCHEMA_BYTES },
                                        } };

/* The msgpack type has to be the declared one exactly, as pydantic's strict types do it. */
static int fits(enum schema_kind kind, const struct mp_value *v)
{
    switch (kind) {
    case SCHEMA_COUNT: return v->kind == MP_INT && !v->negative;
    case SCHEMA_REAL: return v->kind == MP_FLOAT;
    case SCHEMA_RATE: return v->kind == MP_FLOAT && v->real >= 0; /* false for NaN, too */
    case SCHEMA_BYTES: return v->kind == MP_BIN;
    case SCHEMA_BOOL: return v->kind == MP_BOOL;
    }
    return 0;
}

/* Linear in the value's bytes: a schema has at most 10 fields, each found by one pass over the
 * map. */
int schema_check(const struct schema *s, const struct mp_value *v, struct pl_err *err)
{
    static const char *const names[] = { "an integer from 0", "a float", "a float from 0", "bytes",
                                         "a truth value" };
    /* hivemind's tracker writes None when it shuts down. */
    if (v->kind == MP_NIL && s->nil_allowed) return PL_OK;
    if (v->kind != MP_MAP) return pl_fail(err, PL_EPROTO, "%s: the value is not a map", s->suffix);
    for (size_t i = 0; i < s->count; i++) {
        const struct mp_value *field = mp_get(v, s->fields[i].name);
        if (!field) return pl_fail(err, PL_EPROTO, "%s: lacks %s", s->suffix, s->fields[i].name);
        if (!fits(s->fields[i].kind, field))
            return pl_fail(err, PL_EPROTO, "%s: %s is not %s", s->suffix, s->fields[i].name,
                           names[s->fields[i].kind]);
    }
    /* All fields are there, so a map of this size has no other field and none twice. */
    if (v->n != s->count && !s->more_allowed)
        return pl_fail(err, PL_EPROTO, "%s: unknown fields", s->suffix);
    return PL_OK;
}

int schema_read(struct mp_value **v, const struct schema *s, const uint8_t *data, size_t n,
                struct pl_err *err)
{
    struct mp_value *read;
    int rc = mp_read(&read, data, n, err);
    *v = NULL;
    if (rc) return rc;
    if ((rc = schema_check(s, read, err))) mp_free(read);
    else *v = read;
    return rc;
}

int schema_write(struct bytes *out, const struct schema *s, ...)
{
    const void *bytes;
    va_list list;
    va_start(list, s);
    mp_map(out, s->count);
    for (size_t i = 0; i < s->count; i++) {
        mp_text(out, s->fields[i].name);
        switch (s->fields[i].kind) {
        case SCHEMA_COUNT: mp_int(out, va_arg(list, int64_t)); break;
        case SCHEMA_REAL:
        case SCHEMA_RATE: mp_float(out, va_arg(list, double)); break;
        case SCHEMA_BYTES:
            bytes = va_arg(list, const void *);
            mp_bin(out, bytes, va_arg(list, size_t));
            break;
        case SCHEMA_BOOL: mp_bool(out, va_arg(list, int)); break;
        }
    }
    va_end(list);
    return out->failed ? PL_ENOMEM : PL_OK;
}
