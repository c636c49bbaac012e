/* msgpack.c - MessagePack: the first byte of a value says its type, and for small values also
 * holds it.
 *
 *   00..7f  the integers 0 to 127            c0       nil        c2, c3  false, true
 *   80..8f  a map of 0 to 15 pairs           c4..c6   bytes      length in 1, 2, 4 bytes
 *   90..9f  a list of 0 to 15 elements       c7..c9   extension  length in 1, 2, 4 bytes, type code
 *   a0..bf  text of 0 to 31 bytes            ca, cb   float32, float64
 *   e0..ff  the integers -32 to -1           cc..cf   unsigned integer of 1, 2, 4, 8 bytes
 *                                            d0..d3   signed integer of 1, 2, 4, 8 bytes
 *   dc, dd  list, count in 2, 4 bytes        d4..d8   extension of 1, 2, 4, 8, 16 bytes
 *   de, df  map, count in 2, 4 bytes         d9..db   text, length in 1, 2, 4 bytes
 *
 * All numbers are big-endian. Example: the key b"ttt" is c4 03 74 74 74, the text "ttt" is a3 74
 * 74 74; they are different DHT keys, since the key's bytes are hashed. hivemind writes a tuple
 * as an extension of code 0x40 whose content is a list.
 *
 * Reading goes over the bytes twice with the same code: the first pass checks and counts, the
 * second fills memory of exactly that size. So a header that claims too much never causes an
 * allocation. */
#include "msgpack.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* First bytes of the forms that are not one byte alone. */
enum {
    NIL = 0xc0,
    FALSE_ = 0xc2,
    TRUE_ = 0xc3,
    BIN8 = 0xc4,
    EXT8 = 0xc7,
    FLOAT32 = 0xca,
    FLOAT64 = 0xcb,
    UINT8 = 0xcc,
    INT8 = 0xd0,
    FIXEXT1 = 0xd4,
    STR8 = 0xd9,
    LIST16 = 0xdc,
    MAP16 = 0xde
};

/* One reader for both passes: the first has no slots and only counts those that the second will
 * use. */
struct reader {
    struct mp_value *slots; /* NULL in the first pass */
    size_t used;
};

/* RFC 3629: lead byte, then 10xxxxxx continuation bytes. Python refuses text with overlong forms
 * (c < least), surrogates (d800 to dfff) or code points beyond 10ffff, and so a peer must refuse
 * it, too. */
static int is_utf8(const uint8_t *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        uint32_t c = s[i++], least;
        int more = c < 0x80 ? 0 : (c >> 5) == 6 ? 1 : (c >> 4) == 14 ? 2 : (c >> 3) == 30 ? 3 : -1;
        if (more < 0 || (size_t)more > n - i) return 0;
        if (!more) continue;
        /* The lead byte 110xxxxx has 5 bits of the code point, 1110xxxx has 4, 11110xxx has 3. */
        c &= 0x3fu >> more;
        for (int k = 0; k < more; k++, i++) {
            if ((s[i] & 0xc0) != 0x80) return 0;
            c = c << 6 | (s[i] & 0x3f);
        }
        least = more == 1 ? 0x80 : more == 2 ? 0x800 : 0x10000;
        if (c < least || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return 0;
    }
    return 1;
}

/* 1 << power bytes, big-endian. */
static int get_be(struct cursor *c, uint64_t *x, int power)
{
    const uint8_t *p;
    int rc = get_bytes(c, &p, (size_t)1 << power);
    *x = 0;
    for (int i = 0; !rc && i < 1 << power; i++) *x = *x << 8 | p[i];
    return rc;
}

static int read_value(struct reader *r, struct mp_value *v, struct cursor *c, int depth);

/* The header of a list or map came with its count; here come the elements, in a map key, value,
 * key, value. */
static int read_items(struct reader *r, struct mp_value *v, struct cursor *c, int depth)
{
    size_t n = v->kind == MP_MAP ? 2 * v->n : v->n;
    struct mp_value scratch;
    int rc = PL_OK;
    /* A header of 5 bytes may claim 2^32 elements. Each takes at least one byte, so a larger count
     * than bytes are left cannot be true, and is refused before anything is allocated for it. */
    if (v->n > c->left || n > c->left) return PL_EAGAIN;
    /* Depth is bounded because reading recurses: each level is one byte of input and a stack
     * frame. */
    if (depth == MP_DEPTH_MAX || n > MP_VALUES_MAX - r->used) return PL_ELIMIT;
    v->item = r->slots ? r->slots + r->used : NULL;
    r->used += n;
    for (size_t i = 0; i < n && !rc; i++) {
        /* In the first pass there is no memory yet: each element is read into scratch, checked,
         * and forgotten. */
        struct mp_value *item = v->item ? v->item + i : &scratch;
        rc = read_value(r, item, c, depth + 1);
        /* Python's msgpack reader allows only str and bytes as keys (strict_map_key). */
        if (!rc && v->kind == MP_MAP && i % 2 == 0 && item->kind != MP_STR && item->kind != MP_BIN)
            rc = PL_EFORMAT;
    }
    return rc;
}

