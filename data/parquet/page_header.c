/* page_header.c - parses a page's header: a Thrift struct with the page's kind and sizes, and one
 * inner struct for its kind (data, dictionary, data of version 2). */
#include "page_header.h"

#include <string.h>

/* Field numbers of the inner structs. */
enum { HEADER_V1 = 5, HEADER_DICTIONARY = 7, HEADER_V2 = 8 };

/* The fields of the three kinds of inner header, by their numbers. */
static void parse_inner(struct thrift_in *in, struct page_header *h, int kind)
{
    struct thrift_field f = { 0 };
    while (pl_thrift_next(in, &f)) {
        int64_t *slot = NULL;
        if (f.id == 1) slot = &h->values;
        else if (kind == HEADER_V2) {
            if (f.id == 4) slot = &h->encoding;
            else if (f.id == 5) slot = &h->definition_bytes;
            else if (f.id == 6) slot = &h->repetition_bytes;
            else if (f.id == 7) slot = &h->is_packed;
        } else if (f.id == 2) slot = &h->encoding;
        else if (kind == HEADER_V1 && f.id == 3) slot = &h->definition_encoding;
        if (slot) *slot = pl_thrift_integer(in, &f);
        else pl_thrift_skip(in, f.type);
    }
}

void pl_parquet_parse_header(struct page_header *h, struct thrift_in *in)
{
    struct thrift_field f = { 0 };
    memset(h, 0, sizeof *h);
    h->type = h->values = h->packed = h->unpacked = h->encoding = -1;
    h->definition_encoding = RLE;
    h->is_packed = 1;
    while (pl_thrift_next(in, &f)) {
        switch (f.id) {
        case 1: h->type = pl_thrift_integer(in, &f); break;
        case 2: h->unpacked = pl_thrift_integer(in, &f); break;
        case 3: h->packed = pl_thrift_integer(in, &f); break;
        case 4:
            h->crc = (uint32_t)pl_thrift_integer(in, &f);
            h->has_crc = 1;
            break;
        case HEADER_V1:
        case HEADER_DICTIONARY:
        case HEADER_V2:
            if (f.type == THRIFT_STRUCT) {
                parse_inner(in, h, f.id);
                break;
            }
            /* fall through */
        default: pl_thrift_skip(in, f.type);
        }
    }
}
