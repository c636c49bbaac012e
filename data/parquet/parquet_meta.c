/* parquet_meta.c - a Parquet file's footer. The file ends with the footer (a Thrift struct), its
 * length in 4 bytes, and "PAR1". The footer lists the columns (a schema tree in depth-first order),
 * and for each row group where each column's pages are. */
#include "parquet_read.h"
#include "thrift.h"
#include "ref/small.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA_DEPTH_MAX 32
#define METAS_MAX 4096 /* writers add two or three entries */

static const char *const type_names[PARQUET_TYPES] = {
    "BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"
};

const char *pl_parquet_type_name(enum parquet_type t) { return type_names[t]; }

enum repetition { REQUIRED, OPTIONAL, REPEATED };

struct element { /* one node of the schema, in the stored order: depth first */
    int64_t type, length, repetition, children, converted;
    int is_string;
    char *name;
};

/* The footer being parsed; cleared in every case. */
struct footer {
    struct thrift_in in;
    struct parquet *p;
    struct element *element;
    size_t elements, next;
    const char *wrong; /* the first error found, for the message */
    int no_memory;
};

static int wrong(struct footer *f, const char *what)
{
    if (!f->wrong && !f->in.bad) f->wrong = what;
    f->in.bad = 1;
    f->in.p = f->in.end;
    return 0;
}

/* Zeros for n items and one more. */
static void *list_capacity(struct footer *f, size_t n, size_t size)
{
    void *capacity = calloc(n + 1, size);
    if (!capacity) {
        f->no_memory = 1;
        wrong(f, "no memory");
    }
    return capacity;
}

static char *string(struct footer *f, const struct thrift_field *field)
{
    size_t n;
    const uint8_t *text = pl_thrift_binary(&f->in, field, &n);
    char *copy = list_capacity(f, n, 1);
    if (copy && n) memcpy(copy, text, n);
    return copy;
}

static int is_string_type(struct thrift_in *in, const struct thrift_field *logical)
{
    struct thrift_field f = { 0 };
    int string = 0;
    if (logical->type != THRIFT_STRUCT) {
        pl_thrift_skip(in, logical->type);
        return 0;
    }
    while (pl_thrift_next(in, &f)) { /* a union: member 1 is STRING */
        string |= f.id == 1;
        pl_thrift_skip(in, f.type);
    }
    return string;
}

static void read_element(struct footer *f, struct element *e)
{
    struct thrift_field field = { 0 };
    e->type = e->converted = -1;
    while (pl_thrift_next(&f->in, &field)) {
        switch (field.id) {
        case 1: e->type = pl_thrift_integer(&f->in, &field); break;
        case 2: e->length = pl_thrift_integer(&f->in, &field); break;
        case 3: e->repetition = pl_thrift_integer(&f->in, &field); break;
        case 4:
            if (e->name) wrong(f, "a schema element with two names");
            else e->name = string(f, &field);
            break;
        case 5: e->children = pl_thrift_integer(&f->in, &field); break;
        case 6: e->converted = pl_thrift_integer(&f->in, &field); break;
        case 10: e->is_string = is_string_type(&f->in, &field); break;
        default: pl_thrift_skip(&f->in, field.type);
        }
    }
}

static void read_schema(struct footer *f, const struct thrift_field *field)
{
    int type;
    size_t n = pl_thrift_list(&f->in, field, &type);
    if (f->element || type != THRIFT_STRUCT || n > 4 * PARQUET_COLUMNS_MAX) {
        wrong(f, "no schema of a usable size");
        return;
    }
    f->element = list_capacity(f, n, sizeof *f->element);
    for (size_t i = 0; i < n && !f->in.bad; i++) read_element(f, &f->element[f->elements++]);
}

/* Leaves of the tree become columns; only those at the first level can be read. */
static void read_columns(struct footer *f, int depth, int nested)
{
    struct parquet *p = f->p;
    struct element *e;
    if (f->in.bad) return;
    if (f->next == f->elements || depth > SCHEMA_DEPTH_MAX) {
        wrong(f, "a schema with inconsistent numbers of children");
        return;
    }
    e = &f->element[f->next++];
    if (e->children > 0 || depth == 0) {
        for (int64_t i = 0; i < e->children && !f->in.bad; i++)
            read_columns(f, depth + 1, nested || depth > 0);
    } else {
        struct parquet_column *c = &p->column[p->columns];
        if (p->columns == PARQUET_COLUMNS_MAX || e->type < 0 || e->type >= PARQUET_TYPES ||
            e->repetition < 0 || e->repetition > REPEATED || !e->name ||
            (e->type == PARQUET_FIXED && (e->length < 1 || e->length > 1 << 20))) {
            wrong(f, "a column without name, or of unknown type");
            return;
        }
        c->name = e->name;
        e->name = NULL;
        c->type = (enum parquet_type)e->type;
        c->length = (int)e->length;
        c->text = e->is_string || e->converted == 0;
        c->optional = e->repetition == OPTIONAL;
        c->nested = nested || e->repetition == REPEATED;
        p->columns++;
    }
}

