/* golden_clip.c - replays golden/clip: which file is what, the resampling filters, the
 * preprocessing of real files. [spec images-and-text 2.2, 2.3, 2.5] */
#include "test/conform/golden/areas.h"
#include "test/conform/golden/golden.h"
#include "golden_clip.h"
#include "golden_container.h"
#include "data/images/resize.h"
#include "ref/small.h"

#include <stdio.h>
#include <string.h>

/* The tensor `name` as a picture; 0 after a line that says what is wrong. */
static int picture(struct golden *g, const struct st_file *f, const char *name,
                   struct pl_image *out)
{
    const struct st_tensor *t = pl_safetensors_find(f, name);
    memset(out, 0, sizeof *out);
    if (!t || t->dtype != PL_U8 || t->dims != 3 || t->shape[2] != 3 ||
        t->shape[0] > IMAGE_SIDE_MAX || t->shape[1] > IMAGE_SIDE_MAX ||
        pl_image_init(out, (int)t->shape[1], (int)t->shape[0], 3)) {
        golden_fail(g, name, "no U8 tensor [H,W,3] of this name, or out of memory");
        return 0;
    }
    memcpy(out->pixels, t->data, t->bytes);
    return 1;
}

/* Compares and clears `got`. */
static void compare(struct golden *g, const struct st_file *f, const char *name,
                    struct pl_image *got)
{
    struct pl_image want;
    size_t differ = 0;
    if (picture(g, f, name, &want)) {
        int same_size = got->width == want.width && got->height == want.height &&
                        got->channels == 3;
        for (size_t i = 0; same_size && i < (size_t)got->width * (size_t)got->height * 3; i++)
            differ += got->pixels[i] != want.pixels[i];
        golden_check(g, name, same_size && !differ, "%d x %d for %d x %d, %zu bytes differ",
                     got->width, got->height, want.width, want.height, differ);
    }
    pl_image_clear(&want);
    pl_image_clear(got);
}

static void resample(struct golden *g, const struct st_file *f, json_t *config)
{
    static const char *const filters[] = { [PL_BILINEAR] = "bilinear", [PL_BICUBIC] = "bicubic" };
    json_t *cases = json_object_get(config, "cases"), *sizes;
    size_t i;
    if (!json_array_size(cases)) golden_fail(g, "cases", "the configuration lists none");
    json_array_foreach(cases, i, sizes) for (int filter = 0; filter < 2; filter++)
    {
        char name[64];
        struct pl_image in, out;
        int width = (int)json_integer_value(json_array_get(sizes, 2));
        int height = (int)json_integer_value(json_array_get(sizes, 3));
        snprintf(name, sizeof name, "%02zu.input", i);
        if (!picture(g, f, name, &in)) continue;
        snprintf(name, sizeof name, "%02zu.%s", i, filters[filter]);
        if (pl_resize(&out, &in, width, height, (enum pl_filter)filter))
            golden_fail(g, name, "cannot resize to %d x %d", width, height);
        else compare(g, f, name, &out);
        pl_image_clear(&in);
    }
}

static int read_picture(struct golden *g, const char *name, struct pl_image *image)
{
    char file[300];
    struct pl_err err;
    int rc;
    snprintf(file, sizeof file, "%s/images/%s.png", g->folder, name);
    rc = pl_image_read(image, file, &err);
    if (rc) golden_fail(g, name, "%s", err.text);
    return !rc;
}

/* [3,n,n] of 0..1 against `rows`, every n/rows-th of which the tensor holds: scaled, shifted. */
static void compare_values(struct golden *g, const struct st_file *f, const char *name,
                           const struct pl_image *image, const double *mean, const double *std)
{
    const struct st_tensor *t = pl_safetensors_find(f, name);
    float *want, *got;
    if (!t) return; /* given for some pictures only */
    if (t->dims != 3 || t->shape[0] != 3 || t->shape[1] < 1 || t->shape[2] != image->width) {
        golden_fail(g, name, "shape does not fit a picture %d wide", image->width);
        return;
    }
    want = golden_floats(g, f, name, NULL);
    got = pl_alloc(t->n, sizeof *got);
    if (want && got) {
        int rows = (int)t->shape[1], n = image->width, every = image->height / rows;
        for (int c = 0; c < 3; c++)
            for (int y = 0; y < rows; y++)
                for (int x = 0; x < n; x++) {
                    float v = image->pixels[(y * every * n + x) * 3 + c] / 255.0f;
                    got[(c * rows + y) * n + x] = (float)((v - mean[c]) / std[c]);
                }
        golden_case(g, name, golden_absolute(got, want, t->n), 1e-6);
    }
    pl_free(want);
    pl_free(got);
}

static const double none[3] = { 0, 0, 0 }, one[3] = { 1, 1, 1 };
static const double half[3] = { 0.5, 0.5, 0.5 }; /* (v - 0.5) / 0.5 is 2v - 1 */

