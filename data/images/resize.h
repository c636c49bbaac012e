/* resize.h - resampling as Pillow (to 12) does it, byte for byte: what CLIP's and DALLE-pytorch's
 * loaders run. [spec images-and-text 2.2, 2.3] */
#ifndef PL_RESIZE_H
#define PL_RESIZE_H

#include "image.h"

enum pl_filter { PL_BILINEAR, PL_BICUBIC };

/* Shrinking widens the filter, so it does not alias. Pictures with alpha are premultiplied and
 * divided again; indexed ones go by nearest whatever the filter. Of an empty one all becomes 0, as
 * with Pillow. */
int pl_resize(struct pl_image *out, const struct pl_image *in, int width, int height,
              enum pl_filter filter);

/* Short side to `side`, long side in proportion (rounded down), then the centre square.
 * [spec images-and-text 2.2] */
int pl_resize_square(struct pl_image *out, const struct pl_image *in, int side,
                     enum pl_filter filter);

#endif