/* Text and bytes are views of the input; only text must be UTF-8. */
static int read_bytes(struct mp_value *v, enum mp_kind kind, struct cursor *c, uint64_t n)
{
    v->kind = kind;
    if (n > c->left) return PL_EAGAIN;
    v->n = (size_t)n;
    get_bytes(c, &v->bytes, v->n);
    return kind == MP_STR && !is_utf8(v->bytes, v->n) ? PL_EFORMAT : PL_OK;
}

/* Extension: type code, then n bytes. Code 0x40 is hivemind's tuple: the bytes hold one list,
 * read here as if it stood in place of the extension. Other codes (0x50, a dictionary of
 * records) stay views. */
static int read_ext(struct reader *r, struct mp_value *v, struct cursor *c, uint64_t n, int depth)
{
    uint8_t code;
    struct cursor inside;
    int rc;
    if (get_u8(c, &code)) return PL_EAGAIN;
    if ((rc = read_bytes(v, MP_EXT, c, n))) return rc;
    v->code = (int8_t)code;
    if (code != MP_TUPLE_CODE) return PL_OK;
    if (depth == MP_DEPTH_MAX) return PL_ELIMIT;
    /* The list must end where the extension ends. */
    inside.at = v->bytes;
    inside.left = v->n;
    rc = read_value(r, v, &inside, depth + 1);
    if (!rc && (v->kind != MP_LIST || inside.left)) rc = PL_EFORMAT;
    v->kind = MP_TUPLE;
    return rc;
}

/* Integers and floats with their bytes behind the first one. An integer is kept as 64 bits and a
 * sign: msgpack has both uint64 and int64. */
static int read_number(struct mp_value *v, struct cursor *c, uint8_t first)
{
    /* The low bits of the first byte give the width: 1 << power bytes. */
    int power = first & 3, rc;
    if (first == FLOAT32 || first == FLOAT64) {
        uint64_t raw;
        v->kind = MP_FLOAT;
        if ((rc = get_be(c, &raw, first == FLOAT32 ? 2 : 3))) return rc;
        if (first == FLOAT32) {
            /* A float32 is widened; mp_write will write a float64. */
            uint32_t word = (uint32_t)raw;
            float narrow;
            memcpy(&narrow, &word, sizeof narrow);
            v->real = narrow;
        } else {
            memcpy(&v->real, &raw, sizeof v->real);
        }
        return PL_OK;
    }
    v->kind = MP_INT;
    if ((rc = get_be(c, &v->number, power))) return rc;
    if (first < INT8) return PL_OK;
    /* Sign extension: when the top bit of 1, 2 or 4 bytes is set, the bits above are set, too. */
    if (power < 3 && v->number >> ((8u << power) - 1)) v->number |= UINT64_MAX << (8u << power);
    v->negative = v->number >> 63 != 0;
    return PL_OK;
}

/* One value, by its first byte (the table above). The ranges are tested from the most frequent
 * to the rest. */
static int read_value(struct reader *r, struct mp_value *v, struct cursor *c, int depth)
{
    uint8_t first;
    uint64_t n;
    int rc, power;
    if ((rc = get_u8(c, &first))) return rc;
    memset(v, 0, sizeof *v);
    if (first < 0x80 || first >= 0xe0) {
        v->kind = MP_INT;
        v->negative = first >= 0xe0;
        v->number = v->negative ? (uint64_t)(int64_t)(int8_t)first : first;
        return PL_OK;
    }
    if (first < 0xa0) {
        v->kind = first < 0x90 ? MP_MAP : MP_LIST;
        v->n = first & 15;
        return read_items(r, v, c, depth);
    }
    if (first < 0xc0) return read_bytes(v, MP_STR, c, first & 31);
    if (first == NIL) return PL_OK;
    if (first == FALSE_ || first == TRUE_) {
        v->kind = MP_BOOL;
        v->truth = first == TRUE_;
        return PL_OK;
    }
    if (first >= FLOAT32 && first < FIXEXT1) return read_number(v, c, first);
    if (first >= FIXEXT1 && first < STR8) return read_ext(r, v, c, 1u << (first - FIXEXT1), depth);
    if (first < BIN8) return PL_EFORMAT; /* 0xc1 is never used */
    /* The others have a length or count behind the first byte. dc to df: even numbers have one of 2
     * bytes, odd ones of 4. */
    power = first < EXT8      ? first - BIN8
            : first < FLOAT32 ? first - EXT8
            : first < LIST16  ? first - STR8
                              : 1 + (first & 1);
    if ((rc = get_be(c, &n, power))) return rc;
    if (first < EXT8) return read_bytes(v, MP_BIN, c, n);
    if (first < FLOAT32) return read_ext(r, v, c, n, depth);
    if (first < LIST16) return read_bytes(v, MP_STR, c, n);
    v->kind = first < MAP16 ? MP_LIST : MP_MAP;
    v->n = (size_t)n;
    return read_items(r, v, c, depth);
}

