/* pickle_opcodes.c - the opcodes of a pickle, one function per family. A pickle is a program for a
 * stack machine: opcodes push values, collect those above a mark into containers, and store values
 * in a memo to refer to them again. Letters and names are Python's own (pickletools). */
#include "pickle_machine.h"
#include "pickle_globals.h"
#include "ref/small.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PROTOCOL_MAX 5

/* -- values ----------------------------------------------------------------------------------- */

static int push_text(struct machine *m, enum pickle_kind kind, int length_bytes)
{
    uint64_t n;
    const uint8_t *p;
    struct pickle_value *v;
    if (pl_pickle_little(m, &n, length_bytes) || !(p = pl_pickle_next(m, n))) return PL_EFORMAT;
    if ((v = pl_pickle_value_new(m, kind))) {
        v->text = (const char *)p;
        v->bytes = (size_t)n;
    }
    return pl_pickle_push_new(m, v);
}

static int push_integer(struct machine *m, enum pickle_kind kind, int64_t x)
{
    struct pickle_value *v = pl_pickle_value_new(m, kind);
    if (v) v->integer = x;
    return pl_pickle_push_new(m, v);
}

static int push_long(struct machine *m, int length_bytes)
{
    uint64_t n, x = 0;
    const uint8_t *p;
    struct pickle_value *v;
    if (pl_pickle_little(m, &n, length_bytes)) return PL_EFORMAT;
    if (n > PICKLE_NUMBER_MAX)
        return pl_pickle_refuse(m, PL_ELIMIT, "a number of %llu bytes", (unsigned long long)n);
    if (!(p = pl_pickle_next(m, n))) return PL_EFORMAT;
    if (!(v = pl_pickle_value_new(m, PICKLE_INT))) return pl_pickle_push_new(m, v);
    if (n <= 8) {
        for (size_t i = 0; i < 8; i++)
            x |= (uint64_t)(i < n ? p[i] : n && p[n - 1] & 0x80 ? 0xFF : 0) << 8 * i;
        v->integer = (int64_t)x;
    } else v->wide = 1;
    return pl_pickle_push_new(m, v);
}

/* INT and LONG: decimal, perhaps with an L; "00" and "01" are protocol 0's booleans. */
static int push_written(struct machine *m, int is_float)
{
    char copy[PICKLE_NUMBER_MAX + 1], *end;
    size_t n;
    const char *text = pl_pickle_line(m, &n);
    struct pickle_value *v;
    if (!text) return PL_EFORMAT;
    if (n > PICKLE_NUMBER_MAX)
        return pl_pickle_refuse(m, PL_ELIMIT, "a number of %zu characters", n);
    memcpy(copy, text, n);
    copy[n] = 0;
    if (!is_float && n == 2 && copy[0] == '0') return push_integer(m, PICKLE_BOOL, copy[1] == '1');
    if (!(v = pl_pickle_value_new(m, is_float ? PICKLE_FLOAT : PICKLE_INT)))
        return pl_pickle_push_new(m, v);
    errno = 0;
    if (is_float) v->real = strtod(copy, &end);
    else v->integer = strtoll(copy, &end, 10);
    if (!is_float && errno == ERANGE) {
        v->wide = 1;
        v->integer = 0;
    }
    if (end == copy || (*end && strcmp(end, "L")))
        return pl_pickle_refuse(m, PL_EFORMAT, "'%.20s' is not a number", copy);
    return pl_pickle_push(m, v);
}

static int push_double(struct machine *m)
{
    const uint8_t *p = pl_pickle_next(m, 8);
    uint64_t bits = 0;
    struct pickle_value *v;
    if (!p) return PL_EFORMAT;
    for (int i = 0; i < 8; i++) bits = bits << 8 | p[i]; /* the format's only big-endian number */
    if ((v = pl_pickle_value_new(m, PICKLE_FLOAT))) memcpy(&v->real, &bits, sizeof bits);
    return pl_pickle_push_new(m, v);
}

