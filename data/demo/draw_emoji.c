/* draw_emoji.c - draws the demo's pictures: every emoji in the font, with its name. A separate
 * program (`make demo-data`), so that potluck itself needs neither FreeType nor HarfBuzz.
 *
 *   draw_emoji emoji-test.txt font.ttf folder [side]
 *
 * It writes folder/images/<code points>.png, side x side (64) RGB on white; folder/captions.tsv
 * with one line "images/<code points>.png<TAB>name" each, in the order of emoji-test.txt; and
 * folder/holdout.txt, the names to exclude from training (hold_out.h). */
#include "hold_out.h"
#include "data/files/file.h"
#include "data/images/resize.h"

#include <ft2build.h>
#include FT_FREETYPE_H
#include <hb.h>
#include <hb-ft.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define POINTS_MAX 16 /* code points of one emoji; the longest has 10 */

struct emoji {
    uint32_t point[POINTS_MAX];
    size_t points;
    char name[200];
};

/* "1F468 200D 1F33E ; fully-qualified # <emoji> E4.0 man farmer". Components (skin tones, hair) are
 * drawn too. Returns 0 if the line is not of this form. */
static int parse_line(struct emoji *e, const char *line)
{
    const char *p = line, *mark = strchr(line, ';'), *hash = mark ? strchr(mark, '#') : NULL;
    char status[32] = "";
    memset(e, 0, sizeof *e);
    if (line[0] == '#' || !hash || sscanf(mark + 1, " %31s", status) != 1) return 0;
    if (strcmp(status, "fully-qualified") && strcmp(status, "component")) return 0;
    while (p < mark && e->points < POINTS_MAX) {
        char *end;
        unsigned long value = strtoul(p, &end, 16);
        if (end == p || value > 0x10ffff) break;
        e->point[e->points++] = (uint32_t)value;
        p = end;
    }
    p = strstr(hash, " E"); /* the version precedes the name */
    return e->points && p && sscanf(p, " E%*[0-9.] %199[^\n]", e->name) == 1;
}

/* The glyph of a whole sequence; 0 if the font has several glyphs for it, or none. */
static hb_codepoint_t shape(hb_font_t *font, const struct emoji *e)
{
    hb_buffer_t *buffer = hb_buffer_create();
    hb_codepoint_t glyph = 0;
    hb_glyph_info_t *info;
    unsigned count;
    hb_buffer_add_utf32(buffer, e->point, (int)e->points, 0, (int)e->points);
    hb_buffer_guess_segment_properties(buffer);
    hb_shape(font, buffer, NULL, 0);
    info = hb_buffer_get_glyph_infos(buffer, &count);
    if (count == 1) glyph = info[0].codepoint;
    hb_buffer_destroy(buffer);
    return glyph;
}

/* The font's coloured bitmap, premultiplied BGRA, centred on a white square. */
static int draw(struct pl_image *out, FT_Face face, hb_codepoint_t glyph, int side)
{
    const FT_Bitmap *b = &face->glyph->bitmap;
    struct pl_image square;
    int n, left, top, rc;
    if (FT_Load_Glyph(face, glyph, FT_LOAD_COLOR) || b->pixel_mode != FT_PIXEL_MODE_BGRA)
        return PL_EFORMAT;
    n = (int)(b->width > b->rows ? b->width : b->rows);
    left = (n - (int)b->width) / 2;
    top = (n - (int)b->rows) / 2;
    rc = pl_image_init(&square, n, n, 3);
    if (rc) return rc;
    memset(square.pixels, 255, (size_t)n * (size_t)n * 3);
    for (int y = 0; y < (int)b->rows; y++)
        for (int x = 0; x < (int)b->width; x++) {
            const uint8_t *from = b->buffer + y * b->pitch + 4 * x;
            uint8_t *to = square.pixels + ((top + y) * n + left + x) * 3;
            for (int c = 0; c < 3; c++) to[c] = (uint8_t)(from[2 - c] + 255 - from[3]);
        }
    rc = pl_resize(out, &square, side, side, PL_BICUBIC);
    pl_image_clear(&square);
    return rc;
}

static int open_font(FT_Library *library, FT_Face *face, hb_font_t **font, const char *path)
{
    if (FT_Init_FreeType(library) || FT_New_Face(*library, path, 0, face)) return PL_EIO;
    if (!(*face)->num_fixed_sizes || FT_Select_Size(*face, 0)) return PL_EFORMAT;
    *font = hb_ft_font_create_referenced(*face);
    return PL_OK;
}

static int fail(const char *text)
{
    fprintf(stderr, "draw_emoji: %s\n", text);
    return 1;
}

int main(int argc, char **argv)
{
    FT_Library library;
    FT_Face face;
    hb_font_t *font;
    struct pl_file_out list;
    struct hold_out held = { 0 };
    struct pl_err err;
    struct emoji e;
    char line[1024], path[4096], images[4096];
    int side = argc > 4 ? atoi(argv[4]) : 64;
    long drawn = 0, missing = 0;
    FILE *test;
    if (argc < 4 || argc > 5 || side < 8 || side > 1024)
        return fail("usage: draw_emoji emoji-test.txt font.ttf folder [side]"), 2;
    if (!(test = fopen(argv[1], "r"))) return fail("cannot read emoji-test.txt (unicode-data)");
    if (open_font(&library, &face, &font, argv[2]))
        return fail("no font with coloured bitmaps (fonts-noto-color-emoji)");
    snprintf(images, sizeof images, "%.4000s/images", argv[3]);
    if ((mkdir(argv[3], 0755) && errno != EEXIST) || (mkdir(images, 0755) && errno != EEXIST))
        return fail("cannot create the folder");
    snprintf(path, sizeof path, "%.4000s/captions.tsv", argv[3]);
    if (pl_file_create(&list, path, &err)) return fail(err.text);
    while (fgets(line, sizeof line, test)) {
        struct pl_image image;
        hb_codepoint_t glyph;
        char stem[POINTS_MAX * 7 + 1] = "", entry[512];
        if (!parse_line(&e, line)) continue;
        glyph = shape(font, &e);
        if (!glyph || draw(&image, face, glyph, side)) {
            fprintf(stderr, "draw_emoji: not in the font: %s\n", e.name);
            missing++;
            continue;
        }
        for (size_t i = 0; i < e.points; i++)
            snprintf(stem + strlen(stem), sizeof stem - strlen(stem), "%s%x", i ? "-" : "",
                     (unsigned)e.point[i]);
        snprintf(path, sizeof path, "%.3900s/%s.png", images, stem);
        snprintf(entry, sizeof entry, "images/%s.png\t%s\n", stem, e.name);
        if (pl_image_write_png(path, &image, &err) ||
            pl_file_append(&list, entry, strlen(entry), &err)) {
            pl_file_discard(&list);
            return fail(err.text);
        }
        pl_image_clear(&image);
        if (hold_out_see(&held, e.name)) return fail("out of memory");
        drawn++;
    }
    fclose(test);
    hb_font_destroy(font);
    FT_Done_Face(face);
    FT_Done_FreeType(library);
    if (pl_file_commit(&list, &err)) return fail(err.text);
    snprintf(path, sizeof path, "%.4000s/holdout.txt", argv[3]);
    if (hold_out_write(&held, path, &err)) return fail(err.text);
    printf("%ld emoji drawn into %s, %ld not in the font; %zu to be held out\n", drawn, images,
           missing, held.chosen);
    hold_out_clear(&held);
    return 0;
}
