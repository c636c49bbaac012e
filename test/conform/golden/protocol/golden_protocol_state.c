/* golden_protocol_state.c - a recorded download of a training state, read and given again. */
#include "golden_protocol.h"
#include "ref/byte_order.h"
#include "net/hivemind/messages/state_message.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An announcement: [peer id] -> priority. */
static void check_announcement(struct golden *g, const json_t *c)
{
    struct bytes raw = { 0 }, again = { 0 }, subkey = { 0 };
    struct mp_value *v;
    struct peer_id id;
    int good;
    if (wire_member(g, c, "subkey", &subkey)) {
        good = !mp_read(&v, bytes_at(&subkey), bytes_length(&subkey), NULL);
        golden_check(g, "who announces",
                     good && v->kind == MP_BIN && !peer_id_parse(&id, v->bytes, v->n),
                     "is not a peer");
        if (good) mp_free(v);
    }
    if (wire_member(g, c, "value", &raw) &&
        !mp_read(&v, bytes_at(&raw), bytes_length(&raw), NULL)) {
        if (v->kind == MP_FLOAT) mp_float(&again, v->real);
        else mp_nil(&again);
        wire_same(g, "priority", &again, &raw);
        mp_free(v);
    }
    bytes_clear(&raw);
    bytes_clear(&again);
    bytes_clear(&subkey);
}

static void same_leaf(struct golden *g, const struct state_leaf *leaf, const json_t *want, size_t i)
{
    const json_t *value = json_object_get(want, "value");
    int good = 0;
    if (!strcmp(protocol_text(want, "type"), "tensor"))
        good = leaf->kind == STATE_TENSOR && leaf->index == golden_int(g, want, "index");
    else if (strcmp(protocol_text(want, "type"), "value")) good = 0;
    else if (json_is_boolean(value))
        good = leaf->kind == STATE_TRUTH && leaf->index == json_is_true(value);
    else if (json_is_null(value)) good = leaf->kind == STATE_NONE;
    else if (!json_is_number(value)) /* a name: read as a number that says nothing */
        good = leaf->kind == STATE_COUNT;
    else if (json_is_integer(value))
        good = leaf->kind == STATE_COUNT && leaf->index == json_integer_value(value);
    else good = leaf->kind == STATE_REAL && leaf->real == protocol_real(value);
    golden_check(g, "leaf", good, "number %zu differs", i);
}

static void check_metadata(struct golden *g, const json_t *root, const struct state_load *l)
{
    const json_t *want = json_object_get(root, "metadata"), *leaf, *value;
    int whole = 1; /* all of it is something that we keep */
    struct training_state t;
    struct bytes again = { 0 }, got = { 0 };
    struct pl_err err = { "" };
    size_t i;
    bytes_add(&got, l->metadata, l->metadata_n);
    if (json_object_get(root, "metadata_hex") && wire_member(g, root, "metadata_hex", &again)) {
        wire_same(g, "metadata_hex", &got, &again);
        bytes_clear(&again);
    }
    if (training_state_read(&t, l->metadata, l->metadata_n, &err)) {
        golden_fail(g, "metadata", "%s", err.text);
    } else {
        golden_check(g, "epoch", t.epoch == golden_int(g, want, "epoch"), "%lld",
                     (long long)t.epoch);
        golden_check(g, "group bits", !strcmp(t.group_bits, protocol_text(want, "group_bits")),
                     "differ");
        json_array_foreach(json_object_get(want, "optimizer_metadata"), i, leaf)
        {
            value = json_object_get(leaf, "value");
            whole = whole && (!value || json_is_number(value));
            if (i < t.count) same_leaf(g, &t.leaves[i], leaf, i);
        }
        golden_check(g, "leaves", i == t.count, "%zu, expected %zu", t.count, i);
        training_state_write(&again, &t);
        if (whole) wire_same(g, "metadata are written", &again, &got);
        training_state_clear(&t);
    }
    bytes_clear(&again);
    bytes_clear(&got);
}

static double sum_of(const struct tensor_message *m, const struct pl_backend *be)
{
    size_t n = tensor_elements(m);
    float *x = pl_alloc(n, sizeof *x);
    double sum = 0;
    if (x && !pl_wire_decode(x, be, m->method, &m->type, m->buffer, m->bytes, NULL))
        for (size_t i = 0; i < n; i++) sum += x[i];
    pl_free(x);
    return sum;
}

