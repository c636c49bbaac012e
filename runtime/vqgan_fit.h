/* vqgan_fit.h - a small codec trained from nothing on a set of pictures, on one machine.
 *
 *   1. the encoder and decoder learn without codes
 *   2. k-means over the encoder's maps gives the table
 *   3. all three learn together; at a few steps, rows of the table that were never used are moved
 *      to where the table fits worst
 *
 * Why at a few steps: if rows were moved at every step, many would become near-copies of the most
 * frequent patch, such as a white background. This costs the codec little, but a model that
 * predicts tokens cannot tell such copies apart. */
#ifndef PL_VQGAN_FIT_H
#define PL_VQGAN_FIT_H

#include "optimizer.h"
#include "../ref/model/vqgan_train.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pl_vqgan_fit_options {
    struct pl_vqgan_task task; /* no_codes is set as the order of events says */
    int64_t steps;
    int batch;
    double lr;        /* warms up over 100 steps, then falls by half a cosine to 2 % */
    double free_part; /* share of the steps without codes; nearest codes only */
    int reseeds;      /* moments, spread over the first half of the rest */
    struct pl_temperature temperature; /* Gumbel codes only */
    uint64_t seed;
};
/* L1 + 2 L2, beta 0.25 on the encoder, rate 1e-3, batches of 8. */
struct pl_vqgan_fit_options pl_vqgan_fit_defaults(int64_t steps);

struct pl_vqgan_fit;

/* pictures (count,3,side,side), bytes, host, borrowed; side a multiple of pl_vqgan_factor. m has
 * gradients and initial values; it is borrowed. On error *f is NULL. */
int pl_vqgan_fit_open(struct pl_vqgan_fit **f, struct pl_vqgan *m,
                      const struct pl_vqgan_fit_options *options, const uint8_t *pictures,
                      size_t count, int side, struct pl_err *err);
void pl_vqgan_fit_close(struct pl_vqgan_fit *f);

/* One batch, drawn without repetition until all pictures were seen. A loss that is not finite is
 * PL_ELIMIT, and the parameters are then as before. */
int pl_vqgan_fit_step(struct pl_vqgan_fit *f, struct pl_vqgan_loss *loss);
int64_t pl_vqgan_fit_steps(const struct pl_vqgan_fit *f);

/* The place of a training between two steps, beyond the model's parameters and the optimizer's
 * state: setting all three continues it bit for bit. */
struct pl_vqgan_fit_place {
    int64_t step;
    struct pl_rng rng;
    size_t next;    /* place in `order` */
    size_t *order;  /* (count) of the pictures */
    uint64_t *uses; /* (n_embed) of the codes since the table was mended */
};
/* The arrays are borrowed until the next step. */
struct pl_vqgan_fit_place pl_vqgan_fit_place(const struct pl_vqgan_fit *f);
/* Copies the arrays. PL_EFORMAT, and nothing changes, if `order` has not each picture once, or a
 * number is out of range; PL_ENOMEM. */
int pl_vqgan_fit_set_place(struct pl_vqgan_fit *f, const struct pl_vqgan_fit_place *at);
/* Its own; its state is saved and loaded with the place. */
struct pl_optimizer *pl_vqgan_fit_optimizer(struct pl_vqgan_fit *f);

/* Pixels between bytes and the model's range: x / 127.5 - 1, and back, rounded and clamped. */
void pl_pixels_in(float *x, const uint8_t *pixels, size_t n);
void pl_pixels_out(uint8_t *pixels, const float *x, size_t n);

#ifdef __cplusplus
}
#endif
#endif
