/* part_message.h - the messages of an all-reduce: a part of a tensor, or a code alone. They are
 * read as views, and written around a buffer that an encoder fills in, since every copy of all
 * parts costs as much as encrypting them. Otherwise these are protobuf's AveragingData of
 * averaging.proto. [spec hivemind-protocol 5] */
#ifndef PL_PART_MESSAGE_H
#define PL_PART_MESSAGE_H

#include "ref/wire.h"
#include "net/bytes.h"
#include "averaging_code.h"

struct part_message {
    int32_t code;            /* enum averaging_code, or a number that we don't know */
    const uint8_t *group_id; /* NULL: absent, as in all but the first */
    size_t group_id_n;
    int has_part;
    double weight;
    /* The part: float32 of one axis, `elements` of them, checked so that decoding cannot fail. */
    enum pl_compression method;
    size_t elements;
    const uint8_t *buffer;
    size_t bytes;
};

/* PL_EFORMAT with a sentence: not the message, or not a part as above. Views are of `data`. */
int part_message_read(struct part_message *m, const uint8_t *data, size_t n, struct pl_err *err);

/* Appends a message with m's fields but for `buffer`, whose place *buffer is to be filled with
 * m->bytes bytes before `out` is touched again. */
int part_message_write(struct bytes *out, uint8_t **buffer, const struct part_message *m);

/* A message with nothing but a code. */
int part_message_code(struct bytes *out, enum averaging_code code);

/* Far beyond any gradient, and a sum of GROUP_PEERS_MAX of them times a weight of 1e9 is still
 * finite: a Byzantine peer's huge number must not become an honest reducer's infinity. Factors are
 * multiplied. */
#define PART_VALUE_MAX 1e18f
#define PART_FACTOR_MAX 1e9f
#define PART_WEIGHT_MAX 1e9
/* 1 if every value that the part can decode to is a number, and none beyond PART_VALUE_MAX. */
int part_message_is_finite(const struct part_message *m);

#endif
