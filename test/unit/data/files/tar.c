/* tar.c - archives written here by hand: names, sizes and checksums at the boundary of every rule. The
 * archive ends at an inaccessible page. */
#include "data/files/tar.h"
#include "test/unit/data/exact_bytes.h"
#include "test/unit/unit.h"

static struct pl_err err;
static uint8_t archive[64 * 512];
static size_t bytes;

/* --- writing ----------------------------------------------------------------------------------- */

static uint8_t *latest; /* the header that was put last */

static void sign(uint8_t *h)
{
    unsigned sum = 0;
    memset(h + 148, ' ', 8);
    for (int i = 0; i < 512; i++) sum += h[i];
    snprintf((char *)h + 148, 8, "%06o", sum);
    h[155] = ' ';
}

static void put(char type, const char *name, const void *data, size_t n)
{
    latest = archive + bytes;
    memset(latest, 0, 512 + (n + 511) / 512 * 512);
    snprintf((char *)latest, 100, "%s", name);
    snprintf((char *)latest + 124, 12, "%011o", (unsigned)n % (1u << 30));
    latest[156] = (uint8_t)type;
    memcpy(latest + 257,
           "ustar\0"
           "00",
           8);
    if (n) memcpy(latest + 512, data, n);
    sign(latest);
    bytes += 512 + (n + 511) / 512 * 512;
}

static void put_size(const void *field)
{
    memcpy(latest + 124, field, 12);
    sign(latest);
}

/* --- reading ----------------------------------------------------------------------------------- */

struct entry {
    char name[TAR_NAME_MAX];
    size_t n;
    uint8_t first;
};

/* Reads everything into e; the status that ended it, and *n files before. */
static int read_all(struct entry *e, int *n, size_t length)
{
    uint8_t *copy = exact_copy(archive, length);
    struct tar t = { copy, length, 0, "test" };
    struct tar_file file;
    int rc;
    err.text[0] = 0;
    for (*n = 0; !(rc = pl_tar_next(&t, &file, &err)) && *n < 8; ++*n) {
        volatile uint8_t last = file.bytes ? file.data[file.bytes - 1] : 0;
        (void)last; /* the read is the test */
        assert_ptr_equal(file.data, copy + file.at);
        memcpy(e[*n].name, file.name, sizeof file.name);
        e[*n].n = file.bytes;
        e[*n].first = file.bytes ? file.data[0] : 0;
    }
    exact_free(copy, length);
    return rc;
}

static struct entry e[8];
static int n;

static void files_and_what_is_passed_over(void **state)
{
    static const uint8_t data[513] = { 7, 8, 9 };
    bytes = 0;
    put('0', "a", data, 3);
    put('5', "folder/", NULL, 0);
    put(0, "old", data + 1, 512);
    put('2', "link", NULL, 0);
    put('7', "contiguous", data + 2, 511);
    put('g', "for all", "11 path=x\n\n", 11);
    put('0', "empty", NULL, 0);
    assert_int_equal(read_all(e, &n, bytes), PL_ENOTFOUND); /* no zeros at the end are needed */
    assert_int_equal(n, 4);
    assert_string_equal(e[0].name, "a");
    assert_int_equal(e[0].n, 3);
    assert_int_equal(e[0].first, 7);
    assert_string_equal(e[1].name, "old");
    assert_int_equal(e[1].n, 512);
    assert_int_equal(e[1].first, 8);
    assert_string_equal(e[2].name, "contiguous");
    assert_int_equal(e[2].n, 511);
    assert_string_equal(e[3].name, "empty");
    assert_int_equal(e[3].n, 0);
    memset(archive + bytes, 0, 512); /* bytes after a block of zeros are not read */
    bytes += 512;
    put('0', "behind", NULL, 0);
    assert_int_equal(read_all(e, &n, bytes), PL_ENOTFOUND);
    assert_int_equal(n, 4);
}

