/* peer_report.c - the dashboard's second record, with data that hivemind's metrics cannot hold.
 * [TTT 2.1]
 *
 * hivemind's validators refuse a metrics record with other fields than their own, so rounds,
 * bytes and reachability go under a key of their own, RUN_report. Python peers store and forward
 * it like any signed record. A field that is added later is optional: older peers neither write
 * nor miss it. */
#include "peer_report.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* Added after the first version, so readers must do without them. */
static const char DEVICE[] = "device", NAME[] = "name";
/* A row for each optional count, so that writer and reader cannot differ. */
static const struct {
    const char *name;
    size_t offset;
} later[] = {
    { "banned", offsetof(struct report_record, banned) },
    { "target_batch", offsetof(struct report_record, target_batch) },
    { "samples", offsetof(struct report_record, samples) },
    { "computed_ms", offsetof(struct report_record, computed_ms) },
    { "waited_ms", offsetof(struct report_record, waited_ms) },
    { "averaged_ms", offsetof(struct report_record, averaged_ms) },
    { "shared_ms", offsetof(struct report_record, shared_ms) },
};

/* The row's member; const goes, since one table serves writing and reading. */
static int64_t *count_at(const struct report_record *r, size_t offset)
{
    return (int64_t *)((uintptr_t)r + offset);
}

void report_device(char out[REPORT_DEVICE_MAX + 1], const char *note)
{
    /* Clauses are dropped from the end until the rest fits; a single long one is cut. */
    size_t n = strlen(note);
    while (n > REPORT_DEVICE_MAX) {
        n--;
        while (n && note[n] != ',') n--;
    }
    snprintf(out, REPORT_DEVICE_MAX + 1, "%.*s", n ? (int)n : REPORT_DEVICE_MAX, note);
}

int report_write(struct bytes *out, const struct report_record *r)
{
    const struct schema_field *f = schema_report.fields;
    const int64_t counts[] = { r->reachability, r->rounds,   r->failed,      r->retried,
                               r->sent,         r->received, r->uncompressed };
    /* The fields of the schema, in its order, then those that came later. */
    mp_map(out, schema_report.count + PL_COUNT(later) + 2);
    mp_text(out, f++->name);
    mp_bin(out, r->version, strlen(r->version));
    for (size_t i = 0; i < PL_COUNT(counts); i++) {
        mp_text(out, f++->name);
        mp_int(out, counts[i]);
    }
    mp_text(out, f->name);
    mp_float(out, r->held_out); /* NaN: not measured */
    /* Each value has its name: readers of an older version skip names that they do not know. */
    mp_text(out, DEVICE);
    mp_bin(out, r->device, strlen(r->device));
    for (size_t i = 0; i < PL_COUNT(later); i++) {
        mp_text(out, later[i].name);
        mp_int(out, *count_at(r, later[i].offset));
    }
    mp_text(out, NAME);
    return mp_bin(out, r->name, strlen(r->name));
}

/* Copies at most max characters into `to`, which is all zero and has one more. Characters other
 * than printable ASCII become '?', because the text is shown in terminals and on a page. */
static void read_text(char *to, size_t max, const struct mp_value *v)
{
    for (size_t i = 0; i < v->n && i < max; i++)
        to[i] = v->bytes[i] >= ' ' && v->bytes[i] <= '~' ? (char)v->bytes[i] : '?';
}

/* An optional count; 0 if the record has none. */
static int64_t later_count(const struct mp_value *record, const char *name)
{
    /* The schema does not list it, so its type is checked here. */
    const struct mp_value *v = mp_get(record, name);
    return v && v->kind == MP_INT && !v->negative ? mp_count(v) : 0;
}

static int read_fields(struct report_record *r, const struct mp_value *v, struct pl_err *err)
{
    int64_t *const counts[] = { &r->rounds, &r->failed,   &r->retried,
                                &r->sent,   &r->received, &r->uncompressed };
    const struct mp_value *device = mp_get(v, DEVICE), *name = mp_get(v, NAME);
    /* Types have been checked by the schema; values are a stranger's. */
    int64_t value = mp_count(mp_get(v, schema_report.fields[1].name));
    read_text(r->version, REPORT_VERSION_MAX, mp_get(v, schema_report.fields[0].name));
    if (device && device->kind == MP_BIN) read_text(r->device, REPORT_DEVICE_MAX, device);
    if (name && name->kind == MP_BIN) read_text(r->name, REPORT_NAME_MAX, name);
    /* An unknown number comes from a newer version. */
    r->reachability = value >= 0 && value < REPORT_REACHABILITIES ? (enum report_reachability)value
                                                                  : REPORT_UNKNOWN;
    for (size_t i = 0; i < PL_COUNT(counts); i++)
        /* mp_count is negative for an unsigned number that an int64_t cannot hold. */
        if ((*counts[i] = mp_count(mp_get(v, schema_report.fields[2 + i].name))) < 0)
            return pl_fail(err, PL_EPROTO, "_report: a count beyond 2^63");
    for (size_t i = 0; i < PL_COUNT(later); i++)
        if ((*count_at(r, later[i].offset) = later_count(v, later[i].name)) < 0)
            return pl_fail(err, PL_EPROTO, "_report: a count beyond 2^63");
    r->held_out = mp_get(v, schema_report.fields[8].name)->real;
    return PL_OK;
}

int report_read(struct report_record *r, const uint8_t *data, size_t n, struct pl_err *err)
{
    struct mp_value *v;
    int rc = schema_read(&v, &schema_report, data, n, err);
    /* Whatever the record leaves out is 0. */
    memset(r, 0, sizeof *r);
    if (!rc) rc = read_fields(r, v, err);
    mp_free(v);
    return rc;
}
