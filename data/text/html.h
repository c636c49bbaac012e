/* html.h - HTML character references in a text. [HTML, 13.5 Named character references] */
#ifndef PL_HTML_H
#define PL_HTML_H

#include "code_points.h"

/* The value of a name ("amp;", some without ';') in UTF-8; NULL if it is unknown. */
const char *pl_html_named(const char *name, size_t n);

/* The code point of a numeric reference: 128..159 are read as windows-1252, invalid ones become
 * U+FFFD; -1: nothing at all. */
int32_t pl_html_number(uint64_t number);
/* Maps 128..159 as windows-1252; other code points are unchanged. */
int32_t pl_html_windows_1252(int32_t c);

/* Appends `in` with every reference replaced, as Python's html.unescape does: one pass from the
 * left, numbers with or without ';', names by their longest known prefix. */
void pl_html_unescape(struct points *out, const struct points *in);

#endif
