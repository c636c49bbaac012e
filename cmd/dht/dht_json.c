/* dht_json.c - records hold msgpack; users read and write JSON. Bytes and tuples, which JSON lacks,
 * become objects with one key. */
#include "dht_json.h"
#include "ref/small.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *hex(const uint8_t *data, size_t n)
{
    char *text = malloc(2 * n + 1);
    json_t *object;
    if (!text) return NULL;
    pl_hex(text, data, n);
    object = json_pack("{s:s}", "bytes", text);
    free(text);
    return object;
}

static json_t *value(const struct mp_value *v);

static json_t *list(const struct mp_value *v)
{
    json_t *items = json_array();
    for (size_t i = 0; items && i < v->n; i++) json_array_append_new(items, value(&v->item[i]));
    return items;
}

static json_t *real(double x)
{
    char text[32];
    if (isfinite(x)) return json_real(x);
    snprintf(text, sizeof text, "%g", x);
    return json_pack("{s:s}", "float", text);
}

/* A map with text keys is an object, any other one a list of pairs. */
static json_t *map(const struct mp_value *v)
{
    json_t *object = json_object(), *pairs;
    size_t i;
    for (i = 0; i < v->n && v->item[2 * i].kind == MP_STR; i++)
        json_object_setn_new(object, (const char *)v->item[2 * i].bytes, v->item[2 * i].n,
                             value(&v->item[2 * i + 1]));
    if (i == v->n) return object;
    json_decref(object);
    pairs = json_array();
    for (i = 0; i < v->n; i++)
        json_array_append_new(pairs, json_pack("[o,o]", value(&v->item[2 * i]),
                                               value(&v->item[2 * i + 1])));
    return json_pack("{s:o}", "map", pairs);
}

static json_t *value(const struct mp_value *v)
{
    switch (v->kind) {
    case MP_NIL: return json_null();
    case MP_BOOL: return json_boolean(v->truth);
    case MP_INT:
        if (!v->negative && v->number > INT64_MAX) return json_real((double)v->number);
        return json_integer((json_int_t)v->number);
    case MP_FLOAT: return real(v->real);
    case MP_STR: return json_stringn((const char *)v->bytes, v->n);
    case MP_BIN:
    case MP_EXT: return hex(v->bytes, v->n);
    case MP_LIST: return list(v);
    case MP_TUPLE: return json_pack("{s:o}", "tuple", list(v));
    case MP_MAP: return map(v);
    }
    return NULL;
}

json_t *dht_json_of(const uint8_t *data, size_t n)
{
    struct mp_value *v;
    json_t *json;
    if (mp_read(&v, data, n, NULL)) return hex(data, n);
    json = value(v);
    mp_free(v);
    return json;
}

static int write_hex(struct bytes *out, const char *text)
{
    struct bytes raw = { 0 };
    size_t n = strlen(text);
    int rc = n % 2 || strspn(text, "0123456789abcdefABCDEF") != n ? PL_EFORMAT : PL_OK;
    for (size_t i = 0; !rc && i < n; i += 2) {
        char pair[3] = { text[i], text[i + 1], 0 };
        bytes_u8(&raw, (uint8_t)strtoul(pair, NULL, 16));
    }
    if (!rc) rc = mp_bin(out, bytes_at(&raw), bytes_length(&raw));
    bytes_clear(&raw);
    return rc;
}

static int write_list(struct bytes *out, const json_t *items)
{
    size_t i;
    json_t *item;
    int rc = mp_list(out, json_array_size(items));
    json_array_foreach(items, i, item) if (!rc) rc = dht_json_write(out, item);
    return rc;
}

static int write_object(struct bytes *out, const json_t *object)
{
    const json_t *only = json_object_size(object) == 1
                             ? json_object_iter_value(json_object_iter((json_t *)(uintptr_t)object))
                             : NULL;
    struct bytes inside = { 0 };
    const char *key;
    json_t *item;
    int rc;
    if (only && json_object_get(object, "bytes") && json_is_string(only))
        return write_hex(out, json_string_value(only));
    if (only && json_object_get(object, "float") && json_is_string(only))
        return mp_float(out, strtod(json_string_value(only), NULL));
    if (only && json_object_get(object, "tuple") && json_is_array(only)) {
        rc = write_list(&inside, only);
        if (!rc) rc = mp_ext(out, MP_TUPLE_CODE, bytes_at(&inside), bytes_length(&inside));
        bytes_clear(&inside);
        return rc;
    }
    rc = mp_map(out, json_object_size(object));
    json_object_foreach((json_t *)(uintptr_t)object, key, item)
    {
        if (!rc) rc = mp_text(out, key);
        if (!rc) rc = dht_json_write(out, item);
    }
    return rc;
}

int dht_json_write(struct bytes *out, const json_t *v)
{
    switch (json_typeof(v)) {
    case JSON_NULL: return mp_nil(out);
    case JSON_TRUE:
    case JSON_FALSE: return mp_bool(out, json_is_true(v));
    case JSON_INTEGER: return mp_int(out, json_integer_value(v));
    case JSON_REAL: return mp_float(out, json_real_value(v));
    case JSON_STRING: return mp_str(out, json_string_value(v), json_string_length(v));
    case JSON_ARRAY: return write_list(out, v);
    case JSON_OBJECT: return write_object(out, v);
    }
    return PL_EFORMAT;
}
