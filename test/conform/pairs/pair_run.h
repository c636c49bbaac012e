/* pair_run.h - what the framework's own files share: pair_run.c, which runs the cases,
 * pair_buffers.c and pair_compare.c. Cases include pair.h alone. */
#ifndef PL_PAIR_RUN_H
#define PL_PAIR_RUN_H

#include "pair.h"

#define GUARD 64 /* bytes on either side; keeps the alignment */
/* Around buffers and in pure outputs, read as floats: a signalling NaN, so that arithmetic on it
 * shows too (it turns quiet); as an id: far out of range. */
#define POISON(i) ((const uint8_t[4]){ 0x5A, 0x5A, 0xA5, 0x7F }[(i) % 4])
#define BUFFERS_MAX 64  /* arguments of one operation; the widest has 14 */
#define CASES_MOST 8192 /* that can be run again */
#define COUNT_ONE(name, type) +1
enum { PAIR_OPERATIONS = 0 PL_OPERATIONS(COUNT_ONE) };
#undef COUNT_ONE

struct buffer {
    int host_only, compared;
    size_t n, size;    /* elements, bytes of one */
    size_t bytes;      /* n * size, without guards */
    uint8_t *raw[2];   /* both sides, guards included; raw[1] is the backend's memory, */
    size_t misaligned; /* offset from the address that alloc returned */
    uint8_t *before;   /* the content on both sides before the first run, guards included */
    uint8_t *after[2]; /* host copies after the first run of each side, guards included */
};

/* How an operation fared over all its cases. */
struct op {
    const char *name;
    size_t offset; /* of the member in struct pl_backend */
    int native;
    long cases, failed;
    double ref_rate; /* work a second of the reference in the latest case that ran it */
};

struct pair_run {
    const struct pair_options *options;
    const struct pl_backend *reference;
    struct op ops[PAIR_OPERATIONS];
    int device; /* the backend has memory of its own */
    /* In a second pass arguments start at offsets within alloc's memory: the same cases again,
     * except expensive ones. `met` counts cases. */
    int misaligned, met;
    uint8_t heavy[CASES_MOST];

    /* the case at hand */
    struct op *op;
    char line[256];
    char why[400]; /* empty: good so far */
    struct buffer buffers[BUFFERS_MAX];
    int count;
    void *scratch[BUFFERS_MAX];
    int scratches;
    int large, left_out, step, ran;
    double flops, bytes;
    double started, seconds[3], spent; /* of the reference, the backend, the baseline */
    double worst;                      /* largest error as a share of its bound */
    char worst_name[40];
};

/* Checks the contract of alloc and host_alloc: memory is zeroed and aligned to 64 bytes. NULL, or
 * what is wrong and *name, the entry that it is wrong with. */
const char *pair_memory_fault(const struct pl_backend *be, const char **name);
/* Fails the case with this message; only the first is kept. */
__attribute__((format(printf, 2, 3))) void pair_fail(struct pair_run *r, const char *format, ...);
/* Memory or a sentence and the program's end: want of it is no verdict on the backend. */
void *pair_must(void *memory);
/* A buffer, guards included, between host memory and one side. */
int pair_bring(struct pair *p, uint8_t *to, const struct buffer *b, int side);
int pair_push(struct pair *p, struct buffer *b, int side, const uint8_t *from);
/* Ends all buffers of the case. */
void pair_forget(struct pair *p);

#endif
