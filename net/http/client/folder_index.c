/* folder_index.c - finds the shards that a web server's folder page links to.
 *
 *   tags <a href=...> - unescape HTML - resolve against the page - keep *.parquet below its folder
 *
 * A page is a stranger's text: it may link anywhere. A link counts only if it stays in the page's
 * own folder on its own server, so that a list cannot send peers elsewhere. The parser understands
 * only the HTML that servers write into such pages: tags, comments, the first href of an <a>,
 * references to characters below 128. */
#include "folder_index.h"
#include "client.h"
#include "ref/small.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SUFFIX ".parquet"

struct names {
    char **name; /* unescaped */
    size_t count, capacity;
};

int http_index_is(const char *text, size_t bytes)
{
    size_t i = bytes >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0;
    while (i < bytes && isspace((unsigned char)text[i])) i++;
    return i < bytes && text[i] == '<';
}

/* -- HTML ------------------------------------------------------------------------------------- */

/* The character of a reference such as &amp; or &#38;, and its length *n in the text. An & that
 * begins none stands for itself. */
static char reference(const char *at, const char *end, size_t *n)
{
    static const struct {
        const char *name;
        char sign;
    } named[] = {
        { "&amp;", '&' }, { "&lt;", '<' }, { "&gt;", '>' }, { "&quot;", '"' }, { "&apos;", '\'' }
    };
    char digits[8] = "", *stop;
    size_t left = (size_t)(end - at);
    unsigned long code;
    for (size_t i = 0; i < PL_COUNT(named); i++) {
        *n = strlen(named[i].name);
        if (left >= *n && !memcmp(at, named[i].name, *n)) return named[i].sign;
    }
    *n = 1;
    if (left < 4 || at[1] != '#') return '&';
    memcpy(digits, at + 2, left - 2 < 7 ? left - 2 : 7);
    int is_hex = digits[0] == 'x' || digits[0] == 'X';
    if (!isxdigit((unsigned char)digits[is_hex])) return '&';
    code = strtoul(digits + is_hex, &stop, is_hex ? 16 : 10);
    if (*stop != ';' || !code || code > 127) return '&';
    *n = (size_t)(stop - digits) + 3;
    return (char)code;
}

/* The value of an attribute, from its = on; text has space for HTTP_URL_MAX, and one that is longer
 * comes out empty. Returns where it ends. */
static const char *value(char *text, const char *at, const char *end)
{
    size_t used = 0, n;
    char quote = at < end && (*at == '"' || *at == '\'') ? *at++ : 0;
    for (; at < end && (quote ? *at != quote : *at != '>' && !isspace((unsigned char)*at));
         at += n) {
        char sign = *at;
        n = 1;
        if (sign == '&') sign = reference(at, end, &n);
        if (used < HTTP_URL_MAX) text[used++] = sign;
    }
    if (used == HTTP_URL_MAX) used = 0;
    text[used] = 0;
    if (memchr(text, 0, used)) text[0] = 0; /* no address has one */
    return at < end && quote ? at + 1 : at;
}

/* The attributes of a tag, from behind its name; href receives the first one of that name. Returns
 * where the tag ends. */
static const char *attributes(char *href, const char *at, const char *end)
{
    char other[HTTP_URL_MAX + 1];
    int has_one = 0;
    href[0] = 0;
    while (at < end && *at != '>') {
        const char *name = at;
        while (at < end && *at != '>' && *at != '=' && !isspace((unsigned char)*at)) at++;
        size_t n = (size_t)(at - name);
        while (at < end && isspace((unsigned char)*at)) at++;
        if (at == end || *at != '=') continue;
        at++;
        while (at < end && isspace((unsigned char)*at)) at++;
        int is_href = !has_one && n == 4 && !strncasecmp(name, "href", 4);
        at = value(is_href ? href : other, at, end);
        has_one |= is_href;
    }
    return at;
}

/* -- addresses -------------------------------------------------------------------------------- */

static int nibble(char c)
{
    return isdigit((unsigned char)c) ? c - '0' : tolower((unsigned char)c) - 'a' + 10;
}

/* Decodes %41 to A in place. Returns 0 if the result is not a file name: it would hold a NUL, a
 * control character, or an escaped slash, which would change the folder. */
static int unescape(char *text)
{
    char *to = text;
    for (const char *p = text; *p; p++) {
        char c = *p;
        if (c == '%' && isxdigit((unsigned char)p[1]) && isxdigit((unsigned char)p[2])) {
            c = (char)(16 * nibble(p[1]) + nibble(p[2]));
            if (c == '/') return 0;
            p += 2;
        }
        if ((unsigned char)c < 32 || c == 127) return 0;
        *to++ = c;
    }
    *to = 0;
    return 1;
}

static char *escape(const char *name)
{
    static const char digit[] = "0123456789ABCDEF";
    char *out = malloc(3 * strlen(name) + 1), *to = out;
    if (!out) return NULL;
    for (; *name; name++) {
        unsigned char c = (unsigned char)*name;
        if (isalnum(c) || strchr("-._~/", c)) *to++ = *name;
        else *to++ = '%', *to++ = digit[c >> 4], *to++ = digit[c & 15];
    }
    *to = 0;
    return out;
}

