/* image.c - pictures in three formats, damaged ones, resampling, sheets and figures. Pillow's bytes
 * are compared by `conform` (golden/clip). */
#include "data/images/figure.h"
#include "data/images/resize.h"
#include "data/images/contact_sheet.h"
#include "data/images/pictures.h"
#include "test/unit/unit.h"

#include <math.h>
#include <sys/resource.h>
#include <unistd.h>
#include <jpeglib.h>
#include <webp/encode.h>

static struct pl_err err;

/* A soft pattern, so that lossy formats keep it well. */
static struct pl_image pattern(int width, int height, int channels)
{
    struct pl_image image;
    assert_int_equal(pl_image_init(&image, width, height, channels), PL_OK);
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++)
            for (int c = 0; c < channels; c++)
                image.pixels[(y * width + x) * channels + c] =
                    (uint8_t)(128 + 100 * sin(0.07 * x + c) * cos(0.05 * y));
    return image;
}

static void png_keeps_every_pixel(void **state)
{
    for (int channels = 1; channels <= 4; channels++) {
        struct pl_image image = pattern(31, 17, channels), back;
        void *data;
        size_t bytes;
        assert_int_equal(pl_image_encode_png(&data, &bytes, &image), PL_OK);
        assert_int_equal(pl_image_decode(&back, data, bytes, "test", &err), PL_OK);
        assert_int_equal(back.width, 31);
        assert_int_equal(back.height, 17);
        assert_int_equal(back.channels, channels);
        assert_false(back.indexed);
        assert_memory_equal(back.pixels, image.pixels, 31 * 17 * (size_t)channels);
        pl_image_clear(&image);
        pl_image_clear(&back);
        free(data);
    }
}

static uint8_t *make_jpeg(size_t *bytes, const struct pl_image *image)
{
    struct jpeg_compress_struct c;
    struct jpeg_error_mgr errors;
    unsigned char *data = NULL;
    unsigned long n = 0;
    c.err = jpeg_std_error(&errors);
    jpeg_create_compress(&c);
    jpeg_mem_dest(&c, &data, &n);
    c.image_width = (JDIMENSION)image->width;
    c.image_height = (JDIMENSION)image->height;
    c.input_components = image->channels;
    c.in_color_space = image->channels == 1   ? JCS_GRAYSCALE
                       : image->channels == 3 ? JCS_RGB
                                              : JCS_CMYK;
    jpeg_set_defaults(&c);
    jpeg_set_quality(&c, 95, TRUE);
    jpeg_start_compress(&c, TRUE);
    while (c.next_scanline < c.image_height) {
        uint8_t *row = image->pixels +
                       c.next_scanline * (size_t)image->width * (size_t)image->channels;
        jpeg_write_scanlines(&c, &row, 1);
    }
    jpeg_finish_compress(&c);
    jpeg_destroy_compress(&c);
    *bytes = n;
    return data;
}

static uint8_t *make_webp(size_t *bytes, const struct pl_image *image)
{
    uint8_t *data = NULL;
    int stride = image->width * image->channels;
    *bytes = image->channels == 4
                 ? WebPEncodeLosslessRGBA(image->pixels, image->width, image->height, stride, &data)
                 : WebPEncodeLosslessRGB(image->pixels, image->width, image->height, stride, &data);
    return data;
}

static int worst(const struct pl_image *a, const struct pl_image *b)
{
    int most = 0;
    assert_int_equal(a->width, b->width);
    assert_int_equal(a->height, b->height);
    assert_int_equal(a->channels, b->channels);
    for (int i = 0; i < a->width * a->height * a->channels; i++)
        if (abs(a->pixels[i] - b->pixels[i]) > most) most = abs(a->pixels[i] - b->pixels[i]);
    return most;
}

static void jpeg_in_grey_colour_and_print(void **state)
{
    for (int channels = 1; channels <= 4; channels++) {
        struct pl_image image = pattern(45, 30, channels), back;
        size_t bytes;
        uint8_t *data;
        if (channels == 2) {
            pl_image_clear(&image);
            continue;
        }
        data = make_jpeg(&bytes, &image);
        assert_int_equal(pl_image_decode(&back, data, bytes, "test", &err), PL_OK);
        if (channels == 4) { /* print colours as stored by Adobe, inverted: light = ink * black */
            struct pl_image light;
            assert_int_equal(pl_image_init(&light, 45, 30, 3), PL_OK);
            for (int i = 0; i < 45 * 30; i++)
                for (int c = 0; c < 3; c++)
                    light.pixels[3 * i + c] =
                        (uint8_t)((image.pixels[4 * i + c] * image.pixels[4 * i + 3] + 127) / 255);
            pl_image_clear(&image);
            image = light;
        }
        assert_in_range(worst(&image, &back), 0, 16);
        pl_image_clear(&image);
        pl_image_clear(&back);
        free(data);
    }
}

