/* progress_line.c - on a terminal the line is drawn over itself, padded to its last width;
 * elsewhere, as in a log, a new line is printed now and then. */
#include "progress_line.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LINE_MAX_BYTES 256 /* of a line; a wider terminal gets no bar */

/* By no-color.org: set to anything, it asks for none. */
static int is_colour_wanted(void)
{
    const char *none = getenv("NO_COLOR"), *terminal = getenv("TERM");
    return (!none || !*none) && terminal && strcmp(terminal, "dumb") != 0;
}

void progress_begin(struct progress *p, int quiet)
{
    memset(p, 0, sizeof *p);
    p->quiet = quiet;
    p->terminal = isatty(STDERR_FILENO);
    p->is_coloured = p->terminal && is_colour_wanted();
    p->every = p->terminal ? 0.2 : 15;
    p->started = pl_seconds();
    p->shown = p->terminal ? 0 : p->started;
}

/* The last column stays free: some terminals wrap once it is filled. The window may change while we
 * run, so it is asked each time. Returns the columns of a line, 0: not known. */
static size_t cut_to_width(char *text)
{
    struct winsize window;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) || window.ws_col < 2) return 0;
    if (strlen(text) >= window.ws_col) text[window.ws_col - 1] = 0;
    return window.ws_col - 1u;
}

/* The line, padded to `width`, with black on cyan as far as the work is done. */
static void draw_bar(const char *text, size_t width, double done)
{
    const size_t n = strlen(text);
    const int filled = (int)((double)width * fmin(1, done) + 0.5);
    char line[LINE_MAX_BYTES];
    memset(line, ' ', width);
    memcpy(line, text, n < width ? n : width);
    fprintf(stderr, "\r\033[30;46m%.*s\033[0m%.*s", filled, line, (int)width - filled,
            line + filled);
}

void progress_show(struct progress *p, int force, const char *format, ...)
{
    char text[LINE_MAX_BYTES];
    va_list args;
    double now = pl_seconds();
    size_t n, width;
    if (p->quiet || (!force && now < p->shown + p->every)) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (p->terminal) {
        width = cut_to_width(text);
        n = strlen(text);
        if (p->is_coloured && p->done > 0 && width && width < LINE_MAX_BYTES)
            draw_bar(text, width, p->done);
        else fprintf(stderr, "\r%s%*s", text, n < p->width ? (int)(p->width - n) : 0, "");
        p->width = n;
    } else {
        fprintf(stderr, "%s\n", text);
    }
    fflush(stderr);
    p->shown = now;
}

void progress_end(struct progress *p)
{
    if (!p->quiet && p->terminal && p->width) fputc('\n', stderr);
    p->width = 0;
}

double progress_elapsed(const struct progress *p) { return pl_seconds() - p->started; }

const char *progress_time(char *text, double seconds)
{
    long s = seconds < 0 || seconds > 1e8 ? 0 : (long)(seconds + 0.5);
    if (s < 100) snprintf(text, 24, "%ld s", s);
    else if (s < 6000) snprintf(text, 24, "%ld:%02ld min", s / 60, s % 60);
    else snprintf(text, 24, "%ld:%02ld h", s / 3600, s / 60 % 60);
    return text;
}
