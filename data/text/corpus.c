/* corpus.c - text files to windows of token ids. Documents are encoded, separated by an end token,
 * concatenated and cut into windows; a small buffer shuffles these. The position of a training run
 * is the number of windows given: reading them again is much faster than training on them, and
 * needs no other state. */
#include "corpus.h"
#include "data/files/json.h"
#include "ref/rng.h"
#include "ref/small.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define CHUNK (1u << 16)
#define PAGE_BYTES 2048u     /* of plain text: a document ends at the next empty line after this, */
#define PAGE_MOST (1u << 16) /* or here */

struct reader {
    gzFile z;
    int is_json;
    uint64_t line, document; /* of this file, from 0 */
    char *chunk;
    size_t at, filled;
    char *text; /* the current line or page */
    size_t bytes, capacity;
};

struct corpus {
    struct corpus_options o;
    char **path;
    struct reader reader;
    struct pl_rng rng;
    size_t *order, next_file; /* of this pass */
    int32_t *ids;             /* read, not yet in a window */
    size_t count, consumed, capacity;
    int32_t *buffer; /* (o.buffer, window) */
    size_t buffered;
    struct pl_corpus_counts counts;
    uint64_t pass_windows; /* made in this pass */
    int begun, failed;
    struct pl_err why;
};

static int ends_with(const char *name, size_t n, const char *end)
{
    size_t m = strlen(end);
    return n >= m && !memcmp(name + n - m, end, m);
}

static int is_json(const char *path)
{
    size_t n = strlen(path);
    if (ends_with(path, n, ".gz")) n -= 3;
    return ends_with(path, n, ".json") || ends_with(path, n, ".jsonl") ||
           ends_with(path, n, ".ndjson");
}

/* --- a file ----------------------------------------------------------------------------------- */

static int reader_open(struct reader *r, const char *path, struct pl_err *err)
{
    if (!r->chunk && !(r->chunk = malloc(CHUNK)))
        return pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    if (!(r->z = gzopen(path, "rb"))) return pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno));
    r->is_json = is_json(path);
    r->line = r->document = 0;
    r->at = r->filled = 0;
    return PL_OK;
}

static void reader_end(struct reader *r)
{
    if (r->z) gzclose(r->z);
    r->z = NULL;
}

static int put(struct reader *r, const char *data, size_t n)
{
    if (pl_grow_by(&r->text, r->bytes, n, &r->capacity, 256)) return PL_ENOMEM;
    memcpy(r->text + r->bytes, data, n);
    r->bytes += n;
    return PL_OK;
}

/* Reads more bytes into the buffer; PL_ENOTFOUND at the end of the file. */
static int fill(struct reader *r, const char *path, struct pl_err *err)
{
    int code, got = gzread(r->z, r->chunk, CHUNK);
    const char *reason = gzerror(r->z, &code);
    if (got < 0 || code < 0)
        return pl_fail(err, code == Z_ERRNO ? PL_EIO : PL_EFORMAT, "%s: cannot read: %s", path,
                       code == Z_ERRNO ? strerror(errno) : reason);
    r->at = 0;
    r->filled = (size_t)got;
    return got ? PL_OK : PL_ENOTFOUND;
}

/* Appends one line, including its end, to r->text. PL_ENOTFOUND: there is none. */
static int add_line(struct reader *r, size_t most, const char *path, struct pl_err *err)
{
    size_t begin = r->bytes;
    for (;;) {
        const char *from, *end;
        size_t n;
        int rc;
        if (r->at == r->filled && (rc = fill(r, path, err))) {
            if (rc != PL_ENOTFOUND || r->bytes == begin) return rc;
            break;
        }
        from = r->chunk + r->at;
        end = memchr(from, '\n', r->filled - r->at);
        n = end ? (size_t)(end - from) + 1 : r->filled - r->at;
        if (r->bytes + n > most) {
            if (r->is_json)
                return pl_fail(err, PL_ELIMIT, "%s: line %llu has more than %zu bytes", path,
                               (unsigned long long)r->line + 1, most);
            n = most - r->bytes; /* a page may end anywhere */
            end = NULL;
        }
        if (put(r, from, n)) return pl_fail(err, PL_ENOMEM, "%s: no memory", path);
        r->at += n;
        if (end || r->bytes == most) break;
    }
    r->line++;
    return PL_OK;
}

static int is_empty(const char *line, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r' && line[i] != '\n') return 0;
    return 1;
}

