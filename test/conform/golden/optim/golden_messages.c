/* golden_messages.c - hivemind's compressed tensors as messages, in both directions: our encoding
 * against theirs, our decoding of theirs, tensors split over a stream, and the choice of a method
 * by size. */
#include "golden_quant.h"
#include "ref/byte_order.h"
#include "net/hivemind/messages/tensor_message.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int method_of(const char *stem)
{
    static const struct {
        const char *name;
        enum pl_compression method;
    } names[] = {
        { "none", PL_COMPRESS_NONE },           { "float16", PL_COMPRESS_FLOAT16 },
        { "meanstd16", PL_COMPRESS_MEANSTD16 }, { "quantile8", PL_COMPRESS_QUANTILE8 },
        { "uniform8", PL_COMPRESS_UNIFORM8 },   { "blockwise8", PL_COMPRESS_BLOCKWISE8 },
    };
    for (size_t i = 0; i < PL_COUNT(names); i++)
        if (!strcmp(stem + strlen("compress_"), names[i].name)) return (int)names[i].method;
    return -1;
}

static void type_of(struct pl_wire_type *type, const struct st_tensor *t)
{
    *type = (struct pl_wire_type){ .dtype = t->dtype, .dims = t->dims };
    memcpy(type->size, t->shape, (size_t)t->dims * sizeof *t->shape);
}

/* A copy with the alignment of its type. */
static void *aligned(const struct st_tensor *t)
{
    void *p = pl_alloc(t->bytes, 1);
    if (p && t->bytes) memcpy(p, t->data, t->bytes);
    return p;
}

/* Distance of two float16 values in units of the last place; -0 equals 0. */
static int half_ulps(uint16_t a, uint16_t b)
{
    int x = a & 0x8000 ? -(a & 0x7fff) : a, y = b & 0x8000 ? -(b & 0x7fff) : b;
    return abs(x - y);
}

static float float_at(const uint8_t *p, size_t i)
{
    float x;
    pl_copy_little(&x, p + i * sizeof x, sizeof x, 1);
    return x;
}

static uint16_t half_at(const uint8_t *p, size_t i)
{
    uint16_t h;
    pl_copy_little(&h, p + i * sizeof h, sizeof h, 1);
    return h;
}

static double relative(float got, float want)
{
    return got == want || (isnan(got) && isnan(want))
               ? 0
               : fabs((double)got - want) / fabs((double)want);
}

/* float16 values may differ by one unit in the last place, means and deviations by 1e-6, because
 * the peer sums in another order. If a mean cancels, its error is relative to the deviation. */
static void compare_meanstd(struct golden *g, const char *what, const struct tensor_message *got,
                            const struct tensor_message *want)
{
    size_t n = tensor_elements(want), floats = (want->bytes - 2 * n) / sizeof(float);
    double worst = 0;
    int ulps = 0;
    for (size_t i = 0; i < n; i++) {
        int d = half_ulps(half_at(got->buffer, i), half_at(want->buffer, i));
        if (d > ulps) ulps = d;
    }
    for (size_t i = 0; i < floats; i++) {
        double a = float_at(got->buffer + 2 * n, i), b = float_at(want->buffer + 2 * n, i);
        double deviation = float_at(want->buffer + 2 * n, floats / 2 + i % (floats / 2));
        double d = a == b ? 0 : fabs(a - b) / fmax(fabs(b), deviation);
        if (!(d <= worst)) worst = d;
    }
    golden_check(g, what, ulps <= 1 && worst <= 1e-6, "halves %d ulp of 1, statistics %.2g of 1e-6",
                 ulps, worst);
}

/* Whether either of two codes may be right: they are neighbours, and for uniform bins the value is
 * within 1e-4 of the boundary. (A wrong boundary of quantiles shows in the table.) */
static int at_boundary(enum pl_compression method, float x, uint8_t a, uint8_t b, double mean,
                       double scale)
{
    double at = (x - mean) / scale;
    if (abs((int)a - (int)b) > 1) return 0;
    return method == PL_COMPRESS_QUANTILE8 || fabs(at - floor(at) - 0.5) <= 1e-4;
}

/* Around a mean that is rounded to what the values were. */
static void statistics(const float *x, size_t n, enum pl_dtype was, double *mean, double *scale)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n; i++) sum += x[i];
    *mean = sum / (double)n;
    if (pl_dtype_size(was) == 2) {
        float rounded = (float)*mean;
        uint16_t narrow;
        pl_from_float(&narrow, was, &rounded, 1);
        pl_to_float(&rounded, was, &narrow, 1);
        *mean = rounded;
    }
    for (size_t i = 0; i < n; i++) squares += (x[i] - *mean) * (x[i] - *mean);
    *scale = 6 * sqrt(squares / (double)(n - 1)) / PL_CODES;
}