static int push_global(struct machine *m, const char *module, size_t n, const char *name, size_t k)
{
    struct pickle_value *v;
    char *text;
    if (n > 400 || k > 400)
        return pl_pickle_refuse(m, PL_ELIMIT, "a global's name of %zu characters", n + k);
    if (!(text = pl_pickle_take(m->memory, n + k + 2))) return pl_pickle_no_memory(m);
    memcpy(text, module, n);
    text[n] = ' ';
    memcpy(text + n + 1, name, k);
    text[n + 1 + k] = 0;
    if (!pl_pickle_global_known(text, n + k + 1))
        return pl_pickle_refuse(m, PL_EFORMAT,
                                "it mentions %.*s.%.*s, which no checkpoint needs: refused",
                                (int)(n < 100 ? n : 100), module, (int)(k < 100 ? k : 100), name);
    if ((v = pl_pickle_value_new(m, PICKLE_GLOBAL))) {
        v->text = text;
        v->bytes = n + k + 1;
    }
    return pl_pickle_push_new(m, v);
}

static int global_lines(struct machine *m)
{
    size_t n, k;
    const char *module = pl_pickle_line(m, &n), *name = module ? pl_pickle_line(m, &k) : NULL;
    return name ? push_global(m, module, n, name, k) : PL_EFORMAT;
}

static int global_stack(struct machine *m)
{
    const struct pickle_value *name = pl_pickle_pop(m), *module = name ? pl_pickle_pop(m) : NULL;
    if (!module) return PL_EFORMAT;
    if (name->kind != PICKLE_TEXT || module->kind != PICKLE_TEXT)
        return pl_pickle_refuse(m, PL_EFORMAT, "a global's name is not text");
    return push_global(m, module->text, module->bytes, name->text, name->bytes);
}

/* -- containers ------------------------------------------------------------------------------- */

static int append(struct machine *m, struct pickle_value *to, struct pickle_value *const *items,
                  size_t n)
{
    if (to->capacity - to->count < n) {
        size_t capacity = to->count + n > 2 * to->capacity ? to->count + n : 2 * to->capacity;
        struct pickle_value **more = pl_pickle_take(m->memory, capacity * sizeof *more);
        if (!more) return pl_pickle_no_memory(m);
        if (to->count) memcpy(more, to->item, to->count * sizeof *more);
        to->item = more;
        to->capacity = capacity;
    }
    if (n) memcpy(to->item + to->count, items, n * sizeof *items);
    to->count += n;
    return PL_OK;
}

static int push_container(struct machine *m, enum pickle_kind kind, size_t n)
{
    struct pickle_value *v = pl_pickle_value_new(m, kind);
    int rc;
    if (!v) return pl_pickle_push_new(m, v);
    if (n && (rc = append(m, v, m->stack + m->depth, n))) return rc;
    return pl_pickle_push(m, v);
}

static int push_marked(struct machine *m, enum pickle_kind kind)
{
    long n = pl_pickle_pop_to_mark(m);
    if (n < 0) return PL_EFORMAT;
    if (kind == PICKLE_DICT && n % 2)
        return pl_pickle_refuse(m, PL_EFORMAT, "a key without a value");
    /* the mark is removed: values move down by one */
    memmove(m->stack + m->depth, m->stack + m->depth + 1, (size_t)n * sizeof *m->stack);
    return push_container(m, kind, (size_t)n);
}

/* TUPLE1 to TUPLE3 */
static int push_tuple(struct machine *m, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!pl_pickle_pop(m)) return PL_EFORMAT;
    return push_container(m, PICKLE_TUPLE, n);
}

/* Adds the last n values to the container below them. */
static int put(struct machine *m, size_t n, struct pickle_value *const *items, int pairs)
{
    struct pickle_value *to = pl_pickle_top(m);
    if (!to) return PL_EFORMAT;
    if (pairs && n % 2) return pl_pickle_refuse(m, PL_EFORMAT, "a key without a value");
    if (to->kind == PICKLE_OBJECT && pairs) return append(m, to, items, n);
    if (pairs ? to->kind != PICKLE_DICT
              : to->kind != PICKLE_LIST && to->kind != PICKLE_SET && to->kind != PICKLE_OBJECT)
        return pl_pickle_refuse(m, PL_EFORMAT,
                                "items for an object that is not a "
                                "%s",
                                pairs ? "dict" : "list");
    return to->kind == PICKLE_OBJECT ? PL_OK : append(m, to, items, n);
}

