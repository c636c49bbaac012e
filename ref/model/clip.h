/* clip.h - CLIP with a vision transformer: pictures and captions to vectors whose angle measures
 * how well they match; the reference run generated 128 pictures a caption and showed the best. [TTT
 * 3.4] [Radford et al. 2021] [spec images-and-text 2.1, 2.4] */
#ifndef PL_CLIP_H
#define PL_CLIP_H

#include "prenorm.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PL_CLIP_HEAD 64 /* channels of a head, in every published model */

struct pl_clip_config {
    int embed;                                     /* width of the common vectors */
    int image, patch, vision_width, vision_layers; /* pixels a side of pictures and of patches */
    int context, vocab, text_width, text_layers;
};
/* The official ViT-B/32. */
struct pl_clip_config pl_clip_vit_b_32(void);
/* PL_EUSE with a sentence if the numbers make no model. */
int pl_clip_check(const struct pl_clip_config *config, struct pl_err *err);

struct pl_clip_model {
    struct pl_clip_config config;
    struct pl_params params;    /* in the official order, under the official names */
    struct pl_scratch *scratch; /* set before a model runs: runtime/models.h */
    struct pl_prenorm vision, text;
    size_t conv, class_embedding, vision_position, pre_weight, pre_bias, post_weight, post_bias,
        vision_proj;
    size_t tokens, text_position, final_weight, final_bias, text_proj, scale;
    /* Called, unless NULL, with a tower's values outside its blocks: "visual.conv1",
     * "visual.ln_pre", "visual.ln_post", "text.token_embedding", "text.ln_final". */
    void (*watch)(void *context, const char *name, const float *at, size_t n);
    void *context;
};

/* Names and shapes, without memory for values (runtime/models.h has pl_clip_init). The config has
 * been checked. */
int pl_clip_declare(struct pl_clip_model *m, const struct pl_clip_config *config);

/* Vectors (B,embed), not yet of length 1, host memory, from pictures (B,3,image,image), normalised
 * (pl_clip_pixels), or rows of tokens (B,context) in 0..vocab-1, which the caller has checked. A
 * row's end is its largest id, the first if there are several. */
int pl_clip_images(struct pl_clip_model *m, float *vectors, const float *pixels, int B);
int pl_clip_texts(struct pl_clip_model *m, float *vectors, const int32_t *tokens, int B);

/* The pictures' bytes (image,image,3) to planes, each channel's mean taken off and spread made
 * 1. */
void pl_clip_pixels(float *pixels, const uint8_t *rgb, int image);

/* logits (texts,images) = exp(scale) * cosine of the angle between them; host memory. */
int pl_clip_logits(struct pl_clip_model *m, float *logits, const float *text, int texts,
                   const float *image, int images);
/* order (n): pictures by falling logit, equal ones as they came; prob (n), if not NULL: softmax
 * over the pictures, by picture. */
void pl_clip_rank(int32_t *order, float *prob, const float *logits, int n);

#ifdef __cplusplus
}
#endif
#endif
