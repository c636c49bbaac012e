/* kv_cache.h - drawing one code after the other without computing the others again: keys and
 * values of each block after their rotation, and the inputs that token shift looks back at. [spec
 * dalle 11] */
#ifndef PL_KV_CACHE_H
#define PL_KV_CACHE_H

#include "dalle_run.h"

#ifdef __cplusplus
extern "C" {
#endif

struct pl_kv_cache;

/* m is borrowed and must not change while the cache is in use. On error *out is NULL. */
int pl_kv_cache_open(struct pl_kv_cache **out, struct pl_dalle *m, int rows, struct pl_err *err);
void pl_kv_cache_close(struct pl_kv_cache *c);

/* Starts `rows` sequences (at most those it was opened for) from their texts (rows,T); equal
 * texts that stand side by side are computed once. logits (rows,Vi) of the first code. All host
 * memory. */
int pl_kv_cache_begin(struct pl_kv_cache *c, float *logits, const int32_t *text, int rows,
                      struct pl_err *err);
/* Appends one code to each sequence; logits of the next. Called at most I-1 times after begin. */
int pl_kv_cache_step(struct pl_kv_cache *c, float *logits, const int32_t *code, struct pl_err *err);

#ifdef __cplusplus
}
#endif
#endif
