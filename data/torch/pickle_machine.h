/* pickle_machine.h - the stack machine that reads a pickle, without its opcodes. Seen by pickle*.c
 * alone. Whatever refuses has filled the machine's err. */
#ifndef PL_PICKLE_MACHINE_H
#define PL_PICKLE_MACHINE_H

#include "pickle.h"

struct slab;

struct pickle {
    struct slab *slabs;
    size_t values, bytes;
    struct pickle_value **persistent;
    size_t persistents, persistent_room;
};

struct machine {
    struct pickle *memory;
    const uint8_t *data;
    size_t bytes, at, opcode_at;
    struct pickle_value **stack; /* NULL entries are marks */
    size_t depth, room;
    struct pickle_value **memo;
    size_t memos, memo_room, memo_next;
    const char *where;
    struct pl_err *err;
};

/* Memory that lives as long as the values; NULL: none, or more than is allowed. */
void *pl_pickle_take(struct pickle *p, size_t bytes);
/* Fills err with the place and this sentence, and returns the status. */
__attribute__((format(printf, 3, 4))) int pl_pickle_refuse(struct machine *m, int status,
                                                           const char *format, ...);
int pl_pickle_no_memory(struct machine *m);

/* NULL after a refusal. */
struct pickle_value *pl_pickle_value_new(struct machine *m, enum pickle_kind kind);

/* NULL is a mark. */
int pl_pickle_push(struct machine *m, struct pickle_value *v);
/* A new value was made, or there was no room for one, which err then says. */
int pl_pickle_push_new(struct machine *m, struct pickle_value *v);
/* The value on top, which stays there. NULL after a refusal. */
struct pickle_value *pl_pickle_top(struct machine *m);
struct pickle_value *pl_pickle_pop(struct machine *m);
/* The number of values above the last mark, which goes; they stay at stack[depth + 1] and on.
 * -1: no mark. */
long pl_pickle_pop_to_mark(struct machine *m);

/* The next n bytes; NULL after a refusal. */
const uint8_t *pl_pickle_next(struct machine *m, uint64_t n);
/* A little-endian number of n bytes, in *x; nonzero after a refusal. */
int pl_pickle_little(struct machine *m, uint64_t *x, int n);
/* Up to the end of the line, which goes too; *n characters. */
const char *pl_pickle_line(struct machine *m, size_t *n);

/* The value on top, to be found again. */
int pl_pickle_remember(struct machine *m, uint64_t index);
int pl_pickle_recall(struct machine *m, uint64_t index);

#endif
