/* sample_images.h - from captions to pictures: a trained transformer, its tokenizer and the codec
 * that turns codes into pixels. */
#ifndef PL_CMD_PAINT_H
#define PL_CMD_PAINT_H

#include "data/images/image.h"
#include "data/text/unigram.h"
#include "runtime/generate.h"
#include "ref/model/vqgan.h"

struct image_sampler {
    struct pl_dalle *model;
    struct unigram *tokenizer;
    struct pl_vqgan codec;
    int has_codec;
};

/* Any path may be NULL: that part is then absent. model: a checkpoint file, or a folder whose
 * newest "checkpoint-<step>.safetensors" is taken; config: the sizes of one that does not carry its
 * own, a name or a file, NULL: the run's. be is borrowed. */
int image_sampler_open(struct image_sampler *p, const struct pl_backend *be, const char *model,
                       const char *config, const char *tokenizer, const char *codec,
                       struct pl_err *err);
void image_sampler_close(struct image_sampler *p);

/* tokens (T), cut or padded as in training. */
int image_sampler_tokens(const struct image_sampler *p, int32_t *tokens, const char *caption,
                         struct pl_err *err);
/* RGB pictures of n images' codes (n,I); the caller clears each, also after an error. */
int image_sampler_decode(struct image_sampler *p, struct pl_image *images, const int32_t *codes,
                         int n, struct pl_err *err);

#endif
