/* gpt2.h - GPT-2: the language model of the paper's tutorial on fine-tuning with 8-bit optimizer
 * state. [TTT 2.3] [Radford et al. 2019] [spec images-and-text 6] */
#ifndef PL_GPT2_H
#define PL_GPT2_H

#include "prenorm.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pl_gpt2_config {
    int layers, heads, width, positions, vocab, inner; /* inner: width of the feed-forward layer */
    int groups; /* sets of layers that the blocks share in turn; 0: GPT-2, nothing is shared */
};
/* "gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl". PL_ENOTFOUND for others. */
int pl_gpt2_named(struct pl_gpt2_config *config, const char *name, struct pl_err *err);
/* PL_EUSE with a sentence if the numbers make no model. */
int pl_gpt2_check(const struct pl_gpt2_config *config, struct pl_err *err);

struct pl_gpt2 {
    struct pl_gpt2_config config;
    /* The peer's order and names. Its attn.c_attn, attn.c_proj, mlp.c_fc and mlp.c_proj weights are
     * [in,out]; here they are [out,in], as linear.h wants them: pl_gpt2_is_transposed tells
     * which. */
    struct pl_params params;
    struct pl_scratch *scratch; /* set before a model runs: runtime/models.h */
    struct pl_prenorm stack;
    size_t tokens, positions, norm_weight, norm_bias; /* wte (also the output matrix), wpe, ln_f */
    float *zeros, *no_grad; /* (vocab) the output layer has no bias: a zero one, and its gradient */
};

/* Names and shapes, without memory for values (runtime/models.h has pl_gpt2_init). The config has
 * been checked. */
int pl_gpt2_declare(struct pl_gpt2 *m, const struct pl_gpt2_config *config);
/* GPT-2's initial values: normal with deviation 0.02, for layers that add to the stream divided by
 * the root of their number; norms 1 and 0. [Radford et al. 2019, 2.3] */
int pl_gpt2_reset(struct pl_gpt2 *m, uint64_t seed);
int pl_gpt2_is_transposed(const char *name);

/* ids (B,n) in 0..vocab-1 (checked: PL_EUSE), n <= positions; all below is host memory. key_mask
 * (B,n), bytes, 0 hides a position from all others; NULL: none is hidden. */

/* logits (B,n,vocab) */
int pl_gpt2_logits(struct pl_gpt2 *m, float *logits, const int32_t *ids, const uint8_t *key_mask,
                   int B, int n);
/* Mean cross-entropy of position t against labels[t+1], over labels that are not negative. With
 * `scale` not 0 its gradient, times scale, is added to the parameters'. */
int pl_gpt2_loss(struct pl_gpt2 *m, double *loss, const int32_t *ids, const int32_t *labels,
                 const uint8_t *key_mask, int B, int n, double scale);

#ifdef __cplusplus
}
#endif
#endif
