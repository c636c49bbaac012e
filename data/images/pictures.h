/* pictures.h - a set of square pictures in memory, as models take them: planes of bytes. */
#ifndef PL_PICTURES_H
#define PL_PICTURES_H

#include "image.h"

struct pl_pictures {
    int side;
    size_t count;
    uint8_t *pixels; /* (count,3,side,side) */
    char **name;     /* file names, without the folder, sorted */
};

/* Every PNG, JPEG and WebP of a folder, or one file: to RGB over white, the short side to `side`
 * (bicubic), the centre square. err names the file that fails. At least one picture. */
int pl_pictures_read(struct pl_pictures *p, const char *path, int side, struct pl_err *err);
void pl_pictures_clear(struct pl_pictures *p);

/* Planes (3,height,width) to an image; the caller clears it. */
int pl_picture_image(struct pl_image *image, const uint8_t *planes, int width, int height);

#endif
