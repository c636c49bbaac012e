/* pictures.c - loads a folder of pictures, resized and cropped to one square size. */
#include "pictures.h"
#include "resize.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define PICTURES_MAX (1u << 20) /* larger sets belong in shards */

static int is_picture(const struct dirent *d)
{
    static const char *const ends[] = { ".png", ".jpg", ".jpeg", ".webp" };
    const char *dot = strrchr(d->d_name, '.');
    for (size_t i = 0; dot && d->d_name[0] != '.' && i < PL_COUNT(ends); i++)
        if (!strcasecmp(dot, ends[i])) return 1;
    return 0;
}

static int add(struct pl_pictures *p, const char *path, const char *name, struct pl_err *err)
{
    size_t side = (size_t)p->side;
    struct pl_image image, square;
    uint8_t *to = p->pixels + p->count * 3 * side * side;
    int rc = pl_image_read(&image, path, err);
    if (rc) return rc;
    rc = pl_image_rgb(&image, PL_ALPHA_WHITE);
    if (!rc) rc = pl_resize_square(&square, &image, p->side, PL_BICUBIC);
    pl_image_clear(&image);
    if (rc) return pl_fail(err, rc, "%s: %s", path, pl_status_name(rc));
    for (size_t c = 0; c < 3; c++)
        for (size_t i = 0; i < side * side; i++) *to++ = square.pixels[3 * i + c];
    pl_image_clear(&square);
    p->name[p->count] = strdup(name);
    if (!p->name[p->count]) return pl_fail(err, PL_ENOMEM, "%s: no memory", path);
    p->count++;
    return PL_OK;
}

static int reserve(struct pl_pictures *p, size_t count, const char *path, struct pl_err *err)
{
    size_t bytes = 3 * (size_t)p->side * (size_t)p->side;
    if (count > PICTURES_MAX)
        return pl_fail(err, PL_ELIMIT, "%s: %zu pictures; the limit is %u", path, count,
                       PICTURES_MAX);
    p->pixels = pl_alloc(count, bytes);
    p->name = calloc(count, sizeof *p->name);
    if (!p->pixels || !p->name)
        return pl_fail(err, PL_ENOMEM, "%s: no memory for its pictures", path);
    return PL_OK;
}

int pl_pictures_read(struct pl_pictures *p, const char *path, int side, struct pl_err *err)
{
    struct dirent **entries = NULL;
    struct stat st;
    int n, rc;
    memset(p, 0, sizeof *p);
    p->side = side;
    if (stat(path, &st)) return pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode)) {
        const char *slash = strrchr(path, '/');
        rc = reserve(p, 1, path, err);
        if (!rc) rc = add(p, path, slash ? slash + 1 : path, err);
        if (rc) pl_pictures_clear(p);
        return rc;
    }
    n = scandir(path, &entries, is_picture, alphasort);
    if (n < 0) return pl_fail(err, PL_EIO, "%s: %s", path, strerror(errno));
    rc = n ? reserve(p, (size_t)n, path, err)
           : pl_fail(err, PL_ENOTFOUND, "%s: no .png, .jpg or .webp in this folder", path);
    for (int i = 0; i < n; i++) {
        char *file = rc ? NULL : pl_path_join(path, entries[i]->d_name);
        if (!rc)
            rc = file ? add(p, file, entries[i]->d_name, err)
                      : pl_fail(err, PL_ENOMEM, "%s: no memory", path);
        free(file);
        free(entries[i]);
    }
    free(entries);
    if (rc) pl_pictures_clear(p);
    return rc;
}

void pl_pictures_clear(struct pl_pictures *p)
{
    for (size_t i = 0; p->name && i < p->count; i++) free(p->name[i]);
    free(p->name);
    pl_free(p->pixels);
    memset(p, 0, sizeof *p);
}

int pl_picture_image(struct pl_image *image, const uint8_t *planes, int width, int height)
{
    size_t n = (size_t)width * (size_t)height;
    int rc = pl_image_init(image, width, height, 3);
    if (rc) return rc;
    for (size_t i = 0; i < n; i++)
        for (size_t c = 0; c < 3; c++) image->pixels[3 * i + c] = planes[c * n + i];
    return PL_OK;
}
