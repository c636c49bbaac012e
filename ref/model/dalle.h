/* dalle.h - the whole text-to-image transformer: tokens in, losses and gradients or logits out.
 * [TTT 3.1] [DALL-E: Ramesh et al. 2021, section 2.2] */
#ifndef PL_DALLE_H
#define PL_DALLE_H

#include "reversible.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pl_dalle {
    struct pl_dalle_config config;
    const struct pl_backend *be; /* borrowed */
    struct pl_params params;     /* in the official order, under the official names */
    struct pl_stack stack;
    size_t gain, offset, table, bias; /* final norm; output matrix (Vt,D), also the embedding */
    size_t text_table, image_table;   /* (Vx,D), (Vi,D), if the embedding is separate */

    enum pl_activations activations; /* PL_REVERSIBLE unless changed between steps */
    int samples; /* in the workspace at a time; 0: as many as make products efficient */
    int lanes;   /* parts of a batch that pl_dalle_step computes side by side where the backend can;
                  * 0: pl_batch_shards */

    /* private */
    int room;               /* sequences that fit in the next four */
    int32_t *ids, *labels;  /* (room,S) host */
    int32_t *ids_be, *labels_be;
    struct pl_dalle *lane;  /* (lanes_made) twins that share the parameters' values */
    int lanes_made;
};

/* All zero: call pl_dalle_init or load a checkpoint. config is checked and copied. be NULL: names
 * and shapes alone, for whoever counts or looks into checkpoints. */
int pl_dalle_open(struct pl_dalle **m, const struct pl_dalle_config *config,
                  const struct pl_backend *be, int with_grad, struct pl_err *err);
void pl_dalle_close(struct pl_dalle *m);
/* The run's initial values [spec dalle 10]. */
int pl_dalle_init(struct pl_dalle *m, uint64_t seed);

struct pl_dalle_loss {
    double total, text, image; /* nats a token; total = (text + w image) / (1 + w) */
};

/* Below, text (B,T) and codes (B,I) are host memory: ids 0..V-1, where 0 becomes the position's own
 * padding id, and codes 0..Vi-1. Anything else is PL_EUSE with a sentence. */

/* Forward and backward: adds `scale` times the loss's gradient to the parameters'. A batch in parts
 * takes each part with its share of the samples as scale.
 *
 * A small model's operations are too short to share each among threads. So its batch is cut into
 * lanes, each of which goes all the way on one thread, with gradients of its own that are added in
 * the lanes' order. The cut follows from the sizes alone, and the result not from the threads. */
int pl_dalle_step(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                  double scale, struct pl_dalle_loss *loss, struct pl_err *err);

/* Forward only. logp (B,S), host memory or NULL: log-probabilities of the labels. */
int pl_dalle_evaluate(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                      struct pl_dalle_loss *loss, float *logp, struct pl_err *err);

/* With the first `count` codes of each sequence (codes (B,count)), 0..I: logits (B,n,Vt) of
 * n = min(T+1+count, S) positions, host memory; what a position may not predict is -FLT_MAX. */
int pl_dalle_logits(struct pl_dalle *m, float *logits, const int32_t *text, const int32_t *codes,
                    int count, int B, struct pl_err *err);
/* Logits (B,Vi) of code number `count` < I alone, host memory: generation without a cache. */
int pl_dalle_next(struct pl_dalle *m, float *logits, const int32_t *text, const int32_t *codes,
                  int count, int B, struct pl_err *err);

/* --- the pieces, for cached generation and tests --- */

/* PL_EUSE unless text (B,T) and codes (B,count) are in range. All of the above ask it first, so
 * that a refused batch has changed nothing. */
int pl_dalle_check_ids(const struct pl_dalle_config *c, const int32_t *text, const int32_t *codes,
                       int count, int B, struct pl_err *err);
/* B sequences of `count` codes, which have been checked, embedded into the stack's input, whose
 * workspace is made large enough; n = min(T+1+count, S) positions each. */
int pl_dalle_enter(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int count, int B);
/* x (M,D) = embeddings of image codes (M), all backend memory. */
int pl_dalle_embed_codes(const struct pl_dalle *m, float *x, const int32_t *codes, int M);
/* Image logits (M,Vi) from rows y (M,D) of the stack's output; h (M,D) is scratch. Backend
 * memory. */
int pl_dalle_image_logits(const struct pl_dalle *m, float *logits, float *h, const float *y, int M);
/* labels (S) of one sequence, host memory: what each position predicts is the id at the next. */
void pl_dalle_labels(const struct pl_dalle_config *c, int32_t *labels, const int32_t *text,
                     const int32_t *codes);

#ifdef __cplusplus
}
#endif
#endif
