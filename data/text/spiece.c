/* spiece.c - a minimal protocol buffer reader for SentencePiece's ModelProto: fields of (number <<
 * 3 | wire type), then a varint, a fixed-size value, or a length and bytes. */
#include "spiece.h"
#include "code_points.h"
#include "ref/small.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MODEL_UNIGRAM 1

/* A message being parsed: the bytes between at and end. */
struct reader {
    const uint8_t *start, *at, *end;
};

/* One field: its number, and an integer or a range of bytes. */
struct field {
    uint32_t number;
    int wire; /* 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes */
    uint64_t value;
    struct reader body;
};

static int varint(struct reader *r, uint64_t *out)
{
    *out = 0;
    for (int shift = 0; shift < 64 && r->at < r->end; shift += 7) {
        uint8_t b = *r->at++;
        if (shift == 63 && b > 1) return PL_EFORMAT;
        *out |= (uint64_t)(b & 127) << shift;
        if (b < 128) return PL_OK;
    }
    return PL_EFORMAT;
}

/* PL_OK, PL_ENOTFOUND at the end, PL_EFORMAT for a malformed field. */
static int next(struct reader *r, struct field *f)
{
    uint64_t key, n;
    if (r->at == r->end) return PL_ENOTFOUND;
    if (varint(r, &key) || key >> 3 == 0 || key >> 3 > 0x1FFFFFFF) return PL_EFORMAT;
    f->number = (uint32_t)(key >> 3);
    f->wire = (int)(key & 7);
    switch (f->wire) {
    case 0: return varint(r, &f->value);
    case 1: n = 8; break;
    case 5: n = 4; break;
    case 2:
        if (varint(r, &n)) return PL_EFORMAT;
        break;
    default: return PL_EFORMAT; /* groups: not used by this format */
    }
    if (n > (uint64_t)(r->end - r->at)) return PL_EFORMAT;
    f->body = (struct reader){ r->start, r->at, r->at + n };
    r->at += n;
    return PL_OK;
}

static int malformed(const struct reader *r, const char *file, const char *what, struct pl_err *err)
{
    return pl_fail(err, PL_EFORMAT, "%s: byte %zu: %s", file, (size_t)(r->at - r->start), what);
}

static int read_piece(struct spiece *p, struct reader r, const char *file, struct pl_err *err)
{
    struct reader start = r;
    struct field f;
    int rc;
    *p = (struct spiece){ .type = SPIECE_NORMAL };
    while ((rc = next(&r, &f)) == PL_OK) {
        if (f.number == 1 && f.wire == 2) {
            size_t n = (size_t)(f.body.end - f.body.at);
            if (n > SPIECE_BYTES_MAX)
                return malformed(&f.body, file, "a piece above 512 bytes", err);
            p->text = (const char *)f.body.at;
            p->n = (uint32_t)n;
        } else if (f.number == 2 && f.wire == 5) {
            uint32_t u = pl_le32(f.body.at);
            memcpy(&p->score, &u, 4);
        } else if (f.number == 3 && f.wire == 0) {
            if (f.value < SPIECE_NORMAL || f.value > SPIECE_BYTE)
                return malformed(&r, file, "a piece's type is not 1 to 6", err);
            p->type = (uint8_t)f.value;
        } else if (f.number <= 3)
            return malformed(&r, file, "a piece's field has the wrong wire type", err);
    }
    if (rc != PL_ENOTFOUND) return malformed(&r, file, "a piece's fields do not fit", err);
    if (!p->n) return malformed(&start, file, "an empty piece", err);
    if (!(fabsf(p->score) <= SPIECE_SCORE_MAX))
        return malformed(&start, file,
                         "a piece's score is not the logarithm of a "
                         "probability",
                         err);
    if (!pl_code_points_valid(p->text, p->n))
        return malformed(&start, file, "a piece is not UTF-8", err);
    return PL_OK;
}

