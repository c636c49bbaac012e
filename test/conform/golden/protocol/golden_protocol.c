/* golden_protocol.c - area protocol: recorded data of hivemind's DHT, averaging and optimizer.
 * Finds out what kind a file is, by its stem or else by what only that kind holds; here are also
 * the kinds that everything else stands on: ids, msgpack, protobuf. */
#include "golden_protocol.h"
#include "test/conform/golden/areas.h"
#include "test/conform/golden/golden.h"
#include "data/files/file.h"
#include "net/hivemind/messages/averaging_code.h"
#include "net/hivemind/records/dht_dictionary.h"
#include "net/hivemind/kademlia/dht_message.h"
#include "net/message.h"
#include "ref/wire.h"
#include "net/hivemind/messages/averaging.pb-c.h"
#include "net/hivemind/messages/dht.pb-c.h"
#include "net/hivemind/messages/runtime.pb-c.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define JSON_BYTES_MAX (64u << 20)

/* mark: a member of the root, or of the first element of the array "scenarios". */
static const struct {
    const char *stem, *mark;
    protocol_run *run;
} kinds[] = {
    { "dht_ids", "ids", protocol_dht_ids },
    { "msgpack", "values", protocol_msgpack },
    { "protobuf", "enums", protocol_protobuf },
    { "routing_table", "bucket_size", protocol_routing_table },
    { "timed_storage", "maxsize", protocol_timed_storage },
    { "dht_calls", "calls", protocol_dht_calls },
    { "signatures", "signed_bytes_example", protocol_signatures },
    { "schema", "prefix", protocol_schema },
    { "auth", "authority_public_key", protocol_auth },
    { "progress", "global_progress_cases", protocol_progress },
    { "matchmaking", "group_bits_after_group", protocol_matchmaking },
    { "schema_hash", "cases", protocol_schema_hash },
    { "partition", "partitions", protocol_partition },
    { "join_rejections", "joins", protocol_join_rejections },
    { "allreduce", "streams", protocol_allreduce },
    { "state_download", "all_averagers_declarations", protocol_state_download },
    { "training_trace", "find_requests_counted", protocol_training_trace },
};

/* X.out0.f32: outputs that the recording X.json refers to. */
static int belongs_to_recording(const char *path)
{
    const char *out = strstr(path, ".out");
    size_t length = strlen(path);
    char json[4096];
    if (length < 4 || strcmp(path + length - 4, ".f32") || !out) return 0;
    snprintf(json, sizeof json, "%.*s.json", (int)(out - path), path);
    return access(json, R_OK) == 0;
}

int golden_area_protocol(struct golden *g, const char *path, const char *stem)
{
    const json_t *scenario;
    size_t length = strlen(path), i = 0;
    json_t *root;
    if (belongs_to_recording(path)) return 1;
    if (length < 5 || strcmp(path + length - 5, ".json")) return 0;
    if (!(root = protocol_json(g, path))) return 1;
    scenario = json_array_get(json_object_get(root, "scenarios"), 0);
    while (i < PL_COUNT(kinds) && strcmp(stem, kinds[i].stem)) i++;
    if (i == PL_COUNT(kinds))
        for (i = 0; i < PL_COUNT(kinds); i++)
            if (!strncmp(stem, kinds[i].stem, strlen(kinds[i].stem)) &&
                (json_object_get(root, kinds[i].mark) || json_object_get(scenario, kinds[i].mark)))
                break;
    if (i < PL_COUNT(kinds)) {
        long seen = g->passed + g->failed;
        kinds[i].run(g, root);
        if (!g->filter && g->passed + g->failed == seen)
            golden_fail(g, "file", "holds nothing that its kind knows");
    }
    json_decref(root);
    return i < PL_COUNT(kinds);
}

/* --- shared ----------------------------------------------------------------------------------- */

