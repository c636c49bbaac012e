/* pickle.c - see pickle.h. One function a family of opcodes; the letters are Python's own names for
 * them (pickletools). */
#include "pickle.h"
#include "pickle_globals.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SLAB_BYTES (64 << 10)
#define PROTOCOL_MAX 5

struct slab {
    struct slab *next;
    size_t used, room;
    _Alignas(16) unsigned char bytes[];
};

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

/* -- memory --------------------------------------------------------------------------------------- */

struct pickle *pickle_new(void)
{
    return calloc(1, sizeof(struct pickle));
}

void pickle_free(struct pickle *p)
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

static void *take(struct pickle *p, size_t bytes)
{
    void *at;
    bytes = (bytes + 15) / 16 * 16;
    if (bytes > PICKLE_MEMORY_MAX - p->bytes) return NULL;
    p->bytes += bytes;
    if (!p->slabs || p->slabs->room - p->slabs->used < bytes) {
        size_t room = bytes > SLAB_BYTES ? bytes : SLAB_BYTES;
        struct slab *s = malloc(sizeof *s + room);
        if (!s) return NULL;
        *s = (struct slab){ p->slabs, 0, room };
        p->slabs = s;
    }
    at = p->slabs->bytes + p->slabs->used;
    p->slabs->used += bytes;
    return at;
}

__attribute__((format(printf, 3, 4)))
static int refuse(struct machine *m, int status, const char *format, ...)
{
    char what[300];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return pl_fail(m->err, status, "%s: pickle, byte %zu: %s", m->where, m->opcode_at, what);
}

static int no_memory(struct machine *m)
{
    return refuse(m, PL_ENOMEM, "no memory for its values, of which %d MiB are allowed",
                  PICKLE_MEMORY_MAX >> 20);
}

static struct pickle_value *new_value(struct machine *m, enum pickle_kind kind)
{
    struct pickle_value *v;
    if (m->memory->values >= PICKLE_VALUES_MAX) {
        refuse(m, PL_ELIMIT, "more than %d values", PICKLE_VALUES_MAX);
        return NULL;
    }
    if (!(v = take(m->memory, sizeof *v))) {
        no_memory(m);
        return NULL;
    }
    m->memory->values++;
    memset(v, 0, sizeof *v);
    v->kind = kind;
    return v;
}

/* -- stack ---------------------------------------------------------------------------------------- */

static int push(struct machine *m, struct pickle_value *v)
{
    if (m->depth == m->room) {
        size_t room = m->room ? 2 * m->room : 256;
        struct pickle_value **more;
        if (m->depth >= PICKLE_VALUES_MAX)
            return refuse(m, PL_ELIMIT, "more than %d values on the stack", PICKLE_VALUES_MAX);
        if (!(more = realloc(m->stack, room * sizeof *more))) return no_memory(m);
        m->stack = more;
        m->room = room;
    }
    m->stack[m->depth++] = v;
    return PL_OK;
}

/* A new value was made, or there was no room for one, which err then says. */
static int push_new(struct machine *m, struct pickle_value *v)
{
    if (!v) return m->memory->values >= PICKLE_VALUES_MAX ? PL_ELIMIT : PL_ENOMEM;
    return push(m, v);
}

/* The value on top, which stays there. NULL after a refusal. */
static struct pickle_value *top(struct machine *m)
{
    if (m->depth && m->stack[m->depth - 1]) return m->stack[m->depth - 1];
    refuse(m, PL_EFORMAT, "the stack is empty");
    return NULL;
}

static struct pickle_value *pop(struct machine *m)
{
    struct pickle_value *v = top(m);
    if (v) m->depth--;
    return v;
}

/* The number of values above the last mark, which goes; they stay at stack[depth]. -1: no mark. */
static long pop_to_mark(struct machine *m)
{
    size_t end = m->depth;
    while (m->depth && m->stack[m->depth - 1]) m->depth--;
    if (!m->depth) {
        refuse(m, PL_EFORMAT, "no mark on the stack");
        return -1;
    }
    long n = (long)(end - m->depth);
    m->depth--;
    return n;
}