/* Exactly one value: Python's unpackb refuses bytes behind it ("extra data"), so both sides agree
 * on which records are valid. */
static int read_whole(struct reader *r, struct mp_value *v, const uint8_t *data, size_t n,
                      struct pl_err *err)
{
    struct cursor c = { data, n };
    int rc = read_value(r, v, &c, 0);
    size_t at = n - c.left;
    if (rc == PL_EAGAIN)
        return pl_fail(err, PL_EFORMAT, "msgpack: %zu bytes end inside a value", n);
    if (rc == PL_ELIMIT)
        return pl_fail(err, rc, "msgpack: more than %d lists in each other, or %u values",
                       MP_DEPTH_MAX, MP_VALUES_MAX);
    if (rc) return pl_fail(err, rc, "msgpack: no valid value before byte %zu of %zu", at, n);
    if (c.left) return pl_fail(err, PL_EFORMAT, "msgpack: %zu bytes after the value", c.left);
    return PL_OK;
}

/* One allocation for the whole tree: the root, then the elements of each list and map together. */
int mp_read(struct mp_value **root, const uint8_t *data, size_t n, struct pl_err *err)
{
    struct reader r = { 0 };
    struct mp_value scratch;
    int rc = read_whole(&r, &scratch, data, n, err);
    *root = NULL;
    if (rc) return rc;
    if (!(*root = malloc((1 + r.used) * sizeof **root)))
        return pl_fail(err, PL_ENOMEM, "msgpack: no memory for %zu values", 1 + r.used);
    r.slots = *root + 1;
    r.used = 0;
    rc = read_whole(&r, *root, data, n, NULL);
    /* The second pass reads the same bytes by the same code, so it ends as the first one did. */
    assert(!rc);
    return PL_OK;
}

void mp_free(struct mp_value *root) { free(root); }

/* Text, not bytes: b"epoch" is another key than "epoch". */
int mp_is_text(const struct mp_value *v, const char *text)
{
    return v->kind == MP_STR && v->n == strlen(text) && !memcmp(v->bytes, text, v->n);
}

const struct mp_value *mp_get(const struct mp_value *v, const char *key)
{
    if (v->kind != MP_MAP) return NULL;
    /* From the end: in Python a later pair replaces an earlier one with the same key. */
    for (size_t i = v->n; i-- > 0;)
        if (mp_is_text(&v->item[2 * i], key)) return &v->item[2 * i + 1];
    return NULL;
}

