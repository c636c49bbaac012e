/* plot.c - draws line plots: axes with ticks at 1, 2 or 5 times a power of ten, antialiased curves,
 * and a legend where no curve is in the way. */
#include "plot.h"
#include "font.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TICKS 7 /* about this many labels an axis */

static const uint8_t black[3] = { 40, 40, 40 }, grey[3] = { 225, 225, 225 };

struct axis {
    int log, from, to; /* pixels of the two ends */
    double low, high;  /* values there (log10 if log) */
};

void pl_plot_colour(uint8_t colour[3], size_t i)
{
    static const uint8_t all[][3] = { { 0, 114, 178 },   { 213, 94, 0 },  { 0, 158, 115 },
                                      { 204, 121, 167 }, { 230, 159, 0 }, { 86, 180, 233 } };
    memcpy(colour, all[i % PL_COUNT(all)], 3);
}

/* The value in the axis' coordinates; NaN if it has none. */
static double on_scale(const struct axis *a, double v)
{
    if (!(fabs(v) <= 1e300)) return NAN; /* larger values would overflow the axis' span */
    if (!a->log) return v;
    return v > 0 ? log10(v) : NAN;
}

static double pixel(const struct axis *a, double scaled)
{
    return a->from + (a->to - a->from) * (scaled - a->low) / (a->high - a->low);
}

static void stretch(struct axis *a, double v)
{
    double s = on_scale(a, v);
    if (isnan(s)) return;
    if (s < a->low) a->low = s;
    if (s > a->high) a->high = s;
}

/* Adds a margin around the data, and a span for a single value. */
static void settle(struct axis *a)
{
    double pad;
    if (a->low > a->high) a->low = 0, a->high = 1;
    pad = (a->high - a->low) * 0.03;
    if (!(pad > 0)) pad = fabs(a->high) > 0 ? fabs(a->high) * 0.05 : 0.5;
    a->low -= pad;
    a->high += pad;
}

/* 1, 2 or 5 times a power of ten, so that about TICKS of them span the axis. */
static double tick_step(double span)
{
    double raw = span / TICKS, unit = pow(10, floor(log10(raw)));
    return raw <= unit ? unit : raw <= 2 * unit ? 2 * unit : raw <= 5 * unit ? 5 * unit : 10 * unit;
}

static void blend(struct pl_image *image, int x, int y, double share, const uint8_t colour[3])
{
    uint8_t *p;
    if (x < 0 || y < 0 || x >= image->width || y >= image->height || share <= 0) return;
    p = image->pixels + ((size_t)y * (size_t)image->width + (size_t)x) * 3;
    if (share > 1) share = 1;
    for (int c = 0; c < 3; c++) p[c] = (uint8_t)(p[c] + share * (colour[c] - p[c]) + 0.5);
}

/* An antialiased line 2 pixels wide: a pixel's coverage follows from its distance to the
 * segment. */
static void line(struct pl_image *image, double x0, double y0, double x1, double y1,
                 const uint8_t colour[3])
{
    const double half = 1.0;
    double dx = x1 - x0, dy = y1 - y0, length2 = dx * dx + dy * dy;
    for (int y = (int)(fmin(y0, y1) - 2); y <= (int)(fmax(y0, y1) + 2); y++)
        for (int x = (int)(fmin(x0, x1) - 2); x <= (int)(fmax(x0, x1) + 2); x++) {
            double t = length2 > 0 ? ((x - x0) * dx + (y - y0) * dy) / length2 : 0;
            t = t < 0 ? 0 : t > 1 ? 1 : t;
            blend(image, x, y, half + 0.5 - hypot(x - (x0 + t * dx), y - (y0 + t * dy)), colour);
        }
}

static void box(struct pl_image *image, int left, int top, int right, int bottom,
                const uint8_t c[3])
{
    for (int y = top; y <= bottom; y++)
        for (int x = left; x <= right; x++) blend(image, x, y, 1, c);
}

static int text_width(const char *text, int scale)
{
    return (int)strlen(text) * FONT_WIDTH * scale;
}

/* One grid line and its label. */
static void tick(struct pl_image *image, const struct axis *a, const struct axis *other, int is_x,
                 double scaled)
{
    char label[32];
    int at = (int)lround(pixel(a, scaled));
    if (scaled < a->low || scaled > a->high) return;
    if (!a->log && fabs(scaled) < 1e-12 * (a->high - a->low)) scaled = 0;
    snprintf(label, sizeof label, "%.4g", a->log ? pow(10, scaled) : scaled);
    if (is_x) {
        box(image, at, other->to, at, other->from, grey);
        pl_font_text(image, at - text_width(label, 1) / 2, other->from + 8, label, 1, black);
    } else {
        box(image, other->from, at, other->to, at, grey);
        pl_font_text(image, other->from - 8 - text_width(label, 1), at - FONT_HEIGHT / 2, label, 1,
                     black);
    }
}

