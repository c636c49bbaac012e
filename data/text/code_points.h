/* code_points.h - a text as an array of code points, for operations on characters. */
#ifndef PL_CODE_POINTS_H
#define PL_CODE_POINTS_H

#include "ref/base.h"

/* All zero is empty. An allocation failure is remembered in `failed`, so that callers check
 * once. */
struct points {
    int32_t *at;
    size_t n, capacity;
    int failed;
};

void pl_code_points_add(struct points *p, int32_t c);
void pl_code_points_append(struct points *p, const int32_t *c, size_t n);
/* Appends UTF-8; an invalid byte becomes U+FFFD. */
void pl_code_points_text(struct points *p, const char *text, size_t n);
/* The text in zero-terminated UTF-8; free with free(). PL_OK or PL_ENOMEM. */
int pl_code_points_utf8(char **text, size_t *bytes, const struct points *p);
void pl_code_points_clear(struct points *p);

/* The first character of n > 0 bytes of text and its length; -1 in *c and length 1 for an invalid
 * byte. */
size_t pl_code_points_first(int32_t *c, const char *text, size_t n);
/* 1 if all n bytes are UTF-8. */
int pl_code_points_valid(const char *text, size_t n);

#endif
