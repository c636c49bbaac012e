/* charsmap.c - looks up a double-array trie. A 32-bit unit has bits 0-7 and 31: its label (bit 31
 * marks a value, which no byte equals), bit 8: a key ends here, bit 9: the offset is multiplied by
 * 256, bits 10-30: the offset. The child for a byte is at node ^ offset ^ byte. */
#include "charsmap.h"
#include "code_points.h"
#include "ref/small.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define VALUE_UNIT 0x80000000u
#define SHORT_CLUSTER 6 /* bytes: only shorter clusters are looked up as a whole */

static const char replacement[] = "\xEF\xBF\xBD";

int pl_charsmap_append(struct charsmap_text *t, const char *bytes, size_t n)
{
    if (pl_grow_by(&t->at, t->n, n, &t->capacity, 64)) return PL_ENOMEM;
    if (n) memcpy(t->at + t->n, bytes, n);
    t->n += n;
    return PL_OK;
}

static uint32_t unit(const struct charsmap *m, uint32_t i)
{
    return pl_le32(m->units + 4 * (size_t)i);
}

static uint32_t jump(uint32_t u) { return u >> 10 << (u & 512 ? 8 : 0); }

int pl_charsmap_init(struct charsmap *m, const void *blob, size_t bytes, const char *file,
                     struct pl_err *err)
{
    const uint8_t *p = blob;
    const char *value;
    uint32_t trie;
    memset(m, 0, sizeof *m);
    if (bytes) {
        struct charsmap head = { .units = p };
        trie = bytes < 4 ? 0 : unit(&head, 0);
        if (trie < 4 || trie % 4 || trie > bytes - 4 || bytes > UINT32_MAX)
            return pl_fail(err, PL_EFORMAT, "%s: character map of %zu bytes announces a trie of %u",
                           file, bytes, trie);
        m->units = p + 4;
        m->count = trie / 4;
        m->pool = (const char *)p + 4 + trie;
        m->pool_bytes = (uint32_t)(bytes - 4 - trie);
        if (m->pool_bytes && m->pool[m->pool_bytes - 1])
            return pl_fail(err, PL_EFORMAT, "%s: character map does not end with a zero byte",
                           file);
        if (!pl_code_points_valid(m->pool, m->pool_bytes))
            return pl_fail(err, PL_EFORMAT, "%s: the character map yields bytes that are not UTF-8",
                           file);
        for (uint32_t i = 0; i < m->count; i++) {
            uint32_t to = unit(m, i) & ~VALUE_UNIT;
            if (unit(m, i) & VALUE_UNIT &&
                (to >= m->pool_bytes || ((uint8_t)m->pool[to] & 0xC0) == 0x80))
                return pl_fail(err, PL_EFORMAT,
                               "%s: character map, unit %u points to byte %u of %u, "
                               "where no character begins",
                               file, i, to, m->pool_bytes);
        }
    }
    for (int c = 0; c < 128; c++) {
        char s = (char)c;
        m->plain[c] = c != '\r' && !pl_charsmap_find(m, &s, 1, 0, &value); /* CR may begin CR LF */
    }
    return PL_OK;
}

size_t pl_charsmap_find(const struct charsmap *m, const char *text, size_t n, int longest,
                        const char **value)
{
    size_t found = 0;
    uint32_t node;
    if (!m->count) return 0;
    node = jump(unit(m, 0));
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)text[i];
        uint32_t u;
        node ^= c;
        if (node >= m->count) break;
        u = unit(m, node);
        if ((u & (VALUE_UNIT | 255)) != c) break;
        node ^= jump(u);
        if (node >= m->count) break;
        if (u & 256 && unit(m, node) & VALUE_UNIT) {
            *value = m->pool + (unit(m, node) & ~VALUE_UNIT);
            found = i + 1;
            if (!longest) break;
        }
    }
    return found;
}

/* A character as cluster rules see it. transformers' tokenizer knows Unicode 17, utf8proc perhaps
 * only 15: newer combining marks that matter (SHORT_CLUSTER) are replaced by an older one. */
