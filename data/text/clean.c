/* clean.c - cleans captions in the numbered steps of [spec images-and-text 4.1], in its order. */
#include "clean.h"
#include "html.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define WORK_MAX ((size_t)1 << 24) /* code points processed for one text, over all passes */

#define SIGMA 0x3A3
#define FINAL_SIGMA 0x3C2

/* -- a segment -------------------------------------------------------------------------------- */

static int is_alnum(int32_t c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static void add_upper(struct points *out, const char *value)
{
    static const struct {
        int32_t from;
        const char *to;
    } longer[] = {
        { 0xDF, "SS" },   { 0x149, "\xca\xbcN" }, { 0xFB00, "FF" },  { 0xFB01, "FI" },
        { 0xFB02, "FL" }, { 0xFB03, "FFI" },      { 0xFB04, "FFL" },
    };
    struct points p = { 0 };
    pl_code_points_text(&p, value, strlen(value));
    for (size_t i = 0; i < p.n; i++) {
        size_t k = 0;
        while (k < PL_COUNT(longer) && longer[k].from != p.at[i]) k++;
        if (k < PL_COUNT(longer)) pl_code_points_text(out, longer[k].to, strlen(longer[k].to));
        else pl_code_points_add(out, utf8proc_toupper(p.at[i]));
    }
    out->failed |= p.failed;
    pl_code_points_clear(&p);
}

/* An upper-case name, including ';', whose lower-case form is known and which HTML itself does not
 * recognize, not even a prefix of it. */
static const char *in_capitals(const char *name, size_t n)
{
    char small[32];
    for (size_t i = 0; i < n; i++) {
        if (name[i] >= 'a' && name[i] <= 'z') return NULL;
        small[i] = name[i] >= 'A' && name[i] <= 'Z' ? (char)(name[i] + 32) : name[i];
    }
    for (size_t k = 2; k < n; k++)
        if (pl_html_named(name, k)) return NULL;
    return pl_html_named(small, n);
}

/* 1. An entity at '&', with its ';': appends its value and returns its length; 0 if there is
 * none. */
static size_t entity(struct points *out, const int32_t *p, size_t n)
{
    char name[32];
    size_t hash = n > 1 && p[1] == '#', at = 1 + hash, length = 0;
    const char *value;
    while (at < n && length < 24 && is_alnum(p[at])) name[length++] = (char)p[at++];
    if (!length || at >= n || p[at] != ';') return 0;
    name[length++] = ';';
    at++;
    if (!hash) {
        if ((value = pl_html_named(name, length))) pl_code_points_text(out, value, strlen(value));
        else if ((value = in_capitals(name, length))) add_upper(out, value);
        return value ? at : 0;
    }
    int base = name[0] == 'x' || name[0] == 'X' ? 16 : 10;
    char *end;
    int32_t c;
    if (base == 16 ? !strchr("0123456789abcdefABCDEF", name[1]) : name[0] < '0' || name[0] > '9')
        return 0;
    /* strtoull would accept a second "0x" */
    if (base == 16 && (name[2] == 'x' || name[2] == 'X')) return 0;
    c = pl_html_number(strtoull(name + (base == 16), &end, base)); /* on overflow ULLONG_MAX */
    if (*end != ';' || c == ';') return 0;
    if (c >= 0) pl_code_points_add(out, c);
    return at;
}

static void entities(struct points *out, const struct points *in)
{
    for (size_t i = 0, used; i < in->n; i += used ? used : 1) {
        used = in->at[i] == '&' ? entity(out, in->at + i, in->n - i) : 0;
        if (!used) pl_code_points_add(out, in->at[i]);
    }
}

/* 4. Latin ligatures. */
static const char *ligature(int32_t c)
{
    switch (c) {
    case 0x132: return "IJ";
    case 0x133: return "ij";
    case 0x149: return "\xca\xbcn";
    case 0x1C4: return "D\xc5\xbd";
    case 0x1C5: return "D\xc5\xbe";
    case 0x1C6: return "d\xc5\xbe";
    case 0x1C7: return "LJ";
    case 0x1C8: return "Lj";
    case 0x1C9: return "lj";
    case 0x1CA: return "NJ";
    case 0x1CB: return "Nj";
    case 0x1CC: return "nj";
    case 0x1F1: return "DZ";
    case 0x1F2: return "Dz";
    case 0x1F3: return "dz";
    case 0xFB00: return "ff";
    case 0xFB01: return "fi";
    case 0xFB02: return "fl";
    case 0xFB03: return "ffi";
    case 0xFB04: return "ffl";
    case 0xFB05: return "\xc5\xbft";
    case 0xFB06: return "st";
    default: return NULL;
    }
}

/* 5. Full-width and half-width forms are replaced by their compatibility decomposition. */
static void add_width(struct points *out, int32_t c)
{
    utf8proc_int32_t to[8];
    utf8proc_ssize_t n;
    if (c == 0x3000) c = ' ';
    if (c < 0xFF01 || c > 0xFFEF) {
        pl_code_points_add(out, c);
        return;
    }
    n = utf8proc_decompose_char(c, to, PL_COUNT(to), UTF8PROC_COMPAT | UTF8PROC_DECOMPOSE, NULL);
    if (n > 0 && n <= (utf8proc_ssize_t)PL_COUNT(to)) pl_code_points_append(out, to, (size_t)n);
    else pl_code_points_add(out, c);
}

/* 3 to 6. */
static void characters(struct points *out, const struct points *in)
{
    for (size_t i = 0; i < in->n; i++) {
        int32_t c = pl_html_windows_1252(in->at[i]);
        const char *apart = c < 128 ? NULL : ligature(c);
        if (apart) pl_code_points_text(out, apart, strlen(apart));
        else if (c == 0x2BC || (c >= 0x2018 && c <= 0x201B)) pl_code_points_add(out, '\'');
        else if (c >= 0x201C && c <= 0x201F) pl_code_points_add(out, '"');
        else add_width(out, c);
    }
    for (size_t i = 0; i < out->n; i++) /* decomposing 0x149 yields one of them */
        if (out->at[i] == 0x2BC) out->at[i] = '\'';
}

/* 7. Line ends. */
static void line_ends(struct points *out, const struct points *in)
{
    for (size_t i = 0; i < in->n; i++) {
        int32_t c = in->at[i];
        if (c == '\r' && i + 1 < in->n && in->at[i + 1] == '\n') continue;
        pl_code_points_add(out, c == '\r' || c == 0x2028 || c == 0x2029 || c == 0x85 ? '\n' : c);
    }
}

static int is_removed(int32_t c)
{
    return c <= 8 || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F ||
           (c >= 0x206A && c <= 0x206F) || c == 0xFEFF || (c >= 0xFFF9 && c <= 0xFFFC);
}

/* 8. Control characters. */
static void controls(struct points *out, const struct points *in)
{
    for (size_t i = 0; i < in->n; i++) {
        int32_t c = in->at[i];
        if (c == 27 && i + 1 < in->n && in->at[i + 1] == '[') {
            size_t k = i + 2;
            while (k < in->n &&
                   (in->at[k] == ';' || utf8proc_category(in->at[k]) == UTF8PROC_CATEGORY_ND))
                k++;
            if (k < in->n && is_alnum(in->at[k]) && in->at[k] > '9') {
                i = k;
                continue;
            }
        }
        if (!is_removed(c)) pl_code_points_add(out, c);
    }
}

/* 9. Composition (NFC). */
static int compose(struct points *out, const struct points *in)
{
    int plain = 1, rc;
    char *text;
    uint8_t *composed = NULL;
    size_t bytes;
    utf8proc_ssize_t n;
    /* characters below 0x300 are composed already */
    for (size_t i = 0; i < in->n && plain; i++) plain = in->at[i] < 0x300;
    if (plain) {
        pl_code_points_append(out, in->at, in->n);
        return PL_OK;
    }
    if ((rc = pl_code_points_utf8(&text, &bytes, in))) return rc;
    n = utf8proc_map((uint8_t *)text, (utf8proc_ssize_t)bytes, &composed,
                     UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    free(text);
    if (n < 0) return PL_ENOMEM; /* the text is valid UTF-8: only memory can fail */
    pl_code_points_text(out, (char *)composed, (size_t)n);
    free(composed);
    return PL_OK;
}

static int same(const struct points *a, const struct points *b)
{
    return a->n == b->n && (!a->n || !memcmp(a->at, b->at, a->n * sizeof *a->at));
}

/* Repeats all steps until nothing changes. *p is replaced. */
static int mend(struct points *p, int with_entities, size_t *work)
{
    for (;;) {
        struct points a = { 0 }, b = { 0 };
        int rc = PL_OK, done;
        if (with_entities) entities(&a, p);
        else pl_code_points_append(&a, p->at, p->n);
        characters(&b, &a);
        a.n = 0;
        line_ends(&a, &b);
        b.n = 0;
        controls(&b, &a);
        a.n = 0;
        rc = compose(&a, &b);
        if (!rc && (a.failed || b.failed)) rc = PL_ENOMEM;
        *work += p->n + 1;
        if (!rc && *work > WORK_MAX) rc = PL_ELIMIT;
        done = !rc && same(&a, p);
        pl_code_points_clear(&b);
        if (rc) {
            pl_code_points_clear(&a);
            return rc;
        }
        pl_code_points_clear(p);
        *p = a;
        if (done) return PL_OK;
    }
}

/* -- the whole text --------------------------------------------------------------------------- */

static int is_space(int32_t c)
{
    return (c >= 9 && c <= 13) || c == ' ' || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
           c == 0x205F || c == 0x3000;
}

/* 11. Trims and joins white space, by Python's definition, which includes four more control
 * characters. */
static void join_spaces(struct points *out, const struct points *in)
{
    size_t first = 0, end = in->n;
    while (first < end && (is_space(in->at[first]) || (in->at[first] >= 28 && in->at[first] < 32)))
        first++;
    while (end > first &&
           (is_space(in->at[end - 1]) || (in->at[end - 1] >= 28 && in->at[end - 1] < 32)))
        end--;
    for (size_t i = first; i < end; i++) {
        if (!is_space(in->at[i])) pl_code_points_add(out, in->at[i]);
        else if (!is_space(in->at[i - 1])) pl_code_points_add(out, ' ');
    }
}

static int is_cased(int32_t c)
{
    return utf8proc_islower(c) || utf8proc_isupper(c) ||
           utf8proc_category(c) == UTF8PROC_CATEGORY_LT;
}

/* Ignored when looking for the end of a word. [Unicode 3.13, Case_Ignorable] */
static int is_ignorable(int32_t c)
{
    static const int32_t middle[] = { '\'',   '.',    ':',    0xB7,   0x387,  0x55F,
                                      0x5F4,  0x2018, 0x2019, 0x2024, 0x2027, 0xFE13,
                                      0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A };
    for (size_t i = 0; i < PL_COUNT(middle); i++)
        if (middle[i] == c) return 1;
    switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return 1;
    default: return 0;
    }
}

static int ends_word(const struct points *p, size_t i)
{
    size_t before = i, after = i + 1;
    while (before && is_ignorable(p->at[before - 1])) before--;
    while (after < p->n && is_ignorable(p->at[after])) after++;
    return before && is_cased(p->at[before - 1]) && !(after < p->n && is_cased(p->at[after]));
}

/* 12. Lower case. */
static void lower(struct points *out, const struct points *in)
{
    for (size_t i = 0; i < in->n; i++) {
        int32_t c = in->at[i];
        if (c == 0x130)
            pl_code_points_text(out, "i\xcc\x87", 3); /* the one letter that becomes two */
        else if (c == SIGMA && ends_word(in, i)) pl_code_points_add(out, FINAL_SIGMA);
        else
            pl_code_points_add(out,
                               c < 128 ? c + (c >= 'A' && c <= 'Z' ? 32 : 0) : utf8proc_tolower(c));
    }
}

static int fix_segments(struct points *out, const struct points *in)
{
    int with_entities = 1, rc = PL_OK;
    size_t work = 0;
    for (size_t at = 0, end; at < in->n && !rc; at = end) {
        struct points p = { 0 };
        for (end = at; end < in->n && in->at[end] != '\n'; end++)
            if (in->at[end] == '<') with_entities = 0; /* this is HTML: its entities are intended */
        end += end < in->n;
        pl_code_points_append(&p, in->at + at, end - at);
        rc = p.failed ? PL_ENOMEM : mend(&p, with_entities, &work);
        if (!rc) pl_code_points_append(out, p.at, p.n);
        pl_code_points_clear(&p);
    }
    return rc;
}

int pl_clean_text(char **out, size_t *bytes, const char *text, size_t n)
{
    struct points a = { 0 }, b = { 0 };
    int rc;
    *out = NULL;
    *bytes = 0;
    if (n > CLEAN_BYTES_MAX) return PL_ELIMIT;
    pl_code_points_text(&a, text, n);
    rc = fix_segments(&b, &a);
    a.n = 0;
    pl_html_unescape(&a, &b); /* 10, twice */
    b.n = 0;
    pl_html_unescape(&b, &a);
    a.n = 0;
    join_spaces(&a, &b);
    b.n = 0;
    lower(&b, &a);
    if (!rc && (a.failed || b.failed)) rc = PL_ENOMEM;
    if (!rc) rc = pl_code_points_utf8(out, bytes, &b);
    pl_code_points_clear(&a);
    pl_code_points_clear(&b);
    return rc;
}
