/* html.h - HTML's character references in a text. [HTML, 13.5 Named character references] */
#ifndef PL_HTML_H
#define PL_HTML_H

#include "code_points.h"

/* What a name stands for ("amp;", some without the ';'), in UTF-8; NULL if it is none. */
const char *pl_html_named(const char *name, size_t n);

/* What a number stands for by the standard: 128..159 as windows-1252, others that no text may hold
 * as U+FFFD; -1: nothing at all. */
int32_t pl_html_number(uint64_t number);
/* 128..159 as windows-1252 has them, others as they are. */
int32_t pl_html_windows_1252(int32_t c);

/* Appends `in` with every reference replaced as Python's html.unescape does it: once, from the
 * left, numbers with or without ';', names by their longest beginning that is one. */
void pl_html_unescape(struct points *out, const struct points *in);

#endif