/* The "text" of a line of JSON; free it with free(). */
static char *line_text(size_t *bytes, const char *line, size_t n, const char *where,
                       struct pl_err *err)
{
    json_error_t why;
    json_t *root = pl_json_load(line, n, JSON_ALLOW_NUL, &why);
    const json_t *text = json_object_get(root, "text");
    char *out = NULL;
    *bytes = 0;
    if (!root) pl_fail(err, pl_json_status(), "%s: not JSON: %.120s", where, why.text);
    else if (!json_is_string(text))
        pl_fail(err, PL_EFORMAT, "%s: not an object with a string \"text\"", where);
    else {
        *bytes = json_string_length(text);
        if (!(out = malloc(*bytes + 1))) pl_fail(err, PL_ENOMEM, "%s: no memory", where);
        else memcpy(out, json_string_value(text), *bytes + 1);
    }
    json_decref(root);
    return out;
}

/* Reads the next document's text into r->text. */
static int next_document(struct reader *r, const char *path, struct pl_err *err)
{
    int rc;
    r->bytes = 0;
    if (!r->is_json) {
        size_t line = 0;
        do {
            line = r->bytes;
            rc = add_line(r, PAGE_MOST, path, err);
        } while (!rc && r->bytes < PAGE_MOST &&
                 (r->bytes < PAGE_BYTES || !is_empty(r->text + line, r->bytes - line)));
        if (rc == PL_ENOTFOUND && r->bytes) rc = PL_OK;
        if (!rc && memchr(r->text, 0, r->bytes))
            rc = pl_fail(err, PL_EFORMAT, "%s: a zero byte at or before line %llu: not a text file",
                         path, (unsigned long long)r->line);
        return rc;
    }
    for (rc = add_line(r, CORPUS_LINE_MAX, path, err); !rc;
         rc = add_line(r, CORPUS_LINE_MAX, path, err)) {
        char where[400], *text;
        size_t n;
        if (is_empty(r->text, r->bytes)) {
            r->bytes = 0;
            continue;
        }
        snprintf(where, sizeof where, "%.340s: line %llu", path, (unsigned long long)r->line);
        if (!(text = line_text(&n, r->text, r->bytes, where, err))) return PL_EFORMAT;
        free(r->text);
        r->text = text;
        r->bytes = n;
        r->capacity = n + 1;
        return PL_OK;
    }
    return rc;
}

/* --- windows ---------------------------------------------------------------------------------- */

int pl_corpus_open(struct corpus **out, const struct corpus_options *o, struct pl_err *err)
{
    struct corpus *c = calloc(1, sizeof *c);
    size_t floats;
    int rc = PL_OK;
    *out = NULL;
    if (!c) return pl_fail(err, PL_ENOMEM, "no memory");
    c->o = *o;
    if (!c->o.buffer) c->o.buffer = CORPUS_BUFFER;
    if (o->window < 1 || o->window > CORPUS_WINDOW_MAX || c->o.buffer > CORPUS_BUFFER_MAX ||
        !o->paths || o->every < 0 || (o->held_out && !o->every))
        rc = pl_fail(err, PL_EUSE,
                     "corpus: %zu files, windows of %d ids, %zu in the buffer, every %d-th held "
                     "out: out of range",
                     o->paths, o->window, c->o.buffer, o->every);
    c->path = calloc(o->paths + 1, sizeof *c->path);
    c->order = calloc(o->paths + 1, sizeof *c->order);
    if (!rc && (pl_size_mul(&floats, c->o.buffer, (size_t)o->window) ||
                !(c->buffer = pl_alloc(floats, sizeof *c->buffer)) || !c->path || !c->order))
        rc = pl_fail(err, PL_ENOMEM, "corpus: no memory for %zu windows of %d ids", c->o.buffer,
                     o->window);
    for (size_t i = 0; i < o->paths && !rc; i++) {
        if (access(o->path[i], R_OK))
            rc = pl_fail(err, PL_EIO, "%s: %s", o->path[i], strerror(errno));
        else if (!(c->path[i] = strdup(o->path[i]))) rc = pl_fail(err, PL_ENOMEM, "no memory");
        c->order[i] = i;
    }
    c->next_file = o->paths; /* a pass starts with the first window */
    pl_rng_init(&c->rng, o->seed, 0);
    if (rc) pl_corpus_close(c);
    else *out = c;
    return rc;
}

void pl_corpus_close(struct corpus *c)
{
    if (!c) return;
    reader_end(&c->reader);
    free(c->reader.chunk);
    free(c->reader.text);
    for (size_t i = 0; c->path && i < c->o.paths; i++) free(c->path[i]);
    free(c->path);
    free(c->order);
    free(c->ids);
    pl_free(c->buffer);
    free(c);
}