/* The range of a counter, so that sums and comparisons in int64_t are safe. */
int64_t mp_count(const struct mp_value *v)
{
    return v->kind == MP_INT && !v->negative && v->number <= INT64_MAX ? (int64_t)v->number : -1;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* The first byte, then x in 1 << power bytes. */
static int put(struct bytes *b, uint8_t first, uint64_t x, int power)
{
    uint8_t raw[9] = { first };
    int n = 1 << power;
    for (int i = 0; i < n; i++) raw[1 + i] = (uint8_t)(x >> 8 * (n - 1 - i));
    return bytes_add(b, raw, (size_t)n + 1);
}

/* Which of 1, 2, 4, 8 bytes hold x, as a power of two. */
static int width(uint64_t x)
{
    return x <= UINT8_MAX ? 0 : x <= UINT16_MAX ? 1 : x <= UINT32_MAX ? 2 : 3;
}

/* Writers append and return b->failed, which stays set: a caller may check once, at the end. */
int mp_nil(struct bytes *b) { return bytes_u8(b, NIL); }
int mp_bool(struct bytes *b, int x) { return bytes_u8(b, x ? TRUE_ : FALSE_); }

/* The shortest form that holds the number, as Python's packer chooses it: equal values are equal
 * bytes. */
int mp_uint(struct bytes *b, uint64_t x)
{
    if (x < 0x80) return bytes_u8(b, (uint8_t)x);
    return put(b, (uint8_t)(UINT8 + width(x)), x, width(x));
}

int mp_int(struct bytes *b, int64_t x)
{
    int power;
    if (x >= 0) return mp_uint(b, (uint64_t)x);
    if (x >= -32) return bytes_u8(b, (uint8_t)x);
    power = x >= INT8_MIN ? 0 : x >= INT16_MIN ? 1 : x >= INT32_MIN ? 2 : 3;
    return put(b, (uint8_t)(INT8 + power), (uint64_t)x, power);
}

/* Python's float is a double, and its packer always writes 9 bytes: 3.0 is another value than 3,
 * also for a schema [spec hivemind-protocol 1.2, 2.2]. */
int mp_float(struct bytes *b, double x)
{
    uint64_t raw;
    memcpy(&raw, &x, sizeof raw);
    return put(b, FLOAT64, raw, 3);
}

/* c4, c7 and d9 are followed by the codes of the wider lengths, so the width is added to the
 * code. */
static int put_length(struct bytes *b, uint8_t first, size_t n)
{
    if (n > UINT32_MAX) return b->failed = PL_ELIMIT;
    return put(b, (uint8_t)(first + width(n)), n, width(n));
}

int mp_str(struct bytes *b, const void *text, size_t n)
{
    if (n < 32) bytes_u8(b, (uint8_t)(0xa0 | n));
    else put_length(b, STR8, n);
    return bytes_add(b, text, n);
}

int mp_text(struct bytes *b, const char *text) { return mp_str(b, text, strlen(text)); }

/* Bytes have no short form: c4 and a length from the first byte on. */
int mp_bin(struct bytes *b, const void *data, size_t n)
{
    put_length(b, BIN8, n);
    return bytes_add(b, data, n);
}

/* Lists and maps have counts of 2 or 4 bytes only, and a form of one byte up to 15. */
static int put_count(struct bytes *b, uint8_t few, uint8_t many, size_t n)
{
    if (n > UINT32_MAX) return b->failed = PL_ELIMIT;
    if (n < 16) return bytes_u8(b, (uint8_t)(few | n));
    return put(b, (uint8_t)(many + (n > UINT16_MAX)), n, n > UINT16_MAX ? 2 : 1);
}

int mp_list(struct bytes *b, size_t n) { return put_count(b, 0x90, LIST16, n); }
int mp_map(struct bytes *b, size_t n) { return put_count(b, 0x80, MAP16, n); }

/* Contents of 1, 2, 4, 8 or 16 bytes have codes without a length (fixext). */
int mp_ext(struct bytes *b, int8_t code, const void *data, size_t n)
{
    if (n && n <= 16 && !(n & (n - 1))) {
        int power = 0;
        while ((size_t)1 << power < n) power++;
        bytes_u8(b, (uint8_t)(FIXEXT1 + power));
    } else {
        put_length(b, EXT8, n);
    }
    bytes_u8(b, (uint8_t)code);
    return bytes_add(b, data, n);
}

/* A tree that was read, written in our one form. Reading and writing again is how two spellings of
 * a subkey become equal bytes. */
int mp_write(struct bytes *b, const struct mp_value *v)
{
    struct bytes inside = { 0 };
    switch (v->kind) {
    case MP_NIL: return mp_nil(b);
    case MP_BOOL: return mp_bool(b, v->truth);
    case MP_INT: return v->negative ? mp_int(b, (int64_t)v->number) : mp_uint(b, v->number);
    case MP_FLOAT: return mp_float(b, v->real);
    case MP_STR: return mp_str(b, v->bytes, v->n);
    case MP_BIN: return mp_bin(b, v->bytes, v->n);
    case MP_EXT: return mp_ext(b, v->code, v->bytes, v->n);
    /* The elements follow the header. After a failure of memory all writes do nothing, and
     * b->failed reports it. */
    case MP_LIST:
        mp_list(b, v->n);
        for (size_t i = 0; i < v->n; i++) mp_write(b, &v->item[i]);
        return b->failed;
    case MP_MAP:
        mp_map(b, v->n);
        for (size_t i = 0; i < 2 * v->n; i++) mp_write(b, &v->item[i]);
        return b->failed;
    case MP_TUPLE: /* its length comes first */
        mp_list(&inside, v->n);
        for (size_t i = 0; i < v->n; i++) mp_write(&inside, &v->item[i]);
        if (inside.failed) b->failed = inside.failed;
        else mp_ext(b, MP_TUPLE_CODE, bytes_at(&inside), bytes_length(&inside));
        bytes_clear(&inside);
        return b->failed;
    }
    return b->failed;
}
