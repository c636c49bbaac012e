/* state_message.h - a peer's whole state as the messages of rpc_download_state: metadata, then
 * tensor after tensor in pieces. [spec hivemind-protocol 7] */
#ifndef PL_STATE_MESSAGE_H
#define PL_STATE_MESSAGE_H

#include "net/bytes.h"
#include "tensor_message.h"

#define STATE_PRIORITY_LIFE 30.0      /* s until an announcement expires; it is renewed as often */
#define STATE_METADATA_MAX (4u << 20) /* the run's 300 parameters make 40 kB */
#define STATE_TENSORS_MAX (1u << 20)

/* Limits that follow from the tensors that a newcomer expects: an optimizer's state is some arrays
 * for each parameter, each no larger than it. */
#define STATE_BYTES_FACTOR \
    4 /* LAMB and Adam: parameters and two moments, all float32; one to spare */
#define STATE_BYTES_EACH 16384u    /* of each parameter: tables of codes, norms, counts */
#define STATE_TENSORS_EACH 16      /* the 8-bit LAMB of the run has 10 for each parameter */
#define STATE_METADATA_BASE 65536u /* names and settings that are not of one parameter */
#define STATE_METADATA_EACH 1024   /* the run has 133 bytes for each parameter */
#define STATE_HEADER_MAX 256       /* bytes of a tensor's message without its buffer */
#define STATE_PIECE_MIN 1024       /* hivemind sends pieces of 65536; empty ones would never end */

/* The donor's side: a frozen copy of its state. */
struct state_tensor {
    struct pl_wire_type type;
    enum pl_compression method;
    const void *data;
};
struct state_source {
    const uint8_t *metadata;
    size_t metadata_n;
    const struct state_tensor *tensors;
    size_t count;
    /* private */
    size_t at, piece;
    struct tensor_message message;
};
/* Appends the next message. PL_ENOTFOUND: that was all. */
int state_source_next(struct state_source *s, struct bytes *out, const struct pl_backend *be,
                      struct pl_err *err);
void state_source_clear(struct state_source *s);

/* A newcomer's side. */
struct state_load {
    /* the data received so far */
    uint8_t *metadata;
    size_t metadata_n;
    struct tensor_message *tensors;
    size_t count;
    size_t confirmed;  /* after a load: donors that agree on it; 1: only its own (state_claim.h) */
    double seconds;    /* after a load: from the request to its last byte */
    size_t mismatches; /* after a load that failed: donors whose state is of another model */
    /* private */
    const struct schema_tensor *schema; /* (expected) of the first tensors; borrowed; NULL: any */
    size_t expected, bytes_max, tensors_max, metadata_max;
    struct tensor_join join;
    size_t capacity, bytes, received, messages;
    int begun; /* a tensor is half there */
};
/* Expects these tensors first, and after them at most the bytes of their optimizer's state:
 * anything beyond is refused before it is stored. A zeroed state_load takes any. */
void state_load_expect(struct state_load *l, const struct schema_tensor *schema, size_t count);
/* Expects any tensors, as many as these with as many bytes at most. */
void state_load_expect_any(struct state_load *l, size_t bytes, size_t tensors);
/* The longest message: the first one has all the metadata. */
size_t state_load_message_max(const struct state_load *l);
/* PL_EFORMAT, PL_ELIMIT with a sentence; then clear. */
int state_load_add(struct state_load *l, const uint8_t *data, size_t n, struct pl_err *err);
/* The stream has ended: is everything whole? PL_ENOTFOUND: the donor gives nothing. */
int state_load_finish(const struct state_load *l, struct pl_err *err);
void state_load_clear(struct state_load *l);

/* The metadata of an optimizer's averager: {epoch, group_bits, optimizer_metadata}; the last is a
 * list with an entry for each leaf of the optimizer's state: a tensor by its number, or a value. */
struct state_leaf {
    enum { STATE_TENSOR, STATE_REAL, STATE_COUNT, STATE_TRUTH, STATE_NONE } kind;
    int64_t index; /* TENSOR: among the optimizer's tensors; COUNT, TRUTH: the value */
    double real;
};
struct training_state {
    int64_t epoch;
    char group_bits[65];
    struct state_leaf *leaves;
    size_t count;
};
int training_state_write(struct bytes *out, const struct training_state *t);
/* PL_EFORMAT with a sentence. *t is filled anew; release with training_state_clear. */
int training_state_read(struct training_state *t, const uint8_t *data, size_t n,
                        struct pl_err *err);
void training_state_clear(struct training_state *t);

#endif
