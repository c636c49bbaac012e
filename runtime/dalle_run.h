/* dalle_run.h - runs a text-to-image transformer (ref/model/dalle.h): opens it with its buffers,
 * and takes batches of any size, in pieces that fit. [TTT 3.1] */
#ifndef PL_DALLE_RUN_H
#define PL_DALLE_RUN_H

#include "../ref/model/dalle.h"

#ifdef __cplusplus
extern "C" {
#endif

/* All parameters are zero: call pl_dalle_init or load a checkpoint. config is checked and copied.
 * be is borrowed; NULL: names and shapes alone, to count parameters or look into checkpoints. On
 * error *m is NULL. */
int pl_dalle_open(struct pl_dalle **m, const struct pl_dalle_config *config,
                  const struct pl_backend *be, int with_grad, struct pl_err *err);
void pl_dalle_close(struct pl_dalle *m);

struct pl_dalle_loss {
    double total, text, image; /* nats a token; total = (text + w image) / (1 + w) */
};

/* Below, text (B,T) and codes (B,I), the image tokens, are host memory: ids 0..V-1, where 0 becomes
 * the position's own padding id, and 0..Vi-1. Anything else is PL_EUSE with a sentence. */

/* Forward and backward: adds `scale` times the loss's gradient to the parameters'. A batch in parts
 * takes each part with its share of the samples as scale.
 *
 * Where the backend has parallel_for, a small model's batch is cut into shards (batch_shards.h). */
int pl_dalle_step(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                  double scale, struct pl_dalle_loss *loss, struct pl_err *err);

/* Forward only. logp (B,S), host memory or NULL: log-probabilities of the labels. */
int pl_dalle_evaluate(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int B,
                      struct pl_dalle_loss *loss, float *logp, struct pl_err *err);

/* With the first `count` image tokens of each sequence (codes (B,count)), 0..I: logits (B,n,Vt) of
 * n = min(T+1+count, S) positions, host memory; tokens that a position may not predict have
 * -FLT_MAX. */
int pl_dalle_logits(struct pl_dalle *m, float *logits, const int32_t *text, const int32_t *codes,
                    int count, int B, struct pl_err *err);
/* Logits (B,Vi) of image token number `count` < I alone, host memory: generation, uncached. */
int pl_dalle_next(struct pl_dalle *m, float *logits, const int32_t *text, const int32_t *codes,
                  int count, int B, struct pl_err *err);

/* PL_EUSE unless text (B,T) and codes (B,count) are in range. All functions above validate their
 * input first and leave the model unchanged on an error. */
int pl_dalle_check_ids(const struct pl_dalle_config *c, const int32_t *text, const int32_t *codes,
                       int count, int B, struct pl_err *err);
/* Embeds B checked sequences of `count` image tokens into the stack's input, n = min(T+1+count, S)
 * positions each; reserves the workspace. For the KV cache. */
int pl_dalle_enter(struct pl_dalle *m, const int32_t *text, const int32_t *codes, int count, int B);

#ifdef __cplusplus
}
#endif
#endif
