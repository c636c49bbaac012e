/* show_log.c - the loss curve of a training's log.jsonl, drawn into the terminal: a grid of Braille
 * dots, two by four in a character, with a logarithmic scale of the loss. Where the locale has no
 * UTF-8, a character is one dot. */
#include "show.h"
#include "cmd/common/train_log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define ROWS 12
#define COLUMNS_MAX 200
#define SCALE 9 /* columns of "  1.2345 " */

struct plot {
    int columns, across, down;             /* characters; dots in one, each way */
    unsigned char cell[ROWS][COLUMNS_MAX]; /* a bit for each dot */
    double low, high;                      /* of the loss's logarithm */
};

static int has_utf8(void)
{
    static const char *const names[] = { "LC_ALL", "LC_CTYPE", "LANG" };
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        const char *value = getenv(names[i]);
        if (value && *value) return strstr(value, "UTF-8") || strstr(value, "utf8");
    }
    return 0;
}

static int width(void)
{
    struct winsize window;
    int n = ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) || window.ws_col < 20 ? 80 : window.ws_col;
    n -= SCALE + 1;
    return n < COLUMNS_MAX ? n : COLUMNS_MAX;
}

/* The bit of a dot in its character: Braille numbers them 1 2 3 7 downwards, then 4 5 6 8. */
static void dot(struct plot *p, int x, int y)
{
    static const unsigned char bit[2][4] = { { 1, 2, 4, 64 }, { 8, 16, 32, 128 } };
    p->cell[y / p->down][x / p->across] |= bit[x % p->across][y % p->down];
}

/* Each column of dots is the mean over its part of the steps; neighbours are joined. */
static void draw(struct plot *p, const struct train_curve *c)
{
    const int dots = p->columns * p->across, high = ROWS * p->down;
    const double first = c->step[0], last = c->step[c->count - 1],
                 span = last > first ? last - first : 1;
    size_t i = 0;
    int before = -1;
    for (int x = 0; x < dots; x++) {
        double sum = 0;
        int n = 0, y;
        for (; i < c->count && (c->step[i] - first) / span * (dots - 1) < x + 0.5; i++)
            if (c->image[i] > 0 && isfinite(c->image[i])) sum += log(c->image[i]), n++;
        if (!n) continue;
        y = (int)lround((p->high - sum / n) / (p->high - p->low) * (high - 1));
        y = y < 0 ? 0 : y >= high ? high - 1 : y;
        for (int from = before < 0 ? y : before; from != y; from += from < y ? 1 : -1)
            dot(p, x, from);
        dot(p, x, y);
        before = y;
    }
}

static void print_cell(unsigned char bits, int is_braille)
{
    if (!bits || !is_braille) putchar(bits ? '*' : ' ');
    else printf("\xe2%c%c", 0xa0 + (bits >> 6), 0x80 + (bits & 63)); /* U+2800 + bits, as UTF-8 */
}

static int print_json(const struct train_curve *c)
{
    for (size_t i = 0; i < c->count; i++)
        printf("{\"step\": %.0f, \"loss_image\": %.9g, \"loss_text\": %.9g}\n", c->step[i],
               c->image[i], c->text[i]);
    return PL_OK;
}

int show_log(const char *path, const struct show_options *show, struct pl_err *err)
{
    const int is_braille = has_utf8();
    struct plot p = { .columns = width(),
                      .across = is_braille ? 2 : 1,
                      .down = is_braille ? 4 : 1 };
    struct train_curve c;
    int rc = train_curve_read(&c, path, err);
    if (rc) return rc;
    p.low = INFINITY, p.high = -INFINITY;
    for (size_t i = 0; i < c.count; i++)
        if (c.image[i] > 0 && isfinite(c.image[i]))
            p.low = fmin(p.low, log(c.image[i])), p.high = fmax(p.high, log(c.image[i]));
    if (!(p.low <= p.high)) {
        rc = pl_fail(err, PL_EFORMAT, "%s: expected the log of a training, and no line has a loss",
                     path);
    } else if (show->json) {
        rc = print_json(&c);
    } else {
        if (p.high - p.low < 1e-6) p.low -= 0.01, p.high += 0.01;
        draw(&p, &c);
        printf("%s: image loss of %zu steps, nats a token; last %.4f\n", path, c.count,
               c.image[c.count - 1]);
        for (int y = 0; y < ROWS; y++) {
            if (y % 3 == 0 || y == ROWS - 1)
                printf("%*.4g ", SCALE - 1, exp(p.high - (p.high - p.low) * (y + 0.5) / ROWS));
            else printf("%*s", SCALE, "");
            for (int x = 0; x < p.columns; x++) print_cell(p.cell[y][x], is_braille);
            putchar('\n');
        }
        printf("%*s%-*.0f%*.0f\n", SCALE, "", p.columns / 2, c.step[0], p.columns - p.columns / 2,
               c.step[c.count - 1]);
    }
    train_curve_clear(&c);
    return rc;
}
