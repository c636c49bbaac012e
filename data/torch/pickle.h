/* pickle.h - reads Python's pickles as plain data: a stack machine that never calls anything. A
 * pickle may name functions and classes. Those known from checkpoints become objects that record
 * their name and arguments; any other name is refused. [spec images-and-text 7.3] */
#ifndef PL_PICKLE_H
#define PL_PICKLE_H

#include "ref/base.h"

enum pickle_kind {
    PICKLE_NONE,
    PICKLE_BOOL,  /* integer: 0 or 1 */
    PICKLE_INT,   /* integer; `wide`: it did not fit, and integer is 0 */
    PICKLE_FLOAT, /* real */
    PICKLE_TEXT,  /* text, bytes: UTF-8, not zero-terminated, may contain zeros */
    PICKLE_BYTES, /* text, bytes */
    PICKLE_TUPLE, /* item, count */
    PICKLE_LIST,
    PICKLE_SET,
    PICKLE_DICT,   /* item, count: key, value, key, value, ...; also for an OrderedDict */
    PICKLE_GLOBAL, /* text, bytes: "module name" */
    PICKLE_OBJECT, /* item[0] the global, item[1] its arguments, item[2] a state or NULL; then items
                      that were set, key and value in turn */
    PICKLE_PERSISTENT /* item[0]: the persistent id */
};

struct pickle_value {
    enum pickle_kind kind;
    int wide;
    union {
        int64_t integer;
        double real;
        struct {
            const char *text;
            size_t bytes;
        };
        struct {
            struct pickle_value **item;
            size_t count, capacity;
        };
    };
};

/* Named limits; each far above what a checkpoint of a billion parameters needs (its pickle has some
 * 10^5 opcodes), and low enough that a hostile one costs megabytes. */
#define PICKLE_VALUES_MAX (1 << 22) /* values, and with them the stack */
#define PICKLE_MEMO_MAX (1 << 22)
#define PICKLE_MEMORY_MAX (512 << 20) /* shared lists may be copied many times */
#define PICKLE_DEPTH_MAX 200          /* nesting that recursive readers accept */
#define PICKLE_NUMBER_MAX 1024        /* bytes of a long integer, characters of a written number */

struct pickle;                      /* the memory of all values of one or several pickles */
struct pickle *pl_pickle_new(void); /* NULL: no memory */
void pl_pickle_free(struct pickle *p);

/* Parses one pickle at the start of `bytes` bytes; *used, if not NULL, is its length. Texts point
 * into `data`, which must outlive the values. Values may be shared and may contain themselves. err
 * begins with `where`. */
int pl_pickle_read(struct pickle *p, const struct pickle_value **value, size_t *used,
                   const void *data, size_t bytes, const char *where, struct pl_err *err);

/* Every PICKLE_PERSISTENT value read so far, in order. */
size_t pl_pickle_persistents(const struct pickle *p, struct pickle_value *const **list);

/* a text or global equal to this string */
int pl_pickle_is(const struct pickle_value *v, const char *text);
/* The value of a text key in a dict, or NULL. */
const struct pickle_value *pl_pickle_get(const struct pickle_value *dict, const char *key);

#endif