/* No component of the path is "..", "." or empty: the file lies below the folder. */
static int is_below(const char *path)
{
    for (;; path++) {
        size_t n = strcspn(path, "/");
        if (!n || (n == 1 && path[0] == '.') || (n == 2 && path[0] == '.' && path[1] == '.'))
            return 0;
        path += n;
        if (!*path) return 1;
    }
}

/* Resolves a link against the page's folder. Returns the part below it, or NULL if the link leads
 * elsewhere or does not name a shard. Changes link. The host is the first `host` characters of url;
 * the folder is unescaped, with a slash at both ends. */
static char *inside(char *link, const char *url, size_t host, const char *folder)
{
    size_t n;
    link[strcspn(link, "#")] = 0;
    if (strchr(link, '?')) return NULL;
    if (!strncasecmp(link, url, host) && link[host] == '/') link += host;
    /* A colon before any slash ends a scheme; servers escape those of names, or put ./ before. */
    if (link[strcspn(link, ":/")] == ':' || !unescape(link)) return NULL;
    n = strlen(folder);
    if (!strncmp(link, folder, n)) link += n;
    if (link[0] == '.' && link[1] == '/') link += 2;
    return strcmp(link, SUFFIX) && pl_ends_with(link, SUFFIX) && is_below(link) ? link : NULL;
}

/* -- the page --------------------------------------------------------------------------------- */

static int add(struct names *l, const char *name)
{
    if (pl_grow(&l->name, l->count, &l->capacity, 64)) return PL_ENOMEM;
    l->name[l->count] = strdup(name);
    return l->name[l->count] ? (l->count++, PL_OK) : PL_ENOMEM;
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Sorted, each once, and escaped again. */
static int finish(struct names *l)
{
    size_t kept = 0;
    int rc = PL_OK;
    if (l->count) qsort(l->name, l->count, sizeof *l->name, compare);
    for (size_t i = 0; i < l->count; i++) {
        if (kept && !strcmp(l->name[kept - 1], l->name[i])) free(l->name[i]);
        else l->name[kept++] = l->name[i];
    }
    l->count = kept;
    for (size_t i = 0; i < kept && !rc; i++) {
        char *text = escape(l->name[i]);
        if (!text) rc = PL_ENOMEM;
        else {
            free(l->name[i]);
            l->name[i] = text;
        }
    }
    return rc;
}

/* The page's folder. 0: the address has no folder. */
static int folder_of(char folder[HTTP_URL_MAX], const char *url, size_t *host)
{
    const char *behind = strstr(url, "://");
    size_t from, to = strcspn(url, "?#");
    if (!behind || to >= HTTP_URL_MAX) return 0;
    from = *host = (size_t)(behind + 3 - url) + strcspn(behind + 3, "/?#");
    while (to > from && url[to - 1] != '/') to--;
    if (to == from) snprintf(folder, HTTP_URL_MAX, "/");
    else snprintf(folder, HTTP_URL_MAX, "%.*s", (int)(to - from), url + from);
    return unescape(folder);
}

/* The start of the next tag; comments are skipped. `end` if there is none. */
static const char *next_tag(const char *at, const char *end)
{
    while (at < end && (at = memchr(at, '<', (size_t)(end - at)))) {
        if (end - at < 4 || memcmp(at, "<!--", 4)) return at;
        at = memmem(at + 4, (size_t)(end - at) - 4, "-->", 3);
        if (!at) break;
        at += 3;
    }
    return end;
}

int http_index_read(char ***name, size_t *count, const char *page, size_t bytes, size_t most,
                    const char *url, struct pl_err *err)
{
    struct names l = { 0 };
    char folder[HTTP_URL_MAX], href[HTTP_URL_MAX + 1];
    const char *end = page + bytes, *at, *found;
    size_t host;
    int rc = PL_OK;
    *name = NULL;
    *count = 0;
    if (!folder_of(folder, url, &host))
        return pl_fail(err, PL_EFORMAT, "%.200s: no address of a folder", url);
    for (at = next_tag(page, end); at < end && !rc; at = next_tag(at, end)) {
        if (end - at < 3 || (at[1] | 32) != 'a' || !isspace((unsigned char)at[2])) {
            at++;
            continue;
        }
        at = attributes(href, at + 2, end);
        if (!(found = inside(href, url, host, folder))) continue;
        if (l.count >= 2 * most) /* a page may name each twice: its icon, its name */
            rc = pl_fail(err, PL_ELIMIT, "%.200s: more than %zu links to shards", url, 2 * most);
        else if ((rc = add(&l, found))) pl_fail(err, rc, "%.200s: no memory", url);
    }
    if (!rc && (rc = finish(&l))) pl_fail(err, rc, "%.200s: no memory", url);
    if (!rc && !l.count)
        rc = pl_fail(err, PL_ENOTFOUND,
                     "%.200s: a page with no link to a *" SUFFIX " in its folder", url);
    if (rc) {
        for (size_t i = 0; i < l.count; i++) free(l.name[i]);
        free(l.name);
        return rc;
    }
    *name = l.name;
    *count = l.count;
    return PL_OK;
}
