/* figure.c - axes with round numbers, lines, bars, legends; pictures with labels. */
#include "figure.h"

#include <math.h>

#define WIDTH 760
#define HEIGHT 380
#define LEFT 70
#define RIGHT 20
#define TOP 36
#define BOTTOM 52
#define ROW 20 /* pixels of a row of bars */

/* Okabe and Ito's colours, which colour-blind readers tell apart; then darker ones. */
static const char *const colours[FIGURE_COLOURS] = {
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8c6d31",
    "#5254a3", "#637939", "#843c39", "#7b4173", "#3182bd", "#31a354", "#756bb1", "#636363",
};
/* Computes, waits, downloads, away, sends. */
static const char *const kind_colours[] = { "#009e73", "#e6c34d", "#56b4e9", "#dddddd", "#d55e00" };

void figure_text(FILE *out, const char *text)
{
    for (; *text; text++) switch (*text) {
        case '<': fputs("&lt;", out); break;
        case '>': fputs("&gt;", out); break;
        case '&': fputs("&amp;", out); break;
        case '"': fputs("&quot;", out); break;
        default: fputc((unsigned char)*text < ' ' && *text != '\n' ? ' ' : *text, out);
        }
}

struct axis {
    double low, high;
    int is_log;
    double begin, end; /* pixels */
};

static double place(const struct axis *a, double value)
{
    double x = a->is_log ? log10(value) : value;
    return a->begin + (a->end - a->begin) * (x - a->low) / (a->high - a->low);
}

/* The least of 1, 2, 5 times a power of ten that makes at most eight steps. */
static double tick_of(double span)
{
    double power = pow(10, floor(log10(span / 8)));
    static const double steps[] = { 1, 2, 5, 10 };
    for (int i = 0; i < 4; i++)
        if (span / (steps[i] * power) <= 8) return steps[i] * power;
    return 10 * power;
}

static void begin_svg(FILE *out, const char *title, int height)
{
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n<title>",
            WIDTH, height);
    figure_text(out, title);
    fprintf(out, "</title>\n<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", WIDTH, height);
    fprintf(out, "<text x=\"%d\" y=\"20\" font-size=\"15\" fill=\"#222222\">", LEFT);
    figure_text(out, title);
    fputs("</text>\n", out);
}

static void tick(FILE *out, const struct axis *a, double value, const char *label, int is_x,
                 int low)
{
    double at = place(a, value);
    if (is_x)
        fprintf(out,
                "<path d=\"M%.1f %dV%d\" stroke=\"#e5e5e5\"/><text x=\"%.1f\" y=\"%d\" "
                "text-anchor=\"middle\" fill=\"#222222\">%s</text>\n",
                at, TOP, low, at, low + 16, label);
    else
        fprintf(out,
                "<path d=\"M%d %.1fH%d\" stroke=\"#e5e5e5\"/><text x=\"%d\" y=\"%.1f\" "
                "text-anchor=\"end\" fill=\"#222222\">%s</text>\n",
                LEFT, at, WIDTH - RIGHT, LEFT - 6, at + 4, label);
}

/* Powers of ten; within fewer than two of them multiples, too, since one figure shows no scale. */
static void log_ticks(FILE *out, const struct axis *a, int is_x, int low)
{
    const double span = a->high - a->low, step = fmax(1, ceil(span / 8));
    char label[32];
    for (double t = floor(a->low / step) * step; t <= a->high + 1e-9; t += step)
        for (int m = 1; m < 10; m++) {
            const int is_marked = m == 1 || span < 0.7 || (span < 2 && (m == 2 || m == 5));
            const double at = t + log10(m);
            if (!is_marked || at < a->low - 1e-9 || at > a->high + 1e-9) continue;
            snprintf(label, sizeof label, "%de%g", m, t);
            tick(out, a, m * pow(10, t), label, is_x, low);
        }
}

static void ticks(FILE *out, const struct axis *a, int is_x, int low)
{
    double step = tick_of(a->high - a->low);
    char label[32];
    if (a->is_log) {
        log_ticks(out, a, is_x, low);
        return;
    }
    for (double t = ceil(a->low / step - 1e-9) * step; t <= a->high + 1e-9 * step; t += step) {
        double value = fabs(t) < 1e-9 * step ? 0 : t;
        snprintf(label, sizeof label, "%g", value);
        tick(out, a, value, label, is_x, low);
    }
}

static void widen(struct axis *a, double value)
{
    double x = a->is_log ? log10(value) : value;
    a->low = fmin(a->low, x);
    a->high = fmax(a->high, x);
}

/* Never empty, and with a margin above and below. */
static void close_axis(struct axis *a, double margin)
{
    double span;
    if (!(a->low <= a->high)) a->low = 0, a->high = 1;
    span = a->high > a->low ? a->high - a->low : fmax(1, fabs(a->low));
    a->low -= margin * span;
    a->high += fmax(margin, a->high > a->low ? 0 : 1) * span;
}

