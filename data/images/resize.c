/* resize.c - separable resampling in two passes, rows first. Weights are fixed-point integers, and
 * intermediate bytes are rounded and clamped, as in Pillow: so results are equal byte for byte.
 * [spec images-and-text 2.3] */
#include "resize.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WEIGHT_BITS 22 /* integer weights: 1.0 is 2^22 */

static double bilinear(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

static double bicubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2) return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

/* Output i is a weighted sum of inputs first[i] .. first[i]+count[i]-1, with weights at weight[i *
 * capacity]. */
struct taps {
    int *first, *count;
    int32_t *weight;
    size_t capacity;
};

static void taps_clear(struct taps *t)
{
    free(t->first);
    free(t->count);
    free(t->weight);
}

static int taps_init(struct taps *t, int in, int out, enum pl_filter filter)
{
    double (*f)(double) = filter == PL_BICUBIC ? bicubic : bilinear;
    double scale = (double)in / out, stretch = scale > 1 ? scale : 1;
    double reach = (filter == PL_BICUBIC ? 2 : 1) * stretch, inverse = 1 / stretch;
    double *w;
    t->capacity = (size_t)ceil(reach) * 2 + 1;
    t->first = malloc((size_t)out * sizeof *t->first);
    t->count = malloc((size_t)out * sizeof *t->count);
    t->weight = calloc((size_t)out * t->capacity, sizeof *t->weight);
    w = malloc(t->capacity * sizeof *w);
    if (!t->first || !t->count || !t->weight || !w) {
        free(w);
        taps_clear(t);
        return PL_ENOMEM;
    }
    for (int i = 0; i < out; i++) {
        double c = (i + 0.5) * scale, sum = 0;
        int first = (int)(c - reach + 0.5), end = (int)(c + reach + 0.5);
        if (first < 0) first = 0;
        if (end > in) end = in;
        for (int j = first; j < end; j++) sum += w[j - first] = f((j - c + 0.5) * inverse);
        for (int j = 0; j < end - first; j++) {
            double x = w[j];
            if (sum != 0) x *= 1 / sum;
            x *= 1 << WEIGHT_BITS;
            t->weight[(size_t)i * t->capacity + (size_t)j] = (int32_t)(x < 0 ? x - 0.5 : x + 0.5);
        }
        t->first[i] = first;
        t->count[i] = end - first;
    }
    free(w);
    return PL_OK;
}

/* One pass along an axis: elements are `step` bytes apart, and `lines` lines are `in_stride` and
 * `out_stride` bytes apart. */
static void run(uint8_t *out, const uint8_t *in, const struct taps *t, int n, size_t step,
                int lines, size_t in_stride, size_t out_stride, int channels)
{
    for (int line = 0; line < lines; line++, in += in_stride, out += out_stride)
        for (int i = 0; i < n; i++)
            for (int c = 0; c < channels; c++) {
                const uint8_t *from = in + (size_t)t->first[i] * step + c;
                const int32_t *w = t->weight + (size_t)i * t->capacity;
                int32_t sum = 1 << (WEIGHT_BITS -
                                    /* the |weights| sum to less than 2, so sums stay below 2^31 */
                                    1);
                for (int j = 0; j < t->count[i]; j++) sum += w[j] * from[(size_t)j * step];
                sum = sum < 0 ? 0 : sum >> WEIGHT_BITS;
                out[(size_t)i * step + (size_t)c] = (uint8_t)(sum > 255 ? 255 : sum);
            }
}

static int pass_rows(struct pl_image *out, const struct pl_image *in, int width,
                     enum pl_filter filter)
{
    struct taps t;
    size_t step = (size_t)in->channels;
    int rc;
    memset(out, 0, sizeof *out);
    rc = taps_init(&t, in->width, width, filter);
    if (rc) return rc;
    rc = pl_image_init(out, width, in->height, in->channels);
    if (!rc)
        run(out->pixels, in->pixels, &t, width, step, in->height, (size_t)in->width * step,
            (size_t)width * step, in->channels);
    taps_clear(&t);
    return rc;
}

