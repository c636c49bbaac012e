/* tensor_message.c - see tensor_message.h. The syntax is protobuf's, read by its library; what the fields may hold
 * is checked here. */
#include "tensor_message.h"
#include "ref/quant.h"
#include "net/hivemind/messages/runtime.pb-c.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const dtypes[PL_DTYPES] = {
    [PL_F64] = "float64", [PL_F32] = "float32", [PL_F16] = "float16", [PL_BF16_T] = "bfloat16",
    [PL_I64] = "int64",   [PL_I32] = "int32",   [PL_I16] = "int16",   [PL_I8] = "int8",
    [PL_U8] = "uint8",    [PL_BOOL] = "bool",
};

const char *tensor_dtype_name(enum pl_dtype t) { return dtypes[t]; }

int tensor_dtype_parse(const char *name)
{
    for (int i = 0; i < PL_DTYPES; i++)
        if (!strcmp(dtypes[i], name)) return i;
    return -1;
}

int tensor_fill(struct tensor_message *m, const struct pl_backend *be, const void *data,
                struct pl_err *err)
{
    int rc = pl_wire_bytes(&m->bytes, m->method, &m->type, err);
    m->buffer = NULL;
    m->chunks = 0;
    if (rc) return rc;
    m->buffer = malloc(m->bytes + 1);
    if (!m->buffer) return pl_fail(err, PL_ENOMEM, "tensor: no memory for %zu bytes", m->bytes);
    rc = pl_wire_encode(m->buffer, be, m->method, &m->type, data, err);
    if (rc) tensor_clear(m);
    return rc;
}

void tensor_clear(struct tensor_message *m)
{
    free(m->buffer);
    m->buffer = NULL;
    m->bytes = 0;
}

size_t tensor_elements(const struct tensor_message *m)
{
    size_t n = 0;
    pl_wire_elements(&n, &m->type, NULL);
    return n;
}

static int pack(uint8_t **out, size_t *out_bytes, const Hivemind__Tensor *t)
{
    *out_bytes = hivemind__tensor__get_packed_size(t);
    *out = malloc(*out_bytes + 1);
    if (!*out) return PL_ENOMEM;
    hivemind__tensor__pack(t, *out);
    return PL_OK;
}

/* The fields that describe the tensor; sizes has room for all axes. */
static void describe(Hivemind__Tensor *t, uint32_t *sizes, const struct tensor_message *m)
{
    for (int i = 0; i < m->type.dims; i++) {
        assert(m->type.size[i] <=
               UINT32_MAX); /* tensor_fill's caller sends what the wire can say */
        sizes[i] = (uint32_t)m->type.size[i];
    }
    t->n_size = (size_t)m->type.dims;
    t->size = sizes;
    t->requires_grad = m->requires_grad;
    t->dtype = (char *)(uintptr_t)dtypes[m->type.dtype]; /* only read */
    t->compression = (int32_t)m->method;
}

int tensor_pack(uint8_t **out, size_t *out_bytes, const struct tensor_message *m)
{
    Hivemind__Tensor t = HIVEMIND__TENSOR__INIT;
    uint32_t sizes[PL_WIRE_DIMS_MAX];
    describe(&t, sizes, m);
    t.buffer = (ProtobufCBinaryData){ .data = m->buffer, .len = m->bytes };
    t.chunks = m->chunks;
    return pack(out, out_bytes, &t);
}

size_t tensor_pieces(size_t bytes) { return bytes ? pl_blocks(bytes, TENSOR_PIECE) : 1; }

int tensor_pack_piece(uint8_t **out, size_t *out_bytes, const struct tensor_message *m, size_t i)
{
    Hivemind__Tensor t = HIVEMIND__TENSOR__INIT;
    uint32_t sizes[PL_WIRE_DIMS_MAX];
    size_t at = i * TENSOR_PIECE;
    assert(i < tensor_pieces(m->bytes));
    if (i == 0) {
        describe(&t, sizes, m);
        t.chunks = (int32_t)pl_blocks(m->bytes, TENSOR_PIECE); /* 0 for an empty buffer */
    }
    t.buffer.data = m->buffer + at;
    t.buffer.len = m->bytes - at < TENSOR_PIECE ? m->bytes - at : TENSOR_PIECE;
    return pack(out, out_bytes, &t);
}

/* Type, method and count of pieces; not the buffer. */
static int read_header(struct tensor_message *m, const Hivemind__Tensor *t, struct pl_err *err)
{
    int dtype = tensor_dtype_parse(t->dtype);
    memset(m, 0, sizeof *m);
    if (dtype < 0)
        return pl_fail(err, PL_EFORMAT, "tensor: dtype \"%.20s\", expected one like float32",
                       t->dtype);
    if (t->n_size > PL_WIRE_DIMS_MAX)
        return pl_fail(err, PL_EFORMAT, "tensor: %zu axes, expected at most %d", t->n_size,
                       PL_WIRE_DIMS_MAX);
    if (t->compression < 0 || t->compression >= PL_COMPRESSIONS)
        return pl_fail(err, PL_EFORMAT, "tensor: compression %d, expected 0 to %d", t->compression,
                       PL_COMPRESSIONS - 1);
    if (t->chunks < 0)
        return pl_fail(err, PL_EFORMAT, "tensor: a stream of %d messages", t->chunks);
    m->type.dtype = (enum pl_dtype)dtype;
    m->type.dims = (int)t->n_size;
    for (int i = 0; i < m->type.dims; i++) m->type.size[i] = t->size[i];
    m->method = (enum pl_compression)t->compression;
    m->requires_grad = t->requires_grad != 0;
    m->chunks = t->chunks;
    return PL_OK;
}