static void build_columns(struct footer *f)
{
    f->p->column = list_capacity(f, f->elements, sizeof *f->p->column);
    if (f->p->column) read_columns(f, 0, 0);
    if (!f->in.bad && f->next != f->elements) wrong(f, "schema elements that no parent counts");
}

static void read_chunk(struct footer *f, struct parquet_chunk *chunk)
{
    struct thrift_field outer = { 0 };
    int64_t first = -1, dictionary = -1, bytes = -1, values = -1;
    int seen = 0;
    while (pl_thrift_next(&f->in, &outer)) {
        struct thrift_field field = { 0 };
        if (outer.id == 1) { /* file_path */
            wrong(f, "a column stored in another file");
            return;
        }
        if (outer.id != 3 || outer.type != THRIFT_STRUCT) {
            pl_thrift_skip(&f->in, outer.type);
            continue;
        }
        seen = 1;
        while (pl_thrift_next(&f->in, &field)) {
            switch (field.id) {
            case 4: chunk->codec = (int)pl_thrift_integer(&f->in, &field); break;
            case 5: values = pl_thrift_integer(&f->in, &field); break;
            case 7: bytes = pl_thrift_integer(&f->in, &field); break;
            case 9: first = pl_thrift_integer(&f->in, &field); break;
            case 11: dictionary = pl_thrift_integer(&f->in, &field); break;
            default: pl_thrift_skip(&f->in, field.type);
            }
        }
    }
    if (!seen) {
        wrong(f, "a column chunk without metadata");
        return;
    }
    if (values == 0) return; /* no pages, so the offsets may be anything */
    if (dictionary > 0 && dictionary < first) first = dictionary;
    if (first < 4 || bytes < 0 || values < 0 || (uint64_t)first > f->p->source->size ||
        (uint64_t)bytes > f->p->source->size - (uint64_t)first) {
        wrong(f, "a column chunk outside the file");
        return;
    }
    chunk->begin = (uint64_t)first;
    chunk->end = (uint64_t)first + (uint64_t)bytes;
    chunk->values = (uint64_t)values;
}

static void read_group(struct footer *f, struct parquet_group *g)
{
    struct thrift_field field = { 0 };
    int type, have_rows = 0;
    while (pl_thrift_next(&f->in, &field)) {
        size_t n;
        int64_t rows;
        switch (field.id) {
        case 1:
            n = pl_thrift_list(&f->in, &field, &type);
            if (g->chunks || n != f->p->columns || type != THRIFT_STRUCT) {
                wrong(f, "a row group with another number of columns than the schema");
                return;
            }
            g->chunks = list_capacity(f, n, sizeof *g->chunks);
            for (size_t i = 0; i < n && !f->in.bad; i++) read_chunk(f, &g->chunks[i]);
            break;
        case 3:
            rows = pl_thrift_integer(&f->in, &field);
            if (rows < 0) wrong(f, "a row group with a negative number of rows");
            g->rows = (uint64_t)rows;
            have_rows = 1;
            break;
        default: pl_thrift_skip(&f->in, field.type);
        }
    }
    if (!g->chunks || !have_rows) {
        wrong(f, "a row group without columns or rows");
        return;
    }
    for (size_t i = 0; i < f->p->columns; i++)
        if (!f->p->column[i].nested && g->chunks[i].values != g->rows)
            wrong(f, "a column with more or fewer values than its row group has rows");
}

static void read_groups(struct footer *f, const struct thrift_field *field)
{
    int type;
    size_t n = pl_thrift_list(&f->in, field, &type);
    if (f->p->group || (n && type != THRIFT_STRUCT) || n > PARQUET_GROUPS_MAX) {
        wrong(f, "row groups listed twice, too many, or not as structs");
        return;
    }
    f->p->group = list_capacity(f, n, sizeof *f->p->group);
    for (size_t i = 0; i < n && !f->in.bad; i++) read_group(f, &f->p->group[f->p->groups++]);
}

static void read_metas(struct footer *f, const struct thrift_field *field)
{
    struct parquet *p = f->p;
    int type;
    size_t n = pl_thrift_list(&f->in, field, &type);
    if (p->meta_key || (n && type != THRIFT_STRUCT) || n > METAS_MAX) {
        wrong(f, "key-value metadata listed twice, too many, or not as structs");
        return;
    }
    p->meta_key = list_capacity(f, n, sizeof *p->meta_key);
    p->meta_value = list_capacity(f, n, sizeof *p->meta_value);
    for (size_t i = 0; i < n && !f->in.bad; i++, p->metas++) {
        struct thrift_field inner = { 0 };
        while (pl_thrift_next(&f->in, &inner)) {
            char **slot = inner.id == 1   ? &p->meta_key[i]
                          : inner.id == 2 ? &p->meta_value[i]
                                          : NULL;
            if (slot && !*slot) *slot = string(f, &inner);
            else pl_thrift_skip(&f->in, inner.type);
        }
    }
}