/* Puts quotes around integers of more than 18 digits. */
static char *quote_large(const char *text, size_t n)
{
    char *out = malloc(2 * n + 3);
    size_t to = 0;
    int inside = 0;
    for (size_t i = 0; out && i < n;) {
        size_t digits = 0;
        if (!inside) digits = strspn(text + i, "0123456789");
        if (digits > 18 && (text[i + digits] == ',' || strchr(" \r\n}]", text[i + digits])) && i &&
            strchr(" :[,\n", text[i - 1])) {
            out[to++] = '"';
            memcpy(out + to, text + i, digits);
            to += digits;
            out[to++] = '"';
            i += digits;
            continue;
        }
        if (digits) { /* also the fraction of a real */
            memcpy(out + to, text + i, digits);
            to += digits;
            i += digits;
            continue;
        }
        if (inside && text[i] == '\\') out[to++] = text[i++];
        else if (text[i] == '"') inside = !inside;
        out[to++] = text[i++];
    }
    if (out) out[to] = 0;
    return out;
}

json_t *protocol_json(struct golden *g, const char *path)
{
    void *text;
    size_t n;
    struct pl_err err;
    json_error_t why = { .text = "no memory" };
    json_t *root = NULL;
    char *quoted;
    if (pl_file_read(&text, &n, path, JSON_BYTES_MAX, &err)) {
        golden_fail(g, "file", "%s", err.text);
        return NULL;
    }
    if ((quoted = quote_large(text, n))) root = json_loads(quoted, JSON_ALLOW_NUL, &why);
    if (!root) golden_fail(g, "file", "%s", why.text);
    free(quoted);
    free(text);
    return root;
}

double protocol_real(const json_t *value)
{
    if (json_is_object(value)) value = json_object_get(value, "float64");
    return json_is_string(value) ? strtod(json_string_value(value), NULL)
                                 : json_number_value(value);
}

const char *protocol_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

int protocol_id(struct golden *g, const json_t *object, const char *key, struct dht_id *id)
{
    struct bytes raw = { 0 };
    int good = wire_member(g, object, key, &raw);
    if (good && (good = !dht_id_parse(id, bytes_at(&raw), bytes_length(&raw))) == 0)
        golden_fail(g, key, "not 40 hex digits");
    bytes_clear(&raw);
    return good;
}

void protocol_hex(char *hex, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++) sprintf(hex + 2 * i, "%02x", ((const uint8_t *)data)[i]);
    hex[2 * n] = 0;
}

static int value_list(struct golden *g, const json_t *list, struct bytes *out)
{
    size_t i;
    json_t *item;
    mp_list(out, json_array_size(list));
    json_array_foreach(list, i, item) if (!protocol_value(g, item, out)) return 0;
    return 1;
}

static int value_dictionary(struct golden *g, const json_t *v, struct bytes *out)
{
    struct bytes inside = { 0 };
    const json_t *items = json_object_get(v, "items");
    size_t i;
    json_t *item;
    int good = (mp_list(&inside, 3), protocol_value(g, json_object_get(v, "maxsize"), &inside)) &&
               protocol_value(g, json_object_get(v, "latest_expiration_time"), &inside);
    mp_list(&inside, json_array_size(items));
    json_array_foreach(items, i, item)
    {
        mp_list(&inside, 3);
        good = good && protocol_value(g, json_array_get(item, 0), &inside) &&
               protocol_value(g, json_array_get(item, 1), &inside);
        mp_float(&inside, protocol_real(json_array_get(item, 2)));
    }
    mp_ext(out, MP_DICTIONARY_CODE, bytes_at(&inside), bytes_length(&inside));
    bytes_clear(&inside);
    return good;
}

static int value_int(const json_t *x, struct bytes *out)
{
    const char *text = json_string_value(x);
    if (text) return !mp_uint(out, strtoull(text, NULL, 10));
    return !mp_int(out, json_integer_value(x));
}

