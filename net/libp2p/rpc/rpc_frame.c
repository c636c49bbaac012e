/* rpc_frame.c - the bytes of hivemind's calls. [spec libp2p-wire 12, 13]
 *
 *   unary      varint length | PersistentConnectionRequest { call ID, and one of
 *                                callUnary { peer, proto, data },
 *                                unaryResponse { response | error } }
 *   streaming  marker (1)    | length (8, big-endian) | message;  marker 1: the end, or an error
 *
 * Unary messages are read and written by hand: their data may be 4 MiB, which need no second copy,
 * and a missing required field is distinguished from an empty one. */
#include "rpc_frame.h"

#include <string.h>

#define ERROR_MAX 65536 /* an error's frame may be longer than the RPC's own messages */

/* --- protobuf, as far as these messages go ---------------------------------------------------- */

enum { VARINT = 0, FIXED64 = 1, DELIMITED = 2, FIXED32 = 5 };

struct field {
    uint64_t number;
    const uint8_t *data; /* of DELIMITED ones, otherwise NULL */
    size_t n;
};

/* protobuf: key = field number << 3 | wire type; unknown fields are skipped. */
static int next_field(struct cursor *c, struct field *f)
{
    uint64_t key, value;
    const uint8_t *skipped;
    if (get_varint(c, &key) || key >> 3 == 0) return PL_EPROTO;
    *f = (struct field){ .number = key >> 3 };
    switch (key & 7) {
    case VARINT: return get_varint(c, &value) ? PL_EPROTO : PL_OK;
    case FIXED64: return get_bytes(c, &skipped, 8) ? PL_EPROTO : PL_OK;
    case FIXED32: return get_bytes(c, &skipped, 4) ? PL_EPROTO : PL_OK;
    case DELIMITED: return get_delimited(c, &f->data, &f->n, c->left) ? PL_EPROTO : PL_OK;
    default: return PL_EPROTO;
    }
}

static size_t varint_length(uint64_t x)
{
    size_t n = 1;
    while (x >>= 7) n++;
    return n;
}

static size_t field_length(size_t n) /* of a field with a number below 16 */
{
    return 1 + varint_length(n) + n;
}

static void put_field(struct bytes *out, int number, const void *data, size_t n)
{
    bytes_u8(out, (uint8_t)(number << 3 | DELIMITED));
    bytes_varint(out, n);
    bytes_add(out, data, n);
}

/* --- unary ------------------------------------------------------------------------------------ */

enum { CALL_ID = 1, CALL_UNARY = 3, UNARY_RESPONSE = 4 };       /* PersistentConnectionRequest */
enum { REQUEST_PEER = 1, REQUEST_PROTO = 2, REQUEST_DATA = 3 }; /* CallUnaryRequest */
enum { RESPONSE_OK = 1, RESPONSE_ERROR = 2 };                   /* CallUnaryResponse */

int rpc_unary_put(struct bytes *out, const struct rpc_unary *m)
{
    size_t inner = field_length(m->n);
    if (m->kind == RPC_REQUEST) inner += field_length(m->peer_bytes) + field_length(m->proto_bytes);
    bytes_varint(out, field_length(RPC_CALL_ID) + field_length(inner));
    put_field(out, CALL_ID, m->call_id, RPC_CALL_ID);
    bytes_u8(out,
             (uint8_t)((m->kind == RPC_REQUEST ? CALL_UNARY : UNARY_RESPONSE) << 3 | DELIMITED));
    bytes_varint(out, inner);
    if (m->kind == RPC_REQUEST) {
        put_field(out, REQUEST_PEER, m->peer, m->peer_bytes);
        put_field(out, REQUEST_PROTO, m->proto, m->proto_bytes);
        put_field(out, REQUEST_DATA, m->data, m->n);
    } else {
        put_field(out, m->kind == RPC_RESPONSE ? RESPONSE_OK : RESPONSE_ERROR, m->data, m->n);
    }
    return out->failed;
}

static int parse_request(struct rpc_unary *m, struct cursor c)
{
    int seen = 0;
    while (c.left) {
        struct field f;
        int rc = next_field(&c, &f);
        if (rc) return rc;
        if (f.number > REQUEST_DATA) continue;
        if (!f.data) return PL_EPROTO; /* one of ours, with another type */
        seen |= 1 << f.number;
        if (f.number == REQUEST_PEER) {
            m->peer = f.data;
            m->peer_bytes = f.n;
        } else if (f.number == REQUEST_PROTO) {
            m->proto = (const char *)f.data;
            m->proto_bytes = f.n;
        } else {
            m->data = f.data;
            m->n = f.n;
        }
    }
    m->kind = RPC_REQUEST;
    return seen == (1 << REQUEST_PEER | 1 << REQUEST_PROTO | 1 << REQUEST_DATA) ? PL_OK : PL_EPROTO;
}

