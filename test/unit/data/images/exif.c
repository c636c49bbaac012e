/* exif.c - pictures are rotated by their EXIF orientation. */
#include "data/images/exif.h"
#include "data/files/file.h"
#include "data/images/image.h"
#include "test/unit/data/exact_bytes.h"
#include "test/unit/unit.h"

static const uint8_t little[] = { 'I', 'I', 42, 0, 8, 0,   0,   0, 2, 0,    0x0F, 1, 2,
                                  0,   4,   0,  0, 0, 'p', 'l', 0, 0, 0x12, 1,    3, 0,
                                  1,   0,   0,  0, 6, 0,   0,   0, 0, 0,    0,    0 };
static const uint8_t big[] = { 'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0,
                               3,   0,   0, 0,  1, 0, 8, 0, 0, 0, 0, 0,    0 };

static void the_tag_is_found(void **state)
{
    uint8_t copy[sizeof little];
    assert_int_equal(pl_exif_orientation(little, sizeof little), 6);
    assert_int_equal(pl_exif_orientation(big, sizeof big), 8);
    for (size_t n = 0; n < sizeof little; n++) { /* the tag's entry ends at 34 */
        uint8_t *cut = exact_copy(little, n);
        assert_int_equal(pl_exif_orientation(cut, n), n < 34 ? 1 : 6);
        exact_free(cut, n);
    }
    memcpy(copy, little, sizeof little);
    for (int value = 0; value < 300; value++) { /* the values that the standard names, no others */
        copy[30] = (uint8_t)value;
        copy[31] = (uint8_t)(value >> 8);
        int want = value >= 1 && value <= 8 ? value : 1;
        assert_int_equal(pl_exif_orientation(copy, sizeof copy), want);
    }
    for (int i = 0; i < 34; i++) /* any other bytes: some answer from 1 to 8 */
        for (int b = 0; b < 8; b++) {
            memcpy(copy, little, sizeof little);
            copy[i] ^= (uint8_t)(1 << b);
            int k = pl_exif_orientation(copy, sizeof copy);
            assert_true(k >= 1 && k <= 8);
        }
}

/* The same scene, 2 wide and 3 high, as it is stored for each way to hold the camera. */
static void every_way_comes_out_upright(void **state)
{
    static const uint8_t upright[6] = { 1, 2, 3, 4, 5, 6 };
    static const struct {
        int kind, width;
        uint8_t stored[6];
    } ways[] = {
        { 1, 2, { 1, 2, 3, 4, 5, 6 } }, { 2, 2, { 2, 1, 4, 3, 6, 5 } },
        { 3, 2, { 6, 5, 4, 3, 2, 1 } }, { 4, 2, { 5, 6, 3, 4, 1, 2 } },
        { 5, 3, { 1, 3, 5, 2, 4, 6 } }, { 6, 3, { 2, 4, 6, 1, 3, 5 } },
        { 7, 3, { 6, 4, 2, 5, 3, 1 } }, { 8, 3, { 5, 3, 1, 6, 4, 2 } },
    };
    for (size_t i = 0; i < PL_COUNT(ways); i++) {
        struct pl_image image;
        assert_int_equal(pl_image_init(&image, ways[i].width, 6 / ways[i].width, 1), PL_OK);
        memcpy(image.pixels, ways[i].stored, 6);
        image.orientation = ways[i].kind;
        assert_int_equal(pl_image_upright(&image), PL_OK);
        assert_int_equal(image.width, 2);
        assert_int_equal(image.height, 3);
        assert_memory_equal(image.pixels, upright, 6);
        assert_true(image.orientation < 2);
        pl_image_clear(&image);
    }
}

/* A JPEG file with EXIF data put behind its first two bytes. */
static void jpeg_files_are_turned(void **state)
{
    static const uint8_t head[] = {
        0xFF, 0xE1, 0, 2 + 6 + sizeof little, 'E', 'x', 'i', 'f', 0, 0
    };
    void *plain;
    size_t n;
    struct pl_image a, b;
    struct pl_err err;
    assert_int_equal(pl_file_read(&plain, &n, "test/fuzz/corpus/image/plain.jpg", 1 << 20, &err),
                     PL_OK);
    uint8_t *with_exif = malloc(n + sizeof head + sizeof little);
    memcpy(with_exif, plain, 2);
    memcpy(with_exif + 2, head, sizeof head);
    memcpy(with_exif + 2 + sizeof head, little, sizeof little);
    memcpy(with_exif + 2 + sizeof head + sizeof little, (uint8_t *)plain + 2, n - 2);
    assert_int_equal(pl_image_decode(&a, plain, n, "a", &err), PL_OK);
    assert_int_equal(pl_image_decode(&b, with_exif, n + sizeof head + sizeof little, "b", &err),
                     PL_OK);
    assert_true(a.orientation < 2);
    assert_int_equal(b.orientation, 6);
    assert_int_equal(pl_image_upright(&b), PL_OK);
    assert_int_equal(b.width, a.height);
    assert_int_equal(b.height, a.width);
    for (int c = 0; c < 3; c++) /* the stored lower left corner is the upper left one */
        assert_int_equal(b.pixels[c], a.pixels[(a.height - 1) * a.width * 3 + c]);
    pl_image_clear(&a);
    pl_image_clear(&b);
    free(plain);
    free(with_exif);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_tag_is_found),
        cmocka_unit_test(every_way_comes_out_upright),
        cmocka_unit_test(jpeg_files_are_turned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