static int put_one(struct machine *m, int pairs)
{
    size_t n = pairs ? 2 : 1;
    for (size_t i = 0; i < n; i++)
        if (!pl_pickle_pop(m)) return PL_EFORMAT;
    return put(m, n, m->stack + m->depth, pairs);
}

static int put_marked(struct machine *m, int pairs)
{
    long n = pl_pickle_pop_to_mark(m);
    return n < 0 ? PL_EFORMAT : put(m, (size_t)n, m->stack + m->depth + 1, pairs);
}

/* -- objects ---------------------------------------------------------------------------------- */

/* REDUCE and NEWOBJ: records the call without making it. An OrderedDict becomes a dict with the
 * items of its argument. */
static int make_object(struct machine *m)
{
    struct pickle_value *args = pl_pickle_pop(m), *global = args ? pl_pickle_pop(m) : NULL, *v,
                        *three[3];
    if (!global) return PL_EFORMAT;
    if (global->kind != PICKLE_GLOBAL)
        return pl_pickle_refuse(m, PL_EFORMAT, "a call of an object that is not a global");
    if (args->kind != PICKLE_TUPLE)
        return pl_pickle_refuse(m, PL_EFORMAT, "arguments that are not a tuple");
    if (pl_pickle_is(global, "collections OrderedDict")) {
        const struct pickle_value *list = args->count ? args->item[0] : NULL;
        int rc = PL_OK;
        if (!(v = pl_pickle_value_new(m, PICKLE_DICT))) return pl_pickle_push_new(m, v);
        if (list && list->kind == PICKLE_DICT) rc = append(m, v, list->item, list->count);
        if (list && (list->kind == PICKLE_LIST || list->kind == PICKLE_TUPLE))
            for (size_t i = 0; !rc && i < list->count; i++) {
                const struct pickle_value *pair = list->item[i];
                if ((pair->kind != PICKLE_LIST && pair->kind != PICKLE_TUPLE) || pair->count != 2)
                    return pl_pickle_refuse(m, PL_EFORMAT,
                                            "an OrderedDict of objects that are not "
                                            "pairs");
                rc = append(m, v, pair->item, 2);
            }
        return rc ? rc : pl_pickle_push(m, v);
    }
    if (!(v = pl_pickle_value_new(m, PICKLE_OBJECT))) return pl_pickle_push_new(m, v);
    three[0] = global;
    three[1] = args;
    three[2] = NULL;
    int rc = append(m, v, three, 3);
    return rc ? rc : pl_pickle_push(m, v);
}

static int build(struct machine *m)
{
    struct pickle_value *state = pl_pickle_pop(m), *v = state ? pl_pickle_top(m) : NULL;
    if (!v) return PL_EFORMAT;
    if (v->kind == PICKLE_OBJECT) v->item[2] = state;
    else if (v->kind != PICKLE_DICT) /* a dict's state is its _metadata, which is not needed */
        return pl_pickle_refuse(m, PL_EFORMAT, "a state for an object that has none");
    return PL_OK;
}

static int persistent(struct machine *m)
{
    struct pickle *p = m->memory;
    int rc = pl_pickle_pop(m) ? push_container(m, PICKLE_PERSISTENT, 1) : PL_EFORMAT;
    if (rc) return rc;
    if (pl_grow(&p->persistent, p->persistents, &p->persistent_capacity, 64))
        return pl_pickle_no_memory(m);
    p->persistent[p->persistents++] = pl_pickle_top(m);
    return PL_OK;
}

/* -- the opcodes ------------------------------------------------------------------------------ */