static int pass_columns(struct pl_image *out, const struct pl_image *in, int height,
                        enum pl_filter filter)
{
    struct taps t;
    size_t step = (size_t)in->width * (size_t)in->channels;
    int rc;
    memset(out, 0, sizeof *out);
    rc = taps_init(&t, in->height, height, filter);
    if (rc) return rc;
    rc = pl_image_init(out, in->width, height, in->channels);
    if (!rc)
        run(out->pixels, in->pixels, &t, height, step, in->width, (size_t)in->channels,
            (size_t)in->channels, in->channels);
    taps_clear(&t);
    return rc;
}

static int copy(struct pl_image *out, const struct pl_image *in)
{
    return pl_image_crop(out, in, 0, 0, in->width, in->height);
}

static int nearest(struct pl_image *out, const struct pl_image *in, int width, int height)
{
    size_t n = (size_t)in->channels;
    int rc = pl_image_init(out, width, height, in->channels);
    if (rc) return rc;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            size_t from_y = (size_t)((y + 0.5) * in->height / height);
            size_t from_x = (size_t)((x + 0.5) * in->width / width);
            memcpy(out->pixels + ((size_t)y * (size_t)width + (size_t)x) * n,
                   in->pixels + (from_y * (size_t)in->width + from_x) * n, n);
        }
    return PL_OK;
}

/* [spec images-and-text 2.2] */
static void premultiply(struct pl_image *image)
{
    size_t n = (size_t)image->channels, pixels = (size_t)image->width * (size_t)image->height;
    for (size_t i = 0; i < pixels; i++) {
        uint8_t *p = image->pixels + i * n;
        for (size_t c = 0; c + 1 < n; c++) {
            unsigned t = (unsigned)p[c] * p[n - 1] + 128;
            p[c] = (uint8_t)(((t >> 8) + t) >> 8);
        }
    }
}

static void divide(struct pl_image *image)
{
    size_t n = (size_t)image->channels, pixels = (size_t)image->width * (size_t)image->height;
    for (size_t i = 0; i < pixels; i++) {
        uint8_t *p = image->pixels + i * n;
        unsigned a = p[n - 1];
        if (a == 0 || a == 255) continue;
        for (size_t c = 0; c + 1 < n; c++) {
            unsigned t = 255u * p[c] / a;
            p[c] = (uint8_t)(t > 255 ? 255 : t);
        }
    }
}

int pl_resize(struct pl_image *out, const struct pl_image *in, int width, int height,
              enum pl_filter filter)
{
    struct pl_image a = { 0 }, b = { 0 };
    int alpha = in->channels % 2 == 0, rc;
    memset(out, 0, sizeof *out);
    if (width < 1 || height < 1) return PL_ELIMIT;
    if (!in->pixels) return pl_image_init(out, width, height, in->channels);
    if (width == in->width && height == in->height) rc = copy(out, in);
    else if (in->indexed) rc = nearest(out, in, width, height);
    else {
        rc = copy(&a, in);
        if (!rc && alpha) premultiply(&a);
        if (!rc && width != a.width) {
            rc = pass_rows(&b, &a, width, filter);
            pl_image_clear(&a);
            a = b;
        }
        if (!rc && height != a.height) {
            rc = pass_columns(&b, &a, height, filter);
            pl_image_clear(&a);
            a = b;
        }
        if (!rc && alpha) divide(&a);
        if (!rc) *out = a;
    }
    if (!rc) out->indexed = in->indexed;
    return rc;
}

/* Half of n, halves to even: round(0.5) is 0, round(1.5) is 2. */
static int half_to_even(int n) { return n / 2 + (n % 2 && n / 2 % 2); }

int pl_resize_square(struct pl_image *out, const struct pl_image *in, int side,
                     enum pl_filter filter)
{
    struct pl_image whole;
    int64_t w = in->width, h = in->height;
    int width = w <= h ? side : (int)(side * w / h), height = w <= h ? (int)(side * h / w) : side;
    int rc;
    memset(out, 0, sizeof *out);
    rc = pl_resize(&whole, in, width, height, filter);
    if (rc) return rc;
    rc = pl_image_crop(out, &whole, half_to_even(width - side), half_to_even(height - side), side,
                       side);
    pl_image_clear(&whole);
    return rc;
}
