/* html.c - resolves HTML's character references (&amp; &#233; &#xE9;) by the standard's table of
 * names. */
#include "html.h"

#include <string.h>

#define NAME_MAX_POINTS 32 /* a name's characters before its ';' */

static const struct {
    const char *name, *value;
} names[] = {
#include "html_names.inc"
};

static const uint16_t high[32] = {
    /* windows-1252, 128 to 159 */
    0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021, 0x2C6,  0x2030, 0x160,
    0x2039, 0x152,  0x8D,   0x17D,  0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178,
};

const char *pl_html_named(const char *name, size_t n)
{
    size_t low = 0, end = PL_COUNT(names);
    while (low < end) {
        size_t middle = low + (end - low) / 2;
        int c = strncmp(names[middle].name, name, n);
        if (!c && names[middle].name[n]) c = 1;
        if (!c) return names[middle].value;
        if (c < 0) low = middle + 1;
        else end = middle;
    }
    return NULL;
}

int32_t pl_html_windows_1252(int32_t c) { return c >= 128 && c < 160 ? high[c - 128] : c; }

int32_t pl_html_number(uint64_t n)
{
    if (!n || n > 0x10FFFF || (n >= 0xD800 && n <= 0xDFFF)) return 0xFFFD;
    if (n >= 128 && n < 160) return high[n - 128];
    if (n < 9 || n == 0xB || (n >= 0xE && n < 32) || n == 127) return -1;
    if ((n >= 0xFDD0 && n <= 0xFDEF) || (n & 0xFFFE) == 0xFFFE) return -1;
    return (int32_t)n;
}

static int digit(int32_t c, int base)
{
    if (c >= '0' && c <= '9') return c - '0';
    if (base == 16 && c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (base == 16 && c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* A number after "&#" at p: returns its length in code points, including ';'; 0 if there is
 * none. */
static size_t number(uint64_t *value, const int32_t *p, size_t n)
{
    int base = n && (p[0] == 'x' || p[0] == 'X') ? 16 : 10;
    size_t at = base == 16, first = at;
    *value = 0;
    for (; at < n && digit(p[at], base) >= 0; at++)
        if (*value <= 0x10FFFF) *value = *value * (uint64_t)base + (uint64_t)digit(p[at], base);
    if (at == first) return 0;
    return at + (at < n && p[at] == ';');
}

static int ends_name(int32_t c)
{
    return c == '\t' || c == '\n' || c == '\f' || c == ' ' || c == '<' || c == '&' || c == '#' ||
           c == ';';
}

/* A name after '&' at p: appends its value and returns its length in code points. */
static size_t name(struct points *out, const int32_t *p, size_t n)
{
    char text[NAME_MAX_POINTS + 1];
    size_t all = 0, plain = 0;
    const char *value = NULL;
    while (all < n && all < NAME_MAX_POINTS && !ends_name(p[all])) all++;
    if (!all) {
        pl_code_points_add(out, '&');
        return 0;
    }
    all += all < n && p[all] == ';';
    while (plain < all && p[plain] > 0 && p[plain] < 128) {
        text[plain] = (char)p[plain];
        plain++;
    }
    for (size_t k = plain; !value && k; k--)
        if ((value = pl_html_named(text, k))) plain = k;
    if (!value) {
        pl_code_points_add(out, '&');
        plain = 0;
    } else pl_code_points_text(out, value, strlen(value));
    pl_code_points_append(out, p + plain, all - plain);
    return all;
}

void pl_html_unescape(struct points *out, const struct points *in)
{
    for (size_t i = 0; i < in->n && !out->failed;) {
        uint64_t value;
        size_t used;
        if (in->at[i] != '&') pl_code_points_add(out, in->at[i++]);
        else if (i + 1 < in->n && in->at[i + 1] == '#' &&
                 (used = number(&value, in->at + i + 2, in->n - i - 2))) {
            int32_t c = pl_html_number(value);
            if (c >= 0) pl_code_points_add(out, c);
            i += 2 + used;
        } else i += 1 + name(out, in->at + i + 1, in->n - i - 1);
    }
}