static void ticks(struct pl_image *image, const struct axis *a, const struct axis *other, int is_x)
{
    if (a->log && a->high - a->low > 1) {
        static const double within[] = { 1, 2, 5 };
        size_t each = a->high - a->low > 3 ? 1 : PL_COUNT(within);
        double every = a->high - a->low > 12 ? ceil((a->high - a->low) / 12) : 1;
        for (double decade = floor(a->low); decade <= a->high; decade += every)
            for (size_t i = 0; i < each; i++)
                tick(image, a, other, is_x, decade + log10(within[i]));
    } else if (a->log) {
        double low = pow(10, a->low), high = pow(10, a->high), step = tick_step(high - low);
        for (double v = ceil(low / step) * step; v <= high; v += step)
            tick(image, a, other, is_x, log10(v));
    } else {
        double step = tick_step(a->high - a->low), first = ceil(a->low / step);
        for (int i = 0; i <= 2 * TICKS + 2; i++) tick(image, a, other, is_x, (first + i) * step);
    }
}

static void draw_curve(struct pl_image *image, const struct axis *x, const struct axis *y,
                       const struct pl_curve *curve)
{
    double last_x = NAN, last_y = NAN;
    for (size_t i = 0; i < curve->count; i++) {
        double px = pixel(x, on_scale(x, curve->x[i])), py = pixel(y, on_scale(y, curve->y[i]));
        if (isnan(px) || isnan(py)) {
            last_x = NAN;
            continue;
        }
        if (isnan(last_x)) last_x = px, last_y = py;
        /* skip points closer than a pixel: there may be thousands in one column */
        if (i + 1 < curve->count && hypot(px - last_x, py - last_y) < 0.4 && i) continue;
        line(image, last_x, last_y, px, py, curve->colour);
        last_x = px;
        last_y = py;
    }
}

/* Whether no curve crosses the rectangle: axes and grid are grey. */
static int is_free(const struct pl_image *image, int left, int top, int right, int bottom)
{
    for (int y = top; y <= bottom; y++)
        for (int x = left < 0 ? 0 : left; x <= right; x++) {
            const uint8_t *p = image->pixels + ((size_t)y * (size_t)image->width + (size_t)x) * 3;
            if (p[0] != p[1] || p[1] != p[2]) return 0;
        }
    return 1;
}

/* Places the legend on the right, as high as there is free space; top right if there is none. */
static void legend(struct pl_image *image, const struct axis *x, const struct axis *y,
                   const struct pl_curve *curves, size_t count)
{
    int widest = 0, high = 0, top = y->to + 10;
    for (size_t i = 0; i < count; i++)
        if (curves[i].label) {
            if (text_width(curves[i].label, 1) > widest) widest = text_width(curves[i].label, 1);
            high += FONT_HEIGHT + 7;
        }
    for (int t = top; t + high < y->from; t += 4)
        if (is_free(image, x->to - widest - 42, t - 4, x->to, t + high)) {
            top = t;
            break;
        }
    for (size_t i = 0; i < count; i++) {
        int left = x->to - widest - 12;
        if (!curves[i].label) continue;
        line(image, left - 26, top + 3, left - 6, top + 3, curves[i].colour);
        pl_font_text(image, left, top, curves[i].label, 1, black);
        top += FONT_HEIGHT + 7;
    }
}

int pl_plot_draw(struct pl_image *out, const struct pl_plot *plot, const struct pl_curve *curves,
                 size_t count)
{
    int width = plot->width ? plot->width : 960, height = plot->height ? plot->height : 600;
    struct axis x = { plot->log_x, 64, width - 20, INFINITY, -INFINITY };
    struct axis y = { plot->log_y, height - 46, 40, INFINITY, -INFINITY };
    int rc = pl_image_init(out, width, height, 3);
    if (rc) return rc;
    memset(out->pixels, 255, (size_t)width * (size_t)height * 3);
    for (size_t k = 0; k < count; k++)
        for (size_t i = 0; i < curves[k].count; i++) {
            if (isnan(on_scale(&x, curves[k].x[i])) || isnan(on_scale(&y, curves[k].y[i])))
                continue;
            stretch(&x, curves[k].x[i]);
            stretch(&y, curves[k].y[i]);
        }
    settle(&x);
    settle(&y);
    ticks(out, &x, &y, 1);
    ticks(out, &y, &x, 0);
    for (size_t k = 0; k < count; k++) draw_curve(out, &x, &y, &curves[k]);
    box(out, x.from, y.to, x.from, y.from, black);
    box(out, x.from, y.from, x.to, y.from, black);
    legend(out, &x, &y, curves, count);
    if (plot->title)
        pl_font_text(out, (x.from + x.to - text_width(plot->title, 2)) / 2, 12, plot->title, 2,
                     black);
    if (plot->x_label)
        pl_font_text(out, (x.from + x.to - text_width(plot->x_label, 1)) / 2, height - 18,
                     plot->x_label, 1, black);
    if (plot->y_label) pl_font_text(out, 8, 26, plot->y_label, 1, black);
    return PL_OK;
}