static int is_shown(const struct figure *f, const struct figure_line *l, size_t i)
{
    return isfinite(l->x[i]) && isfinite(l->y[i]) && (!f->log_x || l->x[i] > 0) &&
           (!f->log_y || l->y[i] > 0);
}

void figure_lines(FILE *out, const struct figure *f, const struct figure_line *line, int lines)
{
    struct axis x = { INFINITY, -INFINITY, f->log_x, LEFT, WIDTH - RIGHT },
                y = { INFINITY, -INFINITY, f->log_y, HEIGHT - BOTTOM, TOP };
    for (int k = 0; k < lines; k++)
        for (size_t i = 0; i < line[k].count; i++)
            if (is_shown(f, &line[k], i)) {
                widen(&x, line[k].x[i]);
                widen(&y, line[k].y[i]);
            }
    close_axis(&x, 0);
    close_axis(&y, 0.04);
    begin_svg(out, f->title, HEIGHT + 18 * ((lines + 3) / 4));
    ticks(out, &x, 1, HEIGHT - BOTTOM);
    ticks(out, &y, 0, 0);
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" fill=\"#222222\">",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 36);
    figure_text(out, f->x_label);
    fprintf(out,
            "</text>\n<text transform=\"translate(16 %d) rotate(-90)\" text-anchor=\"middle\" "
            "fill=\"#222222\">",
            (TOP + HEIGHT - BOTTOM) / 2);
    figure_text(out, f->y_label);
    fputs("</text>\n", out);
    for (int k = 0; k < lines; k++) {
        const char *colour = colours[k % FIGURE_COLOURS];
        int left = LEFT + k % 4 * 170, top = HEIGHT + 18 * (k / 4);
        fprintf(out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\" points=\"", colour);
        for (size_t i = 0; i < line[k].count; i++)
            if (is_shown(f, &line[k], i))
                fprintf(out, "%.1f,%.1f ", place(&x, line[k].x[i]), place(&y, line[k].y[i]));
        fprintf(out, "\"/>\n<path d=\"M%d %dh22\" stroke=\"%s\" stroke-width=\"3\"/>", left, top,
                colour);
        fprintf(out, "<text x=\"%d\" y=\"%d\" fill=\"#222222\">", left + 28, top + 4);
        figure_text(out, line[k].label);
        fputs("</text>\n", out);
    }
    fputs("</svg>\n", out);
}

void figure_bars(FILE *out, const char *title, const struct figure_bar *bar, size_t bars,
                 const char *const *row_labels, int rows, const char *const *kind_labels,
                 double begin, double end)
{
    struct axis x = { begin, end, 0, LEFT, WIDTH - RIGHT };
    int low = TOP + rows * ROW, kinds = 0;
    close_axis(&x, 0);
    begin_svg(out, title, low + 66);
    ticks(out, &x, 1, low);
    fprintf(out,
            "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" fill=\"#222222\">virtual time, s"
            "</text>\n",
            (LEFT + WIDTH - RIGHT) / 2, low + 34);
    for (int r = 0; r < rows; r++) {
        fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\" fill=\"#222222\">", LEFT - 6,
                TOP + r * ROW + 14);
        figure_text(out, row_labels[r]);
        fputs("</text>\n", out);
    }
    for (size_t i = 0; i < bars; i++) {
        double from = fmax(begin, bar[i].from), to = fmin(end, bar[i].to);
        if (from >= to) continue;
        fprintf(out, "<rect x=\"%.2f\" y=\"%d\" width=\"%.2f\" height=\"%d\" fill=\"%s\"/>\n",
                place(&x, from), TOP + bar[i].row * ROW + 3, place(&x, to) - place(&x, from),
                ROW - 6, kind_colours[bar[i].kind]);
    }
    for (; kind_labels[kinds]; kinds++) {
        fprintf(out,
                "<rect x=\"%d\" y=\"%d\" width=\"14\" height=\"12\" fill=\"%s\"/><text x=\"%d\" "
                "y=\"%d\" fill=\"#222222\">",
                LEFT + kinds * 120, low + 44, kind_colours[kinds], LEFT + kinds * 120 + 20,
                low + 54);
        figure_text(out, kind_labels[kinds]);
        fputs("</text>\n", out);
    }
    fputs("</svg>\n", out);
}

void figure_pictures(FILE *out, const struct figure_picture *picture, size_t count, int columns,
                     int side)
{
    const int gap = 4, high = side + ROW, rows = ((int)count + columns - 1) / columns;
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n",
            gap + columns * (side + gap), gap + rows * (high + gap));
    for (size_t i = 0; i < count; i++) {
        int x = gap + (int)i % columns * (side + gap), y = gap + (int)i / columns * (high + gap);
        fprintf(out, "<image x=\"%d\" y=\"%d\" width=\"%d\" height=\"%d\" href=\"", x, y, side,
                side);
        figure_text(out, picture[i].file);
        fprintf(out, "\"/><text x=\"%d\" y=\"%d\">", x, y + side + 14);
        figure_text(out, picture[i].label);
        fputs("</text>\n", out);
    }
    fputs("</svg>\n", out);
}
