/* vqgan.h - what the parts of `potluck vqgan` share. */
#ifndef PL_CMD_VQGAN_H
#define PL_CMD_VQGAN_H

#include "cmd/common/compute.h"
#include "data/images/pictures.h"
#include "ref/model/vqgan.h"
#include "runtime/vqgan_fit.h"

struct vqgan_options {
    const char *data, *weights, *codes, *out, *sheet, *config, *init;
    int64_t side, seed, steps, batch;
    double lr;
    struct compute compute;
    int sample, float32, resume;
};

/* A line on standard error; 1. */
int vqgan_fail(const struct pl_err *err);
/* The same of an operation, with what compute_explain adds. */
int vqgan_fail_status(const char *what, int rc, const struct pl_backend *be, int64_t batch);
/* Opens a codec; a line and 1 on failure. */
int vqgan_open(struct pl_vqgan *m, const char *path, const struct pl_backend *be);
/* Opens what computes and says its name; a line and 1 on failure. */
int vqgan_backend(struct pl_backend *be, struct vqgan_options *o);
/* The pictures' side: the user's option, or the model's own, a multiple of its factor. */
int vqgan_side(const struct vqgan_options *o, const struct pl_vqgan_config *c);

/* Of pixels in [0,1]. */
double vqgan_psnr(double mse);
/* Measures how well the codec reconstructs the pictures, on standard output and, if `sheet` is
 * given, as a picture. */
int vqgan_report(struct pl_vqgan *m, const struct pl_pictures *p, const char *sheet);

int vqgan_train(struct vqgan_options *o);

/* The training as it is now, in OUT.resume: complete or not at all. */
int vqgan_resume_save(const struct pl_vqgan *m, struct pl_vqgan_fit *f,
                      const struct vqgan_options *o, const struct pl_pictures *p,
                      struct pl_err *err);
/* Sets parameters, optimizer and place to those in OUT.resume. PL_EUSE names the first option that
 * differs from that training's, with both values. */
int vqgan_resume_load(struct pl_vqgan *m, struct pl_vqgan_fit *f, const struct vqgan_options *o,
                      const struct pl_pictures *p, struct pl_err *err);
/* At the end of a training. */
void vqgan_resume_remove(const struct vqgan_options *o);

#endif
