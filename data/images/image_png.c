/* image_png.c - PNG by libpng. libpng reports errors by longjmp, so variables that must survive one
 * are in a struct of the caller. */
#include "data/files/buffer.h"
#include "data/files/file.h"
#include "image.h"
#include "image_format.h"

#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

struct input {
    const uint8_t *data;
    size_t bytes, at;
    char why[160];
    int no_memory; /* an allocation failed: the picture may be sound */
    png_bytep *rows;
};

static void on_error(png_structp png, png_const_charp text)
{
    struct input *in = png_get_error_ptr(png);
    strncpy(in->why, text, sizeof in->why - 1);
    png_longjmp(png, 1);
}

static void on_warning(png_structp png, png_const_charp text) {}

static png_voidp allocate(png_structp png, png_alloc_size_t n)
{
    struct input *in = png_get_mem_ptr(png);
    void *p = malloc(n);
    in->no_memory |= !p;
    return p;
}

static void release(png_structp png, png_voidp p) { free(p); }

static void take(png_structp png, png_bytep out, png_size_t n)
{
    struct input *in = png_get_io_ptr(png);
    if (n > in->bytes - in->at) png_error(png, "the file ends too early");
    memcpy(out, in->data + in->at, n);
    in->at += n;
}

/* Grey and RGB are unchanged; a palette becomes RGB (its transparency alpha); 1, 2 and 4 bits
 * become 8; 16 bits lose the low byte. */
static int decode(png_structp png, png_infop info, struct input *in, struct pl_image *image,
                  const char *name, struct pl_err *err)
{
    png_uint_32 width, height;
    int depth, type, rc;
    if (setjmp(png_jmpbuf(png)))
        return in->no_memory ? pl_fail(err, PL_ENOMEM, "%s: no memory", name)
                             : pl_fail(err, PL_EFORMAT, "%s: damaged PNG at byte %zu: %s", name,
                                       in->at, in->why);
    png_set_read_fn(png, in, take);
    png_set_user_limits(png, 0x7fffffff, 0x7fffffff); /* our limits have better error messages */
    png_read_info(png, info);
    png_get_IHDR(png, info, &width, &height, &depth, &type, NULL, NULL, NULL);
    /* Checked before libpng allocates rows: 2^31 - 1 pixels would be gigabytes. */
    rc = pl_image_check_size(width, height, in->bytes, name, err);
    if (rc) return rc;
    if (type == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
    if (type == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(png);
    if (png_get_valid(png, info, PNG_INFO_tRNS)) png_set_tRNS_to_alpha(png);
    if (depth == 16) png_set_strip_16(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    rc = pl_image_allocate(image, width, height, png_get_channels(png, info), in->bytes, name, err);
    if (rc) return rc;
    image->indexed = type == PNG_COLOR_TYPE_PALETTE || depth == 1;
    in->rows = malloc(height * sizeof *in->rows);
    if (!in->rows) return pl_fail(err, PL_ENOMEM, "%s: no memory", name);
    for (png_uint_32 y = 0; y < height; y++)
        in->rows[y] = image->pixels + (size_t)y * width * (size_t)image->channels;
    png_read_image(png, in->rows);
    png_read_end(png, NULL);
    return PL_OK;
}

int pl_image_decode_png(struct pl_image *image, const uint8_t *data, size_t bytes, const char *name,
                        struct pl_err *err)
{
    struct input in = { .data = data, .bytes = bytes };
    png_structp png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, &in, on_error, on_warning,
                                               &in, allocate, release);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    int rc = info ? decode(png, info, &in, image, name, err)
                  : pl_fail(err, PL_ENOMEM, "%s: no memory", name);
    free(in.rows);
    if (png) png_destroy_read_struct(&png, &info, NULL);
    return rc;
}

static void give(png_structp png, png_bytep data, png_size_t n)
{
    pl_buffer_add(png_get_io_ptr(png), data, n);
}

static void nothing_to_flush(png_structp png) {}

static int encode(png_structp png, png_infop info, struct pl_buffer *out,
                  const struct pl_image *image)
{
    static const int type[] = { 0, PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA,
                                PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA };
    if (setjmp(png_jmpbuf(png))) return PL_ENOMEM;
    png_set_write_fn(png, out, give, nothing_to_flush);
    png_set_IHDR(png, info, (png_uint_32)image->width, (png_uint_32)image->height, 8,
                 type[image->channels], PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    for (int y = 0; y < image->height; y++)
        png_write_row(png,
                      image->pixels + (size_t)y * (size_t)image->width * (size_t)image->channels);
    png_write_end(png, info);
    return out->failed ? PL_ENOMEM : PL_OK;
}

int pl_image_encode_png(void **data, size_t *bytes, const struct pl_image *image)
{
    struct pl_buffer out = { 0 };
    struct input in = { 0 };
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &in, on_error, on_warning);
    png_infop info = png ? png_create_info_struct(png) : NULL;
    int rc = info ? encode(png, info, &out, image) : PL_ENOMEM;
    if (png) png_destroy_write_struct(&png, &info);
    if (rc) pl_buffer_clear(&out);
    *data = out.data;
    *bytes = out.bytes;
    return rc;
}

int pl_image_write_png(const char *path, const struct pl_image *image, struct pl_err *err)
{
    void *data;
    size_t bytes;
    int rc = pl_image_encode_png(&data, &bytes, image);
    if (rc) return pl_fail(err, rc, "%s: no memory", path);
    rc = pl_file_write(path, data, bytes, err);
    free(data);
    return rc;
}
