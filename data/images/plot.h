/* plot.h - curves over axes, as a picture: how a run reports its loss without any other program. */
#ifndef PL_PLOT_H
#define PL_PLOT_H

#include "image.h"

struct pl_curve {
    const char *label; /* in the legend; NULL: none */
    const double *x, *y;
    size_t count; /* points in order of x; one that is not finite breaks the line */
    uint8_t colour[3];
};

struct pl_plot {
    const char *title, *x_label, *y_label; /* ASCII; NULL: none */
    int width, height;                     /* pixels of the whole picture; 0: 960 x 600 */
    int log_x, log_y;                      /* values <= 0 are then left out */
};

/* Draws on a new RGB picture, which the caller clears. Axes span the curves' finite points. */
int pl_plot_draw(struct pl_image *out, const struct pl_plot *plot, const struct pl_curve *curves,
                 size_t count);

/* Colours that stay apart, also for the colour-blind; i counts up from 0. */
void pl_plot_colour(uint8_t colour[3], size_t i);

#endif