/* Every length of one file: read if the data is whole, whether padded or not. */
static void every_length(void **state)
{
    static const uint8_t data[600] = { 1 };
    for (size_t size = 0; size <= 600; size += size < 505 || size > 520 ? 7 : 1) {
        bytes = 0;
        put('0', "a", data, size);
        for (size_t length = 512; length <= bytes; length += length < 512 + size ? 97 : 1) {
            int whole = length >= 512 + size;
            assert_int_equal(read_all(e, &n, length), whole ? PL_ENOTFOUND : PL_EFORMAT);
            assert_int_equal(n, whole);
            if (!whole) assert_non_null(strstr(err.text, "byte 0: a file of"));
        }
    }
    for (size_t length = 0; length < 512; length++) { /* less than a header is the end */
        assert_int_equal(read_all(e, &n, length), PL_ENOTFOUND);
        assert_int_equal(n, 0);
    }
}

static void checksums(void **state)
{
    bytes = 0;
    put('0', "a", NULL, 0);
    for (int i = 0; i < 512; i++) { /* each byte counts but the checksum's own eight */
        if (i >= 148 && i < 156) continue;
        archive[i] ^= 1;
        assert_int_equal(read_all(e, &n, bytes), PL_EFORMAT);
        assert_non_null(strstr(err.text, "not a header"));
        archive[i] ^= 1;
    }
    for (int k = 154; k < 156; k++) { /* the number ends with a zero or a blank, in any order */
        archive[k] = k == 154 ? ' ' : 0;
        assert_int_equal(read_all(e, &n, bytes), PL_ENOTFOUND);
        assert_int_equal(n, 1);
    }
    memmove(archive + 149, archive + 148, 6); /* blanks before it */
    archive[148] = ' ';
    archive[155] = 0;
    assert_int_equal(read_all(e, &n, bytes), PL_ENOTFOUND);
    assert_int_equal(n, 1);
    archive[148] = 'x';
    assert_int_equal(read_all(e, &n, bytes), PL_EFORMAT);
}

/* Sizes in octal of up to 12 digits, or in binary behind the byte 0x80; 0xFF begins a negative one. */
static void sizes(void **state)
{
    static const struct {
        char field[13];
        int size; /* -1: refused */
    } cases[] = {
        { "00000000003", 3 },
        { "3 0000000000", 3 },
        { "  000000003 ", 3 },
        { "000000000003", 3 },
        { "777777777777", -1 },
        { "8           ", -1 },
        { "3x          ", -1 },
        { "\x80\0\0\0\0\0\0\0\0\0\0\3", 3 },
        { "\x80\0\0\0\0\0\0\0\0\0\1\0", 256 },
        { "\xff\0\0\0\0\0\0\0\0\0\0\3", -1 },
        { "\x81\0\0\0\0\0\0\0\0\0\0\3", -1 },
        { "\x80\1\0\0\0\0\0\0\0\0\0\3", -1 }, /* beyond 64 bits */
        { "\x80\0\0\1\0\0\0\0\0\0\0\3", -1 },
        { "\x80\0\0\0\x80\0\0\0\0\0\0\3", -1 },
    };
    for (size_t i = 0; i < PL_COUNT(cases); i++) {
        bytes = 0;
        put('0', "a", "xyz", 3);
        put_size(cases[i].field);
        assert_int_equal(read_all(e, &n, bytes), cases[i].size >= 0 ? PL_ENOTFOUND : PL_EFORMAT);
        assert_int_equal(n, cases[i].size >= 0);
        if (n) assert_int_equal(e[0].n, cases[i].size);
    }
}