static void compare_table8(struct golden *g, const char *what, const struct tensor_message *got,
                           const struct tensor_message *want, const struct st_tensor *input)
{
    size_t n = tensor_elements(want), differ = 0, wrong = 0;
    const uint8_t *a = got->buffer + 8 + PL_CODES * sizeof(float);
    const uint8_t *b = want->buffer + 8 + PL_CODES * sizeof(float);
    uint8_t touched[PL_CODES] = { 0 };
    float *x = pl_alloc(n, sizeof *x);
    double worst = 0, mean, scale;
    if (!x) {
        golden_fail(g, what, "out of memory");
        return;
    }
    pl_safetensors_to_float(x, input);
    statistics(x, n, input->dtype, &mean, &scale);
    for (size_t i = 0; i < n; i++) {
        if (a[i] == b[i]) continue;
        differ++;
        wrong += !at_boundary(want->method, x[i], a[i], b[i], mean, scale);
        touched[a[i]] = touched[b[i]] = 1;
    }
    for (int k = 0; k < PL_CODES; k++) {
        double d = touched[k] ? 0
                              : relative(float_at(got->buffer + 8, (size_t)k),
                                         float_at(want->buffer + 8, (size_t)k));
        if (!(d <= worst)) worst = d;
    }
    golden_check(g, what,
                 !wrong && (double)differ <= 2 + 1e-4 * (double)n && worst <= 1e-6 &&
                     !memcmp(got->buffer, want->buffer, 8),
                 "%zu codes differ, %zu of them away from a boundary; table %.2g of 1e-6", differ,
                 wrong, worst);
    pl_free(x);
}

/* The peer quantizes by another rule: codes are equal or neighbours, or what they decode to agrees
 * within half a step of the code book and the grid of that rule. */
static void compare_blockwise8(struct golden *g, const char *what, const struct tensor_message *got,
                               const struct tensor_message *want)
{
    size_t n = tensor_elements(want), blocks = pl_blocks(n, PL_WIRE_BLOCK), wrong = 0;
    const uint8_t *absmax = want->buffer + 16, *book = absmax + blocks * sizeof(float);
    const uint8_t *mine = got->buffer + 16 + blocks * sizeof(float);
    const uint8_t *a = got->buffer + got->bytes - n, *b = want->buffer + want->bytes - n;
    int same = !memcmp(got->buffer, want->buffer, 16 + blocks * sizeof(float)) &&
               !memcmp(mine + sizeof(float), book + sizeof(float), (PL_CODES - 1) * sizeof(float));
    for (size_t i = 0; same && i < n; i++) {
        double scale = float_at(absmax, i / PL_WIRE_BLOCK);
        double x = float_at(mine, a[i]), y = float_at(book, b[i]);
        double below = b[i] > 0 ? y - float_at(book, b[i] - 1u) : 0;
        double above = b[i] < PL_CODES - 1 ? float_at(book, b[i] + 1u) - y : 0;
        double spacing = below > above ? below : above;
        wrong += !(fabs(x - y) * scale <= (spacing / 2 + 1.6e-5) * scale * (1 + 1e-6)) &&
                 abs((int)a[i] - (int)b[i]) > 1;
    }
    golden_check(g, what, same && !wrong,
                 same ? "%zu decoded values too far off%s"
                      : "%zu: header, absmax or table differ%s",
                 wrong, "");
}

static void compare_encoded(struct golden *g, const char *input, const struct tensor_message *got,
                            const struct tensor_message *want, const struct st_tensor *x)
{
    char what[200];
    snprintf(what, sizeof what, "%.150s encode", input);
    if (got->bytes != want->bytes)
        golden_fail(g, what, "%zu bytes, expected %zu", got->bytes, want->bytes);
    else switch (want->method) {
        case PL_COMPRESS_MEANSTD16: compare_meanstd(g, what, got, want); break;
        case PL_COMPRESS_QUANTILE8:
        case PL_COMPRESS_UNIFORM8: compare_table8(g, what, got, want, x); break;
        case PL_COMPRESS_BLOCKWISE8: compare_blockwise8(g, what, got, want); break;
        default:
            golden_check(g, what, !want->bytes || !memcmp(got->buffer, want->buffer, want->bytes),
                         "not bit for bit");
        }
}

