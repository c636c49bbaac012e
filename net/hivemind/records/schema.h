/* schema.h - the declared form of a run's records: a map with exactly these fields (our own record
 * may grow), each of exactly this type. [spec hivemind-protocol 2.2] */
#ifndef PL_SCHEMA_H
#define PL_SCHEMA_H

#include "net/hivemind/messages/msgpack.h"

enum schema_kind {
    SCHEMA_COUNT, /* an integer >= 0, not a boolean */
    SCHEMA_REAL,  /* 64-bit float; NaN and infinities too */
    SCHEMA_RATE,  /* the same, not below 0 */
    SCHEMA_BYTES,
    SCHEMA_BOOL
};

struct schema_field {
    const char *name;
    enum schema_kind kind;
};

struct schema {
    const char *suffix; /* guards the key PREFIX + suffix */
    double life_s;      /* see validate.h */
    size_t value_max;   /* bytes of a record's value, its signature included */
    int nil_allowed;    /* 1: a peer may take its record back */
    int more_allowed;   /* 1: other fields too, which are ignored */
    size_t count;
    struct schema_field fields[10]; /* in the order in which hivemind writes them */
};

extern const struct schema schema_progress; /* [spec hivemind-protocol 8] */
extern const struct schema schema_metrics;  /* [spec hivemind-protocol 10] */
extern const struct schema schema_report;   /* progress/peer_report.h: ours alone */
extern const struct schema schema_manifest; /* run_manifest.h: ours alone */
extern const struct schema schema_identity; /* owner_proof.h: ours alone */

/* PL_OK, or PL_EPROTO with a sentence that names the field. */
int schema_check(const struct schema *s, const struct mp_value *v, struct pl_err *err);
/* Reads a value and checks it. *v is the caller's to mp_free; NULL after an error. */
int schema_read(struct mp_value **v, const struct schema *s, const uint8_t *data, size_t n,
                struct pl_err *err);
/* Appends the map of all fields, in their order: int64_t for SCHEMA_COUNT; double for SCHEMA_REAL
 * and SCHEMA_RATE; const void * and size_t for SCHEMA_BYTES; int for SCHEMA_BOOL. */
int schema_write(struct bytes *out, const struct schema *s, ...);

#endif
