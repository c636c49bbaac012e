/* vqgan_measure.c - what a codec makes of a set of pictures: its errors, how it uses its codes,
 * and a sheet to look at. */
#include "vqgan.h"
#include "data/images/contact_sheet.h"
#include "runtime/vqgan_fit.h"
#include "cmd/common/plural.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define BATCH 16 /* pictures at a time where nothing depends on it */

double vqgan_psnr(double mse) { return mse > 0 ? -10 * log10(mse) : INFINITY; }

/* A codec's account of a set of pictures. */
struct account {
    double mse;       /* of pixels in [0,1] */
    double mean_psnr; /* of single pictures */
    double bits;      /* entropy of the codes */
    size_t used;      /* codes that occur */
    double most;      /* share of the most frequent one */
};

/* Encodes and decodes n pictures, as bytes; code (n, places). */
static int reconstruct(struct pl_vqgan *m, uint8_t *out, int32_t *code, const uint8_t *in, size_t n,
                       int side)
{
    size_t floats = 3 * (size_t)side * (size_t)side;
    int codes = pl_vqgan_codes(&m->config, side), rc = PL_OK;
    size_t places = (size_t)codes * (size_t)codes;
    float *x = pl_alloc(BATCH * floats, sizeof *x);
    if (!x) return PL_ENOMEM;
    for (size_t i = 0; !rc && i < n; i += BATCH) {
        size_t B = n - i < BATCH ? n - i : BATCH;
        pl_pixels_in(x, in + i * floats, B * floats);
        rc = pl_vqgan_encode(m, code + i * places, NULL, x, NULL, (int)B, side, side);
        if (!rc) rc = pl_vqgan_decode(m, x, code + i * places, (int)B, codes, codes);
        if (!rc) pl_pixels_out(out + i * floats, x, B * floats);
    }
    pl_free(x);
    return rc;
}

static int examine(struct account *a, struct pl_vqgan *m, uint8_t *out, const struct pl_pictures *p)
{
    size_t floats = 3 * (size_t)p->side * (size_t)p->side;
    size_t codes = (size_t)pl_vqgan_codes(&m->config, p->side), N = (size_t)m->config.n_embed;
    size_t total = p->count * codes * codes;
    int32_t *code = pl_alloc(total, sizeof *code);
    uint64_t *uses = pl_alloc(N, sizeof *uses);
    int rc = code && uses ? reconstruct(m, out, code, p->pixels, p->count, p->side) : PL_ENOMEM;
    *a = (struct account){ 0 };
    for (size_t i = 0; !rc && i < p->count; i++) {
        double sum = 0;
        for (size_t k = i * floats; k < (i + 1) * floats; k++) {
            double d = ((double)out[k] - p->pixels[k]) / 255;
            sum += d * d;
        }
        a->mse += sum / (double)(floats * p->count);
        a->mean_psnr += vqgan_psnr(sum / (double)floats) / (double)p->count;
    }
    for (size_t i = 0; !rc && i < total; i++) uses[code[i]]++;
    for (size_t n = 0; !rc && n < N; n++) {
        a->used += uses[n] > 0;
        if ((double)uses[n] / (double)total > a->most) a->most = (double)uses[n] / (double)total;
    }
    if (!rc) a->bits = pl_code_entropy(uses, N);
    pl_free(code);
    pl_free(uses);
    return rc;
}

/* A choice spread over the set: rows of originals, each above a row of reconstructions. */
static int write_sheet(const char *path, const struct pl_pictures *p, const uint8_t *out,
                       struct pl_err *err)
{
    enum { COLUMNS = 16, ROWS = 6 };
    struct pl_image *cells = calloc(2 * COLUMNS * ROWS, sizeof *cells), sheet;
    size_t floats = 3 * (size_t)p->side * (size_t)p->side;
    size_t count = p->count < COLUMNS * ROWS ? p->count : COLUMNS * ROWS;
    size_t rows = (count + COLUMNS - 1) / COLUMNS;
    int rc = cells ? PL_OK : PL_ENOMEM;
    for (size_t i = 0; !rc && i < rows * COLUMNS; i++) {
        size_t picture = (i < count ? i : 0) * p->count / count;
        size_t cell = i / COLUMNS * 2 * COLUMNS + i % COLUMNS;
        rc = pl_picture_image(&cells[cell], p->pixels + picture * floats, p->side, p->side);
        if (!rc)
            rc = pl_picture_image(&cells[cell + COLUMNS], out + picture * floats, p->side, p->side);
    }
    if (!rc) rc = pl_sheet(&sheet, cells, 2 * rows * COLUMNS, COLUMNS, 2);
    if (rc) {
        pl_fail(err, rc, "%s: %s", path, pl_status_name(rc));
    } else {
        rc = pl_image_write_png(path, &sheet, err);
        pl_image_clear(&sheet);
    }
    for (size_t i = 0; cells && i < 2 * COLUMNS * ROWS; i++) pl_image_clear(&cells[i]);
    free(cells);
    return rc;
}

int vqgan_report(struct pl_vqgan *m, const struct pl_pictures *p, const char *sheet)
{
    uint8_t *out = pl_alloc(p->count, 3 * (size_t)p->side * (size_t)p->side);
    struct account a;
    struct pl_err err;
    double start = pl_seconds();
    int rc = out ? examine(&a, m, out, p) : PL_ENOMEM;
    if (rc) {
        pl_free(out);
        return vqgan_fail_status("measuring", rc, m->params.be, 0);
    }
    printf("%zu picture%s: PSNR %.2f dB (mean of pictures %.2f dB), %.1f pictures/s\n", p->count,
           PLURAL(p->count), vqgan_psnr(a.mse), a.mean_psnr,
           (double)p->count / (pl_seconds() - start));
    printf("codes: %zu of %d used, entropy %.2f of %.2f bits, most frequent %.1f %%\n", a.used,
           m->config.n_embed, a.bits, log2(m->config.n_embed), 100 * a.most);
    if (sheet && write_sheet(sheet, p, out, &err)) rc = vqgan_fail(&err);
    pl_free(out);
    return rc;
}
