/* golden_python_repr.c - values as Python's repr() prints them: None, True, the shortest decimal
 * that reads back as the same float, quoted text with escapes, tuples, lists, dicts. */
#include "golden_python_repr.h"
#include "net/hivemind/messages/msgpack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void python_repr_add(struct bytes *out, const char *text) { bytes_add(out, text, strlen(text)); }

static void show_real(struct bytes *out, double x)
{
    char text[64];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x) break;
    }
    if (fabs(x) >= 1e-4 && fabs(x) < 1e16 && strchr(text, 'e'))
        snprintf(text, sizeof text, "%.0f", x);
    python_repr_add(out, text);
    if (!strpbrk(text, ".enai")) python_repr_add(out, ".0");
}

static void show_text(struct bytes *out, const uint8_t *s, size_t n, int is_bytes)
{
    char quote = memchr(s, '\'', n) && !memchr(s, '"', n) ? '"' : '\'', text[8];
    if (is_bytes) bytes_u8(out, 'b');
    bytes_u8(out, (uint8_t)quote);
    for (size_t i = 0; i < n; i++) {
        if (s[i] == '\\' || s[i] == quote) snprintf(text, sizeof text, "\\%c", s[i]);
        else if (s[i] == '\n') strcpy(text, "\\n");
        else if (s[i] == '\r') strcpy(text, "\\r");
        else if (s[i] == '\t') strcpy(text, "\\t");
        else if (s[i] < 0x20 || s[i] == 0x7f || (is_bytes && s[i] > 0x7f))
            snprintf(text, sizeof text, "\\x%02x", s[i]);
        else snprintf(text, sizeof text, "%c", s[i]);
        python_repr_add(out, text);
    }
    bytes_u8(out, (uint8_t)quote);
}

static void show(struct bytes *out, const struct mp_value *v)
{
    char text[32];
    switch (v->kind) {
    case MP_NIL: python_repr_add(out, "None"); break;
    case MP_BOOL: python_repr_add(out, v->truth ? "True" : "False"); break;
    case MP_INT:
        if (v->negative) snprintf(text, sizeof text, "%lld", (long long)(int64_t)v->number);
        else snprintf(text, sizeof text, "%llu", (unsigned long long)v->number);
        python_repr_add(out, text);
        break;
    case MP_FLOAT: show_real(out, v->real); break;
    case MP_STR: show_text(out, v->bytes, v->n, 0); break;
    case MP_BIN:
    case MP_EXT: show_text(out, v->bytes, v->n, 1); break;
    case MP_LIST:
    case MP_TUPLE:
        python_repr_add(out, v->kind == MP_LIST ? "[" : "(");
        for (size_t i = 0; i < v->n; i++) {
            if (i) python_repr_add(out, ", ");
            show(out, &v->item[i]);
        }
        python_repr_add(out, v->kind == MP_LIST ? "]" : v->n == 1 ? ",)" : ")");
        break;
    case MP_MAP:
        python_repr_add(out, "{");
        for (size_t i = 0; i < v->n; i++) {
            if (i) python_repr_add(out, ", ");
            show(out, &v->item[2 * i]);
            python_repr_add(out, ": ");
            show(out, &v->item[2 * i + 1]);
        }
        python_repr_add(out, "}");
        break;
    }
}

static void show_packed(struct bytes *out, const uint8_t *data, size_t n)
{
    struct mp_value *v;
    if (mp_read(&v, data, n, NULL)) {
        python_repr_add(out, "?");
        return;
    }
    show(out, v);
    mp_free(v);
}

static void show_dated(struct bytes *out, const uint8_t *data, size_t n, double expiration)
{
    python_repr_add(out, "ValueWithExpiration(value=");
    show_packed(out, data, n);
    python_repr_add(out, ", expiration_time=");
    show_real(out, expiration);
    python_repr_add(out, ")");
}

void python_repr_result(struct bytes *out, const struct dht_result *r)
{
    if (r->type == DHT_NOT_FOUND) {
        python_repr_add(out, "None");
    } else if (r->type == DHT_FOUND_REGULAR) {
        show_dated(out, bytes_at(&r->value), bytes_length(&r->value), r->expiration);
    } else {
        python_repr_add(out, "ValueWithExpiration(value={");
        for (size_t i = 0; i < r->dictionary.count; i++) {
            const struct dht_item *item = &r->dictionary.items[i];
            if (i) python_repr_add(out, ", ");
            show_packed(out, item->subkey, item->subkey_n);
            python_repr_add(out, ": ");
            show_dated(out, item->value, item->n, item->expiration);
        }
        python_repr_add(out, "}, expiration_time=");
        show_real(out, r->expiration);
        python_repr_add(out, ")");
    }
}