static int32_t as_mark(int32_t c)
{
    int younger = c == 0x897 || (c >= 0x1ACF && c <= 0x1ADD) || (c >= 0x1AE0 && c <= 0x1AEB);
    return younger ? 0x300 : c;
}

/* Length of the extended grapheme cluster at `text`, which is valid UTF-8. */
static size_t cluster(const char *text, size_t n)
{
    utf8proc_int32_t before, c, state = 0;
    size_t end = pl_code_points_first(&before, text, n);
    before = as_mark(before);
    while (end < n) {
        size_t more = pl_code_points_first(&c, text + end, n - end);
        c = as_mark(c);
        if (utf8proc_grapheme_break_stateful(before, c, &state)) break;
        end += more;
        before = c;
    }
    return end;
}

static int append_mapped(const struct charsmap *m, const char *text, size_t n, size_t whole,
                         struct charsmap_text *out)
{
    const char *value;
    if (n < whole && pl_charsmap_find(m, text, n, 0, &value))
        return pl_charsmap_append(out, value, strlen(value));
    for (size_t at = 0; at < n;) {
        int32_t c;
        size_t len = pl_code_points_first(&c, text + at, n - at);
        int rc = pl_charsmap_find(m, text + at, len, 0, &value)
                     ? pl_charsmap_append(out, value, strlen(value))
                     : pl_charsmap_append(out, text + at, len);
        if (rc) return rc;
        at += len;
    }
    return PL_OK;
}

static int valid_clusters(const struct charsmap *m, const char *text, size_t n,
                          struct charsmap_text *out)
{
    const uint8_t *s = (const uint8_t *)text;
    for (size_t at = 0; at < n;) {
        size_t end = at;
        int rc;
        /* ASCII followed by ASCII is a cluster of its own (except CR LF, which `plain` excludes) */
        while (end < n && s[end] < 128 && m->plain[s[end]] && (end + 1 == n || s[end + 1] < 128))
            end++;
        if (end > at) rc = pl_charsmap_append(out, text + at, end - at);
        else {
            end = at + cluster(text + at, n - at);
            rc = append_mapped(m, text + at, end - at, SHORT_CLUSTER, out);
        }
        if (rc) return rc;
        at = end;
    }
    return PL_OK;
}

int pl_charsmap_by_cluster(const struct charsmap *m, const char *text, size_t n,
                           struct charsmap_text *out)
{
    struct charsmap_text clean = { 0 };
    size_t at = 0, copied = 0;
    int rc = PL_OK;
    while (at < n && !rc) {
        int32_t c;
        size_t len = (uint8_t)text[at] < 128 ? 1 : pl_code_points_first(&c, text + at, n - at);
        if ((uint8_t)text[at] >= 128 && c < 0) {
            rc = pl_charsmap_append(&clean, text + copied, at - copied);
            if (!rc) rc = pl_charsmap_append(&clean, replacement, 3);
            copied = at + 1;
        }
        at += len;
    }
    if (!rc && !copied) return valid_clusters(m, text, n, out);
    if (!rc) rc = pl_charsmap_append(&clean, text + copied, n - copied);
    if (!rc) rc = valid_clusters(m, clean.at, clean.n, out);
    free(clean.at);
    return rc;
}

int pl_charsmap_by_longest(const struct charsmap *m, const char *text, size_t n,
                           struct charsmap_text *out)
{
    for (size_t at = 0; at < n;) {
        const char *value;
        int32_t c;
        size_t len = pl_charsmap_find(m, text + at, n - at, 1, &value);
        int rc;
        if (len) rc = pl_charsmap_append(out, value, strlen(value));
        else {
            len = pl_code_points_first(&c, text + at, n - at);
            rc = c < 0 ? pl_charsmap_append(out, replacement, 3)
                       : pl_charsmap_append(out, text + at, len);
        }
        if (rc) return rc;
        at += len;
    }
    return PL_OK;
}
