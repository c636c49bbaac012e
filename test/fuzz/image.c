/* image.c - any bytes as a picture, made square. */
#include "data/images/resize.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct pl_image image, square;
    struct pl_err err;
    if (pl_image_decode(&image, data, bytes, "fuzz", &err)) return 0;
    if ((long)image.width * image.height < 1 << 16 &&
        !pl_resize_square(&square, &image, 16, PL_BICUBIC)) {
        if (!pl_image_rgb(&square, PL_ALPHA_WHITE) && square.channels != 3) abort();
        pl_image_clear(&square);
    }
    pl_image_clear(&image);
    return 0;
}
