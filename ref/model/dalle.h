/* dalle.h - the text-to-image transformer: token ids in, a loss and gradients out.
 * [TTT 3.1] [DALL-E: Ramesh et al. 2021, section 2.2]
 *
 * Here is the mathematics, over buffers that exist already. runtime/dalle_run.h opens a model with
 * its buffers and runs batches of any size through it. */
#ifndef PL_DALLE_H
#define PL_DALLE_H

#include "reversible.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In a training step the model sees random image tokens in place of this share of them; those that
 * it learns to predict stay. Sequence b of the batch draws from stream first + b of the seed. */
struct pl_token_noise {
    double share; /* 0: none (the reference run) */
    uint64_t seed, first;
};

struct pl_dalle {
    struct pl_dalle_config config;
    const struct pl_backend *be; /* borrowed */
    struct pl_params params;     /* in the official order, under the official names */
    struct pl_stack stack;
    /* Indices of parameters: the final norm, the output matrix (Vt,D) with its bias, which is also
     * the embedding; and, if the embedding is separate, its tables (Vx,D) and (Vi,D). */
    size_t norm_weight, norm_bias, embedding, output_bias;
    size_t text_embedding, image_embedding;

    /* Settings of runtime/dalle_run.h, which owns the buffers: how to keep activations
     * (PL_REVERSIBLE unless changed between steps), sequences at a time, shards of a batch; 0: its
     * own choice. */
    enum pl_activations activations;
    int samples, shards;
    struct pl_token_noise noise; /* of the next step; changed between steps */
    struct pl_dalle_buffers *buffers;
};

/* Names and shapes of all parameters, in the official order; the config has been checked. */
int pl_dalle_declare(struct pl_dalle *m);
/* Initial values: as DALLE-pytorch's [spec dalle 10]. */
int pl_dalle_init(struct pl_dalle *m, uint64_t seed);

/* One sequence, host memory: ids (min(T+1+count, S)) from text (T) and the first `count` image
 * tokens, and labels (S) from all of both. Both have been checked: 0..V-1 and 0..Vi-1. */
void pl_dalle_ids(const struct pl_dalle_config *c, int32_t *ids, const int32_t *text,
                  const int32_t *image, int count);
void pl_dalle_labels(const struct pl_dalle_config *c, int32_t *labels, const int32_t *text,
                     const int32_t *image);

/* From here on ids (B,n), labels (B,S) and floats are backend memory, and m->stack has capacity for
 * B * n positions.
 *
 * ids -> embedding -> blocks: the output is at pl_stack_output. save 1: backward may follow. */
int pl_dalle_forward(struct pl_dalle *m, const int32_t *ids, int B, int n, int save);
/* Output layer and loss of a forward pass with n = S. mean: nats a token of text and of image, host
 * memory; logp (B,S) or NULL: log-probabilities of the labels. With backward 1 the parameters'
 * gradients of scale * loss are added, and m->stack.da is the gradient of the blocks' output. */
int pl_dalle_output_loss(struct pl_dalle *m, double mean[2], float *logp, const int32_t *labels,
                         int B, double scale, int backward);
/* The rest of the way back: blocks, then embedding. */
int pl_dalle_backward(struct pl_dalle *m, const int32_t *ids, int B);

/* x (B,n,D) = embeddings of ids; x (M,D) = embeddings of M image tokens alone. */
int pl_dalle_embed(const struct pl_dalle *m, float *x, const int32_t *ids, int B, int n);
int pl_dalle_embed_image(const struct pl_dalle *m, float *x, const int32_t *image, int M);
/* h (M,D) = the final norm of y (M,D). */
int pl_dalle_final_norm(const struct pl_dalle *m, float *h, const float *y, int M);
/* logits (M,Vi) of image tokens from rows y (M,D) of the blocks' output; h (M,D) is scratch. */
int pl_dalle_image_logits(const struct pl_dalle *m, float *logits, float *h, const float *y, int M);

#ifdef __cplusplus
}
#endif
#endif
