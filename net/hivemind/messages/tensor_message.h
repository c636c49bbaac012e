/* tensor_message.h - tensors as hivemind's messages: one message, or a stream of pieces for
 * tensors that a message should not hold. The buffers inside are ref/wire.h's. [spec numerics 3] */
#ifndef PL_TENSOR_H
#define PL_TENSOR_H

#include "ref/wire.h"

#define TENSOR_PIECE 65536 /* bytes of buffer in one message of a stream */

/* The description in a message. */
struct tensor_message {
    struct pl_wire_type type;
    enum pl_compression method;
    int requires_grad;
    int32_t chunks; /* messages in its stream; 0: not streamed, or an empty buffer */
    uint8_t *buffer;
    size_t bytes;
};

/* A tensor without its values. Both sides of an average or a download must agree on it. */
struct schema_tensor {
    struct pl_wire_type type;
    int requires_grad;
};

/* The protocol's name of an element type ("float32"); the type of a name, or -1. */
const char *tensor_dtype_name(enum pl_dtype t);
int tensor_dtype_parse(const char *name);

/* Compresses a tensor (elements in host memory) into m, whose type, method and requires_grad the
 * caller has set. Release with tensor_clear. */
int tensor_fill(struct tensor_message *m, const struct pl_backend *be, const void *data,
                struct pl_err *err);
/* Frees the buffer. */
void tensor_clear(struct tensor_message *m);

/* Serializes m with its whole buffer; *out is freed with free(). */
int tensor_pack(uint8_t **out, size_t *out_bytes, const struct tensor_message *m);

/* The number of messages in which a buffer of this many bytes is streamed: at least one, which
 * describes even an empty tensor; and the i-th of them. */
size_t tensor_pieces(size_t bytes);
int tensor_pack_piece(uint8_t **out, size_t *out_bytes, const struct tensor_message *m, size_t i);

/* Reads one message that holds a whole tensor and checks all of it, so that tensor_elements and
 * pl_wire_decode cannot be surprised. `m` is filled anew. PL_EFORMAT with a sentence otherwise. */
int tensor_unpack(struct tensor_message *m, const uint8_t *data, size_t bytes, struct pl_err *err);

/* Puts streams together, one tensor after the other. Zero it, set the limit, add messages. */
struct tensor_join {
    size_t limit; /* largest buffer to accept; 0: whatever the type and method need */
    const struct pl_wire_type *type; /* the next tensor's, borrowed; NULL: any */
    /* private */
    struct tensor_message m;
    size_t capacity, expected;
    int32_t seen;
};
/* Takes the next message. PL_EAGAIN: more are to come. PL_OK: a tensor is whole and checked as
 * above; take it before the next message. Memory grows with what has arrived, never beyond what
 * type and method of the first message need. After an error the next message begins a new
 * tensor. */
int tensor_join_add(struct tensor_join *j, const uint8_t *data, size_t bytes, struct pl_err *err);
/* Moves the whole tensor to *m; the caller clears it. */
void tensor_join_take(struct tensor_message *m, struct tensor_join *j);
void tensor_join_clear(struct tensor_join *j);

/* Elements of a checked message. */
size_t tensor_elements(const struct tensor_message *m);

#endif