/* -- input ---------------------------------------------------------------------------------------- */

static const uint8_t *next(struct machine *m, uint64_t n)
{
    const uint8_t *p = m->data + m->at;
    if (n > m->bytes - m->at) {
        refuse(m, PL_EFORMAT, "%llu bytes expected, %zu left", (unsigned long long)n,
               m->bytes - m->at);
        return NULL;
    }
    m->at += (size_t)n;
    return p;
}

/* A little-endian number of n bytes, in *x; nonzero after a refusal. */
static int little(struct machine *m, uint64_t *x, int n)
{
    const uint8_t *p = next(m, (uint64_t)n);
    if (!p) return PL_EFORMAT;
    *x = 0;
    while (n--) *x = *x << 8 | p[n];
    return PL_OK;
}

/* Up to the end of the line, which goes too. */
static const char *line(struct machine *m, size_t *n)
{
    const uint8_t *p = m->data + m->at, *end = memchr(p, '\n', m->bytes - m->at);
    if (!end) {
        refuse(m, PL_EFORMAT, "a line without an end");
        return NULL;
    }
    *n = (size_t)(end - p);
    m->at += *n + 1;
    return (const char *)p;
}

/* -- values --------------------------------------------------------------------------------------- */

static int push_text(struct machine *m, enum pickle_kind kind, int length_bytes)
{
    uint64_t n;
    const uint8_t *p;
    struct pickle_value *v;
    if (little(m, &n, length_bytes) || !(p = next(m, n))) return PL_EFORMAT;
    if ((v = new_value(m, kind))) {
        v->text = (const char *)p;
        v->bytes = (size_t)n;
    }
    return push_new(m, v);
}

static int push_integer(struct machine *m, enum pickle_kind kind, int64_t x)
{
    struct pickle_value *v = new_value(m, kind);
    if (v) v->integer = x;
    return push_new(m, v);
}

static int push_long(struct machine *m, int length_bytes)
{
    uint64_t n, x = 0;
    const uint8_t *p;
    struct pickle_value *v;
    if (little(m, &n, length_bytes)) return PL_EFORMAT;
    if (n > PICKLE_NUMBER_MAX)
        return refuse(m, PL_ELIMIT, "a number of %llu bytes", (unsigned long long)n);
    if (!(p = next(m, n))) return PL_EFORMAT;
    if (!(v = new_value(m, PICKLE_INT))) return push_new(m, v);
    if (n <= 8) {
        for (size_t i = 0; i < 8; i++)
            x |= (uint64_t)(i < n ? p[i] : n && p[n - 1] & 0x80 ? 0xFF : 0) << 8 * i;
        v->integer = (int64_t)x;
    } else v->wide = 1;
    return push_new(m, v);
}

/* INT and LONG: decimal, with an L behind; "00" and "01" are the booleans of protocol 0. */
static int push_written(struct machine *m, int is_float)
{
    char copy[PICKLE_NUMBER_MAX + 1], *end;
    size_t n;
    const char *text = line(m, &n);
    struct pickle_value *v;
    if (!text) return PL_EFORMAT;
    if (n > PICKLE_NUMBER_MAX) return refuse(m, PL_ELIMIT, "a number of %zu characters", n);
    memcpy(copy, text, n);
    copy[n] = 0;
    if (!is_float && n == 2 && copy[0] == '0') return push_integer(m, PICKLE_BOOL, copy[1] == '1');
    if (!(v = new_value(m, is_float ? PICKLE_FLOAT : PICKLE_INT))) return push_new(m, v);
    errno = 0;
    if (is_float) v->real = strtod(copy, &end);
    else v->integer = strtoll(copy, &end, 10);
    if (!is_float && errno == ERANGE) {
        v->wide = 1;
        v->integer = 0;
    }
    if (end == copy || (*end && strcmp(end, "L")))
        return refuse(m, PL_EFORMAT, "'%.20s' is no number", copy);
    return push(m, v);
}