/* The VQGAN's input: a box or the centre, resized. */
static void vq_picture(struct golden *g, const struct st_file *f, const char *key, json_t *how)
{
    char name[200];
    struct pl_image in = { 0 }, box = { 0 }, out = { 0 };
    int size = (int)golden_int(g, how, "size"), rc = PL_OK;
    if (!read_picture(g, strchr(key, '.') + 1, &in)) return;
    if (!strncmp(key, "vq_crop.", 8)) {
        int side = (int)golden_int(g, how, "side");
        rc = pl_image_crop(&box, &in, (int)golden_int(g, how, "left"),
                           (int)golden_int(g, how, "top"), side, side);
        if (!rc) rc = pl_resize(&out, &box, size, size, PL_BILINEAR);
    } else rc = pl_resize_square(&out, &in, size, PL_BICUBIC);
    if (rc) golden_fail(g, key, "%s", pl_status_name(rc));
    else {
        snprintf(name, sizeof name, "%s.tensor", key);
        compare_values(g, f, name, &out, none, one);
        snprintf(name, sizeof name, "%s.x", key);
        compare_values(g, f, name, &out, half, half);
        snprintf(name, sizeof name, "%s.rgb", key);
        compare(g, f, name, &out);
    }
    pl_image_clear(&in);
    pl_image_clear(&box);
}

static void clip_picture(struct golden *g, const struct st_file *f, const char *key, int side,
                         const double *mean, const double *std)
{
    char name[200];
    struct pl_image in, out, whole;
    int64_t w, h;
    if (!read_picture(g, key, &in)) return;
    snprintf(name, sizeof name, "%s.decoded_rgb", key);
    if (pl_safetensors_find(f, name) && !pl_image_crop(&out, &in, 0, 0, in.width, in.height) &&
        !pl_image_rgb(&out, PL_ALPHA_DROP))
        compare(g, f, name, &out);
    w = in.width;
    h = in.height;
    snprintf(name, sizeof name, "%s.resized_rgb", key);
    if (!pl_resize(&whole, &in, w <= h ? side : (int)(side * w / h),
                   w <= h ? (int)(side * h / w) : side, PL_BICUBIC) &&
        !pl_image_rgb(&whole, PL_ALPHA_DROP))
        compare(g, f, name, &whole);
    if (pl_resize_square(&out, &in, side, PL_BICUBIC) || pl_image_rgb(&out, PL_ALPHA_DROP))
        golden_fail(g, key, "cannot be resized to %d", side);
    else {
        snprintf(name, sizeof name, "%s.tensor", key);
        compare_values(g, f, name, &out, mean, std);
        snprintf(name, sizeof name, "%s.tensor_rows", key);
        compare_values(g, f, name, &out, mean, std);
        snprintf(name, sizeof name, "%s.cropped_rgb", key);
        if (pl_safetensors_find(f, name)) compare(g, f, name, &out);
        pl_image_clear(&out);
    }
    pl_image_clear(&in);
}

/* Pictures in [0,1] become bytes by truncation. [spec images-and-text 2.4] */
static void to_bytes(struct golden *g, const struct st_file *f)
{
    const struct st_tensor *t = pl_safetensors_find(f, "to_bytes.float");
    struct pl_image out;
    float *value;
    if (!t) return;
    value = golden_floats(g, f, "to_bytes.float", NULL);
    if (!value || t->dims != 3 || t->shape[0] != 3 ||
        pl_image_init(&out, (int)t->shape[2], (int)t->shape[1], 3)) {
        golden_fail(g, "to_bytes.float", "not [3,H,W]");
        pl_free(value);
        return;
    }
    for (size_t i = 0, n = t->n / 3; i < n; i++)
        for (size_t c = 0; c < 3; c++) out.pixels[3 * i + c] = (uint8_t)(value[c * n + i] * 255);
    compare(g, f, "to_bytes.u8", &out);
    pl_free(value);
}

static void preprocess(struct golden *g, const struct st_file *f, json_t *config)
{
    double mean[3], std[3];
    const char *key;
    json_t *how;
    for (size_t c = 0; c < 3; c++) {
        mean[c] = json_number_value(json_array_get(json_object_get(config, "mean"), c));
        std[c] = json_number_value(json_array_get(json_object_get(config, "std"), c));
    }
    json_object_foreach(json_object_get(config, "images"), key, how)
    {
        json_t *own = json_object_get(how, "n_px");
        if (!strncmp(key, "vq_", 3) && strchr(key, '.')) vq_picture(g, f, key, how);
        else
            clip_picture(g, f, key,
                         own ? (int)json_integer_value(own) : (int)golden_int(g, config, "n_px"),
                         mean, std);
    }
    to_bytes(g, f);
}

int golden_area_clip(struct golden *g, const char *path, const char *stem)
{
    struct st_file *f;
    json_t *config;
    int known = 1;
    if (strstr(stem, "container")) {
        golden_container(g, path, stem);
        return 1;
    }
    if (pl_ends_with(path, ".state_dict.json")) {
        clip_golden_names(g, path);
        return 1;
    }
    if (!pl_ends_with(path, ".safetensors")) return 0;
    if (pl_ends_with(stem, ".weights")) {
        clip_golden_weights(g, path);
        return 1;
    }
    if (!(f = golden_open(g, path))) return 1;
    config = golden_meta(g, f, "config");
    if (!config) known = 1;
    else if (!strncmp(stem, "resample", 8)) resample(g, f, config);
    else if (!strncmp(stem, "preprocess", 10)) preprocess(g, f, config);
    else if (!strncmp(stem, "rerank", 6)) clip_golden_rerank(g, f, config);
    else if (pl_ends_with(stem, ".io")) clip_golden_io(g, f, config, stem);
    else known = 0;
    json_decref(config);
    pl_safetensors_close(f);
    return known;
}
