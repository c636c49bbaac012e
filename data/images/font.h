/* font.h - a small bitmap font for labels of contact sheets. */
#ifndef PL_FONT_H
#define PL_FONT_H

#include "image.h"

#define FONT_WIDTH 6 /* from one letter to the next */
#define FONT_HEIGHT 7

/* Draws text on an RGB image, clipped at its edges; a character without a glyph is drawn as a box.
 * scale: pixels per dot. */
void pl_font_text(struct pl_image *image, int left, int top, const char *text, int scale,
                  const uint8_t colour[3]);

#endif
