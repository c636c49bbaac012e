/* image.h - pixels from PNG, JPEG and WebP, and back to PNG. */
#ifndef PL_IMAGE_H
#define PL_IMAGE_H

#include "ref/base.h"

/* A damaged or hostile header must not cost memory: anything larger than a big photograph is
 * refused before its pixels are allocated. */
#define IMAGE_SIDE_MAX 32768
#define IMAGE_PIXELS_MAX (100L << 20) /* a 100-megapixel photograph */
#define IMAGE_FILE_MAX (256u << 20)   /* bytes of a file */
/* And what claims more than this of a small file is a trap, or blank: */
#define IMAGE_PIXELS_PER_BYTE 4096
#define IMAGE_PIXELS_FREE (4L << 20) /* so many pixels may be any file's */

struct pl_image {
    int width, height;
    int channels; /* 1 grey, 2 grey and alpha, 3 RGB, 4 RGBA (alpha not premultiplied) */
    int indexed; /* came from a palette or from one bit: resized by nearest [spec images-and-text 2.2] */
    int orientation; /* EXIF's, 2 to 8: not upright as the pixels lie; else 0 or 1 */
    uint8_t *pixels; /* rows top down, channels interleaved; pl_image_clear frees it */
};

/* Black (transparent) pixels. PL_ELIMIT beyond the limits above; the image is then empty. */
int pl_image_init(struct pl_image *image, int width, int height, int channels);
void pl_image_clear(struct pl_image *image);

/* Decodes by what the bytes are, not by the file's name; err calls the image `name`. Colour
 * profiles and gamma are ignored, as the original's loader does, and EXIF's rotation is left to
 * pl_image_upright; of 16-bit samples the high byte is kept. On error the image is empty. */
int pl_image_decode(struct pl_image *image, const void *data, size_t bytes, const char *name,
                    struct pl_err *err);
int pl_image_read(struct pl_image *image, const char *path, struct pl_err *err);

/* To three channels in place: grey is repeated; alpha is dropped, or laid over white. */
enum pl_alpha { PL_ALPHA_DROP, PL_ALPHA_WHITE };
int pl_image_rgb(struct pl_image *image, enum pl_alpha alpha);

/* Turns and mirrors the pixels until `orientation` is 1. PL_OK or PL_ENOMEM. */
int pl_image_upright(struct pl_image *image);

/* The rectangle at (left, top), which may be empty (0 x 0, no pixels); PL_EUSE if it does not lie
 * inside. */
int pl_image_crop(struct pl_image *out, const struct pl_image *in, int left, int top, int width,
                  int height);

/* PNG with 8 bits a sample. The first gives the bytes (free with free()); the second writes the
 * file whole or not at all. */
int pl_image_encode_png(void **data, size_t *bytes, const struct pl_image *image);
int pl_image_write_png(const char *path, const struct pl_image *image, struct pl_err *err);

#endif
