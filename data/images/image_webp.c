/* image_webp.c - WebP still pictures by libwebp. */
#include "image.h"
#include "image_format.h"

#include <webp/decode.h>

int pl_image_decode_webp(struct pl_image *image, const uint8_t *data, size_t bytes,
                         const char *name, struct pl_err *err)
{
    WebPBitstreamFeatures f;
    size_t stride, capacity;
    uint8_t *done;
    int rc;
    if (WebPGetFeatures(data, bytes, &f) != VP8_STATUS_OK)
        return pl_fail(err, PL_EFORMAT, "%s: damaged WebP header", name);
    if (f.has_animation)
        return pl_fail(err, PL_EFORMAT, "%s: an animated WebP; a still picture was expected", name);
    rc = pl_image_allocate(image, (uint64_t)f.width, (uint64_t)f.height, f.has_alpha ? 4 : 3, bytes,
                           name, err);
    if (rc) return rc;
    stride = (size_t)image->width * (size_t)image->channels;
    capacity = stride * (size_t)image->height;
    done = f.has_alpha ? WebPDecodeRGBAInto(data, bytes, image->pixels, capacity, (int)stride)
                       : WebPDecodeRGBInto(data, bytes, image->pixels, capacity, (int)stride);
    return done ? PL_OK : pl_fail(err, PL_EFORMAT, "%s: damaged or truncated WebP", name);
}