static Hivemind__Tensor *parse(const uint8_t *data, size_t bytes, struct pl_err *err)
{
    Hivemind__Tensor *t = hivemind__tensor__unpack(NULL, bytes, data);
    if (!t) pl_fail(err, PL_EFORMAT, "tensor: %zu bytes that are no Tensor message", bytes);
    return t;
}

int tensor_unpack(struct tensor_message *m, const uint8_t *data, size_t bytes, struct pl_err *err)
{
    Hivemind__Tensor *t = parse(data, bytes, err);
    size_t n;
    int rc;
    memset(m, 0, sizeof *m);
    if (!t) return PL_EFORMAT;
    rc = read_header(m, t, err);
    if (!rc) rc = pl_wire_check(&n, m->method, &m->type, t->buffer.data, t->buffer.len, err);
    if (!rc) { /* the library allocated the buffer: take it instead of a copy */
        m->buffer = t->buffer.data;
        m->bytes = t->buffer.len;
        t->buffer = (ProtobufCBinaryData){ 0 };
    }
    hivemind__tensor__free_unpacked(t, NULL);
    return rc;
}

static void write_shape(char *text, size_t room, const struct pl_wire_type *t)
{
    size_t n = (size_t)snprintf(text, room, "%s (", dtypes[t->dtype]);
    for (int i = 0; i < t->dims && n < room; i++)
        n += (size_t)snprintf(text + n, room - n, "%s%lld", i ? "," : "", (long long)t->size[i]);
    if (n < room) snprintf(text + n, room - n, ")");
}

static int check_type(const struct pl_wire_type *theirs, const struct pl_wire_type *ours,
                      struct pl_err *err)
{
    char a[160], b[160];
    if (theirs->dtype == ours->dtype && theirs->dims == ours->dims &&
        !memcmp(theirs->size, ours->size, (size_t)ours->dims * sizeof *ours->size))
        return PL_OK;
    write_shape(a, sizeof a, theirs);
    write_shape(b, sizeof b, ours);
    return pl_fail(err, PL_EUSE, "theirs is %s, ours is %s", a, b);
}

/* The first message of a stream says how long the whole is. */
static int join_begin(struct tensor_join *j, const Hivemind__Tensor *t, struct pl_err *err)
{
    struct pl_err why;
    int rc = read_header(&j->m, t, err);
    j->room = 0;
    j->seen = 0;
    if (rc) return rc;
    if (j->type && (rc = check_type(&j->m.type, j->type, err))) return rc;
    rc = pl_wire_bytes(&j->expected, j->m.method, &j->m.type, &why);
    if (rc) return pl_fail(err, PL_EFORMAT, "%s", why.text);
    if (j->m.chunks > 1 && (size_t)j->m.chunks > j->expected)
        return pl_fail(err, PL_EFORMAT, "tensor: %d messages for %zu bytes", j->m.chunks,
                       j->expected);
    if (j->limit && j->expected > j->limit)
        return pl_fail(err, PL_ELIMIT, "tensor: a buffer of %zu bytes, expected at most %zu",
                       j->expected, j->limit);
    return PL_OK;
}

static int join_append(struct tensor_join *j, const ProtobufCBinaryData *piece, struct pl_err *err)
{
    struct tensor_message *m = &j->m;
    if (piece->len > j->expected - m->bytes)
        return pl_fail(err, PL_EFORMAT, "tensor: more than the %zu bytes its type needs",
                       j->expected);
    if (m->bytes + piece->len > j->room) {
        size_t room = j->room ? 2 * j->room : piece->len;
        uint8_t *more;
        if (room < m->bytes + piece->len) room = m->bytes + piece->len;
        if (room > j->expected) room = j->expected;
        more = realloc(m->buffer, room);
        if (!more) return pl_fail(err, PL_ENOMEM, "tensor: no memory for %zu bytes", room);
        m->buffer = more;
        j->room = room;
    }
    if (piece->len) memcpy(m->buffer + m->bytes, piece->data, piece->len);
    m->bytes += piece->len;
    return PL_OK;
}

int tensor_join_add(struct tensor_join *j, const uint8_t *data, size_t bytes, struct pl_err *err)
{
    Hivemind__Tensor *t = parse(data, bytes, err);
    size_t n;
    int first = !j->seen, rc = t ? PL_OK : PL_EFORMAT;
    if (!rc && first) rc = join_begin(j, t, err);
    if (!rc && !first && *t->dtype)
        rc = pl_fail(err, PL_EFORMAT, "tensor: a new one begins after %d of %d messages", j->seen,
                     j->m.chunks);
    if (!rc) rc = join_append(j, &t->buffer, err);
    if (t) hivemind__tensor__free_unpacked(t, NULL);
    if (!rc) {
        j->seen++;
        if (j->seen < j->m.chunks) return PL_EAGAIN;
        j->seen = 0;
        rc = pl_wire_check(&n, j->m.method, &j->m.type, j->m.buffer, j->m.bytes, err);
    }
    if (rc) tensor_join_clear(j);
    return rc;
}

void tensor_join_clear(struct tensor_join *j)
{
    tensor_clear(&j->m);
    j->room = 0;
    j->seen = 0;
}

void tensor_join_take(struct tensor_message *m, struct tensor_join *j)
{
    *m = j->m;
    memset(&j->m, 0, sizeof j->m);
}