static void webp_with_and_without_alpha(void **state)
{
    for (int channels = 3; channels <= 4; channels++) {
        struct pl_image image = pattern(33, 20, channels), back;
        size_t bytes;
        uint8_t *data = make_webp(&bytes, &image);
        assert_int_equal(pl_image_decode(&back, data, bytes, "test", &err), PL_OK);
        assert_int_equal(worst(&image, &back), 0);
        pl_image_clear(&image);
        pl_image_clear(&back);
        WebPFree(data);
    }
}

/* Every format, cut at every byte and with bytes flipped: a sentence or a picture, nothing else. */
static void damaged_files(void **state)
{
    struct pl_image image = pattern(19, 11, 3), back;
    for (int format = 0; format < 3; format++) {
        void *data;
        size_t bytes;
        if (format == 0) pl_image_encode_png(&data, &bytes, &image);
        else data = format == 1 ? make_jpeg(&bytes, &image) : make_webp(&bytes, &image);
        for (size_t n = 0; n < bytes; n++) {
            uint8_t *cut = malloc(n ? n : 1); /* exactly sized, for the address sanitizer */
            memcpy(cut, data, n);
            assert_int_not_equal(pl_image_decode(&back, cut, n, "test", &err), PL_OK);
            assert_int_equal(strncmp(err.text, "test: ", 6), 0);
            assert_null(back.pixels);
            if (format == 1 && n > 2 && n < bytes / 2) /* in the headers */
                assert_string_equal(err.text, "test: damaged JPEG: the file ends too early");
            free(cut);
        }
        if (format == 1) { /* whole rows, but another marker where the file ends */
            ((uint8_t *)data)[bytes - 1] = 1;
            assert_int_not_equal(pl_image_decode(&back, data, bytes, "test", &err), PL_OK);
            assert_string_equal(err.text, "test: damaged JPEG: the file ends too early");
            ((uint8_t *)data)[bytes - 1] = 0xD9;
        }
        for (size_t i = 0; i < bytes; i++) {
            ((uint8_t *)data)[i] ^= 0x55;
            if (!pl_image_decode(&back, data, bytes, "test", &err)) pl_image_clear(&back);
            ((uint8_t *)data)[i] ^= 0x55;
        }
        free(data);
    }
    pl_image_clear(&image);
}

/* 100,000 x 100,000 pixels in 60 bytes. */
static void a_header_that_claims_too_much(void **state)
{
    static const uint8_t png[] =
        "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\1\x86\xa0\0\1\x86\xa0\x08\x06\0\0\0"
        "\xc4\x7e\xdb\x84\0\0\0\0IDAT\x35\xaf\x06\x1e";
    static const uint8_t wide[] =
        "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\x7f\xff\xff\xff\x7f\xff\xff\xff\x08\x02\0\0\0"
        "\x9b\xab\x9c\x31\0\0\0\0IDAT\x35\xaf\x06\x1e";
    struct rusage before, after;
    struct pl_image image;
    uint8_t *webp;
    size_t bytes;
    image = (struct pl_image){ .width = 8192, .height = 8192, .channels = 3 };
    image.pixels = calloc(8192 * 8192, 3); /* black: a few hundred bytes as WebP */
    webp = make_webp(&bytes, &image);
    pl_image_clear(&image);
    assert_in_range(bytes, 20, 8192 * 8192 / IMAGE_PIXELS_PER_BYTE - 1);
    assert_int_equal(pl_image_decode(&image, webp, bytes, "test", &err), PL_ELIMIT);
    WebPFree(webp);
    assert_int_not_equal(pl_image_decode(&image, png, sizeof png - 1, "test", &err), PL_OK);
    getrusage(RUSAGE_SELF, &before); /* libpng must not be let near rows of gigabytes */
    assert_int_equal(pl_image_decode(&image, wide, sizeof wide - 1, "test", &err), PL_ELIMIT);
    getrusage(RUSAGE_SELF, &after);
    assert_in_range(after.ru_maxrss - before.ru_maxrss, 0, 100 << 10);
    assert_int_equal(pl_image_init(&image, IMAGE_SIDE_MAX + 1, 1, 3), PL_ELIMIT);
    assert_int_equal(pl_image_init(&image, 0, 1, 3), PL_ELIMIT);
    assert_int_equal(pl_image_init(&image, IMAGE_SIDE_MAX, IMAGE_SIDE_MAX, 3), PL_ELIMIT);
    assert_int_equal(pl_image_decode(&image, "no picture", 10, "test", &err), PL_EFORMAT);
}