static int step(struct machine *m, uint8_t opcode)
{
    uint64_t x;
    switch (opcode) {
    case 0x80: /* PROTO */
        if (pl_pickle_little(m, &x, 1)) return PL_EFORMAT;
        if (x <= PROTOCOL_MAX) return PL_OK;
        return pl_pickle_refuse(m, PL_EFORMAT, "protocol %d, at most %d", (int)x, PROTOCOL_MAX);
    case 0x95: return pl_pickle_little(m, &x, 8); /* FRAME: its length is not needed */
    case '(': return pl_pickle_push(m, NULL);     /* MARK */
    case '0':                                     /* POP */
        if (!m->depth) return pl_pickle_refuse(m, PL_EFORMAT, "the stack is empty");
        m->depth--;
        return PL_OK;
    case '1': return pl_pickle_pop_to_mark(m) < 0 ? PL_EFORMAT : PL_OK; /* POP_MARK */
    case '2': return pl_pickle_top(m) ? pl_pickle_push(m, pl_pickle_top(m)) : PL_EFORMAT; /* DUP */
    case 'N': return pl_pickle_push_new(m, pl_pickle_value_new(m, PICKLE_NONE));          /* NONE */
    case 0x88: return push_integer(m, PICKLE_BOOL, 1); /* NEWTRUE */
    case 0x89: return push_integer(m, PICKLE_BOOL, 0); /* NEWFALSE */
    case 'J':                                          /* BININT */
        return pl_pickle_little(m, &x, 4) ? PL_EFORMAT : push_integer(m, PICKLE_INT, (int32_t)x);
    case 'K': /* BININT1 */
        return pl_pickle_little(m, &x, 1) ? PL_EFORMAT : push_integer(m, PICKLE_INT, (int64_t)x);
    case 'M': /* BININT2 */
        return pl_pickle_little(m, &x, 2) ? PL_EFORMAT : push_integer(m, PICKLE_INT, (int64_t)x);
    case 0x8A: return push_long(m, 1); /* LONG1 */
    case 0x8B: return push_long(m, 4); /* LONG4 */
    case 'I':
    case 'L': return push_written(m, 0);                 /* INT, LONG */
    case 'F': return push_written(m, 1);                 /* FLOAT */
    case 'G': return push_double(m);                     /* BINFLOAT */
    case 'X': return push_text(m, PICKLE_TEXT, 4);       /* BINUNICODE */
    case 0x8C: return push_text(m, PICKLE_TEXT, 1);      /* SHORT_BINUNICODE */
    case 0x8D: return push_text(m, PICKLE_TEXT, 8);      /* BINUNICODE8 */
    case 'U': return push_text(m, PICKLE_TEXT, 1);       /* SHORT_BINSTRING: Python 2's text */
    case 'T': return push_text(m, PICKLE_TEXT, 4);       /* BINSTRING */
    case 'C': return push_text(m, PICKLE_BYTES, 1);      /* SHORT_BINBYTES */
    case 'B': return push_text(m, PICKLE_BYTES, 4);      /* BINBYTES */
    case 0x8E: return push_text(m, PICKLE_BYTES, 8);     /* BINBYTES8 */
    case ')': return push_container(m, PICKLE_TUPLE, 0); /* EMPTY_TUPLE */
    case 't': return push_marked(m, PICKLE_TUPLE);       /* TUPLE */
    case 0x85: return push_tuple(m, 1);                  /* TUPLE1 */
    case 0x86: return push_tuple(m, 2);                  /* TUPLE2 */
    case 0x87: return push_tuple(m, 3);                  /* TUPLE3 */
    case ']': return push_container(m, PICKLE_LIST, 0);  /* EMPTY_LIST */
    case 'l': return push_marked(m, PICKLE_LIST);        /* LIST */
    case 'a': return put_one(m, 0);                      /* APPEND */
    case 'e': return put_marked(m, 0);                   /* APPENDS */
    case '}': return push_container(m, PICKLE_DICT, 0);  /* EMPTY_DICT */
    case 'd': return push_marked(m, PICKLE_DICT);        /* DICT */
    case 's': return put_one(m, 1);                      /* SETITEM */
    case 'u': return put_marked(m, 1);                   /* SETITEMS */
    case 0x8F: return push_container(m, PICKLE_SET, 0);  /* EMPTY_SET */
    case 0x90: return put_marked(m, 0);                  /* ADDITEMS */
    case 0x91: return push_marked(m, PICKLE_SET);        /* FROZENSET */
    case 'q':
        return pl_pickle_little(m, &x, 1) ? PL_EFORMAT : pl_pickle_remember(m, x); /* BINPUT */
    case 'r':
        return pl_pickle_little(m, &x, 4) ? PL_EFORMAT : pl_pickle_remember(m, x); /* LONG_BINPUT */
    case 0x94: return pl_pickle_remember(m, m->memo_next);                         /* MEMOIZE */
    case 'h': return pl_pickle_little(m, &x, 1) ? PL_EFORMAT : pl_pickle_recall(m, x); /* BINGET */
    case 'j':
        return pl_pickle_little(m, &x, 4) ? PL_EFORMAT : pl_pickle_recall(m, x); /* LONG_BINGET */
    case 'c': return global_lines(m);                                            /* GLOBAL */
    case 0x93: return global_stack(m);                                           /* STACK_GLOBAL */
    case 'R':
    case 0x81: return make_object(m); /* REDUCE, NEWOBJ */
    case 'b': return build(m);        /* BUILD */
    case 'Q': return persistent(m);   /* BINPERSID */
    default: break;
    }
    static const struct {
        uint8_t code;
        const char *name;
    } refused[] = {
        { 'i', "INST" },         { 'o', "OBJ" },
        { 'P', "PERSID" },       { 'S', "STRING" },
        { 'V', "UNICODE" },      { 'p', "PUT" },
        { 'g', "GET" },          { 0x82, "EXT1" },
        { 0x83, "EXT2" },        { 0x84, "EXT4" },
        { 0x92, "NEWOBJ_EX" },   { 0x96, "BYTEARRAY8" },
        { 0x97, "NEXT_BUFFER" }, { 0x98, "READONLY_BUFFER" },
    };
    for (size_t i = 0; i < PL_COUNT(refused); i++)
        if (refused[i].code == opcode)
            return pl_pickle_refuse(m, PL_EFORMAT, "opcode %s, which no checkpoint needs: refused",
                                    refused[i].name);
    return pl_pickle_refuse(m, PL_EFORMAT, "0x%02X is not an opcode", opcode);
}