static int parse(struct footer *f)
{
    struct thrift_field field = { 0 };
    int64_t rows = -1;
    uint64_t sum = 0;
    while (pl_thrift_next(&f->in, &field)) {
        switch (field.id) {
        case 2:
            read_schema(f, &field);
            if (!f->in.bad) build_columns(f);
            break;
        case 3: rows = pl_thrift_integer(&f->in, &field); break;
        case 4:
            if (!f->element) wrong(f, "row groups before the schema");
            else read_groups(f, &field);
            break;
        case 5: read_metas(f, &field); break;
        default: pl_thrift_skip(&f->in, field.type);
        }
    }
    if (!f->in.bad && (!f->element || !f->p->group || rows < 0))
        wrong(f, "a footer without schema, row groups or number of rows");
    for (size_t i = 0; !f->in.bad && i < f->p->groups; i++) {
        sum += f->p->group[i].rows;
        if (f->p->group[i].rows > (uint64_t)rows || sum > (uint64_t)rows)
            wrong(f, "row groups with more rows than the file");
    }
    if (!f->in.bad && sum != (uint64_t)rows) wrong(f, "row groups with fewer rows than the file");
    f->p->rows = sum;
    return !f->in.bad;
}

int pl_parquet_open(struct parquet **out, struct pl_source *source, struct pl_err *err)
{
    struct footer f = { 0 };
    uint8_t tail[8], head[4], *bytes = NULL;
    uint32_t n;
    int rc;
    *out = NULL;
    if (source->size < 12)
        return pl_fail(err, PL_EFORMAT, "%s: %llu bytes, a Parquet file has at least 12",
                       source->name, (unsigned long long)source->size);
    if ((rc = pl_source_read(source, 0, head, 4, err)) ||
        (rc = pl_source_read(source, source->size - 8, tail, 8, err)))
        return rc;
    if (!memcmp(tail + 4, "PARE", 4))
        return pl_fail(err, PL_EFORMAT, "%s: an encrypted Parquet file", source->name);
    if (memcmp(head, "PAR1", 4) || memcmp(tail + 4, "PAR1", 4))
        return pl_fail(
            err, PL_EFORMAT,
            "%s: not a Parquet file, or a truncated one: it must begin and end with PAR1",
            source->name);
    n = pl_le32(tail);
    if (n > PARQUET_FOOTER_MAX || n > source->size - 12)
        return pl_fail(err, PL_ELIMIT, "%s: footer of %u bytes in a file of %llu (at most %u)",
                       source->name, n, (unsigned long long)source->size, PARQUET_FOOTER_MAX);
    f.p = calloc(1, sizeof *f.p);
    bytes = malloc((size_t)n + 1);
    if (!f.p || !bytes) {
        rc = pl_fail(err, PL_ENOMEM, "%s: no memory for a footer of %u bytes", source->name, n);
        goto done;
    }
    f.p->source = source;
    if ((rc = pl_source_read(source, source->size - 8 - n, bytes, n, err))) goto done;
    f.in = (struct thrift_in){ .p = bytes, .end = bytes + n };
    if (!parse(&f)) {
        rc = f.no_memory ? PL_ENOMEM : PL_EFORMAT;
        pl_fail(err, rc, "%s: Parquet footer: %s", source->name,
                f.wrong ? f.wrong : "malformed Thrift");
        goto done;
    }
    *out = f.p;
    f.p = NULL;
done:
    for (size_t i = 0; i < f.elements; i++) free(f.element[i].name);
    free(f.element);
    free(bytes);
    pl_parquet_close(f.p);
    return rc;
}

void pl_parquet_close(struct parquet *p)
{
    if (!p) return;
    for (size_t i = 0; i < p->columns; i++) free(p->column[i].name);
    for (size_t i = 0; i < p->groups; i++) free(p->group[i].chunks);
    for (size_t i = 0; i < p->metas; i++) {
        free(p->meta_key[i]);
        free(p->meta_value[i]);
    }
    free(p->meta_key);
    free(p->meta_value);
    free(p->column);
    free(p->group);
    free(p);
}

int pl_parquet_find(const struct parquet *p, const char *name)
{
    for (size_t i = 0; i < p->columns; i++)
        if (!p->column[i].nested && !strcmp(p->column[i].name, name)) return (int)i;
    return -1;
}

const char *pl_parquet_meta(const struct parquet *p, const char *key)
{
    for (size_t i = 0; i < p->metas; i++)
        if (p->meta_key[i] && p->meta_value[i] && !strcmp(p->meta_key[i], key))
            return p->meta_value[i];
    return NULL;
}
