/* plot.h - plots of curves as pictures, so that a run can show its loss without another program. */
#ifndef PL_PLOT_H
#define PL_PLOT_H

#include "image.h"

struct pl_curve {
    const char *label; /* in the legend; NULL: none */
    const double *x, *y;
    size_t count; /* points in order of x; a point that is not finite interrupts the line */
    uint8_t colour[3];
};

struct pl_plot {
    const char *title, *x_label, *y_label; /* ASCII; or NULL */
    int width, height;                     /* pixels of the whole picture; 0: 960 x 600 */
    int log_x, log_y;                      /* values <= 0 are then omitted */
};

/* Draws on a new RGB picture, which the caller clears. Axes span the curves' finite points. */
int pl_plot_draw(struct pl_image *out, const struct pl_plot *plot, const struct pl_curve *curves,
                 size_t count);

/* Distinct colours, also for colour-blind readers; i counts up from 0. */
void pl_plot_colour(uint8_t colour[3], size_t i);

#endif
