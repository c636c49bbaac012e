/* contact_sheet.c - lays pictures out in a grid of equal cells. */
#include "contact_sheet.h"

#include <string.h>

int pl_sheet(struct pl_image *out, const struct pl_image *pictures, size_t count, int columns,
             int gap)
{
    int64_t width = 1, height = 1, rows;
    int rc;
    memset(out, 0, sizeof *out);
    if (columns < 1 || gap < 0 || gap > IMAGE_SIDE_MAX || count > IMAGE_PIXELS_MAX) return PL_EUSE;
    rows = ((int64_t)count + columns - 1) / columns;
    for (size_t i = 0; i < count; i++) {
        if (pictures[i].width > width) width = pictures[i].width;
        if (pictures[i].height > height) height = pictures[i].height;
    }
    if (gap + columns * (width + gap) > IMAGE_SIDE_MAX ||
        gap + rows * (height + gap) > IMAGE_SIDE_MAX)
        return PL_ELIMIT;
    rc = pl_image_init(out, (int)(gap + columns * (width + gap)),
                       (int)(gap + rows * (height + gap)), 3);
    if (rc) return rc;
    memset(out->pixels, 255, (size_t)out->width * (size_t)out->height * 3);
    for (size_t i = 0; i < count; i++) {
        int64_t left = gap + (int64_t)i % columns * (width + gap);
        int64_t top = gap + (int64_t)i / columns * (height + gap);
        struct pl_image one;
        rc = pl_image_crop(&one, &pictures[i], 0, 0, pictures[i].width, pictures[i].height);
        if (!rc) rc = pl_image_rgb(&one, PL_ALPHA_WHITE);
        for (int y = 0; !rc && y < one.height; y++)
            memcpy(out->pixels + ((size_t)(top + y) * (size_t)out->width + (size_t)left) * 3,
                   one.pixels + (size_t)y * (size_t)one.width * 3, (size_t)one.width * 3);
        pl_image_clear(&one);
        if (rc) {
            pl_image_clear(out);
            return rc;
        }
    }
    return PL_OK;
}