static void alpha_on_white(void **state)
{
    static const uint8_t in[] = { 10, 0, 200, 128, 50, 255 }; /* grey with alpha */
    static const uint8_t white[] = { 255, 227, 50 }, drop[] = { 10, 200, 50 };
    for (int alpha = PL_ALPHA_DROP; alpha <= PL_ALPHA_WHITE; alpha++) {
        struct pl_image image;
        assert_int_equal(pl_image_init(&image, 3, 1, 2), PL_OK);
        memcpy(image.pixels, in, sizeof in);
        assert_int_equal(pl_image_rgb(&image, (enum pl_alpha)alpha), PL_OK);
        for (int i = 0; i < 9; i++)
            assert_int_equal(image.pixels[i], (alpha ? white : drop)[i / 3]);
        pl_image_clear(&image);
    }
}

/* Resizing mixes colours by their alpha: a transparent pixel gives nothing of its colour, a half
 * transparent one half as much as an opaque one, and what is left has the colour of what was seen. */
static void transparent_colours_do_not_mix(void **state)
{
    static const uint8_t in[2][8] = { { 200, 100, 40, 255, 10, 250, 90, 0 },
                                      { 200, 100, 40, 128, 200, 100, 40, 128 } };
    for (int i = 0; i < 2; i++) {
        struct pl_image image, one;
        assert_int_equal(pl_image_init(&image, 2, 1, 4), PL_OK);
        memcpy(image.pixels, in[i], sizeof in[i]);
        assert_int_equal(pl_resize(&one, &image, 1, 1, PL_BILINEAR), PL_OK);
        for (int c = 0; c < 3; c++) assert_in_range(one.pixels[c], in[i][c] - 2, in[i][c] + 2);
        assert_int_equal(one.pixels[3], 128);
        pl_image_clear(&image);
        pl_image_clear(&one);
    }
}

/* Weights in fixed point are rounded half away from zero, on both sides of it: the rule spelt out. */
static void weights_are_rounded(void **state)
{
    enum { IN = 61, OUT = 97, LINES = 400 };
    struct pl_image image, out;
    uint64_t x = 1;
    assert_int_equal(pl_image_init(&image, IN, LINES, 1), PL_OK);
    for (int i = 0; i < IN * LINES; i++) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        image.pixels[i] = x >> 63 ? 255 : (uint8_t)(x >> 50);
    }
    assert_int_equal(pl_resize(&out, &image, OUT, LINES, PL_BICUBIC), PL_OK);
    for (int i = 0; i < OUT; i++) {
        double centre = (i + 0.5) * IN / OUT, w[5], sum = 0;
        int first = (int)fmax(0, floor(centre - 2 + 0.5)), n = 0;
        for (; n < 5 && first + n < IN && first + n < (int)(centre + 2.5); n++) {
            double d = fabs(first + n - centre + 0.5);
            w[n] = d < 1   ? (1.5 * d - 2.5) * d * d + 1
                   : d < 2 ? ((d - 5) * d + 8) * d * -0.5 + 2
                           : 0;
            sum += w[n];
        }
        for (int line = 0; line < LINES; line++) {
            int64_t all = 1 << 21;
            for (int j = 0; j < n; j++)
                all += (int64_t)round(w[j] / sum * (1 << 22)) * image.pixels[line * IN + first + j];
            int64_t want = all < 0 ? 0 : all >> 22 > 255 ? 255 : all >> 22;
            assert_int_equal(out.pixels[line * OUT + i], want);
        }
    }
    pl_image_clear(&image);
    pl_image_clear(&out);
}

static void a_constant_stays_constant(void **state)
{
    static const int sizes[][4] = { { 1, 1, 9, 7 }, { 640, 480, 64, 64 }, { 3, 200, 300, 2 } };
    for (size_t k = 0; k < PL_COUNT(sizes); k++)
        for (int channels = 1; channels <= 4; channels++)
            for (int filter = PL_BILINEAR; filter <= PL_BICUBIC; filter++) {
                struct pl_image image, out;
                assert_int_equal(pl_image_init(&image, sizes[k][0], sizes[k][1], channels), PL_OK);
                memset(image.pixels, 255, (size_t)(sizes[k][0] * sizes[k][1] * channels));
                assert_int_equal(pl_resize(&out, &image, sizes[k][2], sizes[k][3],
                                           (enum pl_filter)filter),
                                 PL_OK);
                for (int i = 0; i < sizes[k][2] * sizes[k][3] * channels; i++)
                    assert_int_equal(out.pixels[i], 255);
                pl_image_clear(&image);
                pl_image_clear(&out);
            }
}

