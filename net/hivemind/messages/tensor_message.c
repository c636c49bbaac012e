/* tensor_message.c - a tensor as hivemind's Tensor message [spec hivemind-protocol 6]:
 * compressed buffer, shape, dtype, compression method. A large tensor is streamed: the first
 * message has the description and the number of messages, each message has up to 64 KiB of the
 * buffer:
 *
 *   {buffer: 65536 bytes, size: [1024, 48], dtype: "float32", compression: 0, chunks: 3}
 *   {buffer: 65536 bytes}
 *   {buffer: 65536 bytes}
 *
 * The syntax is left to protobuf-c. This file checks that the fields fit each other, since the
 * decoder of the buffer relies on it: dtype and method known, few axes, and exactly as many bytes
 * as the method needs for that number of elements. */
#include "tensor_message.h"
#include "ref/quant.h"
#include "net/hivemind/messages/runtime.pb-c.h"
#include "net/message.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const dtypes[PL_DTYPES] = {
    [PL_F64] = "float64", [PL_F32] = "float32", [PL_F16] = "float16", [PL_BF16_T] = "bfloat16",
    [PL_I64] = "int64",   [PL_I32] = "int32",   [PL_I16] = "int16",   [PL_I8] = "int8",
    [PL_U8] = "uint8",    [PL_BOOL] = "bool",
};

/* PyTorch's names of the element types, as str(tensor.dtype) without "torch.". */
const char *tensor_dtype_name(enum pl_dtype t) { return dtypes[t]; }

/* -1 for a name that we do not know: complex64, say. */
int tensor_dtype_parse(const char *name)
{
    for (int i = 0; i < PL_DTYPES; i++)
        if (!strcmp(dtypes[i], name)) return i;
    return -1;
}

/* The method fixes the size of its output in advance (pl_wire_bytes), so one allocation is
 * enough. */
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

/* The description stays; only the values go. */
void tensor_clear(struct tensor_message *m)
{
    free(m->buffer);
    m->buffer = NULL;
    m->bytes = 0;
}

/* A product that would overflow counts as 0; a message with one was refused by pl_wire_check. */
size_t tensor_elements(const struct tensor_message *m)
{
    size_t n = 0;
    pl_wire_elements(&n, &m->type, NULL);
    return n;
}

/* protobuf-c measures and then writes, as in message.c; here the bytes become the caller's
 * block. */
static int pack(uint8_t **out, size_t *out_bytes, const Hivemind__Tensor *t)
{
    *out_bytes = hivemind__tensor__get_packed_size(t);
    *out = malloc(*out_bytes + 1);
    if (!*out) return PL_ENOMEM;
    hivemind__tensor__pack(t, *out);
    return PL_OK;
}

/* The fields that describe the tensor. `sizes` has place for all axes; t borrows it. */
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

/* An empty tensor still needs one message, for its description. */
size_t tensor_pieces(size_t bytes) { return bytes ? pl_blocks(bytes, TENSOR_PIECE) : 1; }

int tensor_pack_piece(uint8_t **out, size_t *out_bytes, const struct tensor_message *m, size_t i)
{
    Hivemind__Tensor t = HIVEMIND__TENSOR__INIT;
    uint32_t sizes[PL_WIRE_DIMS_MAX];
    size_t at = i * TENSOR_PIECE; /* all pieces are full but the last */
    assert(i < tensor_pieces(m->bytes));
    /* Only the first piece describes the tensor. That is also how a reader finds the start of
     * the next one. */
    if (i == 0) {
        describe(&t, sizes, m);
        t.chunks = (int32_t)pl_blocks(m->bytes, TENSOR_PIECE); /* 0 for an empty buffer */
    }
    t.buffer.data = m->buffer + at;
    t.buffer.len = m->bytes - at < TENSOR_PIECE ? m->bytes - at : TENSOR_PIECE;
    return pack(out, out_bytes, &t);
}

/* Shape, dtype, method and number of pieces, each checked by itself. Refused here are the values
 * that would index a table (dtype, method) or overrun an array (axes). */
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

int tensor_unpack(struct tensor_message *m, const uint8_t *data, size_t bytes, struct pl_err *err)
{
    Hivemind__Tensor *t = message_unpack(&hivemind__tensor__descriptor, data, bytes, err);
    size_t n;
    int rc;
    memset(m, 0, sizeof *m);
    if (!t) return PL_EFORMAT;
    rc = read_header(m, t, err);
    /* Compares the buffer's length with the length that method and shape need, and checks the
     * tables inside the buffer. */
    if (!rc) rc = pl_wire_check(&n, m->method, &m->type, t->buffer.data, t->buffer.len, err);
    if (!rc) { /* the library allocated the buffer: take it instead of a copy */
        m->buffer = t->buffer.data;
        m->bytes = t->buffer.len;
        t->buffer = (ProtobufCBinaryData){ 0 };
    }
    message_free(t);
    return rc;
}