static int parse_response(struct rpc_unary *m, struct cursor c)
{
    int seen = 0;
    while (c.left) {
        struct field f;
        int rc = next_field(&c, &f);
        if (rc) return rc;
        if (f.number > RESPONSE_ERROR) continue;
        if (!f.data) return PL_EPROTO;
        seen = 1;
        m->kind = f.number == RESPONSE_OK ? RPC_RESPONSE : RPC_ERROR;
        m->data = f.data;
        m->n = f.n;
    }
    return seen ? PL_OK : PL_EPROTO; /* with neither, a caller would wait in vain */
}

int rpc_unary_get(struct cursor *c, struct rpc_unary *m, size_t max, size_t *want)
{
    struct cursor ahead = *c, body;
    const uint8_t *id = NULL;
    struct field call = { 0 };
    uint64_t length;
    int rc = get_varint(&ahead, &length);
    *want = c->left + 1;
    if (rc) return rc == PL_EAGAIN ? rc : PL_EPROTO;
    if (length > max) return PL_ELIMIT;
    *want = c->left - ahead.left + (size_t)length;
    if (ahead.left < length) return PL_EAGAIN;
    body = (struct cursor){ ahead.at, (size_t)length };
    *m = (struct rpc_unary){ .data = NULL };
    while (body.left) {
        struct field f;
        if ((rc = next_field(&body, &f))) return rc;
        if (f.number == CALL_ID) {
            if (!f.data || f.n != RPC_CALL_ID) return PL_EPROTO;
            id = f.data;
        } else if (f.number == CALL_UNARY || f.number == UNARY_RESPONSE) {
            if (!f.data) return PL_EPROTO;
            call = f;
        }
    }
    if (!id || !call.data) return PL_EPROTO;
    memcpy(m->call_id, id, RPC_CALL_ID);
    body = (struct cursor){ call.data, call.n };
    rc = call.number == CALL_UNARY ? parse_request(m, body) : parse_response(m, body);
    if (rc) return rc;
    c->at = ahead.at + length;
    c->left = ahead.left - (size_t)length;
    return PL_OK;
}

/* --- streams ---------------------------------------------------------------------------------- */

void rpc_header_write(uint8_t out[RPC_HEADER], enum rpc_marker marker, uint64_t n)
{
    out[0] = (uint8_t)marker;
    for (int i = 0; i < 8; i++) out[1 + i] = (uint8_t)(n >> (56 - 8 * i));
}

int rpc_header_put(struct bytes *out, enum rpc_marker marker, uint64_t n)
{
    uint8_t header[RPC_HEADER];
    rpc_header_write(header, marker, n);
    return bytes_add(out, header, sizeof header);
}

/* The handler failed: an end mark whose body is the error. */
int rpc_error_put(struct bytes *out, const char *text)
{
    size_t n = strlen(text);
    rpc_header_put(out, RPC_END, field_length(n));
    put_field(out, 1, text, n);
    return out->failed;
}

int rpc_frame_get(struct cursor *c, struct rpc_frame *f, size_t max, size_t *want)
{
    struct cursor ahead = *c;
    uint8_t marker;
    uint64_t length;
    *want = RPC_HEADER;
    if (get_u8(&ahead, &marker)) return PL_EAGAIN;
    if (marker > RPC_END) return PL_EPROTO;
    if (get_be64(&ahead, &length)) return PL_EAGAIN;
    if (marker == RPC_END && max < ERROR_MAX) max = ERROR_MAX;
    if (length > max) return PL_ELIMIT;
    *want = RPC_HEADER + (size_t)length;
    f->marker = marker == RPC_END ? RPC_END : RPC_MESSAGE;
    f->n = (size_t)length;
    if (get_bytes(&ahead, &f->data, f->n)) return PL_EAGAIN;
    *c = ahead;
    return PL_OK;
}

void rpc_printable(char *text, size_t capacity, const uint8_t *data, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < n && at + 1 < capacity; i++)
        text[at++] = data[i] >= 32 && data[i] != 127 ? (char)data[i] : '?';
    text[at] = 0;
}

int rpc_error_text(char *text, size_t capacity, const struct rpc_frame *f)
{
    struct cursor c = { f->data, f->n };
    text[0] = 0;
    while (c.left) {
        struct field field;
        if (next_field(&c, &field)) return PL_EPROTO;
        if (field.number != 1) continue;
        if (!field.data) return PL_EPROTO;
        rpc_printable(text, capacity, field.data, field.n);
    }
    return PL_OK;
}
