/* gpt2_cache.h - generation by GPT-2, one position at a time, with a KV cache. [spec
 * images-and-text 6] */
#ifndef PL_GPT2_CACHE_H
#define PL_GPT2_CACHE_H

#include "../ref/model/gpt2.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Keys and values of all blocks at the positions so far: (layers,2,B,heads,positions,width/heads),
 * backend memory. */
struct pl_gpt2_cache {
    int B, positions, filled;
    float *at;
};
/* PL_EUSE: no sequence, or more positions than the model has; PL_ENOMEM. */
int pl_gpt2_cache_open(struct pl_gpt2_cache *cache, struct pl_gpt2 *m, int B, int positions);
void pl_gpt2_cache_close(struct pl_gpt2_cache *cache, struct pl_gpt2 *m);
/* The next token ids (B) of each sequence; logits (B,vocab) of what follows, or NULL; both host
 * memory. PL_ELIMIT: the cache is full; PL_EUSE: an id that the model does not have. */
int pl_gpt2_next(struct pl_gpt2 *m, struct pl_gpt2_cache *cache, float *logits, const int32_t *ids);

#ifdef __cplusplus
}
#endif
#endif
