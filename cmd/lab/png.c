/* png.c - librsvg and cairo by dlopen, at their first use. Their headers are not needed: the few
 * functions below have not changed since librsvg 2.46. */
#include "png.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define SCALE 2.0
#define CAIRO_FORMAT_RGB24 1
#define PIXELS_MAX 20000.0 /* of a side: cairo's images have at most 32,767 */

struct rectangle {
    double x, y, width, height;
};

static struct {
    void *(*handle_new_from_data)(const uint8_t *data, size_t bytes, void **error);
    int (*handle_render_document)(void *handle, void *cairo, const struct rectangle *viewport,
                                  void **error);
    void (*unref)(void *object);
    void *(*image_surface_create)(int format, int width, int height);
    void *(*create)(void *surface);
    int (*surface_write_to_png)(void *surface, const char *path);
    void (*destroy)(void *cairo);
    void (*surface_destroy)(void *surface);
} f;

/* A function's address as an object's: C has no cast for it, POSIX has the two alike. */
static int find(void *library, const char *name, void *function)
{
    void *found = library ? dlsym(library, name) : NULL;
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

static int load(struct pl_err *err)
{
    static int is_loaded;
    void *rsvg, *cairo, *gobject;
    if (is_loaded) return PL_OK;
    rsvg = dlopen("librsvg-2.so.2", RTLD_NOW | RTLD_LOCAL);
    cairo = dlopen("libcairo.so.2", RTLD_NOW | RTLD_LOCAL);
    gobject = dlopen("libgobject-2.0.so.0", RTLD_NOW | RTLD_LOCAL);
    is_loaded = find(rsvg, "rsvg_handle_new_from_data", &f.handle_new_from_data) &&
                find(rsvg, "rsvg_handle_render_document", &f.handle_render_document) &&
                find(gobject, "g_object_unref", &f.unref) &&
                find(cairo, "cairo_image_surface_create", &f.image_surface_create) &&
                find(cairo, "cairo_create", &f.create) &&
                find(cairo, "cairo_surface_write_to_png", &f.surface_write_to_png) &&
                find(cairo, "cairo_destroy", &f.destroy) &&
                find(cairo, "cairo_surface_destroy", &f.surface_destroy);
    return is_loaded ? PL_OK
                     : pl_fail(err, PL_ENOTFOUND,
                               "figures are written as SVG only: PNG needs librsvg 2.46 or newer "
                               "(Debian: librsvg2-2)");
}

int lab_png_write(const char *path, const char *svg, size_t bytes, struct pl_err *err)
{
    struct rectangle viewport = { 0, 0, 0, 0 };
    const char *box = strstr(svg, "viewBox=\"0 0 ");
    void *handle, *surface, *cairo;
    int rc = load(err), is_good;
    if (rc) return rc;
    if (!box || sscanf(box, "viewBox=\"0 0 %lf %lf", &viewport.width, &viewport.height) != 2 ||
        !(viewport.width > 0 && viewport.width * SCALE < PIXELS_MAX) ||
        !(viewport.height > 0 && viewport.height * SCALE < PIXELS_MAX))
        return pl_fail(err, PL_EFORMAT, "%s: a figure without a size, or too large a one", path);
    viewport.width *= SCALE;
    viewport.height *= SCALE;
    handle = f.handle_new_from_data((const uint8_t *)svg, bytes, NULL);
    surface = f.image_surface_create(CAIRO_FORMAT_RGB24, (int)viewport.width, (int)viewport.height);
    cairo = f.create(surface);
    is_good = handle && f.handle_render_document(handle, cairo, &viewport, NULL) &&
              f.surface_write_to_png(surface, path) == 0;
    f.destroy(cairo);
    f.surface_destroy(surface);
    if (handle) f.unref(handle);
    return is_good ? PL_OK : pl_fail(err, PL_EIO, "%s: cannot draw or write it", path);
}
