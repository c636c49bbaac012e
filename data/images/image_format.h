/* image_format.h - the three decoders behind image_decode.c. On error the caller clears `image`. */
#ifndef PL_IMAGE_FORMAT_H
#define PL_IMAGE_FORMAT_H

#include "ref/base.h"

struct pl_image;
typedef int image_decode_fn(struct pl_image *image, const uint8_t *data, size_t bytes,
                            const char *name, struct pl_err *err);

image_decode_fn pl_image_decode_png, pl_image_decode_jpeg, pl_image_decode_webp;

/* Checks the claimed size against the limits for a file of `bytes` bytes. PL_OK, or PL_ELIMIT with
 * a message. */
int pl_image_check_size(uint64_t width, uint64_t height, size_t bytes, const char *name,
                        struct pl_err *err);

/* Checks the claimed size, then allocates it. */
int pl_image_allocate(struct pl_image *image, uint64_t width, uint64_t height, int channels,
                      size_t bytes, const char *name, struct pl_err *err);

#endif