static int push_double(struct machine *m)
{
    const uint8_t *p = next(m, 8);
    uint64_t bits = 0;
    struct pickle_value *v;
    if (!p) return PL_EFORMAT;
    for (int i = 0; i < 8; i++) bits = bits << 8 | p[i]; /* the one big-endian number of the format */
    if ((v = new_value(m, PICKLE_FLOAT))) memcpy(&v->real, &bits, sizeof bits);
    return push_new(m, v);
}

static int push_global(struct machine *m, const char *module, size_t n, const char *name, size_t k)
{
    struct pickle_value *v;
    char *text;
    if (n > 400 || k > 400) return refuse(m, PL_ELIMIT, "a global's name of %zu characters", n + k);
    if (!(text = take(m->memory, n + k + 2))) return no_memory(m);
    memcpy(text, module, n);
    text[n] = ' ';
    memcpy(text + n + 1, name, k);
    text[n + 1 + k] = 0;
    if (!pickle_global_known(text, n + k + 1))
        return refuse(m, PL_EFORMAT, "it mentions %.*s.%.*s, which no checkpoint needs: refused",
                      (int)(n < 100 ? n : 100), module, (int)(k < 100 ? k : 100), name);
    if ((v = new_value(m, PICKLE_GLOBAL))) {
        v->text = text;
        v->bytes = n + k + 1;
    }
    return push_new(m, v);
}

static int global_lines(struct machine *m)
{
    size_t n, k;
    const char *module = line(m, &n), *name = module ? line(m, &k) : NULL;
    return name ? push_global(m, module, n, name, k) : PL_EFORMAT;
}

static int global_stack(struct machine *m)
{
    const struct pickle_value *name = pop(m), *module = name ? pop(m) : NULL;
    if (!module) return PL_EFORMAT;
    if (name->kind != PICKLE_TEXT || module->kind != PICKLE_TEXT)
        return refuse(m, PL_EFORMAT, "a global's name is no text");
    return push_global(m, module->text, module->bytes, name->text, name->bytes);
}

/* -- containers ----------------------------------------------------------------------------------- */

static int append(struct machine *m, struct pickle_value *to, struct pickle_value *const *items,
                  size_t n)
{
    if (to->room - to->count < n) {
        size_t room = to->count + n > 2 * to->room ? to->count + n : 2 * to->room;
        struct pickle_value **more = take(m->memory, room * sizeof *more);
        if (!more) return no_memory(m);
        if (to->count) memcpy(more, to->item, to->count * sizeof *more);
        to->item = more;
        to->room = room;
    }
    if (n) memcpy(to->item + to->count, items, n * sizeof *items);
    to->count += n;
    return PL_OK;
}

static int push_container(struct machine *m, enum pickle_kind kind, size_t n)
{
    struct pickle_value *v = new_value(m, kind);
    int rc;
    if (!v) return push_new(m, v);
    if (n && (rc = append(m, v, m->stack + m->depth, n))) return rc;
    return push(m, v);
}

static int push_marked(struct machine *m, enum pickle_kind kind)
{
    long n = pop_to_mark(m);
    if (n < 0) return PL_EFORMAT;
    if (kind == PICKLE_DICT && n % 2) return refuse(m, PL_EFORMAT, "a key without a value");
    /* The mark's place is free now: the values move down by one. */
    memmove(m->stack + m->depth, m->stack + m->depth + 1, (size_t)n * sizeof *m->stack);
    return push_container(m, kind, (size_t)n);
}

/* TUPLE1 to TUPLE3 */
static int push_tuple(struct machine *m, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!pop(m)) return PL_EFORMAT;
    return push_container(m, PICKLE_TUPLE, n);
}

