/* pickle_machine.h - the stack machine that parses a pickle, without the opcodes; private to
 * pickle*.c. Functions that fail have filled the machine's err. */
#ifndef PL_PICKLE_MACHINE_H
#define PL_PICKLE_MACHINE_H

#include "pickle.h"

struct slab;

struct pickle {
    struct slab *slabs;
    size_t values, bytes;
    struct pickle_value **persistent;
    size_t persistents, persistent_capacity;
};

struct machine {
    struct pickle *memory;
    const uint8_t *data;
    size_t bytes, at, opcode_at;
    struct pickle_value **stack; /* NULL entries are marks */
    size_t depth, capacity;
    struct pickle_value **memo;
    size_t memo_capacity, memo_next;
    const char *where;
    struct pl_err *err;
};

/* Allocates memory that lives as long as the values; NULL: none, or the limit is reached. */
void *pl_pickle_take(struct pickle *p, size_t bytes);
/* Sets err to this message with the position, and returns the status. */
__attribute__((format(printf, 3, 4))) int pl_pickle_refuse(struct machine *m, int status,
                                                           const char *format, ...);
int pl_pickle_no_memory(struct machine *m);

/* NULL after an error. */
struct pickle_value *pl_pickle_value_new(struct machine *m, enum pickle_kind kind);

/* NULL pushes a mark. */
int pl_pickle_push(struct machine *m, struct pickle_value *v);
/* Pushes a new value; fails if v is NULL for lack of memory. */
int pl_pickle_push_new(struct machine *m, struct pickle_value *v);
/* The top value, which stays on the stack. NULL after an error. */
struct pickle_value *pl_pickle_top(struct machine *m);
struct pickle_value *pl_pickle_pop(struct machine *m);
/* Pops the values above the last mark and the mark; returns their number, they stay readable at
 * stack[depth + 1] and on. -1: no mark. */
long pl_pickle_pop_to_mark(struct machine *m);

/* The next n bytes of input; NULL after an error. */
const uint8_t *pl_pickle_next(struct machine *m, uint64_t n);
/* A little-endian integer of n bytes in *x; nonzero after an error. */
int pl_pickle_little(struct machine *m, uint64_t *x, int n);
/* The input up to the end of the line, which is consumed; *n characters. */
const char *pl_pickle_line(struct machine *m, size_t *n);

/* Stores the top value in the memo. */
int pl_pickle_remember(struct machine *m, uint64_t index);
int pl_pickle_recall(struct machine *m, uint64_t index);

#endif
