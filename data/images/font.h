/* font.h - letters of 5 x 7 pixels for the legends of plots. */
#ifndef PL_FONT_H
#define PL_FONT_H

#include "image.h"

#define FONT_WIDTH 6 /* from one letter to the next */
#define FONT_HEIGHT 7

/* Writes on an RGB image, clipped at its edges; what has no shape here
 * is drawn as a box. scale: pixels per dot. */
void pl_font_text(struct pl_image *image, int left, int top, const char *text, int scale,
                  const uint8_t colour[3]);

#endif
