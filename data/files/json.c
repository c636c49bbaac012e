/* json.c - jansson (2.14) loses a byte of a token, or ends the process by an assertion, if the
 * buffer of the token it reads cannot grow: under memory pressure 37 is read as 7. So a load gets a
 * reserve:
 *
 *   malloc fails         allocate from the reserve, and remember it
 *   next block of input  refuse it: jansson stops
 *   end                  discard what was read; the caller hears of no memory
 *
 * The reserve is mapped, but no page of it is touched as long as memory lasts. */
#include "json.h"

#include "ref/base.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Memory that jansson may need for the input that it already holds: it takes 1024 bytes at a time,
 * each of which opens at most one value, whose node, first table and name take less than 256. */
#define HELD 1024
#define RESERVE (HELD * 256)

static _Thread_local struct {
    const char *text;
    size_t bytes, at;         /* the input, and how much of it jansson took */
    char *reserve, *end, *to; /* to: the first free byte */
    int failed;
} load;

static void *allocate(size_t n)
{
    void *p = malloc(n);
    size_t whole = (n + 15) / 16 * 16;
    if (p || !n) return p;
    load.failed = 1;
    if (!load.reserve) return NULL;
    if (n > PTRDIFF_MAX || whole > (size_t)(load.end - load.to)) return NULL;
    p = load.to;
    load.to += whole;
    return p;
}

static void release(void *p)
{
    uintptr_t at = (uintptr_t)p;
    if (at < (uintptr_t)load.reserve || at >= (uintptr_t)load.end) free(p);
}

static size_t next_input(void *buffer, size_t capacity, void *context)
{
    size_t n = load.bytes - load.at < capacity ? load.bytes - load.at : capacity;
    if (load.failed) return (size_t)-1;
    memcpy(buffer, load.text + load.at, n);
    load.at += n;
    return n;
}

/* The buffer of a token doubles as it grows: its pieces together are at most four times the longest
 * token, which is a string with its escapes, or the text between two strings. */
static size_t token_bytes(const char *text, size_t bytes)
{
    size_t longest = 0, start = 0;
    for (size_t i = 0; i < bytes; i++) {
        if (text[i] == '\\') i++;
        else if (text[i] == '"') {
            if (i - start > longest) longest = i - start;
            start = i;
        }
    }
    return bytes - start > longest ? bytes - start : longest;
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static void use_reserve(void) { json_set_alloc_funcs(allocate, release); }

json_t *pl_json_load(const char *text, size_t bytes, size_t flags, json_error_t *why)
{
    size_t size = RESERVE + 4 * (token_bytes(text, bytes) + HELD);
    json_error_t unused;
    json_t *root = NULL;
    if (!why) why = &unused;
    memset(&load, 0, sizeof load);
    load.text = text;
    load.bytes = bytes;
    pthread_once(&once, use_reserve);
    if ((load.reserve = load.to = malloc(size))) {
        load.end = load.to + size;
        root = json_load_callback(next_input, NULL, flags, why);
    } else load.failed = 1;
    if (load.failed) {
        json_decref(root);
        root = NULL;
        snprintf(why->text, sizeof why->text, "no memory");
    }
    free(load.reserve);
    load.reserve = load.end = load.to = NULL;
    return root;
}

void pl_json_begin(void)
{
    pthread_once(&once, use_reserve);
    load.failed = 0;
}

int pl_json_failed(void) { return load.failed; }

char *pl_json_text(const json_t *root, size_t flags)
{
    char *text = root && !load.failed ? json_dumps(root, flags) : NULL;
    if (load.failed) { /* dumping, too, leaves out a name for which its buffer cannot grow */
        free(text);
        text = NULL;
    }
    load.failed = 0; /* reported once */
    return text;
}

int pl_json_status(void) { return load.failed ? PL_ENOMEM : PL_EFORMAT; }

int pl_json_int(int *out, const json_t *object, const char *key, int least, const char *where,
                struct pl_err *err)
{
    const json_t *value = json_object_get(object, key);
    json_int_t n = json_integer_value(value);
    if (!json_is_integer(value) || n < least || n > 1 << 24)
        return pl_fail(err, PL_EFORMAT, "%s: %s is missing or no whole number from %d to %d", where,
                       key, least, 1 << 24);
    *out = (int)n;
    return PL_OK;
}