int protocol_value(struct golden *g, const json_t *value, struct bytes *out)
{
    const json_t *x;
    struct bytes inside = { 0 };
    size_t i;
    json_t *pair;
    int good;
    if (json_is_null(value)) return !mp_nil(out);
    if (json_is_boolean(value)) return !mp_bool(out, json_is_true(value));
    if ((x = json_object_get(value, "int"))) return value_int(x, out);
    if (json_object_get(value, "float64")) return !mp_float(out, protocol_real(value));
    if ((x = json_object_get(value, "str")))
        return !mp_str(out, json_string_value(x), json_string_length(x));
    if ((x = json_object_get(value, "list"))) return value_list(g, x, out);
    if ((x = json_object_get(value, "dht_dictionary"))) return value_dictionary(g, x, out);
    if ((x = json_object_get(value, "map"))) {
        mp_map(out, json_array_size(x));
        json_array_foreach(x, i,
                           pair) if (!protocol_value(g, json_array_get(pair, 0), out) ||
                                     !protocol_value(g, json_array_get(pair, 1), out)) return 0;
        return 1;
    }
    if ((x = json_object_get(value, "tuple"))) {
        good = value_list(g, x, &inside);
        mp_ext(out, MP_TUPLE_CODE, bytes_at(&inside), bytes_length(&inside));
    } else if (json_object_get(value, "bytes")) {
        good = wire_member(g, value, "bytes", &inside);
        mp_bin(out, bytes_at(&inside), bytes_length(&inside));
    } else {
        golden_fail(g, "value", "of a kind that is not known here");
        good = 0;
    }
    bytes_clear(&inside);
    return good;
}

/* --- ids, msgpack ----------------------------------------------------------------------------- */

static void check_id(struct golden *g, const json_t *c, size_t at)
{
    const json_t *source = json_object_get(c, "source");
    struct bytes hashed = { 0 }, want = { 0 };
    struct dht_id id, expected;
    char what[64];
    snprintf(what, sizeof what, "source %zu", at);
    if (json_object_get(source, "bytes")) wire_member(g, source, "bytes", &hashed);
    else if (!protocol_value(g, source, &hashed)) goto done;
    if (!wire_member(g, c, "hashed_bytes", &want) || !protocol_id(g, c, "id", &expected)) goto done;
    wire_same(g, what, &hashed, &want);
    if (json_is_null(source)) goto done; /* to hivemind no source means: draw a random id */
    dht_id_of(&id, bytes_at(&hashed), bytes_length(&hashed));
    snprintf(what, sizeof what, "id %zu", at);
    golden_check(g, what, dht_id_equal(&id, &expected), "another id");
done:
    bytes_clear(&hashed);
    bytes_clear(&want);
}

void protocol_dht_ids(struct golden *g, const json_t *root)
{
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(root, "ids"), i, c) check_id(g, c, i);
    json_array_foreach(json_object_get(root, "xor"), i, c)
    {
        struct dht_id a, b, want, got;
        int bits = (int)golden_int(g, c, "common_prefix_bits");
        if (!protocol_id(g, c, "a", &a) || !protocol_id(g, c, "b", &b) ||
            !protocol_id(g, c, "xor", &want))
            continue;
        for (int k = 0; k < DHT_ID_BYTES; k++) got.bytes[k] = a.bytes[k] ^ b.bytes[k];
        golden_check(g, "xor", dht_id_equal(&got, &want), "pair %zu differs", i);
        golden_check(g, "common prefix", dht_id_common_bits(&a, &b) == bits,
                     "pair %zu: %d, expected %d", i, dht_id_common_bits(&a, &b), bits);
    }
}

static void read_back(struct golden *g, const json_t *c, const struct bytes *raw, const char *what)
{
    const json_t *dictionary = json_object_get(json_object_get(c, "value"), "dht_dictionary");
    struct bytes again = { 0 }, want = { 0 };
    struct mp_value *v;
    struct pl_err err;
    int rc;
    if (dictionary) {
        struct dht_dictionary d;
        if (!(rc = dht_dictionary_read(&d, bytes_at(raw), bytes_length(raw), &err)))
            dht_dictionary_write(&again, &d);
        dht_dictionary_clear(&d);
    } else if (!(rc = mp_read(&v, bytes_at(raw), bytes_length(raw), &err))) {
        mp_write(&again, v);
        mp_free(v);
    }
    if (json_is_true(json_object_get(c, "python_rejects")))
        golden_check(g, what, rc != 0, "was read, hivemind refuses it");
    else if (rc) golden_check(g, what, 0, "%s", err.text);
    else if (wire_member(g, c, "roundtrip_hex", &want)) wire_same(g, what, &again, &want);
    bytes_clear(&again);
    bytes_clear(&want);
}

