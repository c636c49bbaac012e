/* captions.c - lists and folders of pictures with captions, and malformed lists. */
#include "data/pairs/captions.h"
#include "data/parquet/parquet_write.h"
#include "test/unit/unit.h"

#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/potluck-captions-XXXXXX";
static struct pl_err err;

static const char *at(const char *name)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text)
{
    FILE *f = fopen(at(name), "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static int setup(void **state) { return mkdtemp(folder) ? 0 : -1; }

static int teardown(void **state)
{
    char command[100];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

static void a_list(void **state)
{
    struct captions c;
    put("list", "a.png\tfirst\n\nsub/b.jpg\tsecond\twith a tab\r\n/abs/c.webp\t\xc3\xa9\n/d\tlast");
    assert_int_equal(pl_captions_read(&c, at("list"), &err), PL_OK);
    assert_int_equal(c.count, 4);
    assert_string_equal(c.path[0], at("a.png"));
    assert_string_equal(c.path[1], at("sub/b.jpg"));
    assert_string_equal(c.caption[1], "second\twith a tab");
    assert_string_equal(c.path[2], "/abs/c.webp");
    assert_string_equal(c.caption[3], "last");
    pl_captions_clear(&c);
}

static void lists_that_are_wrong(void **state)
{
    static const char *const bad[] = { "a.png first\n", "\tcaption\n", "a.png\t\xff\n", "",
                                       "\n\n" };
    struct captions c;
    for (size_t i = 0; i < PL_COUNT(bad); i++) {
        put("list", bad[i]);
        assert_int_not_equal(pl_captions_read(&c, at("list"), &err), PL_OK);
        assert_non_null(strstr(err.text, "list: "));
        assert_int_equal(c.count, 0);
        assert_null(c.path);
    }
    put("list", "a\tb\nc\n");
    assert_int_equal(pl_captions_read(&c, at("list"), &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "line 2"));
    for (size_t zero = 0; zero < 8; zero++) { /* each byte of a line */
        char text[] = "a.png\tbc\n";
        text[zero] = 0;
        FILE *f = fopen(at("list"), "wb");
        fwrite(text, 1, 9, f);
        fclose(f);
        assert_int_equal(pl_captions_read(&c, at("list"), &err), PL_EFORMAT);
        assert_non_null(strstr(err.text, "line 1: a zero byte"));
    }
    unlink(at("list"));
    assert_int_equal(pl_captions_read(&c, at("list"), &err), PL_EIO);
}

static void a_folder(void **state)
{
    struct captions c;
    mkdir(at("in"), 0755);
    mkdir(at("in/deep"), 0755);
    put("in/b.png", "");
    put("in/b.txt", " two\nlines \n");
    put("in/a.JPG", "");
    put("in/a.txt", "one");
    put("in/none.png", "");
    put("in/empty.png", "");
    put("in/empty.txt", " \n");
    put("in/other.gif", "");
    put("in/.hidden.png", "");
    put("in/deep/c.webp", "");
    put("in/deep/c.txt", "three");
    assert_int_equal(pl_captions_read(&c, at("in"), &err), PL_OK);
    assert_int_equal(c.count, 3);
    assert_int_equal(c.uncaptioned, 2);
    assert_string_equal(c.caption[0], "one");
    assert_string_equal(c.caption[1], "two lines");
    assert_string_equal(c.caption[2], "three");
    assert_string_equal(c.path[2], at("in/deep/c.webp"));
    pl_captions_clear(&c);
    put("in/metadata.jsonl", "{\"file_name\": \"b.png\", \"text\": \"from JSON\"}\n");
    assert_int_equal(pl_captions_read(&c, at("in"), &err), PL_OK);
    assert_int_equal(c.count, 1);
    assert_string_equal(c.caption[0], "from JSON");
    pl_captions_clear(&c);
    /* Python's reader, too, takes the last of equal keys; a caption goes before a text. */
    put("in/metadata.jsonl", "{\"file_name\": \"a.png\", \"text\": \"t\", \"caption\": \"c\", "
                             "\"file_name\": \"b.png\", \"caption\": \"last\"}\n");
    assert_int_equal(pl_captions_read(&c, at("in"), &err), PL_OK);
    assert_int_equal(c.count, 1);
    assert_string_equal(c.path[0], at("in/b.png"));
    assert_string_equal(c.caption[0], "last");
    pl_captions_clear(&c);
    put("in/metadata.jsonl", "{\"file_name\": \"b.png\"}\n");
    assert_int_equal(pl_captions_read(&c, at("in"), &err), PL_EFORMAT);
    put("in/captions.tsv", "b.png\tfrom the list\n");
    assert_int_equal(pl_captions_read(&c, at("in"), &err), PL_OK);
    assert_string_equal(c.caption[0], "from the list");
    pl_captions_clear(&c);
}

static void folders_without_end(void **state)
{
    struct captions c;
    mkdir(at("loop"), 0755);
    assert_int_equal(symlink(".", at("loop/again")), 0);
    assert_int_equal(pl_captions_read(&c, at("loop"), &err), PL_ELIMIT);
}

/* A file of a tar archive: header, data, padding. */
static void tar_add(FILE *f, const char *name, char type, const void *data, size_t n)
{
    unsigned char head[512] = { 0 };
    static const unsigned char zeros[512];
    unsigned sum = 0;
    snprintf((char *)head, 100, "%s", name);
    snprintf((char *)head + 124, 12, "%011zo", n);
    memcpy(head + 257, "ustar", 6);
    head[156] = (unsigned char)type;
    memset(head + 148, ' ', 8);
    for (size_t i = 0; i < sizeof head; i++) sum += head[i];
    snprintf((char *)head + 148, 8, "%06o", sum);
    fwrite(head, 1, sizeof head, f);
    fwrite(data, 1, n, f);
    if (n % 512) fwrite(zeros, 1, 512 - n % 512, f);
}

static void an_archive_as_img2dataset_makes_them(void **state)
{
    static const char long_name[] = "folder/with.dots/0000000001";
    struct captions c;
    struct pl_image image, back;
    void *png;
    size_t n;
    uint64_t bytes;
    FILE *f = fopen(at("x.tar"), "wb");
    assert_int_equal(pl_image_init(&image, 3, 2, 3), PL_OK);
    image.pixels[4] = 200;
    assert_int_equal(pl_image_encode_png(&png, &n, &image), PL_OK);
    tar_add(f, "000.png", '0', png, n);
    tar_add(f, "000.txt", '0', "a\nred apple\n", 12);
    tar_add(f, "000.json", '0', "{\"caption\": \"not this\"}", 23);
    tar_add(f, "001.json", '0', "{\"caption\": \"caf\\u00e9\"}", 24);
    tar_add(f, "001.png", '0', png, n);
    tar_add(f, "002.png", '0', png, n); /* without a caption */
    tar_add(f, "a folder", '5', "", 0);
    tar_add(f, "long", 'L', "folder/with.dots/0000000001.png", 31);
    tar_add(f, "cut", '0', png, n);
    tar_add(f, "long", 'x', "40 path=folder/with.dots/0000000001.txt\n", 40);
    tar_add(f, "cut", '0', "last", 4);
    fclose(f);
    assert_int_equal(pl_captions_read(&c, at("x.tar"), &err), PL_OK);
    assert_int_equal(c.count, 3);
    assert_int_equal(c.uncaptioned, 1);
    assert_string_equal(c.caption[0], "a red apple");
    assert_string_equal(c.caption[1], "caf\xc3\xa9");
    assert_string_equal(c.caption[2], "last");
    assert_non_null(strstr(c.path[2], long_name));
    for (size_t i = 0; i < c.count; i++) {
        assert_int_equal(pl_captions_picture(&back, &bytes, &c, i, &err), PL_OK);
        assert_int_equal(bytes, n);
        assert_memory_equal(back.pixels, image.pixels, 18);
        pl_image_clear(&back);
    }
    pl_captions_clear(&c);
    assert_int_equal(truncate(at("x.tar"), 512 + 10), 0); /* in the middle of the first picture */
    assert_int_equal(pl_captions_read(&c, at("x.tar"), &err), PL_EFORMAT);
    char noise[600];
    memset(noise, 'x', sizeof noise - 1);
    noise[sizeof noise - 1] = 0;
    put("y.tar", noise);
    assert_int_equal(pl_captions_read(&c, at("y.tar"), &err), PL_EFORMAT);
    free(png);
    pl_image_clear(&image);
    unlink(at("x.tar"));
    unlink(at("y.tar"));
}

/* A table as img2dataset makes them; a column named `pictures` holds the pictures. */
static void write_table(const char *name, const char *pictures, const void *png, size_t n)
{
    static const char *const captions[] = { "one\nline",   "failed", NULL,
                                            "caf\xc3\xa9", "\xff",   "cut" };
    static const char *const status[] = { "success", "failed_to_download",
                                          "success", "success",
                                          "success", "success" };
    const struct parquet_column columns[] = {
        { .name = (char *)(uintptr_t) "caption", .type = PARQUET_BYTES, .text = 1, .optional = 1 },
        { .name = (char *)(uintptr_t) "key", .type = PARQUET_BYTES, .text = 1 },
        { .name = (char *)(uintptr_t) "status", .type = PARQUET_BYTES, .text = 1 },
        { .name = (char *)(uintptr_t)pictures, .type = PARQUET_BYTES, .optional = 1 },
    };
    const struct parquet_options options = { .codec = PL_CODEC_SNAPPY, .group_rows = 2 };
    struct parquet_writer *w;
    assert_int_equal(pl_parquet_writer_open(&w, at(name), columns, 4, &options, &err), PL_OK);
    for (size_t i = 0; i < PL_COUNT(captions); i++) {
        char key[] = "00000";
        struct parquet_value row[4] = { { .null = !captions[i] } };
        key[4] = (char)('0' + i);
        if (captions[i])
            row[0] = (struct parquet_value){ .bytes = (const uint8_t *)captions[i],
                                             .length = strlen(captions[i]) };
        row[1] = (struct parquet_value){ .bytes = (const uint8_t *)key, .length = 5 };
        row[2] = (struct parquet_value){ .bytes = (const uint8_t *)status[i],
                                         .length = strlen(status[i]) };
        row[3] = i == 1 ? (struct parquet_value){ .null = 1 }
                        : (struct parquet_value){ .bytes = png, .length = i == 5 ? n / 2 : n };
        assert_int_equal(pl_parquet_writer_row(w, row, &err), PL_OK);
    }
    assert_int_equal(pl_parquet_writer_close(w, &err), PL_OK);
}

static void a_table_as_img2dataset_makes_them(void **state)
{
    struct captions c;
    struct pl_image image, back;
    void *png[2]; /* of the first table's pictures, and of the last one's */
    size_t n[2];
    uint64_t bytes;
    assert_int_equal(pl_image_init(&image, 3, 2, 3), PL_OK);
    for (int i = 0; i < 2; i++) {
        image.pixels[4] = (uint8_t)(100 * (i + 1));
        assert_int_equal(pl_image_encode_png(&png[i], &n[i], &image), PL_OK);
    }
    mkdir(at("tables"), 0755);
    write_table("tables/a.parquet", "jpg", png[0], n[0]);
    /* metadata that img2dataset writes next to a tar: no pictures */
    write_table("tables/b.parquet", "sha256", png[0], n[0]);
    write_table("tables/c.parquet", "png", png[1], n[1]);
    assert_int_equal(pl_captions_read(&c, at("tables"), &err), PL_OK);
    assert_int_equal(c.count, 6);
    assert_int_equal(c.uncaptioned, 4); /* null and not UTF-8, in two tables */
    assert_string_equal(c.caption[0], "one line");
    assert_string_equal(c.caption[1], "caf\xc3\xa9");
    assert_string_equal(c.caption[2], "cut");
    assert_string_equal(c.path[4], at("tables/c.parquet/00003"));
    for (size_t k = 0; k < 2 * c.count; k++) { /* forward, then back */
        size_t i = k < c.count ? k : 2 * c.count - 1 - k;
        int rc = pl_captions_picture(&back, &bytes, &c, i, &err);
        if (i % 3 == 2) {
            assert_int_not_equal(rc, PL_OK);
            assert_non_null(strstr(err.text, "parquet/00005: "));
            continue;
        }
        assert_int_equal(rc, PL_OK);
        assert_int_equal(bytes, n[i / 3]);
        image.pixels[4] = (uint8_t)(100 * (i / 3 + 1));
        assert_memory_equal(back.pixels, image.pixels, 18);
        pl_image_clear(&back);
    }
    pl_captions_clear(&c);
    assert_int_equal(pl_captions_read(&c, at("tables/b.parquet"), &err), PL_ENOTFOUND);
    assert_non_null(strstr(err.text, "b.parquet: no column of pictures"));
    put("tables/d.parquet", "noise");
    assert_int_equal(pl_captions_read(&c, at("tables"), &err), PL_EFORMAT);
    assert_non_null(strstr(err.text, "d.parquet: "));
    for (int i = 0; i < 2; i++) free(png[i]);
    pl_image_clear(&image);
}

static void a_caption_of_a_megabyte(void **state)
{
    static char text[(1 << 20) + 1];
    struct captions c;
    memset(text, 'a', sizeof text - 1);
    mkdir(at("long"), 0755);
    put("long/a.png", "");
    put("long/a.txt", text);
    assert_int_equal(pl_captions_read(&c, at("long"), &err), PL_OK);
    assert_string_equal(c.caption[0], text);
    pl_captions_clear(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list),
        cmocka_unit_test(an_archive_as_img2dataset_makes_them),
        cmocka_unit_test(a_table_as_img2dataset_makes_them),
        cmocka_unit_test(a_caption_of_a_megabyte),
        cmocka_unit_test(lists_that_are_wrong),
        cmocka_unit_test(a_folder),
        cmocka_unit_test(folders_without_end),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
