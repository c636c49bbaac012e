/* png.h - a figure as PNG, for pages that cannot show SVG. */
#ifndef PL_LAB_PNG_H
#define PL_LAB_PNG_H

#include "ref/base.h"

/* Draws an SVG document, as figure.h writes it, into a PNG file, two pixels a unit. librsvg draws
 * it, and is loaded here, so that everything else works without it: PL_ENOTFOUND and a sentence if
 * it is missing. */
int lab_png_write(const char *path, const char *svg, size_t bytes, struct pl_err *err);

#endif
