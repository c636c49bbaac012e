/* code_points.c - converts between UTF-8 and arrays of code points. */
#include "code_points.h"
#include "ref/small.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define REPLACEMENT 0xFFFD

void pl_code_points_append(struct points *p, const int32_t *c, size_t n)
{
    if (p->failed) return;
    if (pl_grow_by(&p->at, p->n, n, &p->capacity, 64)) {
        p->failed = 1;
        return;
    }
    if (n) memcpy(p->at + p->n, c, n * sizeof *c);
    p->n += n;
}

void pl_code_points_add(struct points *p, int32_t c) { pl_code_points_append(p, &c, 1); }

size_t pl_code_points_first(int32_t *c, const char *text, size_t n)
{
    utf8proc_ssize_t used;
    if ((unsigned char)*text < 0x80) {
        *c = *text;
        return 1;
    }
    used = utf8proc_iterate((const uint8_t *)text, n < 4 ? (utf8proc_ssize_t)n : 4, c);
    if (used > 0) return (size_t)used;
    *c = -1;
    return 1;
}

void pl_code_points_text(struct points *p, const char *text, size_t n)
{
    for (size_t at = 0; at < n && !p->failed;) {
        int32_t c;
        at += pl_code_points_first(&c, text + at, n - at);
        pl_code_points_add(p, c < 0 ? REPLACEMENT : c);
    }
}

int pl_code_points_utf8(char **text, size_t *bytes, const struct points *p)
{
    char *out = p->failed ? NULL : malloc(4 * p->n + 1);
    size_t n = 0;
    *text = out;
    *bytes = 0;
    if (!out) return PL_ENOMEM;
    for (size_t i = 0; i < p->n; i++)
        n += (size_t)utf8proc_encode_char(p->at[i], (uint8_t *)out + n);
    out[n] = 0;
    *bytes = n;
    return PL_OK;
}

void pl_code_points_clear(struct points *p)
{
    free(p->at);
    memset(p, 0, sizeof *p);
}

int pl_code_points_valid(const char *text, size_t n)
{
    int32_t c = 0;
    for (size_t at = 0; at < n && c >= 0;) at += pl_code_points_first(&c, text + at, n - at);
    return c >= 0;
}
