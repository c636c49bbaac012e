/* page_codec.c - one function pair over five compression libraries, selected by Parquet's codec
 * number. */
#include "page_codec.h"

#include <brotli/decode.h>
#include <brotli/encode.h>
#include <limits.h>
#include <setjmp.h>
#include <snappy-c.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

#define GZIP_WINDOW (15 + 16) /* zlib's code for a 32 KiB window and a gzip header */

static const struct {
    int codec;
    const char *name;
} names[] = {
    { PL_CODEC_NONE, "none" },     { PL_CODEC_SNAPPY, "Snappy" }, { PL_CODEC_GZIP, "gzip" },
    { PL_CODEC_BROTLI, "Brotli" }, { PL_CODEC_ZSTD, "Zstd" },
};

const char *pl_page_codec_name(int codec)
{
    for (size_t i = 0; i < PL_COUNT(names); i++)
        if (names[i].codec == codec) return names[i].name;
    return NULL;
}

/* A gzip stream may consist of several, one after the other. */
static int gunzip(uint8_t *out, size_t out_bytes, const uint8_t *in, size_t in_bytes)
{
    z_stream z;
    int rc;
    memset(&z, 0, sizeof z);
    if (in_bytes > UINT_MAX || out_bytes > UINT_MAX) return PL_ELIMIT;
    z.next_in = (Bytef *)(uintptr_t)in;
    z.avail_in = (uInt)in_bytes;
    z.next_out = out;
    z.avail_out = (uInt)out_bytes;
    if (inflateInit2(&z, GZIP_WINDOW) != Z_OK) return PL_ENOMEM;
    while ((rc = inflate(&z, Z_FINISH)) == Z_STREAM_END && z.avail_in)
        if (inflateReset(&z) != Z_OK) break;
    inflateEnd(&z);
    return rc == Z_STREAM_END && !z.avail_out ? PL_OK : PL_EFORMAT;
}

int pl_page_codec_unpack(void *out, size_t out_bytes, const void *in, size_t in_bytes,
                         enum pl_codec codec)
{
    size_t n = out_bytes;
    switch (codec) {
    case PL_CODEC_NONE:
        if (in_bytes != out_bytes) return PL_EFORMAT;
        memcpy(out, in, in_bytes);
        return PL_OK;
    case PL_CODEC_SNAPPY:
        if (snappy_uncompressed_length(in, in_bytes, &n) != SNAPPY_OK || n != out_bytes ||
            snappy_uncompress(in, in_bytes, out, &n) != SNAPPY_OK)
            return PL_EFORMAT;
        break;
    case PL_CODEC_GZIP: return gunzip(out, out_bytes, in, in_bytes);
    case PL_CODEC_BROTLI:
        if (BrotliDecoderDecompress(in_bytes, in, &n, out) != BROTLI_DECODER_RESULT_SUCCESS)
            return PL_EFORMAT;
        break;
    case PL_CODEC_ZSTD:
        n = ZSTD_decompress(out, out_bytes, in, in_bytes);
        if (ZSTD_isError(n)) return PL_EFORMAT;
        break;
    default: return PL_EFORMAT;
    }
    return n == out_bytes ? PL_OK : PL_EFORMAT;
}

static int clamp(int x, int low, int high) { return x < low ? low : x > high ? high : x; }

