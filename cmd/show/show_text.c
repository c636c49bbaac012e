/* show_text.c - text of a file, as it may be printed. */
#include "show.h"

#include <stdio.h>

void show_text(const char *text, size_t n, int json)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (json && (c == '"' || c == '\\')) printf("\\%c", c);
        else if (c < 32 || c == 127) printf(json ? "\\u%04x" : "\\x%02x", c);
        else putchar(c);
    }
}
