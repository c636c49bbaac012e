/* figure.c - figures are well-formed SVG, their points and bars lie where the values say, and text
 * from outside stays text. */
#include "data/images/figure.h"
#include "ref/base.h"
#include "test/unit/unit.h"

#include <math.h>
#include <stdlib.h>

static char *svg;
static size_t svg_n;
static FILE *out;

static int begin(void **state)
{
    out = open_memstream(&svg, &svg_n);
    return out ? 0 : -1;
}

static int end(void **state)
{
    free(svg);
    return 0;
}

/* Every element that begins ends, innermost first, and the outermost is <svg>. */
static void expect_well_formed(void)
{
    const char *open[16], *at;
    size_t depth = 0, roots = 0;
    assert_int_equal(fclose(out), 0);
    at = svg;
    while ((at = strchr(at, '<'))) {
        const char *stop = strchr(at, '>');
        size_t name = strcspn(at + 1, " />");
        assert_non_null(stop);
        if (at[1] == '/') {
            assert_true(depth > 0);
            depth--;
            name = strcspn(at + 2, ">");
            assert_memory_equal(open[depth], at + 2, name);
        } else if (stop[-1] != '/') {
            assert_true(depth < PL_COUNT(open));
            if (!depth) roots++;
            if (!depth) assert_memory_equal(at, "<svg ", 5);
            open[depth++] = at + 1;
        }
        at = stop;
    }
    assert_int_equal(depth, 0);
    assert_int_equal(roots, 1);
}

/* The pairs of the k-th polyline. */
static size_t points_of(int k, double (*xy)[2], size_t most)
{
    const char *at = svg;
    char *next;
    double width, height;
    size_t n = 0;
    for (int i = 0; i <= k; i++) {
        at = strstr(at, "points=\"");
        assert_non_null(at);
        at += 8;
    }
    assert_int_equal(sscanf(svg,
                            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %lf %lf\"",
                            &width, &height),
                     2);
    while (*at != '"') {
        assert_true(n < most);
        xy[n][0] = strtod(at, &next);
        assert_int_equal(*next, ',');
        xy[n][1] = strtod(next + 1, &next);
        assert_true(xy[n][0] > 0 && xy[n][0] < width && xy[n][1] > 0 && xy[n][1] < height);
        n++;
        at = next + (*next == ' ');
    }
    return n;
}

static void expect_text(const char *text)
{
    char element[64];
    snprintf(element, sizeof element, ">%s</text>", text);
    if (!strstr(svg, element)) fail_msg("no text %s", text);
}

/* The line of the x axis' tick with this label is where the value is. */
static void expect_tick(const char *label, double x)
{
    char line[32], element[64];
    const char *at;
    snprintf(line, sizeof line, "<path d=\"M%.1f ", x);
    snprintf(element, sizeof element, "middle\" fill=\"#222222\">%s</text>", label);
    at = strstr(svg, line);
    if (!at || !strstr(at, element) || strstr(at, element) > strchr(at, '\n'))
        fail_msg("no tick %s at %.1f", label, x);
}

/* Equal steps are equally long, to the right and upwards; NaN and infinity are left out. */
static void lines_on_linear_axes(void **state)
{
    static const double x[] = { 0, 1, 2, 3, 4 }, y[] = { 10, 20, NAN, 40, 50 },
                        x2[] = { 0, INFINITY, 4 }, y2[] = { 50, 20, 10 };
    const struct figure f = { .title = "a title", .x_label = "over x", .y_label = "of y" };
    const struct figure_line lines[] = { { "rising", x, y, 5 }, { "falling", x2, y2, 3 } };
    double p[8][2], q[8][2];
    figure_lines(out, &f, lines, 2);
    expect_well_formed();
    assert_int_equal(points_of(0, p, 8), 4);
    assert_int_equal(points_of(1, q, 8), 2);
    assert_true(p[0][0] < p[1][0] && p[0][1] > p[1][1]);
    assert_float_equal(p[2][0] - p[1][0], 2 * (p[1][0] - p[0][0]), 0.3);
    assert_float_equal(p[2][1] - p[1][1], 2 * (p[1][1] - p[0][1]), 0.3);
    /* The same values are at the same places in both lines. */
    assert_true(q[0][0] == p[0][0] && q[0][1] == p[3][1]);
    assert_true(q[1][0] == p[3][0] && q[1][1] == p[0][1]);
    expect_text("rising");
    expect_text("falling");
    expect_text("over x");
    expect_text("of y");
    assert_non_null(strstr(svg, "<title>a title</title>"));
    expect_text("a title");
    expect_tick("0", p[0][0]); /* eight steps at most, of 1, 2 or 5 times a power of ten */
    expect_tick("0.5", (p[0][0] + p[1][0]) / 2);
    expect_tick("1", p[1][0]);
    expect_tick("4", p[3][0]);
}

/* Each decade is as long as the others; zero and less have no logarithm. */
static void lines_on_logarithmic_axes(void **state)
{
    static const double x[] = { 1, 10, 100, 0, -5 }, y[] = { 0.1, 1, 10, 1, 1 };
    const struct figure f = { .title = "t", .x_label = "", .y_label = "", .log_x = 1, .log_y = 1 };
    const struct figure_line line = { "l", x, y, 5 };
    double p[8][2];
    figure_lines(out, &f, &line, 1);
    expect_well_formed();
    assert_int_equal(points_of(0, p, 8), 3);
    for (int k = 0; k < 2; k++) assert_float_equal(p[2][k] - p[1][k], p[1][k] - p[0][k], 0.2);
    assert_true(p[0][0] < p[2][0] && p[0][1] > p[2][1]);
    expect_tick("1e0", p[0][0]);
    expect_tick("1e1", p[1][0]);
    expect_tick("1e2", p[2][0]);
}