static int read_trainer(struct reader r, const char *file, struct pl_err *err)
{
    struct field f;
    int rc;
    while ((rc = next(&r, &f)) == PL_OK)
        if (f.number == 3 && (f.wire != 0 || f.value != MODEL_UNIGRAM))
            return malformed(&r, file, "not a unigram model", err);
    return rc == PL_ENOTFOUND ? PL_OK : malformed(&r, file, "the trainer's fields do not fit", err);
}

static int read_normalizer(struct spiece_model *m, struct reader r, const char *file,
                           struct pl_err *err)
{
    struct field f;
    int rc;
    while ((rc = next(&r, &f)) == PL_OK) {
        if (f.number == 2 && f.wire == 2) {
            m->map = f.body.at;
            m->map_bytes = (size_t)(f.body.end - f.body.at);
        } else if (f.number == 3 && f.wire == 0) m->dummy_prefix = f.value != 0;
        else if (f.number == 4 && f.wire == 0) m->collapse_spaces = f.value != 0;
        else if (f.number == 5 && f.wire == 0) m->escape_spaces = f.value != 0;
        else if (f.number >= 2 && f.number <= 5)
            return malformed(&r, file, "a normaliser's field has the wrong wire type", err);
    }
    return rc == PL_ENOTFOUND ? PL_OK
                              : malformed(&r, file, "the normaliser's fields do not fit", err);
}

static int count_pieces(size_t *count, struct reader r, const char *file, struct pl_err *err)
{
    struct field f;
    int rc;
    *count = 0;
    while ((rc = next(&r, &f)) == PL_OK) *count += f.number == 1 && f.wire == 2;
    if (rc != PL_ENOTFOUND)
        return malformed(&r, file, "not a SentencePiece model: no protocol buffer from here on",
                         err);
    if (!*count) return pl_fail(err, PL_EFORMAT, "%s: a model without pieces", file);
    if (*count > SPIECE_PIECES_MAX)
        return pl_fail(err, PL_ELIMIT, "%s: %zu pieces; the limit is %u", file, *count,
                       SPIECE_PIECES_MAX);
    return PL_OK;
}

static int read_fields(struct spiece_model *m, struct reader r, const char *file,
                       struct pl_err *err)
{
    struct field f;
    int rc = PL_OK;
    while (!rc && next(&r, &f) == PL_OK) {
        if (f.wire == 2 && f.number == 1) {
            struct spiece *p = &m->pieces[m->count];
            rc = read_piece(p, f.body, file, err);
            if (!rc && p->type == SPIECE_UNKNOWN) {
                if (m->unknown >= 0) rc = malformed(&f.body, file, "a second unknown piece", err);
                m->unknown = (int)m->count;
            }
            m->count++;
        } else if (f.wire == 2 && f.number == 2) rc = read_trainer(f.body, file, err);
        else if (f.wire == 2 && f.number == 3) rc = read_normalizer(m, f.body, file, err);
        else if (f.number <= 3) rc = malformed(&r, file, "a section has the wrong wire type", err);
    }
    if (!rc && m->unknown < 0) rc = pl_fail(err, PL_EFORMAT, "%s: no piece of type unknown", file);
    return rc;
}

int pl_spiece_read(struct spiece_model *m, const void *data, size_t bytes, const char *file,
                   struct pl_err *err)
{
    struct reader r = { data, data, (const uint8_t *)data + bytes };
    size_t count;
    int rc;
    *m = (struct spiece_model){
        .unknown = -1, .dummy_prefix = 1, .collapse_spaces = 1, .escape_spaces = 1
    };
    if (bytes > SPIECE_FILE_MAX)
        return pl_fail(err, PL_ELIMIT, "%s: %zu bytes; the limit is %u", file, bytes,
                       SPIECE_FILE_MAX);
    if ((rc = count_pieces(&count, r, file, err))) return rc;
    m->pieces = calloc(count, sizeof *m->pieces);
    rc = m->pieces ? read_fields(m, r, file, err)
                   : pl_fail(err, PL_ENOMEM, "%s: out of memory", file);
    if (rc) pl_spiece_clear(m);
    return rc;
}

void pl_spiece_clear(struct spiece_model *m)
{
    free(m->pieces);
    *m = (struct spiece_model){ .unknown = -1 };
}
