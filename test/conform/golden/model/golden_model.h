/* golden_model.h - what replays of whole models share: weights from the counter of the READMEs,
 * tables of names and shapes, comparing what a model makes. */
#ifndef PL_GOLDEN_MODEL_H
#define PL_GOLDEN_MODEL_H

#include "test/conform/golden/golden.h"
#include "ref/model/params.h"

/* 1 for tensors whose file has the last two dimensions exchanged. */
typedef int golden_transposed_fn(const char *name);

/* n values of the counter under a name. */
void golden_counter(float *u, const char *name, uint64_t seed, size_t n);
/* Every parameter from the table config.counter; 0 after a golden_fail line. transposed may be
 * NULL. */
int golden_counter_fill(struct golden *g, const struct pl_params *params, const json_t *config,
                        golden_transposed_fn *transposed);

/* The table doc.tensors of names and shapes in order, and doc.parameters, against a model's. */
void golden_names(struct golden *g, const json_t *doc, const struct pl_params *params,
                  golden_transposed_fn *transposed);

/* n values in backend memory against the tensor `name`, relative to its largest, or, with scale >
 * 0, to that. */
void golden_device(struct golden *g, const struct st_file *f, const char *name, const float *at,
                   size_t n, double scale, double allowed);

/* "<what's folder>/<stem without .io>.weights.safetensors", opened; NULL after a golden_fail
 * line. */
struct st_file *golden_weights(struct golden *g, const char *stem);

#endif