/* Our decoded values of the Python message, compared with those of its Python reader. */
static void compare_decoded(struct golden *g, const char *input, const struct tensor_message *m,
                            const struct st_tensor *out)
{
    struct pl_err err;
    size_t n = tensor_elements(m), size = pl_dtype_size(m->type.dtype), wrong = 0;
    char what[200], *y = pl_alloc(n, size);
    const char *want = out->data;
    snprintf(what, sizeof what, "%.150s decode", input);
    if (!y || out->n != n || out->dtype != m->type.dtype ||
        pl_wire_decode(y, g->be, m->method, &m->type, m->buffer, m->bytes, &err)) {
        golden_fail(g, what, "not decoded");
        pl_free(y);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        float a, b;
        if (!memcmp(y + i * size, want + i * size, size)) continue;
        pl_to_float(&a, m->type.dtype, y + i * size, 1);
        pl_to_float(&b, m->type.dtype, want + i * size, 1);
        if (a == b && m->type.dtype != PL_F64) continue; /* -0 is 0 */
        /* one unit in the last place */
        if (m->method == PL_COMPRESS_MEANSTD16 && m->type.dtype != PL_F64) {
            double ulp = m->type.dtype == PL_F16 ? 0x1p-10 : 0x1p-23;
            if (fabs((double)a - b) <= ulp * fmax(fabs((double)b), 0x1p-14)) continue;
        }
        wrong++;
    }
    golden_check(g, what, !wrong, "%zu of %zu values differ", wrong, n);
    pl_free(y);
}

static void run_message(struct golden *g, const struct st_file *f, const struct st_file *inputs,
                        const json_t *fields, const char *input, enum pl_compression method)
{
    const struct st_tensor *x = pl_safetensors_find(inputs, input),
                           *proto = quant_sibling(f, input, "proto");
    const struct st_tensor *out = quant_sibling(f, input, "out");
    struct tensor_message got = { .method = method }, want;
    uint8_t *packed = NULL;
    size_t bytes;
    char what[200];
    void *data;
    struct pl_err err;
    snprintf(what, sizeof what, "%.150s message", input);
    if (!x || tensor_unpack(&want, proto->data, proto->n, &err)) {
        golden_fail(g, what, "%s", x ? err.text : "no such input in compress_inputs");
        return;
    }
    data = aligned(x);
    type_of(&got.type, x);
    got.requires_grad = json_is_true(
        json_object_get(json_object_get(fields, input), "requires_grad"));
    if (!data || tensor_fill(&got, g->be, data, &err)) golden_fail(g, what, "%s", err.text);
    else if (tensor_pack(&packed, &bytes, &got)) golden_fail(g, what, "out of memory");
    else {
        /* All that is not buffer must be equal: swap ours for theirs and compare the whole. */
        struct tensor_message swapped = got;
        uint8_t *whole = NULL;
        size_t whole_bytes;
        swapped.buffer = want.buffer;
        swapped.bytes = want.bytes;
        golden_check(g, what,
                     bytes == proto->n && !tensor_pack(&whole, &whole_bytes, &swapped) &&
                         whole_bytes == proto->n && !memcmp(whole, proto->data, proto->n),
                     "fields or layout differ: %zu bytes, expected %zu", bytes, proto->n);
        free(whole);
        compare_encoded(g, input, &got, &want, x);
        if (out) compare_decoded(g, input, &want, out);
    }
    free(packed);
    pl_free(data);
    tensor_clear(&got);
    tensor_clear(&want);
}

static struct st_file *open_inputs(struct golden *g)
{
    char *path = pl_path_join(g->folder, "compress_inputs.safetensors");
    struct st_file *f = path ? golden_open(g, path) : NULL;
    free(path);
    return f;
}

