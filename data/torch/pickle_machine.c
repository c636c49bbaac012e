/* pickle_machine.c - the pickle machine's parts: an arena for values, the stack with marks, the
 * input, and the memo. */
#include "pickle_machine.h"
#include "ref/small.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_BYTES (64 << 10)

struct slab {
    struct slab *next;
    size_t used, capacity;
    _Alignas(16) unsigned char bytes[];
};

/* -- memory ----------------------------------------------------------------------------------- */

struct pickle *pl_pickle_new(void) { return calloc(1, sizeof(struct pickle)); }

void pl_pickle_free(struct pickle *p)
{
    if (!p) return;
    while (p->slabs) {
        struct slab *next = p->slabs->next;
        free(p->slabs);
        p->slabs = next;
    }
    free(p->persistent);
    free(p);
}

void *pl_pickle_take(struct pickle *p, size_t bytes)
{
    void *at;
    bytes = (bytes + 15) / 16 * 16;
    if (bytes > PICKLE_MEMORY_MAX - p->bytes) return NULL;
    p->bytes += bytes;
    if (!p->slabs || p->slabs->capacity - p->slabs->used < bytes) {
        size_t capacity = bytes > SLAB_BYTES ? bytes : SLAB_BYTES;
        struct slab *s = malloc(sizeof *s + capacity);
        if (!s) return NULL;
        *s = (struct slab){ p->slabs, 0, capacity };
        p->slabs = s;
    }
    at = p->slabs->bytes + p->slabs->used;
    p->slabs->used += bytes;
    return at;
}

__attribute__((format(printf, 3, 4))) int pl_pickle_refuse(struct machine *m, int status,
                                                           const char *format, ...)
{
    char what[300];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return pl_fail(m->err, status, "%s: pickle, byte %zu: %s", m->where, m->opcode_at, what);
}

int pl_pickle_no_memory(struct machine *m)
{
    return pl_pickle_refuse(m, PL_ENOMEM, "no memory for its values, of which %d MiB are allowed",
                            PICKLE_MEMORY_MAX >> 20);
}

struct pickle_value *pl_pickle_value_new(struct machine *m, enum pickle_kind kind)
{
    struct pickle_value *v;
    if (m->memory->values >= PICKLE_VALUES_MAX) {
        pl_pickle_refuse(m, PL_ELIMIT, "more than %d values", PICKLE_VALUES_MAX);
        return NULL;
    }
    if (!(v = pl_pickle_take(m->memory, sizeof *v))) {
        pl_pickle_no_memory(m);
        return NULL;
    }
    m->memory->values++;
    memset(v, 0, sizeof *v);
    v->kind = kind;
    return v;
}

/* -- stack ------------------------------------------------------------------------------------ */

int pl_pickle_push(struct machine *m, struct pickle_value *v)
{
    if (m->depth == m->capacity && m->depth >= PICKLE_VALUES_MAX)
        return pl_pickle_refuse(m, PL_ELIMIT, "more than %d values on the stack",
                                PICKLE_VALUES_MAX);
    if (pl_grow(&m->stack, m->depth, &m->capacity, 256)) return pl_pickle_no_memory(m);
    m->stack[m->depth++] = v;
    return PL_OK;
}

int pl_pickle_push_new(struct machine *m, struct pickle_value *v)
{
    if (!v) return m->memory->values >= PICKLE_VALUES_MAX ? PL_ELIMIT : PL_ENOMEM;
    return pl_pickle_push(m, v);
}

struct pickle_value *pl_pickle_top(struct machine *m)
{
    if (m->depth && m->stack[m->depth - 1]) return m->stack[m->depth - 1];
    pl_pickle_refuse(m, PL_EFORMAT, "the stack is empty");
    return NULL;
}

struct pickle_value *pl_pickle_pop(struct machine *m)
{
    struct pickle_value *v = pl_pickle_top(m);
    if (v) m->depth--;
    return v;
}

long pl_pickle_pop_to_mark(struct machine *m)
{
    size_t end = m->depth;
    while (m->depth && m->stack[m->depth - 1]) m->depth--;
    if (!m->depth) {
        pl_pickle_refuse(m, PL_EFORMAT, "no mark on the stack");
        return -1;
    }
    long n = (long)(end - m->depth);
    m->depth--;
    return n;
}

/* -- input ------------------------------------------------------------------------------------ */

const uint8_t *pl_pickle_next(struct machine *m, uint64_t n)
{
    const uint8_t *p = m->data + m->at;
    if (n > m->bytes - m->at) {
        pl_pickle_refuse(m, PL_EFORMAT, "%llu bytes expected, %zu left", (unsigned long long)n,
                         m->bytes - m->at);
        return NULL;
    }
    m->at += (size_t)n;
    return p;
}

int pl_pickle_little(struct machine *m, uint64_t *x, int n)
{
    const uint8_t *p = pl_pickle_next(m, (uint64_t)n);
    if (!p) return PL_EFORMAT;
    *x = 0;
    while (n--) *x = *x << 8 | p[n];
    return PL_OK;
}

const char *pl_pickle_line(struct machine *m, size_t *n)
{
    const uint8_t *p = m->data + m->at, *end = memchr(p, '\n', m->bytes - m->at);
    if (!end) {
        pl_pickle_refuse(m, PL_EFORMAT, "a line without an end");
        return NULL;
    }
    *n = (size_t)(end - p);
    m->at += *n + 1;
    return (const char *)p;
}

/* -- memo ------------------------------------------------------------------------------------- */

int pl_pickle_remember(struct machine *m, uint64_t index)
{
    struct pickle_value *v = pl_pickle_top(m);
    if (!v) return PL_EFORMAT;
    if (index >= PICKLE_MEMO_MAX)
        return pl_pickle_refuse(m, PL_ELIMIT, "memo %llu, at most %d", (unsigned long long)index,
                                PICKLE_MEMO_MAX);
    if (index >= m->memo_capacity) {
        size_t capacity = m->memo_capacity ? 2 * m->memo_capacity : 256;
        struct pickle_value **more;
        while (capacity <= index) capacity *= 2;
        if (!(more = realloc(m->memo, capacity * sizeof *more))) return pl_pickle_no_memory(m);
        memset(more + m->memo_capacity, 0, (capacity - m->memo_capacity) * sizeof *more);
        m->memo = more;
        m->memo_capacity = capacity;
    }
    m->memo_next += !m->memo[index];
    m->memo[index] = v;
    return PL_OK;
}

int pl_pickle_recall(struct machine *m, uint64_t index)
{
    if (index >= m->memo_capacity || !m->memo[index])
        return pl_pickle_refuse(m, PL_EFORMAT, "memo %llu was never stored",
                                (unsigned long long)index);
    return pl_pickle_push(m, m->memo[index]);
}