static void check_tensors(struct golden *g, const json_t *root, const struct state_load *l)
{
    const json_t *shapes = json_object_get(root, "shapes"),
                 *after = json_object_get(root, "parameters_after"),
                 *sums = json_object_get(root, "parameter_sums");
    size_t t, d;
    json_t *shape, *size;
    json_array_foreach(shapes, t, shape)
    {
        const struct tensor_message *m = t < l->count ? &l->tensors[t] : NULL;
        const char *hex = json_string_value(json_array_get(after, t));
        int good = m && m->type.dims == (int)json_array_size(shape);
        json_array_foreach(shape, d, size)
            good = good && m->type.size[d] == json_integer_value(size);
        golden_check(g, "shape", good, "of tensor %zu differs", t);
        if (!good) continue;
        if (hex) {
            struct bytes want = { 0 }, got = { 0 };
            wire_hex(&want, hex);
            bytes_add(&got, m->buffer, m->bytes);
            wire_same(g, "values", &got, &want);
            bytes_clear(&want);
            bytes_clear(&got);
        }
        golden_case(g, "sum", fabs(sum_of(m, g->be) - protocol_real(json_array_get(sums, t))),
                    1e-6);
    }
}

/* Uncompressed values in the order of this machine, or back in that of messages. */
static void turn_values(const struct state_load *l)
{
    for (size_t t = 0; t < l->count; t++) {
        size_t size = pl_dtype_size(l->tensors[t].type.dtype);
        pl_little_endian(l->tensors[t].buffer, size, l->tensors[t].bytes / size);
    }
}

/* The same tensors from us: the same messages. */
static void give_again(struct golden *g, const json_t *messages, const struct state_load *l)
{
    struct state_tensor *tensors = calloc(l->count + 1, sizeof *tensors);
    struct state_source s = {
        .metadata = l->metadata, .metadata_n = l->metadata_n, .tensors = tensors, .count = l->count
    };
    size_t i;
    json_t *m;
    for (size_t t = 0; tensors && t < l->count; t++)
        tensors[t] = (struct state_tensor){ l->tensors[t].type, l->tensors[t].method,
                                            l->tensors[t].buffer };
    turn_values(l);
    json_array_foreach(messages, i, m)
    {
        struct bytes want = { 0 }, got = { 0 };
        if (!strcmp(protocol_text(m, "dir"), "response") &&
            !strcmp(protocol_text(m, "type"), "DownloadData") && wire_member(g, m, "hex", &want)) {
            state_source_next(&s, &got, g->be, NULL);
            wire_same(g, "message", &got, &want);
        }
        bytes_clear(&want);
        bytes_clear(&got);
    }
    golden_check(g, "last message", s.at == s.count, "%zu of %zu tensors", s.at, s.count);
    turn_values(l);
    state_source_clear(&s);
    free(tensors);
}

static void replay(struct golden *g, const json_t *root, const json_t *messages)
{
    struct state_load l = { 0 };
    struct pl_err err = { "" };
    size_t i;
    json_t *m;
    int rc = PL_OK;
    json_array_foreach(messages, i, m)
    {
        struct bytes raw = { 0 };
        if (!rc && !strcmp(protocol_text(m, "dir"), "response") &&
            !strcmp(protocol_text(m, "type"), "DownloadData") && wire_member(g, m, "hex", &raw))
            rc = state_load_add(&l, bytes_at(&raw), bytes_length(&raw), &err);
        bytes_clear(&raw);
    }
    if (!rc) rc = state_load_finish(&l, &err);
    golden_check(g, "download", !rc, "%s", err.text);
    if (!rc) {
        check_metadata(g, root, &l);
        check_tensors(g, root, &l);
        give_again(g, messages, &l);
    }
    state_load_clear(&l);
}

void protocol_state_download(struct golden *g, const json_t *root)
{
    size_t i, downloads = 0;
    json_t *c;
    json_array_foreach(json_object_get(root, "all_averagers_declarations"), i, c)
        check_announcement(g, c);
    json_array_foreach(json_object_get(root, "streams"), i,
                       c) if (strstr(protocol_text(c, "protocol"), "rpc_download_state"))
    {
        replay(g, root, json_object_get(c, "messages"));
        downloads++;
    }
    golden_check(g, "downloads", downloads > 0, "none is recorded");
}
