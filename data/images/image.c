/* image.c - operations on decoded pixels: memory, RGB conversion, orientation, cropping. */
#include "image.h"
#include "image_format.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int pl_image_init(struct pl_image *image, int width, int height, int channels)
{
    memset(image, 0, sizeof *image);
    assert(channels >= 1 && channels <= 4);
    if (width < 1 || height < 1 || width > IMAGE_SIDE_MAX || height > IMAGE_SIDE_MAX ||
        (long)width * height > IMAGE_PIXELS_MAX)
        return PL_ELIMIT;
    image->pixels = calloc((size_t)width * (size_t)height, (size_t)channels);
    if (!image->pixels) return PL_ENOMEM;
    image->width = width;
    image->height = height;
    image->channels = channels;
    return PL_OK;
}

void pl_image_clear(struct pl_image *image)
{
    free(image->pixels);
    memset(image, 0, sizeof *image);
}

int pl_image_check_size(uint64_t width, uint64_t height, size_t bytes, const char *name,
                        struct pl_err *err)
{
    unsigned long long w = width, h = height;
    if (w < 1 || h < 1 || w > IMAGE_SIDE_MAX || h > IMAGE_SIDE_MAX || w * h > IMAGE_PIXELS_MAX)
        return pl_fail(err, PL_ELIMIT,
                       "%s: %llu x %llu pixels; the limits are sides of 1 to %d and %ld pixels",
                       name, w, h, IMAGE_SIDE_MAX, IMAGE_PIXELS_MAX);
    if (w * h > IMAGE_PIXELS_FREE && w * h / IMAGE_PIXELS_PER_BYTE > bytes)
        return pl_fail(err, PL_ELIMIT,
                       "%s: %llu x %llu pixels in %zu bytes; the limit is %d per byte", name, w, h,
                       bytes, IMAGE_PIXELS_PER_BYTE);
    return PL_OK;
}

int pl_image_allocate(struct pl_image *image, uint64_t width, uint64_t height, int channels,
                      size_t bytes, const char *name, struct pl_err *err)
{
    int rc = pl_image_check_size(width, height, bytes, name, err);
    if (rc) return rc;
    rc = pl_image_init(image, (int)width, (int)height, channels);
    return rc ? pl_fail(err, rc, "%s: no memory for %d x %d pixels", name, (int)width, (int)height)
              : PL_OK;
}

/* c * a / 255 rounded, for bytes. */
static unsigned scale(unsigned c, unsigned a)
{
    unsigned t = c * a + 128;
    return ((t >> 8) + t) >> 8;
}

int pl_image_rgb(struct pl_image *image, enum pl_alpha alpha)
{
    struct pl_image out;
    int n = image->channels, colours = n >= 3 ? 3 : 1, rc;
    if (n == 3) return PL_OK;
    rc = pl_image_init(&out, image->width, image->height, 3);
    if (rc) return rc;
    for (size_t i = 0, pixels = (size_t)out.width * (size_t)out.height; i < pixels; i++) {
        const uint8_t *from = image->pixels + i * (size_t)n;
        unsigned a = alpha == PL_ALPHA_WHITE && n % 2 == 0 ? from[n - 1] : 255;
        for (int c = 0; c < 3; c++)
            out.pixels[3 * i + (size_t)c] = (uint8_t)(scale(from[c % colours], a) + 255 - a);
    }
    out.indexed = image->indexed;
    out.orientation = image->orientation;
    pl_image_clear(image);
    *image = out;
    return PL_OK;
}

int pl_image_upright(struct pl_image *image)
{
    /* Where pixel (x, y) of the upright picture is stored, for each orientation: mirrored, with
     * axes exchanged. */
    static const struct {
        unsigned char across, down, rotated;
    } orientations[9] = {
        { 0, 0, 0 }, { 0, 0, 0 }, { 1, 0, 0 }, { 1, 1, 0 }, { 0, 1, 0 },
        { 0, 0, 1 }, { 0, 1, 1 }, { 1, 1, 1 }, { 1, 0, 1 },
    };
    int kind = image->orientation, w = image->width, h = image->height, rc;
    size_t n = (size_t)image->channels;
    struct pl_image out;
    if (kind < 2 || kind > 8) return PL_OK;
    if ((rc = pl_image_init(&out, orientations[kind].rotated ? h : w,
                            orientations[kind].rotated ? w : h, image->channels)))
        return rc;
    for (int y = 0; y < out.height; y++)
        for (int x = 0; x < out.width; x++) {
            int u = orientations[kind].rotated ? y : x, v = orientations[kind].rotated ? x : y;
            if (orientations[kind].across) u = w - 1 - u;
            if (orientations[kind].down) v = h - 1 - v;
            memcpy(out.pixels + ((size_t)y * (size_t)out.width + (size_t)x) * n,
                   image->pixels + ((size_t)v * (size_t)w + (size_t)u) * n, n);
        }
    out.indexed = image->indexed;
    out.orientation = 1;
    pl_image_clear(image);
    *image = out;
    return PL_OK;
}

int pl_image_crop(struct pl_image *out, const struct pl_image *in, int left, int top, int width,
                  int height)
{
    size_t bytes = (size_t)width * (size_t)in->channels;
    int rc;
    memset(out, 0, sizeof *out);
    if (left < 0 || top < 0 || width < 0 || height < 0 || width > in->width - left ||
        height > in->height - top)
        return PL_EUSE;
    rc = width && height ? pl_image_init(out, width, height, in->channels) : PL_OK;
    if (rc) return rc;
    out->channels = in->channels;
    out->indexed = in->indexed;
    if (!out->pixels) return PL_OK;
    for (int y = 0; y < height; y++)
        memcpy(out->pixels + (size_t)y * bytes,
               in->pixels +
                   ((size_t)(top + y) * (size_t)in->width + (size_t)left) * (size_t)in->channels,
               bytes);
    return PL_OK;
}
