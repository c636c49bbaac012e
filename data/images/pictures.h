/* pictures.h - a set of square pictures in memory, as planes of bytes (the layout of model
 * inputs). */
#ifndef PL_PICTURES_H
#define PL_PICTURES_H

#include "image.h"

struct pl_pictures {
    int side;
    size_t count;
    uint8_t *pixels; /* (count,3,side,side) */
    char **name;     /* file names, without the folder, sorted */
};

/* Reads every PNG, JPEG and WebP of a folder, or one file: converted to RGB over white, the short
 * side resized to `side` (bicubic), the centre square cropped. err names the file that fails.
 * PL_ENOTFOUND if there is none. */
int pl_pictures_read(struct pl_pictures *p, const char *path, int side, struct pl_err *err);
void pl_pictures_clear(struct pl_pictures *p);

/* Converts planes (3,height,width) to an image, which the caller clears. */
int pl_picture_image(struct pl_image *image, const uint8_t *planes, int width, int height);

#endif