static void squares_of_odd_pictures(void **state)
{
    struct pl_image image = pattern(1, 400, 3), out;
    assert_int_equal(pl_resize_square(&out, &image, 64, PL_BICUBIC),
                     PL_OK); /* through 64 x 25600 */
    assert_int_equal(out.width, 64);
    assert_int_equal(out.height, 64);
    pl_image_clear(&out);
    assert_int_equal(pl_resize_square(&out, &image, 256, PL_BICUBIC), PL_ELIMIT);
    assert_null(out.pixels);
    assert_int_equal(pl_image_crop(&out, &image, 1, 0, 1, 1), PL_EUSE);
    assert_int_equal(pl_image_crop(&out, &image, 0, -1, 1, 1), PL_EUSE);
    assert_int_equal(pl_image_crop(&out, &image, 0, 0, 1, -1), PL_EUSE);
    pl_image_clear(&image);
}

static void empty_crop_becomes_black(void **state)
{
    struct pl_image image = pattern(5, 1, 3), nothing, out;
    assert_int_equal(pl_image_crop(&nothing, &image, 1, 0, 0, 0), PL_OK);
    assert_null(nothing.pixels);
    assert_int_equal(pl_resize(&out, &nothing, 2, 3, PL_BILINEAR), PL_OK);
    assert_int_equal(out.channels, 3);
    for (int i = 0; i < 2 * 3 * 3; i++) assert_int_equal(out.pixels[i], 0);
    pl_image_clear(&out);
    memset(&out, 0xff, sizeof out);
    assert_int_equal(pl_resize(&out, &image, 0, 3, PL_BILINEAR), PL_ELIMIT);
    assert_null(out.pixels); /* after a failure, too, it may be cleared */
    pl_image_clear(&nothing);
    pl_image_clear(&image);
}

static void sheets(void **state)
{
    struct pl_image p[3] = { pattern(4, 4, 3), pattern(4, 4, 1), pattern(4, 4, 4) }, out;
    assert_int_equal(pl_sheet(&out, p, 3, 2, 1), PL_OK);
    assert_int_equal(out.width, 11);
    assert_int_equal(out.height, 11);
    assert_memory_equal(out.pixels + (1 * 11 + 1) * 3, p[0].pixels, 12); /* its first row */
    assert_int_equal(out.pixels[0], 255);
    pl_image_clear(&out);
    assert_int_equal(pl_sheet(&out, p, 0, 8, 2), PL_OK);
    pl_image_clear(&out);
    assert_int_equal(pl_sheet(&out, p, 3, 0, 2), PL_EUSE);
    assert_int_equal(pl_sheet(&out, p, 3, 30000, 2), PL_ELIMIT);
    for (int i = 0; i < 3; i++) pl_image_clear(&p[i]);
}

/* A folder's pictures by their names, each as planes; other files are passed over. */
static void pictures_of_a_folder(void **state)
{
    static const char *const names[] = { "c.png", "a.PNG", "b.txt", ".d.png" };
    char folder[] = "/tmp/potluck-pictures-XXXXXX", path[60];
    struct pl_pictures p;
    struct pl_image image;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(pl_pictures_read(&p, folder, 4, &err), PL_ENOTFOUND);
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        image = pattern(4, 4, 3);
        image.pixels[2] = (uint8_t)i; /* blue of the first */
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        assert_int_equal(pl_image_write_png(path, &image, &err), PL_OK);
        pl_image_clear(&image);
    }
    assert_int_equal(pl_pictures_read(&p, folder, 4, &err), PL_OK);
    assert_int_equal(p.count, 2);
    assert_string_equal(p.name[0], "a.PNG");
    assert_string_equal(p.name[1], "c.png");
    assert_true(p.pixels[32] == 1 && p.pixels[48 + 32] == 0);
    assert_int_equal(pl_picture_image(&image, p.pixels + 48, 4, 4), PL_OK);
    pl_pictures_clear(&p);
    snprintf(path, sizeof path, "%s/c.png", folder);
    assert_int_equal(pl_pictures_read(&p, path, 4, &err), PL_OK);
    assert_int_equal(p.count, 1);
    assert_string_equal(p.name[0], "c.png");
    for (int i = 0; i < 48; i++) assert_int_equal(image.pixels[i], p.pixels[i % 3 * 16 + i / 3]);
    pl_image_clear(&image);
    pl_pictures_clear(&p);
    for (size_t i = 0; i < PL_COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    assert_int_equal(rmdir(folder), 0);
    assert_int_equal(pl_pictures_read(&p, folder, 4, &err), PL_EIO);
    assert_non_null(strstr(err.text, folder));
}