static int next_file(struct corpus *c, struct pl_err *err)
{
    size_t n = c->o.paths;
    if (c->next_file == n) {
        if (c->begun && !c->pass_windows)
            return pl_fail(err, PL_ENOTFOUND, "%s%s: all %s text is less than one window of %d ids",
                           c->path[0], n > 1 ? ", ..." : "", c->o.held_out ? "held-out" : "its",
                           c->o.window);
        c->counts.passes += (uint64_t)c->begun;
        c->begun = 1;
        for (size_t i = n; c->o.buffer > 1 && i > 1; i--) { /* [Fisher & Yates] */
            size_t k = (size_t)pl_rng_below(&c->rng, i), swap = c->order[i - 1];
            c->order[i - 1] = c->order[k];
            c->order[k] = swap;
        }
        c->next_file = 0;
        c->pass_windows = 0;
    }
    return reader_open(&c->reader, c->path[c->order[c->next_file++]], err);
}

static int add_ids(struct corpus *c, const char *text, size_t n, struct pl_err *err)
{
    size_t got;
    int rc;
    if (c->consumed)
        memmove(c->ids, c->ids + c->consumed, (c->count - c->consumed) * sizeof *c->ids);
    c->count -= c->consumed;
    c->consumed = 0;
    if (pl_grow_by(&c->ids, c->count, n + 1, &c->capacity, (size_t)c->o.window))
        return pl_fail(err, PL_ENOMEM, "no memory for %zu ids", c->count + n + 1);
    rc = c->o.encode(c->ids + c->count, n, &got, c->o.tokenizer, text, n);
    if (rc)
        return pl_fail(err, rc, "%s: document %llu: %s", c->path[c->order[c->next_file - 1]],
                       (unsigned long long)c->reader.document, pl_status_name(rc));
    c->count += got < n ? got : n;
    c->ids[c->count++] = c->o.end;
    c->counts.ids += got + 1;
    c->counts.documents++;
    return PL_OK;
}

/* Reads documents until their ids suffice for a window. */
static int read_ahead(struct corpus *c, struct pl_err *err)
{
    int rc = PL_OK;
    while (!rc && c->count - c->consumed < (size_t)c->o.window) {
        struct reader *r = &c->reader;
        size_t file;
        if (!r->z && (rc = next_file(c, err))) break;
        file = c->order[c->next_file - 1];
        rc = next_document(r, c->path[file], err);
        if (rc == PL_ENOTFOUND) {
            reader_end(r);
            rc = PL_OK;
            continue;
        }
        if (!rc && c->o.every) {
            /* by file and position in it: the same documents for any order of the files */
            int held = (file + r->document) % (uint64_t)c->o.every == (uint64_t)c->o.every - 1;
            r->document++;
            if (held != c->o.held_out) continue;
        } else r->document++;
        if (!rc && r->bytes) rc = add_ids(c, r->text, r->bytes, err);
    }
    return rc;
}

static int cut_window(struct corpus *c, int32_t *to, struct pl_err *err)
{
    int rc = read_ahead(c, err);
    if (rc) return rc;
    memcpy(to, c->ids + c->consumed, (size_t)c->o.window * sizeof *to);
    c->consumed += (size_t)c->o.window;
    c->pass_windows++;
    return PL_OK;
}

int pl_corpus_next(struct corpus *c, int32_t *window, struct pl_err *err)
{
    size_t n = (size_t)c->o.window, k;
    int rc = c->failed;
    while (!rc && c->buffered < c->o.buffer) {
        rc = cut_window(c, c->buffer + c->buffered * n, &c->why);
        if (!rc) c->buffered++;
    }
    if (rc) {
        c->failed = rc;
        return pl_fail(err, rc, "%s", c->why.text);
    }
    k = c->o.buffer > 1 ? (size_t)pl_rng_below(&c->rng, c->o.buffer) : 0;
    memcpy(window, c->buffer + k * n, n * sizeof *window);
    c->buffered--; /* the last one replaces the one that was given */
    memmove(c->buffer + k * n, c->buffer + c->buffered * n, n * sizeof *window);
    c->counts.windows++;
    return PL_OK;
}

int pl_corpus_skip(struct corpus *c, uint64_t windows, struct pl_err *err)
{
    int32_t *window = pl_alloc((size_t)c->o.window, sizeof *window);
    int rc = window ? PL_OK : pl_fail(err, PL_ENOMEM, "no memory");
    for (; windows && !rc; windows--) rc = pl_corpus_next(c, window, err);
    pl_free(window);
    return rc;
}

struct pl_corpus_counts pl_corpus_counts(const struct corpus *c) { return c->counts; }