/* The last n values go into what lies below them. */
static int put(struct machine *m, size_t n, struct pickle_value *const *items, int pairs)
{
    struct pickle_value *to = top(m);
    if (!to) return PL_EFORMAT;
    if (pairs && n % 2) return refuse(m, PL_EFORMAT, "a key without a value");
    if (to->kind == PICKLE_OBJECT && pairs) return append(m, to, items, n);
    if (pairs ? to->kind != PICKLE_DICT
              : to->kind != PICKLE_LIST && to->kind != PICKLE_SET && to->kind != PICKLE_OBJECT)
        return refuse(m, PL_EFORMAT, "items for what is no %s", pairs ? "dict" : "list");
    return to->kind == PICKLE_OBJECT ? PL_OK : append(m, to, items, n);
}

static int put_one(struct machine *m, int pairs)
{
    size_t n = pairs ? 2 : 1;
    for (size_t i = 0; i < n; i++)
        if (!pop(m)) return PL_EFORMAT;
    return put(m, n, m->stack + m->depth, pairs);
}

static int put_marked(struct machine *m, int pairs)
{
    long n = pop_to_mark(m);
    return n < 0 ? PL_EFORMAT : put(m, (size_t)n, m->stack + m->depth + 1, pairs);
}

/* -- objects -------------------------------------------------------------------------------------- */

/* REDUCE and NEWOBJ. An OrderedDict is a dict from the start, with what its argument lists. */
static int make_object(struct machine *m)
{
    struct pickle_value *args = pop(m), *global = args ? pop(m) : NULL, *v, *three[3];
    if (!global) return PL_EFORMAT;
    if (global->kind != PICKLE_GLOBAL) return refuse(m, PL_EFORMAT, "a call of what is no global");
    if (args->kind != PICKLE_TUPLE) return refuse(m, PL_EFORMAT, "arguments that are no tuple");
    if (pickle_is(global, "collections OrderedDict")) {
        const struct pickle_value *list = args->count ? args->item[0] : NULL;
        int rc = PL_OK;
        if (!(v = new_value(m, PICKLE_DICT))) return push_new(m, v);
        if (list && list->kind == PICKLE_DICT) rc = append(m, v, list->item, list->count);
        if (list && (list->kind == PICKLE_LIST || list->kind == PICKLE_TUPLE))
            for (size_t i = 0; !rc && i < list->count; i++) {
                const struct pickle_value *pair = list->item[i];
                if ((pair->kind != PICKLE_LIST && pair->kind != PICKLE_TUPLE) || pair->count != 2)
                    return refuse(m, PL_EFORMAT, "an OrderedDict of what are no pairs");
                rc = append(m, v, pair->item, 2);
            }
        return rc ? rc : push(m, v);
    }
    if (!(v = new_value(m, PICKLE_OBJECT))) return push_new(m, v);
    three[0] = global;
    three[1] = args;
    three[2] = NULL;
    int rc = append(m, v, three, 3);
    return rc ? rc : push(m, v);
}

static int build(struct machine *m)
{
    struct pickle_value *state = pop(m), *v = state ? top(m) : NULL;
    if (!v) return PL_EFORMAT;
    if (v->kind == PICKLE_OBJECT) v->item[2] = state;
    else if (v->kind != PICKLE_DICT) /* a dict's state is its _metadata: of no use here */
        return refuse(m, PL_EFORMAT, "a state for what has none");
    return PL_OK;
}

static int persistent(struct machine *m)
{
    struct pickle *p = m->memory;
    int rc = pop(m) ? push_container(m, PICKLE_PERSISTENT, 1) : PL_EFORMAT;
    if (rc) return rc;
    if (p->persistents == p->persistent_room) {
        size_t room = p->persistent_room ? 2 * p->persistent_room : 64;
        struct pickle_value **more = realloc(p->persistent, room * sizeof *more);
        if (!more) return no_memory(m);
        p->persistent = more;
        p->persistent_room = room;
    }
    p->persistent[p->persistents++] = top(m);
    return PL_OK;
}