void protocol_msgpack(struct golden *g, const json_t *root)
{
    size_t i;
    json_t *c;
    json_array_foreach(json_object_get(root, "values"), i, c)
    {
        struct bytes made = { 0 }, raw = { 0 };
        char what[64];
        snprintf(what, sizeof what, "value %zu is written", i);
        if (wire_member(g, c, "hex", &raw) &&
            protocol_value(g, json_object_get(c, "value"), &made)) {
            wire_same(g, what, &made, &raw);
            snprintf(what, sizeof what, "value %zu is read and written", i);
            read_back(g, c, &raw, what);
        }
        bytes_clear(&made);
        bytes_clear(&raw);
    }
}

/* --- protobuf --------------------------------------------------------------------------------- */

static const ProtobufCMessageDescriptor *const messages[] = {
    &hivemind__access_token__descriptor,       &hivemind__request_auth_info__descriptor,
    &hivemind__response_auth_info__descriptor, &hivemind__node_info__descriptor,
    &hivemind__ping_request__descriptor,       &hivemind__ping_response__descriptor,
    &hivemind__store_request__descriptor,      &hivemind__store_response__descriptor,
    &hivemind__find_request__descriptor,       &hivemind__find_response__descriptor,
    &hivemind__find_result__descriptor,        &hivemind__tensor__descriptor,
    &hivemind__join_request__descriptor,       &hivemind__message_from_leader__descriptor,
    &hivemind__averaging_data__descriptor,     &hivemind__download_request__descriptor,
    &hivemind__download_data__descriptor,
};

static int same_fields(const ProtobufCMessage *m, const json_t *fields);

/* One element of a field against {"bytes": ...}, text, true, {"float64": ...}, {"enum", "number"},
 * a number, or the fields of a message. */
static int same_element(const ProtobufCFieldDescriptor *f, const void *at, const json_t *want)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_BYTES: {
        const ProtobufCBinaryData *b = at;
        const char *text = json_string_value(want);
        struct bytes raw = { 0 };
        int same;
        if (text) bytes_add(&raw, text, strlen(text)); /* a text field that we keep as bytes */
        else wire_hex(&raw, protocol_text(want, "bytes"));
        same = bytes_length(&raw) == b->len &&
               (!b->len || !memcmp(bytes_at(&raw), b->data, b->len));
        bytes_clear(&raw);
        return same;
    }
    case PROTOBUF_C_TYPE_STRING: {
        const char *text = *(char *const *)at;
        return json_is_string(want) && !strcmp(text, json_string_value(want));
    }
    case PROTOBUF_C_TYPE_BOOL: return *(const protobuf_c_boolean *)at == json_is_true(want);
    case PROTOBUF_C_TYPE_DOUBLE: return *(const double *)at == protocol_real(want);
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_ENUM: {
        const json_t *number = json_is_object(want) ? json_object_get(want, "number") : want;
        return *(const int32_t *)at == (int32_t)json_integer_value(number);
    }
    case PROTOBUF_C_TYPE_MESSAGE: return same_fields(*(ProtobufCMessage *const *)at, want);
    default: return 0;
    }
}

static size_t element_size(const ProtobufCFieldDescriptor *f)
{
    switch (f->type) {
    case PROTOBUF_C_TYPE_BYTES: return sizeof(ProtobufCBinaryData);
    case PROTOBUF_C_TYPE_BOOL: return sizeof(protobuf_c_boolean);
    case PROTOBUF_C_TYPE_DOUBLE: return sizeof(double);
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_MESSAGE: return sizeof(void *);
    default: return sizeof(int32_t);
    }
}

