/* exif.h - how a camera was held: the one thing that matters here of a picture's EXIF data. */
#ifndef PL_EXIF_H
#define PL_EXIF_H

#include "ref/base.h"

/* The tag Orientation of a TIFF block (what follows "Exif\0\0"): 1 to 8, or 1 where it is not
 * there or makes no sense. 1 is upright; the first row of pixels is then the upper edge of the
 * scene, and 2 to 8 mirror and turn it. [EXIF 2.3, 4.6.4 A] */
int pl_exif_orientation(const void *tiff, size_t bytes);

#endif