/* POSIX archives have a prefix; GNU's "ustar  " keeps other things in its place. */
static void names(void **state)
{
    char prefix[156], name[101], both[300];
    memset(prefix, 'p', sizeof prefix);
    memset(name, 'n', sizeof name);
    prefix[155] = name[100] = 0;
    snprintf(both, sizeof both, "%s/%s", prefix, name);
    bytes = 0;
    put('0', "a", NULL, 0);
    memcpy(latest, name, 100); /* both fields are full: no zero ends them */
    memcpy(latest + 345, prefix, 155);
    sign(latest);
    put('0', "b", NULL, 0);
    memcpy(latest + 345, "dir", 3);
    sign(latest);
    put('0', "c", NULL, 0);
    memcpy(latest + 257, "ustar  ", 8);
    memcpy(latest + 345, "123", 3);
    sign(latest);
    assert_int_equal(read_all(e, &n, bytes), PL_ENOTFOUND);
    assert_int_equal(n, 3);
    assert_string_equal(e[0].name, both);
    assert_string_equal(e[1].name, "dir/b");
    assert_string_equal(e[2].name, "c");
}

/* A long name is the next file's, and no other's: not even if the next is a folder. */
static void long_names(void **state)
{
    static char longest[2000];
    memset(longest, 'x', sizeof longest - 1);
    bytes = 0;
    put('L', "././@LongLink", "long/name", 9);
    put('0', "short", "s", 1);
    put('0', "next", NULL, 0);
    put('L', "././@LongLink", "of a folder/", 12);
    put('5', "folder", NULL, 0);
    put('0', "after", NULL, 0);
    put('L', "././@LongLink", longest, sizeof longest - 1);
    put('0', "cut", NULL, 0);
    assert_int_equal(read_all(e, &n, bytes), PL_ENOTFOUND);
    assert_int_equal(n, 4);
    assert_string_equal(e[0].name, "long/name");
    assert_string_equal(e[1].name, "next");
    assert_string_equal(e[2].name, "after");
    assert_int_equal(strlen(e[3].name), TAR_NAME_MAX - 1);
}

static void pax_headers(void **state)
{
    bytes = 0;
    put('x', "pax", "12 mtime=1.\n12 path=a/b\n10 size=3\n", 34);
    put('0', "short", "xyz", 3);
    put_size("00000000001"); /* the size of the extended header counts */
    put('0', "next", "pq", 2);
    put('x', "pax", "10 size=9\n", 10);
    put('5', "folder", "123456789", 9);
    put('0', "after", "r", 1);
    assert_int_equal(read_all(e, &n, bytes), PL_ENOTFOUND);
    assert_int_equal(n, 3);
    assert_string_equal(e[0].name, "a/b");
    assert_int_equal(e[0].n, 3);
    assert_string_equal(e[1].name, "next");
    assert_int_equal(e[1].n, 2);
    assert_string_equal(e[2].name, "after");
    assert_int_equal(e[2].n, 1);
}

/* Invalid records are skipped: without a length, longer than the header, without a value. */
static void broken_pax_headers(void **state)
{
    static const char *const broken[] = { "path=a/b\n",
                                          "99 path=a/b\n",
                                          "12path=a/b\n",
                                          "0 path=a/b\n",
                                          "8 path=\n",
                                          "3 \n",
                                          "12",
                                          "9 path=a",
                                          "7 path\n",
                                          "12 Path=a/b\n",
                                          "1234567890 path=a/b\n" };
    for (size_t i = 0; i < PL_COUNT(broken); i++) {
        bytes = 0;
        put('x', "pax", broken[i], strlen(broken[i]));
        put('0', "short", NULL, 0);
        assert_int_equal(read_all(e, &n, bytes), PL_ENOTFOUND);
        assert_int_equal(n, 1);
        assert_string_equal(e[0].name, "short");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_and_what_is_passed_over),
        cmocka_unit_test(every_length),
        cmocka_unit_test(checksums),
        cmocka_unit_test(sizes),
        cmocka_unit_test(names),
        cmocka_unit_test(long_names),
        cmocka_unit_test(pax_headers),
        cmocka_unit_test(broken_pax_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
