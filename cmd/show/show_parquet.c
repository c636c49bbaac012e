/* show_parquet.c - a table: its columns, how well they are packed, and its rows. */
#include "show.h"
#include "cmd/common/plural.h"
#include "data/parquet/parquet_read.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_hex(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) printf("%02x", bytes[i]);
}

/* Codes are 16-bit numbers, little-endian; a square of them is printed as one. */
static void print_codes(const uint8_t *bytes, size_t n, int all)
{
    size_t count = n / 2, side = 1, shown = all || count < 8 ? count : 8;
    while (side * side < count) side++;
    if (side * side != count) side = count;
    for (size_t i = 0; i < shown; i++)
        printf("%s%d",
               all && side && i % side == 0 ? "\n    "
               : i                          ? " "
                                            : "",
               bytes[2 * i] | bytes[2 * i + 1] << 8);
    if (shown < count) printf(" ... (%zu codes)", count);
}

static void print_value(const struct parquet_column *column, const struct parquet_value *v,
                        const struct show_options *show)
{
    if (v->null) {
        fputs("null", stdout);
        return;
    }
    switch (column->type) {
    case PARQUET_BOOLEAN: fputs(v->integer ? "true" : "false", stdout); break;
    case PARQUET_INT32:
    case PARQUET_INT64: printf("%lld", (long long)v->integer); break;
    case PARQUET_FLOAT:
    case PARQUET_DOUBLE:
        if (show->json && !isfinite(v->real)) fputs("null", stdout); /* JSON has no word for it */
        else printf("%.17g", v->real);
        break;
    default:
        if (column->text) {
            putchar('"');
            show_text((const char *)v->bytes, v->length, show->json);
            putchar('"');
        } else if (show->json) {
            putchar('"');
            print_hex(v->bytes, v->length);
            putchar('"');
        } else if (!strcmp(column->name, "code") && v->length % 2 == 0)
            print_codes(v->bytes, v->length, show->caption != NULL);
        else {
            print_hex(v->bytes, v->length > 16 ? 16 : v->length);
            if (v->length > 16) printf("... (%zu bytes)", v->length);
        }
    }
}

static void print_row(const struct parquet *p, const struct parquet_value *row, uint64_t number,
                      const struct show_options *show)
{
    int first = 1;
    if (show->json) putchar('{');
    else printf("row %llu\n", (unsigned long long)number);
    for (size_t i = 0; i < p->columns; i++) {
        if (p->column[i].nested) continue;
        if (show->json) {
            printf("%s\"", first ? "" : ", ");
            show_text(p->column[i].name, strlen(p->column[i].name), 1);
            fputs("\": ", stdout);
        } else printf("  %s: ", p->column[i].name);
        first = 0;
        print_value(&p->column[i], &row[i], show);
        if (!show->json) putchar('\n');
    }
    if (show->json) puts("}");
}

static int wanted(const struct parquet_value *row, int caption, const struct show_options *show)
{
    if (!show->caption) return 1;
    return !row[caption].null && memmem(row[caption].bytes, row[caption].length, show->caption,
                                        strlen(show->caption)) != NULL;
}

static int print_group(struct parquet *p, size_t group, uint64_t first, int caption, int64_t *left,
                       const struct show_options *show, struct pl_err *err)
{
    struct parquet_cursor **cursor = calloc(p->columns, sizeof *cursor);
    struct parquet_value *row = calloc(p->columns, sizeof *row);
    int rc = cursor && row ? PL_OK : pl_fail(err, PL_ENOMEM, "%s: no memory", p->source->name);
    for (size_t i = 0; !rc && i < p->columns; i++)
        if (!p->column[i].nested) rc = pl_parquet_cursor_open(&cursor[i], p, group, i, err);
    for (uint64_t r = 0; !rc && *left > 0 && r < p->group[group].rows; r++) {
        for (size_t i = 0; !rc && i < p->columns; i++)
            if (cursor[i]) rc = pl_parquet_cursor_next(cursor[i], &row[i], err);
        if (!rc && wanted(row, caption, show)) {
            print_row(p, row, first + r, show);
            --*left;
        }
    }
    for (size_t i = 0; cursor && i < p->columns; i++) pl_parquet_cursor_close(cursor[i]);
    free(cursor);
    free(row);
    return rc;
}

static void print_columns(const struct parquet *p)
{
    printf("%s: Parquet, %llu row%s in %zu row group%s, %llu bytes\n", p->source->name,
           (unsigned long long)p->rows, PLURAL(p->rows), p->groups, PLURAL(p->groups),
           (unsigned long long)p->source->size);
    for (size_t i = 0; i < p->columns; i++) {
        const struct parquet_column *c = &p->column[i];
        const char *codec = p->groups ? pl_page_codec_name(p->group[0].chunks[i].codec) : "none";
        uint64_t bytes = 0;
        for (size_t g = 0; g < p->groups; g++)
            bytes += p->group[g].chunks[i].end - p->group[g].chunks[i].begin;
        printf("  %-20s %s%s%s, %llu bytes in pages packed by %s\n", c->name,
               c->nested ? "nested " : "", c->text ? "text" : pl_parquet_type_name(c->type),
               c->optional ? " or null" : "", (unsigned long long)bytes,
               codec ? codec : "an unknown codec");
    }
    for (size_t i = 0; i < p->metas; i++)
        if (p->meta_key[i] && p->meta_value[i])
            printf("  (%s: %.200s)\n", p->meta_key[i], p->meta_value[i]);
}

int show_parquet(struct pl_source *source, const struct show_options *show, struct pl_err *err)
{
    struct parquet *p;
    int64_t left = show->json || show->caption ? INT64_MAX : show->rows;
    uint64_t first = 0;
    int rc = pl_parquet_open(&p, source, err), caption = -1;
    if (rc) return rc;
    if (!show->json) print_columns(p);
    if (show->caption) {
        caption = pl_parquet_find(p, "caption");
        if (caption < 0 || p->column[caption].type != PARQUET_BYTES)
            rc = pl_fail(err, PL_EUSE, "%s: no column 'caption' of text", source->name);
    }
    for (size_t g = 0; !rc && left > 0 && g < p->groups; first += p->group[g++].rows)
        rc = print_group(p, g, first, caption, &left, show, err);
    pl_parquet_close(p);
    return rc;
}
