/* page_codec.h - compression of Parquet's pages. */
#ifndef PL_PAGE_CODEC_H
#define PL_PAGE_CODEC_H

#include "ref/base.h"

/* Parquet's codec numbers. LZO and LZ4 are not supported. */
enum pl_codec {
    PL_CODEC_NONE = 0,
    PL_CODEC_SNAPPY = 1,
    PL_CODEC_GZIP = 2,
    PL_CODEC_BROTLI = 4,
    PL_CODEC_ZSTD = 6
};

/* "Brotli"; NULL for another number. */
const char *pl_page_codec_name(int codec);

/* Decompresses to exactly out_bytes; PL_EFORMAT if the input is damaged or has another length. */
int pl_page_codec_unpack(void *out, size_t out_bytes, const void *in, size_t in_bytes,
                         enum pl_codec codec);

/* Compresses into new memory (free with free()). level: the codec's own scale (Brotli 0-11, gzip
 * 1-9, Zstandard 1-22; ignored by the others), clamped. */
int pl_page_codec_pack(void **out, size_t *out_bytes, const void *in, size_t in_bytes,
                       enum pl_codec codec, int level);

#endif
