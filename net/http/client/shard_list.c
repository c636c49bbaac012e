/* shard_list.c - the list of a data set's shards, in any of three forms. [TTT 2.1]
 *
 *   JSON    an array, or {"shards": [...]}, of URLs or {"url", "sha256"}
 *   HTML    a folder's page (folder_index.c)
 *   text    a URL for each line, with its SHA-256 after a space
 *
 * The form is found from the content, since servers' content types are often wrong. Relative
 * names are resolved against the list's own URL. */
#include "shard_list.h"
#include "data/files/json.h"
#include "folder_index.h"
#include "ref/small.h"

#include <ctype.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int http_is_url(const char *text)
{
    return !strncasecmp(text, "http://", 7) || !strncasecmp(text, "https://", 8);
}

int http_is_list(const char *url)
{
    static const char *const ends[] = { ".json", ".txt", ".htm", ".html", "/" };
    const char *host = strstr(url, "://") ? strstr(url, "://") + 3 : url;
    size_t n = strcspn(url, "?#"), m;
    /* A host alone, without a path: its root page. */
    if (strcspn(host, "/?#") == (size_t)(url + n - host)) return 1;
    for (size_t i = 0; i < PL_COUNT(ends); i++)
        if (n > (m = strlen(ends[i])) && !strncmp(url + n - m, ends[i], m)) return 1;
    return 0;
}

/* Resolves a name against the list's URL: a whole URL stays, /path is on the same host, anything
 * else lies in the list's folder. NULL: no memory, or too long. */
static char *resolve(const char *base, const char *name, size_t n)
{
    size_t host = strcspn(strstr(base, "://") ? strstr(base, "://") + 3 : base, "/?#");
    size_t front = (size_t)((strstr(base, "://") ? strstr(base, "://") + 3 : base) - base) + host;
    size_t path = strcspn(base, "?#");
    char *out;
    if (n >= HTTP_URL_MAX) return NULL;
    if (n > 8 && (!strncasecmp(name, "http://", 7) || !strncasecmp(name, "https://", 8)))
        return strndup(name, n);
    while (path > front && base[path - 1] != '/') path--;
    if (*name == '/') path = front;
    if (!(out = malloc(path + n + 2))) return NULL;
    snprintf(out, path + n + 2, "%.*s%s%.*s", (int)path, base,
             path == front && *name != '/' ? "/" : "", (int)n, name);
    return out;
}

/* The text ends with its line, not with a NUL. */
static int is_sha256(const char *text, size_t n)
{
    size_t i = 0;
    while (i < n && isxdigit((unsigned char)text[i])) i++;
    return n == 64 && i == n;
}

static int add(struct http_list *l, const char *base, const char *name, size_t n, const char *sha,
               size_t k, struct pl_err *err)
{
    if (sha && !is_sha256(sha, k))
        return pl_fail(err, PL_EFORMAT, "%.200s: entry %zu: '%.*s' is not a SHA-256 digest", base,
                       l->count + 1, (int)(k < 20 ? k : 20), sha);
    if (l->count >= HTTP_LIST_MAX)
        return pl_fail(err, PL_ELIMIT, "%.200s: more than %d entries", base, HTTP_LIST_MAX);
    if (pl_grow(&l->sha256, l->count, &(size_t){ l->capacity }, 1) ||
        pl_grow(&l->url, l->count, &l->capacity, 1))
        return pl_fail(err, PL_ENOMEM, "%.200s: no memory", base);
    char *url = resolve(base, name, n), *sum = sha ? strndup(sha, k) : NULL;
    if (!url || (sha && !sum) || !n) {
        free(url);
        free(sum);
        return pl_fail(err, PL_EFORMAT, "%.200s: entry %zu: an address of %zu characters", base,
                       l->count + 1, n);
    }
    l->url[l->count] = url;
    l->sha256[l->count++] = sum;
    return PL_OK;
}

static int from_json(struct http_list *l, const json_t *root, const char *base, struct pl_err *err)
{
    const json_t *entries = json_is_array(root) ? root : json_object_get(root, "shards"), *e;
    size_t i;
    int rc = PL_OK;
    if (!json_is_array(entries))
        return pl_fail(err, PL_EFORMAT, "%.200s: no array of shards", base);
    json_array_foreach(entries, i, e)
    {
        const json_t *url = json_is_string(e) ? e : json_object_get(e, "url");
        const json_t *sha = json_object_get(e, "sha256");
        if (!json_is_string(url) || (sha && !json_is_string(sha)))
            return pl_fail(err, PL_EFORMAT,
                           "%.200s: entry %zu is neither an address nor {\"url\", \"sha256\"}",
                           base, i + 1);
        rc = add(l, base, json_string_value(url), json_string_length(url), json_string_value(sha),
                 json_string_length(sha), err);
        if (rc) return rc;
    }
    return PL_OK;
}

static int from_lines(struct http_list *l, const char *text, size_t bytes, const char *base,
                      struct pl_err *err)
{
    int rc = PL_OK;
    for (const char *end = text + bytes, *line = text, *next; line < end && !rc; line = next) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        size_t n, k;
        next = stop ? stop + 1 : end;
        if (!stop) stop = end;
        while (stop > line && (stop[-1] == '\r' || stop[-1] == ' ')) stop--;
        if (stop == line || *line == '#') continue;
        for (n = 0; line + n < stop && line[n] != ' ' && line[n] != '\t'; n++) {}
        for (k = n; line + k < stop && (line[k] == ' ' || line[k] == '\t'); k++) {}
        rc = add(l, base, line, n, line + k < stop ? line + k : NULL, (size_t)(stop - line) - k,
                 err);
    }
    return rc;
}

static int from_page(struct http_list *l, const char *text, size_t bytes, const char *base,
                     struct pl_err *err)
{
    char **name;
    size_t count;
    int rc = http_index_read(&name, &count, text, bytes, HTTP_LIST_MAX, base, err);
    for (size_t i = 0; i < count; i++) {
        if (!rc) rc = add(l, base, name[i], strlen(name[i]), NULL, 0, err);
        free(name[i]);
    }
    free(name);
    return rc;
}

int http_list_parse(struct http_list *l, const char *text, size_t bytes, const char *url,
                    struct pl_err *err)
{
    json_t *root = pl_json_load(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    int rc;
    memset(l, 0, sizeof *l);
    if (!root && pl_json_status() == PL_ENOMEM)
        return pl_fail(err, PL_ENOMEM, "%.200s: no memory", url);
    rc = root                         ? from_json(l, root, url, err)
         : http_index_is(text, bytes) ? from_page(l, text, bytes, url, err)
                                      : from_lines(l, text, bytes, url, err);
    json_decref(root);
    if (!rc && !l->count) rc = pl_fail(err, PL_ENOTFOUND, "%.200s: an empty list", url);
    if (rc) http_list_clear(l);
    return rc;
}

int http_list_read(struct http_list *l, struct http_client *client, const char *url,
                   struct pl_err *err)
{
    void *text;
    size_t n;
    int rc = http_client_get(client, &text, &n, HTTP_LIST_BYTES_MAX, url, err);
    memset(l, 0, sizeof *l);
    if (rc) return rc;
    rc = http_list_parse(l, text, n, url, err);
    free(text);
    return rc;
}

void http_list_clear(struct http_list *l)
{
    for (size_t i = 0; i < l->count; i++) {
        free(l->url[i]);
        free(l->sha256[i]);
    }
    free(l->url);
    free(l->sha256);
    memset(l, 0, sizeof *l);
}