/* Within a decade there are figures enough to see its scale. */
static void short_logarithmic_axes(void **state)
{
    static const double x[][3] = { { 4, 20, 80 }, { 3, 4, 7 } }, y[] = { 1, 2, 3 };
    const struct figure f = { .title = "t", .x_label = "", .y_label = "", .log_x = 1 };
    for (int k = 0; k < 2; k++) {
        const struct figure_line line = { "l", x[k], y, 3 };
        double p[3][2];
        if (k) free(svg), assert_int_equal(begin(NULL), 0);
        figure_lines(out, &f, &line, 1);
        expect_well_formed();
        assert_int_equal(points_of(0, p, 3), 3);
        expect_tick(k ? "4e0" : "2e1", p[1][0]);
        expect_text(k ? "6e0" : "5e1");
    }
}

/* One value, or none, still has axes. */
static void figures_without_a_range(void **state)
{
    static const double one[] = { 7 };
    const struct figure f = { .title = "t", .x_label = "x", .y_label = "y" };
    for (size_t n = 0; n < 2; n++) {
        const struct figure_line line = { "l", one, one, n };
        double p[1][2];
        if (n) assert_int_equal(begin(NULL), 0);
        figure_lines(out, &f, &line, 1);
        expect_well_formed();
        assert_int_equal(points_of(0, p, 1), n);
        if (n) assert_true(isfinite(p[0][0]) && isfinite(p[0][1]));
        if (!n) free(svg);
    }
}

/* The k-th bar: of rectangles, those that are as high as a row of bars leaves. */
static int bar_at(int k, double *x, double *y, double *width)
{
    const char *at = svg;
    for (; (at = strstr(at, "<rect ")); at++)
        if (sscanf(at, "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"14\"", x, y, width) == 3 &&
            strstr(at, "height=\"") == strstr(at, "height=\"14\"") && !k--)
            return 1;
    return 0;
}

/* Bars are cut at both ends of the time that is shown; those outside of it are left out. */
static void bars_over_time(void **state)
{
    static const struct figure_bar bars[] = { { 0, 0, 10, 20 }, { 1, 1, -5, 5 },  { 1, 2, 30, 99 },
                                              { 0, 3, -9, -1 }, { 0, 4, 40, 50 }, { 0, 1, 7, 7 } };
    static const char *const rows[] = { "first", "second" }, *const kinds[] = { "a", "b", NULL };
    double x[3], y[3], width[3], more;
    figure_bars(out, "t", bars, PL_COUNT(bars), rows, 2, kinds, 0, 40);
    expect_well_formed();
    for (int i = 0; i < 3; i++) assert_true(bar_at(i, &x[i], &y[i], &width[i]));
    assert_false(bar_at(3, &more, &more, &more));
    assert_float_equal(width[1], width[0] / 2, 0.02); /* 0 to 5 */
    assert_float_equal(width[2], width[0], 0.02);     /* 30 to 40 */
    assert_float_equal(x[2] - x[0], 2 * width[0], 0.02);
    assert_float_equal(x[0] - x[1], width[0], 0.02);
    assert_true(y[0] < y[1] && y[1] == y[2]);
    for (int i = 0; i < 2; i++) expect_text(rows[i]);
    for (int i = 0; i < 2; i++) expect_text(kinds[i]);
}

/* Names of peers and runs are strangers' text. */
static void text_stays_text(void **state)
{
    figure_text(out, "<a href=\"x\">&\x01\n\xc3\xa9");
    assert_int_equal(fclose(out), 0);
    assert_string_equal(svg, "&lt;a href=&quot;x&quot;&gt;&amp; \n\xc3\xa9");
}

/* Five pictures in rows of two, each label below its picture. */
static void pictures_in_rows(void **state)
{
    static const struct figure_picture pictures[] = { { "0.png", "zero" },
                                                      { "1.png", "<one>" },
                                                      { "2.png", "two" },
                                                      { "3.png", "" },
                                                      { "4.png", "four" } };
    const char *at;
    double x[5], y[5];
    figure_pictures(out, pictures, 5, 2, 64);
    expect_well_formed();
    at = svg;
    for (int i = 0; i < 5; i++) {
        at = strstr(at, "<image ");
        assert_non_null(at);
        x[i] = strtod(strstr(at, " x=\"") + 4, NULL);
        y[i] = strtod(strstr(at, " y=\"") + 4, NULL);
        assert_memory_equal(strstr(at, "href=\"") + 6, pictures[i].file, 5);
        at++;
    }
    assert_null(strstr(at, "<image "));
    assert_null(strstr(svg, "<one>"));
    assert_true(x[0] == x[2] && x[2] == x[4] && x[1] == x[3] && x[1] >= x[0] + 64);
    assert_true(y[0] == y[1] && y[2] == y[3] && y[2] > y[0] + 64 && y[4] > y[2] + 64);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(lines_on_linear_axes),   TEST(lines_on_logarithmic_axes),
        TEST(short_logarithmic_axes), TEST(figures_without_a_range),
        TEST(bars_over_time),         TEST(text_stays_text),
        TEST(pictures_in_rows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