/* Lines with holes, without points, of one value, of huge and tiny ones, on every kind of axis: no
 * coordinate of the SVG text is infinite or not a number, and labels do not become markup. */
static void figures_of_strange_lines(void **state)
{
    static const double x[] = { 1, 2, 3, 4, 5, 6 };
    static const double ys[][6] = {
        { 5, 4, NAN, 3, INFINITY, 1 }, { 2, 2, 2, 2, 2, 2 },
        { 0, 0, 0, 0, 0, 0 },          { -1e250, 1e250, 0, 1, 2, 3 },
        { 1e-250, 1e250, 1, 1, 1, 1 }, { NAN, NAN, NAN, NAN, NAN, NAN },
        { -1, -2, -3, -4, -5, -6 },
    };
    for (size_t k = 0; k < PL_COUNT(ys); k++)
        for (int logs = 0; logs < 4; logs++)
            for (size_t count = 0; count <= 6; count += 3) {
                struct figure figure = { "title", "x", "y", logs & 1, logs >> 1 };
                struct figure_line line = { "<b> & \x01 \xc3\xa9", x, ys[k], count };
                char *text = NULL;
                size_t bytes;
                FILE *out = open_memstream(&text, &bytes);
                figure_lines(out, &figure, &line, 1);
                fclose(out);
                assert_null(strstr(text, "nan"));
                assert_null(strstr(text, "inf"));
                assert_null(strstr(text, "<b>"));
                assert_non_null(strstr(text, "&lt;b&gt; &amp;   \xc3\xa9</text>"));
                assert_non_null(strstr(text, "fill=\"#222222\">title</text>"));
                free(text);
            }
}

static void figure_of_pictures(void **state)
{
    const struct figure_picture p[] = { { "0.png", "0.31" },
                                        { "1.png", "<1>" },
                                        { "2.png", "-2" } };
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    figure_pictures(out, p, 3, 2, 64);
    fclose(out);
    assert_non_null(strstr(text, "viewBox=\"0 0 140 180\""));
    assert_non_null(strstr(text, "x=\"4\" y=\"4\" width=\"64\" height=\"64\" href=\"0.png\"/>"
                                 "<text x=\"4\" y=\"82\">0.31</text>"));
    assert_non_null(strstr(text, "<text x=\"72\" y=\"82\">&lt;1&gt;</text>"));
    assert_non_null(strstr(text, "x=\"4\" y=\"92\" width=\"64\" height=\"64\" href=\"2.png\"/>"));
    free(text);
}

/* A palette's colors are not mixed, however often the picture is resized. */
static void palettes_stay_palettes(void **state)
{
    static const int sides[] = { 4, 9, 3 }; /* as large, larger, smaller */
    for (int indexed = 0; indexed < 2; indexed++) {
        struct pl_image image, next;
        int mixed = 0;
        assert_int_equal(pl_image_init(&image, 4, 4, 1), PL_OK);
        image.indexed = indexed;
        for (int k = 0; k < 16; k++) image.pixels[k] = k % 2 ? 200 : 10;
        for (size_t i = 0; i < PL_COUNT(sides); i++) {
            assert_int_equal(pl_resize(&next, &image, sides[i], sides[i], PL_BICUBIC), PL_OK);
            pl_image_clear(&image);
            image = next;
            assert_int_equal(image.indexed, indexed);
            for (int k = 0; k < sides[i] * sides[i]; k++)
                mixed += image.pixels[k] != 10 && image.pixels[k] != 200;
        }
        assert_int_equal(mixed > 0, !indexed);
        pl_image_clear(&image);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(png_keeps_every_pixel),
        cmocka_unit_test(jpeg_in_grey_colour_and_print),
        cmocka_unit_test(webp_with_and_without_alpha),
        cmocka_unit_test(damaged_files),
        cmocka_unit_test(a_header_that_claims_too_much),
        cmocka_unit_test(alpha_on_white),
        cmocka_unit_test(transparent_colours_do_not_mix),
        cmocka_unit_test(weights_are_rounded),
        cmocka_unit_test(a_constant_stays_constant),
        cmocka_unit_test(squares_of_odd_pictures),
        cmocka_unit_test(empty_crop_becomes_black),
        cmocka_unit_test(sheets),
        cmocka_unit_test(pictures_of_a_folder),
        cmocka_unit_test(figures_of_strange_lines),
        cmocka_unit_test(figure_of_pictures),
        cmocka_unit_test(palettes_stay_palettes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
