/* vqgan_train.h - gradients of a VQGAN: reconstruction and quantizer loss. The published models
 * had a perceptual and an adversarial term besides. [Esser et al. 2021] [spec images-and-text
 * 1.6, 1.7] */
#ifndef PL_VQGAN_TRAIN_H
#define PL_VQGAN_TRAIN_H

#include "vqgan.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pl_vqgan_task {
    float l1, l2;      /* weights of mean |x - y| and mean (x - y)^2 */
    int no_codes;      /* 1: the decoder sees the encoder's map itself, before there is a table */
    float quantizer;   /* weight of the quantizer's loss */
    float beta;        /* nearest codes: weight of the weaker of its two terms, 0.25 */
    int legacy;        /* 1: beta on the table, as the published models; 0: on the encoder */
    float temperature; /* Gumbel codes */
    int soft;          /* Gumbel codes: 1 decodes the mixture, 0 the code (straight through) */
};
/* As published: L1, straight through, legacy with beta 0.25, temperature 0.9. */
struct pl_vqgan_task pl_vqgan_published_task(void);

struct pl_vqgan_loss {
    double l1, l2;    /* unweighted means */
    double quantizer; /* unweighted; Gumbel: kl_weight * KL to uniform */
    double total;
};

/* Losses of pictures x (B,3,H,W) in [-1,1] (host), H and W multiples of pl_vqgan_factor, and their
 * gradients, added to m->params.grad. noise (B,n_embed,h,w), host: Gumbel codes only, NULL: none.
 * y and code (host, NULL: not wanted) get the reconstruction and the codes. */
int pl_vqgan_gradient(struct pl_vqgan *m, struct pl_vqgan_loss *loss, float *y, int32_t *code,
                      const struct pl_vqgan_task *task, const float *x, const float *noise, int B,
                      int H, int W);

#ifdef __cplusplus
}
#endif
#endif
