/* resize.h - image resampling, byte for byte as Pillow (up to 12) does it, which CLIP's and
 * DALLE-pytorch's loaders use. [spec images-and-text 2.2, 2.3] */
#ifndef PL_RESIZE_H
#define PL_RESIZE_H

#include "image.h"

enum pl_filter { PL_BILINEAR, PL_BICUBIC };

/* Resizes to width x height; the caller clears *out. When shrinking, the filter is widened, so that
 * it does not alias. Alpha is premultiplied and divided out again; indexed pictures use nearest
 * neighbour with any filter. An empty picture gives zeros, as in Pillow. */
int pl_resize(struct pl_image *out, const struct pl_image *in, int width, int height,
              enum pl_filter filter);

/* Resizes the short side to `side` and the long side in proportion (rounded down), then crops the
 * centre square. [spec images-and-text 2.2] */
int pl_resize_square(struct pl_image *out, const struct pl_image *in, int side,
                     enum pl_filter filter);

#endif
