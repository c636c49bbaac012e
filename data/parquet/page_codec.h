/* page_codec.h - the compressions of Parquet's pages, behind one call each way. */
#ifndef PL_PAGE_CODEC_H
#define PL_PAGE_CODEC_H

#include "ref/base.h"

/* Parquet's own numbers. LZO, the two LZ4s and whatever may follow are not read. */
enum pl_codec {
    PL_CODEC_NONE = 0,
    PL_CODEC_SNAPPY = 1,
    PL_CODEC_GZIP = 2,
    PL_CODEC_BROTLI = 4,
    PL_CODEC_ZSTD = 6
};

/* "Brotli"; NULL for a number that is not one of the above. */
const char *pl_page_codec_name(int codec);
/* The codec of a name in small letters ("brotli", ..., "none"), or -1. */
int pl_page_codec_parse(const char *name);

/* Unpacks to exactly out_bytes; PL_EFORMAT if the input is damaged or gives another length. */
int pl_page_codec_unpack(void *out, size_t out_bytes, const void *in, size_t in_bytes,
                         enum pl_codec codec);

/* Packs into new memory (free with free()). level: the codec's own (Brotli 0-11, gzip 1-9,
 * Zstandard 1-22; the others have none), clamped. */
int pl_page_codec_pack(void **out, size_t *out_bytes, const void *in, size_t in_bytes,
                       enum pl_codec codec, int level);

#endif
