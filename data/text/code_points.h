/* code_points.h - a text as code points, for what works on characters and not on bytes. */
#ifndef PL_CODE_POINTS_H
#define PL_CODE_POINTS_H

#include "ref/base.h"

/* All zero is an empty one. Failing to grow is remembered, so that a user checks once. */
struct points {
    int32_t *at;
    size_t n, room;
    int failed;
};

void pl_code_points_add(struct points *p, int32_t c);
void pl_code_points_append(struct points *p, const int32_t *c, size_t n);
/* UTF-8; a byte that is none passes as U+FFFD. */
void pl_code_points_text(struct points *p, const char *text, size_t n);
/* The text in UTF-8 with a zero behind it; free(). PL_OK or PL_ENOMEM. */
int pl_code_points_utf8(char **text, size_t *bytes, const struct points *p);
void pl_code_points_clear(struct points *p);

/* The first character of n > 0 bytes of text; -1 in *c and 1 byte where it is no UTF-8. */
size_t pl_code_points_first(int32_t *c, const char *text, size_t n);

#endif
