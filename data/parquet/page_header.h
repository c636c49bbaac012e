/* page_header.h - the header before each page of a Parquet file. [parquet-format: PageHeader] */
#ifndef PL_PAGE_HEADER_H
#define PL_PAGE_HEADER_H

#include "thrift.h"

enum page_type { PAGE_DATA = 0, PAGE_INDEX = 1, PAGE_DICTIONARY = 2, PAGE_DATA_V2 = 3 };
enum encoding { PLAIN = 0, PLAIN_DICTIONARY = 2, RLE = 3, BIT_PACKED = 4, RLE_DICTIONARY = 8 };

struct page_header {
    int64_t type, unpacked, packed, values, encoding;
    int64_t definition_encoding;                /* version 1 */
    int64_t definition_bytes, repetition_bytes; /* version 2 */
    int64_t is_packed;
    int has_crc;
    uint32_t crc;
};

/* Parses a header; fields that are absent are -1. Malformed input sets in->bad. The caller checks
 * every number before using it. */
void pl_parquet_parse_header(struct page_header *h, struct thrift_in *in);

#endif
