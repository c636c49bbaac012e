/* image.h - decodes PNG, JPEG and WebP to 8-bit pixels, and encodes PNG. */
#ifndef PL_IMAGE_H
#define PL_IMAGE_H

#include "ref/base.h"

/* Limits on what a file may claim, so that a damaged or hostile header costs no memory: larger
 * pictures are refused before their pixels are allocated. */
#define IMAGE_SIDE_MAX 32768
#define IMAGE_PIXELS_MAX (100L << 20) /* a 100-megapixel photograph */
#define IMAGE_FILE_MAX (256u << 20)   /* bytes of a file */
/* A small file with more pixels than this per byte is a decompression bomb, or blank: */
#define IMAGE_PIXELS_PER_BYTE 4096
#define IMAGE_PIXELS_FREE (4L << 20) /* any file may have this many pixels */

struct pl_image {
    int width, height;
    int channels; /* 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA (alpha not premultiplied) */
    /* from a palette or 1-bit file: resized by nearest neighbour [spec images-and-text 2.2] */
    int indexed;
    int orientation; /* EXIF orientation 2 to 8 if the pixels are not upright; else 0 or 1 */
    uint8_t *pixels; /* rows top down, channels interleaved; pl_image_clear frees it */
};

/* Allocates black (transparent) pixels. PL_ELIMIT beyond the limits above; the image is then
 * empty. */
int pl_image_init(struct pl_image *image, int width, int height, int channels);
void pl_image_clear(struct pl_image *image);

/* Decodes by content, not by the file's name; err calls the image `name`. Colour profiles and gamma
 * are ignored, as in DALLE-pytorch's loader; of 16-bit samples the high byte is used. EXIF
 * orientation is recorded, see pl_image_upright. On error the image is empty. */
int pl_image_decode(struct pl_image *image, const void *data, size_t bytes, const char *name,
                    struct pl_err *err);
int pl_image_read(struct pl_image *image, const char *path, struct pl_err *err);

/* Converts to three channels in place: grey is repeated; alpha is dropped, or blended with white.
 * PL_OK or PL_ENOMEM. */
enum pl_alpha { PL_ALPHA_DROP, PL_ALPHA_WHITE };
int pl_image_rgb(struct pl_image *image, enum pl_alpha alpha);

/* Rotates and mirrors the pixels until `orientation` is 1. PL_OK or PL_ENOMEM. */
int pl_image_upright(struct pl_image *image);

/* Copies the rectangle at (left, top), which may be empty (0 x 0). PL_EUSE if it is not inside. */
int pl_image_crop(struct pl_image *out, const struct pl_image *in, int left, int top, int width,
                  int height);

/* PNG with 8 bits per sample. The first returns bytes (free with free()); the second writes a file,
 * complete or not at all. */
int pl_image_encode_png(void **data, size_t *bytes, const struct pl_image *image);
int pl_image_write_png(const char *path, const struct pl_image *image, struct pl_err *err);

#endif