int quant_compress(struct golden *g, const char *path, const char *stem)
{
    int method = method_of(stem);
    struct st_file *f, *inputs;
    json_t *config, *why;
    const char *input;
    if (method < 0) return 0;
    f = golden_open(g, path);
    inputs = open_inputs(g);
    config = f ? golden_meta(g, f, "config") : NULL;
    for (size_t i = 0; config && inputs && i < f->count; i++) {
        char name[200];
        const char *proto = f->tensors[i].name;
        if (!pl_ends_with(proto, ".proto")) continue;
        snprintf(name, sizeof name, "%.*s", (int)(strlen(proto) - strlen(".proto")), proto);
        run_message(g, f, inputs, json_object_get(config, "fields"), name,
                    (enum pl_compression)method);
    }
    json_object_foreach(json_object_get(config, "raises"), input, why)
    {
        const struct st_tensor *x = inputs ? pl_safetensors_find(inputs, input) : NULL;
        struct pl_wire_type type;
        size_t bytes;
        char what[200];
        snprintf(what, sizeof what, "%.150s refused", input);
        if (x) type_of(&type, x);
        golden_check(g, what,
                     x &&
                         pl_wire_bytes(&bytes, (enum pl_compression)method, &type, NULL) == PL_EUSE,
                     "expected a refusal, as with %s", json_string_value(why));
    }
    json_decref(config);
    pl_safetensors_close(f);
    pl_safetensors_close(inputs);
    return 1;
}

/* The inputs themselves: their types as the peer named them. */
void quant_inputs(struct golden *g, const char *path)
{
    struct st_file *f = golden_open(g, path);
    json_t *config = f ? golden_meta(g, f, "config") : NULL, *dtype;
    const char *input;
    json_object_foreach(json_object_get(config, "dtype"), input, dtype)
    {
        const struct st_tensor *t = pl_safetensors_find(f, input);
        golden_check(g, input, t && !strcmp(tensor_dtype_name(t->dtype), json_string_value(dtype)),
                     "expected %s", json_string_value(dtype));
    }
    json_decref(config);
    pl_safetensors_close(f);
}

/* One FLOAT16 tensor in pieces: ours against theirs, then theirs put together. */
void quant_streaming(struct golden *g, const char *path)
{
    struct st_file *f = golden_open(g, path);
    const struct st_tensor *x = f ? pl_safetensors_find(f, "x") : NULL,
                           *stream = f ? pl_safetensors_find(f, "messages") : NULL;
    struct tensor_message m = { .method = PL_COMPRESS_FLOAT16 }, whole = { 0 };
    struct tensor_join join = { 0 };
    struct pl_err err = { "" };
    size_t count = 0, at = 0;
    int32_t *lengths = f ? golden_ints(g, f, "lengths", &count) : NULL;
    void *data = x ? aligned(x) : NULL;
    if (x) type_of(&m.type, x);
    if (!data || !stream || !lengths || tensor_fill(&m, g->be, data, &err)) {
        golden_fail(g, "messages", "x, messages and lengths expected; %s", err.text);
    } else {
        int same = tensor_pieces(m.bytes) == count, rc = PL_EAGAIN;
        for (size_t i = 0; same && i < count; i++) {
            uint8_t *piece;
            size_t bytes, length = (size_t)lengths[i];
            if (length > stream->n - at || tensor_pack_piece(&piece, &bytes, &m, i)) break;
            same = bytes == length && !memcmp(piece, (const char *)stream->data + at, bytes);
            free(piece);
            rc = tensor_join_add(&join, (const uint8_t *)stream->data + at, length, &err);
            at += length;
        }
        golden_check(g, "messages", same && at == stream->n, "not bit for bit");
        if (!rc) tensor_join_take(&whole, &join);
        golden_check(g, "put together",
                     !rc && whole.bytes == m.bytes && !memcmp(whole.buffer, m.buffer, m.bytes),
                     "%s", err.text);
        tensor_clear(&whole);
        tensor_join_clear(&join);
    }
    pl_free(data);
    pl_free(lengths);
    tensor_clear(&m);
    pl_safetensors_close(f);
}

void quant_adaptive(struct golden *g)
{
    json_t *root = golden_json(g, "size_adaptive.json"), *row;
    size_t i;
    json_array_foreach(json_object_get(root, "rows"), i, row)
    {
        long n = golden_int(g, row, "numel");
        const char *chosen = json_string_value(json_object_get(row, "chosen"));
        enum pl_compression got = pl_wire_adaptive((size_t)n);
        char what[60];
        snprintf(what, sizeof what, "%ld elements", n);
        golden_check(g, what,
                     chosen &&
                         (got == PL_COMPRESS_UNIFORM8 ? !strcmp(chosen, "Uniform8BitQuantization")
                                                      : !strcmp(chosen, "Float16Compression")),
                     "expected %s", chosen ? chosen : "a method");
    }
    if (root && json_integer_value(json_object_get(root, "threshold")) != PL_WIRE_ADAPTIVE)
        golden_fail(g, "threshold", "expected %d", PL_WIRE_ADAPTIVE);
    json_decref(root);
}