/* -- memo ----------------------------------------------------------------------------------------- */

static int remember(struct machine *m, uint64_t index)
{
    struct pickle_value *v = top(m);
    if (!v) return PL_EFORMAT;
    if (index >= PICKLE_MEMO_MAX)
        return refuse(m, PL_ELIMIT, "memo %llu, at most %d", (unsigned long long)index,
                      PICKLE_MEMO_MAX);
    if (index >= m->memo_room) {
        size_t room = m->memo_room ? 2 * m->memo_room : 256;
        struct pickle_value **more;
        while (room <= index) room *= 2;
        if (!(more = realloc(m->memo, room * sizeof *more))) return no_memory(m);
        memset(more + m->memo_room, 0, (room - m->memo_room) * sizeof *more);
        m->memo = more;
        m->memo_room = room;
    }
    m->memo_next += !m->memo[index];
    m->memo[index] = v;
    return PL_OK;
}

static int recall(struct machine *m, uint64_t index)
{
    if (index >= m->memo_room || !m->memo[index])
        return refuse(m, PL_EFORMAT, "memo %llu was never stored", (unsigned long long)index);
    return push(m, m->memo[index]);
}

/* -- the opcodes ---------------------------------------------------------------------------------- */

static int step(struct machine *m, uint8_t opcode)
{
    uint64_t x;
    switch (opcode) {
    case 0x80: /* PROTO */
        if (little(m, &x, 1)) return PL_EFORMAT;
        return x <= PROTOCOL_MAX ? PL_OK : refuse(m, PL_EFORMAT, "protocol %d, at most %d", (int)x,
                                                  PROTOCOL_MAX);
    case 0x95: return little(m, &x, 8); /* FRAME: its length does not matter to who has all bytes */
    case '(': return push(m, NULL);     /* MARK */
    case '0': /* POP */
        if (!m->depth) return refuse(m, PL_EFORMAT, "the stack is empty");
        m->depth--;
        return PL_OK;
    case '1': return pop_to_mark(m) < 0 ? PL_EFORMAT : PL_OK;     /* POP_MARK */
    case '2': return top(m) ? push(m, top(m)) : PL_EFORMAT;       /* DUP */
    case 'N': return push_new(m, new_value(m, PICKLE_NONE));      /* NONE */
    case 0x88: return push_integer(m, PICKLE_BOOL, 1);            /* NEWTRUE */
    case 0x89: return push_integer(m, PICKLE_BOOL, 0);            /* NEWFALSE */
    case 'J': return little(m, &x, 4) ? PL_EFORMAT : push_integer(m, PICKLE_INT, (int32_t)x); /* BININT */
    case 'K': return little(m, &x, 1) ? PL_EFORMAT : push_integer(m, PICKLE_INT, (int64_t)x); /* BININT1 */
    case 'M': return little(m, &x, 2) ? PL_EFORMAT : push_integer(m, PICKLE_INT, (int64_t)x); /* BININT2 */
    case 0x8A: return push_long(m, 1);       /* LONG1 */
    case 0x8B: return push_long(m, 4);       /* LONG4 */
    case 'I': case 'L': return push_written(m, 0); /* INT, LONG */
    case 'F': return push_written(m, 1);     /* FLOAT */
    case 'G': return push_double(m);         /* BINFLOAT */
    case 'X': return push_text(m, PICKLE_TEXT, 4);  /* BINUNICODE */
    case 0x8C: return push_text(m, PICKLE_TEXT, 1); /* SHORT_BINUNICODE */
    case 0x8D: return push_text(m, PICKLE_TEXT, 8); /* BINUNICODE8 */
    case 'U': return push_text(m, PICKLE_TEXT, 1);  /* SHORT_BINSTRING: Python 2's text */
    case 'T': return push_text(m, PICKLE_TEXT, 4);  /* BINSTRING */
    case 'C': return push_text(m, PICKLE_BYTES, 1); /* SHORT_BINBYTES */
    case 'B': return push_text(m, PICKLE_BYTES, 4); /* BINBYTES */
    case 0x8E: return push_text(m, PICKLE_BYTES, 8); /* BINBYTES8 */
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
    case 'q': return little(m, &x, 1) ? PL_EFORMAT : remember(m, x); /* BINPUT */
    case 'r': return little(m, &x, 4) ? PL_EFORMAT : remember(m, x); /* LONG_BINPUT */
    case 0x94: return remember(m, m->memo_next);                     /* MEMOIZE */
    case 'h': return little(m, &x, 1) ? PL_EFORMAT : recall(m, x);   /* BINGET */
    case 'j': return little(m, &x, 4) ? PL_EFORMAT : recall(m, x);   /* LONG_BINGET */
    case 'c': return global_lines(m);  /* GLOBAL */
    case 0x93: return global_stack(m); /* STACK_GLOBAL */
    case 'R': case 0x81: return make_object(m); /* REDUCE, NEWOBJ */
    case 'b': return build(m);         /* BUILD */
    case 'Q': return persistent(m);    /* BINPERSID */
    default: break;
    }
    static const struct { uint8_t code; const char *name; } refused[] = {
        { 'i', "INST" }, { 'o', "OBJ" }, { 'P', "PERSID" }, { 'S', "STRING" }, { 'V', "UNICODE" },
        { 'p', "PUT" }, { 'g', "GET" }, { 0x82, "EXT1" }, { 0x83, "EXT2" }, { 0x84, "EXT4" },
        { 0x92, "NEWOBJ_EX" }, { 0x96, "BYTEARRAY8" }, { 0x97, "NEXT_BUFFER" },
        { 0x98, "READONLY_BUFFER" },
    };
    for (size_t i = 0; i < PL_COUNT(refused); i++)
        if (refused[i].code == opcode)
            return refuse(m, PL_EFORMAT, "opcode %s, which no checkpoint needs: refused",
                          refused[i].name);
    return refuse(m, PL_EFORMAT, "0x%02X is no opcode", opcode);
}

