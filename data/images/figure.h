/* figure.h - figures as SVG text: lines over two axes, bars over time, pictures with labels. Text
 * is the browser's, so no font is needed. */
#ifndef PL_FIGURE_H
#define PL_FIGURE_H

#include <stddef.h>
#include <stdio.h>

#define FIGURE_COLOURS 16

struct figure_line {
    const char *label;
    const double *x, *y; /* a point that is not finite is left out */
    size_t count;
};
/* On a logarithmic axis points that are not positive are left out. */
struct figure {
    const char *title, *x_label, *y_label;
    int log_x, log_y;
};
void figure_lines(FILE *out, const struct figure *f, const struct figure_line *line, int lines);

/* A bar of row `row` from one time to another; kind selects colour and legend. */
struct figure_bar {
    int row, kind;
    double from, to;
};
void figure_bars(FILE *out, const char *title, const struct figure_bar *bar, size_t bars,
                 const char *const *row_labels, int rows, const char *const *kind_labels,
                 double begin, double end);

/* Picture files of the SVG's folder in rows, in cells of `side` pixels, each label below its
 * picture. */
struct figure_picture {
    const char *file, *label;
};
void figure_pictures(FILE *out, const struct figure_picture *picture, size_t count, int columns,
                     int side);

/* The text with HTML's and SVG's markup characters replaced. */
void figure_text(FILE *out, const char *text);

#endif
