/* progress_line.h - one line with the progress, the speed and the remaining time. A terminal shows
 * one line that is redrawn; a file gets a new line now and then. On a terminal the line is cut to
 * the width, since a wrapped line could not be redrawn, and its first part is coloured as a bar. */
#ifndef PL_CMD_PROGRESS_H
#define PL_CMD_PROGRESS_H

#include "ref/base.h"

struct progress {
    int quiet, terminal;
    double started, shown, every; /* s */
    size_t width;                 /* of the line on the terminal */
    int is_coloured;              /* 0: $NO_COLOR is set, or the terminal is dumb */
    double done; /* 0 to 1: the part of the line that is filled as a bar; 0: none */
};

void progress_begin(struct progress *p, int quiet);
/* Shows the text, unless the last one is too fresh; `force` shows it in any case. */
__attribute__((format(printf, 3, 4))) void progress_show(struct progress *p, int force,
                                                         const char *format, ...);
/* Leaves the line as it is and begins a new one. */
void progress_end(struct progress *p);
double progress_elapsed(const struct progress *p);

/* "4 s", "2:05 min", "3:07 h". text has capacity 24. */
const char *progress_time(char *text, double seconds);

#endif