/* The fields named are there with their numbers and values; the bytes say the rest, when
 * written. */
static int same_fields(const ProtobufCMessage *m, const json_t *fields)
{
    const char *name;
    json_t *field;
    if (!m) return 0;
    json_object_foreach((json_t *)(uintptr_t)fields, name, field)
    {
        const ProtobufCFieldDescriptor *f =
            protobuf_c_message_descriptor_get_field_by_name(m->descriptor, name);
        const json_t *want = json_object_get(field, "value");
        const uint8_t *at;
        size_t i;
        json_t *element;
        if (!f || f->id != (uint32_t)json_integer_value(json_object_get(field, "number"))) return 0;
        at = (const uint8_t *)m + f->offset;
        if (f->label != PROTOBUF_C_LABEL_REPEATED) {
            if (!same_element(f, at, want)) return 0;
            continue;
        }
        if (*(const size_t *)((const uint8_t *)m + f->quantifier_offset) != json_array_size(want))
            return 0;
        at = *(const uint8_t *const *)at;
        json_array_foreach(want, i, element) if (!same_element(f, at + i * element_size(f),
                                                               element)) return 0;
    }
    return 1;
}

static void check_message(struct golden *g, const json_t *c, size_t at)
{
    const char *type = protocol_text(c, "type");
    struct bytes raw = { 0 }, again = { 0 };
    ProtobufCMessage *m = NULL;
    char what[100];
    size_t i = 0;
    snprintf(what, sizeof what, "%.40s %zu", type, at);
    while (i < PL_COUNT(messages) && strcmp(messages[i]->short_name, type)) i++;
    if (i == PL_COUNT(messages)) golden_fail(g, what, "no such message here");
    else if (wire_member(g, c, "hex", &raw)) {
        struct pl_err err;
        m = message_unpack(messages[i], bytes_at(&raw), bytes_length(&raw), &err);
        if (!m) golden_fail(g, what, "%s", err.text);
    }
    if (m) {
        golden_check(g, what, same_fields(m, json_object_get(c, "fields")), "fields read differ");
        message_pack(&again, m);
        snprintf(what, sizeof what, "%.40s %zu is written", type, at);
        wire_same(g, what, &again, &raw);
        message_free(m);
    }
    bytes_clear(&raw);
    bytes_clear(&again);
}

static void check_enum(struct golden *g, const json_t *members, const char *type,
                       const char *const *names, size_t count)
{
    const json_t *want = json_object_get(members, type);
    const char *name;
    json_t *number;
    json_object_foreach((json_t *)(uintptr_t)want, name, number)
    {
        size_t i = 0;
        while (i < count && strcmp(names[i], name)) i++;
        golden_check(g, type, i == (size_t)json_integer_value(number), "%.40s is not %zu", name, i);
    }
}

void protocol_protobuf(struct golden *g, const json_t *root)
{
#define NAME(name) #name,
    static const char *const codes[] = { AVERAGING_CODES(NAME) };
#undef NAME
    static const char *const found[] = { [DHT_NOT_FOUND] = "NOT_FOUND",
                                         [DHT_FOUND_REGULAR] = "FOUND_REGULAR",
                                         [DHT_FOUND_DICTIONARY] = "FOUND_DICTIONARY" };
    const char *methods[PL_COMPRESSIONS];
    const json_t *enums = json_object_get(root, "enums");
    size_t i;
    json_t *c;
    check_enum(g, enums, "MessageCode", codes, PL_COUNT(codes));
    check_enum(g, enums, "ResultType", found, PL_COUNT(found));
    for (i = 0; i < PL_COMPRESSIONS; i++) methods[i] = pl_compression_name((enum pl_compression)i);
    check_enum(g, enums, "CompressionType", methods, PL_COUNT(methods));
    json_array_foreach(json_object_get(root, "messages"), i, c) check_message(g, c, i);
}