static int gzip(uint8_t *out, size_t *n, const uint8_t *in, size_t in_bytes, int level)
{
    z_stream z;
    int rc;
    memset(&z, 0, sizeof z);
    if (in_bytes > UINT_MAX || *n > UINT_MAX) return PL_ELIMIT;
    if (deflateInit2(&z, level, Z_DEFLATED, GZIP_WINDOW, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return PL_ENOMEM;
    z.next_in = (Bytef *)(uintptr_t)in;
    z.avail_in = (uInt)in_bytes;
    z.next_out = out;
    z.avail_out = (uInt)*n;
    rc = deflate(&z, Z_FINISH);
    *n = z.total_out;
    deflateEnd(&z);
    return rc == Z_STREAM_END ? PL_OK : PL_ENOMEM;
}

static size_t bound(size_t in_bytes, enum pl_codec codec)
{
    switch (codec) {
    case PL_CODEC_NONE: return in_bytes;
    case PL_CODEC_SNAPPY: return snappy_max_compressed_length(in_bytes);
    case PL_CODEC_GZIP: return compressBound(in_bytes) + 32;
    case PL_CODEC_BROTLI: return BrotliEncoderMaxCompressedSize(in_bytes);
    case PL_CODEC_ZSTD: return ZSTD_compressBound(in_bytes);
    }
    return 0;
}

/* Brotli's encoder (1.0) ends the process if it gets no memory. So it gets an allocator that does
 * not return then, and its allocations are freed here, from a list. */
struct brotli_block {
    struct brotli_block *next, **link; /* link: the pointer to this one */
    max_align_t data[];
};
struct brotli {
    struct brotli_block *blocks;
    jmp_buf no_memory;
};

static void *brotli_allocate(void *context, size_t n)
{
    struct brotli *b = context;
    struct brotli_block *block = n < PTRDIFF_MAX ? malloc(sizeof *block + n) : NULL;
    if (!block) longjmp(b->no_memory, 1);
    block->next = b->blocks;
    block->link = &b->blocks;
    if (block->next) block->next->link = &block->next;
    b->blocks = block;
    return block->data;
}

static void brotli_release(void *context, void *data)
{
    struct brotli_block *block;
    if (!data) return;
    block = (struct brotli_block *)((char *)data - offsetof(struct brotli_block, data));
    *block->link = block->next;
    if (block->next) block->next->link = block->link;
    free(block);
}

/* In a function of its own, whose variables nobody needs after a longjmp. */
static int brotli_encode(struct brotli *b, uint8_t *out, size_t *out_bytes, const uint8_t *in,
                         size_t in_bytes, int level)
{
    BrotliEncoderState *state;
    size_t capacity = *out_bytes;
    int done;
    if (setjmp(b->no_memory)) return PL_ENOMEM;
    state = BrotliEncoderCreateInstance(brotli_allocate, brotli_release, b);
    BrotliEncoderSetParameter(state, BROTLI_PARAM_QUALITY, (uint32_t)level);
    BrotliEncoderSetParameter(state, BROTLI_PARAM_LGWIN, BROTLI_DEFAULT_WINDOW);
    BrotliEncoderSetParameter(state, BROTLI_PARAM_SIZE_HINT, (uint32_t)in_bytes);
    done = BrotliEncoderCompressStream(state, BROTLI_OPERATION_FINISH, &in_bytes, &in, &capacity,
                                       &out, NULL) &&
           BrotliEncoderIsFinished(state);
    *out_bytes -= capacity;
    BrotliEncoderDestroyInstance(state);
    return done ? PL_OK : PL_ELIMIT;
}

static int brotli(uint8_t *out, size_t *out_bytes, const uint8_t *in, size_t in_bytes, int level)
{
    struct brotli b = { 0 };
    int rc = brotli_encode(&b, out, out_bytes, in, in_bytes, level);
    while (b.blocks) brotli_release(&b, b.blocks->data);
    return rc;
}

int pl_page_codec_pack(void **out, size_t *out_bytes, const void *in, size_t in_bytes,
                       enum pl_codec codec, int level)
{
    size_t n = bound(in_bytes, codec);
    void *capacity = malloc(n + 1);
    int rc = PL_OK;
    *out = NULL;
    *out_bytes = 0;
    if (!capacity) return PL_ENOMEM;
    switch (codec) {
    case PL_CODEC_NONE:
        if (n) memcpy(capacity, in, n);
        break;
    case PL_CODEC_SNAPPY:
        if (snappy_compress(in, in_bytes, capacity, &n) != SNAPPY_OK) rc = PL_ENOMEM;
        break;
    case PL_CODEC_GZIP: rc = gzip(capacity, &n, in, in_bytes, clamp(level, 1, 9)); break;
    case PL_CODEC_BROTLI:
        /* The bound of the compressed size holds from quality 2 on. */
        rc = brotli(capacity, &n, in, in_bytes, clamp(level, 2, 11));
        break;
    case PL_CODEC_ZSTD:
        n = ZSTD_compress(capacity, n, in, in_bytes, clamp(level, 1, ZSTD_maxCLevel()));
        if (ZSTD_isError(n)) rc = PL_ENOMEM;
        break;
    default: rc = PL_EUSE;
    }
    if (rc) {
        free(capacity);
        return rc;
    }
    *out = capacity;
    *out_bytes = n;
    return PL_OK;
}