int pickle_read(struct pickle *p, const struct pickle_value **value, size_t *used, const void *data,
                size_t bytes, const char *where, struct pl_err *err)
{
    struct machine m = { .memory = p, .data = data, .bytes = bytes, .where = where, .err = err };
    int rc = PL_OK;
    *value = NULL;
    while (!rc) {
        m.opcode_at = m.at;
        if (m.at == bytes) {
            rc = refuse(&m, PL_EFORMAT, "it ends without a STOP");
            break;
        }
        uint8_t opcode = m.data[m.at++];
        if (opcode != '.') rc = step(&m, opcode);
        else {
            *value = pop(&m);
            rc = *value ? PL_OK : PL_EFORMAT;
            break;
        }
    }
    if (used) *used = m.at;
    free(m.stack);
    free(m.memo);
    return rc;
}

size_t pickle_persistents(const struct pickle *p, struct pickle_value *const **list)
{
    *list = p->persistent;
    return p->persistents;
}

int pickle_is(const struct pickle_value *v, const char *text)
{
    return v && (v->kind == PICKLE_TEXT || v->kind == PICKLE_GLOBAL) && v->bytes == strlen(text) &&
           !memcmp(v->text, text, v->bytes);
}

const struct pickle_value *pickle_get(const struct pickle_value *dict, const char *key)
{
    if (!dict || dict->kind != PICKLE_DICT) return NULL;
    for (size_t i = dict->count; i >= 2; i -= 2) /* the last of equal keys counts, as in Python */
        if (pickle_is(dict->item[i - 2], key) && dict->item[i - 2]->kind == PICKLE_TEXT)
            return dict->item[i - 1];
    return NULL;
}
