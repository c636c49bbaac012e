/* msgpack.h - the coding of the DHT's keys and values: MessagePack with hivemind's extension for
 * tuples. [spec hivemind-protocol 1.2]
 *
 * Written by hand because strangers' bytes come here first: msgpack-c allocates as many elements as
 * a header claims, before they have arrived, and has no tuples. Here memory is allocated only for
 * elements that have been read, and there is one way to write a value, so that equal values are
 * equal bytes (a key's bytes are hashed, a subkey's are compared). */
#ifndef PL_MSGPACK_H
#define PL_MSGPACK_H

#include "net/bytes.h"

#define MP_TUPLE_CODE 0x40      /* extension: a list that is a tuple */
#define MP_DICTIONARY_CODE 0x50 /* extension: a DHT dictionary, see dht_dictionary.h */
#define MP_DEPTH_MAX 64         /* lists in lists; the records of a run need 3 */
/* Values in one tree, of 40 bytes each: one byte of input may be a value. A dictionary of 4 MiB of
 * progress records has 20,000; a state's metadata two for each number of the optimizer. */
#define MP_VALUES_MAX (1u << 19)

enum mp_kind {
    MP_NIL,
    MP_BOOL,
    MP_INT,
    MP_FLOAT,
    MP_STR,
    MP_BIN,
    MP_LIST,
    MP_TUPLE,
    MP_MAP,
    MP_EXT
};

struct mp_value {
    enum mp_kind kind;
    int8_t code;  /* MP_EXT */
    int negative; /* MP_INT, 1: the value is (int64_t)number; 0: it is number */
    size_t n;     /* bytes, elements, or pairs */
    union {
        int truth;             /* MP_BOOL */
        uint64_t number;       /* MP_INT */
        double real;           /* MP_FLOAT */
        const uint8_t *bytes;  /* MP_STR (UTF-8, no zero at its end), MP_BIN, MP_EXT; borrowed */
        struct mp_value *item; /* MP_LIST, MP_TUPLE: n of them; MP_MAP: key, value, key, ... */
    };
};

/* Reads bytes that hold exactly one value, into a tree that borrows from them. PL_EFORMAT for
 * anything that hivemind's reader refuses too: bytes left over or missing, text that is not
 * UTF-8, map keys other than text and bytes. PL_ELIMIT above MP_DEPTH_MAX or MP_VALUES_MAX.
 * *root is freed with mp_free. */
int mp_read(struct mp_value **root, const uint8_t *data, size_t n, struct pl_err *err);
void mp_free(struct mp_value *root);

int mp_is_text(const struct mp_value *v, const char *text);
/* A map's value under a text key (the last one, as in Python), or NULL; also if v is not a map. */
const struct mp_value *mp_get(const struct mp_value *v, const char *key);
/* The value of an MP_INT from 0 to INT64_MAX; -1 for anything else. */
int64_t mp_count(const struct mp_value *v);

/* Writing: the shortest form of each. After a list or map header write its elements. */
int mp_nil(struct bytes *b);
int mp_bool(struct bytes *b, int x);
int mp_int(struct bytes *b, int64_t x);
int mp_uint(struct bytes *b, uint64_t x);
int mp_float(struct bytes *b, double x); /* always 64 bits */
int mp_text(struct bytes *b, const char *text);
int mp_str(struct bytes *b, const void *text, size_t n);
int mp_bin(struct bytes *b, const void *data, size_t n);
int mp_list(struct bytes *b, size_t n);
int mp_map(struct bytes *b, size_t n);
int mp_ext(struct bytes *b, int8_t code, const void *data, size_t n);
int mp_write(struct bytes *b, const struct mp_value *v);

#endif
