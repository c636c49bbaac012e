/* exif.h - the orientation of a photograph, from its EXIF data. */
#ifndef PL_EXIF_H
#define PL_EXIF_H

#include "ref/base.h"

/* The tag Orientation of a TIFF block (what follows "Exif\0\0"): 1 to 8; 1 if it is absent or
 * malformed. 1 is upright; 2 to 8 are mirrored and rotated. [EXIF 2.3, 4.6.4 A] */
int pl_exif_orientation(const void *tiff, size_t bytes);

#endif
