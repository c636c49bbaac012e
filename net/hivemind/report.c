/* report.c - see report.h. */
#include "report.h"

#include <string.h>

int report_write(struct bytes *out, const struct report_record *r)
{
    const struct schema_field *f = schema_report.fields;
    const int64_t counts[] = { r->reach, r->rounds,   r->failed,      r->retried,
                               r->sent,  r->received, r->uncompressed };
    mp_map(out, schema_report.count);
    mp_text(out, f++->name);
    mp_bin(out, r->version, strlen(r->version));
    for (size_t i = 0; i < PL_COUNT(counts); i++) {
        mp_text(out, f++->name);
        mp_int(out, counts[i]);
    }
    mp_text(out, f->name);
    return mp_float(out, r->held_out);
}

static int read_fields(struct report_record *r, const struct mp_value *v, struct pl_err *err)
{
    int64_t *const counts[] = { &r->rounds, &r->failed,   &r->retried,
                                &r->sent,   &r->received, &r->uncompressed };
    const struct mp_value *version = mp_get(v, schema_report.fields[0].name);
    int64_t reach = mp_count(mp_get(v, schema_report.fields[1].name));
    size_t n = version->n < REPORT_VERSION_MAX ? version->n : REPORT_VERSION_MAX;
    for (size_t i = 0; i < n; i++)
        r->version[i] = version->bytes[i] >= ' ' && version->bytes[i] <= '~'
                            ? (char)version->bytes[i]
                            : '?';
    r->reach = reach >= 0 && reach < REPORT_REACHES ? (enum report_reach)reach : REPORT_UNKNOWN;
    for (size_t i = 0; i < PL_COUNT(counts); i++)
        if ((*counts[i] = mp_count(mp_get(v, schema_report.fields[2 + i].name))) < 0)
            return pl_fail(err, PL_EPROTO, "_report: a count beyond 2^63");
    r->held_out = mp_get(v, schema_report.fields[8].name)->real;
    return PL_OK;
}

int report_read(struct report_record *r, const uint8_t *data, size_t n, struct pl_err *err)
{
    struct mp_value *v;
    int rc = mp_read(&v, data, n, err);
    memset(r, 0, sizeof *r);
    if (rc) return rc;
    rc = schema_check(&schema_report, v, err);
    if (!rc) rc = read_fields(r, v, err);
    mp_free(v);
    return rc;
}