/* For error messages: "float32 (3,6)". */
static void write_shape(char *text, size_t capacity, const struct pl_wire_type *t)
{
    size_t n = (size_t)snprintf(text, capacity, "%s (", dtypes[t->dtype]);
    for (int i = 0; i < t->dims && n < capacity; i++)
        n += (size_t)snprintf(text + n, capacity - n, "%s%lld", i ? "," : "",
                              (long long)t->size[i]);
    if (n < capacity) snprintf(text + n, capacity - n, ")");
}

/* A donor's tensor against the one that our model expects at this place. */
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

/* The first message of a stream fixes how long the buffer will be: shape and method give
 * `expected`, and no piece may exceed it. So memory is bounded by the description, and that by
 * the caller's limit. */
static int join_begin(struct tensor_join *j, const Hivemind__Tensor *t, struct pl_err *err)
{
    struct pl_err why;
    int rc = read_header(&j->m, t, err);
    j->capacity = 0;
    j->seen = 0;
    if (rc) return rc;
    /* A wrong shape is refused at the first 64 KiB, not after the download. */
    if (j->type && (rc = check_type(&j->m.type, j->type, err))) return rc;
    rc = pl_wire_bytes(&j->expected, j->m.method, &j->m.type, &why);
    if (rc) return pl_fail(err, PL_EFORMAT, "%s", why.text);
    /* A piece without bytes would be legal protobuf; a million of them would keep a reader busy
     * for nothing. */
    if (j->m.chunks > 1 && (size_t)j->m.chunks > j->expected)
        return pl_fail(err, PL_EFORMAT, "tensor: %d messages for %zu bytes", j->m.chunks,
                       j->expected);
    if (j->limit && j->expected > j->limit)
        return pl_fail(err, PL_ELIMIT, "tensor: a buffer of %zu bytes, expected at most %zu",
                       j->expected, j->limit);
    return PL_OK;
}

/* Pieces in their order: a stream keeps it, so they need no numbers. */
static int join_append(struct tensor_join *j, const ProtobufCBinaryData *piece, struct pl_err *err)
{
    struct tensor_message *m = &j->m;
    if (piece->len > j->expected - m->bytes)
        return pl_fail(err, PL_EFORMAT, "tensor: more than the %zu bytes its type needs",
                       j->expected);
    if (m->bytes + piece->len > j->capacity) {
        /* Capacity doubles, so n bytes cost O(n) copies, and never exceeds the size in the
         * description. It grows only when bytes have arrived, so a description alone costs us
         * almost nothing. */
        size_t capacity = j->capacity ? 2 * j->capacity : piece->len;
        uint8_t *more;
        if (capacity < m->bytes + piece->len) capacity = m->bytes + piece->len;
        if (capacity > j->expected) capacity = j->expected;
        more = realloc(m->buffer, capacity);
        if (!more) return pl_fail(err, PL_ENOMEM, "tensor: no memory for %zu bytes", capacity);
        m->buffer = more;
        j->capacity = capacity;
    }
    if (piece->len) memcpy(m->buffer + m->bytes, piece->data, piece->len);
    m->bytes += piece->len;
    return PL_OK;
}

/* The state is the number of pieces seen: 0 means that the next message must begin a tensor. */
int tensor_join_add(struct tensor_join *j, const uint8_t *data, size_t bytes, struct pl_err *err)
{
    Hivemind__Tensor *t = message_unpack(&hivemind__tensor__descriptor, data, bytes, err);
    size_t n;
    int first = !j->seen, rc = t ? PL_OK : PL_EFORMAT;
    if (!rc && first) rc = join_begin(j, t, err);
    /* A dtype marks a first piece (see tensor_pack_piece): the sender has dropped the rest of
     * the last tensor. */
    if (!rc && !first && *t->dtype)
        rc = pl_fail(err, PL_EFORMAT, "tensor: a new one begins after %d of %d messages", j->seen,
                     j->m.chunks);
    if (!rc) rc = join_append(j, &t->buffer, err);
    message_free(t);
    if (!rc) {
        j->seen++;
        /* chunks is 0 for a tensor that is not streamed; then one message is all. */
        if (j->seen < j->m.chunks) return PL_EAGAIN;
        j->seen = 0;
        /* All bytes are there: now the tables inside of the buffer (counts, codes) are checked. */
        rc = pl_wire_check(&n, j->m.method, &j->m.type, j->m.buffer, j->m.bytes, err);
    }
    if (rc) tensor_join_clear(j);
    return rc;
}

void tensor_join_clear(struct tensor_join *j)
{
    tensor_clear(&j->m);
    j->capacity = 0;
    j->seen = 0;
}

/* Ownership of the buffer moves to m; the join is ready for the next tensor. */
void tensor_join_take(struct tensor_message *m, struct tensor_join *j)
{
    *m = j->m;
    memset(&j->m, 0, sizeof j->m);
}
