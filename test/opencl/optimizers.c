/* optimizers.c - 8-bit quantization and the optimizers. Code books are computed on the host and
 * uploaded with each call. */
#include "device.h"

#include <math.h>

static float *books_of(int *rc, const float *book, int count)
{
    float *p = ocl_scratch(rc, OCL_BOOKS, 2 * PL_CODES * sizeof *p);
    if (*rc == PL_OK) *rc = ocl_put(p, book, (size_t)count * PL_CODES * sizeof *p);
    return p;
}

/* The code books of both moments, one after the other. */
static float *moment_books(int *rc, enum pl_rule rule)
{
    float book[2 * PL_CODES];
    pl_codebook(book, PL_MAP_SIGNED, rule);
    pl_codebook(book + PL_CODES, PL_MAP_UNSIGNED, rule);
    return books_of(rc, book, 2);
}

int ocl_quantize(uint8_t *codes, float *absmax, const float *x, size_t n, size_t block,
                 enum pl_map map, enum pl_rule rule)
{
    float book[PL_CODES], *p;
    int rc;
    pl_codebook(book, map, rule);
    p = books_of(&rc, book, 1);
    return rc == PL_OK ? ocl_run("quantize", pl_blocks(n, block), "pppzzpi", codes, absmax, x, n,
                                 block, p, (int)rule)
                       : rc;
}

int ocl_dequantize(float *y, const uint8_t *codes, const float *absmax, size_t n, size_t block,
                   const float book[PL_CODES])
{
    int rc;
    float *p = books_of(&rc, book, 1);
    return rc == PL_OK ? ocl_run("dequantize", n, "pppzp", y, codes, absmax, block, p) : rc;
}

/* beta1, 1 - beta1, beta2, 1 - beta2, each rounded where the reference rounds it. */
static void rates_of(float rate[4], double beta1, double beta2)
{
    rate[0] = (float)beta1;
    rate[1] = (float)(1 - beta1);
    rate[2] = (float)beta2;
    rate[3] = (float)(1 - beta2);
}

/* The sum of `count` doubles of device memory, OCL_PARTS at a time. */
static int sum_of(double *sum, const double *part, size_t count)
{
    double host[OCL_PARTS];
    int rc = PL_OK;
    *sum = 0;
    for (size_t at = 0; rc == PL_OK && at < count; at += OCL_PARTS) {
        size_t some = count - at < OCL_PARTS ? count - at : OCL_PARTS;
        rc = ocl_get(host, part + at, some * sizeof *host);
        for (size_t i = 0; rc == PL_OK && i < some; i++) *sum += host[i];
    }
    return rc;
}

int ocl_lamb(struct pl_lamb_norms *norms, float *p, float *u, const float *g,
             const struct pl_moments *m, size_t n, const struct pl_lamb *step)
{
    size_t blocks = m->value[0] ? OCL_PARTS : pl_blocks(n, m->block);
    float rate[4], eps = (float)step->eps, decay = (float)step->decay;
    double pp, uu;
    int rc;
    double *part = ocl_scratch(&rc, OCL_SUMS, 2 * blocks * sizeof *part);
    rates_of(rate, step->beta1, step->beta2);
    if (rc != PL_OK) return rc;
    if (m->value[0]) {
        rc = ocl_run("lamb_float", blocks, "ppppppzvfff", part, u, g, p, m->value[0], m->value[1],
                     n, rate, step->clip, eps, decay);
    } else {
        float *books = moment_books(&rc, m->rule);
        if (rc == PL_OK)
            rc = ocl_run("lamb_coded", blocks, "ppppppppzzpivfff", part, u, g, p, m->code[0],
                         m->code[1], m->absmax[0], m->absmax[1], n, m->block, books, (int)m->rule,
                         rate, step->clip, eps, decay);
    }
    if (rc == PL_OK) rc = sum_of(&pp, part, blocks);
    if (rc == PL_OK) rc = sum_of(&uu, part + blocks, blocks);
    if (rc != PL_OK) return rc;
    norms->weight = (float)fmin(sqrt(pp), step->clamp);
    norms->step = (float)sqrt(uu);
    norms->trust = norms->weight == 0 || norms->step == 0 ? 1 : norms->weight / norms->step;
    return ocl_axpy(p, (float)(-step->lr * norms->trust), u, n);
}

int ocl_adam(float *p, const float *g, const struct pl_moments *m, size_t n,
             const struct pl_adam *step)
{
    float rate[4], *books, eps = (float)step->eps, keep = (float)(1 - step->lr * step->decay);
    float k = (float)(-step->lr / step->bias1), bias = (float)sqrt(step->bias2);
    int rc;
    rates_of(rate, step->beta1, step->beta2);
    if (m->value[0])
        return ocl_run("adam_float", n, "ppppvfffff", p, g, m->value[0], m->value[1], rate,
                       step->clip, eps, keep, k, bias);
    books = moment_books(&rc, m->rule);
    if (rc != PL_OK) return rc;
    return ocl_run("adam_coded", pl_blocks(n, m->block), "ppppppzzpivfffff", p, g, m->code[0],
                   m->code[1], m->absmax[0], m->absmax[1], n, m->block, books, (int)m->rule, rate,
                   step->clip, eps, keep, k, bias);
}