int pl_pickle_read(struct pickle *p, const struct pickle_value **value, size_t *used,
                   const void *data, size_t bytes, const char *where, struct pl_err *err)
{
    struct machine m = { .memory = p, .data = data, .bytes = bytes, .where = where, .err = err };
    int rc = PL_OK;
    *value = NULL;
    while (!rc) {
        m.opcode_at = m.at;
        if (m.at == bytes) {
            rc = pl_pickle_refuse(&m, PL_EFORMAT, "it ends without a STOP");
            break;
        }
        uint8_t opcode = m.data[m.at++];
        if (opcode != '.') rc = step(&m, opcode);
        else {
            *value = pl_pickle_pop(&m);
            rc = *value ? PL_OK : PL_EFORMAT;
            break;
        }
    }
    if (used) *used = m.at;
    free(m.stack);
    free(m.memo);
    return rc;
}

size_t pl_pickle_persistents(const struct pickle *p, struct pickle_value *const **list)
{
    *list = p->persistent;
    return p->persistents;
}

int pl_pickle_is(const struct pickle_value *v, const char *text)
{
    return v && (v->kind == PICKLE_TEXT || v->kind == PICKLE_GLOBAL) && v->bytes == strlen(text) &&
           !memcmp(v->text, text, v->bytes);
}

const struct pickle_value *pl_pickle_get(const struct pickle_value *dict, const char *key)
{
    if (!dict || dict->kind != PICKLE_DICT) return NULL;
    /* of equal keys the last one counts, as in Python */
    for (size_t i = dict->count; i >= 2; i -= 2)
        if (pl_pickle_is(dict->item[i - 2], key) && dict->item[i - 2]->kind == PICKLE_TEXT)
            return dict->item[i - 1];
    return NULL;
}
